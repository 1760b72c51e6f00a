//! A transfer that a window limits carries one window a round trip, no more and no less.

use crate::capture::{self, Packet};
use crate::place::{Place, User, users};
use crate::recorded::{Recorded, array, measured, punctual_run, run};
use serde_json::json;

/// Pairs of hosts, each with a link of its own so that all can run at once.
struct Pair {
    name: &'static str,
    /// Settings of the receiver, of the sender.
    terminal: &'static str,
    hub: &'static str,
    /// What limits, in bytes, and a segment's data.
    limit: u64,
    segment: u64,
}

/// 20 Mbit/s: a full segment takes 0.6 ms, 0.1 % of the round trip, that an idle ping does not.
const LINK: &str = "title = 'a test link'\nrate = '20 Mbit/s'\none_way_delay = '280 ms'\n";

/// Of packets of 1500 bytes.
const MSS: u64 = 1_460;

const PAIRS: [Pair; 5] = [
    Pair { name: "w8", terminal: "receive_window = '8 KiB'", hub: "", limit: 8_192, segment: MSS },
    Pair { name: "w24", terminal: "receive_window = '24 KiB'", hub: "", limit: 24_576, segment: MSS },
    Pair { name: "w64", terminal: "receive_window = '65535 B'", hub: "", limit: 65_535, segment: MSS },
    // Timestamps take 12 bytes of every segment (RFC 7323 §3), scaling a part of the window's precision.
    Pair {
        name: "stamped",
        terminal: "receive_window = '24 KiB'\ntimestamps = true\nwindow_scaling = true",
        hub: "timestamps = true\nwindow_scaling = true",
        limit: 24_576,
        segment: 1_448,
    },
    Pair { name: "buffer", terminal: "", hub: "send_buffer = '16 KiB'", limit: 16_384, segment: MSS },
];

#[test]
fn one_window_a_round_trip() {
    let mut scenario = "title = 'windows'\nseed = 3\n".to_owned();
    for Pair { name, terminal, hub, .. } in &PAIRS {
        let plain = "timestamps = false\nwindow_scaling = false\n";
        let settings = |own: &str| if own.contains("timestamps") { own.to_owned() } else { format!("{plain}{own}") };
        // Every segment is acknowledged, so that a window's last odd one does not wait for a delayed acknowledgement.
        scenario += &format!(
            "[links.{name}]\nkind = 'link.toml'\nbetween = ['hub-{name}', 'pc-{name}']\n\
             [hosts.pc-{name}.tcp]\nack_every = 1\n{}\n[hosts.hub-{name}.tcp]\n{}\n\
             [[workloads]]\nname = 'ping {name}'\napp = 'ping'\nclient = 'pc-{name}'\nserver = 'hub-{name}'\n\
             count = 3\ninterval = '200 ms'\n\
             [[workloads]]\nname = '{name}'\napp = 'bulk'\nclient = 'pc-{name}'\nserver = 'hub-{name}'\n\
             seconds = '8 s'\nstart = '1200 ms'\n",
            settings(terminal),
            settings(hub),
        );
    }
    for user in users() {
        let place = Place::alone(user);
        place.write("link.toml", LINK);
        let Some(recorded) = punctual_run(&place, &scenario, &["--pcap"]) else { continue };
        let packets = capture::read(&std::fs::read(place.at("out/1-windows.pcapng")).unwrap());
        for pair in &PAIRS {
            check(user, pair, &recorded, &packets);
        }
    }
}

fn check(user: User, pair: &Pair, recorded: &Recorded, packets: &[Packet]) {
    let name = pair.name;
    let what = format!("{name} as {user:?}");
    let transfer = recorded.workload(0, name);
    assert_eq!((&transfer["status"], measured(transfer, "wrong_bytes")), (&"done".into(), 0.0), "{what}");
    let window = pair.limit / pair.segment * pair.segment;
    // A SYN's window, the first advertised, is sent before timestamps are agreed.
    let advertised = pair.limit / MSS * MSS;
    let (host, setting, observed) = match pair.hub.contains("send_buffer") {
        true => (format!("hub-{name}"), "send_buffer", json!({ "kind": "in_flight", "bytes": window })),
        false => (format!("pc-{name}"), "receive_window", json!({ "kind": "window", "bytes": advertised })),
    };
    let setting = recorded.setting(0, &host, setting);
    assert_eq!((&setting["observed"], &setting["broken"]), (&observed, &false.into()), "{what}");
    // Whole windows between two arrivals of the same place in the window, well after slow start.
    let from_hub = |p: &&Packet| p.interface == format!("pc-{name}/{name}") && !p.outbound && p.tcp_data > Some(0);
    let arrivals: Vec<&Packet> = packets.iter().filter(from_hub).collect();
    let per_window = (window / pair.segment) as usize;
    let settled = arrivals.iter().position(|p| p.at_ns > arrivals[0].at_ns + 2_500_000_000).unwrap();
    let windows = (arrivals.len() - 1 - settled) / per_window;
    assert!(windows >= 5, "{what}: {windows} windows");
    let last = settled + windows * per_window;
    let bytes: usize = arrivals[settled..last].iter().filter_map(|p| p.tcp_data).sum();
    let seconds = (arrivals[last].at_ns - arrivals[settled].at_ns) as f64 / 1e9;
    let goodput = bytes as f64 * 8.0 / seconds;
    let round_trip = measured(recorded.workload(0, &format!("ping {name}")), "rtt_median");
    assert!(round_trip >= 0.56, "{what}: {round_trip} s is less than light needs");
    let expected = (window * 8) as f64 / round_trip;
    let ratio = goodput / expected;
    eprintln!("{what}: {goodput:.0} bit/s of {expected:.0}, {ratio:.4}; round trip {:.3} ms", round_trip * 1e3);
    assert!((ratio - 1.0).abs() < 0.01, "{what}: {goodput:.0} bit/s instead of {expected:.0}");
}

#[test]
fn initial_windows_on_the_wire() {
    let windows = [1u64, 2, 4, 10];
    let mut scenario = "title = 'first'\nseed = 3\n".to_owned();
    for n in windows {
        scenario += &format!(
            "[links.l{n}]\nkind = 'link.toml'\nbetween = ['hub{n}', 'pc{n}']\n\
             [hosts.hub{n}.tcp]\ninitial_window = {n}\n\
             [[workloads]]\nname = 'w{n}'\napp = 'bulk'\nclient = 'pc{n}'\nserver = 'hub{n}'\nbytes = '60 kB'\n"
        );
    }
    for user in users() {
        let place = Place::alone(user);
        place.write("link.toml", LINK);
        let recorded = run(&place, &scenario, &["--pcap"]);
        let packets = capture::read(&std::fs::read(place.at("out/1-first.pcapng")).unwrap());
        for n in windows {
            let setting = recorded.setting(0, &format!("hub{n}"), "initial_window");
            let observed = json!({ "kind": "initial_burst", "segments": n });
            assert_eq!((&setting["observed"], &setting["broken"]), (&observed, &false.into()), "{user:?}");
            assert_eq!(setting["kernel"], format!("route initcwnd {n}"));
            let mut leaving =
                packets.iter().filter(|p| p.interface == format!("hub{n}/l{n}") && p.outbound && p.tcp_data > Some(0));
            // No acknowledgement of the first segment can be back before a round trip, however late packets are.
            let start = leaving.clone().next().unwrap().at_ns;
            let first = leaving.clone().take_while(|p| p.at_ns < start + 560_000_000).count() as u64;
            assert_eq!(first, n, "{user:?}: segments in the first round trip");
            assert!(leaving.all(|p| p.tcp_data <= Some(1_448)));
            assert_eq!(measured(recorded.workload(0, &format!("w{n}")), "bytes"), 60_000.0);
        }
        let flows = array(&recorded.case(0)["flows"]);
        assert_eq!(flows.len(), 8, "two ends of four connections");
    }
}
