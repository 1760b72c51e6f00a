//! Makes a case's events from its schedule and its world.

use super::{
    DirectionSnapshot, Event, LinkSnapshot, Punctuality, Sink, SiteEvent, Snapshot, WorkloadEnded, WorkloadRun,
    WorkloadSnapshot, WorkloadStarted, after,
};
use crate::record::WorkloadRecord;
use crate::scenario::Case;
use crate::scenario::workload::WorkloadId;
use bentpipe_link::config::DirectionConfig;
use bentpipe_link::direction::Sample;
use bentpipe_link::link::Link;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::{Duration, Instant};

/// The state of a world's network.
#[derive(Debug, Default)]
pub struct WorldState {
    /// In the order of the case's links.
    pub links: Vec<LinkState>,
    /// Those since the state before.
    pub log: Vec<SiteEvent>,
    /// Absent in virtual time.
    pub punctuality: Option<Punctuality>,
}

/// A link's state.
#[derive(Debug)]
pub struct LinkState {
    up: bool,
    directions: Vec<DirectionState>,
}

#[derive(Debug)]
struct DirectionState {
    sample: Sample,
    lost_packets: u64,
    delivered_packets: u64,
}

/// A link's state at `now`, from counters that are up to date.
pub fn link_state<P: Packet>(link: &Link<P>, now: Instant) -> LinkState {
    let directions = link.directions().iter().map(|direction| {
        let lost = direction.sender_counters().abandoned_packets;
        let (mut lost_packets, mut delivered_packets) = (lost, 0);
        for receiver in direction.receiver_counters() {
            lost_packets += receiver.lost_packets;
            delivered_packets += receiver.delivered_packets;
        }
        DirectionState { sample: direction.sample(now), lost_packets, delivered_packets }
    });
    LinkState { up: link.circuit().is_none_or(|circuit| circuit.is_up()), directions: directions.collect() }
}

/// Emits the events of one case.
pub struct Emitter<'a> {
    case: &'a Case,
    sink: &'a mut dyn Sink,
    interval: Option<Duration>,
    next: Instant,
    /// Each link's directions at the snapshot before.
    before: Vec<Vec<Sample>>,
}

/// Shortest interval of snapshots.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

impl<'a> Emitter<'a> {
    /// The first snapshot is due at once.
    pub fn new(case: &'a Case, sink: &'a mut dyn Sink) -> Emitter<'a> {
        let interval = sink.interval().map(|interval| interval.max(INTERVAL_MIN));
        let next = if interval.is_some() { Instant::ZERO } else { Instant::FAR };
        Emitter { case, sink, interval, next, before: Vec::new() }
    }

    /// Time at which the next snapshot is due.
    pub fn next_snapshot(&self) -> Instant {
        self.next
    }

    /// A snapshot is due and wanted.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| now >= self.next) else { return false };
        self.next = after(now, interval);
        self.sink.wants_snapshot()
    }

    /// Workloads that a snapshot lists at most.
    pub fn workloads_max(&self) -> usize {
        self.sink.workloads_max()
    }

    /// A run of a workload began.
    pub fn started(&mut self, now: Instant, workload: &WorkloadId, repeat: u32) {
        let run = WorkloadRun { workload: workload.clone(), repeat };
        self.sink.event(&Event::WorkloadStarted(WorkloadStarted { at: now.as_secs_f64(), run }));
    }

    /// A run of a workload is over.
    pub fn ended(&mut self, now: Instant, record: &WorkloadRecord) {
        self.sink.event(&Event::WorkloadEnded(WorkloadEnded {
            at: now.as_secs_f64(),
            run: WorkloadRun::of(record),
            status: record.status,
            error: record.error.clone(),
            measurements: record.measurements.clone(),
        }));
    }

    /// The case's state, with the workloads that it lists and the numbers of those that run and that wait.
    pub fn snapshot(
        &mut self,
        now: Instant,
        state: WorldState,
        workloads: Vec<WorkloadSnapshot>,
        (running, waiting): (usize, usize),
    ) {
        let mut before = std::mem::take(&mut self.before).into_iter();
        let links = self.case.links.iter().zip(&state.links).map(|(used, link)| {
            let mut before = before.next().unwrap_or_default().into_iter();
            let configs = std::iter::once(&used.config.forward).chain(std::iter::repeat(&used.config.back));
            let directions = link.directions.iter().zip(configs);
            LinkSnapshot {
                name: used.name.clone(),
                up: link.up,
                directions: directions
                    .map(|(state, config)| direction(state, config, link.up, before.next()))
                    .collect(),
            }
        });
        let links = links.collect();
        self.before = state.links.iter().map(|link| link.directions.iter().map(|d| d.sample).collect()).collect();
        self.sink.event(&Event::Snapshot(Snapshot {
            at: now.as_secs_f64(),
            links,
            workloads,
            running,
            waiting,
            log: state.log,
            punctuality: state.punctuality,
        }));
    }
}

fn direction(state: &DirectionState, config: &DirectionConfig, up: bool, before: Option<Sample>) -> DirectionSnapshot {
    let sample = &state.sample;
    let seconds = before.map_or(0.0, |before| sample.at.since(before.at).as_secs_f64());
    let rate = |bits: u64| if seconds > 0.0 { bits as f64 / seconds } else { 0.0 };
    let (sent, delivered) = before.map_or((0, 0), |before| (before.link_bits, before.delivered_bytes));
    let bps = config.rate.at(sample.at).0.bps as f64 * config.channels as f64;
    let waiting = sample.queue_bytes as f64 * 8.0;
    DirectionSnapshot {
        rate: rate(sample.link_bits.saturating_sub(sent)),
        delivered_rate: rate(sample.delivered_bytes.saturating_sub(delivered) * 8),
        queue_bytes: sample.queue_bytes,
        delay: (up && bps > 0.0).then(|| waiting / bps + config.medium.one_way_delay.as_secs_f64()),
        link_bytes: sample.link_bits.div_ceil(8),
        delivered_bytes: sample.delivered_bytes,
        delivered_packets: state.delivered_packets,
        dropped_packets: sample.dropped_packets,
        damaged_packets: sample.damaged_packets,
        bit_errors: sample.bit_errors,
        lost_packets: state.lost_packets,
    }
}
