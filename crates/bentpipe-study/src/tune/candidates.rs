//! Candidates for settings, from closed forms: each with its values, its hosts, its reason and its source.
//! Whether it helps is the simulator's to say.

use super::buffers::{RECEIVE_BUFFER_DEFAULT, RECEIVE_LIMIT_DEFAULT, SEND_BUFFER_DEFAULT, SEND_LIMIT_DEFAULT};
use super::candidate::{Candidate, Path};
use super::commands::is_allowed_anyway;
use super::hosts::{Atom, Hosts, Side};
use super::mtu;
use crate::predict::leaves_to_chance;
use bentpipe_apps::Direction;
use bentpipe_lab::report::quantity;
use bentpipe_link::config::LinkConfig;
use bentpipe_net::stack::TcpConfig;
use std::borrow::Cow;

/// A host's first receive window, whatever it is tuned to later (net/ipv4/tcp_output.c: tcp_select_initial_window).
const FIRST_WINDOW: u64 = 64_240;
/// RFC 6928 §2.
const INITIAL_WINDOW_RFC: u32 = 10;
/// RFC 6298 §2.4.
const RTO_MIN_RFC: &str = "1 s";
/// Lines on which twelve bytes a segment are worth a thought: a share of 2 % of a segment.
const STAMPS_COUNT: f64 = 0.02;

/// Every setting worth a try, the most important first.
pub fn candidates(link: &LinkConfig, hosts: &Hosts, paths: &[Path]) -> Vec<Candidate> {
    let mut all = Vec::new();
    all.extend(paths.iter().filter_map(|path| windows(path, hosts)));
    all.extend(selective_acknowledgements(hosts, paths));
    all.extend(paths.iter().filter_map(|path| initial_window(path, link, hosts)));
    all.extend(paths.iter().map(|path| congestion_control(path, hosts)));
    all.extend(paths.iter().filter_map(|path| every_segment(path, hosts)));
    all.extend(paths.iter().filter_map(|path| after_idle(path, hosts)));
    all.extend(timestamps(hosts, paths));
    all.extend(mtu::candidate(link, hosts, paths));
    all.extend(paths.iter().filter_map(|path| time_out(path, link, hosts)));
    all.extend(paths.iter().filter_map(|path| hystart(path, hosts)));
    all.push(notification(hosts, paths));
    all
}

fn bytes(bytes: u64) -> Cow<'static, str> {
    quantity::bytes(bytes as f64).replace('\u{a0}', " ").into()
}

fn seconds(seconds: f64) -> String {
    quantity::seconds(seconds).replace('\u{a0}', " ")
}

fn directions(paths: &[Path]) -> Vec<Direction> {
    paths.iter().map(|path| path.direction).collect()
}

/// Settings that need no trial, by closed forms.
pub fn left_alone(hosts: &Hosts, paths: &[Path]) -> Vec<String> {
    let mut all = Vec::new();
    for path in paths.iter().filter(|path| windows(path, hosts).is_none()) {
        let direction = super::name(path.direction);
        all.push(format!(
            "window, {direction}: the hosts' own limits are more than two bandwidth-delay products of {}",
            bytes(path.inputs.bandwidth_delay_product_bytes)
        ));
    }
    if selective_acknowledgements(hosts, paths).is_none() {
        all.push("selective acknowledgements: on (RFC 2488 §4.4)".to_owned());
    }
    if Side::BOTH.into_iter().all(|side| hosts.of(side).window_scaling.unwrap_or(true)) {
        all.push("window scaling: on (RFC 7323 §2)".to_owned());
    }
    if timestamps(hosts, paths).is_none() {
        all.push("timestamps: on, and less than 2 % of a segment (RFC 7323 §3)".to_owned());
    }
    all
}

/// Both hosts with the same value of a switch, where it is not so already.
fn switch(hosts: &Hosts, key: &'static str, of: impl Fn(&TcpConfig) -> Option<bool>, to: bool) -> Vec<Atom> {
    let other = Side::BOTH.into_iter().filter(|side| of(hosts.of(*side)).unwrap_or(key != "ecn") != to);
    other.map(|side| Atom::new(side, key, to)).collect()
}

fn windows(path: &Path, hosts: &Hosts) -> Option<Candidate> {
    let (sender, receiver) = (Side::sender(path.direction), Side::receiver(path.direction));
    let product = path.inputs.bandwidth_delay_product_bytes;
    let window = hosts.of(receiver).receive_window.map_or(RECEIVE_LIMIT_DEFAULT, |w| w.bytes);
    let buffer = hosts.of(sender).send_buffer.map_or(SEND_LIMIT_DEFAULT, |b| b.bytes);
    // One product fills the link; the second lets slow start and a repair go on while it is full.
    let most = product.saturating_mul(2);
    if window.min(buffer) >= most {
        return None;
    }
    // Linux holds no window: it tunes one up to a limit, which is raised where it is too low, and never lowered.
    let value = |size: u64| {
        let size = size.next_multiple_of(1024).min(1 << 30);
        let mut atoms = Vec::new();
        for (host, key, now) in [(receiver, "receive_window", window), (sender, "send_buffer", buffer)] {
            let wide = Atom::size(host, key, size);
            if now < size {
                atoms.push(if is_allowed_anyway(&wide) { Atom::open(host, key) } else { wide });
            }
        }
        if !atoms.is_empty() {
            atoms.splice(0..0, switch(hosts, "window_scaling", |tcp| tcp.window_scaling, true));
        }
        atoms
    };
    let mut values: Vec<Vec<Atom>> = [product, most].into_iter().map(value).filter(|atoms| !atoms.is_empty()).collect();
    values.dedup();
    let limit = window.min(buffer) as f64 * 8.0 / path.inputs.rtt_seconds;
    Some(Candidate {
        setting: "window",
        directions: vec![path.direction],
        after_idle: false,
        why: format!(
            "{} carries {} in round trips of {}; {} fill the link",
            limited_by(hosts.of(sender), hosts.of(receiver), window, buffer),
            quantity::rate(limit).replace('\u{a0}', " "),
            seconds(path.inputs.rtt_seconds),
            bytes(product)
        ),
        source: "RFC 2488 §4.2, RFC 7323 §2; HB-3 to HB-5, NTIA-5.1, NTIA-5.6, CNIT-T3",
        values,
        command: true,
    })
}

/// The limit of the window: a setting, or one of Linux's own limits by its name.
fn limited_by(sender: &TcpConfig, receiver: &TcpConfig, window: u64, buffer: u64) -> String {
    if buffer < window && sender.send_buffer.is_none() {
        let most = bytes(SEND_BUFFER_DEFAULT);
        format!("Linux's send buffer (tcp_wmem, {most} at most) keeps {} in flight, which", bytes(buffer))
    } else if window <= buffer && receiver.receive_window.is_none() {
        let most = bytes(RECEIVE_BUFFER_DEFAULT);
        format!(
            "Linux's receive buffer (tcp_rmem, {most} at most before 6.16) allows a window of {}, which",
            bytes(window)
        )
    } else {
        format!("a window of {}", bytes(window.min(buffer)))
    }
}

fn selective_acknowledgements(hosts: &Hosts, paths: &[Path]) -> Option<Candidate> {
    let atoms = switch(hosts, "sack", |tcp| tcp.sack, true);
    if atoms.is_empty() {
        return None;
    }
    Some(Candidate {
        setting: "selective acknowledgements",
        directions: directions(paths),
        after_idle: false,
        why: format!(
            "without them one loss a round trip of {} is repaired; both hosts must have them",
            seconds(paths.iter().map(|path| path.inputs.rtt_seconds).fold(0.0, f64::max))
        ),
        source: "RFC 2018, RFC 2488 §4.4, RFC 2760 §3.3.2",
        values: vec![atoms],
        command: true,
    })
}

fn initial_window(path: &Path, link: &LinkConfig, hosts: &Hosts) -> Option<Candidate> {
    let sender = Side::sender(path.direction);
    let now = hosts.of(sender).initial_window.unwrap_or(INITIAL_WINDOW_RFC);
    let there = match path.direction {
        Direction::Download => &link.forward,
        Direction::Upload => &link.back,
    };
    let room = there.queue.room_bytes(link.mtu).unwrap_or(u64::MAX);
    let product = path.inputs.bandwidth_delay_product_bytes;
    // A burst beyond what the link's queue takes would be lost; beyond the product it would only wait.
    let fits = product.min(room).min(FIRST_WINDOW) / path.inputs.segment_bytes;
    let most = u32::try_from(fits).unwrap_or(u32::MAX);
    let mut sizes: Vec<u32> =
        [INITIAL_WINDOW_RFC, most].into_iter().filter(|n| *n > now && *n <= most.max(INITIAL_WINDOW_RFC)).collect();
    sizes.dedup();
    if sizes.is_empty() {
        return None;
    }
    Some(Candidate {
        setting: "initial window",
        directions: vec![path.direction],
        after_idle: false,
        why: format!(
            "slow start from {now} segment(s) needs {:.0} round trips to fill the link; {most} segments are what the link, \
             its queue ({}) and the receiver's first window ({}) take at once",
            (product as f64 / path.inputs.segment_bytes as f64 / f64::from(now)).max(1.0).log2().ceil(),
            bytes(room),
            bytes(FIRST_WINDOW)
        ),
        source: "RFC 6928 (10 segments; more only where this link is the bottleneck), RFC 2760 §3.2.1; CNIT-T3",
        values: sizes.into_iter().map(|n| vec![Atom::new(sender, "initial_window", i64::from(n))]).collect(),
        command: true,
    })
}

fn congestion_control(path: &Path, hosts: &Hosts) -> Candidate {
    let sender = Side::sender(path.direction);
    let now = hosts.of(sender).congestion_control.as_deref().unwrap_or("cubic");
    let loss = match path.inputs.segment_loss {
        Some(loss) if loss > 0.0 => format!("{loss:.1e} of the segments are lost to errors"),
        Some(_) => "nothing is lost to errors".to_owned(),
        None => "the errors change over time".to_owned(),
    };
    Candidate {
        setting: "congestion control",
        directions: vec![path.direction],
        after_idle: false,
        why: format!("{loss}, and {now} takes every loss for congestion"),
        source: "RFC 9438 (CUBIC), draft-ietf-ccwg-bbr (BBR; the simulator's and Linux's is version 1), RFC 2488 §4.1.3; HB-9",
        values: ["cubic", "bbr"]
            .into_iter()
            .filter(|name| *name != now)
            .map(|name| vec![Atom::new(sender, "congestion_control", name)])
            .collect(),
        command: true,
    }
}

fn every_segment(path: &Path, hosts: &Hosts) -> Option<Candidate> {
    let receiver = Side::receiver(path.direction);
    if hosts.of(receiver).ack_every == Some(1) {
        return None;
    }
    Some(Candidate {
        setting: "an acknowledgement for every segment",
        directions: vec![path.direction],
        after_idle: false,
        why: format!(
            "half as many delayed acknowledgements, twice the load on the way back: {} of {} at full rate",
            quantity::rate(
                path.inputs.payload_rate_bps as f64 / 8.0 / path.inputs.segment_bytes as f64
                    * path.inputs.ack_bits as f64
            )
            .replace('\u{a0}', " "),
            quantity::rate(path.inputs.return_rate_bps as f64).replace('\u{a0}', " ")
        ),
        source: "RFC 2760 §3.2.3, RFC 3449 §4.1; NTIA-5.F5",
        values: vec![vec![Atom::new(receiver, "ack_every", 1)]],
        command: true,
    })
}

fn after_idle(path: &Path, hosts: &Hosts) -> Option<Candidate> {
    let sender = Side::sender(path.direction);
    if hosts.of(sender).slow_start_after_idle == Some(false) {
        return None;
    }
    Some(Candidate {
        setting: "no slow start after idle",
        directions: vec![path.direction],
        after_idle: true,
        why: format!(
            "a connection used again after a pause starts from its initial window, round trips of {} each; the old window \
             is right where nobody else uses the link meanwhile",
            seconds(path.inputs.rtt_seconds)
        ),
        source: "RFC 5681 §4.1, RFC 2760 §3.6",
        values: vec![vec![Atom::new(sender, "slow_start_after_idle", false)]],
        command: true,
    })
}

/// On where they are off, for the round trips they measure; off where twelve bytes a segment count.
fn timestamps(hosts: &Hosts, paths: &[Path]) -> Option<Candidate> {
    let on = Side::BOTH.into_iter().all(|side| hosts.of(side).timestamps.unwrap_or(true));
    let share = paths.iter().map(|path| 12.0 / (path.inputs.segment_bytes as f64 + 12.0)).fold(0.0, f64::max);
    if on && share < STAMPS_COUNT {
        return None;
    }
    let why = match on {
        true => format!("they take 12 bytes of every segment, {:.1} %", share * 100.0),
        false => "they measure a round trip for every segment, repeated ones included".to_owned(),
    };
    Some(Candidate {
        setting: if on { "no timestamps" } else { "timestamps" },
        directions: directions(paths),
        after_idle: false,
        why,
        source: "RFC 7323 §3 and appendix A",
        values: vec![switch(hosts, "timestamps", |tcp| tcp.timestamps, !on)],
        command: true,
    })
}

fn time_out(path: &Path, link: &LinkConfig, hosts: &Hosts) -> Option<Candidate> {
    let sender = Side::sender(path.direction);
    let tcp = hosts.of(sender);
    if tcp.rto_min.is_some() {
        return None;
    }
    let wanders = leaves_to_chance(link) || link.forward.channels.max(link.back.channels) > 1;
    let why = match wanders {
        true => format!(
            "{} of round trip and 200 ms; what the link adds at times must not run into the time-out",
            seconds(path.inputs.rtt_seconds)
        ),
        false => "round trips of a link that never varies do not run into Linux's time-out, RTT + 200 ms".to_owned(),
    };
    Some(Candidate {
        setting: "least retransmission time-out of 1 s",
        directions: vec![path.direction],
        after_idle: false,
        why,
        source: "RFC 6298 §2.4; CG-1, CG-2",
        values: vec![vec![Atom::new(sender, "rto_min", RTO_MIN_RFC)]],
        command: true,
    })
}

fn hystart(path: &Path, hosts: &Hosts) -> Option<Candidate> {
    let sender = Side::sender(path.direction);
    let tcp = hosts.of(sender);
    if tcp.hystart == Some(false) || tcp.congestion_control.as_deref().is_some_and(|name| name != "cubic") {
        return None;
    }
    Some(Candidate {
        setting: "slow start without HyStart",
        directions: vec![path.direction],
        after_idle: false,
        why: "CUBIC leaves slow start when round trips grow, which jitter does too".to_owned(),
        source: "RFC 9406, RFC 9438 §4.10",
        values: vec![vec![Atom::new(sender, "hystart", false)]],
        // One switch for the whole machine, which a namespace cannot try.
        command: false,
    })
}

fn notification(hosts: &Hosts, paths: &[Path]) -> Candidate {
    Candidate {
        setting: "explicit congestion notification",
        directions: directions(paths),
        after_idle: false,
        why: "it spares the losses of a queue that marks; this link's drops at its end".to_owned(),
        source: "RFC 3168, RFC 2760 §3.3.3",
        values: vec![switch(hosts, "ecn", |tcp| tcp.ecn, true)],
        command: true,
    }
}
