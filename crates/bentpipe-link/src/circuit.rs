//! Circuits: links that must be set up before they carry anything, cost money while they are up, and may be cut.

use crate::noise::RatioSchedule;
use crate::time::{Duration, Instant};
use crate::units::BitErrorRatio;

/// One stage of setting a circuit up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name, such as "modems".
    pub name: String,
    /// How long it takes.
    pub time: Duration,
}

/// How a circuit is set up, charged and lost.
#[derive(Clone, Debug, PartialEq)]
pub struct CircuitConfig {
    /// Stages in order; none: up at once.
    pub stages: Vec<Stage>,
    /// Hang up after this long without a packet; `None`: stay up.
    pub idle_hang_up: Option<Duration>,
    /// Charged from the start of this stage; `None`: from the moment the circuit is up.
    pub charged_from_stage: Option<usize>,
    /// Price of a minute on air.
    pub cost_per_minute: Option<f64>,
    /// Its currency.
    pub currency: Option<String>,
    /// Airtime is charged in multiples of this.
    pub charging_increment: Duration,
    /// A switch on the way that drops the call when errors are too many.
    pub gives_up: Option<GivesUp>,
}

/// When a switch drops the call (NTIA-1.3: a ratio above 1e-3 made the commercial network drop the connection).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivesUp {
    /// Bit error ratios above this are too many…
    pub above: BitErrorRatio,
    /// …when they last this long.
    pub after: Duration,
}

/// What happened to the circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CircuitEvent {
    /// Packets can flow from now on.
    Up,
    /// Hung up after being idle.
    HungUp,
    /// Cut by the switch: what was being sent is lost.
    Lost,
}

/// Totals of a circuit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CircuitCounters {
    /// Calls that came up.
    pub calls: u64,
    /// Calls that the switch cut, or whose set-up it refused.
    pub calls_lost: u64,
    /// Time spent setting up.
    pub setting_up: Duration,
    /// Time charged before rounding to the charging increment.
    pub on_air: Duration,
    /// Time charged, each call rounded up to the increment.
    pub charged: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Down,
    SettingUp { stage: usize, ends: Instant },
    Up,
}

/// The state of one circuit.
#[derive(Debug)]
pub struct Circuit {
    config: CircuitConfig,
    state: State,
    set_up_began: Instant,
    charging_since: Option<Instant>,
    last_activity: Instant,
    cut_at: Option<Instant>,
    counters: CircuitCounters,
    changes: Vec<(Instant, String)>,
}

/// State changes kept for the record; later ones are only counted.
const CHANGES_KEPT: usize = 10_000;

impl Circuit {
    /// A circuit that is down.
    #[must_use]
    pub fn new(config: CircuitConfig) -> Self {
        Circuit {
            config,
            state: State::Down,
            set_up_began: Instant::ZERO,
            charging_since: None,
            last_activity: Instant::ZERO,
            cut_at: None,
            counters: CircuitCounters::default(),
            changes: Vec::new(),
        }
    }

    /// Whether packets can flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Traffic waits: sets the circuit up if it is down. A circuit without stages comes up with the next `wake`.
    pub fn want(&mut self, now: Instant) {
        if self.state == State::Down {
            self.set_up_began = now;
            self.enter_stage(0, now);
        }
        self.last_activity = self.last_activity.max(now);
    }

    /// A packet was sent: the idle time starts again.
    pub fn touch(&mut self, now: Instant) {
        self.last_activity = self.last_activity.max(now);
    }

    /// When something may happen; `sending`: the circuit is in use, so it is not idle.
    #[must_use]
    pub fn next_wake(&self, sending: bool) -> Option<Instant> {
        match self.state {
            State::Down => None,
            State::SettingUp { ends, .. } => Some(ends).filter(|ends| *ends != Instant::FAR),
            State::Up => [self.hang_up_at(sending), self.cut_at].into_iter().flatten().min(),
        }
    }

    /// Time has come to `now`. Returns what happened first and when; call again until `None`.
    pub fn wake(&mut self, now: Instant, sending: bool, noises: &[&RatioSchedule]) -> Option<(Instant, CircuitEvent)> {
        loop {
            match self.state {
                State::Down => return None,
                State::SettingUp { ends, .. } if ends > now => return None,
                State::SettingUp { stage, ends } if stage < self.config.stages.len() => {
                    self.enter_stage(stage + 1, ends);
                }
                State::SettingUp { ends, .. } => {
                    self.counters.setting_up += ends - self.set_up_began;
                    if let Some(quieter) = self.too_noisy_until(ends, noises) {
                        self.counters.calls_lost += 1;
                        self.stop_charging(ends);
                        self.set_up_began = ends;
                        self.note(ends, "set-up refused by the switch");
                        if self.config.stages.iter().all(|stage| stage.time == Duration::ZERO) {
                            // Trying again at once would never end: wait until the ratio may change.
                            self.state = State::SettingUp { stage: self.config.stages.len(), ends: quieter };
                        } else {
                            self.enter_stage(0, ends);
                        }
                        continue;
                    }
                    self.state = State::Up;
                    self.counters.calls += 1;
                    self.charging_since.get_or_insert(ends);
                    self.last_activity = self.last_activity.max(ends);
                    self.cut_at = self.config.gives_up.and_then(|switch| {
                        noises.iter().filter_map(|n| n.first_excess(ends, switch.above, switch.after)).min()
                    });
                    self.note(ends, "up");
                    return Some((ends, CircuitEvent::Up));
                }
                State::Up => {
                    let hang_up = self.hang_up_at(sending).filter(|at| *at <= now);
                    let cut = self.cut_at.filter(|at| *at <= now);
                    let (at, event) = match (hang_up, cut) {
                        (Some(idle), Some(cut)) if idle < cut => (idle, CircuitEvent::HungUp),
                        (_, Some(cut)) => (cut, CircuitEvent::Lost),
                        (Some(idle), None) => (idle, CircuitEvent::HungUp),
                        (None, None) => return None,
                    };
                    self.state = State::Down;
                    self.cut_at = None;
                    self.stop_charging(at);
                    if event == CircuitEvent::Lost {
                        self.counters.calls_lost += 1;
                    }
                    self.note(at, if event == CircuitEvent::Lost { "lost" } else { "down" });
                    return Some((at, event));
                }
            }
        }
    }

    /// Totals up to `now`, the call in progress included.
    #[must_use]
    pub fn counters(&self, now: Instant) -> CircuitCounters {
        let mut counters = self.counters;
        if let Some(since) = self.charging_since {
            counters.on_air += now - since;
            counters.charged += self.round_up(now - since);
        }
        if let State::SettingUp { .. } = self.state {
            counters.setting_up += now - self.set_up_began;
        }
        counters
    }

    /// What the calls up to `now` cost.
    #[must_use]
    pub fn cost(&self, now: Instant) -> Option<f64> {
        let per_minute = self.config.cost_per_minute?;
        Some(self.counters(now).charged.as_secs_f64() / 60.0 * per_minute)
    }

    /// How the circuit is configured.
    #[must_use]
    pub fn config(&self) -> &CircuitConfig {
        &self.config
    }

    /// State changes so far: `setting up: STAGE`, `up`, `down`, `lost`.
    #[must_use]
    pub fn changes(&self) -> &[(Instant, String)] {
        &self.changes
    }

    fn hang_up_at(&self, sending: bool) -> Option<Instant> {
        if sending {
            return None;
        }
        self.config.idle_hang_up.map(|idle| self.last_activity + idle)
    }

    /// Enters stage number `stage`; the one past the last ends at once.
    fn enter_stage(&mut self, stage: usize, now: Instant) {
        let time = self.config.stages.get(stage).map_or(Duration::ZERO, |s| s.time);
        if self.config.charged_from_stage == Some(stage) {
            self.charging_since = Some(now);
        }
        if let Some(s) = self.config.stages.get(stage) {
            let text = format!("setting up: {}", s.name);
            self.note(now, &text);
        }
        self.state = State::SettingUp { stage, ends: now + time };
    }

    /// When the ratios that keep the switch from connecting at `now` may change; `None`: it connects.
    fn too_noisy_until(&self, now: Instant, noises: &[&RatioSchedule]) -> Option<Instant> {
        let above = self.config.gives_up?.above;
        let states = noises.iter().map(|noise| noise.at(now));
        states.filter(|(ratio, _)| *ratio > above).map(|(_, until)| until).max()
    }

    fn stop_charging(&mut self, now: Instant) {
        if let Some(since) = self.charging_since.take() {
            self.counters.on_air += now - since;
            self.counters.charged += self.round_up(now - since);
        }
    }

    fn round_up(&self, time: Duration) -> Duration {
        match self.config.charging_increment.ns {
            0 => time,
            step => Duration { ns: time.ns.div_ceil(step).saturating_mul(step) },
        }
    }

    fn note(&mut self, now: Instant, text: &str) {
        if self.changes.len() < CHANGES_KEPT {
            self.changes.push((now, text.to_owned()));
        }
    }
}
