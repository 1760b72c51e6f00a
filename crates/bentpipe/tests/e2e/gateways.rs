//! A scenario with a pair of gateways: compared in virtual time, and live.

use crate::place::{Place, WaitLimited, users};
use crate::recorded::{Recorded, array, measured};
use serde_json::Value;
use std::path::Path;

/// A short download by a pair that has run for a while. Nothing here is judged by its time.
const SCENARIO: &str = "title = 'a pair'\nseed = 5\nlateness = { p99 = '1 s', worst = '10 s' }\n\
    [links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\nrate = '10 Mbit/s'\none_way_delay = '100 ms'\n\
    [gateways.sat]\n\
    [[workloads]]\nname = 'get'\napp = 'bulk'\nclient = 'ship'\nserver = 'hub'\nbytes = '1 MB'\nstart = '2 s'\n";

#[test]
fn a_comparison_shows_both_runs_side_by_side() {
    let place = Place::new(users()[0]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/gateway.toml");
    place.write("gateway.toml", std::fs::read(file).unwrap());
    let arguments = ["run", "gateway.toml", "--virtual", "--compare", "gateway", "--out", "out"];
    let table = place.bentpipe(&arguments).ends().expect(0).stdout;
    for words in
        ["WITH/WITHOUT", "without gateway", "with gateway", "gateway ship-gateway (sat): relayed 7 connections"]
    {
        assert!(table.contains(words), "{words} in\n{table}");
    }
    let recorded = Recorded::read(&place, "out");
    let title = &recorded.json["title"];
    assert_eq!(array(&recorded.json["cases"]).len(), 2);
    assert!(recorded.valid());
    let [without, with] = [0, 1].map(|case| {
        assert_eq!(&recorded.case(case)["compared"]["case"], title);
        let get = recorded.workload(case, "download");
        assert_eq!((measured(get, "bytes"), measured(get, "wrong_bytes")), (20e6, 0.0));
        measured(get, "goodput")
    });
    // A window of 64 KiB a round trip of 600 ms, and the link's rate.
    assert!(without < 0.9e6 && with > 8.9e6, "{without} bit/s without, {with} bit/s with");
    assert_eq!(recorded.case(0).get("gateways"), None);
    expect_relayed(recorded.case(1), 7.0);
}

#[test]
fn a_live_pair_relays() {
    for user in users() {
        let place = Place::new(user);
        place.write("s.toml", SCENARIO);
        place.bentpipe(&["run", "s.toml", "--out", "out"]).ends().expect(0);
        let recorded = Recorded::read(&place, "out");
        assert_eq!(recorded.json["complete"], true);
        let get = recorded.workload(0, "get");
        assert_eq!((measured(get, "bytes"), measured(get, "wrong_bytes")), (1e6, 0.0));
        expect_relayed(recorded.case(0), 1.0);
        assert!(place.leftovers().is_empty(), "{:?}", place.leftovers());
    }
}

/// Each gateway of the only pair has relayed so many connections.
#[track_caller]
fn expect_relayed(case: &Value, connections: f64) {
    let pairs = array(&case["gateways"]);
    assert_eq!(pairs.len(), 1);
    for side in array(&pairs[0]["sides"]) {
        assert_eq!((measured(side, "relayed"), measured(side, "bypassed")), (connections, 0.0), "{side:#}");
    }
}

/// Two pages and some pings over a line that the terminal's gateway dials.
const DIALLED: &str = "title = 'a line'\nseed = 5\nlateness = { p99 = '1 s', worst = '10 s' }\n\
    [links.sat]\nrate = '64 kbit/s'\none_way_delay = '250 ms'\nframing = 'ppp'\nbetween = ['hub', 'ship']\n\
    circuit = { charged_from = 'modems', stages = [{ name = 'dial', time = '2 s' }, { name = 'modems', time = '1 s' }] }\n\
    tariff = { currency = 'EUR', time = { price = '0.60', first = '10 s' } }\n\
    [gateways.sat]\ncompression = 'off'\ndial = { linger = '3 s' }\n\
    [[workloads]]\nname = 'note'\napp = 'page'\nclient = 'ship'\nserver = 'hub'\nbytes = '2 kB'\n\
    [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'ship'\nserver = 'hub'\ncount = 3\nstart = '14 s'\ntimeout = '2 s'\n\
    [[workloads]]\nname = 'page'\napp = 'page'\nclient = 'ship'\nserver = 'hub'\nbytes = '10 kB'\nstart = '18 s'\n\
    [[workloads]]\nname = 'end'\napp = 'ping'\nclient = 'ship'\nserver = 'hub'\ncount = 1\nstart = '36 s'\ntimeout = '1 s'\n";

#[test]
fn a_line_is_dialled_alike_live_and_in_virtual_time() {
    let user = users()[0];
    let place = Place::new(user);
    place.write("s.toml", DIALLED);
    place.bentpipe(&["run", "s.toml", "--out", "live"]).ends();
    let table = place.bentpipe(&["run", "s.toml", "--virtual", "--out", "virtual"]).ends().stdout;
    assert!(table.contains("cost 0.20 EUR"), "{table}");
    let calls = ["live", "virtual"].map(|out| {
        let recorded = Recorded::read(&place, out);
        let case = recorded.case(0);
        let link = array(&case["links"]).iter().find(|link| link["name"] == "sat").unwrap();
        let bill = &link["bill"];
        let calls: Vec<[f64; 3]> = array(&bill["calls"])
            .iter()
            .map(|call| ["set_up", "on_air", "cost_nano"].map(|key| call[key].as_f64().unwrap()))
            .collect();
        let total: f64 = array(&bill["workloads"]).iter().map(|share| share["cost_nano"].as_f64().unwrap()).sum();
        assert_eq!(total, bill["total_nano"].as_f64().unwrap(), "{out}: {bill:#}");
        let terminal = &array(&array(&case["gateways"])[0]["sides"])[1];
        assert_eq!((measured(terminal, "calls"), measured(terminal, "dropped_ping")), (2.0, 4.0), "{out}");
        for name in ["note", "page"] {
            assert_eq!(recorded.workload(0, name)["status"], "done", "{out}: {name}");
        }
        println!("{out}: set-up, airtime, price of each call: {calls:?}");
        calls
    });
    let [live, simulated] = &calls;
    assert_eq!((live.len(), simulated.len()), (2, 2), "{live:?} {simulated:?}");
    for (live, simulated) in live.iter().zip(simulated) {
        assert!((live[0] - simulated[0]).abs() < 0.1 && (live[1] - simulated[1]).abs() < 1.0, "{live:?} {simulated:?}");
    }
}
