//! A realistic record, made without randomness or clock: a clinic's MRI image over a GEO link, with two receive windows.

use crate::record::*;

/// Two cases, 8 KiB and 64 KiB windows: pings, a transfer by `curl`, a page that fails; errors on the link.
pub fn sample() -> Record {
    Record {
        format: FORMAT.into(),
        version: VERSION,
        bentpipe: "0.1.0".into(),
        created: Some("2026-03-14T09:26:53Z".into()),
        mode: Mode::Live,
        machine: Some(Machine { kernel: "Linux 6.18.44 x86_64".into(), cores: 4, privileged: false }),
        title: "A clinic behind a one-way GEO link".into(),
        scenario_file: "scenarios/clinic.toml".into(),
        scenario: SCENARIO.into(),
        overrides: vec!["links.sat.rate=2 Mbit/s".into()],
        seed: 7,
        complete: true,
        interrupted: false,
        left_out: vec![],
        left_out_objectives: vec![],
        chosen_cases: vec![],
        cases: vec![case("8 KB window", 8192, 26.13, 0.000_212), case("64 KB window", 65_536, 6.94, 0.000_187)],
    }
}

/// The 64 KiB case without and with a gateway pair, as `--compare gateway` leaves them.
pub fn gateway_sample() -> Record {
    let mut record = sample();
    let mut without = case("without gateway", 65_536, 6.94, 0.000_187);
    let mut with = case("with gateway", 65_536, 1.73, 0.000_201);
    for (half, gateways) in [(&mut without, false), (&mut with, true)] {
        half.compared = Some(Compared { case: record.title.clone(), gateways });
        half.workloads.iter_mut().for_each(|w| w.measurements.retain(|m| m.quantity != "rtt_max"));
    }
    without.workloads[2].status = Status::Failed;
    without.workloads[2].measurements.clear();
    let side = |site: &str, before: &str, bytes: f64| GatewaySideRecord {
        site: site.into(),
        before: before.into(),
        measurements: vec![
            measurement("connected_after", "s", 1.12),
            measurement("relayed", "1", 3.0),
            measurement("compression_factor", "1", 1.04),
            measurement("link_bytes", "B", bytes * 1.047),
            measurement("delivered_bytes", "B", bytes),
            measurement("packets_sent", "1", 406.0),
            measurement("packets_sent_again", "1", 3.0),
            measurement("rate", "bit/s", 4e6),
        ],
        events: vec![TimedEvent { at: 1.12, event: GatewayEvent::Connected }],
    };
    with.notes.clear();
    with.gateways = vec![GatewayRecord {
        link: "sat".into(),
        settings: [("open", "answered"), ("hold", "5 min")]
            .map(|(name, value)| GatewaySetting { name: name.into(), value: value.into() })
            .to_vec(),
        sides: vec![side("hub-gateway", "hub", 541_200.0), side("clinic-gateway", "clinic", 0.0)],
    }];
    record.cases = vec![without, with];
    record
}

/// One case: 512 KiB take `seconds` to arrive.
pub fn case(name: &str, window: u64, seconds: f64, p99: f64) -> CaseRecord {
    let rate = 524_288.0 * 8.0 / seconds;
    CaseRecord {
        name: name.into(),
        seconds: 30.0,
        validity: Validity { valid: true, reasons: vec![] },
        settings: vec![
            setting(
                "clinic",
                "receive_window",
                &format!("{} KiB", window / 1024),
                None,
                Some(Observed::Window { bytes: window }),
                false,
            ),
            setting("clinic", "sack", "false", Some("0"), None, false),
            setting("hub", "initial_window", "1", Some("1"), Some(Observed::InitialBurst { segments: 2 }), true),
        ],
        workloads: workloads(window, seconds, rate),
        links: vec![LinkRecord {
            name: "sat".into(),
            kind: "iperspace".into(),
            summary: "DVB forward 2 Mbit/s, ISDN return 64 kbit/s, 275 ms one way".into(),
            directions: vec![direction("hub", "clinic", 561_300, 1460), direction("clinic", "hub", 14_612, 52)],
            circuit: Some(CircuitRecord {
                calls: 1,
                calls_lost: 0,
                setting_up: 1.8,
                on_air: 28.2,
                cost: Some(0.94),
                currency: Some("EUR".into()),
                channels_most: Some(2),
                changes: vec![
                    CircuitChange { at: 0.0, state: CircuitState::SettingUp { stage: "ISDN".into(), channel: None } },
                    CircuitChange { at: 1.8, state: CircuitState::Up },
                    CircuitChange { at: 30.0, state: CircuitState::Down },
                ],
            }),
            bill: Some(bill()),
        }],
        lateness: Some(lateness(p99)),
        tcp_samples: vec![TcpFlowSamples {
            host: "hub".into(),
            flow: connection(),
            congestion_control: "reno".into(),
            series: vec![
                series("cwnd", "segments", 300, 0.1, |t| (2.0 + t * 3.0).min(window as f64 / 1460.0).floor()),
                series("srtt", "s", 300, 0.1, |t| 0.58 + 0.02 * (t * 0.9).sin()),
            ],
        }],
        flows: vec![
            flow("hub", connection(), 29_200, 369, 526_000),
            flow("clinic", connection().reversed(), window, 1, 84),
        ],
        compared: None,
        gateways: vec![],
        notes: vec!["TCP of the hub's kernel faced the link; no gateway was in use.".into()],
    }
}

fn shown(app: &str) -> Shown {
    bentpipe_apps::Registry::standard().workload(app).unwrap().shown().into()
}

fn workloads(window: u64, seconds: f64, rate: f64) -> Vec<WorkloadRecord> {
    let goodput = move |t: f64| if t < 1.0 + seconds { rate * (1.0 + 0.15 * (t * 2.3).sin()) } else { 0.0 };
    let ping = WorkloadRecord {
        name: "ping".into(),
        app: "ping".into(),
        shown: shown("ping"),
        parties: parties(),
        repeat: 1,
        end: Some(30.0),
        status: Status::Done,
        objective: Some(objective(0.7, true)),
        measurements: vec![
            measurement("rtt_median", "s", 0.573),
            measurement("rtt_max", "s", 0.861),
            measurement("loss", "1", 0.0333),
            measurement("pings", "1", 30.0),
        ],
        series: vec![series("rtt", "s", 30, 1.0, |t| 0.56 + 0.04 * (t * 1.7).sin().abs() + 0.2 * f64::from(t == 9.0))],
        ..WorkloadRecord::default()
    };
    let image = WorkloadRecord {
        name: "MRI image".into(),
        app: "command".into(),
        shown: shown("bulk"),
        parties: parties(),
        direction: Some(DataDirection::Download),
        repeat: 1,
        start: 1.0,
        end: Some(1.0 + seconds),
        status: Status::Done,
        objective: Some(objective(10.0, seconds <= 10.0)),
        measurements: vec![
            measurement("completion_time", "s", seconds),
            measurement("goodput", "bit/s", rate),
            measurement("received", "B", 524_288.0),
        ],
        series: vec![
            series("goodput", "bit/s", 290, 0.1, goodput),
            series("received", "B", 290, 0.1, |t| (rate / 8.0 * (t - 1.0).max(0.0)).min(524_288.0)),
        ],
        command: Some(CommandRecord {
            command: "curl -sS -o /dev/null -w '%{time_total}' http://hub/mri.dcm".into(),
            exit: Some(0),
            stdout: format!("{seconds:.6}\n"),
            stderr: String::new(),
        }),
        ..WorkloadRecord::default()
    };
    let page = WorkloadRecord {
        name: "patient index".into(),
        app: "page".into(),
        shown: shown("page"),
        parties: parties(),
        direction: Some(DataDirection::Download),
        repeat: 1,
        start: 12.0,
        end: Some(22.0),
        status: if window < 10_000 { Status::Failed } else { Status::Done },
        error: (window < 10_000).then(|| "no answer for 10 s".into()),
        measurements: if window < 10_000 { vec![] } else { vec![measurement("completion_time", "s", 3.42)] },
        ..WorkloadRecord::default()
    };
    vec![ping, image, page]
}

fn parties() -> Vec<Party> {
    vec![Party { role: Role::Client, site: "clinic".into() }, Party { role: Role::Server, site: "hub".into() }]
}

fn objective(limit: f64, met: bool) -> Objective {
    let quantity = "completion_time".into();
    Objective { quantity, bound: Bound::AtMost, limit, unit: Unit::Seconds, met: Some(met) }
}

fn direction(from: &str, to: &str, bytes: u64, size: u64) -> DirectionRecord {
    let packets = bytes / size;
    DirectionRecord {
        from: from.into(),
        to: vec![to.into()],
        counters: Counters {
            offered_packets: packets,
            offered_bytes: bytes,
            dropped_packets: 0,
            sent_packets: packets,
            link_bytes: bytes + packets * 8,
            damaged_packets: u64::from(size > 1000) * 3,
            delivered_damaged_packets: 0,
            bit_errors: u64::from(size > 1000) * 5,
            lost_packets: 0,
            delivered_packets: packets - u64::from(size > 1000) * 3,
            delivered_bytes: bytes - u64::from(size > 1000) * 3 * size,
            queue_bytes_max: size * 22,
        },
        series: vec![
            series("queue", "B", 600, 0.05, |t| (size as f64) * 11.0 * (1.0 + (t * 1.3).sin()).floor()),
            series("bit_errors", "1", 300, 0.1, |t| if size > 1000 { (t / 6.0).floor() } else { 0.0 }),
            series("damaged_packets", "1", 300, 0.1, |t| if size > 1000 { (t / 10.0).floor() } else { 0.0 }),
        ],
    }
}

fn lateness(p99: f64) -> Lateness {
    let counts = [0, 3, 40, 310, 690, 420, 130, 44, 12, 5, 1, 0, 0, 1];
    Lateness {
        packets: counts.iter().sum(),
        p50: 0.000_031,
        p99,
        p999: 0.000_654,
        worst: 0.003_1,
        limit_p99: 0.001,
        limit_worst: 0.010,
        missed_packets: 0,
        histogram: counts.iter().enumerate().map(|(i, n)| (1e-6 * f64::powi(2.0, i as i32), *n)).collect(),
        worst_hundred: (0..100).map(|i| (f64::from(i) * 0.29, 0.003_1 / f64::from(i + 1))).collect(),
    }
}

fn connection() -> Flow {
    Flow::new("10.0.0.1:80".parse().unwrap(), "10.0.1.1:45122".parse().unwrap())
}

fn flow(host: &str, flow: Flow, window_max: u64, data_segments: u64, data_bytes: u64) -> FlowRecord {
    FlowRecord {
        host: host.into(),
        flow,
        start: 1.02,
        end: 27.4,
        mss: Some(1460),
        window_scale: Some(7),
        sack: false,
        timestamps: true,
        window_max,
        data_segments,
        data_bytes,
        repeated_bytes: data_bytes / 120,
        initial_burst: 2,
        pure_acks: 190,
    }
}

fn setting(
    host: &str,
    name: &str,
    configured: &str,
    kernel: Option<&str>,
    observed: Option<Observed>,
    broken: bool,
) -> Setting {
    let kernel = kernel.map(Into::into);
    Setting { host: host.into(), name: name.into(), configured: configured.into(), kernel, observed, broken }
}

fn measurement(name: &str, unit: &str, value: f64) -> Measurement {
    Measurement::new(name, v1::unit(name, unit), v1::better(name), value)
}

fn series(name: &str, unit: &str, points: u32, every: f64, value: impl Fn(f64) -> f64) -> Series {
    let at = |i: u32| f64::from(i) * every;
    Series::new(name, v1::unit(name, unit), (0..points).map(|i| (at(i), value(at(i)))).collect())
}

const SCENARIO: &str = r#"title = "A clinic behind a one-way GEO link"
seed = 7

[links.sat]
kind = "iperspace"
between = ["hub", "clinic"]

[[workloads]]
name = "MRI image"
app = "command"
client = "clinic"
server = "hub"
direction = "download"
command = "curl -sS -o /dev/null http://hub/mri.dcm"
objective = { within = "10 s" }

[[cases]]
name = "8 KB window"
hosts.clinic.tcp.receive_window = "8 KiB"

[[cases]]
name = "64 KB window"
hosts.clinic.tcp.receive_window = "64 KiB"
"#;

/// 28.2 s at 0.94 EUR.
fn bill() -> BillRecord {
    let flow = connection();
    let share = |name: &str, bytes, cost_nano| ConnectionShare {
        flow,
        protocol: 6,
        workload: Some(name.to_owned()),
        bytes,
        cost_nano,
    };
    let by_workload = |name: &str, cost_nano| WorkloadShare { payer: Payer::Workload { name: name.into() }, cost_nano };
    BillRecord {
        currency: "EUR".into(),
        total_nano: 940_000_000,
        calls: vec![CallRecord {
            at: 0.0,
            set_up: Some(1.8),
            end: Some(30.0),
            on_air: 28.2,
            forward_bytes: 561_300,
            return_bytes: 14_612,
            cost_nano: 940_000_000,
        }],
        workloads: vec![by_workload("MRI image", 900_000_000), by_workload("<b>mail</b>", 40_000_000)],
        connections: vec![share("MRI image", 551_000, 900_000_000), share("<b>mail</b>", 24_912, 40_000_000)],
        ..BillRecord::default()
    }
}
