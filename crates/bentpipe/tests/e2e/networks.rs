//! More than two sites: routers between links, bridges that make two LANs one, one satellite for many terminals.

use crate::place::{Place, have, users};
use crate::recorded::{count, expect_framed, measured, run};

#[test]
fn routers_join_links() {
    let scenario = "title = 'routers'\n\
        [links.office]\nkind = 'lan'\nbetween = ['server', 'hub']\n\
        [links.sat]\nkind = 'link.toml'\nbetween = ['hub', 'ship']\n\
        [links.cabin]\nkind = 'lan'\nbetween = ['ship', 'tablet']\n\
        [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'tablet'\nserver = 'server'\ncount = 5\ninterval = '20 ms'\n\
        [[workloads]]\nname = 'file'\napp = 'bulk'\nclient = 'tablet'\nserver = 'server'\nbytes = '200 kB'\n\
        [[workloads]]\nname = 'back'\napp = 'bulk'\nclient = 'server'\nserver = 'tablet'\ndirection = 'upload'\nbytes = '50 kB'\n\
        [[workloads]]\nname = 'names'\napp = 'command'\nclient = 'ship'\ncommand = 'getent hosts server hub tablet'\n";
    for user in users() {
        let place = Place::new(user);
        place.write("link.toml", "rate = '4 Mbit/s'\none_way_delay = '50 ms'\n");
        let recorded = run(&place, scenario, &[]);
        for name in ["echo", "file", "back", "names"] {
            assert_eq!(recorded.workload(0, name)["status"], "done", "{user:?}: {:#}", recorded.workload(0, name));
        }
        // Twice 50 ms of satellite and two LANs of 50 us each way.
        assert!(measured(recorded.workload(0, "echo"), "rtt_min") >= 0.1002);
        assert_eq!(measured(recorded.workload(0, "echo"), "received"), 5.0);
        // Nothing is made between the links: the satellite takes what the office gives, the cabin what the satellite gives.
        for (direction, order) in [(0, ["office", "sat", "cabin"]), (1, ["cabin", "sat", "office"])] {
            let delivered = order.map(|name| count(recorded.counters(0, name)[direction], "delivered_packets"));
            assert!(delivered.is_sorted_by(|a, b| a >= b) && delivered[2] > 0, "{user:?} {order:?}: {delivered:?}");
        }
    }
}

#[test]
fn bridges_make_two_lans_one() {
    if !have(&["ping"]) {
        return;
    }
    let scenario = "title = 'bridges'\n\
        [links.lan-a]\nkind = 'lan'\ncarries = 'ethernet'\nbetween = ['bridge-a', 'pc-a']\n\
        [links.isdn]\nkind = 'link.toml'\nbetween = ['bridge-a', 'bridge-b']\n\
        [links.lan-b]\nkind = 'lan'\ncarries = 'ethernet'\nbetween = ['bridge-b', 'pc-b']\n\
        [hosts.bridge-a]\nrole = 'bridge'\n[hosts.bridge-b]\nrole = 'bridge'\n\
        [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc-a'\nserver = 'pc-b'\ncount = 4\ninterval = '300 ms'\n\
        [[workloads]]\nname = 'file'\napp = 'bulk'\nclient = 'pc-b'\nserver = 'pc-a'\nbytes = '20 kB'\n\
        [[workloads]]\nname = 'neighbours'\napp = 'command'\nclient = 'pc-a'\nstart = '100 ms'\n\
        command = 'ping -c 1 pc-b; tail -n +2 /proc/net/arp; echo routes; tail -n +2 /proc/net/route | cut -f1-3'\n";
    for user in users() {
        let place = Place::new(user);
        place.write(
            "link.toml",
            "carries = 'ethernet'\nrate = '128 kbit/s'\none_way_delay = '125 ms'\nframing = 'ppp'\n",
        );
        let recorded = run(&place, scenario, &[]);
        for name in ["echo", "file", "neighbours"] {
            assert_eq!(recorded.workload(0, name)["status"], "done", "{user:?}: {:#}", recorded.workload(0, name));
        }
        assert_eq!(measured(recorded.workload(0, "echo"), "received"), 4.0);
        assert!(measured(recorded.workload(0, "echo"), "rtt_min") >= 0.25);
        let output = recorded.workload(0, "neighbours")["command"]["stdout"].as_str().unwrap().to_owned();
        let (neighbours, routes) = output.split_once("routes\n").unwrap();
        // Learnt by ARP across both bridges (flag 2: complete, not permanent), in the one network both are in.
        let entry = neighbours.lines().find(|line| line.contains("0x2 ")).unwrap_or_else(|| panic!("{output}"));
        assert!(entry.starts_with("198.18.0.") && entry.contains("02:62:70:"), "{output}");
        assert_eq!(routes.lines().count(), 1, "{output}");
        let rtt = neighbours.split_once("ttl=").and_then(|(_, rest)| rest.split(' ').next());
        assert_eq!(rtt, Some("64"), "no router on the way: {output}");
    }
}

#[test]
fn a_broadcast_is_sent_once() {
    let terminals = ["t1", "t2", "t3"];
    let mut scenario =
        "title = 'broadcast'\n[links.sat]\nkind = 'link.toml'\nbetween = ['hub', 't1', 't2', 't3']\n".to_owned();
    for terminal in terminals {
        scenario += &format!(
            "[[workloads]]\nname = 'to {terminal}'\napp = 'ping'\nclient = 'hub'\nserver = '{terminal}'\ncount = 5\n\
             interval = '50 ms'\nbytes = '1000 B'\n\
             [[workloads]]\nname = 'from {terminal}'\napp = 'bulk'\nclient = '{terminal}'\nserver = 'hub'\nbytes = '30 kB'\n\
             direction = 'upload'\n"
        );
    }
    for user in users() {
        let place = Place::new(user);
        place.write(
            "link.toml",
            "framing = 'ppp'\none_way_delay = '50 ms'\nrate = '10 Mbit/s'\n[return]\nrate = '1 Mbit/s'\n",
        );
        let recorded = run(&place, &scenario, &[]);
        for terminal in terminals {
            let ping = recorded.workload(0, &format!("to {terminal}"));
            assert_eq!((measured(ping, "received"), measured(ping, "duplicates")), (5.0, 0.0), "{user:?}: {ping:#}");
            let upload = recorded.workload(0, &format!("from {terminal}"));
            assert_eq!(
                (&upload["status"], measured(upload, "bytes")),
                (&"done".into(), 30_000.0),
                "{user:?}: {upload:#}"
            );
        }
        let counters = recorded.counters(0, "sat");
        assert_eq!(counters.len(), 4, "one forward, a return for each");
        let forward = counters[0];
        let (sent, bytes) = (count(forward, "sent_packets"), count(forward, "offered_bytes"));
        // Sent once, however many hear it.
        expect_framed(forward, 7);
        assert!(sent >= 15 && bytes >= 15 * 1_028, "{forward}");
        for (number, back) in counters[1..].iter().enumerate() {
            assert!(count(back, "delivered_bytes") > 30_000, "return {number}: {back}");
            expect_framed(back, 7);
        }
        // As the record's schema says: sent × receivers = delivered + damaged + lost (+ what is still on its way).
        let heard = count(forward, "delivered_packets");
        assert!(heard <= 3 * sent && heard + 3 * 10 >= 3 * sent, "{heard} of 3 × {sent}");
    }
}
