//! The daemon's metrics for a monitoring system, as OpenMetrics over a small HTTP server.

mod line;

use bentpipe_gateway::Metrics;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The last metrics, shared with whoever serves them.
pub type Shared = Arc<Mutex<Metrics>>;

/// Who asks must do so within this time.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of a request that are read at most.
const REQUEST_MAX: usize = 8 << 10;
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the metrics at `address`, one request after another, as long as the process lives.
pub fn serve(address: SocketAddr, metrics: Shared) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // Whoever hangs up gets no answer.
                Ok(stream) => drop(answer(stream, &metrics)),
                // No descriptor left, as a rule.
                Err(_) => std::thread::sleep(REQUEST_LIMIT),
            }
        }
    })?;
    Ok(())
}

fn answer(mut stream: TcpStream, metrics: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(REQUEST_LIMIT))?;
    let deadline = Instant::now() + REQUEST_LIMIT;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_MAX {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&part[..length]),
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", text(*metrics.lock()))
    } else {
        ("404 Not Found", "the metrics are at /metrics\n".to_owned())
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// The metrics as OpenMetrics text.
#[must_use]
pub fn text(metrics: Metrics) -> String {
    let mut registry = Registry::with_prefix("bentpipe_gateway");
    registry.register_collector(Box::new(Snapshot(metrics)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Snapshot(Metrics);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let f = &self.0;
        let s = &f.satellite;
        let bytes = || Some(Unit::Bytes);
        let counters = [
            ("requests", "Connection requests intercepted, or made to a proxy here", None, f.requests),
            ("connections_relayed", "Connections opened at the server's side", None, f.relayed),
            ("requests_refused", "Requests that the server refused", None, f.refused),
            ("requests_unreachable", "Requests to servers that could not be reached", None, f.unreachable),
            ("requests_timed_out", "Requests that nobody answered in time", None, f.timed_out),
            ("requests_bypassed", "Requests that passed the gateway by", None, f.bypassed),
            ("requests_turned_away", "Requests refused for want of the other gateway", None, f.turned_away),
            ("requests_denied", "Requests that a gateway did not allow", None, f.denied),
            ("requests_over_limit", "Requests over a limit", None, f.over_limit),
            ("requests_abandoned", "Requests that the client gave up", None, f.abandoned),
            ("requests_malformed", "SOCKS and CONNECT clients that made no sense", None, f.bad_requests),
            ("connections_ended", "Connections that ended in order", None, f.ended),
            ("connections_reset", "Connections reset by client or server", None, f.reset),
            ("connections_lost", "Connections reset because the pair's connection was lost", None, f.lost),
            ("streams_malformed", "Connections reset because the other gateway broke the protocol", None, f.malformed),
            ("site_received", "Bytes taken from connections at this site", bytes(), f.bytes_taken),
            ("site_sent", "Bytes given to connections at this site", bytes(), f.bytes_given),
            ("stream_sent", "Bytes given to the satellite side, after compression", bytes(), f.bytes_sent),
            ("stream_received", "Bytes taken from the satellite side", bytes(), f.bytes_received),
            ("compression_input", "Bytes that went through compression", bytes(), f.compressed_from),
            ("compression_output", "What compression made of them", bytes(), f.compressed_to),
            ("bypass_packets", "Packets that passed the gateway by", None, f.bypass_packets),
            ("bypass", "Bytes of packets that passed the gateway by", bytes(), f.bypass_bytes),
            ("link_packets_sent", "Packets sent over the link", None, s.packets_sent),
            ("link_sent", "Bytes sent over the link, framing included", bytes(), s.link_bytes_sent),
            ("link_packets_received", "Packets received over the link", None, s.packets_received),
            ("link_packets_lost", "Packets that had to be sent again", None, s.packets_lost),
            ("link_delivered", "Bytes of streams known to have arrived", bytes(), s.delivered_bytes),
            ("link_packets_forged", "Packets that failed the cryptographic check", None, s.forged),
            ("unauthenticated_peers", "Handshakes refused because of the key", None, s.unauthenticated_peers),
            (
                "unauthenticated_packets",
                "Packets that belong to no connection of the pair",
                None,
                s.unauthenticated_packets,
            ),
            ("pair_connections", "Connections of the pair so far", None, s.connections),
        ];
        for (name, help, unit, value) in counters {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
        }
        if f.line.dials {
            line::encode(&f.line, &mut encoder)?;
        }
        let truth = |is: bool| if is { 1.0 } else { 0.0 };
        let gauges = [
            ("connections_open", "Relayed connections that are open", None, f.connections_open as f64),
            ("requests_pending", "Requests that wait for an answer", None, f.requests_pending as f64),
            ("memory", "Bytes that wait in the relay", bytes(), f.memory_buffered as f64),
            ("satellite_queued", "Bytes that wait for the link", bytes(), s.queued_bytes as f64),
            ("satellite_unacknowledged", "Bytes kept until they have arrived", bytes(), s.unacknowledged_bytes as f64),
            ("satellite_unread", "Bytes that came over the link, not read yet", bytes(), s.unread_bytes as f64),
            ("connected", "1 while the pair is connected", None, truth(f.connected)),
            ("silent", "1 while the other gateway is silent though something is expected", None, truth(f.silent)),
            ("handshakes", "Handshakes under way, at a hub", None, s.half_open as f64),
            ("rate_bits_per_second", "Rate at which packets are sent", None, s.rate_bps as f64),
            ("rate_declared_bits_per_second", "Rate that was declared; 0: none", None, s.declared_bps as f64),
            ("rate_throttled", "1 while the declared rate is too high for the link", None, truth(s.throttled)),
            ("round_trip", "Smoothed round-trip time", Some(Unit::Seconds), s.round_trip.as_secs_f64()),
            ("compression", "Bytes before compression by bytes after", Some(Unit::Ratios), f.compression_ratio()),
        ];
        for (name, help, unit, value) in gauges {
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_units_and_an_end() {
        let mut metrics = Metrics { requests: 7, connected: true, ..Metrics::default() };
        metrics.satellite.link_bytes_sent = 1500;
        metrics.satellite.unacknowledged_bytes = 75_000;
        let text = text(metrics);
        for line in [
            "bentpipe_gateway_requests_total 7",
            "bentpipe_gateway_link_sent_bytes_total 1500",
            "bentpipe_gateway_connected 1.0",
            "bentpipe_gateway_satellite_unacknowledged_bytes 75000.0",
            "# UNIT bentpipe_gateway_round_trip_seconds seconds",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn only_whole_requests_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..3 {
                let _ = answer(listener.accept().unwrap().0, &Shared::default());
            }
        });
        let ask = |request: &[u8]| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(ask(b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert_eq!(ask(b"GET /metr"), "");
        server.join().unwrap();
    }
}
