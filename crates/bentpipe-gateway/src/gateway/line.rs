//! The gateway of a line that it dials.

use super::Gateway;
use crate::config::GatewayConfig;
use crate::dial::ledger::Ledger;
use crate::dial::{Demand, Dialler, LineMetrics, Raise, Refusal, Traffic};
use crate::log_event::LogEvent;
use crate::satellite::frozen::Frozen;
use crate::satellite::{Satellite, Side};
use bentpipe_link::tariff::Account;
use bentpipe_net::interception::GatewaySockets;
use bentpipe_net::time::{Duration, Instant};

/// Round trips, and packets of the link's MTU, within which what was sent is answered or sent again (`repeat_due` of the satellite
/// side).
const ANSWER: (u64, u64) = (4, 10);
/// The same of a handshake, and the length of its packets (RFC 9000 §14.1) with IP and UDP headers.
const HANDSHAKE: (u64, u64, u64) = (2, 6, 1200 + 28);

/// A line, and what passed over it.
pub(super) struct DialledLine {
    dialler: Dialler,
    traffic: Traffic,
    /// How long an answer may take: on the pair's connection, and to a handshake.
    answer_times: [Duration; 2],
    refusing: bool,
}

impl DialledLine {
    /// The satellite side of a line that is dialled, and at a terminal the dialler.
    pub(super) fn around(
        config: &GatewayConfig,
        satellite: Box<dyn Satellite>,
    ) -> (Box<dyn Satellite>, Option<DialledLine>) {
        let Some(settings) = &config.settings.dial else { return (satellite, None) };
        let side = config.satellite.side;
        let answer_times = answer_times(config);
        let linger = settings.linger.max(answer_times[0]);
        let frozen = Box::new(Frozen::new(Instant::ZERO, satellite, side, linger));
        let dialler = || {
            let account = config.line.tariff.clone().map(Account::new);
            Dialler::new(settings.clone(), account, config.line.charged_before)
        };
        let line = (side != Side::Hub).then(|| DialledLine {
            dialler: dialler(),
            traffic: Traffic::default(),
            answer_times,
            refusing: false,
        });
        (frozen, line)
    }

    pub(super) fn metrics(&self, now: Instant) -> LineMetrics {
        self.dialler.metrics(now, &self.traffic)
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.dialler.next_wake(&self.traffic)
    }

    pub(super) fn is_down(&self) -> bool {
        self.dialler.is_down()
    }

    /// No call would be made now.
    pub(super) fn refuses(&self) -> bool {
        self.refusing
    }
}

impl Gateway {
    /// Goes on from a ledger: the numbers of calls, those of the last day, and what was spent. Before the first poll.
    pub fn restore_ledger(&mut self, ledger: &Ledger) {
        if let Some(line) = &mut self.line {
            line.dialler.restore(ledger);
        }
    }

    /// Something that is no connection asks for the line (mail that waits, a position report); whether it may. Without a
    /// line to dial nothing is asked.
    pub fn demand(&mut self, demand: Demand) -> Result<(), Refusal> {
        self.again = true;
        self.line.as_mut().map_or(Ok(()), |line| line.dialler.demand(self.now, demand))
    }

    /// Sets the line up or ends its call, as what waits and what passes asks for.
    pub(super) fn work_line(&mut self, sockets: &mut dyn GatewaySockets) {
        let (Some(line), Some(port)) = (&mut self.line, sockets.line()) else { return };
        let Some(frozen) = self.satellite.line() else { return };
        for by in frozen.take_demands() {
            // Counted where it is refused.
            let _ = line.dialler.demand(self.now, Demand { by, priority: false });
        }
        let requests = self.shared.metrics.requests_pending > 0 && line.dialler.lists(Raise::Open);
        let data = frozen.has_data() && line.dialler.lists(Raise::Data);
        let [forward, back] = frozen.carried();
        let [answer, handshake] = line.answer_times;
        let answer_time = match (frozen.is_connected(), frozen.has_data()) {
            (true, false) => Duration::ZERO,
            (true, true) => answer,
            (false, _) => handshake,
        };
        line.traffic = Traffic { heard: frozen.heard(), forward, back, answer_time, waits: requests || data };
        line.dialler.poll(self.now, port, &line.traffic);
        let refusal = line.dialler.refusal(self.now);
        line.refusing = refusal.is_some();
        if let Some(why) = refusal {
            line.dialler.log_refusal(why);
        }
        frozen.set_up(self.now, line.dialler.is_up());
        for notice in line.dialler.take_log() {
            self.shared.log.emit(LogEvent::Line(notice));
        }
    }

    /// Ends the call, once the connection of the pair is closed.
    pub(super) fn stop_line(&mut self) {
        if let Some(line) = &mut self.line {
            line.dialler.stop();
        }
    }
}

/// How long an answer may take when nothing is wrong but a lost packet: on the pair's connection, and to a handshake.
fn answer_times(config: &GatewayConfig) -> [Duration; 2] {
    let satellite = &config.satellite;
    let (handshake_trips, handshake_packets, bytes) = HANDSHAKE;
    let rate = satellite.rate.filter(|rate| rate.bps > 0);
    let times = [(ANSWER.0, ANSWER.1, satellite.mtu), (handshake_trips, handshake_packets, bytes)];
    times.map(|(trips, packets, bytes)| {
        let bits = satellite.framing.bits(bytes, false) * packets;
        let time = rate.map_or(Duration::ZERO, |rate| rate.time_for_bits(bits));
        Duration { ns: satellite.round_trip.ns * trips } + time
    })
}
