//! Gathers samples of both sides of a scenario until the comparison is decided.

use super::index::{Entry, Kind};
use super::replicate::replicate;
use super::samples::SampleFile;
use super::verdict::{Twins, Verdict, judge_exact, judge_random, random_ratio};
use crate::runner::{Event, Progress, Ran, RunId, Runner, Runs, Subject, World};
use crate::statistics::Summary;
use bentpipe_lab::events::Sink;
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

/// The runs of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct CampaignOptions {
    /// Run the live side (stored samples are used in any case).
    pub live: bool,
    /// Run the virtual side.
    pub simulate: bool,
    /// Most live runs of one scenario.
    pub max_rounds: u32,
}

/// The two worlds of a campaign, and the takers of its samples and events.
pub struct Campaign<'a> {
    /// Real kernels.
    pub live: &'a dyn World,
    /// The simulator.
    pub simulator: &'a dyn World,
    /// Simulations at a time.
    pub workers: NonZeroUsize,
    /// Ends the campaign early.
    pub stop: &'a AtomicBool,
    /// Keeps samples.
    pub save: &'a mut dyn FnMut(&SampleFile) -> Result<(), String>,
    /// Takes the events of the runs.
    pub sink: &'a mut dyn Sink<Event>,
}

impl Campaign<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn simulate<R: Runs>(&mut self, shared: &R::Shared, runs: &mut R) {
        let Campaign { simulator, workers, stop, .. } = *self;
        Runner { world: simulator, workers, attempts: 1, stop, sink: self.sink }.run(shared, runs);
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The scenario's name in the list.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The compared value.
    pub measurement: String,
    /// Its unit.
    pub unit: String,
    /// The kind of comparison.
    pub kind: Kind,
    /// Shown, but not counted.
    pub informative: bool,
    /// The live samples.
    pub live: Option<Summary>,
    /// The virtual samples.
    #[serde(rename = "virtual")]
    pub simulated: Option<Summary>,
    /// Live ÷ virtual.
    pub ratio: Option<f64>,
    /// The ratio's 95 % confidence interval.
    pub interval: Option<(f64, f64)>,
    /// The correlation ρ of live and virtual runs with the same seed.
    pub correlation: Option<f64>,
    /// Its verdict.
    pub verdict: Verdict,
    /// Why a side has no, or no more, samples.
    pub problem: Option<String>,
    /// The list's remark.
    pub note: Option<String>,
    /// When the last live sample was taken.
    pub live_created: String,
    /// The kernel of the live samples.
    pub kernel: String,
    /// The machine of the live samples.
    pub machine: String,
}

/// Live runs tried again when one was late.
const LIVE_ATTEMPTS: usize = 3;
/// Without a virtual side: live samples are enough when their mean is known this well.
const LIVE_PRECISION: f64 = 0.025;
/// Virtual runs of a scenario without errors.
const EXACT_SEEDS: usize = 3;
/// Virtual runs of one with errors: at least, at most, and the precision at which they are enough. (With twins the ratio hardly
/// depends on how well their mean is known.)
const RANDOM_SEEDS: (usize, usize) = (60, 400);
const VIRTUAL_PRECISION: f64 = 0.005;
/// Seeds of the virtual runs start here, so that no live run has the same errors.
const VIRTUAL_SEED: u64 = 1_000_001;

/// Compares one scenario; `stored` are live samples of an earlier campaign.
pub fn compare(
    entry: &Entry,
    stored: Option<SampleFile>,
    options: CampaignOptions,
    campaign: &mut Campaign<'_>,
) -> Row {
    let mut problem = None;
    let mut simulated = SampleFile::empty(entry, "virtual");
    if options.simulate
        && let Err(why) = gather_virtual(entry, &mut simulated, campaign)
    {
        problem = Some(format!("virtual: {why}"));
    }
    let mut live = stored.unwrap_or_else(|| SampleFile::empty(entry, "live"));
    let mut twins = SampleFile::empty(entry, "twin");
    loop {
        if let (true, None, Err(why)) = (options.simulate, &problem, gather_twins(entry, &live, &mut twins, campaign)) {
            problem = Some(format!("twins: {why}"));
        }
        if !options.live || campaign.is_stopped() || problem.is_some() {
            break;
        }
        if !live_wanted(entry, &live, &simulated, &twins, options) {
            break;
        }
        if let Err(why) = one_live_round(entry, &mut live, campaign) {
            problem = Some(format!("live: {why}"));
        }
        if let Err(why) = (campaign.save)(&live) {
            problem = Some(why);
        }
    }
    // What came from another folder is kept with the rest.
    if let (false, Err(why)) = (live.samples.is_empty(), (campaign.save)(&live)) {
        problem = Some(why);
    }
    row(entry, &live, &simulated, &twins, problem)
}

/// Whether another live run is needed.
fn live_wanted(
    entry: &Entry,
    live: &SampleFile,
    simulated: &SampleFile,
    twins: &SampleFile,
    options: CampaignOptions,
) -> bool {
    let rounds = live.rounds();
    if rounds < entry.rounds.min(options.max_rounds) {
        return true;
    }
    if entry.kind == Kind::Exact || rounds >= options.max_rounds || entry.informative {
        return false;
    }
    let Some(summary) = Summary::of(&live.values()) else { return true };
    match Summary::of(&simulated.values()) {
        Some(simulated) => judge_random(&summary, &simulated, paired(live, twins).as_ref()) == Verdict::Undecided,
        None => summary.precision().is_none_or(|precision| precision > LIVE_PRECISION),
    }
}

/// Simulates until the mean is known well enough, judged after each run in the order of the seeds.
fn gather_virtual(entry: &Entry, file: &mut SampleFile, campaign: &mut Campaign<'_>) -> Result<(), String> {
    let (least, most) = if entry.kind == Kind::Exact { (EXACT_SEEDS, EXACT_SEEDS) } else { RANDOM_SEEDS };
    let seeds = (0..most as u64).map(|number| Copies { seed: VIRTUAL_SEED + number, copies: 1 });
    let is_enough = |file: &SampleFile| {
        let precise = || Summary::of(&file.values()).and_then(|s| s.precision()).is_some_and(|p| p < VIRTUAL_PRECISION);
        file.samples.len() >= least && precise()
    };
    simulate(entry, seeds.collect(), file, &is_enough, campaign)?;
    (campaign.save)(file)
}

/// Simulates the live runs that have no twin yet: the same seeds and copies, so the same errors on the same links.
fn gather_twins(
    entry: &Entry,
    live: &SampleFile,
    file: &mut SampleFile,
    campaign: &mut Campaign<'_>,
) -> Result<(), String> {
    if entry.kind == Kind::Exact {
        return Ok(());
    }
    let mut copies: BTreeMap<u64, usize> = BTreeMap::new();
    for sample in &live.samples {
        let most = copies.entry(sample.seed).or_default();
        *most = sample.copy.max(*most);
    }
    copies.retain(|seed, _| file.samples.iter().all(|twin| twin.seed != *seed));
    if copies.is_empty() {
        return Ok(());
    }
    let twins = copies.into_iter().map(|(seed, copies)| Copies { seed, copies });
    simulate(entry, twins.collect(), file, &|_| false, campaign)?;
    (campaign.save)(file)
}

/// Simulates these runs in order until there are enough samples.
fn simulate(
    entry: &Entry,
    runs: Vec<Copies>,
    file: &mut SampleFile,
    is_enough: &dyn Fn(&SampleFile) -> bool,
    campaign: &mut Campaign<'_>,
) -> Result<(), String> {
    let mut modelled =
        Modelled { entry, runs, begun: 0, waiting: BTreeMap::new(), taken: 0, file, is_enough, ended: None };
    campaign.simulate(entry, &mut modelled);
    modelled.ended.unwrap_or(Ok(()))
}

/// A run of several copies of a scenario's network.
#[derive(Clone, Copy, Debug)]
struct Copies {
    seed: u64,
    copies: usize,
}

/// Simulations under way. Their samples are taken in order, whichever is over first.
struct Modelled<'a> {
    entry: &'a Entry,
    runs: Vec<Copies>,
    begun: usize,
    /// Over, but one before is not.
    waiting: BTreeMap<usize, Result<Record, String>>,
    taken: usize,
    file: &'a mut SampleFile,
    is_enough: &'a dyn Fn(&SampleFile) -> bool,
    /// There are enough samples, or a run failed.
    ended: Option<Result<(), String>>,
}

impl Runs for Modelled<'_> {
    type Key = (usize, Copies);
    type Output = Record;
    type Shared = Entry;

    fn id(entry: &Entry, (number, run): Self::Key) -> RunId {
        let subject = Subject::Modelled { scenario: entry.name.clone(), copies: run.copies };
        RunId::new(subject, u32::try_from(number + 1).unwrap_or(u32::MAX))
    }

    fn scenario(entry: &Entry, (_, run): Self::Key) -> Result<Scenario, String> {
        replicate(&entry.file, &entry.text, run.copies, run.seed).map_err(|error| error.to_string())
    }

    fn measure(_: &Entry, _: Self::Key, _: &Scenario, ran: Ran) -> Result<Record, String> {
        Ok(ran.record)
    }

    fn next(&mut self) -> Option<Self::Key> {
        let next = *self.runs.get(self.begun).filter(|_| self.ended.is_none())?;
        self.begun += 1;
        Some((self.begun - 1, next))
    }

    fn done(&mut self, (number, _): Self::Key, result: Result<Record, String>, cancelled: bool) {
        if cancelled {
            return;
        }
        self.waiting.insert(number, result);
        while self.ended.is_none()
            && let Some(result) = self.waiting.remove(&self.taken)
        {
            let copies = self.runs[self.taken].copies;
            self.taken += 1;
            match result.and_then(|record| self.file.add(self.entry, &record, copies)) {
                Ok(()) if (self.is_enough)(self.file) => self.ended = Some(Ok(())),
                Ok(()) => {}
                Err(why) => self.ended = Some(Err(why)),
            }
        }
    }

    fn progress(&self, running: usize) -> Progress {
        Progress { done: self.taken, total: self.runs.len(), running, ..Progress::default() }
    }
}

/// The live samples with their twins.
fn paired(live: &SampleFile, twins: &SampleFile) -> Option<Twins> {
    let twin = |seed, copy| twins.samples.iter().find(|twin| (twin.seed, twin.copy) == (seed, copy));
    let pairs: Option<Vec<(f64, f64)>> =
        live.samples.iter().map(|sample| Some((sample.value, twin(sample.seed, sample.copy)?.value))).collect();
    Twins::of(&pairs?)
}

/// Runs all copies once. A late run is repeated, never used.
fn one_live_round(entry: &Entry, file: &mut SampleFile, campaign: &mut Campaign<'_>) -> Result<(), String> {
    let number = file.rounds() + 1;
    let seed = u64::from(number);
    let scenario = replicate(&entry.file, &entry.text, entry.copies, seed).map_err(|error| error.to_string())?;
    let Campaign { live, stop, .. } = *campaign;
    let mut runner =
        Runner { world: live, workers: NonZeroUsize::MIN, attempts: LIVE_ATTEMPTS, stop, sink: campaign.sink };
    let subject = Subject::Measured { scenario: entry.name.clone(), copies: entry.copies };
    let Ran { record, invalid } = runner.one(&RunId::new(subject, number), &scenario)?;
    file.discarded.extend(invalid.iter().map(|reasons| format!("run {seed}: {}", reasons.join("; "))));
    if record.interrupted || campaign.is_stopped() {
        return Err("interrupted".to_owned());
    }
    match invalid.last().filter(|_| invalid.len() == LIVE_ATTEMPTS) {
        Some(last) => Err(format!("{LIVE_ATTEMPTS} runs were not valid, the last because {}", last.join("; "))),
        None => file.add(entry, &record, entry.copies),
    }
}

fn row(entry: &Entry, live: &SampleFile, simulated: &SampleFile, twins: &SampleFile, problem: Option<String>) -> Row {
    let (measured, modelled) = (Summary::of(&live.values()), Summary::of(&simulated.values()));
    let both = measured.as_ref().zip(modelled.as_ref());
    let twins = paired(live, twins);
    let (ratio, interval, verdict) = match (both, entry.kind) {
        (None, _) => (None, None, Verdict::Missing),
        (Some((live, simulated)), Kind::Exact) => {
            (Some(live.mean / simulated.mean), None, judge_exact(live, simulated))
        }
        (Some((live, simulated)), Kind::Random) => {
            let found = random_ratio(live, simulated, twins.as_ref());
            let verdict = judge_random(live, simulated, twins.as_ref());
            (found.map(|(ratio, _)| ratio), found.map(|(_, interval)| interval), verdict)
        }
    };
    Row {
        name: entry.name.clone(),
        title: entry.title.clone(),
        measurement: entry.measurement.clone(),
        unit: if live.unit.is_empty() { simulated.unit.clone() } else { live.unit.clone() },
        kind: entry.kind,
        informative: entry.informative,
        live: measured,
        simulated: modelled,
        ratio,
        interval,
        correlation: twins.map(|twins| twins.correlation),
        verdict,
        problem,
        note: entry.note.clone(),
        live_created: live.created.clone(),
        kernel: live.kernel.clone(),
        machine: live.machine.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_lab::record::{Better, CaseRecord, Measurement, Status, Unit, WorkloadRecord};
    use std::sync::atomic::AtomicUsize;

    const TEXT: &str = "title = 'x'\n[links.sat]\nkind = 'acts-t1'\nbetween = ['hub', 'pc']\n\
                        [[workloads]]\nname = 'w'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '1 kB'\n";
    const OPTIONS: CampaignOptions = CampaignOptions { live: true, simulate: true, max_rounds: 5 };

    fn entry(kind: Kind) -> Entry {
        Entry {
            name: "x".to_owned(),
            file: "x.toml".to_owned(),
            text: TEXT.to_owned(),
            title: "x".to_owned(),
            workloads: vec!["w".to_owned()],
            measurement: "goodput".to_owned(),
            kind,
            copies: 4,
            rounds: 2,
            informative: false,
            note: None,
        }
    }

    /// A record in which every workload has this goodput, a little different for each seed.
    fn record(scenario: &Scenario, goodput: f64, valid: bool) -> Record {
        // A negative one stands for a scatter of its own, 3 % up or down.
        let scatter = if goodput < 0.0 { 0.03 } else { 0.0 };
        let value = |i: usize| goodput.abs() * (1.0 + scatter * [1.0, -1.0][i % 2] + 0.01 * (scenario.seed % 3) as f64);
        let workload = |(i, name): (usize, &String)| {
            let mut workload = WorkloadRecord::default();
            (workload.name, workload.status) = (name.clone(), Status::Done);
            workload.measurements = vec![Measurement::new("goodput", Unit::BitsPerSecond, Better::Higher, value(i))];
            workload
        };
        let names = scenario.cases[0].workloads.iter().map(|w| &w.id.name);
        let workloads = names.enumerate().map(workload).collect();
        let mut case = CaseRecord::default();
        (case.workloads, case.validity.valid) = (workloads, valid);
        let mut record = Record::default();
        (record.seed, record.cases) = (scenario.seed, vec![case]);
        record
    }

    fn compared(entry: &Entry, stored: Option<SampleFile>, options: CampaignOptions, live: &dyn World) -> Row {
        let simulator = |scenario: &Scenario, _: &AtomicBool| Ok(record(scenario, 100.0, true));
        let (stop, workers) = (AtomicBool::new(false), NonZeroUsize::new(3).unwrap());
        let save = &mut |_: &SampleFile| Ok(());
        compare(
            entry,
            stored,
            options,
            &mut Campaign { live, simulator: &simulator, workers, stop: &stop, save, sink: &mut () },
        )
    }

    fn outcome(entry: &Entry, options: CampaignOptions, live: f64, late: usize) -> (Row, usize) {
        let runs = AtomicUsize::new(0);
        let live = |scenario: &Scenario, _: &AtomicBool| {
            let number = runs.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(record(scenario, live, number > late))
        };
        let row = compared(entry, None, options, &live);
        (row, runs.into_inner())
    }

    #[test]
    fn an_exact_comparison_takes_its_rounds() {
        let (row, runs) = outcome(&entry(Kind::Exact), OPTIONS, 101.0, 0);
        assert_eq!((row.verdict, runs, row.interval), (Verdict::Agrees, 2, None));
        assert_eq!(row.live.map(|s| s.n), Some(8));
        assert_eq!(outcome(&entry(Kind::Exact), OPTIONS, 110.0, 0).0.verdict, Verdict::Differs);
    }

    #[test]
    fn a_random_comparison_adds_rounds_until_it_is_decided() {
        let (row, runs) = outcome(&entry(Kind::Random), OPTIONS, 100.0, 0);
        assert_eq!((row.verdict, runs), (Verdict::Agrees, 2));
        // Half the copies 3 % above, half 3 % below what the same errors give in the simulator.
        let (row, runs) = outcome(&entry(Kind::Random), OPTIONS, -105.0, 0);
        assert_eq!((row.verdict, runs), (Verdict::Undecided, 5));
        assert_eq!(outcome(&entry(Kind::Random), OPTIONS, 120.0, 0).0.verdict, Verdict::Differs);
    }

    #[test]
    fn live_runs_are_compared_with_twins_of_the_same_seeds() {
        let (row, _) = outcome(&entry(Kind::Random), OPTIONS, 104.0, 0);
        // The seeds of the live runs have a mean of 101.5 % of what is set, those of the virtual runs of 101 %: the ratio
        // of the means alone would be 1.045.
        let (low, high) = row.interval.unwrap();
        assert!((row.ratio.unwrap() - 1.04).abs() < 0.001, "{:?}", row.ratio);
        assert!((row.correlation.unwrap() - 1.0).abs() < 1e-9 && high - low < 0.001, "{row:?}");
    }

    #[test]
    fn late_runs_are_repeated_and_never_used() {
        let (row, runs) = outcome(&entry(Kind::Exact), OPTIONS, 100.0, 2);
        assert_eq!((row.verdict, runs), (Verdict::Agrees, 4));
        let (row, runs) = outcome(&entry(Kind::Exact), OPTIONS, 100.0, 3);
        assert_eq!((row.verdict, runs), (Verdict::Missing, 3));
        assert!(row.problem.unwrap().contains("not valid"));
    }

    #[test]
    fn stored_samples_need_no_live_run() {
        let entry = entry(Kind::Exact);
        let mut stored = SampleFile::empty(&entry, "live");
        let scenario = replicate(&entry.file, &entry.text, 4, 1).unwrap();
        stored.add(&entry, &record(&scenario, 100.0, true), 4).unwrap();
        let stored = SampleFile::parse(&stored.to_json()).unwrap();
        assert!(stored.fits(&entry));
        let live = |_: &Scenario, _: &AtomicBool| Err("must not run".to_owned());
        let row = compared(&entry, Some(stored), CampaignOptions { live: false, ..OPTIONS }, &live);
        assert_eq!((row.verdict, row.problem), (Verdict::Agrees, None));
    }

    #[test]
    fn a_failed_transfer_is_no_sample() {
        let entry = entry(Kind::Exact);
        let scenario = replicate(&entry.file, &entry.text, 1, 1).unwrap();
        let mut failed = record(&scenario, 100.0, true);
        failed.cases[0].workloads[0].status = Status::Failed;
        let error = SampleFile::empty(&entry, "live").add(&entry, &failed, 1).unwrap_err();
        assert!(error.contains("failed"), "{error}");
    }
}
