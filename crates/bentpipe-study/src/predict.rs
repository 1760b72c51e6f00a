//! The analytic models' predictions of a transfer over a link: the inputs that the link and the TCP settings give, and
//! a row a model; and what the simulator makes of the same transfer. Pure: a question in, an answer out.
//! `docs/reference/models.md` explains the models and where they hold.

mod simulate;

pub use bentpipe_apps::Direction;
use bentpipe_lab::report::quantity;
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_net::stack::{RtoEstimator, TcpConfig};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize};
use bentpipe_sim::model::{asymmetry, cardwell, cubic, kruse, mathis, pftk, window};
use serde::Serialize;
pub(crate) use simulate::leaves_to_chance;

/// A transfer to predict.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The link's name, for the answer.
    pub name: &'a str,
    /// The link, hub on one side and terminal on the other. The client is at the terminal.
    pub link: &'a LinkConfig,
    /// TCP of both sides.
    pub tcp: &'a TcpConfig,
    /// Which way the data goes: a download over the forward link, an upload over the return link.
    pub direction: Direction,
    /// Application bytes.
    pub bytes: DataSize,
    /// Share of data segments lost, instead of what the link's bit errors and losses make.
    pub loss: Option<f64>,
    /// Connections that share the transfer.
    pub connections: u32,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// No bytes to send.
    #[error("nothing to send; allowed: 1 B or more")]
    NoBytes,
    /// A loss that is no share.
    #[error("{0} is no share of segments; allowed: 0 to less than 1")]
    Loss(f64),
    /// Connections out of range.
    #[error("{0} connections; allowed: 1 to {CONNECTIONS_MAX}")]
    Connections(u32),
}

/// Most connections of a question.
pub const CONNECTIONS_MAX: u32 = 1000;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The link's name.
    pub link: String,
    /// `download` or `upload`.
    pub direction: &'static str,
    /// Application bytes.
    pub bytes: u64,
    /// The inputs of the models.
    pub inputs: Inputs,
    /// A row a model, bounds first.
    pub rows: Vec<Row>,
    /// The simulator's result for the same transfer; filled by [`Prediction::simulate`].
    pub simulated: Option<Simulated>,
    /// Properties of this link that the models leave out, and reasons why the simulator gave no answer.
    pub notes: Vec<String>,
}

/// The inputs of the models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inputs {
    /// Link rate on the way of the data, framing included; the highest when it changes.
    pub rate_bps: u64,
    /// Link rate on the way back.
    pub return_rate_bps: u64,
    /// Application bytes of a full segment.
    pub segment_bytes: u64,
    /// Bits of a full segment as framed.
    pub segment_bits: u64,
    /// Bits of an acknowledgement as framed.
    pub ack_bits: u64,
    /// Application bits a second that the link carries in full segments.
    pub payload_rate_bps: u64,
    /// Round trip of a full segment and its acknowledgement on an idle link, sending times included.
    pub rtt_seconds: f64,
    /// Of it, the configured delays.
    pub delay_seconds: f64,
    /// Bit error ratio on the way of the data; none when it changes over time.
    pub bit_error_ratio: Option<f64>,
    /// Share of full segments lost; none when it changes over time.
    pub segment_loss: Option<f64>,
    /// The window: the lesser of receive window and send buffer; none when the system sizes both.
    pub window_bytes: Option<u64>,
    /// Application bytes in flight that fill the link.
    pub bandwidth_delay_product_bytes: u64,
    /// Congestion control.
    pub congestion_control: String,
    /// Segments before the first acknowledgement.
    pub initial_window: u32,
    /// Segments an acknowledgement.
    pub segments_per_ack: u32,
    /// The factor by which slow start multiplies the window each round trip.
    pub slow_start_growth: f64,
    /// Retransmission time-out once the round trip is known.
    pub timeout_seconds: f64,
    /// Time-out of the first SYN.
    pub syn_timeout_seconds: f64,
    /// Connections that share the transfer.
    pub connections: u32,
}

/// The prediction of one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// A short fixed name.
    pub model: &'static str,
    /// A bound or an estimate.
    pub kind: Kind,
    /// Where the model is from.
    pub source: &'static str,
    /// Its prediction, or the reason why there is none.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The kind of a row's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// No transfer is faster.
    Bound,
    /// The rate of a transfer without end, set-up and start left out.
    Steady,
    /// The expected whole transfer, from the client's SYN on.
    Transfer,
}

/// A prediction, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The model applies.
    Predicted {
        /// Time of the transfer.
        seconds: f64,
        /// Application bits a second over that time.
        goodput_bps: u64,
    },
    /// It does not.
    NotApplicable {
        /// Why not.
        not_applicable: String,
    },
}

/// The same transfer in the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// Runs that finished, each with its own seed; one when nothing is left to chance.
    pub runs: u32,
    /// Median time.
    pub seconds: f64,
    /// Least and most.
    pub seconds_range: (f64, f64),
    /// Application bits a second over the median time.
    pub goodput_bps: u64,
}

/// Below this many expected losses a transfer has no steady state to speak of. Our choice.
const LOSSES_STEADY: f64 = 5.0;
/// Up to this many expected losses a model without losses is used: nine of ten transfers see none. Our choice.
const LOSSES_NONE: f64 = 0.1;
/// IPv4 and TCP headers without options (RFC 791, RFC 9293).
pub(crate) const HEADERS: u64 = 40;
/// The timestamps option with its padding (RFC 7323, appendix A).
pub(crate) const TIMESTAMPS: u64 = 12;
/// A SYN with the common options: MSS, SACK permitted, timestamps, window scale (20 bytes).
const SYN: u64 = 60;
/// An Ethernet header, on a link that carries Ethernet.
const ETHERNET: u64 = 14;

/// Asks every model.
pub fn predict(question: &Question<'_>) -> Result<Prediction, PredictError> {
    if question.bytes.bytes == 0 {
        return Err(PredictError::NoBytes);
    }
    if let Some(loss) = question.loss
        && !(0.0..1.0).contains(&loss)
    {
        return Err(PredictError::Loss(loss));
    }
    if !(1..=CONNECTIONS_MAX).contains(&question.connections) {
        return Err(PredictError::Connections(question.connections));
    }
    let case = Case::new(question);
    let rows = vec![
        row("window", Kind::Bound, "RFC 9293 §3.8: one window a round trip, and the link's rate", case.window()),
        row("return link", Kind::Bound, "RFC 3449 §2", case.asymmetry()),
        row("Kruse", Kind::Transfer, "Kruse, ACTS, figures 1 and 2", case.kruse()),
        row("Cardwell", Kind::Transfer, "Cardwell, Savage, Anderson, INFOCOM 2000", case.cardwell()),
        row("Mathis", Kind::Steady, "Mathis, Semke, Mahdavi, Ott, CCR 1997", case.mathis()),
        row("PFTK", Kind::Steady, "Padhye, Firoiu, Towsley, Kurose, ToN 2000", case.pftk()),
        row("CUBIC", Kind::Steady, "RFC 8312 §5, equation 5", case.cubic()),
    ];
    let direction = match question.direction {
        Direction::Download => "download",
        Direction::Upload => "upload",
    };
    let (link, bytes) = (question.name.to_owned(), question.bytes.bytes);
    Ok(Prediction { link, direction, bytes, notes: case.notes(), inputs: case.inputs, rows, simulated: None })
}

impl Prediction {
    /// Runs the same transfer in the simulator, as often as its randomness asks for, and takes the times over.
    pub fn simulate(&mut self, question: &Question<'_>) {
        let (simulated, note) = simulate::simulate(question, self.inputs.segment_bytes);
        self.simulated = simulated;
        self.notes.extend(note);
    }

    /// The prediction as pretty JSON with a final newline.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

/// A model's answer: time and goodput, or the reason why there is none.
type Answer = Result<(Duration, BitRate), String>;

fn row(model: &'static str, kind: Kind, source: &'static str, answer: Answer) -> Row {
    let outcome = match answer {
        Ok((time, rate)) => Outcome::Predicted { seconds: time.as_secs_f64(), goodput_bps: rate.bps },
        Err(not_applicable) => Outcome::NotApplicable { not_applicable },
    };
    Row { model, kind, source, outcome }
}

struct Case<'a> {
    question: &'a Question<'a>,
    inputs: Inputs,
    /// On the way of the data, and on the way back.
    there: &'a DirectionConfig,
    back: &'a DirectionConfig,
    mss: DataSize,
    rtt: Duration,
    payload_rate: BitRate,
    window: Option<DataSize>,
    timeout: Duration,
    syn_timeout: Duration,
    /// Segments of one connection's share of the transfer.
    segments: u64,
    linux: bool,
}

impl<'a> Case<'a> {
    fn new(question: &'a Question<'a>) -> Self {
        let Question { link, tcp, .. } = *question;
        let (there, back) = match question.direction {
            Direction::Download => (&link.forward, &link.back),
            Direction::Upload => (&link.back, &link.forward),
        };
        // Presets of old stacks name what matters of them; what they leave open is RFC 1122 and 2001, not Linux.
        let linux = tcp.preset.as_deref().is_none_or(|name| name.starts_with("linux"));
        let headers = HEADERS + if tcp.timestamps.unwrap_or(linux) { TIMESTAMPS } else { 0 };
        let mtu = tcp.mtu.map_or(link.mtu, |mtu| mtu.bytes.min(link.mtu));
        let mss = DataSize::from_bytes(mtu - headers);
        let segment_bits = framed(there, link, mtu);
        let ack_bits = framed(back, link, headers);
        let (rate, return_rate) = (total_rate(there), total_rate(back));
        let delay = there.medium.one_way_delay + back.medium.one_way_delay;
        // A packet goes over one channel of a bundle.
        let sending = there.rate.highest().time_for_bits(segment_bits) + back.rate.highest().time_for_bits(ack_bits);
        let rtt = delay + sending;
        let payload_rate = window::payload_rate(rate, mss, segment_bits);
        let window = match (tcp.receive_window, tcp.send_buffer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let segments_per_ack = tcp.ack_every.unwrap_or(2);
        // RFC 3465: what one acknowledgement may add. Linux adds all that was acknowledged; before, it was one segment.
        let added = match tcp.byte_counting {
            Some(0) => 1,
            Some(limit) => limit.min(segments_per_ack),
            None if linux => segments_per_ack,
            None => 1,
        };
        let timeout = timeout(tcp, rtt, linux);
        let syn_timeout = tcp.rto_initial.unwrap_or(Duration::from_secs(if linux { 1 } else { 3 }));
        let bit_error_ratio = steady_noise(there);
        let each = DataSize::from_bytes(question.bytes.bytes.div_ceil(u64::from(question.connections)));
        let inputs = Inputs {
            rate_bps: rate.bps,
            return_rate_bps: return_rate.bps,
            segment_bytes: mss.bytes,
            segment_bits,
            ack_bits,
            payload_rate_bps: payload_rate.bps,
            rtt_seconds: rtt.as_secs_f64(),
            delay_seconds: delay.as_secs_f64(),
            bit_error_ratio,
            segment_loss: question.loss.or_else(|| loss(there, segment_bits)),
            window_bytes: window.map(|window| window.bytes),
            bandwidth_delay_product_bytes: window::bandwidth_delay_product(payload_rate, rtt).bytes,
            congestion_control: tcp.congestion_control.clone().unwrap_or_else(|| "cubic".to_owned()),
            initial_window: tcp.initial_window.unwrap_or(10),
            segments_per_ack,
            slow_start_growth: 1.0 + f64::from(added) / f64::from(segments_per_ack),
            timeout_seconds: timeout.as_secs_f64(),
            syn_timeout_seconds: syn_timeout.as_secs_f64(),
            connections: question.connections,
        };
        let segments = cardwell::segments(each, mss);
        Case { question, inputs, there, back, mss, rtt, payload_rate, window, timeout, syn_timeout, segments, linux }
    }

    /// The link is as fast as it ever gets, all the time.
    fn steady_rate(&self) -> Result<(), String> {
        let steady = |direction: &DirectionConfig| direction.rate.at(Instant::ZERO).1 == Instant::FAR;
        if steady(self.there) && steady(self.back) {
            Ok(())
        } else {
            Err("the link's rate changes over time".to_owned())
        }
    }

    /// Share of data segments lost, below one half.
    fn loss(&self) -> Result<f64, String> {
        let loss = self.inputs.segment_loss.ok_or("the bit error ratio changes over time; --loss sets one")?;
        if loss >= 0.5 {
            return Err(format!("{:.0} % of the segments are lost", loss * 100.0));
        }
        Ok(loss)
    }

    /// Losses that each connection's share of the transfer expects.
    fn losses_expected(&self, loss: f64) -> f64 {
        loss * self.segments as f64
    }

    /// The share of segments lost, for a model of long transfers.
    fn loss_of_long_transfer(&self) -> Result<f64, String> {
        self.steady_rate()?;
        let loss = self.loss()?;
        if loss == 0.0 {
            return Err("nothing is lost".to_owned());
        }
        let expected = self.losses_expected(loss);
        if expected < LOSSES_STEADY {
            return Err(format!("a steady state needs losses; this transfer expects {expected:.1} a connection"));
        }
        Ok(loss)
    }

    fn reno_only(&self) -> Result<(), String> {
        match self.inputs.congestion_control.as_str() {
            "reno" | "newreno" => Ok(()),
            other => Err(format!("a model of Reno; the sender uses {other}")),
        }
    }

    fn limit(&self) -> BitRate {
        let one = self.window.map_or(u64::MAX, |w| window::window_limit(w, self.mss, self.rtt).bps);
        BitRate::from_bps(one.saturating_mul(u64::from(self.question.connections)).min(self.payload_rate.bps))
    }

    /// A connection's segments in flight: its window, and its share of what fills the link.
    fn flow(&self) -> pftk::Flow {
        let full = self.payload_rate.bps as f64 / 8.0 * self.rtt.as_secs_f64() / self.mss.bytes as f64;
        let share = full / f64::from(self.question.connections);
        let window = self.window.map_or(f64::INFINITY, |w| (w.bytes / self.mss.bytes) as f64);
        pftk::Flow {
            rtt: self.rtt,
            timeout: self.timeout,
            window_segments: share.min(window).max(1.0),
            segments_per_ack: self.inputs.segments_per_ack,
        }
    }

    fn at(&self, rate: BitRate) -> Answer {
        if rate.bps == 0 {
            return Err("less than 1 bit/s".to_owned());
        }
        Ok((rate.time_for_bits(self.question.bytes.bytes.saturating_mul(8)), rate))
    }

    /// Segments a second of one connection, as the goodput of all; not above what the link carries.
    fn goodput(&self, segments: f64) -> BitRate {
        let bps = segments * self.mss.bytes as f64 * 8.0 * f64::from(self.question.connections);
        BitRate::from_bps(bps as u64).min(self.payload_rate)
    }

    /// Refuses a rate at which losses are not what limits.
    fn limited_by_losses(&self, rate: BitRate) -> Answer {
        let limit = self.limit();
        if rate >= limit {
            return Err(format!("losses alone would allow {}; window and link allow {}", short(rate), short(limit)));
        }
        self.at(rate)
    }

    fn window(&self) -> Answer {
        self.at(self.limit())
    }

    fn asymmetry(&self) -> Answer {
        let back = BitRate::from_bps(self.inputs.return_rate_bps);
        let per_ack = self.inputs.segments_per_ack;
        let rate = asymmetry::forward_limit(back, self.inputs.ack_bits, self.mss, per_ack);
        if rate >= self.payload_rate {
            let there = BitRate::from_bps(self.inputs.rate_bps);
            let k = asymmetry::normalised_ratio(there, back, self.inputs.segment_bits, self.inputs.ack_bits);
            let why = format!("acknowledgements fit: k = {k:.3}, and one stands for {per_ack} segments");
            return Err(why);
        }
        self.at(rate)
    }

    fn kruse(&self) -> Answer {
        self.steady_rate()?;
        let expected = self.losses_expected(self.loss()?) * f64::from(self.question.connections);
        if expected > LOSSES_NONE {
            return Err(format!("a model without losses; this transfer expects {expected:.1}"));
        }
        let transfer = kruse::Transfer {
            file: self.question.bytes,
            mss: self.mss,
            rtt: self.rtt,
            payload_rate: self.payload_rate,
            window: self.window,
            connections: self.question.connections,
            initial_window: self.inputs.initial_window,
            growth: self.growth()?,
            set_up_round_trips: 1,
        };
        Ok((kruse::transfer_time(&transfer), kruse::throughput(&transfer)))
    }

    fn cardwell(&self) -> Answer {
        self.steady_rate()?;
        let loss = self.loss()?;
        if self.losses_expected(loss) > LOSSES_NONE {
            self.reno_only()?;
        }
        let each = DataSize::from_bytes(self.question.bytes.bytes.div_ceil(u64::from(self.question.connections)));
        let (up, down) = (&self.question.link.back, &self.question.link.forward);
        let of_syn = |direction: &DirectionConfig| {
            let own = loss_or(direction, framed(direction, self.question.link, SYN));
            if std::ptr::eq(direction, self.there) { self.question.loss.map_or(own, Ok) } else { own }
        };
        let losses = cardwell::Losses { data: loss, syn: of_syn(up)?, syn_answer: of_syn(down)? };
        // The first acknowledgement waits for its timer when it stands for more segments than come.
        let waits = !self.linux && self.inputs.initial_window < self.inputs.segments_per_ack;
        let timer = self.question.tcp.delayed_ack.unwrap_or(Duration::from_millis(200));
        let transfer = cardwell::Transfer {
            file: each,
            mss: self.mss,
            flow: self.flow(),
            initial_window: self.inputs.initial_window,
            growth: self.growth()?,
            syn_timeout: self.syn_timeout,
            delayed_ack: if waits { Duration::from_nanos(timer.ns / 2) } else { Duration::ZERO },
        };
        let latency = cardwell::latency(&transfer, &losses).ok_or("half of the SYNs are lost")?;
        let sending = self.payload_rate.time_for_bits(self.question.bytes.bytes.saturating_mul(8));
        let time = latency.total().max(sending);
        let bps = u128::from(self.question.bytes.bytes) * 8_000_000_000 / u128::from(time.ns.max(1));
        Ok((time, BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))))
    }

    fn mathis(&self) -> Answer {
        self.reno_only()?;
        let loss = self.loss_of_long_transfer()?;
        let per_ack = self.inputs.segments_per_ack;
        let share = pftk::timeout_share(loss, pftk::unlimited_window(loss, per_ack));
        if share > 0.5 {
            return Err(format!("{:.0} % of the losses would end in a time-out (PFTK's estimate)", share * 100.0));
        }
        let one = mathis::rate(self.mss, self.rtt, loss, per_ack).ok_or("nothing is lost")?;
        let all = BitRate::from_bps(one.bps.saturating_mul(u64::from(self.question.connections)));
        self.limited_by_losses(all)
    }

    fn pftk(&self) -> Answer {
        self.reno_only()?;
        let loss = self.loss_of_long_transfer()?;
        self.at(self.goodput(pftk::throughput(&self.flow(), loss)))
    }

    fn cubic(&self) -> Answer {
        if self.inputs.congestion_control != "cubic" {
            return Err(format!("a model of CUBIC; the sender uses {}", self.inputs.congestion_control));
        }
        let loss = self.loss_of_long_transfer()?;
        let window = cubic::average_window(self.rtt, loss).ok_or("nothing is lost")?;
        let bps = window / self.rtt.as_secs_f64() * self.mss.bytes as f64 * 8.0;
        self.limited_by_losses(BitRate::from_bps((bps * f64::from(self.question.connections)) as u64))
    }

    fn growth(&self) -> Result<f64, String> {
        match self.inputs.slow_start_growth {
            growth if growth >= 1.01 => Ok(growth),
            _ => Err("an acknowledgement for more than 100 segments".to_owned()),
        }
    }

    fn notes(&self) -> Vec<String> {
        let Question { link, .. } = *self.question;
        let mut notes = Vec::new();
        if let Some(circuit) = &link.circuit {
            let total: f64 = circuit.stages.iter().map(|stage| stage.time.as_secs_f64()).sum();
            notes.push(format!("The circuit's set-up, {total:.2} s, comes before everything and is left out."));
            if let Some(rule) = &circuit.on_demand {
                notes.push(format!("All {} channels are taken as up from the start.", rule.channels));
            }
        }
        let both = [self.there, self.back];
        if both.iter().any(|direction| !direction.medium.outages.is_empty()) {
            notes.push("The link has outages; the models have none.".to_owned());
        }
        if both.iter().any(|direction| direction.medium.jitter.is_some()) {
            notes.push("Jitter is left out.".to_owned());
        }
        if both.iter().any(|direction| direction.channels > 1) {
            notes.push("Packets on a bundle overtake each other; the models have none that do.".to_owned());
        }
        if self.there.medium.loss.is_some_and(|loss| loss.burst_mean > 1.01 / (1.0 - loss.share)) {
            notes.push("The link loses packets in bursts; the models are given the share alone.".to_owned());
        }
        let waiting = self.there.queue.room_bytes(link.mtu).unwrap_or(u64::MAX);
        let room = self.inputs.bandwidth_delay_product_bytes.saturating_add(waiting);
        let window = self.window.map_or(u64::MAX, |w| w.bytes);
        let in_flight = window.saturating_mul(u64::from(self.question.connections));
        if in_flight.min(self.question.bytes.bytes) > room {
            notes.push(format!(
                "More can be in flight than link and queue hold ({}): slow start will overflow the queue, which no \
                 model here knows.",
                quantity::bytes(room as f64).replace('\u{a0}', " ")
            ));
        }
        notes
    }
}

fn short(rate: BitRate) -> String {
    quantity::rate(rate.bps as f64).replace('\u{a0}', " ")
}

/// Bits of an IP packet of `bytes` as framed, Ethernet header included on a link that carries Ethernet.
pub(crate) fn framed(direction: &DirectionConfig, link: &LinkConfig, bytes: u64) -> u64 {
    let length = bytes + if link.carries_ethernet { ETHERNET } else { 0 };
    direction.framing.bits(length, link.carries_ethernet)
}

pub(crate) fn total_rate(direction: &DirectionConfig) -> BitRate {
    BitRate::from_bps(direction.rate.highest().bps.saturating_mul(direction.channels as u64))
}

/// The bit error ratio, unless it changes.
fn steady_noise(direction: &DirectionConfig) -> Option<f64> {
    let (ratio, until) = direction.noise.at(Instant::ZERO);
    (until == Instant::FAR).then(|| ratio.ratio())
}

/// The share of packets of `bits` that is lost: to bit errors, or as a whole. None when it changes.
fn loss(direction: &DirectionConfig, bits: u64) -> Option<f64> {
    let (ratio, until) = direction.noise.at(Instant::ZERO);
    let whole = direction.medium.loss.map_or(0.0, |loss| loss.share);
    // Rounding must not make 1 - 1e-17 of a tiny share: 1 − (1−a)(1−b) = a + b − ab.
    let damaged = ratio.packet_error_ratio(bits);
    (until == Instant::FAR).then_some(damaged + whole - damaged * whole)
}

fn loss_or(direction: &DirectionConfig, bits: u64) -> Result<f64, String> {
    match loss(direction, bits) {
        Some(share) if share < 0.5 => Ok(share),
        Some(share) => Err(format!("{:.0} % of the SYNs or their answers are lost", share * 100.0)),
        None => Err("the bit error ratio changes over time".to_owned()),
    }
}

/// The retransmission time-out of a round trip that never varies: RTT plus the least deviation that counts, or the lower
/// bound (see [`RtoEstimator`]).
fn timeout(tcp: &TcpConfig, rtt: Duration, linux: bool) -> Duration {
    let estimator = tcp.rto_estimator.unwrap_or(if linux { RtoEstimator::Linux } else { RtoEstimator::Rfc6298 });
    let timeout = match estimator {
        RtoEstimator::Linux => rtt + tcp.rto_min.unwrap_or(Duration::from_millis(200)),
        RtoEstimator::Rfc6298 => {
            let least = tcp.rto_min.unwrap_or(Duration::from_secs(1));
            (rtt + tcp.rto_granularity.unwrap_or_default()).max(least)
        }
    };
    tcp.rto_max.map_or(timeout, |most| timeout.min(most))
}

#[cfg(test)]
mod tests;
