//! The dialler against a line of which every call is scripted.

use super::*;
use bentpipe_link::catalogue;
use bentpipe_net::line::LedgerError;

/// A line whose calls come up after `set_up`, or fail.
struct TestLine {
    now: Instant,
    set_up: Duration,
    fails: Option<LineFailure>,
    due: Option<(Instant, LineEvent)>,
    up: bool,
    ledger: String,
    ledger_fails: bool,
    dialled: Vec<Instant>,
}

impl Line for TestLine {
    fn record(&mut self, entry: &str) -> Result<(), LedgerError> {
        if self.ledger_fails {
            return Err(LedgerError);
        }
        self.ledger.push_str(entry);
        Ok(())
    }
    fn dial(&mut self, call: u64) {
        assert!(self.due.is_none() && !self.up, "a call at a time");
        let ledger = Ledger::read(self.ledger.as_bytes()).unwrap();
        assert_eq!(ledger.calls.last().unwrap().call, call, "in the ledger before it is made");
        self.dialled.push(self.now);
        self.due = Some((self.now + self.set_up, self.fails.map_or(LineEvent::Up, LineEvent::Failed)));
    }
    fn hang_up(&mut self) {
        self.due = Some((self.now, LineEvent::Down));
    }
    fn poll_event(&mut self) -> Option<LineEvent> {
        let (_, event) = self.due.take_if(|(at, _)| *at <= self.now)?;
        self.up = event == LineEvent::Up;
        Some(event)
    }
}

struct World {
    dialler: Dialler,
    line: TestLine,
    traffic: Traffic,
}

fn s(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

const OPEN: Demand = Demand { by: Raise::Open, priority: false };

impl World {
    fn new(settings: DialSettings, caps: &str) -> World {
        let over = toml::from_str(&format!("[tariff]\ncaps = {{ {caps} }}")).unwrap();
        let link = catalogue::named("iridium").unwrap().unwrap().with(over).unwrap();
        let account = link.tariff.map(Account::new);
        let line = TestLine {
            now: Instant::ZERO,
            set_up: Duration::from_secs(20),
            fails: None,
            due: None,
            up: false,
            ledger: String::new(),
            ledger_fails: false,
            dialled: Vec::new(),
        };
        let dialler = Dialler::new(settings, account, Duration::from_secs(8));
        World { dialler, line, traffic: Traffic::default() }
    }

    /// Polls whenever something is due, up to `until`.
    fn run(&mut self, until: Instant) {
        loop {
            self.dialler.poll(self.line.now, &mut self.line, &self.traffic);
            let due = [self.dialler.next_wake(&self.traffic), self.line.due.map(|(at, _)| at)];
            let next = due.into_iter().flatten().min().unwrap_or(Instant::FAR).max(self.line.now);
            if next > until {
                self.line.now = until;
                return;
            }
            self.line.now = next;
        }
    }

    fn hear(&mut self) {
        self.traffic.heard = Some(self.line.now);
    }

    fn calls(&self) -> Vec<super::super::ledger::LedgerCall> {
        Ledger::read(self.line.ledger.as_bytes()).unwrap().calls
    }
}

#[test]
fn a_demand_sets_the_line_up_and_silence_ends_it() {
    let mut world = World::new(DialSettings::default(), "");
    world.run(s(100));
    assert_eq!(world.line.dialled, [], "nobody asks");
    world.dialler.demand(s(100), OPEN).unwrap();
    world.run(s(125));
    assert!(world.dialler.is_up());
    world.hear();
    world.run(s(134));
    assert!(world.dialler.is_up());
    world.run(s(200));
    let [call] = world.calls()[..] else { panic!("{:?}", world.calls()) };
    // Up at 120 s, charged from 112 s; heard last at 125 s.
    assert_eq!((call.up, call.last), (Some((s(120), s(112))), s(135)));
    assert_eq!(world.dialler.metrics(s(200), &world.traffic).cost.to_string(), "0.96");
    assert_eq!(world.dialler.next_wake(&world.traffic), None, "nothing to wait for");
}

#[test]
fn only_what_is_listed_sets_the_line_up() {
    let mut world = World::new(DialSettings { raise: vec![Raise::Open], ..DialSettings::default() }, "");
    let data = Demand { by: Raise::Data, priority: false };
    assert_eq!(world.dialler.demand(s(0), data), Err(Refusal::NotListed(Raise::Data)));
    world.run(s(100));
    assert_eq!(world.line.dialled, []);
    assert_eq!(world.dialler.metrics(s(100), &world.traffic).not_listed, [0, 1, 0]);
    world.dialler.demand(s(100), Demand { priority: true, ..data }).unwrap();
    world.run(s(101));
    assert_eq!(world.line.dialled, [s(100)], "priority needs no list");
}

/// Something waits for days, and every call fails: no more calls than the caps allow, ever further apart.
#[test]
fn calls_that_fail_stay_under_the_caps() {
    for why in [LineFailure::Busy, LineFailure::NoCarrier] {
        let settings = DialSettings { calls_per_hour: 12, calls_per_day: 150, ..DialSettings::default() };
        let mut world = World::new(settings, "");
        world.line.fails = Some(why);
        world.line.set_up = Duration::from_secs(3);
        world.traffic.waits = true;
        world.run(s(8 * 24 * 3600));
        let dialled = &world.line.dialled;
        assert!(dialled.len() >= 1_000, "{}", dialled.len());
        for (from, at) in dialled.iter().enumerate() {
            let within =
                |span: u64| dialled[from..].iter().filter(|other| other.since(*at).ns < span * 1_000_000_000).count();
            assert!(within(3600) <= 12 && within(24 * 3600) <= 150, "from call {from}");
        }
        let pauses: Vec<u64> =
            dialled.windows(2).take(8).map(|pair| pair[1].since(pair[0]).ns / 1_000_000_000).collect();
        assert_eq!(pauses, [18, 33, 63, 123, 243, 483, 603, 603], "3 s and the pause, doubled up to 10 min");
        let metrics = world.dialler.metrics(world.line.now, &world.traffic);
        assert_eq!((metrics.failed, metrics.cost), (dialled.len() as u64, Money::ZERO));
    }
}

#[test]
fn a_line_that_nothing_comes_over_is_not_held_up_and_not_dialled_at_once() {
    let mut world = World::new(DialSettings::default(), "");
    world.traffic.waits = true;
    world.run(s(3600));
    // 20 s of set-up, 10 s of silence, and a pause that doubles.
    let dialled = &world.line.dialled;
    let pauses: Vec<u64> = dialled.windows(2).map(|pair| pair[1].since(pair[0]).ns / 1_000_000_000).collect();
    assert_eq!(pauses[..4], [45, 60, 90, 150]);
    assert!(
        world.calls().iter().all(|call| call.airtime() <= Duration::from_secs(18)),
        "8 s before it is up, and 10 s"
    );
}

#[test]
fn a_set_up_that_takes_too_long_is_given_up() {
    let mut world = World::new(DialSettings { set_up: Duration::from_secs(15), ..DialSettings::default() }, "");
    world.dialler.demand(s(0), OPEN).unwrap();
    world.run(s(16));
    assert!(world.dialler.is_down());
    assert!(
        world
            .dialler
            .take_log()
            .iter()
            .any(|notice| { matches!(notice, LineNotice::Failed { why: LineFailure::TimedOut, .. }) })
    );
}

#[test]
fn at_the_cap_calls_end_and_are_refused_and_priority_passes() {
    let mut world = World::new(DialSettings::default(), "day = '1'");
    world.traffic.waits = true;
    world.dialler.demand(s(0), OPEN).unwrap();
    for second in 0..120 {
        world.run(s(second));
        world.hear();
    }
    let [call] = world.calls()[..] else { panic!("{:?}", world.calls()) };
    assert_eq!(call.airtime(), Duration::from_secs(40), "0.96, and the next increment would be 1.44");
    let refused = world.dialler.demand(s(120), OPEN).unwrap_err();
    assert_eq!(refused.to_string(), "the cap of 1.00 a day is reached: 0.96 spent, and a session costs 0.48 or more");
    assert_eq!(world.dialler.refusal(s(120)), Some(refused));
    assert!(world.dialler.take_log().iter().any(|notice| matches!(notice, LineNotice::Refused(Refusal::Cap(_)))));
    world.dialler.demand(s(120), Demand { by: Raise::Data, priority: true }).unwrap();
    world.run(s(200));
    assert_eq!(world.line.dialled.len(), 2, "what has priority passes");
    world.run(s(24 * 3600 + 100));
    assert!(world.line.dialled.len() > 2, "the next day");
}

#[test]
fn no_call_without_the_ledger() {
    let mut world = World::new(DialSettings::default(), "");
    world.line.ledger_fails = true;
    world.dialler.demand(s(0), OPEN).unwrap();
    world.run(s(1000));
    assert_eq!(world.line.dialled, []);
    assert_eq!(world.dialler.metrics(s(1000), &world.traffic).refused_ledger, 1);
}

/// Cut at any time, the ledger knows the call's price to one increment.
#[test]
fn after_a_crash_the_error_is_one_increment_at_most() {
    let mut world = World::new(DialSettings::default(), "");
    world.dialler.demand(s(0), OPEN).unwrap();
    let tariff = world.dialler.account.as_ref().unwrap().tariff().clone();
    let step = Money { nano: 480_000_000 };
    for tenth in 1..3000 {
        let now = Instant::ZERO + Duration::from_millis(tenth * 100);
        world.run(now);
        world.hear();
        let (_, account) = Ledger::read(world.line.ledger.as_bytes()).unwrap().bill(&tariff);
        let (known, real) = (account.total(), world.dialler.metrics(now, &world.traffic).cost);
        assert!(known <= real && real.less(known) <= step, "{now:?}: {known} of {real}");
    }
    let mut next = World::new(DialSettings::default(), "");
    next.dialler.restore(&Ledger::read(world.line.ledger.as_bytes()).unwrap());
    assert_eq!((next.dialler.calls, next.dialler.dialled.len()), (1, 1));
    assert!(next.dialler.account.as_ref().unwrap().total() > money("6.00"), "288 s and 8 s");
}

fn money(text: &str) -> Money {
    text.parse().unwrap()
}
