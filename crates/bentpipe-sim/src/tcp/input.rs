//! Segments from the peer (RFC 9293 §3.10.7).

use super::acks::Arrived;
use super::recovery::AckFacts;
use super::settings::Settings;
use super::{Connection, LINGER, MSS_DEFAULT, Output, Parameters, Repair, State, unwrap};
use bentpipe_net::datagram::{Segment, SynOptions, flag};
use bentpipe_net::socket::SocketError;
use bentpipe_net::time::{Duration, Instant};
use std::sync::Arc;

/// ECN bits of the IP header (RFC 3168 §5): congestion experienced.
pub const CONGESTION_EXPERIENCED: u8 = 3;

/// Least time between two answers to segments that need none (Linux: tcp_invalid_ratelimit).
const ANSWER_INTERVAL: Duration = Duration::from_millis(500);
/// After this long without a newer one, a timestamp tells nothing: the peer's clock may have gone halfway round (RFC 7323
/// §5.5).
const TIMESTAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);

impl Connection {
    /// A listener's answer to a SYN: a connection whose SYN-ACK leaves.
    pub fn accept(settings: &Arc<Settings>, ends: Parameters, syn: &Segment, output: &mut Output<'_>) -> Connection {
        let mut connection = Connection::new(settings, ends, output.now, State::SynReceived);
        connection.learn_syn(syn, output.now);
        // RFC 3168 §6.1.1: a SYN with both flags asks for ECN.
        connection.ecn &= syn.has(flag::ECE | flag::CWR);
        connection.send_syn(output);
        connection
    }

    /// Takes over the options of the peer's SYN.
    fn learn_syn(&mut self, segment: &Segment, now: Instant) {
        let options = segment.syn.unwrap_or_default();
        self.peer_sequence = segment.sequence;
        self.buffer = super::receive::ReceiveBuffer::new(1);
        self.agree(options, segment.timestamps.is_some());
        if let Some((value, _)) = segment.timestamps {
            self.recent_timestamp = value;
            self.timestamp_learnt = now;
        }
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        self.peer_window = u64::from(segment.window);
        self.peer_edge = self.una.max(1) + self.peer_window;
    }

    /// Options count when both ends offer them.
    fn agree(&mut self, options: SynOptions, timestamps: bool) {
        let peer_mss = u64::from(options.mss.unwrap_or(MSS_DEFAULT));
        self.scaling &= options.window_scale.is_some();
        // RFC 7323 §2.3: shifts above 14 count as 14.
        self.peer_shift = if self.scaling { options.window_scale.unwrap_or(0).min(14) } else { 0 };
        self.sack &= options.sack_permitted;
        self.timestamps &= timestamps;
        let options = if self.timestamps { 12 } else { 0 };
        let offered = u64::from(self.mss_offered);
        self.set_mss(peer_mss.min(offered).saturating_sub(options).max(1));
        self.acks.agreed(options, offered.saturating_sub(options).max(1), self.mss);
    }

    fn set_mss(&mut self, mss: u64) {
        self.mss = mss;
        let exact = !self.settings.whole_segments;
        let whole = |limit: u64| if exact || limit < mss { limit } else { limit / mss * mss };
        self.send_limit = self.settings.send_limit.map(whole);
    }

    /// A segment for this connection. `traffic_class`: the ECN bits of its packet.
    /// Its payload is taken.
    #[inline]
    pub fn segment(&mut self, segment: &mut Segment, traffic_class: u8, output: &mut Output<'_>) {
        self.segments.received += 1;
        let first = self.buffer.next();
        // Header prediction (Jacobson 1990): the two kinds of segments of a transfer one way. For them, what follows does what
        // `any_segment` would.
        let ordinary = self.predicts()
            && matches!(self.state, State::Established | State::FinWait1)
            && segment.flags & !flag::PSH == flag::ACK
            && segment.sequence == self.peer_sequence.wrapping_add(first as u32)
            && segment.sack.is_none()
            && !self.ecn
            && (!self.timestamps || segment.timestamps.is_some_and(|(value, _)| !self.is_older(value, output.now)));
        let done = ordinary
            && match segment.payload.length() {
                0 => self.next_acknowledgement(segment, first, output),
                length => self.next_data(segment, first, length, output),
            };
        if !done {
            self.any_segment(segment, traffic_class, output);
        }
    }

    /// Takes in the next data of a peer that is sent nothing; `false`: it is not that, and nothing was done.
    #[inline(always)]
    fn next_data(&mut self, segment: &mut Segment, first: u64, length: u64, output: &mut Output<'_>) -> bool {
        let now = output.now;
        let predicted = self.state == State::Established
            && segment.acknowledgement == self.initial_sequence.wrapping_add(self.una as u32)
            && first + length <= self.receive_window.edge()
            && self.board.is_empty()
            && self.timer.is_none()
            && self.next >= self.queue.end()
            && !(self.orphan || self.buffer.has_holes());
        if !predicted {
            return false;
        }
        self.last_heard = now;
        self.keep_alive_probes = 0;
        self.probes_unanswered = 0;
        self.learn_window(segment, first, self.una);
        self.learn_timestamp(segment, first, now);
        self.learn_round_trip(segment, length, now);
        self.facts.data_arrived(now);
        self.next_data_came(segment, length, now);
        self.buffer.insert(first, std::mem::take(&mut segment.payload), false);
        self.changed = true;
        self.notify_room();
        self.acknowledge_if_owed(output);
        true
    }

    /// Takes in an acknowledgement of something new; `false`: it is not that, and nothing was done.
    #[inline]
    fn next_acknowledgement(&mut self, segment: &Segment, first: u64, output: &mut Output<'_>) -> bool {
        let acknowledged = match unwrap(segment.acknowledgement, self.initial_sequence, self.una) {
            Some(acknowledged) if acknowledged > self.una && acknowledged <= self.next => acknowledged,
            _ => return false,
        };
        self.last_heard = output.now;
        self.keep_alive_probes = 0;
        self.learn_window(segment, first, acknowledged);
        let sent_before = self.sent_count;
        let facts = AckFacts { data_follows: true, ..AckFacts::default() };
        let timer_left = self.process_acknowledgement(segment, acknowledged, facts, output);
        self.learn_timestamp(segment, first, output.now);
        self.learn_round_trip(segment, 0, output.now);
        self.advance_close(output);
        self.transmit(output);
        if timer_left && self.sent_count == sent_before {
            self.restart_after_acknowledgement(output.now);
        }
        self.notify_room();
        self.acknowledge_if_owed(output);
        true
    }

    fn any_segment(&mut self, segment: &mut Segment, traffic_class: u8, output: &mut Output<'_>) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.segment_in_syn_sent(segment, output),
            _ => self.segment_in_sequence(segment, traffic_class, output),
        }
    }

    /// RFC 9293 §3.10.7.3.
    fn segment_in_syn_sent(&mut self, segment: &Segment, output: &mut Output<'_>) {
        let acknowledged = unwrap(segment.acknowledgement, self.initial_sequence, 1);
        if segment.has(flag::ACK) && acknowledged != Some(1) {
            // Of an earlier connection; the caller answers it with a reset.
            return;
        }
        if segment.has(flag::RST) {
            if segment.has(flag::ACK) {
                self.end(Some(SocketError::Refused));
            }
            return;
        }
        if !segment.has(flag::SYN) {
            return;
        }
        self.learn_syn(segment, output.now);
        self.ecn &= segment.has(flag::ECE) && !segment.has(flag::CWR);
        if segment.has(flag::ACK) {
            self.una = 1;
            self.peer_edge = 1 + self.peer_window;
            self.established(segment, output);
            self.acks.urgent();
            self.transmit(output);
            self.acknowledge_if_owed(output);
        } else {
            // Both ends opened at once.
            self.state = State::SynReceived;
            self.send_syn(output);
        }
    }

    /// The handshake is over.
    fn established(&mut self, segment: &Segment, output: &Output<'_>) {
        let now = output.now;
        self.state = if self.fin_requested { State::FinWait1 } else { State::Established };
        self.next = self.next.max(1);
        self.window_from = 0;
        let sent_at = self.handshake.sent_at.take();
        self.handshake.due = Instant::FAR;
        // Karn: a SYN that was repeated measures nothing, unless the echo tells which one was answered.
        let rtt = match (self.handshake.retries, sent_at) {
            (0, Some(at)) => Some(now.since(at)),
            _ => self.echoed_rtt(segment, now),
        };
        if let Some(rtt) = rtt {
            self.rto.measure(rtt, 1, 1);
            self.flight.min_rtt.measure(now, rtt);
        }
        // RFC 6298 §5.7 and RFC 5681 §3.1: a repeated SYN means one segment; Linux allows one repetition.
        if self.handshake.retries > 1 {
            self.window.cwnd = 1;
        }
        self.flight.delivered_at = now;
        self.flight.started = now;
        self.flight.used_since = now;
        self.last_sent = now;
        self.control.open(now, &mut self.window, self.rto.smoothed());
        self.expand_send_buffer();
        self.receive_window.open(now, self.buffer.next(), self.acks.segment_max());
        self.changed = true;
    }

    /// A round-trip time from the timestamp echo (RFC 7323 §4.1).
    pub(super) fn echoed_rtt(&self, segment: &Segment, now: Instant) -> Option<Duration> {
        let (_, echo) = segment.timestamps.filter(|(_, echo)| self.timestamps && *echo != 0)?;
        let elapsed = super::output::clock(now).wrapping_sub(echo);
        (elapsed < 1 << 31).then(|| Duration::from_millis(u64::from(elapsed)))
    }

    /// RFC 9293 §3.10.7.4.
    fn segment_in_sequence(&mut self, segment: &mut Segment, traffic_class: u8, output: &mut Output<'_>) {
        let now = output.now;
        let expected = self.buffer.next();
        let Some(first) = unwrap(segment.sequence, self.peer_sequence, expected) else {
            self.answer_unacceptable(segment, output);
            return;
        };
        // PAWS (RFC 7323 §5.3): an old timestamp marks an old segment.
        if let Some((value, _)) = segment.timestamps
            && self.timestamps
            && self.settings.paws
            && !segment.has(flag::RST)
            && self.is_older(value, now)
        {
            self.answer_unacceptable(segment, output);
            return;
        }
        let past = first + segment.sequence_length();
        let edge = self.receive_window.edge().max(expected);
        if past < expected.min(self.acknowledged_to_peer()) || first > edge {
            self.answer_unacceptable(segment, output);
            return;
        }
        if segment.has(flag::RST) {
            // RFC 5961 §3.2: only the exact next number resets.
            if first == expected {
                self.reset_by_peer();
            } else if first > expected {
                self.challenge(output);
            }
            return;
        }
        if segment.has(flag::SYN) {
            // Our SYN-ACK was lost, or something is wrong: RFC 5961 §4.2.
            if self.state != State::SynReceived || first != 0 {
                self.challenge(output);
            } else if !self.answered_lately(output.now) {
                self.send_syn(output);
            }
            return;
        }
        if !segment.has(flag::ACK) {
            return;
        }
        self.last_heard = now;
        self.keep_alive_probes = 0;
        if self.state == State::SynReceived {
            if unwrap(segment.acknowledgement, self.initial_sequence, 1) != Some(1) && self.una == 0 && self.next <= 1 {
                return;
            }
            self.una = 1;
            self.peer_window = u64::from(segment.window) << self.peer_shift;
            self.peer_edge = 1 + self.peer_window;
            self.established(segment, output);
        }
        if self.ecn && traffic_class & 3 == CONGESTION_EXPERIENCED {
            self.ecn_echo = true;
            self.acks.quicken();
        }
        if self.ecn && segment.has(flag::CWR) {
            self.ecn_echo = false;
        }
        let data = segment.payload.length();
        if !self.acknowledgement(segment, first, data, output) {
            return;
        }
        self.learn_timestamp(segment, first, now);
        self.learn_round_trip(segment, data, now);
        if data > 0 || segment.has(flag::FIN) {
            self.data(segment, first, edge, output);
        }
        self.advance_close(output);
        if self.state != State::Closed {
            self.transmit(output);
            self.notify_room();
            self.acknowledge_if_owed(output);
        }
    }

    /// True if a timestamp is from before the last one learnt, as far as that one tells anything.
    #[inline]
    fn is_older(&self, timestamp: u32, now: Instant) -> bool {
        (timestamp.wrapping_sub(self.recent_timestamp) as i32) < 0 && now.since(self.timestamp_learnt) <= TIMESTAMP_LIFE
    }

    /// RFC 7323 §4.3: the timestamp to echo is that of the segment that the last acknowledgement reached.
    #[inline]
    fn learn_timestamp(&mut self, segment: &Segment, first: u64, now: Instant) {
        if let Some((value, _)) = segment.timestamps
            && self.timestamps
            && first <= self.acknowledged_to_peer()
            && !self.is_older(value, now)
        {
            self.recent_timestamp = value;
            self.timestamp_learnt = now;
        }
    }

    fn answer_unacceptable(&mut self, segment: &Segment, output: &mut Output<'_>) {
        // Segments without data could make two ends answer each other for ever (Linux: tcp_invalid_ratelimit).
        if segment.has(flag::RST) || (segment.payload.length() == 0 && self.answered_lately(output.now)) {
            return;
        }
        if segment.payload.length() > 0
            && let Some(first) = unwrap(segment.sequence, self.peer_sequence, self.buffer.next())
        {
            self.duplicate = Some((first, first + segment.payload.length()));
        }
        self.acks.quicken();
        self.acknowledge_if_owed(output);
    }

    /// True if a segment that needs no answer was answered less than half a second ago; if not, it is now.
    fn answered_lately(&mut self, now: Instant) -> bool {
        if self.answered.is_some_and(|at| now.since(at) < ANSWER_INTERVAL) {
            return true;
        }
        self.answered = Some(now);
        false
    }

    /// A challenge acknowledgement (RFC 5961).
    fn challenge(&mut self, output: &mut Output<'_>) {
        self.acks.urgent();
        self.acknowledge_if_owed(output);
    }

    fn reset_by_peer(&mut self) {
        let error = match self.state {
            State::SynReceived => SocketError::Refused,
            State::TimeWait | State::LastAck | State::Closing => SocketError::Closed,
            _ => SocketError::Reset,
        };
        self.end(Some(error));
    }

    /// The network says that the peer cannot be reached. A connection that is open outlives it (RFC 1122 §4.2.3.9).
    pub fn unreachable(&mut self, port_closed: bool) {
        if self.state == State::SynSent {
            self.end(Some(if port_closed { SocketError::Refused } else { SocketError::Unreachable }));
        }
    }

    /// Packets to the peer must not be larger than `mtu` bytes (RFC 1191).
    pub fn lower_mtu(&mut self, mtu: u64, output: &mut Output<'_>) {
        let options = if self.timestamps { 12 } else { 0 };
        let mss = mtu.saturating_sub(40 + options).max(1);
        // RFC 1191 §3: no host need believe less than 68 bytes.
        if mss >= self.mss || mtu < 68 {
            return;
        }
        self.set_mss(mss);
        // What was too large is lost for certain; it goes again in smaller pieces, with the window as it is.
        let count = self.board.mark_lost_if(|_, sent| sent.end - sent.start > mss && !sent.retransmitted);
        if count > 0 && self.repair < Repair::Recovery {
            self.high = self.next;
            self.repair = Repair::Recovery;
            self.window.ssthresh = self.window.ssthresh.min(self.window.cwnd.max(2));
            self.prr = super::Prr { window_before: self.window.cwnd, ..super::Prr::default() };
            self.undo.marker = None;
        }
        self.retransmit_lost(output);
    }

    /// The acknowledgement of a segment; `false`: the segment must be dropped.
    fn acknowledgement(&mut self, segment: &Segment, first: u64, data: u64, output: &mut Output<'_>) -> bool {
        let Some(acknowledged) = unwrap(segment.acknowledgement, self.initial_sequence, self.una) else {
            return true;
        };
        if acknowledged > self.next {
            // Of what was never sent (RFC 5961 §5.2).
            self.challenge(output);
            return false;
        }
        let mut facts = AckFacts { data: data > 0 || segment.has(flag::FIN), ..AckFacts::default() };
        facts.echo = self.ecn && segment.has(flag::ECE);
        if acknowledged >= self.una {
            facts.window_changed = self.learn_window(segment, first, acknowledged);
        }
        self.process_acknowledgement(segment, acknowledged, facts, output);
        true
    }

    /// The peer's window in a segment whose acknowledgement is not old; whether it changed, and nothing else.
    #[inline(always)]
    fn learn_window(&mut self, segment: &Segment, first: u64, acknowledged: u64) -> bool {
        let window = u64::from(segment.window) << self.peer_shift;
        // RFC 9293 §3.10.7.4: a newer segment, or a larger window, sets the window.
        let sets = acknowledged > self.una
            || first > self.window_from
            || (first == self.window_from && window > self.peer_window);
        let changed = sets && window != self.peer_window && acknowledged == self.una;
        if sets {
            self.window_from = first;
            self.peer_window = window;
        }
        self.peer_edge = acknowledged + self.peer_window;
        changed
    }

    /// The round trip of the receiving end, from the timestamp of a segment with `length` bytes of data, before those are taken
    /// in (tcp_rcv_rtt_measure_ts).
    #[inline]
    fn learn_round_trip(&mut self, segment: &Segment, length: u64, now: Instant) {
        let Some((_, echo)) = segment.timestamps.filter(|_| self.timestamps) else { return };
        if self.receive_window.tuning().is_new_echo(echo)
            && length >= self.acks.segment()
            && let Some(round_trip) = self.echoed_rtt(segment, now)
            && round_trip > Duration::ZERO
        {
            let drained = self.buffer.unread() == 0;
            self.receive_window.tuning().echoed(round_trip, drained);
        }
    }

    /// A segment has the next `length` bytes of data (tcp_event_data_recv).
    #[inline(always)]
    fn next_data_came(&mut self, segment: &Segment, length: u64, now: Instant) {
        let header = segment.header_bytes();
        let last = segment.has(flag::PSH) || segment.has(flag::FIN);
        if self.acks.data(now, Arrived { length, header, last }, self.rto.rto()) {
            self.receive_window.larger_segment(length, header);
        }
        if self.receive_window.data(now, self.buffer.next(), length, self.buffer.unread()) {
            self.acks.window_grew();
        }
    }

    /// A segment has `length` bytes of data that wait out of order. Without SACK the window must not grow then: the
    /// acknowledgement would be no duplicate (RFC 5681 §2), and the peer would not retransmit fast (tcp_data_queue_ofo).
    fn later_data_came(&mut self, length: u64) {
        if self.sack && self.receive_window.grow(length, self.buffer.unread()) {
            self.acks.window_grew();
        }
    }

    fn data(&mut self, segment: &mut Segment, first: u64, edge: u64, output: &mut Output<'_>) {
        let now = output.now;
        let fin = segment.has(flag::FIN);
        let takes = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if !takes {
            // After the peer's end: what comes again is acknowledged again.
            if segment.payload.length() > 0 || fin {
                self.acks.urgent();
            }
            return;
        }
        let length = segment.payload.length();
        if self.orphan && length > 0 && first + length > self.buffer.next() {
            // Nobody will read it (RFC 2525 §2.17).
            self.send_reset(output);
            self.end(Some(SocketError::Closed));
            return;
        }
        if length > 0 {
            self.facts.data_arrived(now);
            if first <= self.buffer.next() && first + length > self.buffer.next() {
                self.next_data_came(segment, length, now);
            }
        }
        // What lies beyond the window is cut off, a FIN there with it.
        let room = edge.saturating_sub(first);
        let (payload, fin) = if length > room {
            (segment.payload.part(0, room), false)
        } else {
            (std::mem::take(&mut segment.payload), fin)
        };
        let had_holes = self.buffer.has_holes();
        let arrival = self.buffer.insert(first, payload, fin);
        if arrival.out_of_order {
            self.later_data_came(length);
        }
        if let Some(duplicate) = arrival.duplicate {
            self.duplicate = Some(duplicate);
            if !arrival.advanced && !arrival.out_of_order {
                self.acks.quicken();
            }
        }
        // RFC 5681 §4.2: at once while there is a hole, and when it is filled.
        if arrival.out_of_order || (had_holes && arrival.filled) || (had_holes && !arrival.advanced) {
            self.acks.urgent();
        } else if had_holes {
            // Part of a hole: Linux acknowledges at once while anything waits out of order.
            self.acks.urgent();
        }
        if arrival.advanced {
            self.changed = true;
        }
        if self.buffer.is_finished() && !self.fin_noted {
            self.fin_noted = true;
            self.acks.urgent();
            self.changed = true;
            match self.state {
                State::Established => self.state = State::CloseWait,
                State::FinWait1 => self.state = State::Closing,
                State::FinWait2 => self.time_wait(output),
                _ => {}
            }
        }
    }

    /// Moves on when our FIN has been acknowledged.
    fn advance_close(&mut self, output: &Output<'_>) {
        let fin_acknowledged = self.fin_requested && self.una > self.queue.end();
        if !fin_acknowledged {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.ends_at = if self.orphan { output.now + LINGER } else { Instant::FAR };
                self.changed = true;
            }
            State::Closing => self.time_wait(output),
            State::LastAck => {
                self.end(None);
            }
            _ => {}
        }
    }

    fn time_wait(&mut self, output: &Output<'_>) {
        self.state = State::TimeWait;
        self.timer = None;
        self.ends_at = output.now + LINGER;
        self.changed = true;
    }
}
