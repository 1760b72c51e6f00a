//! The version of the protocol between the two gateways of a pair.

/// In every opening of a stream.
pub(crate) const VERSION: u8 = 2;
/// In the handshake (ALPN, RFC 7301): one with another version fails. It ends with [`VERSION`] as a digit.
pub(crate) const NAME: &[u8] = b"bentpipe/2";
const _: () = assert!(NAME[NAME.len() - 1] - b'0' == VERSION);
