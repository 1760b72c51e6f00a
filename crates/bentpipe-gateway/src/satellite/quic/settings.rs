//! Settings of the QUIC library and limits of its queues: functions of the link.

use super::controller::{InFlight, InertFactory};
use super::pacer::headers;
use crate::satellite::SatelliteConfig;
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;
use quinn_proto::{AckFrequencyConfig, TransportConfig, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;

/// Smallest datagram that QUIC may not fragment (RFC 9000 §14).
pub(super) const DATAGRAM_MIN: u64 = 1200;
/// Largest payload of UDP.
const DATAGRAM_MAX: u64 = 65_527;
/// Streams that the other side may open beyond the relay's connections: those that are refused, and those that have ended
/// but not arrived.
const STREAMS_SPARE: usize = 1024;
/// Streams that a caller who has not proved its key may have: each takes room (quinn-proto `state.rs`).
const STREAMS_FIRST: u64 = 2048;
/// This part of the memory is for what is sent and kept until it has arrived, the rest for what is on its way to this side.
const SEND_PART: u64 = 4;
/// Overhead of a datagram of stream data, in bytes: header, tag and frame: 1 + 4 + 3, 16, 1 + 4 + 5 + 2.
pub(super) const OVERHEAD: u64 = 36;
/// The longest set-up of a circuit that is no failure: that of Inmarsat Mini-M takes 50.73 s (`links/inmarsat-mini-m.toml`).
pub(super) const CIRCUIT_SET_UP: Duration = Duration::from_secs(60);
/// When nobody says how fast data comes in.
const INCOMING_GUESS: BitRate = BitRate::from_bps(20_000_000);

/// The link, as far as the numbers here depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Largest datagram that the library makes.
    pub(super) datagram: u64,
    /// Bytes of stream data to give the library for one datagram; fewer than fit where shorter packets carry more.
    pub(super) payload: u64,
    /// Bytes that a stream, or all together, may have on their way: what arrives is read at once. A stream's is fixed when
    /// a connection begins, so sized for any rate that the memory suffices for.
    pub(super) receive_window: u64,
    /// From a handshake datagram to its answer, on a link that carries nothing else.
    pub(super) first_round_trip: Duration,
}

impl Sizes {
    pub(super) fn new(config: &SatelliteConfig, incoming: Option<BitRate>, remote: SocketAddr) -> Sizes {
        let header = headers(remote);
        let fits = config.mtu.saturating_sub(header).min(DATAGRAM_MAX);
        let datagram = fits.max(DATAGRAM_MIN);
        let memory = config.memory.bytes;
        // One round trip, an eighth between credits (quinn-proto `recv.rs`), and as much again for lost ones. Everything is
        // read at once, so losses hold no credit back.
        let least = (3 * round_trip_bytes(config, incoming)).clamp(512 << 10, 128 << 20);
        Sizes {
            datagram,
            payload: best_payload(fits, header, config.loss, config.mtu),
            receive_window: (memory - memory / SEND_PART).max(least),
            first_round_trip: config.round_trip.max(Duration::from_millis(20)) + packets(config, incoming),
        }
    }
}

/// Bytes that come in within a round trip, with 50 ms for what delays acknowledgements.
pub(super) fn round_trip_bytes(config: &SatelliteConfig, incoming: Option<BitRate>) -> u64 {
    let incoming = incoming.unwrap_or_else(|| config.rate.unwrap_or_default().max(INCOMING_GUESS));
    incoming.bytes_in(config.round_trip + Duration::from_millis(50))
}

/// The payload at which the largest share of the link carries data, when bit errors damage `loss` of the packets of
/// `mtu` bytes: long packets spend less on headers and are damaged more often.
fn best_payload(fits: u64, header: u64, loss: f64, mtu: u64) -> u64 {
    let most = fits.saturating_sub(OVERHEAD).max(64);
    // Per byte: 1 - loss = (1 - ratio)^mtu.
    let survival = (1.0 - loss.clamp(0.0, 0.9)).powf(1.0 / mtu.max(1) as f64);
    let share = |payload: u64| {
        let whole = payload + OVERHEAD + header;
        payload as f64 / whole as f64 * survival.powf(whole as f64)
    };
    let candidates = (256..=most).step_by(32).chain([most]);
    let best = candidates.fold(most, |best, payload| if share(payload) > share(best) { payload } else { best });
    // A gain below half a percent does not pay for more packets.
    if share(best) > 1.005 * share(most) { best } else { most }
}

/// The library's settings for a connection.
pub(super) fn transport(config: &SatelliteConfig, sizes: &Sizes, shared: &Arc<InFlight>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let rate = config.rate.unwrap_or(INCOMING_GUESS);
    transport
        .max_concurrent_bidi_streams(window(streams(config).min(STREAMS_FIRST)))
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .max_idle_timeout(None)
        .keep_alive_interval(None)
        .stream_receive_window(window(sizes.receive_window))
        .receive_window(window(sizes.receive_window))
        .send_window(send_window(config))
        .initial_mtu(sizes.datagram as u16)
        .min_mtu(DATAGRAM_MIN as u16)
        .mtu_discovery_config(None)
        .enable_segmentation_offload(false)
        .allow_spin(false)
        .datagram_receive_buffer_size(None)
        .initial_rtt(sizes.first_round_trip.to_std())
        .congestion_controller_factory(Arc::new(InertFactory(Arc::clone(shared))))
        .ack_frequency_config(Some(ack_frequency(config, rate)));
    transport
}

/// A number as the library takes it.
pub(super) fn window(count: u64) -> VarInt {
    VarInt::from_u64(count).unwrap_or(VarInt::MAX)
}

/// Streams that the other gateway may have open.
pub(super) fn streams(config: &SatelliteConfig) -> u64 {
    config.connections.saturating_add(STREAMS_SPARE) as u64
}

/// Bytes that the library keeps until they have arrived: the round trips of a packet that is lost again and again.
pub(super) fn send_window(config: &SatelliteConfig) -> u64 {
    let rate = config.rate.unwrap_or(INCOMING_GUESS);
    let round_trip = config.round_trip.max(Duration::from_millis(1));
    (8 * rate.bytes_in(round_trip)).max(config.memory.bytes / SEND_PART)
}

/// The transmission time of a datagram of the handshake each way, at the rates that are known.
fn packets(config: &SatelliteConfig, incoming: Option<BitRate>) -> Duration {
    let packet = |rate: Option<BitRate>| rate.map(|rate| rate.time_for_bits(8 * (DATAGRAM_MIN + 60)));
    let (there, back) = (packet(config.rate), packet(incoming));
    let unknown = Duration::ZERO;
    there.or(back).unwrap_or(unknown) + back.or(there).unwrap_or(unknown)
}

/// Longest delay of the other side's acknowledgement: a sixteenth of a round trip.
pub(super) fn ack_delay(config: &SatelliteConfig) -> Duration {
    let share = Duration { ns: config.round_trip.ns / 16 };
    share.clamp(Duration::from_millis(5), Duration::from_millis(40))
}

/// The other side's acknowledgement frequency (draft-ietf-quic-ack-frequency): as many packets as the delay's worth, so that a
/// thin return link carries little else than data. A gap is reported once three packets have come after it.
fn ack_frequency(config: &SatelliteConfig, rate: BitRate) -> AckFrequencyConfig {
    let delay = ack_delay(config);
    let packets = rate.bytes_in(delay) / config.mtu.max(500);
    let mut frequency = AckFrequencyConfig::default();
    frequency
        .ack_eliciting_threshold(VarInt::from_u64(packets.clamp(1, 64)).unwrap_or(VarInt::from_u32(10)))
        .max_ack_delay(Some(delay.to_std()))
        .reordering_threshold(VarInt::from_u32(3));
    frequency
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_shorter_where_bit_errors_are_frequent() {
        let loss = |ratio: f64| 1.0 - (1.0 - ratio).powi(1500 * 8);
        let payload = |ratio| best_payload(1472, 28, loss(ratio), 1500);
        assert_eq!(payload(0.0), 1436);
        assert_eq!(payload(1e-7), 1436);
        // The best payload of p/(p+h)·(1-r)^(8(p+h)) is near sqrt(h/(8r)) = 900 for h = 64 and r = 1e-5.
        assert!((700..1000).contains(&payload(1e-5)), "{}", payload(1e-5));
        assert_eq!(best_payload(472, 28, 0.0, 500), 436, "a short packet stays one");
    }
}
