//! The largest packet: what bit errors, headers and the wait behind a packet make of it.

use super::candidate::{Candidate, Path};
use super::hosts::{Atom, Hosts, Side};
use super::measure::{self, Transfer};
use crate::predict::{HEADERS, TIMESTAMPS, framed};
use bentpipe_apps::Direction;
use bentpipe_lab::report::quantity;
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_net::time::Instant;
use bentpipe_sim::network::NetworkError;
use serde::Serialize;

/// A packet size and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Largest IP packet.
    pub mtu: u64,
    /// Which way.
    pub direction: &'static str,
    /// Application bits ÷ link bits of what arrives: headers, framing and damaged packets taken off; the closed form.
    pub efficiency: Option<f64>,
    /// Sending time of a full packet, in seconds: the longest that one already being sent keeps another waiting.
    pub packet_seconds: f64,
    /// Simulated median time of the largest transfer with all that is recommended, in seconds.
    pub seconds: Option<f64>,
    /// Simulated median round trip of a ping during it, in seconds.
    pub ping_seconds: Option<f64>,
}

/// Longest average wait behind a packet that a person does not feel (RFC 1144 §2: 100 to 200 ms); it is half of the
/// packet's sending time.
const WAIT_SECONDS: f64 = 0.2;
/// Least packet that is efficient enough: ten times its headers (RFC 1144 §2).
const EFFICIENT: u64 = 10 * HEADERS;
/// Least MTU whose segments Linux announces: 256 bytes of data (net.ipv4.route.min_adv_mss).
const LEAST: u64 = 256 + HEADERS;
/// Sizes that the table shows when they fit.
const SHOWN: [u64; 5] = [1500, 1006, 576, 400, LEAST];
/// An optimum within this of the link's MTU is no candidate.
const WORTH: f64 = 0.95;

/// Application bits ÷ link bits of full packets that arrive: (MTU − headers) · 8 · (1 − BER)^bits / bits. None when the
/// bit error ratio changes.
#[must_use]
pub fn efficiency(link: &LinkConfig, direction: &DirectionConfig, mtu: u64, timestamps: bool) -> Option<f64> {
    let (ratio, until) = direction.noise.at(Instant::ZERO);
    let bits = framed(direction, link, mtu);
    let data = mtu.saturating_sub(HEADERS + if timestamps { TIMESTAMPS } else { 0 }) * 8;
    (until == Instant::FAR).then(|| data as f64 / bits as f64 * (1.0 - ratio.packet_error_ratio(bits)))
}

/// The MTU with the best [`efficiency`], up to the link's: about √(overhead bits ÷ BER) bits of data.
#[must_use]
pub fn optimum(link: &LinkConfig, direction: &DirectionConfig, timestamps: bool) -> Option<u64> {
    let mut best = (link.mtu, efficiency(link, direction, link.mtu, timestamps)?);
    for mtu in (LEAST.min(link.mtu)..link.mtu).step_by(4) {
        match efficiency(link, direction, mtu, timestamps) {
            Some(share) if share > best.1 => best = (mtu, share),
            _ => {}
        }
    }
    Some(best.0)
}

/// The largest MTU behind which another packet waits 200 ms on average, if that is efficient and below the link's.
#[must_use]
pub fn interactive(link: &LinkConfig, direction: &DirectionConfig) -> Option<u64> {
    if packet_seconds(link, direction, link.mtu) / 2.0 <= WAIT_SECONDS || link.mtu <= EFFICIENT {
        return None;
    }
    let fits = |mtu: &u64| packet_seconds(link, direction, *mtu) / 2.0 <= WAIT_SECONDS;
    Some((EFFICIENT..link.mtu).rev().find(fits).unwrap_or(EFFICIENT))
}

fn packet_seconds(link: &LinkConfig, direction: &DirectionConfig, mtu: u64) -> f64 {
    direction.rate.highest().time_for_bits(framed(direction, link, mtu)).as_secs_f64()
}

fn of(link: &LinkConfig, direction: Direction) -> &DirectionConfig {
    match direction {
        Direction::Download => &link.forward,
        Direction::Upload => &link.back,
    }
}

fn sizes(link: &LinkConfig, hosts: &Hosts, paths: &[Path]) -> Vec<u64> {
    let timestamps = Side::BOTH.into_iter().all(|side| hosts.of(side).timestamps.unwrap_or(true));
    let mut sizes: Vec<u64> = Vec::new();
    for path in paths {
        let direction = of(link, path.direction);
        let best = optimum(link, direction, timestamps).filter(|mtu| (*mtu as f64) < link.mtu as f64 * WORTH);
        sizes.extend(best);
        sizes.extend(interactive(link, direction));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// A smaller MTU, where the closed forms ask for one. The route's MTU of one host is enough: it limits what this host
/// sends and, through the MSS it announces, what it is sent.
pub fn candidate(link: &LinkConfig, hosts: &Hosts, paths: &[Path]) -> Option<Candidate> {
    if Side::BOTH.into_iter().any(|side| hosts.of(side).mtu.is_some()) {
        return None;
    }
    let sizes = sizes(link, hosts, paths);
    if sizes.is_empty() {
        return None;
    }
    let worst = paths.iter().filter_map(|path| path.inputs.bit_error_ratio).fold(0.0, f64::max);
    let slowest = paths.iter().map(|path| packet_seconds(link, of(link, path.direction), link.mtu)).fold(0.0, f64::max);
    Some(Candidate {
        setting: "MTU",
        directions: paths.iter().map(|path| path.direction).collect(),
        after_idle: false,
        why: format!(
            "a packet of {} B takes {} and is damaged with a chance of {:.1e} a bit: at the optimum of headers and \
             errors data has √(overhead ÷ BER) bits, and behind a packet one should wait 200 ms at most",
            link.mtu,
            quantity::seconds(slowest).replace('\u{a0}', " "),
            worst
        ),
        source: "RFC 1144 §2, RFC 2488 §3.1; CG-1, CG-2 (500 B at 2400 bit/s; the default at 64 kbit/s)",
        values: sizes.into_iter().map(|mtu| vec![Atom::size(Side::Terminal, "mtu", mtu)]).collect(),
        command: true,
    })
}

/// Each size with the closed form and the simulator's answer. Empty where the closed forms need nothing.
pub fn table(
    link: &LinkConfig,
    hosts: &Hosts,
    paths: &[Path],
    transfer: impl Fn(Direction) -> (Transfer, u64),
) -> Result<Vec<Row>, NetworkError> {
    let wanted = sizes(link, hosts, paths);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut mtus: Vec<u64> = [link.mtu].into_iter().chain(SHOWN).chain(wanted).filter(|mtu| *mtu <= link.mtu).collect();
    mtus.sort_unstable_by(|a, b| b.cmp(a));
    mtus.dedup();
    let mut rows = Vec::new();
    for path in paths {
        let direction = of(link, path.direction);
        let timestamps = Side::BOTH.into_iter().all(|side| hosts.of(side).timestamps.unwrap_or(true));
        for mtu in &mtus {
            let Some(hosts) = hosts.with(&[Atom::size(Side::Terminal, "mtu", *mtu)]) else { continue };
            let (transfer, seeds) = transfer(path.direction);
            rows.push(Row {
                mtu: *mtu,
                direction: super::name(path.direction),
                efficiency: efficiency(link, direction, *mtu, timestamps),
                packet_seconds: packet_seconds(link, direction, *mtu),
                seconds: measure::times(link, &hosts, &transfer, seeds)?.summary().seconds,
                ping_seconds: measure::ping_during_transfer(link, &hosts, &transfer)?,
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> LinkConfig {
        LinkConfig::from_table(toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn the_optimum_is_the_square_root_of_overhead_over_errors() {
        // 40 bytes of headers and no framing: 320 bits at 1e-5 make √(320/1e-5) = 5657 bits, 707 bytes of data.
        let noisy = link("rate = '1 Mbit/s'\none_way_delay = '10 ms'\nnoise = 1e-5");
        let best = optimum(&noisy, &noisy.forward, false).unwrap();
        let expected = (320.0_f64 / 1e-5).sqrt() / 8.0 + 40.0;
        assert!((best as f64 / expected - 1.0).abs() < 0.05, "{best} and {expected}");
        for mtu in [best / 2, best * 3 / 2] {
            assert!(efficiency(&noisy, &noisy.forward, mtu, false) < efficiency(&noisy, &noisy.forward, best, false));
        }
        let clean = link("rate = '1 Mbit/s'\none_way_delay = '10 ms'");
        assert_eq!(optimum(&clean, &clean.forward, false), Some(1500));
    }

    #[test]
    fn a_thin_line_asks_for_small_packets_and_not_for_tiny_ones() {
        let line = |rate: &str| link(&format!("rate = '{rate}'\none_way_delay = '10 ms'"));
        let of = |link: LinkConfig| interactive(&link, &link.forward);
        assert_eq!(of(line("64 kbit/s")), None, "0.19 s a packet");
        assert_eq!(of(line("19.2 kbit/s")), Some(960), "0.4 s a packet");
        assert_eq!(of(line("2400 bit/s")), Some(400), "ten times the headers");
    }
}
