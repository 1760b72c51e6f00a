//! The pump: the one thread that moves a run's packets. It waits for the wall clock and wakes the links with model time.
//!
//! Arrivals carry the kernel's stamp, so a pump that reads a packet late still gives it to the link at the time it came.
//! What is late then is only the departure, and that is recorded. A packet never leaves before its time.

use crate::clock::{Clock, real_ns};
use crate::lateness::LatenessRecorder;
use crate::pcap::PcapSink;
use crate::port::{BATCH, BatchSender, ETHERNET_HEADER, PacketPort, close_all};
use crate::tap::Tap;
use crate::waker::Waker;
use bentpipe_link::direction::Sample;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::buffer::{Buffer, Pool};
use bentpipe_net::headers::{complete_checksum, ether_type, split_super_packet};
use bentpipe_net::packet::Packet as _;
use bentpipe_net::pcapng::Passing;
use bentpipe_net::time::{Duration, Instant};
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

mod lines;
pub use lines::EmulatedLine;
use lines::{Order, WatchedLine};

/// Sleep ends this long before a deadline; the rest is spun. On an idle virtual machine a sleeping thread was woken 50 to
/// 150 us late (2026-11-21, 2-core AMD EPYC virtual machine).
const SPIN: Duration = Duration::from_micros(200);
/// Shorter waits are spun altogether: going to sleep and being woken costs more than they are worth.
const SLEEP_LEAST: Duration = Duration::from_micros(800);
/// Frames taken from a link's ports before departures are looked at again.
const ARRIVALS_PER_TURN: usize = 256;
/// A stamp that is further ahead, and in the future, is no late reading but a real-time clock that was set: such a frame
/// came "now".
const STAMP_AHEAD_MAX: Duration = Duration::from_millis(10);
/// A frame becomes visible in the ring a moment after it was stamped; entering the model later than this counts as late.
const STAMP_SHIFT_NOTED: Duration = Duration::from_micros(10);
/// Readings of the clocks that may fail in a row before a less exact one is taken.
const OFFSET_FAILURES_MAX: u32 = 1_000;
/// First distance of samples; doubled whenever [`SAMPLES_MAX`] are reached.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const SAMPLES_MAX: usize = 8_192;
/// Refused calls after which the rest of a turn's packets for a port are given up: one dead host must not hold up others.
const REFUSALS_MAX: usize = 32;

/// One attachment of a link.
pub struct PumpPort {
    /// Where frames come from and go to.
    pub socket: PacketPort,
    /// Keeps the host's windows and facts.
    pub tap: Tap,
    /// Largest IP packet.
    pub mtu: usize,
    /// Number of the port in a capture.
    pub capture_interface: u32,
}

/// A link with its ports: the hub's first, then the terminals'.
pub struct PumpLink {
    /// The model.
    pub link: Link<Buffer>,
    /// In the order of the link's ports.
    pub ports: Vec<PumpPort>,
    /// Frames pass as they are, not only IP packets.
    pub carries_ethernet: bool,
}

/// Requests to a running pump.
pub struct PumpControl {
    stop: AtomicBool,
    waker: Waker,
    /// A question waits.
    requested: AtomicBool,
    /// `None` once the pump has ended: whoever waits for an answer then learns it at once.
    questions: Mutex<Option<Vec<Question>>>,
    /// What gateways ask of their lines.
    orders: Mutex<Vec<Order>>,
}

type Question = Box<dyn FnOnce(&PumpView<'_>) + Send>;

/// A running pump between two turns.
pub struct PumpView<'a> {
    pump: &'a Pump,
    /// Model time; the links' counters are of a moment ago.
    pub now: Instant,
}

impl PumpView<'_> {
    /// The links, in their order.
    pub fn links(&self) -> impl Iterator<Item = &Link<Buffer>> {
        self.pump.links.iter().map(|state| &state.link)
    }

    /// Lateness of every packet so far.
    #[must_use]
    pub fn lateness(&self) -> &LatenessRecorder {
        &self.pump.lateness
    }

    /// Frames lost between a host and its port, as far as was counted.
    #[must_use]
    pub fn missed_frames(&self) -> u64 {
        self.pump.links.iter().map(|state| state.missed_frames).sum()
    }

    /// Packets that could not be handed to a host's kernel.
    #[must_use]
    pub fn send_failures(&self) -> u64 {
        self.pump.send_failures
    }
}

impl PumpControl {
    fn new() -> io::Result<Arc<PumpControl>> {
        Ok(Arc::new(PumpControl {
            stop: AtomicBool::new(false),
            waker: Waker::new()?,
            requested: AtomicBool::new(false),
            questions: Mutex::new(Some(Vec::new())),
            orders: Mutex::default(),
        }))
    }

    /// Ends the pump soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Does `work` on the pump's thread, between two of its turns. `None`: the pump has ended.
    pub fn with<T: Send + 'static>(&self, work: impl FnOnce(&PumpView<'_>) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = channel();
        self.questions.lock().as_mut()?.push(Box::new(move |view| {
            let _ = answer.send(work(view));
        }));
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
        answered.recv().ok()
    }
}

/// Samples tell the state of the links this long ago.
const SAMPLE_MARGIN: Duration = Duration::from_millis(1);

/// The results of a run.
#[non_exhaustive]
pub struct PumpOutcome {
    /// The links, with their counters.
    pub links: Vec<LinkOutcome>,
    /// The lateness of packets.
    pub lateness: LatenessRecorder,
    /// Packets that could not be handed to a host's kernel.
    pub send_failures: u64,
    /// Packets that came for a host whose interface was down.
    pub host_down_packets: u64,
    /// Ports whose device a program removed.
    pub lost_ports: u64,
    /// Model time at the end.
    pub end: Instant,
}

/// The results of one link.
#[non_exhaustive]
pub struct LinkOutcome {
    /// The model.
    pub link: Link<Buffer>,
    /// The taps of its ports, in order.
    pub taps: Vec<Tap>,
    /// Samples of each direction, in the link's order.
    pub samples: Vec<Vec<Sample>>,
    /// Frames lost between a host and its port.
    pub missed_frames: u64,
    /// Frames that are not IP on a link that carries IP.
    pub filtered_frames: u64,
    /// Super-packets that had to be split.
    pub super_packets: u64,
}

struct LinkState {
    link: Link<Buffer>,
    ports: Vec<PortState>,
    carries_ethernet: bool,
    /// When something last happened in the model. A frame may still enter at any later time, though the clock is ahead.
    driven_to: Instant,
    samples: Vec<Vec<Sample>>,
    filtered_frames: u64,
    missed_frames: u64,
    super_packets: u64,
}

struct PortState {
    port: PumpPort,
    outgoing: Vec<(Instant, Buffer)>,
}

/// Everything the thread works with.
pub struct Pump {
    links: Vec<LinkState>,
    control: Arc<PumpControl>,
    clock: Clock,
    capture: Option<PcapSink>,
    pool: Pool,
    sender: BatchSender,
    lateness: LatenessRecorder,
    send_failures: u64,
    host_down: u64,
    next_sample: Instant,
    sample_every: Duration,
    /// Real time minus model time.
    real_offset: u64,
    offset_failures: u32,
    long_frame: Vec<u8>,
    scratch: Vec<u8>,
    /// The ports and the control's descriptor, for sleeping.
    watched: Vec<libc::pollfd>,
    /// Lines that gateways dial.
    lines: Vec<WatchedLine>,
}

impl Pump {
    /// A pump for these links; buffers for `ready_buffers` packets are made now.
    pub fn new(links: Vec<PumpLink>, ready_buffers: usize, capture: Option<PcapSink>) -> io::Result<Pump> {
        let frame_bytes = links
            .iter()
            .flat_map(|link| &link.ports)
            .map(|port| port.mtu + ETHERNET_HEADER + 4)
            .max()
            .unwrap_or(0)
            .next_multiple_of(64);
        let control = PumpControl::new()?;
        let sockets = links.iter().flat_map(|link| &link.ports).map(|port| port.socket.as_fd().as_raw_fd());
        let watched = sockets
            .chain([control.waker.as_fd().as_raw_fd()])
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            .collect();
        let links = links.into_iter().map(LinkState::new).collect();
        let clock = Clock::start();
        Ok(Pump {
            links,
            control,
            clock,
            capture,
            pool: Pool::new(frame_bytes, ready_buffers),
            sender: BatchSender::default(),
            lateness: LatenessRecorder::default(),
            send_failures: 0,
            host_down: 0,
            next_sample: Instant::ZERO,
            sample_every: SAMPLE_EVERY,
            real_offset: clock.first_real_time_offset(),
            offset_failures: 0,
            long_frame: vec![0; 1 << 18],
            scratch: Vec::with_capacity(frame_bytes),
            watched,
            lines: Vec::new(),
        })
    }

    /// The handle that stops it.
    #[must_use]
    pub fn control(&self) -> Arc<PumpControl> {
        Arc::clone(&self.control)
    }

    /// Starts the clock again: model time is zero now.
    pub fn restart_clock(&mut self) -> Clock {
        self.clock = Clock::start();
        self.real_offset = self.clock.first_real_time_offset();
        self.clock
    }

    /// Moves packets until stopped.
    pub fn run(mut self) -> PumpOutcome {
        raise_priority();
        while !self.control.stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            self.follow_real_time();
            for i in 0..self.links.len() {
                let until = self.take_arrivals(i, now);
                self.drive(i, until);
            }
            self.flush_all();
            if now >= self.next_sample {
                self.sample(now);
            }
            if self.control.requested.load(Ordering::Relaxed) {
                self.answer(now);
                self.obey(now);
            } else if !self.lines.is_empty() {
                self.tell_lines();
            }
            self.wait();
        }
        self.finish()
    }

    /// Keeps the distance of the two clocks, which changes when somebody sets the real-time one.
    fn follow_real_time(&mut self) {
        match self.clock.real_time_offset() {
            Some(offset) => (self.real_offset, self.offset_failures) = (offset, 0),
            None if self.offset_failures < OFFSET_FAILURES_MAX => self.offset_failures += 1,
            None => (self.real_offset, self.offset_failures) = (self.clock.first_real_time_offset(), 0),
        }
    }

    /// Gives the frames that came to link `i` to its model, in the order of their stamps. Returns the time up to which
    /// the link may be driven: before the stamp of a frame that still waits.
    fn take_arrivals(&mut self, i: usize, now: Instant) -> Instant {
        for taken in 0.. {
            let ports = self.links[i].ports.iter().enumerate();
            let heads = ports.filter_map(|(p, state)| Some((state.port.socket.next_arrival()?, p)));
            let Some((real, p)) = heads.min() else { break };
            let stamp = Instant { ns: real.saturating_sub(self.real_offset) };
            if came_during_turn(stamp, now, || self.clock.now()) {
                break;
            }
            let at = stamp.clamp(self.links[i].driven_to, now);
            if taken == ARRIVALS_PER_TURN {
                return at;
            }
            // A frame that shows up behind its time enters late, and everything behind it leaves late.
            let shifted = at.since(stamp);
            if shifted > STAMP_SHIFT_NOTED {
                self.lateness.record(stamp, shifted);
            }
            self.drive(i, at);
            self.links[i].driven_to = at;
            self.take_frame(i, p, at);
            self.links[i].ports[p].port.socket.advance();
        }
        now
    }

    /// Takes the frame at the head of port `p` into the model.
    fn take_frame(&mut self, i: usize, p: usize, at: Instant) {
        let state = &mut self.links[i];
        let headroom = if state.carries_ethernet { 0 } else { ETHERNET_HEADER };
        let PumpPort { socket, mtu, .. } = &mut state.ports[p].port;
        let mtu = *mtu;
        let Some(frame) = socket.peek() else { return };
        let (real, length, pending, queued, tag) =
            (frame.real_ns, frame.length, frame.checksum_pending, frame.queued, frame.vlan_tag);
        let whole = length == frame.bytes.len();
        if !state.carries_ethernet && (tag.is_some() || !is_ip(frame.bytes)) {
            state.filtered_frames += 1;
            drop(frame);
            if queued {
                // Its copy must not be taken for that of a later frame.
                let _ = socket.receive_long(&mut self.long_frame);
            }
            return;
        }
        if whole && length <= mtu + ETHERNET_HEADER + 4 {
            // The common case: one copy, from the ring into a pooled buffer.
            let mut buffer = match tag {
                None => self.pool.copy_of(frame.bytes, headroom),
                Some(tag) => {
                    // The kernel took the VLAN tag out of the frame; it belongs on the wire (IEEE 802.1Q).
                    self.scratch.clear();
                    self.scratch.extend_from_slice(&frame.bytes[..12]);
                    self.scratch.extend_from_slice(&tag);
                    self.scratch.extend_from_slice(&frame.bytes[12..]);
                    self.pool.copy_of(&self.scratch, headroom)
                }
            };
            drop(frame);
            if pending {
                complete_checksum(buffer.with_headroom_mut(), true);
            }
            self.admit(i, p, at, real, buffer);
            return;
        }
        // An offload was switched on behind our back: a super-packet, to be counted packet by packet.
        state.super_packets += 1;
        let length = if whole {
            self.long_frame[..length].copy_from_slice(frame.bytes);
            drop(frame);
            Ok(length)
        } else {
            drop(frame);
            if queued { socket.receive_long(&mut self.long_frame) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        let mut pieces = Vec::new();
        let split = length.is_ok_and(|length| {
            let frame = &self.long_frame[..length.min(self.long_frame.len())];
            split_super_packet(frame, mtu, &mut self.scratch, |piece| pieces.push(self.pool.copy_of(piece, headroom)))
        });
        if !split {
            state.missed_frames += 1;
        }
        for piece in pieces {
            self.admit(i, p, at, real, piece);
        }
    }

    /// A frame of a host enters its link.
    fn admit(&mut self, i: usize, p: usize, at: Instant, real_ns: u64, mut buffer: Buffer) {
        let state = &mut self.links[i];
        let port = &mut state.ports[p].port;
        port.tap.leaving(at, buffer.with_headroom_mut());
        if let Some(capture) = &self.capture {
            capture.packet(port.capture_interface, real_ns, Passing::Outbound, buffer.with_headroom());
        }
        if p > 0 && !self.lines.is_empty() {
            self.count_unwanted(i, buffer.headers(self.links[i].carries_ethernet));
        }
        let state = &mut self.links[i];
        state.link.receive(at, Port(p), buffer);
        drain(state, at);
    }

    /// Wakes link `i` for everything due by `until`, each at its own time.
    fn drive(&mut self, i: usize, until: Instant) {
        loop {
            let state = &mut self.links[i];
            let due = state.link.next_wake();
            if due > until {
                return;
            }
            state.driven_to = due;
            state.link.wake(due);
            drain(state, due);
            if state.ports.iter().any(|port| port.outgoing.len() >= BATCH) {
                self.flush(i);
            }
        }
    }

    fn flush_all(&mut self) {
        for i in 0..self.links.len() {
            self.flush(i);
        }
    }

    /// Hands the packets that are due to the hosts' kernels.
    fn flush(&mut self, i: usize) {
        let Pump { links, sender, lateness, send_failures, host_down, clock, capture, .. } = self;
        for PortState { port, outgoing } in &mut links[i].ports {
            let lost = &mut 0u64;
            if outgoing.is_empty() {
                continue;
            }
            for (due, buffer) in outgoing.iter_mut() {
                port.tap.arriving(*due, buffer.with_headroom_mut());
                if let Some(capture) = capture {
                    capture.packet(port.capture_interface, real_ns(), Passing::Inbound, buffer.with_headroom());
                }
            }
            let mut done = 0;
            let mut refused = 0;
            while done < outgoing.len() && refused < REFUSALS_MAX {
                let before = clock.now();
                let batch = outgoing[done..].iter().map(|(_, buffer)| buffer.with_headroom());
                let sent = sender.send(&port.socket, batch).unwrap_or(0);
                let each = clock.now().since(before).ns / sent.max(1) as u64;
                for (n, (due, _)) in outgoing[done..done + sent].iter().enumerate() {
                    let left = before + Duration { ns: each * n as u64 };
                    lateness.record(*due, left.since(*due));
                }
                done += sent;
                if sent == 0 {
                    // The kernel takes no more now, or not this one: try it again once, then go on with the next.
                    refused += 1;
                    if refused % 2 == 0 {
                        *lost += 1;
                        done += 1;
                    }
                }
            }
            *lost += (outgoing.len() - done) as u64;
            // A host that took its own interface down loses packets by its own doing.
            if *lost > 0 {
                let counter = if port.socket.has_carrier() { &mut *send_failures } else { &mut *host_down };
                *counter += std::mem::take(lost);
            }
            outgoing.clear();
        }
    }

    /// Sleeps until shortly before the next event, then spins; a frame or a stop ends either.
    fn wait(&mut self) {
        let due = self.links.iter().map(|state| state.link.next_wake()).fold(Instant::FAR, Instant::min);
        let until = due.min(self.next_sample.max(self.clock.now()));
        let sleep = until.since(self.clock.now());
        if sleep > SLEEP_LEAST && !self.has_arrivals() {
            self.sleep(sleep - SPIN);
        }
        while self.clock.now() < until && !self.has_arrivals() && !self.control.stop.load(Ordering::Relaxed) {}
    }

    fn has_arrivals(&self) -> bool {
        self.links.iter().flat_map(|state| &state.ports).any(|state| state.port.socket.next_arrival().is_some())
    }

    fn sleep(&mut self, time: Duration) {
        let timeout =
            libc::timespec { tv_sec: (time.ns / 1_000_000_000) as i64, tv_nsec: (time.ns % 1_000_000_000) as i64 };
        // Interrupted or failed: the loop looks again.
        // SAFETY: the list lives through the call and names descriptors that this pump owns.
        unsafe {
            libc::ppoll(
                self.watched.as_mut_ptr(),
                self.watched.len() as libc::nfds_t,
                &raw const timeout,
                std::ptr::null(),
            )
        };
        for watched in &mut self.watched {
            if watched.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 && device_is_gone(watched.fd) {
                watched.fd = -1; // poll() passes over it from now on
            }
            watched.revents = 0;
        }
    }

    /// Brings the links' counters up to a moment before `now`.
    fn settle(&mut self, now: Instant) {
        for state in &mut self.links {
            // A link asks to be woken for arrivals only; its counters must know of the transmissions before. A frame
            // that shows up a little behind its stamp must still find its time, hence the margin.
            let settled = Instant { ns: now.ns.saturating_sub(SAMPLE_MARGIN.ns) }.max(state.driven_to);
            state.link.wake(settled);
        }
    }

    /// Answers the questions that wait.
    fn answer(&mut self, now: Instant) {
        self.control.requested.store(false, Ordering::Relaxed);
        self.control.waker.clear();
        self.settle(now);
        let questions = self.control.questions.lock().as_mut().map(std::mem::take);
        let view = PumpView { pump: self, now };
        questions.unwrap_or_default().into_iter().for_each(|question| question(&view));
    }

    fn sample(&mut self, now: Instant) {
        self.settle(now);
        for state in &mut self.links {
            for (n, direction) in state.link.directions().iter().enumerate() {
                state.samples[n].push(direction.sample(now));
            }
            state.missed_frames += state.ports.iter().map(|port| port.port.socket.take_missed()).sum::<u64>();
        }
        if self.links.first().is_some_and(|state| state.samples[0].len() >= SAMPLES_MAX) {
            self.sample_every += self.sample_every;
            for samples in self.links.iter_mut().flat_map(|state| &mut state.samples) {
                let mut keep = false;
                samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
        self.next_sample = now + self.sample_every;
    }

    fn finish(mut self) -> PumpOutcome {
        self.control.questions.lock().take();
        let end = self.clock.now();
        self.sample(end);
        let mut sockets = Vec::new();
        let links = self.links.into_iter().map(|state| state.into_outcome(&mut sockets)).collect();
        close_all(sockets);
        PumpOutcome {
            links,
            lateness: self.lateness,
            send_failures: self.send_failures,
            host_down_packets: self.host_down,
            lost_ports: self.watched.iter().filter(|watched| watched.fd < 0).count() as u64,
            end,
        }
    }
}

impl LinkState {
    fn new(link: PumpLink) -> LinkState {
        let directions = link.link.directions().len();
        LinkState {
            link: link.link,
            ports: link
                .ports
                .into_iter()
                .map(|port| PortState { port, outgoing: Vec::with_capacity(4 * BATCH) })
                .collect(),
            carries_ethernet: link.carries_ethernet,
            driven_to: Instant::ZERO,
            samples: vec![Vec::with_capacity(SAMPLES_MAX); directions],
            filtered_frames: 0,
            missed_frames: 0,
            super_packets: 0,
        }
    }

    /// The results; the sockets go to `sockets`.
    fn into_outcome(self, sockets: &mut Vec<PacketPort>) -> LinkOutcome {
        let mut taps = Vec::new();
        for PortState { port, .. } in self.ports {
            taps.push(port.tap);
            sockets.push(port.socket);
        }
        LinkOutcome {
            link: self.link,
            taps,
            samples: self.samples,
            missed_frames: self.missed_frames,
            filtered_frames: self.filtered_frames,
            super_packets: self.super_packets,
        }
    }
}

/// Moves what the link gives out by `due` to the ports' outgoing lists.
fn drain(state: &mut LinkState, due: Instant) {
    while let Some((Port(p), buffer)) = state.link.poll_transmit(due) {
        if let Some(port) = state.ports.get_mut(p) {
            port.outgoing.push((due, buffer));
        }
    }
}

/// True if a frame holds an IPv4 or IPv6 packet.
fn is_ip(frame: &[u8]) -> bool {
    let kind = frame.get(12..14).and_then(|kind| kind.try_into().ok()).map(u16::from_be_bytes);
    matches!(kind, Some(ether_type::IPV4 | ether_type::IPV6))
}

/// True if a frame with this stamp came while the turn that began at `now` was under way, however long that has been
/// interrupted: the next turn takes it, at its own time. `present` reads the clock.
fn came_during_turn(stamp: Instant, now: Instant, present: impl FnOnce() -> Instant) -> bool {
    stamp > now && (stamp.since(now) < STAMP_AHEAD_MAX || stamp <= present())
}

/// Takes the pending error of a socket that poll() complained about; whether it is for good. (A device that only goes
/// down gives ENETDOWN once; one that was removed also.)
fn device_is_gone(fd: libc::c_int) -> bool {
    let mut error: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `error`; a bound packet socket gives its device's number.
    unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut length);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) < 0 || address.sll_ifindex <= 0
    }
}

/// Asks for exact timers and, where it is allowed, for precedence over ordinary work: as a real-time thread where another
/// processor is left to the hosts, which must not starve while the pump spins.
fn raise_priority() {
    let is_alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
    // SAFETY: the calls take plain numbers and a structure that the kernel reads; refusal leaves things as they were.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        let mut lowest: libc::sched_param = std::mem::zeroed();
        lowest.sched_priority = 1;
        if is_alone || libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const lowest) < 0
        {
            libc::setpriority(libc::PRIO_PROCESS, 0, -10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_never_taken_before_it_came() {
        let at = |ms: u64| Instant { ns: ms * 1_000_000 };
        for (stamp, present, expected) in [
            (99, 150, false),
            (100, 150, false),
            (105, 106, true),
            // The turn was interrupted for 50 ms.
            (145, 150, true),
            // The reading of the two clocks' distance is not exact.
            (101, 100, true),
            // The real-time clock was set.
            (3_600_000, 101, false),
        ] {
            assert_eq!(came_during_turn(at(stamp), at(100), || at(present)), expected, "{stamp} {present}");
        }
    }
}
