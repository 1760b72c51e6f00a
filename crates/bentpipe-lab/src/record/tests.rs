//! Records of both versions: what is written can be read, and the shipped schemas are those of the types.

use super::*;
use crate::report;
use serde_json::Value;
use std::net::SocketAddr;

/// Real records of version 1, on one line each and with the first points of each series only; and what they become.
const FILES: [(&str, &str, &str); 4] = [
    ("copies", include_str!("../../tests/records/v1/copies.json"), include_str!("../../tests/records/v2/copies.json")),
    ("demand", include_str!("../../tests/records/v1/demand.json"), include_str!("../../tests/records/v2/demand.json")),
    (
        "gateway",
        include_str!("../../tests/records/v1/gateway.json"),
        include_str!("../../tests/records/v2/gateway.json"),
    ),
    ("live", include_str!("../../tests/records/v1/live.json"), include_str!("../../tests/records/v2/live.json")),
];

fn old(name: &str) -> Record {
    let (_, text, _) = FILES.iter().find(|(file, ..)| *file == name).unwrap();
    Record::from_json(text).unwrap()
}

#[test]
fn records_of_version_1_become_todays() {
    for (name, old, new) in FILES {
        let record = Record::from_json(old).unwrap();
        assert_eq!(record.version, VERSION);
        assert_eq!(record, Record::from_json(new).unwrap(), "{name}");
        assert_eq!(record, Record::from_json(&record.to_json().unwrap()).unwrap(), "{name}");
        assert_eq!(record.to_json().unwrap(), new, "{name}: byte for byte");
        assert!(report::html(&record).contains("</html>") && report::text(&record, 80, false).contains("valid"));
    }
}

#[test]
fn copies_are_told_from_names_that_end_like_one() {
    let record = old("copies");
    let runs: Vec<_> = record.cases[0].workloads.iter().map(|w| (w.name.as_str(), w.copy, w.repeat)).collect();
    let expected =
        [("file", Some(1), 1), ("file", Some(2), 1), ("echo (2)", None, 1), ("echo (2)", None, 2), ("mail", None, 1)];
    assert_eq!(runs, expected);
    let labels: Vec<String> = record.cases[0].workloads.iter().map(WorkloadRecord::label).collect();
    assert_eq!(labels, ["file (1)", "file (2)", "echo (2)", "echo (2)", "mail"]);
    let objectives = record.cases[0].workloads.iter().map(|w| w.objective.as_ref().unwrap());
    let texts: Vec<String> = objectives.map(ToString::to_string).collect();
    assert_eq!(texts[1..], ["within 20 s", "at most 5 % lost", "at most 5 % lost", "at least 10 Mbit/s"]);
    let sent = &record.cases[0].links[0].directions[0];
    assert_eq!((sent.from.as_str(), sent.to.as_slice()), ("hub", &["ship".to_owned(), "shore".to_owned()][..]));
    assert!(record.created.is_none() && record.machine.is_none() && record.mode == Mode::Virtual);
}

#[test]
fn halves_and_settings_have_types() {
    let record = old("gateway");
    let halves: Vec<bool> = record.cases.iter().map(|case| case.compared.as_ref().unwrap().gateways).collect();
    assert_eq!(halves, [false, true]);
    let side = &record.cases[1].gateways[0].sides[0];
    assert_eq!(side.events[0].event, GatewayEvent::Connected);
    assert!(side.measurements.iter().any(|m| m.quantity == "bypass_packets"));
    let live = old("live");
    let observed = |name: &str| live.cases[0].settings.iter().find(|s| s.host == "pc" && s.name == name).unwrap();
    assert!(matches!(observed("receive_window").observed, Some(Observed::Window { bytes: 1..=16384 })));
    assert_eq!(observed("sack").observed, Some(Observed::Offered { by: 0, syns: 1 }));
    assert_eq!(live.cases[0].workloads[0].status, Status::Failed);
}

/// Every event in version 1's words.
#[test]
fn events_are_read_from_their_texts() {
    let client = Some("10.0.0.1:4711".parse::<SocketAddr>().unwrap().into());
    let text = |text: &str| text.to_owned();
    let events = [
        ("connected to the other gateway", GatewayEvent::Connected),
        ("the other gateway is silent", GatewayEvent::Silent),
        ("the other gateway is heard again", GatewayEvent::Heard),
        (
            "the other gateway was silent for longer than the hold time; 3 connections were reset",
            GatewayEvent::Lost { why: PairLoss::Silence, connections: 3 },
        ),
        (
            "the other gateway was started anew; 1 connections were reset",
            GatewayEvent::Lost { why: PairLoss::Restarted, connections: 1 },
        ),
        (
            "the other gateway's key is not the one this gateway was told, or the other does not know ours; 0 connections \
             were reset",
            GatewayEvent::Lost { why: PairLoss::Unauthenticated, connections: 0 },
        ),
        ("refused a gateway with an unknown key (2 so far)", GatewayEvent::UnauthenticatedPeer { count: 2 }),
        (
            "packets come in that are of no connection of the pair (1 so far)",
            GatewayEvent::UnauthenticatedPackets { count: 1 },
        ),
        (
            "the link does not carry the declared 2 Mbit/s: held down to 1234567 bit/s",
            GatewayEvent::Throttled { declared: 2_000_000, now: 1_234_567 },
        ),
        ("the link carries the declared rate again", GatewayEvent::Released),
        (
            "10.0.0.1:4711 to a.example:80: not allowed by the far gateway",
            GatewayEvent::NotOpened { client, host: text("a.example"), port: 80, why: RefusedBecause::Denied },
        ),
        (
            "to [fd00::1]:80: timed out",
            GatewayEvent::NotOpened { client: None, host: text("fd00::1"), port: 80, why: RefusedBecause::TimedOut },
        ),
        ("new connections bypass the gateway", GatewayEvent::Failing { bypass: true }),
        ("new connections are refused", GatewayEvent::Failing { bypass: false }),
        ("new connections are relayed again", GatewayEvent::Relaying),
        ("the limit of memory is reached", GatewayEvent::LimitReached { limit: text("memory") }),
        (
            "reset a stream that broke the protocol: a frame of 0 bytes",
            GatewayEvent::Malformed { what: text("a frame of 0 bytes") },
        ),
        (
            "servers see this gateway's address, not their clients': no right to use foreign addresses",
            GatewayEvent::AddressesHidden,
        ),
        (
            "cannot open the SOCKS port 1080: address already in use",
            GatewayEvent::NoSocket { socket: text("SOCKS"), port: 1080, why: text("address already in use") },
        ),
        ("this site has nothing to capture connections with", GatewayEvent::NoInterception),
        ("9 notices were dropped", GatewayEvent::Dropped { count: 9 }),
        ("12 more notices are not kept", GatewayEvent::NotKept { count: 12 }),
        ("nothing of the kind", GatewayEvent::Other { text: text("nothing of the kind") }),
    ];
    for (words, event) in events {
        assert_eq!(v1::event(words.to_owned()), event);
        let timed = TimedEvent { at: 1.5, event };
        let json = serde_json::to_string(&timed).unwrap();
        assert_eq!(serde_json::from_str::<TimedEvent>(&json).unwrap(), timed, "{json}");
    }
}

#[test]
fn what_a_later_version_adds_is_passed_over_and_what_is_damaged_is_named() {
    let mut value: Value = serde_json::from_str(FILES[0].2).unwrap();
    value["from_the_future"] = 1.into();
    value["cases"][0]["workloads"][0]["parties"][0]["role"] = "listener".into();
    value["cases"][0]["workloads"][0]["measurements"][0]["unit"] = "frames/s".into();
    let record = Record::from_json(&value.to_string()).unwrap();
    let workload = &record.cases[0].workloads[0];
    assert_eq!(workload.parties[0].role, Role::Other("listener".to_owned()));
    assert_eq!(workload.measurements[0].unit, Unit::Other("frames/s".to_owned()));
    value["version"] = 3.into();
    let problem = Record::from_json(&value.to_string()).unwrap_err().to_string();
    assert!(problem.contains("version 3 is newer"), "{problem}");
    let damaged = FILES[0].1.replace("\"done\"", "\"well\"");
    let problem = Record::from_json(&damaged).unwrap_err().to_string();
    assert!(problem.contains("\"status\"") && problem.contains("well"), "{problem}");
    assert!(Record::from_json("{\"format\":\"x\",\"version\":1}").is_err());
}

/// `BENTPIPE_WRITE_SCHEMA=1 cargo test -p bentpipe-lab schema` writes them; so are the converted records above.
#[test]
fn the_shipped_schemas_are_those_of_the_types() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/schema");
    let title = |version: u32| format!("A run's record, version {version}");
    let mut schemas = [schemars::schema_for!(v1::Record), schemars::schema_for!(Record)];
    for (version, schema) in (1..).zip(&mut schemas) {
        schema.insert("title".to_owned(), title(version).into());
        let path = format!("{folder}/record-{version}.json");
        let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
        if std::env::var_os("BENTPIPE_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let shipped = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shipped == text, "{path} is stale");
    }
    if std::env::var_os("BENTPIPE_WRITE_SCHEMA").is_some() {
        for (name, old, _) in FILES {
            let path = format!("{folder}/../tests/records/v2/{name}.json");
            std::fs::write(path, Record::from_json(old).unwrap().to_json().unwrap()).unwrap();
        }
    }
}
