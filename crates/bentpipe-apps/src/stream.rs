//! Moving data over one connection until it would block, for a bounded turn.

use crate::progress::Arrivals;
use bentpipe_net::socket::{Received, ReceivedPattern, SocketError, SocketId, Sockets};
use bentpipe_net::time::Instant;

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// The socket would block, or a timer must come first: wait for the driver.
    Waiting,
    /// The turn was long enough; poll again at the same time.
    Again,
    /// Nothing is left: all was sent, or the peer's data has ended.
    Over,
}

/// Sends `pattern` from `at` up to `end`.
pub(crate) fn send_range(
    sockets: &mut dyn Sockets,
    socket: SocketId,
    pattern: u64,
    at: &mut u64,
    end: u64,
) -> Result<Turn, SocketError> {
    let turn_end = at.saturating_add(TURN_BYTES_MAX);
    while *at < end {
        if *at >= turn_end {
            return Ok(Turn::Again);
        }
        let offered = (end - *at).min(CALL_BYTES_MAX);
        let taken = sockets.send_pattern(socket, pattern, *at, offered)?;
        *at += taken;
        if taken < offered {
            return Ok(Turn::Waiting);
        }
    }
    Ok(Turn::Over)
}

/// Receives what should be `pattern` from `at`; `Over` at the peer's end of data.
pub(crate) fn receive_range(
    now: Instant,
    sockets: &mut dyn Sockets,
    socket: SocketId,
    pattern: u64,
    at: &mut u64,
    arrivals: &mut Arrivals,
) -> Result<Turn, SocketError> {
    let turn_end = at.saturating_add(TURN_BYTES_MAX);
    while *at < turn_end {
        match sockets.receive_pattern(socket, pattern, *at, CALL_BYTES_MAX)? {
            ReceivedPattern::Bytes { bytes, wrong, more } => {
                *at = at.saturating_add(bytes);
                arrivals.add(now, bytes, wrong);
                if !more && *at < turn_end {
                    return Ok(Turn::Waiting);
                }
            }
            ReceivedPattern::Nothing => return Ok(Turn::Waiting),
            ReceivedPattern::End => return Ok(Turn::Over),
        }
    }
    Ok(Turn::Again)
}

/// Receives and forgets; `Over` at the peer's end of data.
pub(crate) fn discard(sockets: &mut dyn Sockets, socket: SocketId) -> Result<(Turn, u64), SocketError> {
    // Mostly there is nothing: a large buffer only once there is something.
    let mut few = [0; 64];
    let mut scratch = Vec::new();
    let mut bytes = 0;
    while bytes < TURN_BYTES_MAX {
        let into = if bytes == 0 { &mut few[..] } else { &mut scratch[..] };
        match sockets.receive(socket, into)? {
            Received::Bytes(n) => {
                bytes += n as u64;
                scratch.resize(SCRATCH_BYTES, 0);
            }
            Received::Nothing => return Ok((Turn::Waiting, bytes)),
            Received::End => return Ok((Turn::Over, bytes)),
        }
    }
    Ok((Turn::Again, bytes))
}

/// Most bytes that one call asks for.
pub(crate) const CALL_BYTES_MAX: u64 = 256 * 1024;
/// Most bytes that one connection moves in one turn: a peer as fast as we are must not keep the driver from the others.
pub(crate) const TURN_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The buffer that bytes without a known pattern go through.
pub(crate) const SCRATCH_BYTES: usize = 16 * 1024;
