//! A datagram as fields and as bytes, and what a queue would see of it.

use bentpipe_net::datagram::{Body, Datagram, Payload, Segment, flag};
use bentpipe_net::headers::Headers;
use bentpipe_net::wire;

fn main() {
    let segment = Segment {
        source_port: 40_000,
        destination_port: 80,
        flags: flag::ACK | flag::PSH,
        payload: Payload::from_vec(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ..Segment::default()
    };
    let datagram = Datagram::new([198, 18, 0, 2].into(), [198, 18, 0, 1].into(), Body::Tcp(segment));
    let mut bytes = Vec::new();
    wire::write(&datagram, &mut bytes);
    println!("{} bytes: {bytes:02x?}", bytes.len());
    println!("read again: {:?}", wire::parse(&bytes, false) == Some(datagram));
    if let Some(headers) = Headers::read(&bytes, false) {
        println!("flow {:?}, DSCP {}, pure acknowledgement: {}", headers.flow, headers.dscp(), headers.is_pure_ack());
    }
}
