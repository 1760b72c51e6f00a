//! The summary of a run: its verdict, its objectives, and one row per case and workload.

use super::quantity;
use super::repetitions::{Tally, group_label, grouped, spread};
use crate::record::{Better, CaseRecord, Measurement, Mode, Record, Role, Status, Unit, WorkloadRecord};

/// The summary of a run.
pub struct Summary {
    /// The scenario's title, or its file where it has none.
    pub title: String,
    /// The verdict on the results.
    pub verdict: Verdict,
    /// Why not, and what else stands between the reader and the figures, as sentences.
    pub reasons: Vec<String>,
    /// The run in plain language.
    pub paragraph: String,
    /// There is more than one case to tell apart.
    pub several_cases: bool,
    /// One per case and workload, in the record's order; copies and repetitions are one row.
    pub rows: Vec<Row>,
}

/// The verdict on a run's results, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A limit was broken.
    Invalid,
    /// Nothing was measured.
    Empty,
    /// Every workload was left out.
    LeftOut,
    /// Stopped by a signal.
    Interrupted,
    /// Not every case ran to its end.
    Incomplete,
    /// All of it.
    Valid,
}

impl Verdict {
    /// In a word or two.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Invalid => "✗ INVALID",
            Verdict::Empty => "✗ No case ran",
            Verdict::LeftOut => "! No workload ran",
            Verdict::Interrupted => "! Interrupted",
            Verdict::Incomplete => "! Incomplete",
            Verdict::Valid => "✓ Valid",
        }
    }

    /// In a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Verdict::Invalid => "A limit was broken: the figures of the cases named here must not be used.",
            Verdict::Empty => "The record holds no measurements.",
            Verdict::LeftOut => "Every workload was left out: only a live run can run commands.",
            Verdict::Interrupted => "The run was stopped; what had been measured until then is shown.",
            Verdict::Incomplete => "Not every case ran to its end; what had been measured until then is shown.",
            Verdict::Valid => "Every case ran to its end and no limit was broken.",
        }
    }

    /// Its tone.
    pub fn tone(self) -> Tone {
        match self {
            Verdict::Invalid | Verdict::Empty => Tone::Bad,
            Verdict::LeftOut | Verdict::Interrupted | Verdict::Incomplete => Tone::Warn,
            Verdict::Valid => Tone::Good,
        }
    }
}

/// Good, bad or neither; colour follows it, and words always stand next to the colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Met, valid.
    Good,
    /// Missed, failed, invalid.
    Bad,
    /// Cut off, undecided.
    Warn,
    /// Says nothing.
    #[default]
    Plain,
}

/// One workload of one case.
pub struct Row {
    /// The case's name.
    pub case: String,
    /// The case's results can be trusted.
    pub case_valid: bool,
    /// The workload's name, with the number of its runs where there are several.
    pub workload: String,
    /// The kind of workload.
    pub app: String,
    /// Who connects to whom.
    pub who: String,
    /// Which way the data goes; empty where that says nothing.
    pub direction: String,
    /// The objective as stated; empty without one.
    pub objective: String,
    /// The main measurement's name.
    pub result_name: String,
    /// The main measurement; of several runs, the median.
    pub result: String,
    /// The value that 95 % of several runs reach or better; empty for one.
    pub p95: String,
    /// The values of `result`, `p95` and `goodput`.
    pub values: [Option<f64>; 3],
    /// Goodput, where measured; of several runs, the median.
    pub goodput: String,
    /// Share of requests without an answer, where measured.
    pub loss: String,
    /// `✓ met`, `✗ missed`, …
    pub verdict: String,
    /// The verdict's tone.
    pub tone: Tone,
}

/// Sums the run up.
pub fn summarise(record: &Record) -> Summary {
    let rows: Vec<Row> = record
        .cases
        .iter()
        .flat_map(|case| grouped(&case.workloads).into_values().map(move |runs| row(case, &runs)))
        .collect();
    let (verdict, reasons) = verdict(record);
    Summary {
        title: title(record),
        verdict,
        reasons,
        paragraph: paragraph(record),
        several_cases: record.cases.len() > 1,
        rows,
    }
}

/// `✓ met` and its like.
pub fn workload_verdict(workload: &WorkloadRecord) -> (String, Tone) {
    let met = workload.objective.as_ref().map(|objective| objective.met);
    match (workload.status, met) {
        (Status::Failed, Some(_)) => ("✗ missed: failed".to_string(), Tone::Bad),
        (Status::Failed, None) => ("✗ failed".to_string(), Tone::Bad),
        (_, Some(Some(true))) => ("✓ met".to_string(), Tone::Good),
        (_, Some(Some(false))) => ("✗ missed".to_string(), Tone::Bad),
        (_, Some(None)) => ("? undecided".to_string(), Tone::Warn),
        (Status::Interrupted, None) => ("! cut off".to_string(), Tone::Warn),
        (Status::Done, None) => ("done".to_string(), Tone::Plain),
    }
}

/// The verdict on several runs: `✓ 12 of 12 met`.
pub fn group_verdict(runs: &[&WorkloadRecord]) -> (String, Tone) {
    if let [one] = runs {
        return workload_verdict(one);
    }
    let Tally { runs, judged, met, undecided, failed, cut_off } = Tally::of(runs);
    let share = |part: usize, all: usize| match part {
        part if part == all => String::new(),
        part => format!(" ({})", quantity::share(part as f64 / all as f64)),
    };
    if judged > 0 {
        let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let open = if undecided > 0 { format!(", {undecided} undecided") } else { String::new() };
        let (mark, tone) = match (met, undecided) {
            _ if met == judged => ("✓", Tone::Good),
            _ if met + undecided == judged => ("?", Tone::Warn),
            _ => ("✗", Tone::Bad),
        };
        return (format!("{mark} {met} of {judged} met{}{failures}{open}", share(met, judged)), tone);
    }
    match (failed, cut_off) {
        (0, 0) => ("done".to_string(), Tone::Plain),
        (0, _) => (format!("! {cut_off} of {runs} cut off"), Tone::Warn),
        _ => (format!("✗ {failed} of {runs} failed{}", share(failed, runs)), Tone::Bad),
    }
}

/// The one number that says most about a workload: its name and its text.
pub fn main_measurement(workload: &WorkloadRecord) -> Option<(String, String)> {
    main_value(workload).map(|measurement| (measurement.quantity.clone(), written(&measurement)))
}

/// The one number that says most about a workload.
pub fn main_value(workload: &WorkloadRecord) -> Option<Measurement> {
    // An objective in bits per second is judged by its rate, however long the transfer took.
    let wants_rate = workload.objective.as_ref().filter(|objective| objective.unit == Unit::BitsPerSecond);
    let rate = wants_rate.and_then(|objective| workload.measurement(&objective.quantity));
    let main = || workload.shown.main.iter().find_map(|quantity| workload.measurement(quantity));
    // Where the kind says what says most, another number in its place would mislead: a ping without replies has none.
    let first = || workload.measurements.first().filter(|_| workload.shown.main.is_empty());
    if let Some(measurement) = rate.or_else(main).or_else(first) {
        return Some(measurement.clone());
    }
    let end = workload.end.filter(|_| workload.status == Status::Done)?;
    Some(Measurement::new("duration", Unit::Seconds, Better::Lower, end - workload.start))
}

/// A measurement for people.
pub fn written(measurement: &Measurement) -> String {
    quantity::measurement(&measurement.unit, measurement.value)
}

fn row(case: &CaseRecord, runs: &[&WorkloadRecord]) -> Row {
    let first = runs[0];
    let (verdict, tone) = group_verdict(runs);
    let main = runs.iter().find_map(|run| main_value(run));
    let several = runs.len() > 1;
    let median = |quantity: &str| spread(runs, quantity).map(|spread| spread.median);
    // A duration is no measurement of its own.
    let result = main.as_ref().map(|main| median(&main.quantity).unwrap_or(main));
    let p95 = main.as_ref().filter(|_| several).and_then(|main| spread(runs, &main.quantity)).map(|spread| spread.p95);
    let goodput = median("goodput");
    let text = |measurement: Option<&Measurement>| measurement.map(written).unwrap_or_default();
    Row {
        case: case.name.clone(),
        case_valid: case.validity.valid,
        workload: group_label(runs),
        app: first.app.clone(),
        who: who(first),
        direction: first.direction.map(|direction| direction.to_string()).unwrap_or_default(),
        objective: first.objective.as_ref().map(ToString::to_string).unwrap_or_default(),
        result_name: result.map(|main| quantity::name(&main.quantity)).unwrap_or_default(),
        result: text(result),
        p95: text(p95),
        values: [result, p95, goodput].map(|measurement| measurement.map(|m| m.value)),
        goodput: text(goodput),
        loss: text(median("loss")),
        verdict,
        tone,
    }
}

fn who(workload: &WorkloadRecord) -> String {
    let sites = |wanted: fn(&Role) -> bool| {
        let sites = workload.parties.iter().filter(|party| wanted(&party.role)).map(|party| party.site.as_str());
        sites.collect::<Vec<_>>().join(", ")
    };
    let (servers, others) = (sites(|role| *role == Role::Server), sites(|role| *role != Role::Server));
    if servers.is_empty() { others } else { format!("{others} → {servers}") }
}

fn title(record: &Record) -> String {
    [record.title.trim(), record.scenario_file.trim(), "bentpipe run"]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
        .to_string()
}

fn verdict(record: &Record) -> (Verdict, Vec<String>) {
    let mut reasons = Vec::new();
    for case in record.cases.iter().filter(|case| !case.validity.valid) {
        let lead = if record.cases.len() > 1 { format!("{}: ", case.name) } else { String::new() };
        if case.validity.reasons.is_empty() {
            reasons.push(format!("{lead}marked invalid without a reason"));
        }
        reasons.extend(case.validity.reasons.iter().map(|reason| format!("{lead}{reason}")));
    }
    let invalid = !reasons.is_empty();
    let verdict = if record.cases.is_empty() {
        Verdict::Empty
    } else if invalid {
        Verdict::Invalid
    } else if record.interrupted {
        Verdict::Interrupted
    } else if !record.complete {
        Verdict::Incomplete
    } else if !record.left_out.is_empty() && record.cases.iter().all(|case| case.workloads.is_empty()) {
        Verdict::LeftOut
    } else {
        Verdict::Valid
    };
    if record.interrupted && verdict != Verdict::Interrupted {
        reasons.push(Verdict::Interrupted.sentence().to_string());
    } else if !record.complete && !record.interrupted && matches!(verdict, Verdict::Invalid) {
        reasons.push(Verdict::Incomplete.sentence().to_string());
    }
    (verdict, reasons)
}

fn paragraph(record: &Record) -> String {
    let workloads = || record.cases.iter().flat_map(|case| &case.workloads);
    let objectives = || workloads().filter_map(|workload| workload.objective.as_ref());
    let stated = objectives().count();
    let met = objectives().filter(|objective| objective.met == Some(true)).count();
    let undecided = objectives().filter(|objective| objective.met.is_none()).count();
    let mut sentences = Vec::new();
    if record.mode == Mode::Virtual {
        sentences.push("Simulated in virtual time.".to_string());
    }
    match (stated, workloads().count()) {
        (_, 0) => sentences.push("No workload ran.".to_string()),
        (0, _) if !record.left_out_objectives.is_empty() => {}
        (0, _) => sentences.push("The scenario states no objectives.".to_string()),
        (1, _) if met == 1 => sentences.push("The one objective was met.".to_string()),
        (1, _) if undecided == 0 => sentences.push("The one objective was missed.".to_string()),
        _ => sentences.push(format!("{met} of {stated} objectives met.")),
    }
    match &record.left_out_objectives[..] {
        [] => {}
        [one] => sentences.push(format!("The objective of {one} was not judged, for it was left out.")),
        several => {
            let names = several.join(", ");
            sentences.push(format!("The objectives of {names} were not judged, for these were left out."));
        }
    }
    if undecided > 0 {
        sentences.push(format!("{undecided} could not be judged, because the run was cut off before."));
    }
    let unsound = record.cases.iter().filter(|case| !case.validity.valid).flat_map(|case| &case.workloads);
    let unsound = unsound.filter(|workload| workload.objective.is_some()).count();
    if unsound > 0 {
        sentences.push(format!("{unsound} of these belong to an invalid case and say nothing."));
    }
    for case in record.cases.iter().take(CASES_SHOWN) {
        let groups = groups(case);
        if groups.is_empty() {
            continue;
        }
        let mut sentences_of: Vec<String> = groups.iter().take(WORKLOADS_SHOWN).map(|group| describe(group)).collect();
        if groups.len() > WORKLOADS_SHOWN {
            sentences_of.push(format!("{} more in the table", groups.len() - WORKLOADS_SHOWN));
        }
        let lead = if record.cases.len() > 1 { lead(case) } else { String::new() };
        sentences.push(format!("{lead}{}.", sentences_of.join("; ")));
    }
    if record.cases.len() > CASES_SHOWN {
        sentences.push(format!("{} more cases are in the table.", record.cases.len() - CASES_SHOWN));
    }
    let broken = record.cases.iter().flat_map(|case| &case.settings).filter(|setting| setting.broken).count();
    if broken > 0 {
        let settings = quantity::counted(broken as u64, "setting");
        sentences.push(format!("{settings} did not hold on the wire."));
    }
    sentences.join(" ")
}

/// "With 8 KB window: ", but "With gateway: " for a case of that name.
fn lead(case: &CaseRecord) -> String {
    let name = case.name.trim();
    let invalid = if case.validity.valid { "" } else { " (INVALID)" };
    match name.get(..4) {
        Some(with) if with.eq_ignore_ascii_case("with") => format!("With{}{invalid}: ", &name[4..]),
        _ => format!("With {name}{invalid}: "),
    }
}

/// The runs of each workload, those with an objective first.
fn groups(case: &CaseRecord) -> Vec<Vec<&WorkloadRecord>> {
    let mut groups: Vec<Vec<&WorkloadRecord>> = grouped(&case.workloads).into_values().collect();
    groups.sort_by_key(|group| group[0].objective.is_none());
    groups
}

/// "MRI image took 26.1 s (objective within 10 s: missed)".
fn describe(group: &[&WorkloadRecord]) -> String {
    let first = group[0];
    let name = if group.len() > 1 { first.name.clone() } else { first.label() };
    let failed = Tally::of(group).failed;
    let main = group.iter().find_map(|run| main_measurement(run));
    let what = match (group, &main) {
        ([one], _) if one.status == Status::Failed => match &one.error {
            Some(error) => format!("{name} failed ({error})"),
            None => format!("{name} failed"),
        },
        ([one], None) if one.status == Status::Interrupted => format!("{name} was cut off"),
        ([_], None) => format!("{name} ran"),
        ([_], Some((measure, value))) => format!("{name} {}", verb(measure, value)),
        (_, Some((measure, _))) => summarised(group, measure),
        (_, None) => format!("{name} ran {} times", group.len()),
    };
    let failures = if group.len() > 1 && failed > 0 { format!(", {failed} failed") } else { String::new() };
    let Some(objective) = &first.objective else { return format!("{what}{failures}") };
    let judged = match group {
        [one] => match one.objective.as_ref().and_then(|objective| objective.met) {
            Some(true) => "met".to_string(),
            Some(false) => "missed".to_string(),
            None => "undecided".to_string(),
        },
        several => {
            format!("met {} of {} times", Tally::of(several).met, several.len())
        }
    };
    format!("{what}{failures} (objective {objective}: {judged})")
}

fn verb(measure: &str, value: &str) -> String {
    match measure {
        "completion_time" | "duration" => format!("took {value}"),
        "goodput" => format!("reached {value}"),
        "rtt_median" => format!("had a median round-trip time of {value}"),
        other => format!("had {} {value}", quantity::name(other).to_lowercase()),
    }
}

/// "MRI image took 26.1 s in the median, 25.9 s to 27.0 s in 5 repetitions".
fn summarised(group: &[&WorkloadRecord], measure: &str) -> String {
    let name = &group[0].name;
    let Some(spread) = spread(group, measure) else { return format!("{name} ran {} times", group.len()) };
    let what = if group.iter().all(|run| run.copy.is_none()) { "repetitions" } else { "runs" };
    let (least, most) = (written(spread.least), written(spread.most));
    let median = verb(measure, &written(spread.median));
    format!("{name} {median} in the median, {least} to {most} in {} {what}", spread.runs)
}

/// Cases and workloads that the paragraph names before it points to the table.
const CASES_SHOWN: usize = 4;
const WORKLOADS_SHOWN: usize = 4;
