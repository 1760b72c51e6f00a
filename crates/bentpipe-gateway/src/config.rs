//! Configuration of a gateway.

use crate::front_end::{FrontEndSettings, Registry};
use crate::satellite::{SatelliteConfig, Side};
use crate::settings::{Fail, Settings};
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_link::tariff::Tariff;
use bentpipe_net::time::{Duration, Instant};

/// Everything that a gateway needs to start. [`GatewayConfig::new`] gives the defaults.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayConfig {
    /// The link and the other gateway.
    pub satellite: SatelliteConfig,
    /// UDP port of the satellite side; 0 takes a free one (a terminal's choice).
    pub local_port: u16,
    /// How clients' connections come to this gateway.
    pub front_ends: Vec<FrontEndSettings>,
    /// What a user may set.
    pub settings: Settings,
    /// What calls cost, where the gateway dials.
    pub line: LineFacts,
}

/// A line's price, as its link says it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineFacts {
    /// The tariff.
    pub tariff: Option<Tariff>,
    /// Airtime is charged from so long before the line is up: the stages of set-up from the one that is charged on.
    pub charged_before: Duration,
}

impl GatewayConfig {
    /// The default settings on this link.
    #[must_use]
    pub fn new(satellite: SatelliteConfig) -> GatewayConfig {
        let front_ends = Registry::standard().without_keys();
        GatewayConfig {
            satellite,
            local_port: 0,
            front_ends,
            settings: Settings::default(),
            line: LineFacts::default(),
        }
    }

    /// These settings on this link: what the satellite side must know of them is set there.
    #[must_use]
    pub fn with_settings(satellite: SatelliteConfig, mut settings: Settings) -> GatewayConfig {
        if settings.dial.is_some() {
            // There is no path past a line that is down.
            settings.fail = Fail::Closed;
        }
        let satellite = SatelliteConfig {
            dials: settings.dial.is_some(),
            rate: settings.rate.on(satellite.rate),
            hold: settings.hold,
            connections: settings.connections,
            memory: settings.memory.total,
            ..satellite
        };
        GatewayConfig { settings, ..GatewayConfig::new(satellite) }
    }
}

impl SatelliteConfig {
    /// The configuration of a gateway at `side` of `link`: the rate of its sending direction at the start, the
    /// share of packets that its bit errors and its packet loss take there, and whether it must be set up.
    #[must_use]
    pub fn of_link(link: &LinkConfig, side: Side) -> SatelliteConfig {
        let sending = match side {
            Side::Hub => &link.forward,
            Side::Terminal(_) => &link.back,
        };
        let (rate, _) = sending.rate.at(Instant::ZERO);
        let defaults = Settings::default();
        SatelliteConfig {
            side,
            rate: Some(bentpipe_net::units::BitRate::from_bps(rate.bps.saturating_mul(sending.channels as u64))),
            framing: sending.framing,
            round_trip: link.round_trip(),
            mtu: link.mtu,
            loss: loss(sending, link.mtu),
            dial_up: link.circuit.is_some(),
            dials: false,
            hold: defaults.hold,
            connections: defaults.connections,
            memory: defaults.memory.total,
        }
    }
}

impl LineFacts {
    /// Of a link.
    #[must_use]
    pub fn of_link(link: &LinkConfig) -> LineFacts {
        let circuit = link.circuit.as_ref();
        let charged = circuit.and_then(|circuit| Some(&circuit.stages[circuit.charged_from_stage?..]));
        let charged_before = charged.into_iter().flatten().map(|stage| stage.time);
        let charged_before = charged_before.fold(Duration::ZERO, |sum, time| sum + time);
        LineFacts { tariff: link.tariff.clone(), charged_before }
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
