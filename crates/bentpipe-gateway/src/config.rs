//! What a gateway is told.

use crate::satellite::{SatelliteConfig, Side};
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::DataSize;

/// When a client's connection request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Open {
    /// Once the server has answered at the far side: a refusal is seen as a refusal.
    #[default]
    Answered,
    /// At once; data travel with the opening, which saves a round trip. A server that refuses is seen as a reset.
    Early,
}

/// What becomes of new connections while the other gateway cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fail {
    /// They pass the gateway by, unaccelerated; clients of the proxies are connected from this side.
    #[default]
    Open,
    /// They are refused at once; clients of the proxies are told that the gateway cannot connect them.
    Closed,
}

/// Whether what is relayed is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Where it makes data shorter.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// What the relay may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Bytes of all connections together that wait in the relay, above which no connection is added and those there are
    /// take in less at once. Three quarters of it may be granted to the other gateway as credit; where that is used up, a
    /// connection has 64 kB on its way and no more. A fast link needs room for four round trips' worth: 81 MB at
    /// 250 Mbit/s and 600 ms.
    pub total: DataSize,
    /// For the contexts of compression; a connection that finds no room is not compressed.
    pub compression: DataSize,
}

/// Which connections go before the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interactive {
    /// A connection that sends more than this within [`Interactive::period`] becomes bulk. `None`: what the link carries in
    /// two seconds, from 2 kB to 32 kB.
    pub bytes: Option<DataSize>,
    /// The allowance renews evenly over this time.
    pub period: Duration,
    /// Silence after which a bulk connection counts as interactive again.
    pub idle: Duration,
    /// Server ports that are always interactive.
    pub ports: Vec<u16>,
    /// Server ports that are always bulk.
    pub bulk_ports: Vec<u16>,
    /// DSCP values that are always interactive.
    pub dscp: Vec<u8>,
    /// DSCP values that are always bulk.
    pub bulk_dscp: Vec<u8>,
}

/// What a gateway is told. [`GatewayConfig::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The link and the other gateway.
    pub satellite: SatelliteConfig,
    /// UDP port of the satellite side; 0 takes a free one (a terminal's choice).
    pub local_port: u16,
    /// When requests are answered.
    pub open: Open,
    /// What becomes of requests while the other gateway cannot be reached.
    pub fail: Fail,
    /// How long new requests wait, once the other gateway is found silent, before [`GatewayConfig::fail`] applies to them;
    /// the same time is given to the first connection of the pair. On a dial-up link there is no such limit.
    pub grace: Duration,
    /// How long a request may wait for the far side's answer. Default: what Linux gives a connection attempt, 127 s
    /// (`tcp_syn_retries` = 6), so that a set-up of 50 s is no failure.
    pub answer: Duration,
    /// Requests that may wait at once; further ones are ignored until some are answered, and the clients ask again.
    pub pending: usize,
    /// Connections that may be relayed at once; further ones are ignored.
    pub connections: usize,
    /// Whether the other gateway may have this one connect to loopback addresses.
    pub loopback: bool,
    /// Compression of what this side sends.
    pub compression: Compression,
    /// Bounds of memory.
    pub memory: Memory,
    /// A SOCKS5 listener (RFC 1928), if any.
    pub socks_port: Option<u16>,
    /// An HTTP CONNECT listener (RFC 9110 §9.3.6), if any.
    pub connect_port: Option<u16>,
    /// How long a client of these listeners may take to say what it wants.
    pub asking: Duration,
    /// Which connections go first.
    pub interactive: Interactive,
}

impl Memory {
    /// What one connection may hold in the relay beside its credit, both directions together: a frame on its way out that
    /// the link has no room for, a frame that has arrived, what was read with it, what it unpacks to; and the 64 kB that
    /// every connection may have on its way.
    pub const CONNECTION: DataSize = DataSize { bytes: 128 << 10 };
}

impl Default for Memory {
    fn default() -> Self {
        Memory { total: DataSize::from_bytes(256 << 20), compression: DataSize::from_bytes(64 << 20) }
    }
}

impl Default for Interactive {
    fn default() -> Self {
        Interactive {
            bytes: None,
            period: Duration::from_secs(10),
            idle: Duration::from_secs(2),
            ports: vec![22, 23, 53],
            bulk_ports: vec![20, 873],
            // EF and CS5 are interactive (RFC 4594 §2.3), CS1 and LE (RFC 8622) bulk.
            dscp: vec![46, 40],
            bulk_dscp: vec![8, 1],
        }
    }
}

impl GatewayConfig {
    /// The defaults on this link.
    #[must_use]
    pub fn new(satellite: SatelliteConfig) -> GatewayConfig {
        GatewayConfig {
            satellite,
            local_port: 0,
            open: Open::default(),
            fail: Fail::default(),
            grace: Duration::from_secs(3),
            answer: Duration::from_secs(127),
            pending: 1024,
            connections: SatelliteConfig::CONNECTIONS,
            loopback: false,
            compression: Compression::default(),
            memory: Memory::default(),
            socks_port: None,
            connect_port: None,
            asking: Duration::from_secs(10),
            interactive: Interactive::default(),
        }
    }
}

impl SatelliteConfig {
    /// How long streams outlive silence unless something else is asked for.
    pub const HOLD: Duration = Duration::from_secs(300);
    /// Connections at once unless something else is asked for.
    pub const CONNECTIONS: usize = 16_384;

    /// What a gateway at `side` of `link` should know of it: the rate of its sending direction at the start, the
    /// share of packets that its bit errors and its packet loss take there, and whether it must be set up.
    #[must_use]
    pub fn of_link(link: &LinkConfig, side: Side) -> SatelliteConfig {
        let sending = match side {
            Side::Hub => &link.forward,
            Side::Terminal(_) => &link.back,
        };
        let (rate, _) = sending.rate.at(Instant::ZERO);
        SatelliteConfig {
            side,
            rate: Some(bentpipe_net::units::BitRate::from_bps(rate.bps.saturating_mul(sending.channels as u64))),
            framing: sending.framing,
            round_trip: link.round_trip(),
            mtu: link.mtu,
            loss: loss(sending, link.mtu),
            dial_up: link.circuit.is_some(),
            hold: SatelliteConfig::HOLD,
            connections: SatelliteConfig::CONNECTIONS,
            memory: Memory::default().total,
        }
    }
}

/// The share of packets of `mtu` bytes that a direction loses: by bit errors at the start of its schedule, and by packet
/// loss.
fn loss(direction: &DirectionConfig, mtu: u64) -> f64 {
    let (ratio, _) = direction.noise.at(Instant::ZERO);
    let damaged = if direction.framing.checks() { ratio.packet_error_ratio(mtu * 8) } else { 0.0 };
    let lost = direction.medium.loss.as_ref().map_or(0.0, |loss| loss.share);
    1.0 - (1.0 - damaged) * (1.0 - lost)
}
