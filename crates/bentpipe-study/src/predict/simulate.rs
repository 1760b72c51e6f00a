//! The same transfer in the simulator: one bulk transfer a connection, all started at once.

use super::{Question, Simulated};
use crate::{pool, transfer};
use bentpipe_apps::ClientServer as _;
use bentpipe_apps::Direction;
use bentpipe_apps::quantity;
use bentpipe_apps::report::Status;
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_link::impairment::PacketLoss;
use bentpipe_link::noise::RatioSchedule;
use bentpipe_net::datagram::{Body, flag};
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitErrorRatio;
use bentpipe_sim::network::{NetworkError, Observer, ProgramId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs of a link on which something is left to chance. Odd, so that one of them is the median.
const RUNS: u64 = 25;
/// Segments that all runs together may carry: a few seconds of work.
const SEGMENTS_MAX: u64 = 4_000_000;
/// No run is followed longer; TCP gives up a connection on which nothing moves long before.
const TIME_MAX: Duration = Duration::from_secs(30 * 86_400);
/// The simulator's measurement; or a note on why there is none, or on its limits.
pub fn simulate(question: &Question<'_>, segment_bytes: u64) -> (Option<Simulated>, Option<String>) {
    let link = link(question);
    let segments = question.bytes.bytes / segment_bytes.max(1) + 1;
    if segments > SEGMENTS_MAX {
        let most = SEGMENTS_MAX.saturating_mul(segment_bytes) / 1_000_000_000;
        return (None, Some(format!("Not simulated: too long; transfers of up to {most} GB are.")));
    }
    let runs = if leaves_to_chance(&link) {
        // An odd number.
        (SEGMENTS_MAX / segments).clamp(1, RUNS).saturating_sub(1) | 1
    } else {
        1
    };
    let mut times = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    for result in pool::map(pool::cores(), 1..=runs, |seed| run(question, &link, seed)) {
        match result {
            Ok(Ok(time)) => times.push(time),
            Ok(Err(failure)) => failures.push(failure),
            Err(NetworkError::Tcp { key, message, .. }) => {
                return (None, Some(format!("Not simulated: tcp.{key}: {message}.")));
            }
            Err(error) => return (None, Some(format!("Not simulated: {error}."))),
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    let note = failures.first().map(|first| {
        format!("{} of {runs} simulated run(s) did not finish and are left out; the first: {first}.", failures.len())
    });
    let simulated = times.get(times.len().saturating_sub(1) / 2).map(|median| Simulated {
        runs: times.len() as u32,
        seconds: *median,
        seconds_range: (times[0], times[times.len() - 1]),
        goodput_bps: (question.bytes.bytes as f64 * 8.0 / median) as u64,
    });
    (simulated, note)
}

/// The link without its set-up, which the models leave out, and with the loss that was given instead of its own.
fn link(question: &Question<'_>) -> LinkConfig {
    let mut link = question.link.clone();
    link.circuit = None;
    if let Some(share) = question.loss {
        let there = match question.direction {
            Direction::Download => &mut link.forward,
            Direction::Upload => &mut link.back,
        };
        there.noise = RatioSchedule::Constant(BitErrorRatio::ZERO);
        there.medium.loss = (share > 0.0).then(|| PacketLoss::independent(share));
    }
    link
}

/// True if two runs with different seeds may differ.
pub fn leaves_to_chance(link: &LinkConfig) -> bool {
    let chance = |direction: &DirectionConfig| {
        !direction.noise.is_silent()
            || direction.medium.loss.is_some_and(|loss| loss.share > 0.0)
            || direction.medium.jitter.is_some()
    };
    chance(&link.forward) || chance(&link.back)
}

/// One run: how many seconds it took from the first SYN on, or why it did not finish.
fn run(question: &Question<'_>, link: &LinkConfig, seed: u64) -> Result<Result<f64, String>, NetworkError> {
    let tcp = [question.tcp.clone(), question.tcp.clone()];
    let mut network = transfer::hosts(link, tcp, seed)?;
    let address = transfer::address(&network, transfer::HUB);
    let observed = Arc::new(Mutex::new(Observed::default()));
    network.observe(Box::new(Watch { terminal: transfer::TERMINAL, observed: Arc::clone(&observed) }));
    let clients: Vec<(ProgramId, u16, u64)> = transfer::shares(question.bytes.bytes, question.connections)
        .map(|(port, bytes)| {
            let spec = transfer::bulk(question.direction, port, bytes);
            network.start(transfer::HUB, spec.server(seed));
            (network.start(transfer::TERMINAL, spec.client(address.into(), seed)), port, bytes)
        })
        .collect();
    transfer::run(&mut network, TIME_MAX, |network| {
        clients.iter().any(|(id, ..)| network.program(*id).is_some_and(|program| !program.is_done()))
    });
    let observed = observed.lock();
    let mut last = 0.0_f64;
    for (id, port, bytes) in clients {
        let Some(report) = network.program(id).map(|program| program.report(network.now())) else { continue };
        match report.status {
            Status::Done => {}
            Status::Failed(reason) => return Ok(Err(reason)),
            Status::Running => return Ok(Err("nothing moves any more".to_owned())),
        }
        // Clients start at time zero.
        let ended = match question.direction {
            Direction::Download => report.value(quantity::COMPLETION_TIME),
            Direction::Upload => observed.acknowledged(port, bytes).map(Instant::as_secs_f64),
        };
        last = last.max(ended.unwrap_or_default());
    }
    Ok(Ok(last - observed.start.unwrap_or(Instant::ZERO).as_secs_f64()))
}

/// The packets that passed the terminal's port.
#[derive(Default)]
struct Observed {
    /// The first SYN.
    start: Option<Instant>,
    /// By the server's port: what was acknowledged so far.
    acknowledged: BTreeMap<u16, Acknowledged>,
}

struct Acknowledged {
    /// The last acknowledgement's number, and the bytes that it and those before it stand for, the SYN's one included.
    number: u32,
    bytes: u64,
    /// When a number was reached first: the last two, as the very last may be the FIN's.
    steps: [(u64, Instant); 2],
}

impl Observed {
    /// When all bytes sent to a port were acknowledged.
    fn acknowledged(&self, port: u16, bytes: u64) -> Option<Instant> {
        let observed = self.acknowledged.get(&port)?;
        observed.steps.iter().find(|(reached, _)| *reached > bytes).map(|(_, at)| *at)
    }
}

struct Watch {
    terminal: usize,
    observed: Arc<Mutex<Observed>>,
}

impl Observer for Watch {
    fn packet(&mut self, now: Instant, site: usize, _interface: usize, outbound: bool, packet: &DatagramPacket) {
        let (datagram, _) = packet.datagram();
        let Body::Tcp(segment) = &datagram.body else { return };
        if site != self.terminal {
            return;
        }
        let mut observed = self.observed.lock();
        if outbound {
            observed.start.get_or_insert(now);
            if segment.flags & flag::SYN != 0 {
                let first = Acknowledged { number: segment.sequence, bytes: 0, steps: [(0, now), (0, now)] };
                observed.acknowledged.entry(segment.destination_port).or_insert(first);
            }
            return;
        }
        let Some(known) = observed.acknowledged.get_mut(&segment.source_port) else { return };
        let more = segment.acknowledgement.wrapping_sub(known.number);
        // Half of the numbers are behind, the rest ahead (RFC 9293 §3.4).
        if segment.flags & flag::ACK != 0 && more > 0 && more < 1 << 31 {
            known.number = segment.acknowledgement;
            known.bytes += u64::from(more);
            known.steps = [known.steps[1], (known.bytes, now)];
        }
    }
}
