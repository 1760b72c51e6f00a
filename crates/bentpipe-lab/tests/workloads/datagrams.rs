//! The workload `datagrams` against closed forms in virtual time, and live against virtual.

use crate::support::{assert_within, live, value, virtually};
use bentpipe_lab::record::Status;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Without framing, so that a packet takes its own length on the link.
fn over_link(text: &str) -> String {
    let link = "title = 'x'\nseed = 3\n[links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\n\
        framing = 'none'\nrate = '512 kbit/s'\none_way_delay = '250 ms'\n";
    format!("{link}{text}")
}

/// 600 B packets at 576 kbit/s for 60 s into 512 kbit/s with room for 20: one in nine is too many.
const OVERLOAD: &str = "queue = { packets = 20 }\n[[workloads]]\napp = 'datagrams'\nclient = 'ship'\nserver = 'hub'\n\
    bytes = '572 B'\ninterval = '8.333333 ms'\nduration = '60 s'\ntimeout = '2 s'\n";

/// Delivered: what the link serves from the first departure to the last, what then waits, and what is being sent.
fn overload_received() -> (f64, f64) {
    let (sent, per_second) = (7201.0, 512e3 / 4800.0);
    (sent, (59.9999976_f64 * per_second).floor() + 20.0 + 1.0)
}

#[test]
fn a_constant_overload_of_a_fifo_loses_the_excess() {
    let record = virtually(&over_link(OVERLOAD));
    let workload = &record.cases[0].workloads[0];
    let (sent, received) = overload_received();
    assert_eq!((workload.status, value(workload, "sent")), (Status::Done, sent));
    assert!((value(workload, "received") - received).abs() <= 1.0, "{workload:#?}");
    // Without the start, while the queue fills, the loss is 1 − 512/576 = 11.1 %.
    assert!((value(workload, "loss") - (1.0 - received / sent)).abs() < 2.0 / sent);
    assert_within("goodput", value(workload, "goodput"), 512e3 * 572.0 / 600.0, 1e-4);
    assert_within("offered rate", value(workload, "offered_rate"), 576e3 * 572.0 / 600.0, 1e-4);
    // One in nine is lost by itself: never two in a row.
    assert_eq!(value(workload, "loss_burst_max"), 1.0);
    // The last place of 20: 19 packets and its own time, and what is left of the one that is being sent.
    let packets = (value(workload, "delay_max") - 0.25) / (4800.0 / 512e3);
    assert!((20.0..=21.0).contains(&packets), "{packets}");
}

#[test]
fn a_poisson_stream_waits_as_the_md1_queue_says() {
    // 128 B packets take 2 ms; one comes every 2.857 ms in the mean, a load of 0.7.
    let text = "queue = { packets = 10000 }\n[[workloads]]\napp = 'datagrams'\nclient = 'ship'\nserver = 'hub'\n\
        traffic = 'poisson'\nbytes = '100 B'\ninterval = '2.857143 ms'\nduration = '600 s'\n";
    let record = virtually(&over_link(text));
    let workload = &record.cases[0].workloads[0];
    // 210,000 ± 458.
    assert_within("offered rate", value(workload, "offered_rate"), 800.0 / 2.857143e-3, 0.01);
    assert_eq!(value(workload, "loss"), 0.0);
    // Pollaczek and Khinchine: ρ ÷ (2 (1 − ρ)) services; the mean of a busy hour's worth of samples has an error near 2 %.
    let wait = 0.7 / (2.0 * 0.3) * 0.002;
    assert_within("mean wait", value(workload, "delay_mean") - 0.252, wait, 0.06);
    assert!((value(workload, "delay_min") - 0.252).abs() < 1e-6);
}

/// Bit errors, a delay that varies, and both directions at once.
const NOISY: &str = "noise = 2e-5\njitter = '20 ms'\n[[workloads]]\napp = 'datagrams'\nclient = 'ship'\nserver = 'hub'\n\
    direction = 'both'\nbytes = '400 B'\nrate = '160 kbit/s'\nduration = '10 s'\ntimeout = '2 s'\ndscp = 'EF'\n";

#[test]
fn live_and_virtual_agree_on_a_noisy_link() {
    let simulated = virtually(&over_link(NOISY));
    let expected = &simulated.cases[0].workloads[0];
    // 428 B: 1 − (1 − 2e-5)^3424 = 6.6 %; of 500, ± 1.1.
    assert!((value(expected, "loss_upload") - 0.066).abs() < 0.033, "{expected:#?}");
    let Some(record) = live(&over_link(NOISY), None) else { return };
    let measured = &record.cases[0].workloads[0];
    assert_eq!((measured.status, value(measured, "sent")), (Status::Done, 1000.0));
    for direction in ["upload", "download"] {
        for quantity in ["received", "delay_mean", "delay_median", "delay_variation", "goodput"] {
            let name = format!("{quantity}_{direction}");
            assert_within(&name, value(measured, &name), value(expected, &name), 0.03);
        }
        for quantity in ["duplicates", "damaged", "unknown", "pending"] {
            assert_eq!(value(measured, &format!("{quantity}_{direction}")), 0.0, "{quantity} {direction}");
        }
    }
    assert_within("loss", value(measured, "loss"), value(expected, "loss"), 0.03);
}

#[test]
fn live_and_virtual_agree_on_an_overloaded_fifo() {
    let short = over_link(OVERLOAD).replace("'60 s'", "'8 s'");
    let simulated = virtually(&short);
    let expected = &simulated.cases[0].workloads[0];
    let Some(record) = live(&short, None) else { return };
    let measured = &record.cases[0].workloads[0];
    for name in ["sent", "received", "goodput", "offered_rate", "delay_mean"] {
        assert_within(name, value(measured, name), value(expected, name), 0.03);
    }
    // A sender that is woken late moves a few departures behind a place that has become free.
    assert!((value(measured, "loss") - value(expected, "loss")).abs() < 0.01, "{measured:#?}");
}

/// The traffic classes of the UDP packets in a capture: found by their IP headers.
fn traffic_classes(folder: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let mut classes = Vec::new();
    for file in files {
        for at in 0..file.len().saturating_sub(428) {
            // 428 B, no fragment, UDP.
            let header = &file[at..at + 20];
            if header[0] == 0x45 && header[2..4] == 428_u16.to_be_bytes() && header[9] == 17 {
                classes.push(header[1]);
            }
        }
    }
    classes
}

#[test]
fn the_dscp_is_in_the_captures() {
    let folder = std::env::temp_dir().join(format!("bentpipe-datagrams-{}", std::process::id()));
    let text = over_link(NOISY).replace("'10 s'", "'1 s'");
    for world in ["virtual", "live"] {
        let folder = folder.join(world);
        std::fs::create_dir_all(&folder).unwrap();
        if world == "live" {
            if live(&text, Some(&folder)).is_none() {
                break;
            }
        } else {
            let options = SimulatedOptions { capture_directory: Some(folder.clone()), ..SimulatedOptions::default() };
            simulated::run(&crate::support::scenario(&text), &options, &AtomicBool::new(false)).unwrap();
        }
        let classes = traffic_classes(&folder);
        assert!(classes.len() >= 100 && classes.iter().all(|class| *class == 46 << 2), "{world}: {classes:?}");
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn datagrams_bypass_a_gateway_pair() {
    let text = over_link(NOISY).replace("noise = 2e-5\njitter = '20 ms'\n", "");
    let without = virtually(&text);
    let with = virtually(&format!("{text}[gateways.sat]\n"));
    let [without, with] = [&without, &with].map(|record| &record.cases[0]);
    for name in ["loss", "received", "delay_median_upload", "delay_min_download"] {
        let [own, other] = [with, without].map(|case| value(&case.workloads[0], name));
        assert!((own - other).abs() <= 1e-3, "{name}: {own} instead of {other}");
    }
    for side in &with.gateways[0].sides {
        let bypassed = side.measurements.iter().find(|m| m.quantity == "bypass_packets").unwrap().value;
        assert_eq!(bypassed, 500.0, "{}", side.site);
    }
}
