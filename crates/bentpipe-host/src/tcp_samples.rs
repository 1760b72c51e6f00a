//! The kernel's own view of a site's TCP connections, sampled while a run is under way: what `ss -ti` prints.
//!
//! A thread inside the site's network namespace asks a NETLINK_SOCK_DIAG socket for all TCP sockets (sock_diag(7);
//! `struct inet_diag_req_v2` and `struct inet_diag_msg` of linux/inet_diag.h) and reads `struct tcp_info` (linux/tcp.h)
//! out of the INET_DIAG_INFO attribute. Listening sockets are not asked for; TIME_WAIT and half-open (SYN received)
//! sockets have no such attribute and are passed over. A socket is one end: a connection between two programs of the
//! same site is seen twice, once from each side. One that opens and closes between two rounds is not seen.
//!
//! A round costs the kernel a walk through the whole machine's table of connections, for each address family: 0.6 ms of
//! a core in all on a 2-core virtual machine with 262144 slots (Linux 6.18), and 3 ms with 1400 sockets in the site.

use crate::clock::Clock;
use crate::namespace::Namespace;
use bentpipe_net::time::{Duration, Instant};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::{Socket, SocketAddr as NetlinkAddr, protocols::NETLINK_SOCK_DIAG};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Samples one site's connections until it is finished or dropped.
#[derive(Debug)]
pub struct TcpSampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Vec<SampledConnection>>>,
}

/// One end of a TCP connection.
#[derive(Clone, Debug)]
pub struct SampledConnection {
    /// The site's own end; an IPv4 connection of an IPv6 socket is given as IPv4.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// As the kernel last named it (INET_DIAG_CONG), such as `cubic`; empty when it never did.
    pub congestion_control: String,
    /// In the order of time, never empty, at most 4096. The last is the last the kernel reported, whatever was thinned.
    pub samples: Vec<TcpSample>,
}

/// The state of one end at one time. In brackets the field of `struct tcp_info` (linux/tcp.h).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TcpSample {
    /// Model time.
    pub at: Instant,
    /// 1 established, 2 SYN sent, 3 SYN received, 4 FIN wait 1, 5 FIN wait 2, 8 close wait, 9 last ACK, 11 closing
    /// (include/net/tcp_states.h; `idiag_state`).
    pub state: u8,
    /// Congestion window, in segments (`tcpi_snd_cwnd`).
    pub cwnd_segments: u32,
    /// Slow start threshold, in segments; `None` while infinite (`tcpi_snd_ssthresh`).
    pub ssthresh_segments: Option<u32>,
    /// Smoothed round-trip time, in seconds; 0 before the first measurement (`tcpi_rtt`, in whole microseconds).
    pub srtt_s: f64,
    /// Retransmission time-out, in seconds (`tcpi_rto`, in whole microseconds).
    pub rto_s: f64,
    /// Segments sent again since the connection began, SYNs among them (`tcpi_total_retrans`).
    pub retransmissions: u32,
    /// Segments sent and not yet acknowledged, SYN and FIN among them (`tcpi_unacked`).
    pub unacked_segments: u32,
    /// Bits per second of payload delivered, as last estimated; 0 before that (8 x `tcpi_delivery_rate`).
    pub delivery_rate_bps: u64,
    /// Bytes of payload in a full segment sent (`tcpi_snd_mss`).
    pub mss: u32,
    /// Bytes the other end acknowledged (`tcpi_bytes_acked`). Linux counts the SYN of the end that connected, and the
    /// FIN, as one byte each, so this may exceed the payload by up to 2.
    pub bytes_acked: u64,
    /// Bytes of payload received in order (`tcpi_bytes_received`). A FIN counts as one.
    pub bytes_received: u64,
    /// The other end's advertised window, in bytes, after scaling (`tcpi_snd_wnd`, since Linux 5.4).
    pub snd_wnd: Option<u32>,
    /// Bytes the receiver's buffer tuning expects in a round trip (`tcpi_rcv_space`).
    pub rcv_space: u32,
}

impl TcpSampler {
    /// Starts sampling the site's connections every `every` (at least 1 ms), the first time before this returns.
    ///
    /// An error means that nothing can be sampled here: the namespace cannot be entered, or the kernel does not tell
    /// (NotFound: it has no CONFIG_INET_TCP_DIAG). A run can go on without.
    pub fn start(namespace: &Namespace, clock: Clock, every: Duration) -> io::Result<TcpSampler> {
        let shared = Arc::new(Shared::default());
        let (started, ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("tcp-samples".into()).spawn({
            let (namespace, shared) = (namespace.clone(), Arc::clone(&shared));
            move || {
                let sampling = namespace.enter().and_then(|()| Sampling::start(clock, &shared));
                drop(namespace);
                let (sampling, outcome) = match sampling {
                    Ok(sampling) => (Some(sampling), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let _ = started.send(outcome); // The starter waits for it.
                sampling.map(|sampling| sampling.run(every.max(EVERY_MIN), &shared)).unwrap_or_default()
            }
        })?;
        let sampler = TcpSampler { shared, thread: Some(thread) };
        ready.recv().map_err(|_| io::Error::other("the thread that samples TCP connections ended at once"))??;
        Ok(sampler)
    }

    /// Connections seen so far beyond the first 1024, which are not followed.
    #[must_use]
    pub fn not_followed(&self) -> u64 {
        self.shared.not_followed.load(Ordering::Relaxed)
    }

    /// Rounds so far that may lack connections: the kernel broke off, or said so itself (NLM_F_DUMP_INTR), or told
    /// something unreadable.
    #[must_use]
    pub fn incomplete_rounds(&self) -> u64 {
        self.shared.incomplete_rounds.load(Ordering::Relaxed)
    }

    /// Samples a last time, ends the thread and returns what was seen, in the order of first sight.
    #[must_use]
    pub fn finish(mut self) -> Vec<SampledConnection> {
        self.shared.stop();
        let thread = self.thread.take();
        thread.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).unwrap_or_default()
    }
}

impl Drop for TcpSampler {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // Nobody asked for what it saw.
        }
    }
}

/// Connections followed in a run.
const CONNECTIONS_MAX: usize = 1_024;
/// Samples kept of a connection; when they are reached, every second one goes and new ones come half as often.
const SAMPLES_MAX: usize = 4_096;
/// Rounds are at least this far apart.
const EVERY_MIN: Duration = Duration::from_millis(1);
/// The kernel fills datagrams of a dump up to 32 KiB (net/netlink/af_netlink.c: netlink_recvmsg).
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// TCP_INFINITE_SSTHRESH (include/net/tcp.h).
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// State that the thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    stop: Mutex<bool>,
    stopped: Condvar,
    not_followed: AtomicU64,
    incomplete_rounds: AtomicU64,
}

impl Shared {
    fn stop(&self) {
        *self.stop.lock() = true;
        self.stopped.notify_all();
    }

    /// Sleeps for `time` or until stopped, and says whether it was stopped.
    fn sleep(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        self.stopped.wait_while_for(&mut stop, |stop| !*stop, time.to_std());
        *stop
    }
}

/// The thread's work.
struct Sampling {
    clock: Clock,
    /// The kernel answers for one address family at a time.
    families: Vec<u8>,
    /// `None` after a dump that failed: what is left of it goes with the socket.
    diag: Option<SockDiag>,
    log: Log,
}

impl Sampling {
    /// Opens the socket in the calling thread's namespace and does the first round.
    fn start(clock: Clock, shared: &Shared) -> io::Result<Sampling> {
        let diag = Some(SockDiag::open()?);
        let mut sampling = Sampling { clock, families: Vec::new(), diag, log: Log::default() };
        let mut refusal = None;
        sampling.log.begin_round();
        let mut whole = true;
        for family in [AF_INET, AF_INET6] {
            match sampling.dump(family) {
                Ok(dump_whole) => {
                    whole &= dump_whole;
                    sampling.families.push(family);
                }
                // A kernel without this family, or without any TCP diagnosis.
                Err(error) if error.kind() == io::ErrorKind::NotFound => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        sampling.end_round(whole, shared);
        match refusal {
            Some(error) if sampling.families.is_empty() => Err(error),
            _ => Ok(sampling),
        }
    }

    /// Samples until stopped, and once more then.
    fn run(mut self, every: Duration, shared: &Shared) -> Vec<SampledConnection> {
        let mut due = self.clock.now() + every;
        loop {
            let stopped = shared.sleep(due.since(self.clock.now()));
            let before = self.clock.now();
            self.round(shared);
            if stopped {
                return self.log.finish();
            }
            let now = self.clock.now();
            // Missed rounds are not made up for, and at most half of the time goes into them.
            due = (due + every).max(now + now.since(before));
        }
    }

    fn round(&mut self, shared: &Shared) {
        self.log.begin_round();
        let mut whole = true;
        for i in 0..self.families.len() {
            whole &= self.dump(self.families[i]).unwrap_or(false);
        }
        self.end_round(whole, shared);
    }

    fn end_round(&mut self, whole: bool, shared: &Shared) {
        self.log.end_round(whole);
        shared.not_followed.store(self.log.not_followed, Ordering::Relaxed);
        shared.incomplete_rounds.fetch_add(u64::from(!whole), Ordering::Relaxed);
    }

    /// Logs all connections of a family; false when some may be missing.
    fn dump(&mut self, family: u8) -> io::Result<bool> {
        let mut diag = match self.diag.take() {
            Some(diag) => diag,
            None => SockDiag::open()?,
        };
        let whole = diag.dump(family, &self.clock, |seen| self.log.add(seen))?;
        self.diag = Some(diag);
        Ok(whole)
    }
}

/// A socket of the kernel's socket diagnosis.
struct SockDiag {
    socket: Socket,
    sequence: u32,
    datagram: Vec<u8>,
}

impl SockDiag {
    /// Opens a socket in the calling thread's namespace, where it stays.
    fn open() -> io::Result<SockDiag> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddr::new(0, 0))?;
        // The kernel makes each datagram of a dump within the call before the one that reads it (netlink_dump), so that
        // there is never anything to wait for; if there is, the dump has failed.
        socket.set_non_blocking(true)?;
        Ok(SockDiag { socket, sequence: 0, datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX) })
    }

    /// Asks for all connections of a family and hands each to `seen`; false when some may be missing.
    fn dump(&mut self, family: u8, clock: &Clock, mut seen: impl FnMut(Sighting)) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(family, self.sequence), 0)?;
        let mut whole = true;
        loop {
            let made_at = clock.now();
            self.datagram.clear();
            let length = self.socket.recv(&mut self.datagram, libc::MSG_TRUNC)?;
            whole &= length == self.datagram.len();
            let read = read_datagram(&self.datagram, self.sequence, made_at);
            whole &= read.whole;
            read.seen.into_iter().for_each(&mut seen);
            if let Some(end) = read.end {
                return end.map(|()| whole);
            }
        }
    }
}

/// A dump of a family's TCP sockets that are neither listening nor in TIME_WAIT.
fn request(family: u8, sequence: u32) -> Vec<u8> {
    let states = StateFlags::ESTABLISHED
        | StateFlags::SYN_SENT
        | StateFlags::SYN_RECV
        | StateFlags::FIN_WAIT1
        | StateFlags::FIN_WAIT2
        | StateFlags::CLOSE_WAIT
        | StateFlags::LAST_ACK
        | StateFlags::CLOSING;
    let mut request = NetlinkMessage::from(SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO | ExtensionFlags::CONG,
        states,
        socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
    }));
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.header.sequence_number = sequence;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

/// A connection as one message reports it.
#[derive(Clone, Debug, PartialEq)]
struct Sighting {
    identity: Identity,
    congestion_control: String,
    sample: TcpSample,
}

/// The addresses, and the number that the kernel gives to every socket once (`idiag_cookie`): a connection that uses
/// the addresses of an earlier one is another one. The inode would not do, a closed socket loses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Identity {
    local: SocketAddr,
    remote: SocketAddr,
    cookie: u64,
}

/// The contents of one datagram of a dump.
#[derive(Debug)]
struct Read {
    seen: Vec<Sighting>,
    /// Everything could be read, and the kernel does not say that the dump missed changes.
    whole: bool,
    /// The end of the dump; `None`: more is to come.
    end: Option<io::Result<()>>,
}

/// Reads the messages of a datagram that answer request `sequence`.
fn read_datagram(datagram: &[u8], sequence: u32, at: Instant) -> Read {
    let mut read = Read { seen: Vec::new(), whole: true, end: None };
    let mut rest = datagram;
    while !rest.is_empty() && read.end.is_none() {
        let Ok(head) = NetlinkBuffer::new_checked(rest) else {
            read.whole = false;
            break;
        };
        let length = head.length() as usize;
        let message = &rest[..length];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if head.sequence_number() != sequence {
            continue;
        }
        read.whole &= head.flags() & NLM_F_DUMP_INTR == 0;
        let error = |code: i32| io::Error::from_raw_os_error(code.saturating_neg());
        match NetlinkMessage::<SockDiagMessage>::deserialize(message).map(|message| message.payload) {
            Ok(NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response))) => {
                match read_connection(&response, at) {
                    Ok(seen) => read.seen.extend(seen),
                    Err(TooShort) => read.whole = false,
                }
            }
            Ok(NetlinkPayload::Done(done)) => {
                read.end = Some(if done.code < 0 { Err(error(done.code)) } else { Ok(()) });
            }
            Ok(NetlinkPayload::Error(answer)) => {
                read.end = Some(answer.code.map_or(Ok(()), |code| Err(error(code.get()))));
            }
            Ok(NetlinkPayload::Noop) => {}
            Ok(_) | Err(_) => read.whole = false,
        }
    }
    read
}

/// The kernel's `struct tcp_info` lacks fields that it has had since Linux 4.9.
#[derive(Debug)]
struct TooShort;

/// `None`: a socket without `struct tcp_info`, in TIME_WAIT or half open.
fn read_connection(response: &InetResponse, at: Instant) -> Result<Option<Sighting>, TooShort> {
    let mut info = None;
    let mut congestion_control = String::new();
    for attribute in &response.nlas {
        match attribute {
            Nla::TcpInfo(bytes) => info = Some(bytes),
            Nla::Congestion(name) => congestion_control.clone_from(name),
            _ => {}
        }
    }
    let Some(info) = info else { return Ok(None) };
    let sample = read_info(info, response.header.state, at).ok_or(TooShort)?;
    let id = &response.header.socket_id;
    let address = |ip: IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
    let identity = Identity {
        local: address(id.source_address, id.source_port),
        remote: address(id.destination_address, id.destination_port),
        cookie: u64::from_ne_bytes(id.cookie),
    };
    Ok(Some(Sighting { identity, congestion_control, sample }))
}

/// Reads `struct tcp_info` (linux/tcp.h), which grows at its end from one kernel to the next; the numbers are offsets.
fn read_info(info: &[u8], state: u8, at: Instant) -> Option<TcpSample> {
    let u32_at = |offset: usize| Some(u32::from_ne_bytes(*info.get(offset..)?.first_chunk()?));
    let u64_at = |offset: usize| Some(u64::from_ne_bytes(*info.get(offset..)?.first_chunk()?));
    let seconds = |us: u32| f64::from(us) / 1e6;
    Some(TcpSample {
        at,
        state,
        rto_s: seconds(u32_at(8)?),
        mss: u32_at(16)?,
        unacked_segments: u32_at(24)?,
        srtt_s: seconds(u32_at(68)?),
        ssthresh_segments: Some(u32_at(76)?).filter(|segments| *segments < SSTHRESH_INFINITE),
        cwnd_segments: u32_at(80)?,
        rcv_space: u32_at(96)?,
        retransmissions: u32_at(100)?,
        bytes_acked: u64_at(120)?,
        bytes_received: u64_at(128)?,
        delivery_rate_bps: u64_at(160)?.saturating_mul(8),
        snd_wnd: u32_at(228),
    })
}

/// The connections of a run.
#[derive(Debug, Default)]
struct Log {
    /// Counts from 1.
    round: u64,
    followed: Vec<Followed>,
    /// Where each is in `followed`.
    known: BTreeMap<Identity, usize>,
    /// Live connections beyond [`CONNECTIONS_MAX`], with the round in which each was last seen.
    others: BTreeMap<Identity, u64>,
    not_followed: u64,
}

impl Log {
    fn begin_round(&mut self) {
        self.round += 1;
    }

    fn add(&mut self, seen: Sighting) {
        if let Some(&i) = self.known.get(&seen.identity) {
            self.followed[i].add(self.round, seen);
        } else if self.followed.len() < CONNECTIONS_MAX {
            self.known.insert(seen.identity, self.followed.len());
            self.followed.push(Followed::new(self.round, seen));
        } else if self.others.insert(seen.identity, self.round).is_none() {
            self.not_followed += 1;
        }
    }

    /// `whole`: what was not seen in this round is gone.
    fn end_round(&mut self, whole: bool) {
        if whole {
            self.others.retain(|_, last_seen| *last_seen == self.round);
        }
    }

    fn finish(self) -> Vec<SampledConnection> {
        self.followed.into_iter().map(Followed::finish).collect()
    }
}

/// A connection whose samples are kept.
#[derive(Debug)]
struct Followed {
    connection: SampledConnection,
    /// Rounds from one kept sample to the next: 1, 2, 4 ...
    stride: u64,
    /// From this round on a sample is kept again.
    next_kept: u64,
    last_seen: u64,
    /// Seen since the last one kept.
    latest: Option<TcpSample>,
}

impl Followed {
    fn new(round: u64, seen: Sighting) -> Followed {
        let Identity { local, remote, .. } = seen.identity;
        let Sighting { congestion_control, sample, .. } = seen;
        let connection = SampledConnection { local, remote, congestion_control, samples: vec![sample] };
        Followed { connection, stride: 1, next_kept: round + 1, last_seen: round, latest: None }
    }

    fn add(&mut self, round: u64, seen: Sighting) {
        if round == self.last_seen {
            return; // The kernel's table changed during the dump, and the socket came twice.
        }
        self.last_seen = round;
        if !seen.congestion_control.is_empty() {
            self.connection.congestion_control = seen.congestion_control;
        }
        if round < self.next_kept {
            self.latest = Some(seen.sample);
            return;
        }
        self.latest = None;
        self.keep(seen.sample);
        self.next_kept = round + self.stride;
    }

    fn keep(&mut self, sample: TcpSample) {
        let samples = &mut self.connection.samples;
        if samples.len() == SAMPLES_MAX {
            let mut keep = false;
            samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
        samples.push(sample);
    }

    fn finish(mut self) -> SampledConnection {
        if let Some(sample) = self.latest.take() {
            self.keep(sample);
        }
        self.connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NLM_F_MULTIPART, NetlinkHeader};
    use netlink_packet_sock_diag::inet::InetResponseHeader;
    use proptest::prelude::*;

    const AT: Instant = Instant { ns: 5_000 };

    /// As Linux 6.18 gives it, every 32-bit word holding its own number but for the ones named.
    fn info(ssthresh: u32) -> Vec<u8> {
        let mut words: Vec<u32> = (0..70).collect();
        words[2] = 201_000; // tcpi_rto
        words[17] = 532_125; // tcpi_rtt
        words[19] = ssthresh;
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn u64_of(low: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&low.to_ne_bytes());
        bytes[4..].copy_from_slice(&(low + 1).to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    fn response(cookie: u64, nlas: Vec<Nla>) -> SockDiagMessage {
        let mut socket_id = SocketId::new_v4();
        socket_id.source_address = [198, 18, 1, 1].into();
        socket_id.source_port = 5001;
        socket_id.destination_address = [198, 18, 2, 1].into();
        socket_id.destination_port = 80;
        socket_id.cookie = cookie.to_ne_bytes();
        let (family, state) = (AF_INET, 1);
        let header = InetResponseHeader {
            family,
            state,
            timer: None,
            socket_id,
            recv_queue: 0,
            send_queue: 0,
            uid: 0,
            inode: 7,
        };
        SockDiagMessage::InetResponse(Box::new(InetResponse { header, nlas: nlas.into_iter().collect() }))
    }

    fn message(payload: NetlinkPayload<SockDiagMessage>, sequence: u32, flags: u16) -> Vec<u8> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.header.flags = NLM_F_MULTIPART | flags;
        message.header.sequence_number = sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn connection(cookie: u64, sequence: u32, flags: u16) -> Vec<u8> {
        let nlas = vec![Nla::TcpInfo(info(30)), Nla::Congestion("cubic".into()), Nla::Shutdown(0)];
        message(response(cookie, nlas).into(), sequence, flags)
    }

    fn done(code: i32) -> Vec<u8> {
        // The crate lets nobody else make this message, nor an error.
        let mut bytes = message(NetlinkPayload::Overrun(code.to_ne_bytes().to_vec()), 9, 0);
        bytes[4..6].copy_from_slice(&3u16.to_ne_bytes()); // NLMSG_DONE
        bytes
    }

    fn seen(cookie: u64, ns: u64) -> Sighting {
        let read = read_datagram(&connection(cookie, 9, 0), 9, Instant { ns });
        read.seen.into_iter().next().unwrap()
    }

    #[test]
    fn reads_a_dump() {
        let mut datagram = connection(41, 8, 0); // Left over from an earlier request.
        datagram.extend(connection(42, 9, 0));
        datagram.extend(message(response(43, vec![Nla::Shutdown(0)]).into(), 9, 0)); // In TIME_WAIT.
        datagram.extend(done(0));
        let read = read_datagram(&datagram, 9, AT);
        assert!(read.whole && matches!(read.end, Some(Ok(()))));
        let expected = Sighting {
            identity: Identity {
                local: "198.18.1.1:5001".parse().unwrap(),
                remote: "198.18.2.1:80".parse().unwrap(),
                cookie: 42,
            },
            congestion_control: "cubic".into(),
            sample: TcpSample {
                at: AT,
                state: 1,
                cwnd_segments: 20,
                ssthresh_segments: Some(30),
                srtt_s: 0.532_125,
                rto_s: 0.201,
                retransmissions: 25,
                unacked_segments: 6,
                delivery_rate_bps: u64_of(40) * 8,
                mss: 4,
                bytes_acked: u64_of(30),
                bytes_received: u64_of(32),
                snd_wnd: Some(57),
                rcv_space: 24,
            },
        };
        assert_eq!(read.seen, [expected]);
    }

    #[test]
    fn older_kernels_tell_less() {
        let whole = info(SSTHRESH_INFINITE);
        assert_eq!(read_info(&whole, 1, AT).unwrap().ssthresh_segments, None);
        assert_eq!(read_info(&whole[..231], 1, AT).unwrap().snd_wnd, None);
        assert!(read_info(&whole[..168], 1, AT).is_some());
        for length in 0..168 {
            assert_eq!(read_info(&whole[..length], 1, AT), None);
        }
        let short = message(response(1, vec![Nla::TcpInfo(whole[..100].to_vec())]).into(), 9, 0);
        let read = read_datagram(&short, 9, AT);
        assert!(!read.whole && read.seen.is_empty() && read.end.is_none());
    }

    #[test]
    fn a_dump_may_be_interrupted_or_refused() {
        let read = read_datagram(&connection(1, 9, NLM_F_DUMP_INTR), 9, AT);
        assert!(!read.whole && read.seen.len() == 1);
        let refused = read_datagram(&done(-libc::ENOENT), 9, AT).end.unwrap().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(read_datagram(&done(i32::MIN), 9, AT).end.unwrap().is_err());
        let mut error = done(-libc::ENOENT);
        error[4..6].copy_from_slice(&2u16.to_ne_bytes()); // NLMSG_ERROR
        assert!(read_datagram(&error, 9, AT).end.unwrap().is_err());
    }

    #[test]
    fn a_cut_datagram_is_no_whole_one() {
        let first = connection(1, 9, 0);
        let datagram = [first.clone(), connection(2, 9, 0), done(0)].concat();
        for length in 1..datagram.len() {
            let read = read_datagram(&datagram[..length], 9, AT);
            assert!(read.end.is_none());
            assert_eq!(read.whole, length == first.len() || length == 2 * first.len(), "{length}");
            assert_eq!(read.seen.len(), length / first.len());
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes: Vec<u8>) {
            read_datagram(&bytes, 9, AT);
        }

        #[test]
        fn reading_damage_never_panics(damage in prop::collection::vec((0usize..1000, any::<u8>()), 1..8)) {
            let mut datagram = [connection(1, 9, 0), connection(2, 9, 0), done(0)].concat();
            for (place, byte) in damage {
                let place = place % datagram.len();
                datagram[place] = byte;
            }
            prop_assert!(read_datagram(&datagram, 9, AT).seen.len() <= 2);
        }
    }

    #[test]
    fn samples_are_thinned_evenly_and_the_last_one_is_kept() {
        let mut log = Log::default();
        let rounds = 10 * SAMPLES_MAX as u64 + 3;
        for round in 1..=rounds {
            log.begin_round();
            log.add(seen(1, round));
            log.add(seen(1, round + 1)); // Twice in one round: ignored.
            log.end_round(true);
            assert!(log.followed[0].connection.samples.len() <= SAMPLES_MAX);
        }
        let connections = log.finish();
        let times: Vec<u64> = connections[0].samples.iter().map(|sample| sample.at.ns).collect();
        let (last, even) = times.split_last().unwrap();
        // The first of each 16 rounds, then the last of all.
        assert_eq!(*last, rounds);
        assert_eq!(even, (1..rounds).step_by(16).collect::<Vec<_>>());
    }

    #[test]
    fn the_same_addresses_again_are_another_connection() {
        let mut log = Log::default();
        for (round, cookie) in [(1, 1), (2, 1), (3, 2)] {
            log.begin_round();
            log.add(seen(cookie, round));
            log.end_round(true);
        }
        let counts: Vec<usize> = log.finish().iter().map(|connection| connection.samples.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn connections_beyond_the_limit_are_counted_once() {
        let mut log = Log::default();
        let most = CONNECTIONS_MAX as u64;
        for whole in [true, false, true] {
            log.begin_round();
            (0..most + 5).for_each(|cookie| log.add(seen(cookie, 1)));
            log.end_round(whole);
        }
        assert_eq!(log.not_followed, 5);
        log.begin_round();
        log.add(seen(most + 5, 1));
        log.end_round(true);
        assert_eq!((log.not_followed, log.others.len(), log.followed.len()), (6, 1, CONNECTIONS_MAX));
    }
}
