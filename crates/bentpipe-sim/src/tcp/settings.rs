//! A host's TCP settings with every choice made: what `[hosts.X.tcp]` says, and for what it leaves open, what a current
//! Linux does, so that a preset means the same in both worlds.

use super::congestion::Algorithm;
use bentpipe_net::stack::{Recovery, RtoEstimator, TcpConfig};
use bentpipe_net::time::Duration;

/// Settings of a simulated host's TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Most bytes advertised; `None`: tuned to what the program reads (Linux's receive buffer tuning).
    pub receive_window: Option<u64>,
    /// Most bytes in flight.
    pub send_limit: Option<u64>,
    /// Both of these hold whole segments.
    pub whole_segments: bool,
    /// Segments sent before the first acknowledgement of data.
    pub initial_window: u32,
    /// Offer window scaling (RFC 7323 §2).
    pub window_scaling: bool,
    /// Offer SACK (RFC 2018).
    pub sack: bool,
    /// Offer timestamps (RFC 7323 §3).
    pub timestamps: bool,
    /// Discard segments with old timestamps (RFC 7323 §5).
    pub paws: bool,
    /// Offer ECN (RFC 3168).
    pub ecn: bool,
    /// Congestion control.
    pub congestion_control: Algorithm,
    /// Largest IP packet, if lower than the interface's.
    pub mtu: Option<u64>,
    /// Full segments for an acknowledgement.
    pub ack_every: u32,
    /// Longest delay of an acknowledgement; `None`: as Linux, 40 to 200 ms after what the peer's pace suggests.
    pub delayed_ack: Option<Duration>,
    /// Segments acknowledged at once at the start and after a pause.
    pub quick_acks: u32,
    /// Slow start again after an idle time (RFC 5681 §4.1).
    pub slow_start_after_idle: bool,
    /// SYNs sent again before giving up.
    pub syn_retries: u32,
    /// Of those, at even intervals.
    pub syn_linear_timeouts: u32,
    /// Times that data is sent again before giving up.
    pub retries: u32,
    /// Give up data that is unacknowledged this long (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// The estimator of the time-out.
    pub rto_estimator: RtoEstimator,
    /// Its first value.
    pub rto_initial: Duration,
    /// Its lower bound (for Linux's estimator: of the deviation).
    pub rto_min: Duration,
    /// Its upper bound.
    pub rto_max: Duration,
    /// Clock tick of round-trip measurements and retransmission timers; zero: exact.
    pub rto_granularity: Duration,
    /// Timers run on Linux's timer wheel: [`TimerClock`](super::clock::TimerClock).
    pub timer_wheel: bool,
    /// Loss recovery without SACK.
    pub recovery: Recovery,
    /// Retransmit at the third duplicate acknowledgement.
    pub fast_retransmit: bool,
    /// New segments at the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: bool,
    /// RACK (RFC 8985).
    pub rack: bool,
    /// Tail loss probes (RFC 8985 §7).
    pub tail_loss_probe: bool,
    /// F-RTO (RFC 5682).
    pub frto: bool,
    /// PRR (RFC 6937).
    pub proportional_rate_reduction: bool,
    /// Segments that slow start may count for one acknowledgement (L of RFC 3465); `None`: all it acknowledges, as Linux
    /// does; `Some(0)`: one for each acknowledgement (RFC 5681).
    pub byte_counting: Option<u32>,
    /// Nagle's algorithm, in Minshall's form.
    pub nagle: bool,
    /// Probe a silent connection after this long.
    pub keep_alive: Option<Duration>,
    /// Time between probes.
    pub keep_alive_interval: Duration,
    /// Unanswered probes before giving up.
    pub keep_alive_probes: u32,
}

impl Settings {
    /// The settings of a host; an unknown congestion control is an error that names the known ones.
    pub fn new(config: &TcpConfig) -> Result<Settings, String> {
        let name = config.congestion_control.as_deref().unwrap_or("cubic");
        let mut congestion_control = Algorithm::parse(name)
            .ok_or_else(|| format!("the simulator has no {name:?}; allowed: {}", Algorithm::NAMES.join(", ")))?;
        if let (Algorithm::Cubic { hystart }, Some(requested)) = (&mut congestion_control, config.hystart) {
            *hystart = requested;
        }
        let estimator = config.rto_estimator.unwrap_or(RtoEstimator::Linux);
        let sack = config.sack.unwrap_or(true);
        let ack_every = config.ack_every.unwrap_or(LINUX_ACK_EVERY);
        Ok(Settings {
            receive_window: config.receive_window.map(|size| size.bytes),
            whole_segments: config.whole_segments.unwrap_or(true),
            send_limit: config.send_buffer.map(|size| size.bytes),
            initial_window: config.initial_window.unwrap_or(10),
            window_scaling: config.window_scaling.unwrap_or(true),
            sack,
            timestamps: config.timestamps.unwrap_or(true),
            paws: config.paws.unwrap_or(true),
            ecn: config.ecn.unwrap_or(false),
            congestion_control,
            mtu: config.mtu.map(|size| size.bytes),
            ack_every,
            delayed_ack: config.delayed_ack,
            quick_acks: config.quick_acks.unwrap_or(if ack_every > LINUX_ACK_EVERY { 0 } else { LINUX_QUICK_ACKS }),
            slow_start_after_idle: config.slow_start_after_idle.unwrap_or(true),
            syn_retries: config.syn_retries.unwrap_or(6),
            syn_linear_timeouts: config.syn_linear_timeouts.unwrap_or(4),
            retries: config.retries.unwrap_or(15),
            user_timeout: config.user_timeout,
            rto_estimator: estimator,
            rto_initial: config.rto_initial.unwrap_or(Duration::from_secs(1)),
            rto_min: config.rto_min.unwrap_or(match estimator {
                RtoEstimator::Linux => Duration::from_millis(200),
                RtoEstimator::Rfc6298 => Duration::from_secs(1),
            }),
            rto_max: config.rto_max.unwrap_or(Duration::from_secs(120)),
            rto_granularity: config.rto_granularity.unwrap_or(Duration::ZERO),
            timer_wheel: estimator == RtoEstimator::Linux && config.rto_granularity.is_none(),
            recovery: config.recovery.unwrap_or(Recovery::NewReno),
            fast_retransmit: config.fast_retransmit.unwrap_or(true),
            limited_transmit: config.limited_transmit.unwrap_or(true),
            rack: config.rack.unwrap_or(true),
            tail_loss_probe: config.tail_loss_probe.unwrap_or(true),
            frto: config.frto.unwrap_or(true),
            proportional_rate_reduction: config.proportional_rate_reduction.unwrap_or(true),
            byte_counting: config.byte_counting,
            nagle: config.nagle.unwrap_or(true),
            keep_alive: config.keep_alive,
            keep_alive_interval: config.keep_alive_interval.unwrap_or(Duration::from_secs(75)),
            keep_alive_probes: config.keep_alive_probes.unwrap_or(9),
        })
    }
}

/// Linux's TCP_MAX_QUICKACKS (net/tcp.h).
pub const LINUX_QUICK_ACKS: u32 = 16;
/// Segments that one of Linux's acknowledgements answers; a host that is asked for more is no Linux, so it is never quick.
const LINUX_ACK_EVERY: u32 = 2;
