//! The workload `type` against closed forms in virtual time, and live against virtual.

use crate::support::{assert_within, live, value, virtually};
use bentpipe_lab::record::{Status, WorkloadRecord};

/// 512 kbit/s each way and 250 ms, without framing; TCP without timestamps, so that a key's packet has 41 B.
fn typing(link: &str, keys: &str) -> String {
    format!(
        "title = 'x'\nseed = 3\n[links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\nframing = 'none'\n\
         rate = '512 kbit/s'\none_way_delay = '250 ms'\n{link}\n\
         [hosts.hub.tcp]\ntimestamps = false\n[hosts.ship.tcp]\ntimestamps = false\n\
         [[workloads]]\nname = 'session'\napp = 'type'\nclient = 'ship'\nserver = 'hub'\nstart = '5 s'\n{keys}\n"
    )
}

/// A packet of so many bytes at 512 kbit/s.
fn seconds(bytes: f64) -> f64 {
    bytes * 8.0 / 512e3
}

const COUNTS: [&str; 3] = ["keys", "wrong_characters", "lost_characters"];

#[track_caller]
fn counts(workload: &WorkloadRecord) -> [f64; 3] {
    assert_eq!(workload.status, Status::Done, "{workload:#?}");
    COUNTS.map(|name| value(workload, name))
}

#[test]
fn an_echo_takes_the_round_trip_and_its_packets_times() {
    let text = typing("", "nagle = false\ncharacters = 300\nthink = '1 s'");
    let record = virtually(&text);
    let session = &record.cases[0].workloads[0];
    let echo = 0.5 + 2.0 * seconds(41.0);
    assert_eq!(counts(session), [300.0, 0.0, 0.0]);
    assert_within("echo", value(session, "echo_median"), echo, 0.03);
    assert_within("echo", value(session, "echo_p99"), echo, 0.03);
    let Some(record) = live(&text.replace("300", "41").replace("'1 s'", "'100 ms'"), None) else { return };
    let measured = &record.cases[0].workloads[0];
    assert_eq!(counts(measured), [41.0, 0.0, 0.0]);
    // Medians: a run is valid where the link kept its times, and says nothing of when the programs got a processor.
    for name in ["echo_median", "line_median"] {
        assert_within(name, value(measured, name), value(session, name), 0.03);
    }
}

#[test]
fn nagle_makes_a_key_wait_for_the_one_before() {
    let record = virtually(&typing("", "characters = 300\nthink = '1 s'"));
    let session = &record.cases[0].workloads[0];
    assert_eq!(counts(session), [300.0, 0.0, 0.0]);
    // What is typed within a round trip of 0.5 s leaves together: the keys wait up to a round trip, in the mean half of one.
    let (echo, most) = (value(session, "echo_median"), value(session, "echo_p99"));
    assert!((0.65..0.85).contains(&echo) && (0.9..1.1).contains(&most), "{echo} {most}");
}

#[test]
fn a_line_is_echoed_at_home_and_takes_few_packets() {
    // 80 characters and Enter, five times.
    let keys = "mode = 'line'\ncharacters = 405\nline = 80\ninterval = '20 ms'\nthink = '100 ms'\noutput = '64 B'";
    let text = typing("", keys);
    let record = virtually(&text);
    let check = |session: &WorkloadRecord, echo: &str| {
        assert_eq!(counts(session), [405.0, 0.0, 0.0]);
        assert!(value(session, echo) <= 0.005, "{session:#?}");
        assert!(value(session, "packets_per_line") <= 4.0, "{session:#?}");
        assert_within("line", value(session, "line_median"), 0.5 + seconds(122.0) + seconds(104.0), 0.03);
    };
    check(&record.cases[0].workloads[0], "echo_p99");
    if let Some(record) = live(&text, None) {
        // A processor that comes late delays single echoes.
        check(&record.cases[0].workloads[0], "echo_median");
    }
}

#[test]
fn bit_errors_cost_time_and_no_character() {
    let mut p95 = Vec::new();
    for ratio in ["0.0", "1e-5", "1e-4", "1e-3"] {
        let keys = "nagle = false\ncharacters = 100000\ninterval = '150 ms'\nthink = '1 s'\ntimeout = '1 h'";
        // A frame with a check: TCP's own lets one damaged segment in some ten thousands pass.
        let link = format!("noise = {ratio}");
        let text =
            typing(&link, keys).replace("framing = 'none'\n", "").replace("timestamps = false\n", "retries = 100\n");
        let record = virtually(&text);
        let session = &record.cases[0].workloads[0];
        assert_eq!(counts(session), [100_000.0, 0.0, 0.0], "at {ratio}");
        p95.push(value(session, "echo_p95"));
    }
    assert!(p95.is_sorted() && p95[3] >= 2.0 * p95[1], "{p95:?}");
}

#[test]
fn a_bulk_transfer_through_a_pair_delays_an_echo_by_two_packets() {
    let bulk = "[[workloads]]\nname = 'bulk'\napp = 'bulk'\nclient = 'ship'\nserver = 'hub'\ndirection = 'upload'\n\
        seconds = '10 min'\nbackground = true\n[gateways.sat]\n";
    let keys = "nagle = false\ncharacters = 1000\nthink = '1 s'";
    let record = virtually(&format!("{}{bulk}", typing("", keys)));
    let [bulk, session] = ["bulk", "session"]
        .map(|name| record.cases[0].workloads.iter().find(|workload| workload.name == name).unwrap());
    assert_eq!(counts(session), [1000.0, 0.0, 0.0]);
    assert!(value(bulk, "goodput") >= 0.85 * 512e3, "{bulk:#?}");
    // Before a key the link has a packet in transmission and at most another one in its queue; a key's own packet, with what
    // the pair adds, is short.
    let p99 = value(session, "echo_p99");
    let median = value(session, "echo_median");
    assert!(p99 <= 0.5 + 2.0 * seconds(1500.0) + 2.0 * seconds(120.0), "{median} {p99}");
}
