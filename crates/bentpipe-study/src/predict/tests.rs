use super::*;
use bentpipe_link::catalogue;
use toml::Table;

struct Case {
    link: LinkConfig,
    tcp: TcpConfig,
}

fn case(link: &str, over: &str, tcp: &str) -> Case {
    let file = catalogue::named(link).unwrap().unwrap();
    let over: Table = toml::from_str(over).unwrap();
    Case { link: file.with(over).unwrap(), tcp: TcpConfig::from_table(toml::from_str(tcp).unwrap()).unwrap() }
}

impl Case {
    fn question(&self) -> Question<'_> {
        Question {
            name: "test",
            link: &self.link,
            tcp: &self.tcp,
            direction: Direction::Download,
            bytes: DataSize::from_bytes(1_000_000),
            loss: None,
            connections: 1,
        }
    }
    fn predict(&self) -> Prediction {
        predict(&self.question()).unwrap()
    }
}

/// One line a row, in milliseconds and bit/s.
fn lines(prediction: &Prediction) -> Vec<String> {
    let line = |row: &Row| match &row.outcome {
        Outcome::Predicted { seconds, goodput_bps } => {
            format!("{} {} ms {goodput_bps} bit/s", row.model, (seconds * 1e3).round())
        }
        Outcome::NotApplicable { not_applicable } => format!("{}: {not_applicable}", row.model),
    };
    prediction.rows.iter().map(line).collect()
}

fn goodput(prediction: &Prediction, model: &str) -> u64 {
    match &prediction.rows.iter().find(|row| row.model == model).unwrap().outcome {
        Outcome::Predicted { goodput_bps, .. } => *goodput_bps,
        Outcome::NotApplicable { not_applicable } => panic!("{model}: {not_applicable}"),
    }
}

#[test]
fn what_the_models_are_given() {
    // A segment of 1500 B in PPP: 1507 B = 12,056 bits, 7.849 ms at 1.536 Mbit/s; an acknowledgement 47 B = 376 bits,
    // 0.245 ms. Payload 1,536,000 · 11,680 / 12,056 = 1,488,095.5 bit/s. In 508.094 ms that is 94,511 B.
    let inputs = case("acts-t1", "noise = 1e-6", "preset = 'windows-95'").predict().inputs;
    assert_eq!((inputs.segment_bytes, inputs.segment_bits, inputs.ack_bits), (1460, 12_056, 376));
    assert_eq!(inputs.payload_rate_bps, 1_488_095);
    assert!((inputs.rtt_seconds - (0.5 + (12_056.0 + 376.0) / 1_536_000.0)).abs() < 2e-9);
    assert_eq!(inputs.bandwidth_delay_product_bytes, 94_512);
    // 1 − (1 − 1e-6)^12056 = 0.0119836.
    assert!((inputs.segment_loss.unwrap() - 0.011_983_6).abs() < 1e-7);
    assert_eq!((inputs.window_bytes, inputs.slow_start_growth), (Some(8192), 1.5));
    // Linux: timestamps take 12 bytes; growth by what is acknowledged; RTT + 200 ms.
    let inputs = case("acts-t1", "", "").predict().inputs;
    assert_eq!((inputs.segment_bytes, inputs.ack_bits, inputs.window_bytes), (1448, 59 * 8, None));
    assert_eq!(inputs.slow_start_growth, 2.0);
    assert!((inputs.timeout_seconds - inputs.rtt_seconds - 0.2).abs() < 1e-9);
}

#[test]
fn the_upload_is_the_other_way_round() {
    let case = case("direcpc", "", "");
    let down = case.predict().inputs;
    let up = predict(&Question { direction: Direction::Upload, ..case.question() }).unwrap().inputs;
    assert_eq!((down.rate_bps, down.return_rate_bps), (400_000, 28_800));
    assert_eq!((up.rate_bps, up.return_rate_bps), (28_800, 400_000));
    assert!(up.rtt_seconds > down.rtt_seconds, "a full segment takes 419 ms through the modem");
}

#[test]
fn a_clean_link_with_a_small_window() {
    // Window: five segments of 1460 B a round trip: 58,400 / 0.50809375 = 114,939.4 bit/s.
    // Kruse: rounds of 1, 1.5, 2.25, 3.375 and then 5 segments, each a round trip: 140 of them and 500 ms of set-up; the
    // last one's sending adds to it. Cardwell: 685 segments: log1.5(5) + 1 + (685 − (1.5·5 − 1)/0.5)/5 = 139.37 rounds,
    // a handshake, and 100 ms for the first delayed acknowledgement. Both recomputed outside this program.
    let prediction = case("acts-t1", "", "preset = 'windows-95'").predict();
    assert_eq!(
        lines(&prediction),
        [
            "window 69602 ms 114939 bit/s",
            "return link: acknowledgements fit: k = 0.031, and one stands for 2 segments",
            "Kruse 71648 ms 111657 bit/s",
            "Cardwell 71421 ms 112012 bit/s",
            "Mathis: nothing is lost",
            "PFTK: nothing is lost",
            "CUBIC: a model of CUBIC; the sender uses reno",
        ]
    );
}

#[test]
fn a_noisy_link_with_a_large_window() {
    let prediction = case("acts-t1", "noise = 1e-6", "preset = 'tcp-lfn'").predict();
    // Segments of 1448 B in 508.156 ms, lost with 0.01198. Mathis: 11,584 / 0.508156 · √0.75 / √0.01198 = 180,342 bit/s;
    // PFTK with 64.7 segments in flight and T0 = 1 s. Recomputed outside this program.
    assert_eq!(
        lines(&prediction),
        [
            "window 5421 ms 1475864 bit/s",
            "return link: acknowledgements fit: k = 0.039, and one stands for 2 segments",
            "Kruse: a model without losses; this transfer expects 8.3",
            "Cardwell 50612 ms 158065 bit/s",
            "Mathis 44360 ms 180342 bit/s",
            "PFTK 50818 ms 157424 bit/s",
            "CUBIC: a model of CUBIC; the sender uses reno",
        ]
    );
}

#[test]
fn a_thin_return_link_limits() {
    // 28.8 kbit/s for acknowledgements of 47 B, one for two segments of 1460 B: 28,800 / 376 · 23,360 = 1,789,276 bit/s;
    // at 2 Mbit/s down (1,976,311 bit/s of data) that is the limit.
    let case = case("direcpc", "forward = { rate = '2 Mbit/s' }", "preset = 'windows-95'");
    assert_eq!(goodput(&case.predict(), "return link"), 1_789_276);
}

#[test]
fn more_connections_fill_the_link() {
    let case = case("acts-t1", "", "preset = 'windows-95'\nreceive_window = '24 KiB'\nsend_buffer = '24 KiB'");
    let of = |connections| predict(&Question { connections, ..case.question() }).unwrap();
    let (one, eight) = (of(1), of(8));
    assert_eq!(goodput(&one, "window"), 367_806);
    assert_eq!(goodput(&eight, "window"), 1_488_095, "the link's");
    for model in ["Kruse", "Cardwell"] {
        assert!(goodput(&eight, model) > 2 * goodput(&one, model), "{model}");
    }
}

#[test]
fn models_refuse_what_they_do_not_know() {
    let refused = |link: &str, over: &str, tcp: &str, model: &str, why: &str| {
        let prediction = case(link, over, tcp).predict();
        let line = lines(&prediction).into_iter().find(|line| line.starts_with(model)).unwrap();
        assert!(line.contains(why), "{link} {over} {tcp}: {line}");
    };
    refused("acts-t1", "noise = 1e-5", "", "Mathis", "uses cubic");
    refused("acts-t1", "noise = 1e-5", "", "Cardwell", "uses cubic");
    refused("acts-t1", "noise = 1e-5", "preset = 'tcp-lfn'", "Kruse", "without losses");
    refused("acts-t1", "noise = 1e-8", "preset = 'tcp-lfn'", "PFTK", "steady state needs losses");
    refused("acts-t1", "noise = 1e-3", "preset = 'tcp-lfn'", "PFTK", "100 % of the segments are lost");
    refused("acts-t1", "noise = 0.5", "preset = 'tcp-lfn'", "Cardwell", "100 % of the segments are lost");
    let storm = "noise = { profile = 'thunderstorm', dwell = '30 s' }";
    refused("acts-t1", storm, "preset = 'tcp-lfn'", "PFTK", "changes over time; --loss");
    let steps = "rate_schedule = { steps = [{ at = '0 s', rate = '1 Mbit/s' }, { at = '9 s', rate = '2 Mbit/s' }] }";
    refused("acts-t1", steps, "preset = 'tcp-lfn'", "Kruse", "rate changes over time");
}

#[test]
fn every_link_and_preset_has_finite_answers() {
    for name in catalogue::names() {
        for preset in bentpipe_net::stack::PRESETS {
            for noise in ["", "noise = 1e-7", "noise = 1e-5", "noise = 1e-4", "noise = 0.5"] {
                let case = case(name, noise, &format!("preset = '{}'", preset.name));
                for direction in [Direction::Download, Direction::Upload] {
                    for bytes in [1, 100_000, 1_000_000_000] {
                        let bytes = DataSize::from_bytes(bytes);
                        let prediction = predict(&Question { direction, bytes, ..case.question() }).unwrap();
                        let bound = goodput(&prediction, "window");
                        for row in &prediction.rows {
                            let Outcome::Predicted { seconds, goodput_bps } = row.outcome else { continue };
                            let what = format!("{name} {} {noise} {bytes} {}", preset.name, row.model);
                            assert!(seconds.is_finite() && seconds > 0.0, "{what}: {seconds} s");
                            if row.kind == Kind::Bound {
                                continue;
                            }
                            assert!(goodput_bps <= bound + bound / 1000, "{what}: {goodput_bps} above {bound}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_given_loss_stands_above_the_links() {
    let case = case("acts-t1", "noise = { profile = 'thunderstorm', dwell = '30 s' }", "preset = 'tcp-lfn'");
    let bytes = DataSize::from_bytes(100_000_000);
    let prediction = predict(&Question { loss: Some(0.01), bytes, ..case.question() }).unwrap();
    assert_eq!(prediction.inputs.segment_loss, Some(0.01));
    assert!(goodput(&prediction, "PFTK") > 0);
}

#[test]
fn impossible_questions_are_refused() {
    let case = case("acts-t1", "", "");
    let nothing = Question { bytes: DataSize::from_bytes(0), ..case.question() };
    assert_eq!(predict(&nothing), Err(PredictError::NoBytes));
    assert_eq!(predict(&Question { loss: Some(1.0), ..case.question() }), Err(PredictError::Loss(1.0)));
    assert_eq!(predict(&Question { connections: 0, ..case.question() }), Err(PredictError::Connections(0)));
}

#[test]
fn the_json_says_which_rows_apply() {
    let json = case("acts-t1", "", "preset = 'windows-95'").predict().to_json().unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["inputs"]["segment_bytes"], 1460);
    assert_eq!(value["rows"][0]["goodput_bps"], 114_939);
    assert_eq!(value["rows"][4]["not_applicable"], "nothing is lost");
    assert!(value["simulated"].is_null());
}

impl Case {
    fn simulate(&self, change: impl FnOnce(&mut Question<'_>)) -> Prediction {
        let mut question = self.question();
        change(&mut question);
        let mut prediction = predict(&question).unwrap();
        prediction.simulate(&question);
        prediction
    }
}

fn seconds(prediction: &Prediction, model: &str) -> f64 {
    match prediction.rows.iter().find(|row| row.model == model).unwrap().outcome {
        Outcome::Predicted { seconds, .. } => seconds,
        Outcome::NotApplicable { .. } => panic!("{model} does not apply"),
    }
}

#[test]
fn the_simulator_counts_the_rounds_of_slow_start_as_the_models_do() {
    // One segment: a round trip for the handshake and one until the data, 500 ms each and a few for sending.
    let one = case("acts-t1", "", "");
    let simulated = one.simulate(|question| question.bytes = DataSize::from_bytes(1000)).simulated.unwrap();
    assert_eq!(simulated.runs, 1);
    assert!((1.0..1.02).contains(&simulated.seconds), "{simulated:?}");
    assert_eq!(simulated.seconds_range, (simulated.seconds, simulated.seconds));
    let window = case("acts-t1", "", "preset = 'windows-95'").simulate(|_| {});
    let simulated = window.simulated.unwrap();
    let ratio = seconds(&window, "Kruse") / simulated.seconds;
    assert!((0.95..1.05).contains(&ratio), "{ratio}: {simulated:?}");
    assert!((simulated.goodput_bps as f64 * simulated.seconds - 8e6).abs() < simulated.seconds, "{simulated:?}");
}

#[test]
fn an_upload_ends_with_its_last_acknowledgement() {
    let case = case("acts-t1", "", "preset = 'windows-95'");
    let down = case.simulate(|_| {}).simulated.unwrap();
    let up = case.simulate(|question| question.direction = Direction::Upload).simulated.unwrap();
    // Both take a handshake and whole round trips; the last acknowledgement may be a delayed one.
    assert!((up.seconds - down.seconds).abs() < 0.75, "{up:?} {down:?}");
}

#[test]
fn what_comes_before_the_first_syn_is_left_out() {
    // Asking for the hub's hardware address takes a round trip of its own.
    let ip = case("geo-50-5", "carries = 'ip'", "").simulate(|_| {}).simulated.unwrap();
    let ethernet = case("geo-50-5", "carries = 'ethernet'", "").simulate(|_| {}).simulated.unwrap();
    assert!((ethernet.seconds - ip.seconds).abs() < 0.1, "{ethernet:?} {ip:?}");
    let isdn = case("acts-isdn-bri", "", "").simulate(|question| question.bytes = DataSize::from_bytes(1000));
    assert!(isdn.simulated.unwrap().seconds < 2.0, "the circuit is up");
}

#[test]
fn chance_asks_for_several_runs_and_the_same_seeds() {
    let case = case("acts-t1", "noise = 1e-6", "preset = 'tcp-lfn'");
    let (one, two) = (case.simulate(|_| {}), case.simulate(|_| {}));
    assert_eq!(one, two);
    let simulated = one.simulated.unwrap();
    assert!(simulated.runs == 25 && simulated.seconds_range.0 < simulated.seconds_range.1, "{simulated:?}");
    // A loss that is given stands in place of the link's errors.
    let none = case.simulate(|question| question.loss = Some(0.0)).simulated.unwrap();
    assert!(none.runs == 25 && none.seconds < simulated.seconds, "acknowledgements still meet noise: {none:?}");
    let more = case.simulate(|question| question.loss = Some(0.05)).simulated.unwrap();
    assert!(more.seconds > simulated.seconds, "{more:?} {simulated:?}");
}

#[test]
fn connections_share_the_transfer_in_the_simulator_too() {
    let case = case("acts-t1", "", "preset = 'windows-95'");
    let of = |connections| case.simulate(|question| question.connections = connections).simulated.unwrap().seconds;
    assert!(of(4) < of(1) / 3.0);
    let few = case.simulate(|question| (question.connections, question.bytes) = (9, DataSize::from_bytes(3)));
    assert!(few.simulated.is_some(), "six of nine connections have nothing to carry: {:?}", few.notes);
}

#[test]
fn what_cannot_be_simulated_is_reported() {
    let must_note = |case: &Case, change: fn(&mut Question<'_>), what: &str| {
        let prediction = case.simulate(change);
        assert_eq!(prediction.simulated, None);
        assert!(prediction.notes.iter().any(|note| note.contains(what)), "{what}: {:?}", prediction.notes);
    };
    let vegas = case("acts-t1", "", "congestion_control = 'vegas'");
    must_note(&vegas, |_| {}, "Not simulated: tcp.congestion_control: ");
    let large = case("geo-50-5", "", "");
    must_note(&large, |question| question.bytes = DataSize::from_bytes(1 << 50), "transfers of up to 5 GB");
    must_note(&case("acts-t1", "noise = 0.5", ""), |_| {}, "25 of 25 simulated run(s) did not finish");
}
