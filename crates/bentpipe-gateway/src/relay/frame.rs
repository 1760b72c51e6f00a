//! What two relays say to each other on a stream, version 2.
//!
//! Each direction is a sequence of frames: a header of one to three bytes, then the payload. The header is `length << 3 |
//! kind`, in groups of seven bits, lowest first, the eighth bit set on all but the last (LEB128).
//!
//! | kind | payload |
//! |---|---|
//! | 0 data | 1 to 16384 bytes |
//! | 1 packed | data after compression: a varint `length before << 1 \| fresh`, then zstd; `fresh` starts a new context |
//! | 2 urgent | one byte (RFC 6093) |
//! | 3 end | nothing: the end of this direction. A direction that stops without it was broken off |
//! | 4 opening | the first frame of whoever opened the stream: [`Opening`] |
//! | 5 reply | the first frame of the other: [`Reply`] |
//! | 6 plain | nothing: no more packed frames will come, the receiver may forget its context |
//!
//! [`Credit`] goes as words on the control stream ([`Satellite::signal`](crate::satellite::Satellite::signal)); the first is
//! part of the opening and the reply.

use crate::log_event::{Outcome, Server};
use crate::protocol::VERSION;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most bytes of a data frame, and of a packed one before compression.
pub(crate) const DATA_MAX: usize = 16_384;
/// Most bytes of a packed frame: a length, and what zstd may add to data that do not shrink (`ZSTD_COMPRESSBOUND`: 1/256
/// and 64 bytes; frame and flush headers).
pub(crate) const PACKED_MAX: usize = DATA_MAX + DATA_MAX / 256 + 128;
/// Most bytes of a header.
pub(crate) const HEADER_MAX: usize = 3;
/// Most bytes before a frame's payload: a plain frame and a header.
pub(crate) const HEADROOM: usize = 1 + HEADER_MAX;
/// Longest name in an opening (RFC 1928 §5: one octet of length; a domain name has at most 253, RFC 1035 §2.3.4).
pub(crate) const NAME_MAX: usize = 255;

/// Codes of [`Satellite::reset`](crate::satellite::Satellite::reset) and `stop`.
pub(crate) mod code {
    /// The TCP connection was reset, or its peer no longer answers.
    pub const RESET: u32 = 1;
    /// The request was given up.
    pub const GIVEN_UP: u32 = 2;
    /// The stream broke the protocol.
    pub const MALFORMED: u32 = 3;
    /// The gateway ends.
    pub const ENDING: u32 = 4;
}

/// A violation of the protocol by the other relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub &'static str);

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Data,
    Packed,
    Urgent,
    End,
    Opening,
    Reply,
    Plain,
}

impl Kind {
    const ALL: [Kind; 7] = [Kind::Data, Kind::Packed, Kind::Urgent, Kind::End, Kind::Opening, Kind::Reply, Kind::Plain];

    /// Lengths that a payload may have.
    fn lengths(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Kind::Data => 1..=DATA_MAX,
            Kind::Packed => 2..=PACKED_MAX,
            Kind::Urgent => 1..=1,
            Kind::Reply => 2..=1 + HEADER_MAX,
            Kind::End | Kind::Plain => 0..=0,
            Kind::Opening => Opening::LENGTH_MIN..=Opening::LENGTH_MAX,
        }
    }
}

/// Appends `value` in groups of seven bits.
pub(crate) fn put_varint(mut value: u32, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A number of at most three groups and its length; `None`: it is cut off. Forms longer than needed are refused.
pub(crate) fn take_varint(from: &[u8]) -> Result<Option<(u32, usize)>, Malformed> {
    let mut value = 0;
    for (i, byte) in from.iter().take(HEADER_MAX).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return if *byte == 0 && i > 0 {
                Err(Malformed("a number in a longer form"))
            } else {
                Ok(Some((value, i + 1)))
            };
        }
    }
    if from.len() < HEADER_MAX { Ok(None) } else { Err(Malformed("a number out of range")) }
}

/// Appends the header of a frame.
pub(crate) fn put_header(kind: Kind, length: usize, into: &mut Vec<u8>) {
    debug_assert!(kind.lengths().contains(&length));
    put_varint((length as u32) << 3 | kind as u32, into);
}

/// The header at the start of `from`: kind, length of the payload, own length; `None`: it is cut off.
pub(crate) fn take_header(from: &[u8]) -> Result<Option<(Kind, usize, usize)>, Malformed> {
    let Some((value, own)) = take_varint(from)? else { return Ok(None) };
    let kind = *Kind::ALL.get((value & 7) as usize).ok_or(Malformed("a frame of an unknown kind"))?;
    let length = (value >> 3) as usize;
    if !kind.lengths().contains(&length) {
        return Err(Malformed("a frame of a length that its kind does not have"));
    }
    Ok(Some((kind, length, own)))
}

/// What a frame costs of the credit of its direction: its bytes, or a quarter of what is in it. So whoever compresses well
/// has at most four times as much on its way as whoever does not, and a reader who rests holds back what is sent to it.
pub(crate) fn cost(frame: usize, plain: usize) -> usize {
    frame.max(plain / 4)
}

/// Bytes of a unit of credit.
pub(crate) const UNIT: u64 = 1024;

/// Credit for a direction, a word from its receiver or to it: `units << 2 | which`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credit {
    /// 0: so many units more may be sent.
    Grant(u32),
    /// 1: so many units of what this word's sender was granted will not be used.
    Return(u32),
    /// 2, and no units: what is not needed is to be returned.
    Ask,
}

impl Credit {
    /// Most units of one word.
    pub(crate) const MOST: u32 = (1 << (7 * HEADER_MAX - 2)) - 1;

    /// The word.
    pub(crate) fn word(self) -> u32 {
        match self {
            Credit::Grant(units) => units.min(Credit::MOST) << 2,
            Credit::Return(units) => units.min(Credit::MOST) << 2 | 1,
            Credit::Ask => 2,
        }
    }

    /// What a word says.
    pub(crate) fn of(word: u32) -> Result<Credit, Malformed> {
        match (word & 3, word >> 2) {
            (_, units) if units > Credit::MOST => Err(Malformed("a credit out of range")),
            (0, units) if units > 0 => Ok(Credit::Grant(units)),
            (1, units) if units > 0 => Ok(Credit::Return(units)),
            (2, 0) => Ok(Credit::Ask),
            _ => Err(Malformed("an unknown credit")),
        }
    }
}

/// The description of a request by the side that received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// In whose name to connect.
    pub client: Option<SocketAddr>,
    /// Where to.
    pub server: Server,
    /// The traffic class octet of the client's packets.
    pub traffic_class: u8,
    /// The sender of this keeps room to unpack what comes back.
    pub may_pack: bool,
    /// Units of credit for what comes back, beyond what every direction has.
    pub credit: u32,
}

const NAMED: u8 = 1;
const SERVER_V6: u8 = 2;
const CLIENT: u8 = 4;
const CLIENT_V6: u8 = 8;
const MAY_PACK: u8 = 16;

impl Opening {
    /// Version, flags and traffic class; credit; a name of one letter and a port.
    const LENGTH_MIN: usize = 3 + 1 + 1 + 1 + 2;
    /// Version, flags and traffic class; credit; a name; a client's IPv6 address and port.
    const LENGTH_MAX: usize = 3 + HEADER_MAX + 1 + NAME_MAX + 2 + 18;

    /// Appends the frame.
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        let mut flags = if self.may_pack { MAY_PACK } else { 0 };
        let mut body = Vec::with_capacity(40);
        put_varint(self.credit.min(Credit::MOST), &mut body);
        match &self.server {
            Server::Address(address) => {
                flags |= if address.is_ipv6() { SERVER_V6 } else { 0 };
                put_address(address, &mut body);
            }
            Server::Name(name, port) => {
                flags |= NAMED;
                let name = &name.as_bytes()[..name.len().min(NAME_MAX)];
                body.push(name.len() as u8);
                body.extend_from_slice(name);
                body.extend_from_slice(&port.to_be_bytes());
            }
        }
        if let Some(client) = &self.client {
            flags |= CLIENT | if client.is_ipv6() { CLIENT_V6 } else { 0 };
            put_address(client, &mut body);
        }
        put_header(Kind::Opening, body.len() + 3, into);
        into.extend_from_slice(&[VERSION, flags, self.traffic_class]);
        into.extend_from_slice(&body);
    }

    /// Reads the payload of the frame.
    pub(crate) fn take(payload: &[u8]) -> Result<Opening, Malformed> {
        let mut rest = payload;
        let [version, flags, traffic_class] = *array(&mut rest)?;
        if version != VERSION {
            return Err(Malformed("an opening of another version of the protocol"));
        }
        if flags & !(NAMED | SERVER_V6 | CLIENT | CLIENT_V6 | MAY_PACK) != 0
            || flags & (NAMED | SERVER_V6) == NAMED | SERVER_V6
            || flags & (CLIENT | CLIENT_V6) == CLIENT_V6
        {
            return Err(Malformed("an opening with unknown flags"));
        }
        let (credit, own) = take_varint(rest)?.ok_or(Malformed("an opening that is cut off"))?;
        rest = &rest[own..];
        let server = if flags & NAMED != 0 {
            let [length] = *array(&mut rest)?;
            let (name, after) =
                rest.split_at_checked(usize::from(length)).ok_or(Malformed("an opening that is cut off"))?;
            rest = after;
            let name = std::str::from_utf8(name).map_err(|_| Malformed("a name that is not text"))?;
            if !is_name(name) {
                return Err(Malformed("a name that no host can have"));
            }
            Server::Name(name.to_owned(), u16::from_be_bytes(*array(&mut rest)?))
        } else {
            Server::Address(take_address(flags & SERVER_V6 != 0, &mut rest)?)
        };
        let client = match flags & CLIENT {
            0 => None,
            _ => Some(take_address(flags & CLIENT_V6 != 0, &mut rest)?),
        };
        if !rest.is_empty() {
            return Err(Malformed("an opening with bytes left over"));
        }
        Ok(Opening { client, server, traffic_class, may_pack: flags & MAY_PACK != 0, credit })
    }
}

/// True if `name` may be looked up: letters, digits, hyphens, underscores and dots (RFC 1123 §2.1; names of services have
/// underscores), nothing empty, 253 bytes at most.
pub(crate) fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    (1..=253).contains(&name.len())
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

/// The other side's answer to an [`Opening`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Its outcome.
    pub outcome: Outcome,
    /// The sender of this keeps room to unpack what comes.
    pub may_pack: bool,
    /// Units of credit for what comes, beyond what every direction has.
    pub credit: u32,
}

impl Reply {
    const OUTCOMES: [Outcome; 6] =
        [Outcome::Open, Outcome::Refused, Outcome::Unreachable, Outcome::TimedOut, Outcome::Denied, Outcome::Busy];

    /// Appends the frame.
    pub(crate) fn put(self, into: &mut Vec<u8>) {
        let mut payload = vec![self.outcome as u8 | if self.may_pack { 0x80 } else { 0 }];
        put_varint(self.credit.min(Credit::MOST), &mut payload);
        put_header(Kind::Reply, payload.len(), into);
        into.extend_from_slice(&payload);
    }

    /// Reads the payload of the frame.
    pub(crate) fn take(payload: &[u8]) -> Result<Reply, Malformed> {
        let (first, rest) = payload.split_first().ok_or(Malformed("a reply that is cut off"))?;
        let outcome = *Reply::OUTCOMES.get(usize::from(first & 0x7f)).ok_or(Malformed("an unknown reply"))?;
        match take_varint(rest)? {
            Some((credit, own)) if own == rest.len() => Ok(Reply { outcome, may_pack: first & 0x80 != 0, credit }),
            _ => Err(Malformed("a reply of the wrong length")),
        }
    }
}

fn put_address(address: &SocketAddr, into: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(ip) => into.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => into.extend_from_slice(&ip.octets()),
    }
    into.extend_from_slice(&address.port().to_be_bytes());
}

fn take_address(v6: bool, rest: &mut &[u8]) -> Result<SocketAddr, Malformed> {
    let ip: IpAddr =
        if v6 { Ipv6Addr::from(*array::<16>(rest)?).into() } else { Ipv4Addr::from(*array::<4>(rest)?).into() };
    Ok(SocketAddr::new(ip, u16::from_be_bytes(*array(rest)?)))
}

fn array<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], Malformed> {
    let (first, after) = rest.split_first_chunk::<N>().ok_or(Malformed("an opening that is cut off"))?;
    *rest = after;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<bool>(), any::<[u8; 16]>(), any::<u16>()).prop_map(|(v6, ip, port)| {
            let ip = if v6 { IpAddr::from(ip) } else { IpAddr::from([ip[0], ip[1], ip[2], ip[3]]) };
            SocketAddr::new(ip, port)
        })
    }

    fn server() -> impl Strategy<Value = Server> {
        prop_oneof![
            address().prop_map(Server::Address),
            ("[a-z0-9_-]{1,63}(\\.[a-z0-9-]{1,20}){0,3}", any::<u16>())
                .prop_map(|(name, port)| Server::Name(name, port)),
        ]
    }

    #[test]
    fn the_shortest_opening_names_a_server_by_one_letter() {
        let server = Server::Name("h".to_owned(), 80);
        let opening = Opening { client: None, server, traffic_class: 0, may_pack: false, credit: 0 };
        let mut bytes = Vec::new();
        opening.put(&mut bytes);
        let (kind, length, own) = take_header(&bytes).unwrap().unwrap();
        assert_eq!((kind, length), (Kind::Opening, Opening::LENGTH_MIN));
        assert_eq!(Opening::take(&bytes[own..]).unwrap(), opening);
    }

    proptest! {
        #[test]
        fn an_opening_is_read_as_it_was_written(
            client in proptest::option::of(address()), server in server(), traffic_class: u8, may_pack: bool,
            credit in 0..=Credit::MOST,
        ) {
            let opening = Opening { client, server, traffic_class, may_pack, credit };
            let mut bytes = Vec::new();
            opening.put(&mut bytes);
            let (kind, length, own) = take_header(&bytes).unwrap().unwrap();
            prop_assert_eq!((kind, length + own), (Kind::Opening, bytes.len()));
            prop_assert_eq!(Opening::take(&bytes[own..]).unwrap(), opening);
            for cut in own..bytes.len() {
                prop_assert!(Opening::take(&bytes[own..cut]).is_err());
            }
        }

        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((kind, length, own))) = take_header(&bytes) {
                prop_assert!(kind.lengths().contains(&length));
                let mut again = Vec::new();
                put_header(kind, length, &mut again);
                prop_assert_eq!(&again[..], &bytes[..own]);
            }
            if let Ok(opening) = Opening::take(&bytes)
                && opening.credit <= Credit::MOST
            {
                let mut again = Vec::new();
                opening.put(&mut again);
                let (_, length, own) = take_header(&again).unwrap().unwrap();
                prop_assert_eq!(&again[own..], &bytes[..]);
                prop_assert_eq!(length, bytes.len());
            }
            if let Some(word) = bytes.first_chunk::<4>().map(|word| u32::from_le_bytes(*word))
                && let Ok(credit) = Credit::of(word)
            {
                prop_assert_eq!(credit.word(), word);
            }
            let reply = &bytes[..bytes.len().min(4)];
            if let Ok(read) = Reply::take(reply)
                && read.credit <= Credit::MOST
            {
                let mut again = Vec::new();
                read.put(&mut again);
                prop_assert_eq!(&again[1..], reply);
            }
        }
    }

    #[test]
    fn a_name_may_be_one_letter() {
        let server = Server::Name("a".to_owned(), 80);
        let opening = Opening { client: None, server, traffic_class: 0, may_pack: false, credit: 0 };
        let mut bytes = Vec::new();
        opening.put(&mut bytes);
        let (_, length, own) = take_header(&bytes).unwrap().unwrap();
        assert_eq!(Opening::take(&bytes[own..own + length]).unwrap(), opening);
    }

    #[test]
    fn frames_cost_few_bytes() {
        for (length, header) in [(1, 1), (15, 1), (16, 2), (2047, 2), (2048, 3), (DATA_MAX, 3)] {
            let mut bytes = Vec::new();
            put_header(Kind::Data, length, &mut bytes);
            assert_eq!(bytes.len(), header, "{length} bytes");
        }
        let opening = Opening {
            client: Some("10.0.0.2:40000".parse().unwrap()),
            server: Server::Address("10.1.0.2:80".parse().unwrap()),
            traffic_class: 0,
            may_pack: true,
            credit: 100,
        };
        let mut bytes = Vec::new();
        opening.put(&mut bytes);
        assert_eq!(bytes.len(), 18);
    }
}
