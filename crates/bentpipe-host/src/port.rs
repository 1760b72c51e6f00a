//! A port: the emulator's end of a veth pair, read and written through a packet socket.
//!
//! Frames come in through a memory-mapped ring (TPACKET_V2: one slot a frame, visible at once, stamped by the kernel on
//! arrival) and go out in batches. The same path carries IP and Ethernet, as root and without.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of an Ethernet header.
pub const ETHERNET_HEADER: usize = bentpipe_net::datagram::ETHERNET_HEADER as usize;
/// Bytes before the frame's first in a ring slot; the kernel uses 66.
const SLOT_OVERHEAD: usize = 96;
const BLOCK_BYTES: usize = 1 << 18;
/// Packets handed to the kernel in one call.
pub const BATCH: usize = 64;

/// A packet socket bound to one device.
pub struct PacketPort {
    socket: OwnedFd,
    ring: Ring,
    next: usize,
    device: String,
}

/// A frame in the ring; the slot goes back to the kernel when this is dropped.
pub struct Frame<'a> {
    /// The frame, Ethernet header first.
    pub bytes: &'a [u8],
    /// Its length on the device; more than `bytes` when it did not fit the slot.
    pub length: usize,
    /// When the kernel received it, nanoseconds since 1970.
    pub real_ns: u64,
    /// The sender left the transport checksum to an offload.
    pub checksum_pending: bool,
    /// It did not fit the slot, and waits whole in the socket's own queue.
    pub queued: bool,
    /// The VLAN tag that the kernel took out of it: type and control, as on the wire.
    pub vlan_tag: Option<[u8; 4]>,
    status: &'a AtomicU32,
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

struct Ring {
    base: *mut u8,
    bytes: usize,
    slot_bytes: usize,
    slots: usize,
    slots_per_block: usize,
}

// SAFETY: the mapping belongs to this value alone and is only reached through it.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: base and bytes are what mmap returned; no frame outlives the port that owns the ring.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A port to open: as the arguments of [`PacketPort::open`].
#[derive(Clone, Debug)]
pub struct PortRequest {
    /// The device.
    pub device: String,
    /// Longest frame.
    pub frame_bytes: usize,
    /// Length of the ring.
    pub ring_bytes: usize,
}

/// Threads that open or close ports at once. The kernel waits several milliseconds for all its processors whenever it makes or
/// frees a ring; these waits can be shared, and cost no processor time.
const WAITERS: usize = 32;

/// Does `work` to each item, on some threads; the results are in the items' order.
fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() <= 2 {
        return items.into_iter().map(work).collect();
    }
    let each = items.len().div_ceil(WAITERS);
    let mut items = items.into_iter();
    let parts: Vec<Vec<T>> = std::iter::from_fn(|| Some(items.by_ref().take(each).collect()))
        .take_while(|part: &Vec<T>| !part.is_empty())
        .collect();
    let work = &work;
    std::thread::scope(|scope| {
        let part = |part: Vec<T>| scope.spawn(move || part.into_iter().map(work).collect::<Vec<R>>());
        let threads: Vec<_> = parts.into_iter().map(part).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<R>>| match thread.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    })
}

/// Closes ports: many together take about as long as one.
pub fn close_all(ports: Vec<PacketPort>) {
    in_parallel(ports, drop);
}

impl PacketPort {
    /// Opens several ports of devices of the calling thread's namespace, in order.
    pub fn open_all(requests: Vec<PortRequest>) -> io::Result<Vec<PacketPort>> {
        let open = |request: PortRequest| PacketPort::open(&request.device, request.frame_bytes, request.ring_bytes);
        in_parallel(requests, open).into_iter().collect()
    }

    /// Opens `device` of the calling thread's namespace. Frames up to `frame_bytes` fit a slot; the ring holds about
    /// `ring_bytes`.
    pub fn open(device: &str, frame_bytes: usize, ring_bytes: usize) -> io::Result<PacketPort> {
        let index = crate::netlink::index_of(device)?;
        // Protocol 0: nothing is received before the ring stands.
        // SAFETY: a plain socket call; the descriptor is owned at once.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        set_option(&socket, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        set_option(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        set_option(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
        // Frames longer than a slot (an offload that was switched on again) come whole through recv.
        set_option(&socket, libc::PACKET_COPY_THRESH, &1i32)?;
        // As many of them as the machine's limit allows.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, LONG_FRAMES_BYTES)
            .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&socket, LONG_FRAMES_BYTES));
        let slot_bytes = (frame_bytes + SLOT_OVERHEAD).next_power_of_two().clamp(2048, BLOCK_BYTES);
        let blocks = ring_bytes.div_ceil(BLOCK_BYTES).max(2);
        let slots_per_block = BLOCK_BYTES / slot_bytes;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (blocks * slots_per_block) as u32,
        };
        set_option(&socket, libc::PACKET_RX_RING, &request)?;
        let bytes = blocks * BLOCK_BYTES;
        // SAFETY: maps the ring just made; the result is checked.
        let base = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                socket.as_raw_fd(),
                0,
            );
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            at.cast::<u8>()
        };
        let ring = Ring { base, bytes, slot_bytes, slots: blocks * slots_per_block, slots_per_block };
        bind(&socket, index)?;
        Ok(PacketPort { socket, ring, next: 0, device: device.to_owned() })
    }

    /// The next frame in the ring, if there is one. Costs no system call.
    pub fn peek(&mut self) -> Option<Frame<'_>> {
        let slot = self.ring.slot(self.next);
        // SAFETY: the slot lies inside the mapping, is aligned, and the kernel writes its status atomically; the other
        // fields are ours while the status has TP_STATUS_USER.
        let (status, header) = unsafe { (&*slot.cast::<AtomicU32>(), slot.cast::<libc::tpacket2_hdr>()) };
        let flags = status.load(Ordering::Acquire);
        if flags & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: as above; tp_mac + tp_snaplen never exceed the slot.
        let (bytes, length, real_ns, tag) = unsafe {
            let header = &*header;
            let bytes = std::slice::from_raw_parts(slot.add(header.tp_mac as usize), header.tp_snaplen as usize);
            let real_ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
            let tag = (header.tp_vlan_tpid.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
            (bytes, header.tp_len as usize, real_ns, tag)
        };
        let vlan_tag = (flags & libc::TP_STATUS_VLAN_VALID != 0).then_some([tag.0[0], tag.0[1], tag.1[0], tag.1[1]]);
        let queued = flags & libc::TP_STATUS_COPY != 0;
        let checksum_pending = flags & libc::TP_STATUS_CSUMNOTREADY != 0;
        Some(Frame { bytes, length, real_ns, checksum_pending, queued, vlan_tag, status })
    }

    /// Moves on to the next slot; call after the frame from [`PacketPort::peek`] was taken and dropped.
    pub fn advance(&mut self) {
        self.next = (self.next + 1) % self.ring.slots;
    }

    /// When the next frame in the ring arrived, nanoseconds since 1970.
    pub fn next_arrival(&self) -> Option<u64> {
        let slot = self.ring.slot(self.next);
        // SAFETY: as in peek().
        unsafe {
            let status = &*slot.cast::<AtomicU32>();
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return None;
            }
            let header = &*slot.cast::<libc::tpacket2_hdr>();
            Some(u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec))
        }
    }

    /// Takes a frame that was too long for a slot out of the socket's own queue; returns its whole length.
    pub fn receive_long(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::recv(self.socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_TRUNC) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    /// True if the other end of the pair is up.
    pub fn has_carrier(&self) -> bool {
        // SAFETY: the kernel reads a name and writes flags within the structure.
        unsafe {
            let mut request = device_request(&self.device);
            libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) == 0
                && i32::from(request.ifr_ifru.ifru_flags) & libc::IFF_RUNNING != 0
        }
    }

    /// Frames the kernel could not put into the ring since the last call.
    pub fn take_missed(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `statistics`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result == 0 { u64::from(statistics.tp_drops) } else { 0 }
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Room for frames longer than a slot.
const LONG_FRAMES_BYTES: usize = 16 << 20;

impl Ring {
    fn slot(&self, number: usize) -> *mut u8 {
        let offset = number / self.slots_per_block * BLOCK_BYTES + number % self.slots_per_block * self.slot_bytes;
        debug_assert!(offset + self.slot_bytes <= self.bytes);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(offset) }
    }
}

fn set_option<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes of a live value.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain data; all fields that matter are set.
    let result = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Headers for handing a batch of frames to the kernel in one call; made once, reused for every batch.
pub struct BatchSender {
    parts: Box<[libc::iovec; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
}

// SAFETY: the pointers inside are only used during send(), which sets them first.
unsafe impl Send for BatchSender {}

impl Default for BatchSender {
    fn default() -> Self {
        // SAFETY: all-zero iovec and mmsghdr are valid.
        unsafe { BatchSender { parts: Box::new(std::mem::zeroed()), messages: Box::new(std::mem::zeroed()) } }
    }
}

impl BatchSender {
    /// Sends up to [`BATCH`] frames; returns how many the kernel took before it refused one.
    pub fn send<'a>(&mut self, port: &PacketPort, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut count = 0;
        for frame in frames.take(BATCH) {
            self.parts[count] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            self.messages[count].msg_hdr.msg_iov = &raw mut self.parts[count];
            self.messages[count].msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: `count` messages point at frames that live through the call; sendmmsg only reads them.
        let sent = unsafe {
            libc::sendmmsg(port.socket.as_raw_fd(), self.messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}

/// An ioctl request about `device`, all else zero.
pub(crate) fn device_request(device: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

/// Switches a device's checksum and segmentation offloads for TCP and UDP off, so that every packet comes by itself and
/// with its checksum.
pub fn switch_offloads_off(device: &str) -> io::Result<()> {
    // ETHTOOL_SRXCSUM, STXCSUM, SSG, STSO, SGSO, SGRO (linux/ethtool.h).
    const SETTERS: [(u32, &str); 6] = [
        (0x15, "rx-checksum"),
        (0x17, "tx-checksum"),
        (0x1f, "tso"),
        (0x24, "gso"),
        (0x2c, "gro"),
        (0x19, "scatter-gather"),
    ];
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    for (command, name) in SETTERS {
        let mut value = Value { command, data: 0 };
        // SAFETY: ifreq carries a pointer to an ethtool_value that lives through the call.
        let result = unsafe {
            let mut request = device_request(device);
            request.ifr_ifru.ifru_data = (&raw mut value).cast();
            libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request)
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("cannot switch {name} of {device} off: {error}")));
        }
    }
    Ok(())
}
