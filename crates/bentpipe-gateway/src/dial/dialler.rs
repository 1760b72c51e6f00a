//! The state machine that dials.

use super::ledger::{Ending, Entry, Ledger, News};
use super::{Demand, DialSettings, Raise, Refusal};
use bentpipe_link::tariff::{Account, Money, Period, Usage};
use bentpipe_net::line::{Line, LineEvent, LineFailure, Unwanted};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;
use std::fmt;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How often a demand that is refused is looked at again, while it lasts.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A hang-up that nothing comes of is asked for again.
const HANG_UP_AGAIN: Duration = Duration::from_secs(10);
/// Least time between two entries of a call that lasts; and the time where the tariff has no increments.
const ENTRY_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// What passes over the line, as the gateway sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// When a packet of the other gateway came last.
    pub heard: Option<Instant>,
    /// Bytes from the hub so far, over all calls.
    pub forward: u64,
    /// Bytes to the hub so far, over all calls.
    pub back: u64,
    /// How long the answer to what was sent last may take: a call lingers that long at least.
    pub answer_time: Duration,
    /// Something that may set the line up waits for it.
    pub waits: bool,
}

/// Decides when a line is set up and ended.
#[derive(Debug)]
pub struct Dialler {
    settings: DialSettings,
    /// What is spent; `None`: no tariff.
    account: Option<Account>,
    /// Airtime is charged from so long before the line is up.
    charged_before: Duration,
    state: State,
    calls: u64,
    /// Calls in a row that failed or came to nothing, and when the next may be made.
    failures: u32,
    again: Instant,
    /// Wall times of dialling within the last day.
    dialled: VecDeque<Instant>,
    demand: Option<Demand>,
    waits: bool,
    refused: Option<Refusal>,
    epoch: Duration,
    stopping: bool,
    log: Vec<LineNotice>,
    metrics: LineMetrics,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Down,
    Dialling {
        since: Instant,
    },
    Up(Call),
    /// Hung up at `asked`, not down yet. `call`: it was up.
    Ending {
        call: Option<Call>,
        why: Ending,
        asked: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
struct Call {
    since: Instant,
    /// Wall time.
    charged_from: Instant,
    /// Bytes when it began.
    before: [u64; 2],
    /// No cap ends it.
    priority: bool,
    next_entry: Instant,
}

/// A line of the log about the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineNotice {
    /// A call is made.
    Dialling {
        /// Its number.
        call: u64,
        /// What asked for it.
        by: Raise,
    },
    /// The line is up.
    Up {
        /// The call's number.
        call: u64,
        /// The time that it took.
        after: Duration,
    },
    /// A call did not come up.
    Failed {
        /// Its number.
        call: u64,
        /// Why.
        why: LineFailure,
        /// The pause before the next.
        pause: Duration,
    },
    /// A call has ended.
    Down {
        /// Its number.
        call: u64,
        /// Why.
        why: Ending,
        /// Time on air.
        airtime: Duration,
        /// Its price, where there is a tariff.
        cost: Option<Money>,
    },
    /// The line is not set up though something asks for it.
    Refused(Refusal),
}

/// Counters of a line. Every field counts up, except those that say "now".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineMetrics {
    /// The gateway dials.
    pub dials: bool,
    /// The line is up now.
    pub up: bool,
    /// Calls dialled.
    pub dialled: u64,
    /// Calls that did not come up.
    pub failed: u64,
    /// Demands refused: by what asks, those that are not listed.
    pub not_listed: [u64; Raise::ALL.len()],
    /// Demands refused because of the calls within an hour or a day.
    pub refused_calls: u64,
    /// Demands refused because of a cap on money.
    pub refused_cap: u64,
    /// Demands refused because the ledger could not be written.
    pub refused_ledger: u64,
    /// Packets that would have passed the gateway while the line was down, by [`Unwanted::ALL`].
    pub unwanted: [u64; Unwanted::ALL.len()],
    /// Time on air, the call in progress included.
    pub airtime: Duration,
    /// Spent, the call in progress included.
    pub cost: Money,
    /// Spent by calls that began today (UTC) and are over.
    pub cost_today: Money,
    /// Spent by calls that began this month (UTC) and are over.
    pub cost_this_month: Money,
}

impl Dialler {
    /// A line that is down. `charged_before`: airtime is charged from so long before the line is up.
    #[must_use]
    pub fn new(settings: DialSettings, account: Option<Account>, charged_before: Duration) -> Dialler {
        Dialler {
            settings,
            account,
            charged_before,
            state: State::Down,
            calls: 0,
            failures: 0,
            again: Instant::ZERO,
            dialled: VecDeque::new(),
            demand: None,
            waits: false,
            refused: None,
            epoch: Duration::ZERO,
            stopping: false,
            log: Vec::new(),
            metrics: LineMetrics { dials: true, ..LineMetrics::default() },
        }
    }

    /// Goes on from a ledger: the numbers of calls, those of the last day, and what was spent.
    pub fn restore(&mut self, ledger: &Ledger) {
        self.calls = ledger.calls.last().map_or(0, |call| call.call);
        self.dialled = ledger.calls.iter().map(|call| call.dialled).collect();
        if let Some(account) = &self.account {
            self.account = Some(ledger.bill(account.tariff()).1);
        }
    }

    /// Something asks for the line; whether it may. The line is set up at the next poll.
    pub fn demand(&mut self, now: Instant, demand: Demand) -> Result<(), Refusal> {
        if !demand.priority && !self.settings.raise.contains(&demand.by) {
            self.metrics.not_listed[demand.by as usize] += 1;
            return Err(Refusal::NotListed(demand.by));
        }
        if matches!(self.state, State::Down) {
            self.admit(now, demand.priority).inspect_err(|why| self.count(*why))?;
        }
        if let State::Up(call) = &mut self.state {
            // It is served already.
            call.priority |= demand.priority;
            return Ok(());
        }
        let priority = demand.priority || self.demand.is_some_and(|before| before.priority);
        self.demand = Some(Demand { priority, ..demand });
        Ok(())
    }

    /// True if what may set the line up includes this.
    #[must_use]
    pub fn lists(&self, by: Raise) -> bool {
        self.settings.raise.contains(&by)
    }

    /// Why no call would be made now that has no priority; `None`: one would, or there is one.
    #[must_use]
    pub fn refusal(&self, now: Instant) -> Option<Refusal> {
        if matches!(self.state, State::Down) { self.admit(now, false).err() } else { None }
    }

    /// Packets can flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// There is no call, and none is being made or ended.
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// Ends the call and makes no other.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// The notices since the last call.
    pub fn take_log(&mut self) -> Vec<LineNotice> {
        std::mem::take(&mut self.log)
    }

    /// Its counters at `now`.
    #[must_use]
    pub fn metrics(&self, now: Instant, traffic: &Traffic) -> LineMetrics {
        let mut metrics = LineMetrics { up: self.is_up(), ..self.metrics };
        let call = match &self.state {
            State::Up(call) | State::Ending { call: Some(call), .. } => Some(call),
            _ => None,
        };
        if let Some(account) = &self.account {
            metrics.cost_today = account.spent(Period::Day, self.wall(now));
            metrics.cost_this_month = account.spent(Period::Month, self.wall(now));
            metrics.cost = account.total();
        }
        if let Some(call) = call {
            let usage = self.usage(now, call, traffic);
            metrics.airtime += usage.time;
            metrics.cost += self.account.as_ref().map_or(Money::ZERO, |a| a.quote(call.charged_from, &usage));
        }
        metrics
    }

    /// When [`Dialler::poll`] is due though nothing changes; `None`: never. `traffic`: as at the last poll.
    #[must_use]
    pub fn next_wake(&self, traffic: &Traffic) -> Option<Instant> {
        match &self.state {
            State::Down => self.wants().then_some(self.again),
            State::Dialling { since } => Some(*since + self.settings.set_up),
            State::Up(call) => {
                let cap = self.cap_at(call, traffic).unwrap_or(Instant::FAR);
                Some(self.lingers_until(call, traffic).min(call.next_entry).min(cap))
            }
            State::Ending { asked, .. } => Some(*asked + HANG_UP_AGAIN),
        }
    }

    /// Takes the line's changes and does what is due.
    pub fn poll(&mut self, now: Instant, line: &mut dyn Line, traffic: &Traffic) {
        self.epoch = Duration { ns: line.epoch_ns() };
        self.waits = traffic.waits;
        self.metrics.unwanted = Unwanted::ALL.map(|what| line.unwanted(what));
        while let Some(event) = line.poll_event() {
            self.on_event(now, line, event, traffic);
        }
        match self.state {
            State::Down => self.dial(now, line),
            State::Dialling { since } => {
                if self.stopping || now >= since + self.settings.set_up {
                    line.hang_up();
                    let why = if self.stopping { Ending::Stopped } else { Ending::Dropped };
                    self.state = State::Ending { call: None, why, asked: now };
                }
            }
            State::Up(mut call) => {
                let why = if self.stopping {
                    Some(Ending::Stopped)
                } else if self.cap_at(&call, traffic).is_some_and(|at| at <= now) {
                    Some(Ending::Cap)
                } else if self.lingers_until(&call, traffic) <= now {
                    Some(Ending::Idle)
                } else {
                    None
                };
                if let Some(why) = why {
                    line.hang_up();
                    self.state = State::Ending { call: Some(call), why, asked: now };
                } else if call.next_entry <= now {
                    let Usage { forward, back, .. } = self.usage(now, &call, traffic);
                    self.record(now, line, News::Lasts { forward, back });
                    call.next_entry = self.entry_after(now, &call);
                    self.state = State::Up(call);
                }
            }
            State::Ending { call, why, asked } => {
                if now >= asked + HANG_UP_AGAIN {
                    line.hang_up();
                    self.state = State::Ending { call, why, asked: now };
                }
            }
        }
    }

    fn on_event(&mut self, now: Instant, line: &mut dyn Line, event: LineEvent, traffic: &Traffic) {
        match (event, self.state) {
            (LineEvent::Up, State::Dialling { since }) => {
                let charged_from = self.wall(now.max(since)).ns.saturating_sub(self.charged_before.ns);
                let charged_from = Instant { ns: charged_from.max(self.wall(since).ns) };
                let before = [traffic.forward, traffic.back];
                let priority = self.demand.is_some_and(|demand| demand.priority);
                let mut call = Call { since: now, charged_from, before, priority, next_entry: now };
                call.next_entry = self.entry_after(now, &call);
                self.demand = None;
                self.log.push(LineNotice::Up { call: self.calls, after: now.since(since) });
                if self.record(now, line, News::Up { charged_from_ns: charged_from.ns }) {
                    self.state = State::Up(call);
                } else {
                    line.hang_up();
                    self.state = State::Ending { call: Some(call), why: Ending::Stopped, asked: now };
                }
            }
            (LineEvent::Failed(why), State::Dialling { .. }) => self.on_failed(now, line, why),
            (LineEvent::Down, State::Dialling { .. }) => self.on_failed(now, line, LineFailure::NoCarrier),
            (LineEvent::Failed(_) | LineEvent::Down, State::Ending { call: None, .. }) => {
                self.on_failed(now, line, LineFailure::TimedOut);
            }
            (LineEvent::Failed(_) | LineEvent::Down, State::Ending { call: Some(call), why, .. }) => {
                self.on_ended(now, line, &call, why, traffic);
            }
            (LineEvent::Failed(_) | LineEvent::Down, State::Up(call)) => {
                self.on_ended(now, line, &call, Ending::Dropped, traffic);
            }
            // Up when nobody asked for it any more: it was hung up already.
            (LineEvent::Up, _) | (_, State::Down) => {}
        }
    }

    fn dial(&mut self, now: Instant, line: &mut dyn Line) {
        if self.stopping || !self.wants() || now < self.again {
            return;
        }
        let demand = self.demand.unwrap_or(Demand { by: Raise::Data, priority: false });
        if let Err(why) = self.admit(now, demand.priority) {
            self.refuse(now, why);
            return;
        }
        self.calls += 1;
        // In the ledger first: a call that nobody knows of must not be.
        if !self.record(now, line, News::Dial { by: demand.by, priority: demand.priority }) {
            self.calls -= 1;
            self.refuse(now, Refusal::Ledger);
            return;
        }
        self.refused = None;
        self.metrics.dialled += 1;
        let wall = self.wall(now);
        self.dialled.retain(|at| wall.since(*at) < DAY);
        self.dialled.push_back(wall);
        self.log.push(LineNotice::Dialling { call: self.calls, by: demand.by });
        self.state = State::Dialling { since: now };
        line.dial(self.calls);
    }

    /// A demand cannot be met: it is forgotten, and what still waits is looked at again later.
    fn refuse(&mut self, now: Instant, why: Refusal) {
        self.count(why);
        self.log_refusal(why);
        self.demand = None;
        self.again = now + LOOK_AGAIN;
    }

    /// Logs why the line is not set up, once for each reason between two calls.
    pub fn log_refusal(&mut self, why: Refusal) {
        if self.refused.map(|before| std::mem::discriminant(&before)) != Some(std::mem::discriminant(&why)) {
            self.log.push(LineNotice::Refused(why));
        }
        self.refused = Some(why);
    }

    fn count(&mut self, why: Refusal) {
        match why {
            Refusal::NotListed(by) => self.metrics.not_listed[by as usize] += 1,
            Refusal::CallsPerHour(_) | Refusal::CallsPerDay(_) => self.metrics.refused_calls += 1,
            Refusal::Cap(_) => self.metrics.refused_cap += 1,
            Refusal::Ledger => self.metrics.refused_ledger += 1,
        }
    }

    fn on_failed(&mut self, now: Instant, line: &mut dyn Line, why: LineFailure) {
        self.record(now, line, News::Failed { why });
        self.metrics.failed += 1;
        let pause = self.back_off(now);
        self.log.push(LineNotice::Failed { call: self.calls, why, pause });
        self.state = State::Down;
    }

    fn on_ended(&mut self, now: Instant, line: &mut dyn Line, call: &Call, why: Ending, traffic: &Traffic) {
        let usage = self.usage(now, call, traffic);
        let cost = self.account.as_mut().map(|account| account.settle(call.charged_from, &usage));
        let cost_nano = cost.unwrap_or_default().nano;
        self.record(now, line, News::Ended { why, forward: usage.forward, back: usage.back, cost_nano });
        self.metrics.airtime += usage.time;
        self.log.push(LineNotice::Down { call: self.calls, why, airtime: usage.time, cost });
        self.state = State::Down;
        // A call over which nothing came, or that left behind what waits, was of no use: the next must not follow at once.
        if traffic.heard.is_none_or(|heard| heard < call.since) || (traffic.waits && why == Ending::Idle) {
            self.back_off(now);
        } else {
            self.failures = 0;
        }
    }

    /// The pause before the next call.
    fn back_off(&mut self, now: Instant) -> Duration {
        let DialSettings { back_off, back_off_most, .. } = self.settings;
        let pause = back_off.ns.saturating_mul(1 << self.failures.min(32)).min(back_off_most.ns);
        self.failures += 1;
        self.again = now + Duration { ns: pause };
        Duration { ns: pause }
    }

    fn wants(&self) -> bool {
        self.demand.is_some() || self.waits
    }

    /// Whether another call may be made.
    fn admit(&self, now: Instant, priority: bool) -> Result<(), Refusal> {
        if priority {
            return Ok(());
        }
        let wall = self.wall(now);
        let within = |span: Duration| self.dialled.iter().rev().take_while(|at| wall.since(**at) < span).count();
        let DialSettings { calls_per_hour, calls_per_day, .. } = self.settings;
        if within(HOUR) >= calls_per_hour as usize {
            return Err(Refusal::CallsPerHour(calls_per_hour));
        }
        if within(DAY) >= calls_per_day as usize {
            return Err(Refusal::CallsPerDay(calls_per_day));
        }
        self.account.as_ref().map_or(Ok(()), |account| account.admit(wall).map_err(Refusal::Cap))
    }

    /// Writes an entry of the current call; whether that worked.
    fn record(&mut self, now: Instant, line: &mut dyn Line, news: News) -> bool {
        let entry = Entry { call: self.calls, at_ns: self.wall(now).ns, news };
        line.record(&entry.line()).is_ok()
    }

    fn wall(&self, now: Instant) -> Instant {
        now + self.epoch
    }

    fn usage(&self, now: Instant, call: &Call, traffic: &Traffic) -> Usage {
        Usage {
            time: self.wall(now).since(call.charged_from),
            forward: traffic.forward.saturating_sub(call.before[0]),
            back: traffic.back.saturating_sub(call.before[1]),
        }
    }

    /// Only what comes from the other side keeps a call up: what this side sends may be questions that nobody answers.
    fn lingers_until(&self, call: &Call, traffic: &Traffic) -> Instant {
        let last = traffic.heard.map_or(call.since, |heard| heard.max(call.since));
        last + self.settings.linger.max(traffic.answer_time)
    }

    /// When a cap on money ends the call.
    fn cap_at(&self, call: &Call, traffic: &Traffic) -> Option<Instant> {
        if call.priority {
            return None;
        }
        let account = self.account.as_ref()?;
        let usage = self.usage(call.since, call, traffic);
        let most = account.longest(call.charged_from, &usage)?;
        let wall = call.charged_from + most;
        Some(Instant { ns: wall.ns.saturating_sub(self.epoch.ns) })
    }

    /// When the call is written down again: at the end of each increment of time.
    fn entry_after(&self, now: Instant, call: &Call) -> Instant {
        let [least, without] = ENTRY_EVERY;
        let price = self.account.as_ref().and_then(|account| account.tariff().time);
        let step = price.map_or(without, |price| price.following.max(least).min(HOUR));
        let spent = self.wall(now).since(call.charged_from);
        let into = price.map_or(0, |price| spent.ns.saturating_sub(price.first.ns) % step.ns);
        let left = match price {
            Some(price) if spent < price.first => price.first.ns - spent.ns,
            _ => step.ns - into,
        };
        now + Duration { ns: left }
    }
}

impl fmt::Display for LineNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineNotice::Dialling { call, by } => write!(f, "call {call}: dialling ({by})"),
            LineNotice::Up { call, after } => write!(f, "call {call}: up after {:.1} s", after.as_secs_f64()),
            LineNotice::Failed { call, why, pause } => {
                write!(f, "call {call} failed: {why}; the next in {:.0} s at the earliest", pause.as_secs_f64())
            }
            LineNotice::Down { call, why, airtime, cost } => {
                let why = match why {
                    Ending::Idle => "idle",
                    Ending::Cap => "a cap is reached",
                    Ending::Dropped => "dropped",
                    Ending::Stopped => "stopped",
                    Ending::Crashed => "the gateway had ended",
                };
                write!(f, "call {call}: down ({why}) after {:.1} s on air", airtime.as_secs_f64())?;
                cost.map_or(Ok(()), |cost| write!(f, ", cost {cost}"))
            }
            LineNotice::Refused(why) => write!(f, "the line is not set up: {why}"),
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
