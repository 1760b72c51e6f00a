//! Flows: what tells them apart, and what one TCP connection showed on the wire at one of its hosts.

use crate::time::{Duration, Instant};
use std::net::IpAddr;

/// Facts of one connection as its host's packets showed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowFacts {
    /// When the host's first packet passed.
    pub start: Instant,
    /// When its last packet passed.
    pub end: Instant,
    /// MSS the host offered.
    pub mss: Option<u16>,
    /// Window scale the host's SYN showed on the wire.
    pub window_scale: Option<u8>,
    /// SACK offered.
    pub sack: bool,
    /// Timestamps offered.
    pub timestamps: bool,
    /// Largest window the host advertised, in bytes.
    pub window_max: u64,
    /// Segments with data the host sent.
    pub data_segments: u64,
    /// Their bytes.
    pub data_bytes: u64,
    /// Bytes of them sent before.
    pub repeated_bytes: u64,
    /// Segments with new data before the first acknowledgement of data.
    pub initial_burst: u64,
    /// Acknowledgements without data the host sent.
    pub pure_acks: u64,
    /// Segments with data that reached the host.
    pub segments_received: u64,
    /// Of [`pure_acks`](Self::pure_acks), those of new data that no delay came before.
    pub prompt_acks: u64,
    /// The segments that these answer.
    pub prompt_segments: u64,
    /// Segments since the last acknowledgement, and when the first of them came.
    pub unanswered: (u64, Instant),
    /// The field of the last acknowledgement.
    pub acknowledged: u64,
    /// Most data bytes the host had sent and not seen acknowledged.
    pub in_flight_max: u64,
    /// The host opened it (its SYN offers what it would; an answer offers only what was asked).
    pub active: bool,
}

/// An acknowledgement that was delayed comes later than this: Linux delays by 40 ms or more (TCP_DELACK_MIN).
const PROMPT: Duration = Duration::from_millis(20);

impl FlowFacts {
    /// A segment with data reached the host.
    #[inline]
    pub fn data_arrived(&mut self, now: Instant) {
        self.segments_received += 1;
        if self.unanswered.0 == 0 {
            self.unanswered.1 = now;
        }
        self.unanswered.0 += 1;
    }

    /// The host sent an acknowledgement without data; `field`: what its header acknowledges.
    #[inline]
    pub fn pure_ack(&mut self, now: Instant, field: u64) {
        self.pure_acks += 1;
        let (segments, since) = std::mem::take(&mut self.unanswered);
        // One that repeats the last tells of a hole; it has nothing to do with how many segments one answers.
        if std::mem::replace(&mut self.acknowledged, field) != field && segments > 0 && now.since(since) <= PROMPT {
            self.prompt_acks += 1;
            self.prompt_segments += segments;
        }
    }
}

/// What tells flows apart: addresses, protocol and ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// See [`crate::headers::protocol`].
    pub protocol: u8,
    /// The sender's port; 0 where there are no ports, and in fragments.
    pub source_port: u16,
    /// The receiver's port, likewise.
    pub destination_port: u16,
}

impl FlowKey {
    /// The flow in the opposite direction.
    #[must_use]
    pub fn reversed(self) -> FlowKey {
        FlowKey {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_after_a_delay_or_of_a_hole_are_not_prompt() {
        let mut facts = FlowFacts::default();
        let at = |ms: u64| Instant { ns: ms * 1_000_000 };
        for (arrives, acknowledges, field) in [
            (&[1, 2][..], 2, 2_000), // every second one
            (&[10], 50, 3_000),      // after a delay
            (&[60], 60, 3_000),      // a hole
            (&[70, 71, 72], 72, 7_000),
        ] {
            arrives.iter().for_each(|ms| facts.data_arrived(at(*ms)));
            facts.pure_ack(at(acknowledges), field);
        }
        assert_eq!((facts.segments_received, facts.pure_acks), (7, 4));
        assert_eq!((facts.prompt_segments, facts.prompt_acks), (5, 2));
    }
}
