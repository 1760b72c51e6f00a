//! The firewall's messages over netlink: the packets that a rule logs (linux/netfilter/nfnetlink_log.h), and the value of
//! a counter (linux/netfilter/nf_tables.h).

use bentpipe_net::interception::Bypassed;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Receives what one log group catches.
pub struct PacketLog {
    socket: Socket,
    group: u16,
    buffer: Vec<u8>,
}

/// Reads one counter of the firewall.
pub struct Counter {
    socket: Socket,
    request: Vec<u8>,
}

/// Log groups that are tried in turn: each daemon of a namespace needs one of its own.
const GROUPS: std::ops::Range<u16> = 25_200..25_264;
/// Bytes of SYNs that may wait in the kernel; more are lost, and their clients ask again.
const WAITING_BYTES: usize = 1 << 20;
/// Bytes of an intercepted packet that are wanted: the longest headers of IP and TCP, and a few.
const COPY_BYTES: u32 = 256;

const MESSAGE_HEADER: usize = 16;
/// Of every netfilter message, after the message header: family, version, and a number, in network order.
const FAMILY_HEADER: usize = 4;
const F_REQUEST: u16 = 1;
const F_ACK: u16 = 4;
const ERROR: u16 = 2;

const SUBSYSTEM_LOG: u16 = 4 << 8;
const LOG_PACKET: u16 = SUBSYSTEM_LOG;
const LOG_CONFIG: u16 = SUBSYSTEM_LOG | 1;
const LOG_PAYLOAD: u16 = 9;
const LOG_PREFIX: u16 = 10;
const CONFIG_COMMAND: u16 = 1;
const CONFIG_MODE: u16 = 2;
const COMMAND_BIND: u8 = 1;
const MODE_PACKET: u8 = 2;

const SUBSYSTEM_TABLES: u16 = 10 << 8;
const NEW_OBJECT: u16 = SUBSYSTEM_TABLES | 18;
const GET_OBJECT: u16 = SUBSYSTEM_TABLES | 19;
const FAMILY_INET: u8 = 1;
const OBJECT_TABLE: u16 = 1;
const OBJECT_NAME: u16 = 2;
const OBJECT_TYPE: u16 = 3;
const OBJECT_DATA: u16 = 4;
const TYPE_COUNTER: u32 = 1;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;
/// Bits of an attribute's type that say how it is written.
const TYPE_FLAGS: u16 = 0xc000;

impl PacketLog {
    /// Binds the first free group, in the calling thread's namespace.
    pub fn open() -> io::Result<PacketLog> {
        let mut taken = None;
        for group in GROUPS {
            match PacketLog::bind(group) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) => taken = Some(error),
                other => return other,
            }
        }
        Err(taken.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }

    fn bind(group: u16) -> io::Result<PacketLog> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_rx_buf_sz(WAITING_BYTES as u32)?;
        let mut log = PacketLog { socket, group, buffer: vec![0; 64 << 10] };
        log.configure(CONFIG_COMMAND, &[COMMAND_BIND])?;
        let [a, b, c, d] = COPY_BYTES.to_be_bytes();
        log.configure(CONFIG_MODE, &[a, b, c, d, MODE_PACKET, 0])?;
        log.socket.set_non_blocking(true)?;
        Ok(log)
    }

    fn configure(&mut self, attribute: u16, value: &[u8]) -> io::Result<()> {
        let mut message = Message::new(LOG_CONFIG, F_REQUEST | F_ACK, 0, self.group);
        message.attribute(attribute, value);
        self.socket.send(&message.finish(), 0)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            for (kind, payload) in messages(&answer) {
                if kind == ERROR {
                    return error_in(payload);
                }
            }
        }
    }

    /// Its number.
    #[must_use]
    pub fn group(&self) -> u16 {
        self.group
    }

    /// Gives the packets of one batch to `each`, with what their rules say of them (`log prefix`); `false`: none waits.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> bool {
        match rustix::io::read(&self.socket, &mut self.buffer[..]) {
            Ok(length) => {
                for (kind, payload) in messages(&self.buffer[..length]) {
                    let attributes = payload.get(FAMILY_HEADER..).unwrap_or_default();
                    if kind == LOG_PACKET
                        && let Some(packet) = find(attributes, LOG_PAYLOAD)
                    {
                        // A C string.
                        let prefix = find(attributes, LOG_PREFIX).unwrap_or_default();
                        each(prefix.split(|byte| *byte == 0).next().unwrap_or_default(), packet);
                    }
                }
                true
            }
            // Some were lost for want of room (ENOBUFS); what came after them is still there.
            Err(error) => error == rustix::io::Errno::NOBUFS,
        }
    }
}

impl Counter {
    /// The counter `name` of the inet table `table`.
    pub fn open(table: &str, name: &str) -> io::Result<Counter> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let mut message = Message::new(GET_OBJECT, F_REQUEST, FAMILY_INET, 0);
        message.attribute(OBJECT_TABLE, &[table.as_bytes(), &[0]].concat());
        message.attribute(OBJECT_NAME, &[name.as_bytes(), &[0]].concat());
        message.attribute(OBJECT_TYPE, &TYPE_COUNTER.to_be_bytes());
        Ok(Counter { socket, request: message.finish() })
    }

    /// The counters that it shows.
    pub fn read(&mut self) -> io::Result<Bypassed> {
        self.socket.send(&self.request, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        for (kind, payload) in messages(&answer) {
            match kind {
                ERROR => error_in(payload)?,
                NEW_OBJECT => return counted(payload).ok_or_else(|| io::ErrorKind::InvalidData.into()),
                _ => {}
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl AsFd for PacketLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn counted(object: &[u8]) -> Option<Bypassed> {
    let data = find(object.get(FAMILY_HEADER..)?, OBJECT_DATA)?;
    let number = |kind| Some(u64::from_be_bytes(find(data, kind)?.try_into().ok()?));
    Some(Bypassed { packets: number(COUNTER_PACKETS)?, bytes: number(COUNTER_BYTES)? })
}

fn error_in(payload: &[u8]) -> io::Result<()> {
    let code = payload.get(..4).and_then(|code| code.try_into().ok()).map_or(-libc::EBADMSG, i32::from_ne_bytes);
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

/// A message under construction (RFC 3549 §2.3).
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16, family: u8, number: u16) -> Message {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([family, 0]);
        bytes.extend(number.to_be_bytes());
        Message { bytes }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// The kinds and payloads of the messages in a datagram.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let payload = bytes.get(MESSAGE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The value of the first attribute of this kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if kind & !TYPE_FLAGS == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_found_again() {
        let mut message = Message::new(LOG_PACKET, F_REQUEST, 2, 7);
        message.attribute(LOG_PREFIX, b"five\0");
        message.attribute(LOG_PAYLOAD, b"packet");
        let mut bytes = message.finish();
        bytes.extend(bytes.clone());
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!(found.len(), 2);
        for (kind, payload) in found {
            assert_eq!((kind, find(&payload[FAMILY_HEADER..], LOG_PAYLOAD)), (LOG_PACKET, Some(&b"packet"[..])));
            assert_eq!(find(&payload[FAMILY_HEADER..], LOG_PREFIX), Some(&b"five\0"[..]));
            assert_eq!(find(&payload[FAMILY_HEADER..], 8), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0u32..100, inner in 0u16..60) {
            let mut bytes = bytes;
            if bytes.len() >= 40 {
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[20..22].copy_from_slice(&inner.to_ne_bytes());
            }
            for (_, payload) in messages(&bytes).take(1_000) {
                let _ = (find(payload, LOG_PAYLOAD), counted(payload), error_in(payload));
            }
        }
    }
}
