//! Settings of ordinary hosts for a link, their reasons and gains: candidates from closed forms, confirmed by
//! simulation, as commands for Linux, and measured live. `docs/explanation/tuning.md` explains it.

mod buffers;
mod candidate;
mod candidates;
mod circuit;
mod commands;
mod hosts;
mod idle;
mod measure;
mod mtu;
mod queue;
mod verify;

pub use circuit::SetUp;
pub use commands::{Command, ROUTE_COMMAND, ROUTE_EXPLAINED};
pub use hosts::{Atom, Hosts, Side};
pub use measure::{Ratio, Summary};
pub use mtu::Row as MtuRow;
pub use queue::{DEVICE, Discipline, Row as QueueRow};
pub use verify::{Measured, MeasuredQueue, Verified, VerifiedQueue, VerifyError, VerifyQuestion};

use crate::predict::{self, CONNECTIONS_MAX, Inputs, PredictError, leaves_to_chance};
use bentpipe_apps::Direction;
use bentpipe_lab::report::quantity;
use bentpipe_link::config::LinkConfig;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::units::{BitRate, DataSize};
use bentpipe_sim::model::asymmetry;
use bentpipe_sim::network::NetworkError;
use candidate::{Candidate, Path};
use measure::{Times, Transfer};
use serde::Serialize;

/// The link and transfers to tune for.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The link's name, for the answer.
    pub name: &'a str,
    /// The link, hub on one side and terminal, which connects, on the other.
    pub link: &'a LinkConfig,
    /// Both hosts as they are now.
    pub tcp: &'a TcpConfig,
    /// Which ways data goes.
    pub directions: Vec<Direction>,
    /// Sizes of transfers; none: three that suit the link.
    pub sizes: Vec<DataSize>,
    /// Connections that share a transfer.
    pub connections: u32,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The models refuse the question.
    #[error(transparent)]
    Question(#[from] PredictError),
    /// A transfer that the simulator would carry for too long.
    #[error("a transfer of {size} is too long to simulate many times; allowed: up to {most}")]
    TooLong {
        /// The requested size.
        size: DataSize,
        /// The longest.
        most: DataSize,
    },
    /// Too many sizes.
    #[error("{0} sizes; allowed: 1 to {SIZES_MAX}")]
    Sizes(usize),
    /// The simulator cannot run these hosts.
    #[error("cannot simulate the hosts: {0}")]
    Network(#[from] NetworkError),
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Tuning {
    /// The link's name.
    pub link: String,
    /// The hosts' preset.
    pub tcp: String,
    /// Connections that share a transfer.
    pub connections: u32,
    /// The inputs of the closed forms, by direction.
    pub paths: Vec<PathInputs>,
    /// Every setting that was tried, the recommended ones first.
    pub settings: Vec<Setting>,
    /// Settings that are right already, by closed forms alone.
    pub left_alone: Vec<String>,
    /// Lines for Linux that set what is recommended.
    pub commands: Vec<Command>,
    /// Settings that would help, or are often advised, and have no command.
    pub linux_cannot: Vec<String>,
    /// Packet sizes; empty where neither errors nor a thin line ask for small ones.
    pub mtu: Vec<MtuRow>,
    /// Queue disciplines of the link's transmitters; empty where they are no FIFOs.
    pub queues: Vec<QueueRow>,
    /// A dial-up link's set-up.
    pub set_up: Option<SetUp>,
    /// The gain: simulated times.
    pub predicted: Vec<Predicted>,
    /// The same, measured; filled by [`verify`](Self::verify).
    pub verified: Option<Vec<Verified>>,
    /// The recommended queue disciplines, measured likewise; those whose transfer takes too long are left out.
    pub verified_queues: Option<Vec<VerifiedQueue>>,
    /// Further notes.
    pub notes: Vec<String>,
    /// Channels that are called up on demand; the simulator has them all from the start.
    #[serde(skip)]
    on_demand: Option<usize>,
    #[serde(skip)]
    hosts: (Hosts, Hosts),
    #[serde(skip)]
    atoms: Vec<Atom>,
}

/// The inputs of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct PathInputs {
    /// `download` or `upload`.
    pub direction: &'static str,
    /// As `bentpipe predict` has them.
    #[serde(flatten)]
    pub inputs: Inputs,
    /// Application bits a second for which the way back carries acknowledgements, where that is less than the link's.
    pub acknowledged_bps: Option<u64>,
}

/// A setting and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// Its values, each at its host; of those tried the best.
    pub values: Vec<Atom>,
    /// The ways of data that it is for.
    pub directions: Vec<&'static str>,
    /// The closed form behind it.
    pub why: String,
    /// Where the advice is from.
    pub source: &'static str,
    /// Time with it ÷ time without it: together with all that is recommended, or, for what is not, where it was tried.
    pub effects: Vec<Effect>,
}

/// The simulator's verdict on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Faster somewhere and slower nowhere.
    Recommended,
    /// Faster somewhere and slower nowhere, but Linux has no command for it.
    NoCommand,
    /// Faster nowhere.
    NoGain,
    /// Slower somewhere.
    Loss,
}

/// The effect of a setting on one transfer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Effect {
    /// `download` or `upload`.
    pub direction: &'static str,
    /// Application bytes.
    pub bytes: u64,
    /// On a connection that was idle.
    pub after_idle: bool,
    /// Time with the setting ÷ without.
    #[serde(flatten)]
    pub ratio: Ratio,
}

/// Simulated times of one transfer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Predicted {
    /// `download` or `upload`.
    pub direction: &'static str,
    /// Application bytes.
    pub bytes: u64,
    /// On a connection that was idle.
    pub after_idle: bool,
    /// Both hosts as they are now.
    pub before: Summary,
    /// Only the terminal with what is recommended.
    pub terminal_only: Summary,
    /// Only the hub.
    pub hub_only: Summary,
    /// Both.
    pub after: Summary,
}

/// Most sizes of a question.
pub const SIZES_MAX: usize = 8;
/// Segments that one run may carry.
const SEGMENTS_MAX: u64 = 400_000;
/// Segments that the runs of one transfer may carry together.
const SEGMENTS_ALL_MAX: u64 = 120_000;
/// Runs of a link on which something is left to chance. Odd, so that one of them is the median.
const RUNS: u64 = 15;
/// Sizes to choose from, and how long the largest of them may take at the link's rate, in seconds.
const SIZES: [u64; 5] = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
const SIZE_SECONDS_MAX: f64 = 150.0;
const SIZES_DEFAULT: usize = 3;
/// Times that the candidates are gone through; two are mostly enough.
const PASSES: u32 = 3;
/// A better value of the same setting is better by this much, or the earlier one is taken.
const BETTER: f64 = 0.99;

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Download => "download",
        Direction::Upload => "upload",
    }
}

/// Tunes both hosts.
pub fn tune(question: &Question<'_>) -> Result<Tuning, TuneError> {
    let Question { name: link_name, link, tcp, connections, .. } = question;
    let paths = paths(question)?;
    let bench = Bench::new(question, &paths)?;
    let before = Hosts::alike(tcp);
    let mut run = Run { bench, before: before.clone(), kept: Vec::new(), known: Vec::new() };
    let mut settings = Vec::new();
    let mut left = candidates::candidates(link, &before, &paths);
    // What does not help at first may help together with what was kept later.
    for _ in 0..PASSES {
        settings.clear();
        let kept = run.kept.len();
        let mut rest = Vec::new();
        for candidate in left {
            if let Some(setting) = run.try_candidate(candidate.clone())? {
                settings.push(setting);
                rest.push(candidate);
            }
        }
        left = rest;
        if run.kept.len() == kept {
            break;
        }
    }
    settings.extend(run.review()?);
    let mut atoms = run.atoms(None);
    let round_trip = paths.iter().map(|path| path.inputs.rtt_seconds).fold(0.0, f64::max);
    let set_up = circuit::set_up(link, &before, round_trip);
    atoms.extend(set_up.as_ref().and_then(circuit::atom));
    let Some(after) = before.with(&atoms) else {
        unreachable!("each setting was simulated with the others");
    };
    settings.sort_by_key(|setting: &Setting| setting.verdict);
    let predicted = run.predict(&after, &settings)?;
    let whole = before.with(&without_mtu(&atoms)).unwrap_or_else(|| before.clone());
    let mtu = mtu::table(&run.bench.link, &whole, &paths, |direction| {
        let largest = run.bench.largest(direction);
        (largest, run.bench.runs(largest.bytes))
    })?;
    let queues = queue::table(&run.bench.link, &after, &paths, |direction| {
        let transfers = run.bench.transfers(&[direction], false);
        transfers.into_iter().map(|transfer| (transfer, run.bench.runs(transfer.bytes))).collect()
    })?;
    let inputs: Vec<PathInputs> = paths.iter().map(|path| path_inputs(link, path)).collect();
    let linux_cannot = linux_cannot(&inputs, &settings, set_up.as_ref(), &atoms);
    let notes = notes(link, tcp, &predicted, set_up.as_ref(), &settings);
    Ok(Tuning {
        link: (*link_name).to_owned(),
        tcp: tcp.preset.clone().unwrap_or_else(|| "linux".to_owned()),
        connections: *connections,
        paths: inputs,
        settings,
        left_alone: candidates::left_alone(&before, &paths),
        commands: commands::commands(&atoms),
        linux_cannot,
        mtu,
        queues,
        set_up,
        predicted,
        verified: None,
        verified_queues: None,
        notes,
        on_demand: link.circuit.as_ref().and_then(|circuit| circuit.on_demand).map(|rule| rule.channels),
        hosts: (before, after),
        atoms,
    })
}

impl Tuning {
    /// Settings for which Linux's default limits are enough.
    #[must_use]
    pub fn is_allowed_anyway(atom: &Atom) -> bool {
        commands::is_allowed_anyway(atom)
    }

    /// The answer as pretty JSON with a final newline.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

fn without_mtu(atoms: &[Atom]) -> Vec<Atom> {
    atoms.iter().filter(|atom| atom.key != "mtu").cloned().collect()
}

fn paths(question: &Question<'_>) -> Result<Vec<Path>, PredictError> {
    let bytes = question.sizes.first().copied().unwrap_or(DataSize::from_bytes(1_000_000));
    let one = |direction: &Direction| {
        let requested = predict::Question {
            name: question.name,
            link: question.link,
            tcp: question.tcp,
            direction: *direction,
            bytes,
            loss: None,
            connections: question.connections,
        };
        Ok(Path { direction: *direction, inputs: predict::predict(&requested)?.inputs })
    };
    question.directions.iter().map(one).collect()
}

fn path_inputs(link: &LinkConfig, path: &Path) -> PathInputs {
    let back = match path.direction {
        Direction::Download => &link.back,
        Direction::Upload => &link.forward,
    };
    let segment = DataSize::from_bytes(path.inputs.segment_bytes);
    let limit = asymmetry::forward_limit(
        predict::total_rate(back),
        path.inputs.ack_bits,
        segment,
        path.inputs.segments_per_ack,
    );
    let limits = limit < BitRate::from_bps(path.inputs.payload_rate_bps);
    PathInputs {
        direction: name(path.direction),
        inputs: path.inputs.clone(),
        acknowledged_bps: limits.then_some(limit.bps),
    }
}

/// The simulated network.
struct Bench {
    /// Without its set-up, which comes before everything.
    link: LinkConfig,
    /// Of each direction, rising, at least one.
    sizes: Vec<(Direction, Vec<u64>)>,
    connections: u32,
    segment: u64,
    chance: bool,
}

impl Bench {
    fn new(question: &Question<'_>, paths: &[Path]) -> Result<Bench, TuneError> {
        let mut link = question.link.clone();
        link.circuit = None;
        let segment = paths.iter().map(|path| path.inputs.segment_bytes).min().unwrap_or(1).max(1);
        let most = SEGMENTS_MAX.saturating_mul(segment);
        if question.sizes.len() > SIZES_MAX {
            return Err(TuneError::Sizes(question.sizes.len()));
        }
        for size in &question.sizes {
            if size.bytes == 0 {
                return Err(PredictError::NoBytes.into());
            }
            if size.bytes > most {
                return Err(TuneError::TooLong { size: *size, most: DataSize::from_bytes(most) });
            }
        }
        if !(1..=CONNECTIONS_MAX).contains(&question.connections) {
            return Err(PredictError::Connections(question.connections).into());
        }
        let of_path = |path: &Path| {
            let mut sizes: Vec<u64> = question.sizes.iter().map(|size| size.bytes).collect();
            if sizes.is_empty() {
                let seconds = |size: u64| size as f64 * 8.0 / path.inputs.payload_rate_bps.max(1) as f64;
                sizes = SIZES.into_iter().filter(|size| seconds(*size) <= SIZE_SECONDS_MAX && *size <= most).collect();
                let first = sizes.len().saturating_sub(SIZES_DEFAULT);
                sizes.drain(..first);
                if sizes.is_empty() {
                    sizes.push(SIZES[0]);
                }
            }
            sizes.sort_unstable();
            sizes.dedup();
            (path.direction, sizes)
        };
        let sizes = paths.iter().map(of_path).collect();
        let chance = leaves_to_chance(&link);
        Ok(Bench { link, sizes, connections: question.connections, segment, chance })
    }

    fn transfer(&self, direction: Direction, bytes: u64, after_idle: bool) -> Transfer {
        Transfer { direction, bytes, connections: self.connections, after_idle }
    }

    /// The transfers by which a setting for these directions is judged.
    fn transfers(&self, directions: &[Direction], after_idle: bool) -> Vec<Transfer> {
        let mut transfers = Vec::new();
        for (direction, sizes) in self.sizes.iter().filter(|(direction, _)| directions.contains(direction)) {
            let middle = sizes.len() / 2;
            let sizes = if after_idle { &sizes[middle..=middle] } else { &sizes[..] };
            transfers.extend(sizes.iter().map(|bytes| self.transfer(*direction, *bytes, after_idle)));
        }
        transfers
    }

    /// The largest transfer.
    fn largest(&self, direction: Direction) -> Transfer {
        let all = self.transfers(&[direction], false);
        all.last().copied().unwrap_or_else(|| self.transfer(direction, 1, false))
    }

    /// The number of runs of a transfer.
    fn runs(&self, bytes: u64) -> u64 {
        if !self.chance {
            return 1;
        }
        let segments = bytes / self.segment + 1;
        (SEGMENTS_ALL_MAX / segments).clamp(3, RUNS).saturating_sub(1) | 1
    }
}

/// The decisions so far.
struct Run {
    bench: Bench,
    before: Hosts,
    kept: Vec<(Candidate, Vec<Atom>)>,
    /// Results of earlier simulations.
    known: Vec<(Hosts, Transfer, Times)>,
}

impl Run {
    /// The settings kept, all or all but one.
    fn atoms(&self, without: Option<usize>) -> Vec<Atom> {
        let kept = self.kept.iter().enumerate().filter(|(i, _)| Some(*i) != without);
        kept.flat_map(|(_, (_, atoms))| atoms.iter().cloned()).collect()
    }

    fn times(&mut self, hosts: &Hosts, transfer: &Transfer) -> Result<Times, NetworkError> {
        if let Some((.., times)) = self.known.iter().find(|(h, t, _)| h == hosts && t == transfer) {
            return Ok(times.clone());
        }
        let times = measure::times(&self.bench.link, hosts, transfer, self.bench.runs(transfer.bytes))?;
        self.known.push((hosts.clone(), *transfer, times.clone()));
        Ok(times)
    }

    fn effects(&mut self, with: &Hosts, without: &Hosts, candidate: &Candidate) -> Result<Vec<Effect>, NetworkError> {
        let transfers = self.bench.transfers(&candidate.directions, candidate.after_idle);
        let mut effects = Vec::new();
        for transfer in transfers {
            let ratio = Ratio::of(&self.times(with, &transfer)?, &self.times(without, &transfer)?);
            let Transfer { direction, bytes, after_idle, .. } = transfer;
            effects.push(Effect { direction: name(direction), bytes, after_idle, ratio });
        }
        Ok(effects)
    }

    /// Tries every value together with what is kept; keeps the best if it gains, and reports a candidate that is not kept.
    fn try_candidate(&mut self, candidate: Candidate) -> Result<Option<Setting>, NetworkError> {
        let Some(without) = self.before.with(&self.atoms(None)) else { return Ok(None) };
        let mut best: Option<(Verdict, f64, Vec<Atom>, Vec<Effect>)> = None;
        for atoms in &candidate.values {
            let all = [self.atoms(None), atoms.clone()].concat();
            let Some(with) = self.before.with(&all) else { continue };
            let effects = self.effects(&with, &without, &candidate)?;
            let verdict = verdict(&effects);
            let mean = mean(&effects);
            let better = best
                .as_ref()
                .is_none_or(|(known, least, ..)| verdict < *known || (verdict == *known && mean < least * BETTER));
            if better {
                best = Some((verdict, mean, atoms.clone(), effects));
            }
        }
        let Some((verdict, _, atoms, effects)) = best else { return Ok(None) };
        if verdict == Verdict::Recommended && candidate.command {
            self.kept.push((candidate, atoms));
            return Ok(None);
        }
        let verdict = if verdict == Verdict::Recommended { Verdict::NoCommand } else { verdict };
        Ok(Some(setting(&candidate, verdict, atoms, effects)))
    }

    /// Judges each setting kept together with all others: one that no longer gains is given up.
    fn review(&mut self) -> Result<Vec<Setting>, NetworkError> {
        let mut settings = Vec::new();
        for number in (0..self.kept.len()).rev() {
            let (with, without) = (self.before.with(&self.atoms(None)), self.before.with(&self.atoms(Some(number))));
            let (Some(with), Some(without)) = (with, without) else { continue };
            let candidate = self.kept[number].0.clone();
            let effects = self.effects(&with, &without, &candidate)?;
            let verdict = verdict(&effects);
            if verdict != Verdict::Recommended {
                let (candidate, atoms) = self.kept.remove(number);
                settings.push(setting(&candidate, verdict, atoms, effects));
            }
        }
        // What is left, together with all that is left.
        for number in 0..self.kept.len() {
            let (with, without) = (self.before.with(&self.atoms(None)), self.before.with(&self.atoms(Some(number))));
            let (candidate, atoms) = self.kept[number].clone();
            let effects = match (with, without) {
                (Some(with), Some(without)) => self.effects(&with, &without, &candidate)?,
                // Another setting cannot be without it.
                _ => Vec::new(),
            };
            settings.push(setting(&candidate, Verdict::Recommended, atoms, effects));
        }
        Ok(settings)
    }

    fn predict(&mut self, after: &Hosts, settings: &[Setting]) -> Result<Vec<Predicted>, NetworkError> {
        let directions: Vec<Direction> = self.bench.sizes.iter().map(|(direction, _)| *direction).collect();
        let mut transfers = self.bench.transfers(&directions, false);
        let idle = settings.iter().any(|s| s.verdict == Verdict::Recommended && s.effects.iter().any(|e| e.after_idle));
        if idle {
            transfers.extend(self.bench.transfers(&directions, true));
        }
        let before = self.before.clone();
        let cases = [
            before.clone(),
            before.with_side_of(Side::Terminal, after),
            before.with_side_of(Side::Hub, after),
            after.clone(),
        ];
        let mut rows = Vec::new();
        for transfer in transfers {
            let mut summaries = Vec::new();
            for hosts in &cases {
                summaries.push(self.times(hosts, &transfer)?.summary());
            }
            let [before, terminal_only, hub_only, after] = summaries[..] else { continue };
            let Transfer { direction, bytes, after_idle, .. } = transfer;
            rows.push(Predicted {
                direction: name(direction),
                bytes,
                after_idle,
                before,
                terminal_only,
                hub_only,
                after,
            });
        }
        Ok(rows)
    }
}

fn setting(candidate: &Candidate, verdict: Verdict, values: Vec<Atom>, effects: Vec<Effect>) -> Setting {
    Setting {
        name: candidate.setting,
        verdict,
        values,
        directions: candidate.directions.iter().map(|direction| name(*direction)).collect(),
        why: candidate.why.clone(),
        source: candidate.source,
        effects,
    }
}

fn verdict(effects: &[Effect]) -> Verdict {
    if effects.iter().any(|effect| effect.ratio.is_loss()) {
        Verdict::Loss
    } else if effects.iter().any(|effect| effect.ratio.is_gain()) {
        Verdict::Recommended
    } else {
        Verdict::NoGain
    }
}

/// The geometric mean of what a setting does.
fn mean(effects: &[Effect]) -> f64 {
    let logs: f64 = effects.iter().map(|effect| effect.ratio.ratio.ln()).sum();
    (logs / effects.len().max(1) as f64).exp()
}

/// Linux's first retransmission time-out, in seconds (RFC 6298 §2.1).
const FIRST_TIME_OUT: f64 = 1.0;

fn linux_cannot(paths: &[PathInputs], settings: &[Setting], set_up: Option<&SetUp>, atoms: &[Atom]) -> Vec<String> {
    let text = |value: String| value.replace('\u{a0}', " ");
    let mut cannot = Vec::new();
    let round_trip = paths.iter().map(|path| path.inputs.rtt_seconds).fold(0.0, f64::max);
    let why = match set_up {
        Some(set_up) => Some(format!(
            "the set-up takes {} and the terminal sends {} SYNs before an answer can come",
            text(quantity::seconds(set_up.seconds)),
            set_up.syns
        )),
        None if round_trip > FIRST_TIME_OUT => {
            Some(format!("a round trip takes {}, so every SYN is sent again", text(quantity::seconds(round_trip))))
        }
        None => None,
    };
    cannot.extend(why.map(|why| {
        format!("The first retransmission time-out is 1 s (RFC 6298 §2.1): {why}. CG-1 had set it to 5 s.")
    }));
    for path in paths {
        if let Some(limit) = path.acknowledged_bps {
            cannot.push(format!(
                "An acknowledgement for more than two segments: the way back carries those for {} of a {} at {} (RFC 3449 \
                 §2, §4.1). What reaches the sender then stands for more segments, in bursts; a gateway can thin them out.",
                text(quantity::rate(limit as f64)),
                path.direction,
                text(quantity::rate(path.inputs.payload_rate_bps as f64))
            ));
        }
    }
    if atoms.iter().any(|atom| ["receive_window", "send_buffer"].contains(&atom.key)) {
        cannot.push(
            "An exact window: tcp_rmem and tcp_wmem say how far Linux may go; it grows towards that as the transfer needs \
             it."
                .to_owned(),
        );
    }
    if settings.iter().any(|s| s.verdict == Verdict::NoCommand && s.values.iter().any(|atom| atom.key == "hystart")) {
        cannot.push(
            "HyStart for one host of a link: /sys/module/tcp_cubic/parameters/hystart is one switch for the whole machine."
                .to_owned(),
        );
    }
    cannot
}

fn notes(
    link: &LinkConfig,
    tcp: &TcpConfig,
    predicted: &[Predicted],
    set_up: Option<&SetUp>,
    settings: &[Setting],
) -> Vec<String> {
    let mut notes = Vec::new();
    if tcp.preset.as_deref().is_some_and(|preset| !preset.starts_with("linux")) {
        notes.push(
            "The commands are for Linux; on another system set the same values. What the preset leaves open is simulated \
             as Linux does it."
                .to_owned(),
        );
    }
    if set_up.is_some() {
        notes.push("All times leave the circuit's set-up out; it comes before the first of them.".to_owned());
    }
    if let Some(rule) = link.circuit.as_ref().and_then(|circuit| circuit.on_demand.as_ref()) {
        notes.push(format!("All {} channels are taken as up from the start.", rule.channels));
    }
    if link.forward.medium.outages.len() + link.back.medium.outages.len() > 0 {
        notes.push("The link has outages; times depend on when a transfer starts, here at 0 s.".to_owned());
    }
    let bbr = |setting: &Setting| {
        setting.verdict == Verdict::Recommended && setting.values.iter().any(|a| a.value.as_str() == Some("bbr"))
    };
    if settings.iter().any(bbr) {
        notes.push(
            "BBR needs the kernel's module tcp_bbr (net.ipv4.tcp_available_congestion_control lists it), and takes more than \
             its share of a queue from connections that are not BBR."
                .to_owned(),
        );
    }
    for row in predicted {
        if let (Some(before), Some(after)) = (row.before.seconds, row.after.seconds)
            && after > before * 1.02
        {
            notes.push(format!(
                "All settings together make the {} of {} slower.",
                row.direction,
                quantity::bytes(row.bytes as f64).replace('\u{a0}', " ")
            ));
        }
    }
    notes
}
