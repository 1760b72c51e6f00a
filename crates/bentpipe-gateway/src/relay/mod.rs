//! The relay: connections of the site on one side, streams of the satellite side on the other.
//!
//! [`connection`] is one relayed connection; [`outbound`] and [`inbound`] are its two directions; [`credit`] bounds what
//! each may have on its way; [`frame`] is what the two relays of a pair say to each other.

pub(crate) mod class;
pub(crate) mod connection;
pub(crate) mod credit;
pub(crate) mod direct;
pub(crate) mod filtered;
pub(crate) mod frame;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod table;

use crate::compression::{PACKER_BYTES, Trial, UNPACKER_BYTES};
use crate::config::GatewayConfig;
use crate::front_end::FilterSource;
use crate::log_event::LogEvent;
use crate::metrics::Metrics;
use crate::satellite::Satellite;
use bentpipe_net::interception::GatewaySockets;
use bentpipe_net::time::Instant;
use class::Policy;
use credit::Budget;
use frame::{DATA_MAX, HEADROOM};
use std::collections::VecDeque;

/// State that all connections share.
pub(crate) struct Shared {
    pub config: GatewayConfig,
    pub policy: Policy,
    pub metrics: Metrics,
    pub log: EventLog,
    /// The first that has a filter for a connection wins.
    pub filters: Vec<Box<dyn FilterSource>>,
    pub contexts: Contexts,
    pub budget: Budget,
    /// Bytes that wait in the satellite side to be read.
    pub unread: u64,
    pub trial: Trial,
    /// Where sockets are read into: room for what stands before a frame's data, then the data.
    pub taken: Vec<u8>,
    /// Where frames are packed.
    pub packed: Vec<u8>,
    /// Where streams are read into.
    pub arrived: Vec<u8>,
    /// Where frames are unpacked.
    pub unpacked: Vec<u8>,
}

impl Shared {
    pub(crate) fn new(config: GatewayConfig) -> Shared {
        Shared {
            policy: Policy::new(&config.settings.interactive, config.satellite.rate),
            metrics: Metrics::default(),
            log: EventLog::default(),
            filters: Vec::new(),
            contexts: Contexts::new(config.settings.memory.compression.bytes),
            budget: Budget::new(config.settings.memory.total.bytes),
            unread: 0,
            trial: Trial::new(),
            taken: vec![0; HEADROOM + DATA_MAX],
            packed: Vec::new(),
            arrived: Vec::new(),
            unpacked: Vec::new(),
            config,
        }
    }

    /// The total of memory is used up: what can wait outside does.
    pub(crate) fn is_full(&self) -> bool {
        self.metrics.memory_buffered + self.unread > self.config.settings.memory.total.bytes
    }
}

/// The environment in which a connection works.
pub(crate) struct Site<'a> {
    pub now: Instant,
    pub sockets: &'a mut dyn GatewaySockets,
    pub satellite: &'a mut dyn Satellite,
    pub shared: &'a mut Shared,
}

/// Room for compression: contexts that may be made here, and those that the other side may count on.
pub(crate) struct Contexts {
    most: u64,
    packers: u64,
    promised: u64,
}

impl Contexts {
    /// As many for either direction.
    fn new(bytes: u64) -> Contexts {
        Contexts { most: bytes / (PACKER_BYTES + UNPACKER_BYTES), packers: 0, promised: 0 }
    }

    /// True if the other side may be promised room to unpack; if so, it is taken.
    pub(crate) fn promise(&mut self) -> bool {
        let room = self.promised < self.most;
        self.promised += u64::from(room);
        room
    }

    /// A promise is no longer needed.
    pub(crate) fn release(&mut self) {
        self.promised -= 1;
    }

    /// True if there is room for another context that packs.
    pub(crate) fn has_room(&self) -> bool {
        self.packers < self.most
    }

    /// A context that packs was made, or went.
    pub(crate) fn count(&mut self, had: bool, has: bool) {
        self.packers = self.packers + u64::from(has) - u64::from(had);
    }

    /// Contexts that exist or may be asked for.
    pub(crate) fn in_use(&self) -> u64 {
        self.packers + self.promised
    }
}

/// Events for the log, bounded.
#[derive(Default)]
pub(crate) struct EventLog {
    waiting: VecDeque<LogEvent>,
    frequent: usize,
    dropped: u64,
}

impl EventLog {
    const MOST: usize = 1024;
    /// The rest is for what nobody can make happen at will.
    const FREQUENT_MOST: usize = 768;

    pub(crate) fn emit(&mut self, log_event: LogEvent) {
        // A later one counts the earlier too.
        if let (LogEvent::Unauthenticated { .. }, Some(last @ LogEvent::Unauthenticated { .. })) =
            (&log_event, self.waiting.back_mut())
        {
            *last = log_event;
            return;
        }
        let frequent = log_event.is_frequent();
        if self.waiting.len() == EventLog::MOST || frequent && self.frequent == EventLog::FREQUENT_MOST {
            self.dropped += 1;
            return;
        }
        self.frequent += usize::from(frequent);
        self.waiting.push_back(log_event);
    }

    pub(crate) fn take(&mut self) -> Vec<LogEvent> {
        self.frequent = 0;
        let mut all: Vec<LogEvent> = self.waiting.drain(..).collect();
        if self.dropped > 0 {
            all.push(LogEvent::Dropped(std::mem::take(&mut self.dropped)));
        }
        all
    }
}

/// Bytes that wait, in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bytes: Vec<u8>,
    at: usize,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// The first `count` bytes are done with. Nothing left: no memory is kept.
    pub(crate) fn advance(&mut self, count: usize) {
        self.at += count;
        if self.is_empty() {
            *self = Waiting::default();
        }
    }
    pub(crate) fn buffered(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_log_events_leave_room_for_the_others() {
        let mut log = EventLog::default();
        for count in 1..=10 {
            log.emit(LogEvent::Unauthenticated { count, peer: None });
        }
        for _ in 0..5000 {
            log.emit(LogEvent::Malformed { what: "something" });
        }
        log.emit(LogEvent::Released);
        let all = log.take();
        assert_eq!(all.len(), EventLog::FREQUENT_MOST + 2);
        assert_eq!(all[0], LogEvent::Unauthenticated { count: 10, peer: None });
        assert_eq!(all[all.len() - 2..], [LogEvent::Released, LogEvent::Dropped(5000 - 767)]);
        assert!(log.take().is_empty());
    }
}
