use super::*;
use bentpipe_net::headers::complete_checksum;

const CLIENT: [u8; 4] = [198, 18, 0, 2];
const SERVER: [u8; 4] = [198, 18, 0, 1];

/// A frame with a TCP segment; a SYN offers an MSS of 1460 and the given scale.
fn frame(from: [u8; 4], to: [u8; 4], flags: u8, window: u16, scale: Option<u8>, data: usize) -> Vec<u8> {
    let options: &[u8] = &match (flags & flag::SYN != 0, scale) {
        (true, Some(shift)) => vec![2, 4, 5, 180, 1, 3, 3, shift],
        (true, None) => vec![2, 4, 5, 180],
        (false, _) => vec![],
    };
    let header = 20 + options.len();
    let total = 20 + header + data;
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from);
    frame.extend(to);
    let ports = if from == CLIENT { [200, 0, 0, 80] } else { [0, 80, 200, 0] };
    frame.extend(ports);
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, (header as u8 / 4) << 4, flags]);
    frame.extend(window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(options);
    frame.extend(vec![7; data]);
    complete_checksum(&mut frame, true);
    frame
}

fn window_of(frame: &[u8]) -> u16 {
    tcp(frame, true).unwrap().window
}

fn tap(receive_window: Option<u64>, send_buffer: Option<u64>) -> Tap {
    Tap::new(vec![IpAddr::from(CLIENT)], WindowLimits { receive_window, send_buffer })
}

/// The client opens with `own` scale, the server answers with `peer` scale; returns the shifts the SYNs then show.
fn open(tap: &mut Tap, own: Option<u8>, peer: Option<u8>) -> (Option<u8>, Option<u8>) {
    let mut syn = frame(CLIENT, SERVER, flag::SYN, 64_000, own, 0);
    tap.leaving(Instant::ZERO, &mut syn);
    let mut answer = frame(SERVER, CLIENT, flag::SYN | flag::ACK, 65_000, peer, 0);
    tap.arriving(Instant::ZERO, &mut answer);
    let shown = |frame: &[u8]| TcpOptions::of(frame, &tcp(frame, true).unwrap()).window_scale;
    (shown(&syn), shown(&answer))
}

#[test]
fn a_window_is_lowered_to_whole_segments_and_never_raised() {
    let mut tap = tap(Some(8192), None);
    assert_eq!(open(&mut tap, None, None), (None, None));
    let mut ack = frame(CLIENT, SERVER, flag::ACK, 60_000, None, 0);
    tap.leaving(Instant::ZERO, &mut ack);
    assert_eq!(window_of(&ack), 5 * 1460);
    let mut small = frame(CLIENT, SERVER, flag::ACK, 1000, None, 0);
    tap.leaving(Instant::ZERO, &mut small);
    assert_eq!(window_of(&small), 1000);
    let mut closed = frame(CLIENT, SERVER, flag::ACK, 0, None, 0);
    tap.leaving(Instant::ZERO, &mut closed);
    assert_eq!(window_of(&closed), 0);
}

#[test]
fn a_large_scale_is_lowered_so_that_small_windows_are_exact() {
    let mut tap = tap(Some(24_576), Some(8192));
    // The kernels offer 14 and 10; 24 KiB and 8 KiB need no scale at all.
    assert_eq!(open(&mut tap, Some(14), Some(10)), (Some(0), Some(0)));
    let mut ack = frame(CLIENT, SERVER, flag::ACK, 40, None, 0);
    tap.leaving(Instant::ZERO, &mut ack);
    assert_eq!(window_of(&ack), 16 * 1460, "40 << 14 is far above the limit");
    let mut below = frame(CLIENT, SERVER, flag::ACK, 1, None, 0);
    tap.leaving(Instant::ZERO, &mut below);
    assert_eq!(window_of(&below), 1 << 14, "below the limit, but in another scale");
    let mut from_peer = frame(SERVER, CLIENT, flag::ACK, 63, None, 100);
    tap.arriving(Instant::ZERO, &mut from_peer);
    assert_eq!(window_of(&from_peer), 5 * 1460);
}

#[test]
fn a_large_window_keeps_the_scale_it_needs() {
    let mut tap = tap(Some(154_000), None);
    assert_eq!(
        open(&mut tap, Some(9), Some(7)),
        (Some(2), Some(7)),
        "154000 >> 2 fits 16 bits; no limit on the peer's"
    );
    let mut ack = frame(CLIENT, SERVER, flag::ACK, 60_000, None, 0);
    tap.leaving(Instant::ZERO, &mut ack);
    let advertised = u64::from(window_of(&ack)) << 2;
    assert_eq!(advertised, 154_000 / 1460 * 1460);
}

#[test]
fn without_scaling_on_one_side_nothing_is_scaled() {
    let mut tap = tap(Some(8192), None);
    assert_eq!(open(&mut tap, Some(10), None), (Some(0), None));
    let mut ack = frame(CLIENT, SERVER, flag::ACK, 60_000, None, 0);
    tap.leaving(Instant::ZERO, &mut ack);
    assert_eq!(window_of(&ack), 5 * 1460);
}

#[test]
fn what_passes_through_is_left_alone_and_not_followed() {
    let mut tap = tap(Some(8192), Some(8192));
    let mut routed = frame(SERVER, [198, 18, 9, 9], flag::ACK, 60_000, None, 10);
    let before = routed.clone();
    tap.leaving(Instant::ZERO, &mut routed);
    tap.arriving(Instant::ZERO, &mut routed);
    assert_eq!(routed, before);
    assert_eq!(tap.connections().count(), 0);
}
