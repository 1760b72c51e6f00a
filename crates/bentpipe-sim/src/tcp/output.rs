//! Segments to the peer.

use super::scoreboard::Sent;
use super::send_buffer::SEGMENTS_SHARED;
use super::{Connection, Output, Repair, State, Timer};
use bentpipe_net::datagram::{Body, Datagram, Payload, SackBlocks, Segment, SynOptions, flag};
use bentpipe_net::time::{Duration, Instant};

/// ECN-capable transport, ECT(0) (RFC 3168 §5).
const ECN_CAPABLE: u8 = 2;

/// The clock of our timestamps: milliseconds, as Linux's. It starts above 0, which would look like none.
pub(super) fn clock(now: Instant) -> u32 {
    ((now.ns / 1_000_000) as u32).wrapping_add(1)
}

impl Connection {
    /// The highest acknowledgement that the peer was sent.
    pub(super) fn acknowledged_to_peer(&self) -> u64 {
        self.acks.acknowledged()
    }

    pub(super) fn send_syn(&mut self, output: &mut Output<'_>) {
        let answer = self.state == State::SynReceived;
        let now = output.now;
        let mut flags = flag::SYN | if answer { flag::ACK } else { 0 };
        if self.ecn {
            flags |= if answer { flag::ECE } else { flag::ECE | flag::CWR };
        }
        let segment = Segment {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            sequence: self.initial_sequence,
            acknowledgement: if answer { self.peer_sequence.wrapping_add(self.buffer.next() as u32) } else { 0 },
            flags,
            window: self.receive_window.field(1, 0, false, self.mss),
            timestamps: self.timestamps.then(|| (clock(now), if answer { self.recent_timestamp } else { 0 })),
            syn: Some(SynOptions {
                mss: Some(self.mss_offered),
                window_scale: self.scaling.then(|| self.receive_window.shift()),
                sack_permitted: self.sack,
            }),
            sack: None,
            payload: Payload::Empty,
        };
        self.handshake.sent_at = Some(now);
        self.handshake.due = self.clock.expiry(now, self.handshake.interval);
        self.next = self.next.max(1);
        self.facts.mss = Some(self.mss_offered);
        self.facts.window_scale = segment.syn.and_then(|syn| syn.window_scale);
        self.facts.sack = self.sack;
        self.facts.timestamps = self.timestamps;
        if answer {
            self.acks.sent(1);
        }
        self.put_segment(segment, 0, output);
    }

    /// Puts a segment on its way, with acknowledgement, window and timestamps as they are now. `flags`: those besides ACK.
    #[inline(always)]
    fn put(&mut self, sequence: u64, flags: u8, payload: Payload, traffic_class: u8, output: &mut Output<'_>) {
        let now = output.now;
        let next = self.buffer.next();
        let window = self.receive_window.field(next, self.buffer.unread(), self.scaling, self.mss);
        self.facts.window_max =
            self.facts.window_max.max(u64::from(window) << if self.scaling { self.receive_window.shift() } else { 0 });
        let mut sack = None;
        if self.sack && (self.buffer.has_holes() || self.duplicate.is_some()) {
            sack = self.sack_blocks().filter(|_| flags & flag::RST == 0);
        }
        self.acks.sent(next);
        let segment = Segment {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            sequence: self.initial_sequence.wrapping_add(sequence as u32),
            acknowledgement: self.peer_sequence.wrapping_add(next as u32),
            flags: flags | flag::ACK | if self.ecn_echo { flag::ECE } else { 0 },
            window,
            timestamps: self.timestamps.then(|| (clock(now), self.recent_timestamp)),
            syn: None,
            sack,
            payload,
        };
        self.put_segment(segment, traffic_class, output);
    }

    /// RFC 2018 §4, RFC 2883 §4: what came twice first, then the newest blocks.
    fn sack_blocks(&mut self) -> Option<Box<SackBlocks>> {
        let most = if self.timestamps { 3 } else { 4 };
        let wire = |sequence: u64| self.peer_sequence.wrapping_add(sequence as u32);
        let mut blocks = SackBlocks::default();
        if let Some((first, past)) = self.duplicate.take() {
            blocks.push(wire(first), wire(past));
        }
        let room = most - blocks.as_slice().len();
        self.buffer.blocks().take(room).for_each(|(first, past)| blocks.push(wire(first), wire(past)));
        (!blocks.as_slice().is_empty()).then(|| Box::new(blocks))
    }

    /// Puts a segment on its way.
    #[inline(always)]
    fn put_segment(&mut self, segment: Segment, traffic_class: u8, output: &mut Output<'_>) {
        self.facts.end = output.now;
        self.segments.sent += 1;
        let traffic_class = traffic_class | self.dscp.traffic_class();
        output
            .datagrams
            .push(Datagram { traffic_class, ..Datagram::new(*self.local.ip(), *self.remote.ip(), Body::Tcp(segment)) });
    }

    /// Tells the peer what arrived, if it is owed.
    #[inline]
    pub(super) fn acknowledge_if_owed(&mut self, output: &mut Output<'_>) {
        if self.acks.decide(output.now, self.buffer.next(), self.rto.smoothed(), self.clock) {
            self.send_acknowledgement(output);
        }
    }

    pub(super) fn send_acknowledgement(&mut self, output: &mut Output<'_>) {
        self.facts.pure_ack(output.now, self.buffer.next());
        self.put(self.next, 0, Payload::Empty, 0, output);
    }

    /// The program has read: more room may be worth telling.
    pub(super) fn after_read(&mut self, output: &mut Output<'_>) {
        if !self.is_synchronised() {
            return;
        }
        let (next, unread) = (self.buffer.next(), self.buffer.unread());
        self.receive_window.read(output.now, next - unread, unread, self.buffer.later());
        if matches!(self.state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait) {
            return;
        }
        let emptied = unread == 0 && self.acks.drained();
        if emptied || self.receive_window.worth_telling(next, unread, self.scaling, self.mss) {
            self.send_acknowledgement(output);
        }
    }

    /// A segment outside the window that the peer must answer: a keep-alive or a window probe (RFC 1122 §4.2.3.6).
    pub(super) fn send_probe(&mut self, output: &mut Output<'_>) {
        self.put(self.una.wrapping_sub(1), 0, Payload::Empty, 0, output);
    }

    pub(super) fn send_reset(&mut self, output: &mut Output<'_>) {
        self.put(self.next, flag::RST, Payload::Empty, 0, output);
    }

    /// Sends whatever may be sent: new data and the FIN.
    #[inline]
    pub(super) fn transmit(&mut self, output: &mut Output<'_>) {
        let last = self.queue.end() + u64::from(self.fin_requested);
        // Often only the peer sends.
        if self.next < last || !self.board.is_empty() {
            self.transmit_until(last, output);
        }
    }

    fn transmit_until(&mut self, last: u64, output: &mut Output<'_>) {
        if !matches!(
            self.state,
            State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck
        ) {
            return;
        }
        let mut sent = 0;
        let mut limited = false;
        let segments_before = self.facts.data_segments;
        while self.next < last {
            if self.in_flight() >= self.window.cwnd {
                limited = true;
                break;
            }
            if self.is_paced(output.now) {
                self.pace_blocks = true;
                limited = true;
                break;
            }
            if !self.send_new(sent, output) {
                break;
            }
            sent += 1;
        }
        if self.una <= 1 && self.repair == Repair::Open {
            self.facts.initial_burst += self.facts.data_segments - segments_before;
        }
        self.note_usage(sent, limited, output.now);
        if self.next == last && sent > 0 && self.in_flight() < self.window.cwnd {
            // The program gave less than might have been sent.
            self.flight.app_limited_until = (self.flight.delivered + u64::from(self.in_flight())).max(1);
        }
        if sent > 0 {
            self.schedule_loss_probe(output.now, false);
        }
        self.check_window_probe(output.now);
    }

    /// Segments in the network as the sender counts them.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        if !self.settings.limited_transmit && self.repair <= Repair::Disorder {
            return self.board.out();
        }
        self.board.in_flight()
    }

    /// Up to here the peer's window and the own limit let data leave.
    #[inline]
    pub(super) fn edge(&self) -> u64 {
        let limit = self.send_limit.map_or(u64::MAX, |limit| self.una + limit);
        self.peer_edge.min(limit)
    }

    /// Sends the next new segment if the peer's window (or the own limit) and Nagle allow. Ignores the congestion window.
    /// `before`: segments that have just been sent.
    pub(super) fn send_new(&mut self, before: u32, output: &mut Output<'_>) -> bool {
        let data = self.queue.end().saturating_sub(self.next);
        let room = self.edge().saturating_sub(self.next);
        let mut length = data.min(self.mss);
        if length > room {
            // RFC 1122 §4.2.3.4: part of a segment only if nothing better can come (Linux: as Nagle allows).
            length = room;
            if length == 0 || (self.nagle && self.small_until > self.una) {
                return false;
            }
        }
        let fin = self.fin_requested && self.next + length == self.queue.end();
        if fin && length == 0 && room == 0 && self.peer_window == 0 && self.next > self.una {
            return false;
        }
        let small = length < self.mss;
        // Minshall's form of Nagle's algorithm: one small segment at a time.
        if small && !fin && self.nagle && self.small_until > self.una {
            return false;
        }
        if small && length > 0 {
            self.small_until = self.next + length;
        }
        let now = output.now;
        if self.board.is_empty() {
            self.before_first(now);
        }
        let (start, end) = (self.next, self.next + length + u64::from(fin));
        if self.board.is_empty() {
            self.flight.started = now;
            self.flight.delivered_at = now;
        }
        let leads = before.is_multiple_of(SEGMENTS_SHARED);
        self.sent_count += 1;
        self.board.push(Sent {
            start,
            end,
            at: now,
            order: self.sent_count,
            retransmissions: 0,
            sacked: false,
            lost: false,
            retransmitted: false,
            leads,
            app_limited: self.flight.app_limited_until > 0,
            delivered: self.flight.delivered,
            delivered_at: self.flight.delivered_at,
            flight_started: self.flight.started,
        });
        self.next = end;
        self.put_data(start, end, !leads, output);
        if length > 0 {
            self.acks.own_data(now);
            self.facts.data_segments += 1;
            self.facts.data_bytes += length;
        }
        self.facts.in_flight_max = self.facts.in_flight_max.max(self.next.min(self.queue.end()) - self.una.max(1));
        if self.repair == Repair::Reducing || self.repair == Repair::Recovery {
            self.prr.sent += 1;
        }
        // RFC 6298 §5.1; a probe's timer gives way to the real one, unless the caller is about to set a new probe's.
        if !self.wants_loss_probe()
            && (self.board.out() == 1 || matches!(self.timer, Some((Timer::LossProbe | Timer::WindowProbe, _)) | None))
        {
            self.restart_retransmission_timer(now);
        }
        self.pace(end - start, now);
        self.last_sent = now;
        true
    }

    /// Segment `index` of the scoreboard goes again.
    pub(super) fn send_again(&mut self, index: usize, output: &mut Output<'_>) {
        let Some(sent) = self.board.get(index).copied() else { return };
        if sent.end - sent.start > self.mss {
            // The path has become narrower; a FIN goes with the last piece.
            let data = sent.end.min(self.queue.end()) - sent.start;
            if data > self.mss {
                self.board.split(index, self.mss);
            }
        }
        let now = output.now;
        let (delivered, delivered_at, started) = (self.flight.delivered, self.flight.delivered_at, self.flight.started);
        self.sent_count += 1;
        let order = self.sent_count;
        self.board.retransmit(index, |sent| {
            sent.at = now;
            sent.order = order;
            sent.delivered = delivered;
            sent.delivered_at = delivered_at;
            sent.flight_started = started;
        });
        let Some(sent) = self.board.get(index).copied() else { return };
        self.put_data(sent.start, sent.end, !sent.leads, output);
        self.retransmitted_total += 1;
        let bytes = sent.end.min(self.queue.end()).saturating_sub(sent.start);
        self.facts.data_segments += u64::from(bytes > 0);
        self.facts.data_bytes += bytes;
        self.facts.repeated_bytes += bytes;
        self.first_retransmission.get_or_insert(now);
        self.undo.retransmissions += 1;
        self.undo.since.get_or_insert(now);
        self.pace(sent.end - sent.start, now);
        self.last_sent = now;
    }

    /// Sends bytes `start` to `end` of the stream; the last one may be the FIN. `ends_shared`: it is the last of several segments that
    /// were handed down as one, of which Linux (5.4) marks the last with PSH.
    #[inline(always)]
    fn put_data(&mut self, start: u64, end: u64, ends_shared: bool, output: &mut Output<'_>) {
        let last = self.queue.end();
        let data_end = end.min(last);
        let payload = if data_end > start { self.queue.get(start, data_end) } else { Payload::Empty };
        let mut flags = if data_end > start && (data_end == last || ends_shared) { flag::PSH } else { 0 };
        if end > last {
            flags |= flag::FIN;
        }
        let mut class = 0;
        if self.ecn {
            // Data sent for the first time only (RFC 3168 §6.1.5).
            class = if start + 1 > self.board.tail().map_or(0, |tail| tail.start) { ECN_CAPABLE } else { 0 };
            if std::mem::take(&mut self.cwr_to_send) {
                flags |= flag::CWR;
            }
        }
        self.put(start, flags, payload, class, output);
    }

    /// True if pacing holds segments back at `now`.
    pub(super) fn is_paced(&self, now: Instant) -> bool {
        self.pace_until > now
    }

    /// Notes a sent segment for pacing.
    fn pace(&mut self, bytes: u64, now: Instant) {
        // Linux lets the first ten segments go as they come, and paces payload.
        if self.facts.data_segments < 10 {
            return;
        }
        let Some(rate) = self.control.pacing_rate() else { return };
        let bits = bytes * 8;
        let time = Duration { ns: (u128::from(bits) * 1_000_000_000 / u128::from(rate.bps.max(1))) as u64 };
        self.pace_until = self.pace_until.max(now) + time;
    }

    /// When pacing lets the next segment go; [`Instant::FAR`]: none waits for that.
    #[inline]
    pub(super) fn paced_wake(&self) -> Instant {
        if self.pace_blocks { self.pace_until } else { Instant::FAR }
    }
}
