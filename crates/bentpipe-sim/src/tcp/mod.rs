//! TCP of a simulated host (RFC 9293, 7323, 2018, 6675, 6582, 5681, 6298, 8985, 6937, 5682).
//!
//! [`Connection`] is one end of a connection: a state machine that is handed segments, calls of its program and the time,
//! and that puts segments into an [`Output`]. Every feature can be switched ([`settings`]); what is not set behaves as
//! Linux 6 does, which the parity runs hold it to.
//!
//! | part | what it does |
//! |---|---|
//! | [`input`](self) | segments from the peer: acceptance, acknowledgements, data, the end |
//! | [`output`](self) | segments to the peer: new data, retransmissions, acknowledgements |
//! | [`outbox`] | datagrams on their way out |
//! | [`recovery`](self) | what an acknowledgement means for losses and the congestion window |
//! | [`undo`](self) | taking a needless reduction back |
//! | [`usage`](self) | use of the congestion window, delivery rate |
//! | [`timers`](self) | retransmission, probes, delayed acknowledgements, keep-alive |
//! | [`scoreboard`], [`ranges`] | segments in flight |
//! | `send_buffer`, [`send_queue`], [`receive`] | data before and after |
//! | [`acks`] | when the receiver acknowledges |
//! | [`rto`] | the retransmission time-out |
//! | [`congestion`] | how the congestion window moves |

pub mod acks;
mod autotuning;
pub mod clock;
pub mod congestion;
mod input;
pub mod outbox;
mod output;
pub mod ranges;
pub mod receive;
mod recovery;
pub mod rto;
pub mod scoreboard;
mod send_buffer;
pub mod send_queue;
pub mod settings;
mod timers;
mod undo;
mod usage;
mod window;

use acks::AckPolicy;
use bentpipe_net::datagram::Payload;
use bentpipe_net::dscp::Dscp;
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::seed::Stream;
use bentpipe_net::socket::{Connection as Progress, Received, ReceivedPattern, Segments, SocketError};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use clock::TimerClock;
use congestion::{CongestionControl, Window};
use outbox::Outbox;
use receive::ReceiveBuffer;
use rto::RtoTimer;
use scoreboard::Scoreboard;
use send_buffer::{Held, SendBuffer};
use send_queue::SendQueue;
use settings::Settings;
use std::net::SocketAddrV4;
use std::sync::Arc;
use window::ReceiveWindow;

/// Where segments go, and the time.
pub struct Output<'a> {
    /// Now.
    pub now: Instant,
    /// Datagrams to send, in order.
    pub datagrams: &'a mut Outbox,
}

/// States of RFC 9293 §3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Our SYN is on its way.
    SynSent,
    /// The peer's SYN came and ours is on its way.
    SynReceived,
    /// Open.
    Established,
    /// Our FIN is on its way.
    FinWait1,
    /// Our FIN was acknowledged.
    FinWait2,
    /// The peer has finished.
    CloseWait,
    /// Both FINs crossed.
    Closing,
    /// The peer had finished, now our FIN is on its way.
    LastAck,
    /// Both are done; late segments are still answered.
    TimeWait,
    /// Over.
    Closed,
}

/// The state of loss recovery (Linux's tcp_ca_state).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Repair {
    Open,
    Disorder,
    /// Reducing the window because of an ECN echo or a loss that a probe found.
    Reducing,
    Recovery,
    Loss,
}

/// Which retransmission timer runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    Retransmit,
    /// Tail loss probe.
    LossProbe,
    /// RACK waits for reordered segments.
    Reordering,
    /// The peer's window is closed.
    WindowProbe,
}

/// One end of a TCP connection.
///
/// In the order of use, which memory follows: what every segment needs stands together, what is rare comes last. With
/// thousands of connections, that decides how much a segment must wait for.
#[repr(C)]
#[derive(Debug)]
pub struct Connection {
    state: State,
    repair: Repair,
    /// Something changed that its program may want to know.
    changed: bool,
    /// Its program gave more than there was room for, and waits for room.
    wants_room: bool,
    /// The program has closed its socket.
    orphan: bool,
    fin_requested: bool,
    fin_noted: bool,
    // What was agreed.
    scaling: bool,
    peer_shift: u8,
    sack: bool,
    timestamps: bool,
    ecn: bool,
    nagle: bool,
    segments: Segments,
    dscp: Dscp,
    ecn_echo: bool,
    cwr_to_send: bool,
    frto: bool,
    /// Something waits for `pace_until`.
    pace_blocks: bool,

    // Sequence numbers count from the SYN of the one that sends them, which is 0.
    initial_sequence: u32,
    peer_sequence: u32,
    recent_timestamp: u32,
    keep_alive_probes: u32,
    /// When timers fire.
    clock: TimerClock,
    una: u64,
    next: u64,
    /// Last byte + 1 that the peer lets us send.
    peer_edge: u64,
    peer_window: u64,
    /// Sequence number of the segment that set the peer's window.
    window_from: u64,
    last_heard: Instant,
    settings: Arc<Settings>,

    // Timers.
    timer: Option<(Timer, Instant)>,
    /// When it is over, if it only waits for that; else [`Instant::FAR`].
    ends_at: Instant,
    pace_until: Instant,
    handshake: Handshake,
    probes_unanswered: u32,
    retransmissions: u32,

    // Receiving.
    acks: AckPolicy,
    receive_window: ReceiveWindow,
    buffer: ReceiveBuffer,
    duplicate: Option<(u64, u64)>,

    facts: FlowFacts,
    rto: RtoTimer,

    // Sending.
    queue: SendQueue,
    board: Scoreboard,
    /// Bytes of data in a full segment to the peer, and in as many of them as the own limit allows in flight.
    mss: u64,
    send_limit: Option<u64>,
    local: SocketAddrV4,
    remote: SocketAddrV4,
    /// Segments sent, repetitions included.
    sent_count: u64,
    last_sent: Instant,
    /// The end of the last small segment sent (Minshall).
    small_until: u64,
    send_buffer: SendBuffer,
    timestamp_learnt: Instant,

    // Congestion.
    window: Window,
    /// Duplicate acknowledgements that mean a loss; grows when segments were seen to be reordered.
    duplicate_threshold: u32,
    control: Box<dyn CongestionControl>,
    flight: Flight,
    rack: Rack,
    /// The timestamp echo of the acknowledgement at work.
    echo: Option<u32>,
    probe: Option<LossProbe>,
    first_retransmission: Option<Instant>,

    // Rarely needed.
    /// `next` when the repair began: it is over when this is acknowledged.
    high: u64,
    prr: Prr,
    undo: Undo,
    /// When a segment that needs no answer was answered last.
    answered: Option<Instant>,
    error: Option<SocketError>,
    /// MSS we offered.
    mss_offered: u16,
    retransmitted_total: u64,
    /// Takes the short ways through [`input`](self); a test shows that they lead where the long one does.
    #[cfg(test)]
    predicts: bool,
}

/// The opening of a connection.
#[derive(Debug)]
struct Handshake {
    /// When the last SYN left; `None` once it is acknowledged.
    sent_at: Option<Instant>,
    /// SYNs sent again.
    retries: u32,
    interval: Duration,
    /// [`Instant::FAR`]: no SYN waits for its acknowledgement.
    due: Instant,
}

/// Counts of delivery, and whether the window was the limit.
#[derive(Debug, Default)]
struct Flight {
    delivered: u64,
    delivered_at: Instant,
    started: Instant,
    /// `delivered` + in flight when the program had nothing more to send; 0: it had.
    app_limited_until: u64,
    lost: u64,
    min_rtt: MinRtt,
    rate: usage::DeliveryRate,
    window_limited: bool,
    usage_until: u64,
    most_out: u32,
    used: u32,
    used_since: Instant,
}

/// The least round-trip time of the last five minutes (Linux's tcp_min_rtt_wlen), kept in two halves.
#[derive(Debug, Default)]
struct MinRtt {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Instant,
}

/// Proportional rate reduction (RFC 6937).
#[derive(Debug, Default)]
struct Prr {
    delivered: u32,
    sent: u32,
    window_before: u32,
}

/// The values needed to undo a reduction of the window.
#[derive(Debug, Default)]
struct Undo {
    /// `una` when the reduction began; `None`: nothing to undo.
    marker: Option<u64>,
    /// Retransmissions not yet shown to have been needless.
    retransmissions: u32,
    /// When the first of them left.
    since: Option<Instant>,
    ssthresh: u32,
    window: u32,
}

/// RACK's view of the newest delivered segment (RFC 8985 §5.3).
#[derive(Debug, Default)]
struct Rack {
    /// Its number among all segments sent, and its last byte + 1.
    newest: u64,
    newest_end: u64,
    rtt: Duration,
    advanced: bool,
    reordering_seen: bool,
    /// Quarters of the least round-trip time to wait for reordered segments (RFC 8985 §6.2 step 4), raised when duplicates
    /// are reported, at most once in a round trip: not before segments sent after `adapted_at` were delivered.
    steps: u32,
    duplicate_reported: bool,
    adapted_at: u64,
    /// Recoveries until `steps` is one again.
    persist: u32,
}

/// A tail loss probe that is on its way.
#[derive(Clone, Copy, Debug)]
struct LossProbe {
    /// `next` when it was sent.
    high: u64,
    /// It repeated a segment, instead of sending a new one.
    repeats: bool,
}

/// Time to wait in TIME-WAIT and, orphaned, in FIN-WAIT-2 (Linux: 60 s).
const LINGER: Duration = Duration::from_secs(60);
/// Duplicate acknowledgements that mean a loss (RFC 5681).
const DUPLICATE_THRESHOLD: u32 = 3;
/// The MSS of a host that offers none (RFC 9293 §3.7.1).
const MSS_DEFAULT: u16 = 536;

/// The parameters of a new connection.
pub struct Parameters {
    /// This end.
    pub local: SocketAddrV4,
    /// The other end.
    pub remote: SocketAddrV4,
    /// Largest packet of the interface towards the peer.
    pub mtu: u64,
    /// First sequence number.
    pub sequence: u32,
    /// Randomness for the congestion control.
    pub random: Stream,
    /// The clock of the host's timers.
    pub clock: TimerClock,
}

impl Connection {
    fn new(settings: &Arc<Settings>, ends: Parameters, now: Instant, state: State) -> Connection {
        let mtu = settings.mtu.map_or(ends.mtu, |own| own.min(ends.mtu));
        let mss_offered = u16::try_from(mtu.saturating_sub(40).max(1)).unwrap_or(u16::MAX);
        Connection {
            local: ends.local,
            remote: ends.remote,
            state,
            error: None,
            changed: false,
            wants_room: false,
            orphan: false,
            mss_offered,
            mss: u64::from(mss_offered),
            send_limit: None,
            scaling: settings.window_scaling,
            peer_shift: 0,
            sack: settings.sack,
            timestamps: settings.timestamps,
            ecn: settings.ecn,
            nagle: settings.nagle,
            segments: Segments::default(),
            dscp: Dscp::default(),
            initial_sequence: ends.sequence,
            clock: ends.clock,
            una: 0,
            next: 0,
            peer_edge: 0,
            peer_window: 0,
            window_from: 0,
            queue: SendQueue::new(1),
            send_buffer: SendBuffer::new(settings),
            board: Scoreboard::default(),
            sent_count: 0,
            fin_requested: false,
            small_until: 0,
            handshake: Handshake { sent_at: None, retries: 0, interval: settings.rto_initial, due: Instant::FAR },
            peer_sequence: 0,
            buffer: ReceiveBuffer::new(0),
            receive_window: ReceiveWindow::new(settings),
            acks: AckPolicy::new(settings),
            recent_timestamp: 0,
            timestamp_learnt: now,
            duplicate: None,
            fin_noted: false,
            ecn_echo: false,
            answered: None,
            window: Window { cwnd: settings.initial_window, ssthresh: u32::MAX, credit: 0 },
            control: settings.congestion_control.make(ends.random),
            rto: RtoTimer::new(settings),
            flight: Flight::default(),
            repair: Repair::Open,
            high: 0,
            prr: Prr::default(),
            undo: Undo::default(),
            echo: None,
            rack: Rack { steps: 1, ..Rack::default() },
            duplicate_threshold: DUPLICATE_THRESHOLD,
            frto: false,
            probe: None,
            cwr_to_send: false,
            timer: None,
            retransmissions: 0,
            probes_unanswered: 0,
            first_retransmission: None,
            last_heard: now,
            keep_alive_probes: 0,
            ends_at: Instant::FAR,
            pace_until: Instant::ZERO,
            pace_blocks: false,
            last_sent: now,
            facts: FlowFacts { start: now, end: now, active: state == State::SynSent, ..FlowFacts::default() },
            retransmitted_total: 0,
            #[cfg(test)]
            predicts: true,
            settings: Arc::clone(settings),
        }
    }

    /// Opens a connection: a SYN leaves.
    pub fn connect(settings: &Arc<Settings>, ends: Parameters, output: &mut Output<'_>) -> Connection {
        let mut connection = Connection::new(settings, ends, output.now, State::SynSent);
        connection.send_syn(output);
        connection
    }

    /// The segments of this end.
    #[must_use]
    pub fn segments(&self) -> Segments {
        self.segments
    }

    /// Small segments leave at once from now on (RFC 9293 §3.7.4).
    pub fn set_no_delay(&mut self) {
        self.nagle = false;
    }

    /// Segments carry this DSCP from now on.
    pub fn set_dscp(&mut self, dscp: Dscp) {
        self.dscp = dscp;
    }

    /// Where it stands for its program.
    pub fn progress(&self) -> Result<Progress, SocketError> {
        match (self.error, self.state) {
            (Some(error), _) => Err(error),
            (None, State::SynSent | State::SynReceived) => Ok(Progress::Opening),
            (None, _) => Ok(Progress::Open),
        }
    }

    /// The program gives data; returns how many bytes were taken.
    pub fn send(&mut self, length: u64, piece: impl FnOnce(u64) -> Payload) -> Result<u64, SocketError> {
        self.check_open()?;
        if self.fin_requested {
            return Err(SocketError::Closed);
        }
        let (end, held, sendable) = (self.queue.end(), self.held(), self.sendable());
        let taken = self.send_buffer.take(length, end, held, self.mss, self.peer_window, sendable);
        self.wants_room = taken < length;
        if taken > 0 {
            self.queue.push(piece(taken));
        }
        Ok(taken)
    }

    /// Unsent bytes that may leave at once: what both windows have room for, unless losses are repaired or the sender paces.
    fn sendable(&self) -> u64 {
        if self.state != State::Established || self.repair != Repair::Open || self.control.paces() {
            return 0;
        }
        let segments = self.window.cwnd.saturating_sub(self.in_flight());
        self.edge().saturating_sub(self.next).min(u64::from(segments) * self.mss)
    }

    fn held(&self) -> Held {
        let end = self.queue.end();
        Held {
            bytes: end.saturating_sub(self.una.max(1)),
            unsent: end.saturating_sub(self.next.max(1)),
            buffers: self.board.buffers(),
        }
    }

    /// An acknowledgement came and what may be sent was: a program that waits for room hears of it (tcp_check_space).
    #[inline]
    fn notify_room(&mut self) {
        if self.wants_room {
            self.check_room();
        }
    }

    fn check_room(&mut self) {
        if self.in_flight() < self.window.cwnd {
            self.expand_send_buffer();
        }
        if self.send_buffer.is_writeable(self.held()) {
            self.wants_room = false;
            self.changed = true;
        }
    }

    /// Room for two congestion windows, or three with a model of the path (BBR's sndbuf_expand).
    fn expand_send_buffer(&mut self) {
        let windows = if self.control.paces() { 3 } else { 2 };
        // The peer's MSS without the options of each segment.
        let segment = self.mss + if self.timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.send_buffer.expand(self.window.cwnd.max(self.duplicate_threshold + 1), windows, segment);
    }

    /// The program takes bytes.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Received, SocketError> {
        let result = self.buffer.read(into);
        if result == Received::Nothing {
            self.check_open()?;
        }
        Ok(result)
    }

    /// The program takes bytes that should be a pattern.
    #[inline]
    pub fn receive_pattern(&mut self, pattern: u64, offset: u64, max: u64) -> Result<ReceivedPattern, SocketError> {
        let mut result = self.buffer.read_pattern(pattern, offset, max);
        match &mut result {
            ReceivedPattern::Nothing => self.check_open()?,
            // After the data comes the error.
            ReceivedPattern::Bytes { more, .. } => *more |= self.state == State::Closed,
            ReceivedPattern::End => {}
        }
        Ok(result)
    }

    fn check_open(&self) -> Result<(), SocketError> {
        match self.error {
            Some(error) => Err(error),
            None if self.state == State::Closed => Err(SocketError::Closed),
            None => Ok(()),
        }
    }

    /// After its program has worked: sends what may go, tells the peer of room.
    #[inline]
    pub fn flush(&mut self, output: &mut Output<'_>) {
        self.transmit(output);
        self.after_read(output);
    }

    /// No more data from the program: a FIN follows what was given.
    pub fn finish(&mut self, output: &mut Output<'_>) {
        if self.fin_requested {
            return;
        }
        match self.state {
            // Nothing was ever promised to the peer.
            State::SynSent => self.end(Some(SocketError::Closed)),
            State::SynReceived | State::Established => {
                self.fin_requested = true;
                self.state = if self.state == State::Established { State::FinWait1 } else { self.state };
                self.transmit(output);
            }
            State::CloseWait => {
                self.fin_requested = true;
                self.state = State::LastAck;
                self.transmit(output);
            }
            _ => {}
        }
    }

    /// The program closes its socket. Unread data means that the peer gets a reset (RFC 2525 §2.17).
    pub fn close(&mut self, output: &mut Output<'_>) {
        self.orphan = true;
        if self.buffer.unread() > 0 {
            self.abort(output);
            return;
        }
        self.finish(output);
        if self.state == State::FinWait2 {
            self.ends_at = output.now + LINGER;
        }
    }

    /// Ends at once with a reset.
    pub fn abort(&mut self, output: &mut Output<'_>) {
        self.orphan = true;
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            self.send_reset(output);
        }
        self.end(Some(SocketError::Closed));
    }

    /// Over, for the reason given.
    fn end(&mut self, error: Option<SocketError>) {
        self.state = State::Closed;
        self.error = self.error.or(error);
        self.timer = None;
        self.ends_at = Instant::FAR;
        self.handshake.due = Instant::FAR;
        self.changed = true;
    }

    /// True if something changed for the program since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// True if nothing is left to do for either side.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Closed && self.orphan
    }

    /// True if its program has closed it.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.orphan
    }

    /// True if the address pair may be used again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// This end.
    #[must_use]
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// The other end.
    #[must_use]
    pub fn remote(&self) -> SocketAddrV4 {
        self.remote
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Observations of its packets.
    #[must_use]
    pub fn facts(&self) -> &FlowFacts {
        &self.facts
    }

    /// Name of its congestion control.
    #[must_use]
    pub fn congestion_control(&self) -> &'static str {
        self.control.name()
    }

    /// Congestion window and slow-start threshold, in segments.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// Smoothed round-trip time (zero: none yet) and retransmission time-out.
    #[must_use]
    pub fn times(&self) -> (Duration, Duration) {
        (self.rto.smoothed(), self.rto.rto())
    }

    /// Segments sent again, in total.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.retransmitted_total
    }

    /// Segments sent and not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> u32 {
        self.board.out()
    }

    /// Bytes that the program gave and the peer has not acknowledged.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> u64 {
        self.held().bytes
    }

    /// The last measured delivery rate.
    #[must_use]
    pub fn delivery_rate(&self) -> BitRate {
        self.flight.rate.per_second()
    }

    /// Bytes of data in a full segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.mss
    }

    /// In SYN-SENT: whether a segment acknowledges our SYN.
    #[must_use]
    pub fn is_answered_by(&self, segment: &bentpipe_net::datagram::Segment) -> bool {
        segment.acknowledgement == self.initial_sequence.wrapping_add(1)
    }

    #[inline(always)]
    fn predicts(&self) -> bool {
        #[cfg(test)]
        let predicts = self.predicts;
        #[cfg(not(test))]
        let predicts = true;
        predicts
    }

    fn is_synchronised(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }
}

/// Timestamps in a header (RFC 7323 §3.2, with padding).
const TIMESTAMPS_BYTES: u64 = 12;

impl MinRtt {
    fn measure(&mut self, now: Instant, rtt: Duration) {
        if now.since(self.since) > Duration::from_secs(150) {
            self.before = self.now.take();
            self.since = now;
        }
        self.now = Some(self.now.map_or(rtt, |least| least.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        [self.now, self.before].into_iter().flatten().min()
    }
}

/// A 32-bit sequence number as a position in the stream that began at `initial`, the one nearest to `near`; `None`:
/// before its beginning.
fn unwrap(wire: u32, initial: u32, near: u64) -> Option<u64> {
    let distance = wire.wrapping_sub(initial.wrapping_add(near as u32)) as i32;
    near.checked_add_signed(i64::from(distance))
}

#[cfg(test)]
mod tests;
