//! Link files and overrides: what replaces what, and the messages of mistakes.

use crate::driver::file;
use bentpipe_link::catalogue::{LinkFile, named, names, parse_override};
use bentpipe_link::config::{LinkConfig, merge};
use bentpipe_link::framing::Framing;
use bentpipe_link::jitter::{Delays, JitterConfig};
use bentpipe_link::noise::{RatioSchedule, THUNDERSTORM};
use bentpipe_link::queue::QueueLimit;
use bentpipe_net::distribution::Distribution;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitErrorRatio;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use toml::Table;

/// The file's link with one `--set` after the other on top.
fn try_set(text: &str, sets: &[&str]) -> Result<LinkConfig, KeyProblem> {
    let mut table: Table = toml::from_str(text).unwrap();
    for set in sets {
        merge(&mut table, parse_override(set).unwrap_or_else(|problem| panic!("{problem}")));
    }
    LinkConfig::from_table(table)
}

fn set(text: &str, sets: &[&str]) -> LinkConfig {
    try_set(text, sets).unwrap_or_else(|problem| panic!("{sets:?}: {problem:?}"))
}

fn rates(config: &LinkConfig) -> (u64, u64) {
    (config.forward.rate.highest().bps, config.back.rate.highest().bps)
}

fn ratio_at(schedule: &RatioSchedule, second: u64) -> f64 {
    schedule.at(Instant::ZERO + Duration::from_secs(second)).0.ratio()
}

const BOTH: &str = "rate = '2 Mbit/s'\none_way_delay = '250 ms'\n";
const EACH: &str = "one_way_delay = '250 ms'\n[forward]\nrate = '4 Mbit/s'\n[return]\nrate = '128 kbit/s'\n";
const BUNDLE: &str = "one_way_delay = '250 ms'\nbundle = { channels = 24, rate = '64 kbit/s' }\n";

#[test]
fn a_top_level_key_is_meant_for_both_directions() {
    assert_eq!(rates(&set(BOTH, &["rate=1 Mbit/s"])), (1_000_000, 1_000_000));
    assert_eq!(rates(&set(EACH, &["rate=1 Mbit/s"])), (1_000_000, 1_000_000), "even where the file has one each");
    assert_eq!(set(EACH, &["one_way_delay=10 ms"]).round_trip(), Duration::from_millis(20));
    let delays = "rate = '1 Mbit/s'\nforward.one_way_delay = '300 ms'\nreturn.one_way_delay = '30 ms'\n";
    assert_eq!(set(delays, &["one_way_delay=10 ms"]).round_trip(), Duration::from_millis(20));
}

#[test]
fn a_directions_key_is_meant_for_that_direction() {
    assert_eq!(rates(&set(BOTH, &["forward.rate=1 Mbit/s"])), (1_000_000, 2_000_000));
    assert_eq!(rates(&set(EACH, &["return.rate=1 Mbit/s"])), (4_000_000, 1_000_000));
    assert_eq!(set(BOTH, &["return.one_way_delay=30 ms"]).round_trip(), Duration::from_millis(280));
    assert_eq!(rates(&set(BOTH, &["forward.rate=1 Mbit/s", "rate=3 Mbit/s"])), (3_000_000, 3_000_000), "the last wins");
}

#[test]
fn rate_schedule_and_bundle_replace_each_other() {
    let channels = |config: &LinkConfig| (config.forward.channels, config.back.channels);
    let config = set(BUNDLE, &["rate=1 Mbit/s"]);
    assert_eq!((channels(&config), rates(&config)), ((1, 1), (1_000_000, 1_000_000)));
    let config = set(BUNDLE, &["forward.rate=1 Mbit/s"]);
    assert_eq!((channels(&config), rates(&config)), ((1, 24), (1_000_000, 64_000)));
    let config = set(EACH, &["bundle={channels = 2, rate = '64 kbit/s'}"]);
    assert_eq!((channels(&config), rates(&config)), ((2, 2), (64_000, 64_000)));
    let config = set(BOTH, &["return.bundle={channels = 2, rate = '64 kbit/s'}"]);
    assert_eq!((channels(&config), rates(&config)), ((1, 2), (2_000_000, 64_000)));
    let steps = "rate_schedule={steps=[{at='0 s', rate='1 Mbit/s'}, {at='1 s', rate='5 Mbit/s'}]}";
    assert_eq!(rates(&set(BUNDLE, &[steps])), (5_000_000, 5_000_000));
    assert_eq!(rates(&set(BOTH, &[steps, "rate=3 Mbit/s"])), (3_000_000, 3_000_000));
    assert_eq!(set(BUNDLE, &["bundle.channels=6"]).forward.rate.highest().bps, 64_000, "the rest of a table stays");
}

#[test]
fn kinds_of_noise_replace_each_other() {
    let with = |noise: &str| format!("{BOTH}noise = {noise}\n");
    let constant = RatioSchedule::Constant(BitErrorRatio::new(1e-5).unwrap());
    let bursts = "{ background = 1e-6, burst = 1e-3, duration = '5 s', gap = '10 s' }";
    let steps = "{ steps = [{ at = '0 s', ratio = 1e-4 }], repeat = '1 s' }";
    for before in ["1e-6", "{ ratio = 1e-6 }", bursts, steps, "{ profile = 'wander', dwell = '15 min' }"] {
        for over in ["noise=1e-5", "noise.ratio=1e-5", "noise={ratio = 1e-5}"] {
            let config = set(&with(before), &[over]);
            assert_eq!((&config.forward.noise, &config.back.noise), (&constant, &constant), "{before}, {over}");
        }
        let config = set(&with(before), &["noise={profile = 'thunderstorm', dwell = '30 s'}"]);
        assert_eq!(ratio_at(&config.forward.noise, 30), THUNDERSTORM[1], "{before}");
        let config = set(&with(before), &["forward.noise=1e-5"]);
        assert_eq!(config.forward.noise, constant, "{before}");
        assert_ne!(config.back.noise, constant, "{before}: the other direction keeps its own");
    }
    // One value of a set stays with its set.
    let config = set(&with(bursts), &["noise.duration=1 s"]);
    assert_eq!((ratio_at(&config.forward.noise, 10), ratio_at(&config.forward.noise, 11)), (1e-3, 1e-6));
}

#[test]
fn queue_limits_and_framings_replace_each_other() {
    let text = format!("{BOTH}queue = {{ bytes = '64 KiB' }}\nframing = {{ type = 'ppp', flag_bytes = 2 }}\n");
    assert_eq!(set(&text, &["queue.packets=20"]).forward.queue.fifo_limit(), Some(QueueLimit::Packets(20)));
    assert_eq!(set(&text, &["forward.queue.packets=20"]).back.queue.fifo_limit(), Some(QueueLimit::Bytes(65_536)));
    for over in ["framing=ethernet", "framing.type=ethernet", "framing={type = 'ethernet'}"] {
        let config = set(&text, &[over]);
        assert!(matches!(config.back.framing, Framing::Ethernet(_)), "{over}: the options of PPP are gone");
    }
    let Framing::Ppp(ppp) = set(&text, &["framing.fcs_bytes=4"]).forward.framing else { panic!("still PPP") };
    assert_eq!((ppp.flag_bytes, ppp.fcs_bytes), (2, 4), "one option leaves the others");
}

#[test]
fn shorthands_mean_the_same_in_files_and_overrides() {
    let text = format!("{BOTH}framing = 'ppp'\nnoise = 1e-6\nloss = '1 %'\n");
    let config = set(&text, &[]);
    assert!(matches!(config.forward.framing, Framing::Ppp(_)));
    assert_eq!(ratio_at(&config.back.noise, 0), 1e-6);
    assert_eq!(config.back.medium.loss.unwrap().share, 0.01);
    let config = set(BOTH, &["framing=ppp", "noise=1e-6", "return.loss=1 %"]);
    assert!(matches!(config.forward.framing, Framing::Ppp(_)));
    assert_eq!(ratio_at(&config.back.noise, 0), 1e-6);
    assert_eq!((config.forward.medium.loss, config.back.medium.loss.unwrap().share), (None, 0.01));
    // An override may refine what the file wrote short.
    let config = set(&text, &["framing.fcs_bytes=4", "loss.burst=5.0"]);
    let Framing::Ppp(ppp) = config.forward.framing else { panic!("still PPP") };
    assert_eq!((ppp.fcs_bytes, config.forward.medium.loss.unwrap().burst_mean), (4, 5.0));
}

#[test]
fn overrides_need_a_key_and_take_strings_without_quotes() {
    for (text, key, value) in [
        ("one_way_delay=250 ms", "one_way_delay", "\"250 ms\""),
        (" forward.rate = 2 Mbit/s ", "forward", "{ rate = \"2 Mbit/s\" }"),
        ("noise=1e-6", "noise", "0.000001"),
        ("queue.packets=20", "queue", "{ packets = 20 }"),
        ("rate=\"1 kbit/s\"", "rate", "\"1 kbit/s\""),
        ("title=a=b", "title", "\"a=b\""),
    ] {
        assert_eq!(parse_override(text).unwrap()[key].to_string(), value, "{text}");
    }
    for text in ["rate", "=1", "forward..rate=1", ".rate=1", "rate.=1", ""] {
        let problem = parse_override(text).unwrap_err();
        assert!(problem.to_string().starts_with(&format!("--set '{text}'")), "{problem}");
    }
}

#[test]
fn a_mistake_names_key_line_and_what_is_allowed() {
    // (text, key, line, words of the message)
    let table: &[(&str, &str, Option<usize>, &[&str])] = &[
        ("rate = '2 Mbit/s'\n", "one_way_delay", None, &["missing", "250 ms"]),
        ("rate = '2 Mbit/s'\nforward.one_way_delay = '1 s'\n", "return.one_way_delay", None, &["missing", "250 ms"]),
        (
            "one_way_delay = '1 ms'\n",
            "rate",
            None,
            &["missing", "rate, rate_schedule, rate_trace or bundle", "2 Mbit/s"],
        ),
        ("\nrate = 2000\none_way_delay = '1 ms'\n", "rate", Some(2), &["2000", "number and bit/s, kbit/s, Mbit/s"]),
        ("rate = '2 Mb'\none_way_delay = '1 ms'\n", "rate", Some(1), &["\"2 Mb\"", "allowed", "Mbit/s"]),
        ("rate = '2 Mbit/s'\none_way_delay = '250'\n", "one_way_delay", Some(2), &["\"250\"", "ns, us, ms"]),
        ("rate = '1,5 Mbit/s'\none_way_delay = '1 ms'\n", "rate", Some(1), &["\"1,5 Mbit/s\" is not a rate"]),
        (
            "rate = '0 bit/s'\none_way_delay = '1 ms'\n",
            "rate",
            Some(1),
            &["0 bit/s carries nothing", "1 bit/s or more"],
        ),
        (
            "[forward]\nrate = '1 bit/s'\n[return]\none_way_delay = '1 s'\n",
            "forward.one_way_delay",
            Some(1),
            &["missing"],
        ),
        (
            "one_way_delay = '1 ms'\n[forward]\nrate = '0 bit/s'\n[return]\nrate = '1 bit/s'\n",
            "forward.rate",
            Some(3),
            &["1 bit/s or more"],
        ),
        ("speed = '1 Mbit/s'\n", "speed", Some(1), &["unknown", "speed", "rate", "one_way_delay", "circuit"]),
        ("[forward]\nrate = '1 Mbit/s'\ndelay = '1 ms'\n", "forward.delay", Some(3), &["unknown", "one_way_delay"]),
        ("forward = 3\n", "forward", Some(1), &["must be a table", "[forward]"]),
        (
            "rate = '1 Mbit/s'\nbundle = { channels = 2, rate = '1 kbit/s' }\none_way_delay = '1 ms'\n",
            "rate",
            Some(1),
            &["only one of rate, rate_schedule, rate_trace and bundle"],
        ),
        (
            "bundle = { channels = 0, rate = '1 kbit/s' }\none_way_delay = '1 ms'\n",
            "bundle.channels",
            Some(1),
            &["1 to 4096"],
        ),
        ("rate = '1 Mbit/s'\none_way_delay = '1 ms'\nmtu = '20 B'\n", "mtu", Some(3), &["20 B", "68 B", "65535 B"]),
        ("rate = '1 Mbit/s'\none_way_delay = '1 ms'\nmtu = 1500\n", "mtu", Some(3), &["number and B, kB"]),
        ("rate = '1 Mbit/s'\none_way_delay = '1 ms'\nnoise = 0.7\n", "noise.ratio", Some(3), &["0.7", "0 to 0.5"]),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nnoise = { ratio = 1e-6, burst = 1e-3 }\n",
            "noise",
            Some(3),
            &["allowed: ratio; or background, burst, duration and gap; or profile and dwell; or steps"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nnoise.profile = 'hail'\n",
            "noise.profile",
            Some(3),
            &["hail", "thunderstorm", "wander"],
        ),
        (
            "one_way_delay = '1 ms'\n[rate_schedule]\nsteps = [\n{ at = '0 s', rate = '1 Mbit/s' },\n\
          { at = '5 s', rate = '1 Mbit/s' },\n{ at = '5 s', rate = '2 Mbit/s' }]\n",
            "rate_schedule.steps.2.at",
            Some(6),
            &["5 s is not after the step before", "must rise"],
        ),
        (
            "one_way_delay = '1 ms'\n[rate_schedule]\nsteps = [{ at = '1 s', rate = '1 Mbit/s' }]\n",
            "rate_schedule.steps.0.at",
            Some(3),
            &["must start at \"0 s\""],
        ),
        (
            "one_way_delay = '1 ms'\n[rate_schedule]\nrepeat = '1 s'\nsteps = [{ at = '0 s', rate = '0 bit/s' }]\n",
            "rate_schedule.steps",
            Some(4),
            &["every rate is 0"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[noise]\nrepeat = '1 s'\nsteps = [{ at = '0 s', ratio = 0.1 },\n\
          { at = '2 s', ratio = 0.2 }]\n",
            "noise.repeat",
            Some(4),
            &["1 s ends before the last step starts (2 s)"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nqueue = { bytes = '500 B' }\n",
            "queue.bytes",
            Some(3),
            &["500 B does not hold one packet", "1500 B or more"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nqueue = { bytes = '9 kB', packets = 3 }\n",
            "queue",
            Some(3),
            &["either bytes or packets"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nqueue = { packets = 0 }\n",
            "queue.packets",
            Some(3),
            &["1 or more"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nloss = '101 %'\n",
            "loss.share",
            Some(3),
            &["\"101 %\"", "0 to 100"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nloss = { share = '90 %', burst = 2.0 }\n",
            "loss.burst",
            Some(3),
            &["90 %", "allowed: 9"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nframing = 'slip'\n",
            "framing.type",
            Some(3),
            &["slip", "ppp", "async-ppp", "ethernet", "frame-relay"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nframing = { type = 'ppp', fcs_bytes = 3 }\n",
            "framing.fcs_bytes",
            Some(3),
            &["3 is out of range", "2, 4"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nframing = { type = 'ethernet', fcs_bytes = 4 }\n",
            "framing",
            Some(3),
            &["unknown", "fcs_bytes", "preamble_and_gap", "minimum"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[framing]\ntype = 'frame-relay'\n\
          trunk = { payload = '0 B', overhead = '8 B' }\n",
            "framing.trunk.payload",
            Some(5),
            &["1 B to 65535 B"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[[outages]]\nat = '1 s'\nlasts = '9 s'\nevery = '9 s'\n",
            "outages.0.every",
            Some(6),
            &["longer than the outage lasts"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[circuit]\nstages = [{ name = 'a', time = '1 s' }]\n\
          charged_from = 'b'\n",
            "circuit.charged_from",
            Some(5),
            &["no stage \"b\"", "allowed: a"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[circuit]\non_demand = {}\n",
            "circuit.on_demand",
            Some(4),
            &["channels to call", "bundle"],
        ),
        (
            "bundle = { channels = 4, rate = '64 kbit/s' }\none_way_delay = '1 ms'\n[circuit]\non_demand = { least = 0 }\n",
            "circuit.on_demand.least",
            Some(4),
            &["carries nothing", "1 to 4"],
        ),
        (
            "bundle = { channels = 4, rate = '64 kbit/s' }\none_way_delay = '1 ms'\n[circuit]\n\
             on_demand = { target = '100 %' }\n",
            "circuit.on_demand.target",
            Some(4),
            &["less than 100 %"],
        ),
        (
            "bundle = { channels = 4, rate = '64 kbit/s' }\none_way_delay = '1 ms'\n[circuit.on_demand]\n\
             history = '1 s'\ninterval = '2 s'\n",
            "circuit.on_demand.interval",
            Some(5),
            &["2 s in a history of 1 s", "1 to 4096 intervals"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[circuit]\ncost_per_minute = -1.0\n",
            "circuit.cost_per_minute",
            Some(4),
            &["[tariff]", "price"],
        ),
        (
            "rate = '1 Mbit/s'\none_way_delay = '1 ms'\ncarries = 'atm'\n",
            "carries",
            Some(3),
            &["atm", "ip", "ethernet"],
        ),
        ("rate = '1 Mbit/s'\none_way_delay 1 ms\n", "", Some(2), &["not TOML"]),
    ];
    let mut wrong = Vec::new();
    for (text, key, line, words) in table {
        let problem = LinkFile::parse("test", "test.toml", text).expect_err(text);
        let shown = problem.to_string();
        let place = line.map_or("test.toml: ".to_owned(), |line| format!("test.toml:{line}: "));
        let says = words.iter().all(|word| shown.contains(word));
        let placed = (problem.key.as_str(), problem.line) == (*key, *line) && shown.starts_with(&place);
        if !placed || !says || shown.contains('\n') {
            wrong.push(format!("{shown}\n  expected {key:?} at {line:?} with {words:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_mistake_in_an_override_names_its_key() {
    for (over, key, word) in [
        ("rate=2", "rate", "Mbit/s"),
        ("forward.one_way_delay=fast", "forward.one_way_delay", "250 ms"),
        ("forward.delay=1 s", "forward.delay", "one_way_delay"),
        ("framing.fcs_bytes=4", "framing", "type"),
        ("noise=2", "noise.ratio", "0 to 0.5"),
    ] {
        let problem = try_set(BOTH, &[over]).unwrap_err();
        assert_eq!(problem.key, key, "{over}: {}", problem.message);
        assert!(problem.message.contains(word), "{over}: {}", problem.message);
    }
}

#[test]
fn values_carry_their_provenance() {
    let file = file(
        "rate = '1 Mbit/s'\none_way_delay = '1 ms'\nframing = { type = 'ppp', fcs_bytes = 4 }\n\
         [sources]\nrate = 'Table 1'\n'framing.type' = 'RFC 1662'\n[assumptions]\nframing = 'a guess'\n",
    );
    let found: Vec<_> = file.provenance().into_iter().map(|p| (p.key, p.value, p.source, p.assumed)).collect();
    let row = |key: &str, value: &str, source: &str, assumed| (key.into(), value.into(), source.into(), assumed);
    assert_eq!(
        found,
        [
            row("rate", "1 Mbit/s", "Table 1", false),
            row("one_way_delay", "1 ms", "", false),
            row("framing.type", "ppp", "RFC 1662", false),
            row("framing.fcs_bytes", "4", "a guess", true),
        ]
    );
}

/// Something between noise and a link file: keys and values of the format, put together at random.
fn lines() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        "(forward\\.|return\\.|circuit\\.|)(rate|bundle|noise|queue|framing|loss|outages|jitter|one_way_delay|mtu|stages)",
        "(noise|framing|queue|circuit|circuit.on_demand|rate_schedule)\\.(ratio|type|trunk|steps|repeat|bytes|gives_up|burst|dwell|history|interval|target|least)",
        "\\[\\[?(forward|circuit|outages|circuit.stages|noise)\\]\\]?",
        "\\PC{0,8}",
    ];
    let value = prop_oneof![
        "'-?[0-9]{1,25}[.,]?[0-9]{0,3}(e[0-9]{1,3})? ?(ms|s|d|h|B|GiB|bit/s|Gbit/s|%)'",
        "-?[0-9]{1,19}(\\.[0-9]{1,3})?(e-?[0-9]{1,3})?",
        "(nan|inf|-inf|true|\\{\\}|\\[\\]|'ppp'|'ethernet'|'async-ppp'|'')",
        "\\{ (share|ratio|channels|payload|bytes|at|type) = ('[0-9]{1,20} (s|B|%)'|'frame-relay'|[0-9]{1,9}|0\\.[0-9]) \\}",
        "\\[\\{ at = '[0-9] s', (rate = '[0-9] bit/s'|ratio = 0\\.[0-9]|lasts = '[0-9]{1,20} s') \\}\\]",
        "\\PC{0,12}",
    ];
    let line =
        (key, value).prop_map(|(key, value)| if key.starts_with('[') { key } else { format!("{key} = {value}") });
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_text_makes_the_parser_panic(text in prop_oneof!["\\PC{0,80}", "[ -~\n]{0,120}", lines()]) {
        let _ = LinkFile::parse("x", "x.toml", &text);
        let complete = format!("rate = '1 Mbit/s'\none_way_delay = '1 ms'\n{text}");
        if let Err(problem) = LinkFile::parse("x", "x.toml", &complete) {
            prop_assert!(!problem.message.is_empty());
            prop_assert!(problem.line.is_none_or(|line| line <= complete.lines().count() + 1));
        }
    }

    #[test]
    fn no_override_makes_the_parser_panic(
        link in 0usize..names().count(),
        text in prop_oneof!["\\PC{0,40}", "[a-z.]{0,20}=\\PC{0,20}", lines()],
    ) {
        if let Ok(over) = parse_override(&text) {
            let file = named(names().nth(link).unwrap()).unwrap().unwrap();
            let _ = file.with(over);
        }
    }

    #[test]
    fn a_damaged_link_file_is_read_or_refused(
        link in 0usize..names().count(),
        at in 0.0f64..1.0,
        drop_calls in 0usize..30,
        insert in "\\PC{0,6}",
    ) {
        let text = named(names().nth(link).unwrap()).unwrap().unwrap().text;
        let chars: Vec<char> = text.chars().collect();
        let start = (chars.len() as f64 * at) as usize;
        let end = (start + drop_calls).min(chars.len());
        let damaged: String =
            chars[..start].iter().copied().chain(insert.chars()).chain(chars[end..].iter().copied()).collect();
        let _ = LinkFile::parse("x", "x.toml", &damaged);
    }
}

#[test]
fn a_delay_from_geometry_and_a_stated_one_replace_each_other() {
    let place = "geostationary={ longitude = 13.0, hub = [43.8, 11.3], terminal = [44.4, 8.9], equipment = '10 ms' }";
    // Firenze and Genova over 13° E: 2 × about 37,700 km, 0.252 s, and the equipment.
    let delay = |config: &LinkConfig| config.forward.medium.one_way_delay.as_secs_f64();
    let config = set(BOTH, &[place]);
    assert!((0.261..0.263).contains(&delay(&config)), "{}", delay(&config));
    assert_eq!(config.round_trip(), config.forward.medium.one_way_delay + config.back.medium.one_way_delay);
    assert_eq!(delay(&set(BOTH, &[place, "one_way_delay=100 ms"])), 0.1);
    for (text, key) in [
        ("geostationary={ longitude = 200.0, hub = [0.0, 0.0], terminal = [0.0, 0.0] }", "geostationary.longitude"),
        ("geostationary={ longitude = 0.0, hub = [91.0, 0.0], terminal = [0.0, 0.0] }", "geostationary.hub"),
        ("geostationary={ longitude = 0.0, hub = [0.0, 0.0], terminal = [0.0, 120.0] }", "geostationary"),
    ] {
        let problem = try_set("rate = '2 Mbit/s'\n", &[text]).unwrap_err();
        assert!(problem.key.ends_with(key), "{text}: {problem:?}");
    }
}

#[test]
fn a_trace_is_a_rate_over_time() {
    let trace = "rate_trace={ lines = \"1\\n2\\n3\\n20\\n\", bin = '10 ms' }";
    let config = set(BOTH, &[trace]);
    assert_eq!(rates(&config), (3_600_000, 3_600_000));
    assert_eq!(config.forward.rate.at(Instant::ZERO + Duration::from_millis(15)).0.bps, 1_200_000);
    assert_eq!(rates(&set(BOTH, &[trace, "rate=1 Mbit/s"])), (1_000_000, 1_000_000));
    let problem = try_set(BOTH, &["rate_trace={ lines = 'a' }"]).unwrap_err();
    assert!(problem.key.contains("rate_trace") && problem.message.contains("line 1"), "{problem:?}");
}

#[test]
fn aal5_is_a_framing() {
    let framing = |text| set(BOTH, &[text]).forward.framing;
    assert!(matches!(framing("framing=aal5"), Framing::Aal5(options) if options.llc));
    assert!(matches!(framing("framing={ type = 'aal5', llc = false }"), Framing::Aal5(options) if !options.llc));
}

#[test]
fn jitter_has_several_forms() {
    let jitter = |sets: &[&str]| set(BOTH, sets).forward.medium.jitter;
    let ms = Duration::from_millis;
    let uniform = |least, most| Delays::Uniform { least: ms(least), most: ms(most) };
    assert_eq!(jitter(&["jitter=10 ms"]), Some(JitterConfig { distribution: uniform(0, 10), every: None }));
    assert_eq!(jitter(&["jitter=10 ms", "jitter=0 s"]), None);
    let every = Some(Duration::from_secs(15));
    let stepped = jitter(&["jitter=10 ms", "jitter.every=15 s", "jitter.least=5 ms"]);
    assert_eq!(stepped, Some(JitterConfig { distribution: uniform(5, 10), every }));
    // One form replaces another; what they share stays.
    let gamma = "jitter={ distribution = 'gamma', mean = '6 ms', deviation = '3 ms' }";
    let expected = JitterConfig { distribution: Delays::Drawn(Distribution::gamma(0.006, 0.003).unwrap()), every };
    assert_eq!(jitter(&["jitter=10 ms", "jitter.every=15 s", gamma]), Some(expected));
    let trace = jitter(&["jitter={ lines = \"# ping\\n1.5\\n\\n20 # slow\\n\" }"]).unwrap();
    assert_eq!(trace.distribution, Delays::Trace([Duration { ns: 1_500_000 }, ms(20)].into()));
    for (wrong, key, part) in [
        ("jitter={ distribution = 'gamma', mean = '6 ms' }", "forward.jitter", "allowed: most (and least); or"),
        ("jitter={ distribution = 'gamma', mean = '0 s', deviation = '1 ms' }", "forward.jitter.deviation", "above 0"),
        ("jitter={ least = '9 ms', most = '1 ms' }", "forward.jitter.least", "is above most, 1 ms"),
        ("jitter={ most = '9 ms', every = '1 ms' }", "forward.jitter.every", "allowed: 10 ms or more"),
        ("jitter={ lines = \"1\\n-3\" }", "forward.jitter.lines", "line 2: \"-3\" is no delay"),
        ("jitter.lines='# none'", "forward.jitter.lines", "no delay"),
        ("jitter={ distribution = 'pareto' }", "jitter.distribution", "\"pareto\" is unknown"),
    ] {
        let problem = try_set(BOTH, &[wrong]).unwrap_err();
        assert!(problem.key.ends_with(key.trim_start_matches("forward.")), "{wrong}: {problem:?}");
        assert!(problem.message.contains(part), "{wrong}: {problem:?}");
    }
}
