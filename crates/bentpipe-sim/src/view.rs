//! The state of a simulated TCP connection, as samples and records show it.

use crate::tcp::Connection;
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;
use std::net::SocketAddr;

/// One end of a TCP connection as a record shows it.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its congestion control.
    pub congestion_control: &'static str,
    /// It is not over.
    pub open: bool,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow-start threshold, in segments, once there is one.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time; zero: not measured.
    pub srtt: Duration,
    /// Retransmission time-out.
    pub rto: Duration,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// The last measured delivery rate.
    pub delivery_rate: BitRate,
    /// Observations of its packets.
    pub facts: FlowFacts,
}

impl ConnectionView {
    /// The state of a connection now.
    pub(crate) fn of(connection: &Connection) -> ConnectionView {
        let (srtt, rto) = connection.times();
        let window = connection.window();
        ConnectionView {
            local: connection.local().into(),
            remote: connection.remote().into(),
            congestion_control: connection.congestion_control(),
            open: !connection.is_closed(),
            cwnd: window.cwnd,
            ssthresh: (window.ssthresh < u32::MAX).then_some(window.ssthresh),
            srtt,
            rto,
            retransmissions: connection.retransmissions(),
            unacked_segments: connection.unacknowledged(),
            delivery_rate: connection.delivery_rate(),
            facts: connection.facts().clone(),
        }
    }
}
