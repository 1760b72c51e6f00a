//! Circuits: links that must be set up before they carry anything, cost airtime while they are up, and may be cut.
//!
//! A circuit is one call that carries the whole link, or several, one for each channel, as many as the load asks for
//! ([`crate::demand`]). Each call goes through the stages and is charged by itself.

use crate::demand::{Asks, Demand, OnDemand};
use crate::noise::RatioSchedule;
use bentpipe_net::seed::{Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitErrorRatio;

/// One stage of setting a circuit up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name, such as "modems".
    pub name: String,
    /// Its duration.
    pub time: Duration,
}

/// Set-up, charging and loss of a circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct CircuitConfig {
    /// Stages in order; none: up at once.
    pub stages: Vec<Stage>,
    /// Hang up after this long without a packet; `None`: stay up.
    pub idle_hang_up: Option<Duration>,
    /// Charged from the start of this stage; `None`: from the moment the circuit is up.
    pub charged_from_stage: Option<usize>,
    /// A switch on the way that drops the calls when errors are too many.
    pub gives_up: Option<GivesUp>,
    /// A call for each channel, as many as the load asks for; `None`: one call carries the whole link.
    pub on_demand: Option<OnDemand>,
}

/// When a switch drops the call (NTIA-1.3: a ratio above 1e-3 made the commercial network drop the connection).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivesUp {
    /// Bit error ratios above this are too many…
    pub above: BitErrorRatio,
    /// …when they last this long.
    pub after: Duration,
}

/// A change of a circuit's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CircuitEvent {
    /// A call is up: its packets can flow from now on.
    Up,
    /// Hung up after being idle.
    HungUp,
    /// Cut by the switch: what was being sent is lost.
    Lost,
    /// It is time to look at the load: see [`Circuit::poll`].
    LoadCheck,
}

/// A change of a circuit's state, as a record keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CircuitChange {
    /// A call entered a stage of its set-up.
    SettingUp {
        /// The stage's name.
        stage: String,
        /// With a call for each channel: which channel, from 1; `None` for the first.
        channel: Option<usize>,
    },
    /// The switch refused a set-up because of errors.
    Refused,
    /// The first call is up.
    Up,
    /// So many calls are up, one for each channel.
    ChannelsUp(usize),
    /// All calls ended.
    Down,
    /// The switch cut all calls because of errors.
    Lost,
}

/// The state of a line that somebody dials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LineState {
    /// There is no call.
    #[default]
    Down,
    /// A call is being set up.
    Dialling,
    /// Packets can flow.
    Up,
}

/// Totals of a circuit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct CircuitCounters {
    /// Calls that came up.
    pub calls: u64,
    /// Calls that the switch cut, or whose set-up it refused.
    pub calls_lost: u64,
    /// Most calls that were up at a time.
    pub calls_most: u64,
    /// Time spent setting up, all calls.
    pub setting_up: Duration,
    /// Time on air, all calls: charged, before any rounding.
    pub on_air: Duration,
}

/// One call from its set-up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallDetail {
    /// Its set-up began.
    pub set_up_from: Instant,
    /// It was charged from here on; `None`: it ended before.
    pub charged_from: Option<Instant>,
    /// It carried packets from here on; `None`: it never came up.
    pub up_at: Option<Instant>,
    /// It ended, and why; `None`: not yet.
    pub ended: Option<(Instant, CallEnd)>,
    /// Bytes of packets sent while it lasted, forward and return, framing not included. Of several calls at a time, the
    /// one that began first has them all.
    pub carried: [u64; 2],
}

/// Why a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEnd {
    /// Hung up: idle, or told to.
    HungUp,
    /// The other calls of the bundle were enough.
    Released,
    /// Cut by the switch.
    Lost,
    /// The switch refused it because of errors.
    Refused,
}

/// One call, being set up or up.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The stage that it is in, and when it ends; the one past the last ends at once.
    stage: usize,
    ends: Instant,
    set_up_began: Instant,
    charging_since: Option<Instant>,
    /// Its place in [`Circuit::details`].
    detail: usize,
}

/// The state of one circuit.
#[derive(Debug)]
pub struct Circuit {
    config: CircuitConfig,
    /// Those that are up first, in the order in which they came up. Empty: the circuit is down.
    calls: Vec<Call>,
    up: usize,
    demand: Option<Demand>,
    last_activity: Instant,
    /// When the switch drops the calls; [`Instant::FAR`]: not as far as it is known.
    drop_at: Instant,
    /// The call that came up last carries nothing before.
    carries_from: Instant,
    late: Stream,
    counters: CircuitCounters,
    changes: Vec<(Instant, CircuitChange)>,
    commanded: bool,
    details: Vec<CallDetail>,
    /// Bytes sent so far over the link, and those that calls before have.
    carried: [u64; 2],
    billed: [u64; 2],
}

/// State changes kept for the record; later ones are only counted.
const CHANGES_KEPT: usize = 10_000;

impl Circuit {
    /// A circuit that is down. From `late` it draws which calls connect late.
    #[must_use]
    pub fn new(config: CircuitConfig, late: Stream) -> Self {
        Circuit {
            demand: config.on_demand.map(Demand::new),
            config,
            calls: Vec::new(),
            up: 0,
            last_activity: Instant::ZERO,
            drop_at: Instant::FAR,
            carries_from: Instant::ZERO,
            late,
            counters: CircuitCounters::default(),
            changes: Vec::new(),
            commanded: false,
            details: Vec::new(),
            carried: [0; 2],
            billed: [0; 2],
        }
    }

    /// Bytes of packets sent so far, forward and return: to be told before a call may end.
    pub fn set_carried(&mut self, bytes: [u64; 2]) {
        self.carried = bytes;
    }

    /// Call number `number`, from 0, in the order of their beginnings; its bytes are known once it has ended.
    #[must_use]
    pub fn call(&self, number: usize) -> Option<&CallDetail> {
        self.details.get(number)
    }

    /// Every call so far, in the order of their beginnings; `carried`: bytes sent so far over the link, forward and return.
    #[must_use]
    pub fn calls(&self, carried: [u64; 2]) -> Vec<CallDetail> {
        let mut details = self.details.clone();
        if let Some(first) = self.calls.iter().map(|call| call.detail).min() {
            details[first].carried = self.unbilled(carried);
        }
        details
    }

    /// True if packets can flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up > 0
    }

    /// Channels of a direction that packets can flow over: one for each call, or all with the one call.
    #[must_use]
    pub fn channels_up(&self) -> usize {
        match self.config.on_demand {
            Some(_) => self.up,
            None if self.up > 0 => usize::MAX,
            None => 0,
        }
    }

    /// When the call that came up last begins to carry packets; what is sent over it before is lost.
    #[must_use]
    pub fn carries_from(&self) -> Instant {
        self.carries_from
    }

    /// Leaves calls to whoever dials: traffic alone sets nothing up, and an idle call stays up.
    pub fn set_commanded(&mut self) {
        self.commanded = true;
    }

    /// Somebody dials it, and it is down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.commanded && self.up == 0
    }

    /// The state of the line.
    #[must_use]
    pub fn state(&self) -> LineState {
        match (self.up, self.calls.is_empty()) {
            (0, true) => LineState::Down,
            (0, false) => LineState::Dialling,
            _ => LineState::Up,
        }
    }

    /// Sets the circuit up, unless it is up or being set up.
    pub fn dial(&mut self, now: Instant) {
        if self.calls.is_empty() {
            self.call_to_the_least(now);
        }
        self.last_activity = self.last_activity.max(now);
    }

    /// Ends all calls, up or not.
    pub fn hang_up(&mut self, now: Instant) {
        if self.calls.is_empty() {
            return;
        }
        while !self.calls.is_empty() {
            self.end_last_call(now, CallEnd::HungUp);
        }
        self.drop_at = Instant::FAR;
        if let Some(demand) = &mut self.demand {
            demand.stop();
        }
        self.note(now, CircuitChange::Down);
    }

    /// Traffic waits: sets the circuit up if it is down. A circuit without stages comes up with the next `wake`.
    pub fn want(&mut self, now: Instant) {
        if self.calls.is_empty() && !self.commanded {
            self.call_to_the_least(now);
        }
        self.last_activity = self.last_activity.max(now);
    }

    /// A packet was sent: the idle time starts again.
    pub fn touch(&mut self, now: Instant) {
        self.last_activity = self.last_activity.max(now);
    }

    /// When something may happen, [`Instant::FAR`]: nothing; `sending`: the circuit is in use, so it is not idle.
    #[must_use]
    pub fn next_wake(&self, sending: bool) -> Instant {
        let first = self.first_end().map_or(Instant::FAR, |(_, ends)| ends);
        first.min(self.hang_up_at(sending)).min(self.drop_at).min(self.next_poll())
    }

    /// Time has come to `now`. Returns what happened first and when; call again until `None`.
    pub fn wake(&mut self, now: Instant, sending: bool, noises: &[&RatioSchedule]) -> Option<(Instant, CircuitEvent)> {
        loop {
            let set_up = self.first_end().filter(|(_, ends)| *ends <= now);
            let (drop_calls, idle) = (self.drop_at, self.hang_up_at(sending));
            let at = drop_calls.min(idle).min(self.next_poll());
            if let Some((number, ends)) = set_up
                && ends <= at
            {
                if self.calls[number].stage < self.config.stages.len() {
                    self.enter_stage(number, self.calls[number].stage + 1, ends);
                } else if self.connect(number, ends, noises) {
                    return Some((ends, CircuitEvent::Up));
                }
                continue;
            }
            if at > now || at == Instant::FAR {
                return None;
            }
            // At the same time, the first of these.
            let event = if drop_calls == at {
                CircuitEvent::Lost
            } else if idle == at {
                CircuitEvent::HungUp
            } else {
                return Some((at, CircuitEvent::LoadCheck));
            };
            if event == CircuitEvent::Lost {
                self.counters.calls_lost += self.up as u64;
            }
            while !self.calls.is_empty() {
                self.end_last_call(at, if event == CircuitEvent::Lost { CallEnd::Lost } else { CallEnd::HungUp });
            }
            self.drop_at = Instant::FAR;
            if let Some(demand) = &mut self.demand {
                demand.stop();
            }
            self.note(at, if event == CircuitEvent::Lost { CircuitChange::Lost } else { CircuitChange::Down });
            return Some((at, event));
        }
    }

    /// The load must be looked at from now on, for nobody does: see [`Circuit::poll`].
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        self.up > 0 && self.demand.as_ref().is_some_and(|demand| demand.next_poll() == Instant::FAR)
    }

    /// The load at `now`, after [`CircuitEvent::LoadCheck`] and when nobody watches it: calls once more or drops a call if that
    /// is what it asks for. `airtime` of each direction: how long its channels have been sending so far, their times added
    /// up, in nanoseconds. Returns whether a call was dropped.
    pub fn poll(&mut self, now: Instant, airtime: &[u64]) -> bool {
        let (Some(demand), Some(on_demand)) = (&mut self.demand, self.config.on_demand) else { return false };
        if demand.next_poll() > now {
            demand.start(now, airtime);
            return false;
        }
        let asks = demand.poll(now, airtime, self.up);
        let pending = self.calls.len() - self.up;
        match asks {
            Asks::Call if self.calls.len() < on_demand.channels && pending < on_demand.at_once => {
                demand.done();
                self.begin_call(now);
                false
            }
            Asks::Release if pending == 0 => {
                demand.done();
                self.end_last_call(now, CallEnd::Released);
                self.note_calls(now);
                true
            }
            _ => false,
        }
    }

    /// Totals up to `now`, the calls in progress included.
    #[must_use]
    pub fn counters(&self, now: Instant) -> CircuitCounters {
        let mut counters = self.counters;
        for (number, call) in self.calls.iter().enumerate() {
            if let Some(since) = call.charging_since {
                counters.on_air += now - since;
            }
            if number >= self.up {
                counters.setting_up += now - call.set_up_began;
            }
        }
        counters
    }

    /// The circuit's configuration.
    #[must_use]
    pub fn config(&self) -> &CircuitConfig {
        &self.config
    }

    /// The first state changes, in order of time.
    #[must_use]
    pub fn changes(&self) -> &[(Instant, CircuitChange)] {
        &self.changes
    }

    fn next_poll(&self) -> Instant {
        self.demand.as_ref().map_or(Instant::FAR, Demand::next_poll)
    }

    /// The call whose stage ends first; none ends at [`Instant::FAR`].
    fn first_end(&self) -> Option<(usize, Instant)> {
        let setting_up = self.calls.iter().enumerate().skip(self.up);
        setting_up.map(|(number, call)| (number, call.ends)).min_by_key(|(_, ends)| *ends)
    }

    fn hang_up_at(&self, sending: bool) -> Instant {
        if sending || self.up == 0 || self.commanded {
            return Instant::FAR;
        }
        self.config.idle_hang_up.map_or(Instant::FAR, |idle| self.last_activity + idle)
    }

    /// Sets up what is missing from the calls that the circuit must have, as many as may be set up at once.
    fn call_to_the_least(&mut self, now: Instant) {
        let (least, at_once) = self.config.on_demand.map_or((1, 1), |rule| (rule.least, rule.at_once));
        while self.calls.len() < least && self.calls.len() - self.up < at_once {
            self.begin_call(now);
        }
    }

    fn begin_call(&mut self, now: Instant) {
        let detail = self.begin_detail(now);
        self.calls.push(Call { stage: 0, ends: now, set_up_began: now, charging_since: None, detail });
        self.enter_stage(self.calls.len() - 1, 0, now);
    }

    /// The set-up of a call has ended at `now`; returns whether it is up.
    fn connect(&mut self, number: usize, now: Instant, noises: &[&RatioSchedule]) -> bool {
        self.counters.setting_up += now - self.calls[number].set_up_began;
        if let Some(quieter) = self.too_noisy_until(now, noises) {
            self.counters.calls_lost += 1;
            if self.commanded {
                // Whoever dials decides when to try again.
                self.calls[number].set_up_began = now;
                self.end_call(number, now, CallEnd::Refused);
                self.note(now, CircuitChange::Refused);
                return false;
            }
            self.stop_charging(number, now, CallEnd::Refused);
            self.calls[number].set_up_began = now;
            self.calls[number].detail = self.begin_detail(now);
            self.note(now, CircuitChange::Refused);
            if self.config.stages.iter().all(|stage| stage.time == Duration::ZERO) {
                // Trying again at once would never end: wait until the ratio may change.
                self.calls[number].ends = quieter;
            } else {
                self.enter_stage(number, 0, now);
            }
            return false;
        }
        self.calls[number].charging_since.get_or_insert(now);
        let detail = &mut self.details[self.calls[number].detail];
        detail.up_at = Some(now);
        detail.charged_from.get_or_insert(now);
        self.carries_from = now;
        if let Some(rule) = self.config.on_demand.filter(|rule| rule.connects_late > Duration::ZERO)
            && unit(&mut self.late) < rule.late_share
        {
            self.carries_from = now + rule.connects_late;
        }
        self.calls.swap(number, self.up);
        self.up += 1;
        self.counters.calls += 1;
        self.counters.calls_most = self.counters.calls_most.max(self.up as u64);
        self.last_activity = self.last_activity.max(now);
        if self.up == 1 {
            let drop_calls =
                |switch: GivesUp| noises.iter().filter_map(|n| n.first_excess(now, switch.above, switch.after)).min();
            self.drop_at = self.config.gives_up.and_then(drop_calls).unwrap_or(Instant::FAR);
            self.note(now, CircuitChange::Up);
        } else {
            self.note_calls(now);
        }
        self.call_to_the_least(now);
        true
    }

    /// The newest call ends, up or not.
    fn end_last_call(&mut self, now: Instant, why: CallEnd) {
        let Some(number) = self.calls.len().checked_sub(1) else { return };
        self.end_call(number, now, why);
    }

    fn end_call(&mut self, number: usize, now: Instant, why: CallEnd) {
        if number >= self.up {
            self.counters.setting_up += now - self.calls[number].set_up_began;
        }
        self.stop_charging(number, now, why);
        self.calls.remove(number);
        self.up = self.up.min(number);
    }

    /// Enters stage number `stage`; the one past the last ends at once.
    fn enter_stage(&mut self, number: usize, stage: usize, now: Instant) {
        let time = self.config.stages.get(stage).map_or(Duration::ZERO, |s| s.time);
        let call = &mut self.calls[number];
        (call.stage, call.ends) = (stage, now + time);
        if self.config.charged_from_stage == Some(stage) {
            call.charging_since = Some(now);
            self.details[call.detail].charged_from = Some(now);
        }
        if let Some(s) = self.config.stages.get(stage) {
            let channel = (number > 0 && self.config.on_demand.is_some()).then_some(number + 1);
            let stage = s.name.clone();
            self.note(now, CircuitChange::SettingUp { stage, channel });
        }
    }

    /// When the ratios that keep the switch from connecting at `now` may change; `None`: it connects.
    fn too_noisy_until(&self, now: Instant, noises: &[&RatioSchedule]) -> Option<Instant> {
        let above = self.config.gives_up?.above;
        let states = noises.iter().map(|noise| noise.at(now));
        states.filter(|(ratio, _)| *ratio > above).map(|(_, until)| until).max()
    }

    fn stop_charging(&mut self, number: usize, now: Instant, why: CallEnd) {
        if let Some(since) = self.calls[number].charging_since.take() {
            self.counters.on_air += now - since;
        }
        let detail = self.calls[number].detail;
        let is_first = self.calls.iter().all(|call| call.detail >= detail);
        if is_first {
            self.details[detail].carried = self.unbilled(self.carried);
            self.billed = self.carried;
        }
        self.details[detail].ended = Some((now, why));
    }

    fn begin_detail(&mut self, now: Instant) -> usize {
        let detail = CallDetail { set_up_from: now, charged_from: None, up_at: None, ended: None, carried: [0; 2] };
        self.details.push(detail);
        self.details.len() - 1
    }

    /// Bytes that no call before has.
    fn unbilled(&self, carried: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|direction| carried[direction].saturating_sub(self.billed[direction]))
    }

    fn note_calls(&mut self, now: Instant) {
        self.note(now, CircuitChange::ChannelsUp(self.up));
    }

    fn note(&mut self, now: Instant, change: CircuitChange) {
        if self.changes.len() < CHANGES_KEPT {
            self.changes.push((now, change));
        }
    }
}
