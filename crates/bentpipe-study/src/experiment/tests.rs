use super::engine::{Outcome, PointRuns};
use super::grid::{self, same_value};
use super::judge::{CONFIDENCE, Row, Verdict, rows};
use super::load::Experiment;
use super::measure::{Measured, measure};
use super::published::{Published, Trend};
use super::table::{Table, markdown};
use crate::statistics::{Estimate, estimate};
use bentpipe_lab::record::Unit;
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

const SCENARIO: &str = r#"
title = "T"
seeds = 3
[links.sat]
kind = "acts-t1"
between = ["hub", "site"]
noise = 1e-7
[[workloads]]
name = "file"
app = "bulk"
client = "site"
server = "hub"
bytes = "1 MB"
[[axes]]
name = "size"
keys = ["workloads.file.bytes"]
values = "1 MB, 2 MB"
[[axes]]
name = "window"
keys = ["hosts.*.tcp.receive_window"]
values = "8 KiB, 64 KiB"
cases = ["published"]
[[cases]]
name = "published"
[[cases]]
name = "modern host"
"#;

const CLAIM: &str = "paper = 'P'\ncitation = 'C'\nfigure = 'F'\n[[claims]]\nid = 'P-1'\nwhere = 'there'\nsays = 'so'\n\
    workload = 'file'\nmeasurement = 'goodput'\nat = { size = '1 MB', window = '8 KiB' }\n";

/// An experiment whose points measured these goodputs, run by run.
fn judged(check: &str, goodputs: &[&[f64]]) -> Row {
    let scenario = Scenario::parse("s.toml", SCENARIO, &[]).unwrap();
    let axes = grid::axes(&scenario).unwrap();
    let points = grid::points(&scenario, &axes).unwrap();
    assert_eq!(points.len(), 4 + 2);
    let published_text = format!("{CLAIM}{check}");
    let published = Published::parse("p.toml", &published_text, &scenario, &axes).unwrap();
    let experiment =
        Experiment { id: "t".to_owned(), scenario, axes, points, published, published_text, readme: String::new() };
    let measured = |goodput: &f64| {
        let mut all = Measured::new();
        let key = |name: &str| ("file".to_owned(), name.to_owned());
        all.insert(key("done"), (Unit::Number, f64::from(u8::from(*goodput > 0.0))));
        if *goodput > 0.0 {
            all.insert(key("goodput"), (Unit::BitsPerSecond, *goodput));
        }
        Ok(all)
    };
    let point = |number: usize| PointRuns {
        runs: goodputs.get(number).copied().unwrap_or(&[1.0]).iter().map(measured).collect(),
        certain: false,
    };
    let outcome = Outcome { points: (0..6).map(point).collect() };
    rows(&experiment, &outcome).remove(0)
}

/// Each rule, with figures on both sides of it. Points: (1 MB, 8 KiB), (1 MB, 64 KiB), (2 MB, 8 KiB), (2 MB, 64 KiB).
#[test]
fn each_rule_can_be_kept_and_broken() {
    use Verdict::{CannotBeCompared, Outside, TrendHolds, Within};
    let tight = &[100.0, 100.1, 99.9][..];
    for (check, first, verdict) in [
        ("value = '109 bit/s'\ntolerance = '10 %'", tight, Within),
        ("value = '112 bit/s'\ntolerance = '10 %'", tight, Outside),
        ("value = '90 bit/s'\ntolerance = '10 %'", tight, Outside),
        // ± 62 %, which is wider than the tolerance.
        ("value = '100 bit/s'\ntolerance = '10 %'", &[75.0, 100.0, 125.0], CannotBeCompared),
        ("value = '100 s'\ntolerance = '10 %'", tight, CannotBeCompared),
        ("value = '100 bit/s'\ntolerance = '10 %'", &[0.0, 0.0, 0.0], Outside),
        ("at_least = '99 bit/s'", tight, Within),
        ("at_least = '101 bit/s'", tight, Outside),
        ("at_least = '99 bit/s'\nbecause = 'words'", tight, TrendHolds),
        ("at_most = '99 bit/s'\nbecause = 'words'", tight, Outside),
        ("at_most = '101 bit/s'", &[75.0, 100.0, 125.0], CannotBeCompared),
        ("cannot = 'no number'", tight, CannotBeCompared),
    ] {
        let row = judged(check, &[first]);
        assert_eq!(row.verdict, verdict, "{check}: {row:?}");
    }
    for (check, others, verdict) in [
        ("along = 'window'\ntrend = 'rises'", [200.0, 1.0, 1.0], TrendHolds),
        ("along = 'window'\ntrend = 'rises'", [50.0, 1.0, 1.0], Outside),
        ("along = 'window'\ntrend = 'falls'", [50.0, 1.0, 1.0], TrendHolds),
        ("along = 'window'\ntrend = 'flat'\nslack = '5 %'", [104.0, 1.0, 1.0], TrendHolds),
        ("along = 'window'\ntrend = 'flat'\nslack = '5 %'", [106.0, 1.0, 1.0], Outside),
        ("along = 'window'\npeak = ['60 KiB', '70 KiB']", [200.0, 1.0, 1.0], TrendHolds),
        ("along = 'window'\npeak = ['60 KiB', '70 KiB']", [50.0, 1.0, 1.0], Outside),
        ("along = 'window'\nat_least = '90 bit/s'", [91.0, 1.0, 1.0], Within),
        ("along = 'window'\nat_least = '90 bit/s'", [89.0, 1.0, 1.0], Outside),
        ("along = 'window'\nfrom = '60 KiB'\nat_least = '150 bit/s'", [151.0, 1.0, 1.0], Within),
        (
            "over = { at = { size = '2 MB' } }\nvalue = 2.0\ntolerance = '1 %'\nbecause = 'Exact.'",
            [1.0, 50.0, 1.0],
            Within,
        ),
        (
            "over = { at = { size = '2 MB' } }\nvalue = 2.0\ntolerance = '1 %'\nbecause = 'Exact.'",
            [1.0, 60.0, 1.0],
            Outside,
        ),
    ] {
        let row = judged(check, &[&[100.0], &[others[0]], &[others[1]], &[others[2]]]);
        assert_eq!(row.verdict, verdict, "{check}: {row:?}");
    }
}

#[test]
fn a_remedys_ratio_is_of_both_parts_or_names_its_divisor() {
    // (1 MB) and (2 MB) of the modern host are points 4 and 5.
    let all: &[&[f64]] = &[&[100.0], &[2.0], &[50.0], &[1.0], &[300.0], &[100.0]];
    let remedy = |check: &str| judged(check, all).remedies[0].1.replace('\u{a0}', " ");
    assert_eq!(remedy("value = '100 bit/s'\ntolerance = '10 %'"), "300 bit/s");
    // Both parts with the remedy.
    assert_eq!(remedy("over = { at = { size = '2 MB' } }\nat_least = 1"), "3");
    // The modern host does not follow the window: 300 ÷ 2 bit/s, with a window of 64 KiB as published.
    assert_eq!(remedy("over = { at = { window = '64 KiB' } }\nat_least = 1"), "150 (÷ published)");
    let along = "over = { at = { window = '64 KiB' } }\nalong = 'size'\nat_least = 0";
    assert_eq!(remedy(along), "100 … 150 (÷ published)");
    // No such case; and a claim about the remedy itself.
    let row = judged("value = '100 bit/s'\ntolerance = '10 %'", all);
    assert_eq!(row.remedies[1], ("gateway pair".to_owned(), "–".to_owned()));
    let own = "case = 'modern host'\nover = { case = 'published' }\nat_least = 1";
    assert_eq!(judged(own, all).remedies[0].1, "–");
}

/// Ratios pair runs of the same number; where one side has another number of runs, both sides' intervals count.
#[test]
fn a_ratio_pairs_runs_of_the_same_seed() {
    let check = "at_least = 0.1\nover = { at = { window = '64 KiB' } }";
    // Both sides follow the seed alike: the ratio is known exactly, though either mean is not.
    let paired = judged(check, &[&[10.0, 20.0, 40.0], &[20.0, 40.0, 80.0]]);
    assert_eq!((paired.value, paired.half_width), (Some(0.5), Some(0.0)));
    // The second run failed: what is left are the pairs of the others, not of its neighbours.
    let failed = judged(check, &[&[10.0, 0.0, 40.0], &[20.0, 40.0, 80.0]]);
    assert_eq!((failed.value, failed.half_width), (Some(0.5), Some(0.0)));
    let sure = judged(check, &[&[10.0, 20.0, 30.0], &[40.0]]);
    assert_eq!(sure.value, Some(0.5));
    // t(2, 0.975) · 10 ÷ √3 ÷ 40
    assert!((sure.half_width.unwrap() - 4.302_65 * 10.0 / 3f64.sqrt() / 40.0).abs() < 1e-3, "{sure:?}");
    let unsure_below = judged(check, &[&[40.0], &[10.0, 20.0, 30.0]]);
    assert!((unsure_below.half_width.unwrap() - 2.0 * 4.302_65 * 10.0 / 3f64.sqrt() / 20.0).abs() < 5e-3);
}

#[test]
fn rows_lay_their_keys_over_the_claims() {
    let row =
        judged("tolerance = '10 %'\nrows = [{ value = '5 bit/s', at = { window = '64 KiB' } }]", &[&[1.0], &[5.0]]);
    assert_eq!((row.verdict, row.value), (Verdict::Within, Some(5.0)));
    assert_eq!(row.parameters, "file goodput: size 1 MB, window 64 KiB");
}

fn certain(means: &[f64]) -> Vec<Estimate> {
    means.iter().map(|mean| estimate(&[*mean], CONFIDENCE).unwrap()).collect()
}

/// (mean, half-width) each.
fn uncertain(means: &[(f64, f64)]) -> Vec<Estimate> {
    let of = |&(mean, half): &(f64, f64)| {
        let one = estimate(&[mean], CONFIDENCE).unwrap();
        Estimate { n: 10, half_width: Some(half), ..one }
    };
    means.iter().map(of).collect()
}

#[test]
fn trends_need_two_ends_that_differ() {
    let decided = |trend: Trend, means: &[f64], slack: f64| trend.decided(&certain(means), slack) == Some(true);
    assert!(!decided(Trend::Rises, &[], 0.0) && !decided(Trend::Rises, &[1.0], 0.0));
    assert!(!decided(Trend::Flat, &[1.0], 0.0));
    assert!(decided(Trend::Rises, &[1.0, 0.99, 2.0], 0.02) && !decided(Trend::Rises, &[1.0, 0.9, 2.0], 0.02));
    assert!(!decided(Trend::Rises, &[1.0, 1.0], 0.0) && !decided(Trend::Falls, &[1.0, 1.0], 0.0));
}

/// The play of a difference is √(3² + 4²) = 5: clear on either side of it, open within.
#[test]
fn a_trend_that_noise_could_turn_around_does_not_hold() {
    let two = |second: f64| uncertain(&[(100.0, 3.0), (second, 4.0)]);
    for (trend, slack, second, decided) in [
        (Trend::Rises, 0.0, 106.0, Some(true)),
        (Trend::Rises, 0.0, 104.0, None),
        (Trend::Rises, 0.0, 96.0, None),
        (Trend::Rises, 0.0, 94.0, Some(false)),
        (Trend::Falls, 0.0, 94.0, Some(true)),
        (Trend::Falls, 0.0, 96.0, None),
        (Trend::Falls, 0.0, 104.0, None),
        (Trend::Falls, 0.0, 106.0, Some(false)),
        (Trend::Flat, 0.1, 104.0, Some(true)),
        (Trend::Flat, 0.1, 108.0, None),
        (Trend::Flat, 0.1, 116.0, Some(false)),
    ] {
        assert_eq!(trend.decided(&two(second), slack), decided, "{trend:?} {second}");
    }
    // One open step among clear ones leaves all open; one that is clearly broken decides.
    let steps = |middle: f64| uncertain(&[(100.0, 3.0), (middle, 4.0), (300.0, 4.0)]);
    assert_eq!(Trend::Rises.decided(&steps(103.0), 0.0), None);
    assert_eq!(Trend::Rises.decided(&steps(90.0), 0.0), Some(false));
    assert_eq!(Trend::Rises.decided(&steps(110.0), 0.0), Some(true));
}

#[test]
fn a_peak_that_noise_could_move_does_not_hold() {
    let verdict = |runs: [&[f64]; 2], peak: &str| {
        judged(&format!("along = 'window'\npeak = {peak}"), &[runs[0], runs[1]]).verdict
    };
    let (low, high, wide) = (&[99.0, 100.0, 101.0][..], &[109.0, 110.0, 111.0][..], &[80.0, 110.0, 140.0][..]);
    assert_eq!(verdict([low, high], "['60 KiB', '70 KiB']"), Verdict::TrendHolds);
    assert_eq!(verdict([low, high], "['6 KiB', '9 KiB']"), Verdict::Outside);
    assert_eq!(verdict([low, wide], "['60 KiB', '70 KiB']"), Verdict::CannotBeCompared);
    assert_eq!(verdict([low, wide], "['6 KiB', '9 KiB']"), Verdict::CannotBeCompared);
    // No value of the axis lies there, or every one does.
    assert_eq!(verdict([low, wide], "['1 MiB', '2 MiB']"), Verdict::Outside);
    assert_eq!(verdict([low, wide], "['1 KiB', '2 MiB']"), Verdict::TrendHolds);
}

/// 250 ms each way, 7.85 ms to send 1507 B and 0.24 ms an acknowledgement of 47 B; five segments of a window of 8 KiB queue
/// behind each other at most.
#[test]
fn the_round_trip_is_that_of_the_sender() {
    let text = "title = 'x'\n[links.sat]\nkind = 'acts-t1'\nbetween = ['hub', 'site']\n\
        [hosts.site.tcp]\nreceive_window = '8 KiB'\nack_every = 1\n\
        [[workloads]]\nname = 'file'\napp = 'bulk'\nclient = 'site'\nserver = 'hub'\nbytes = '100 kB'\n";
    let scenario = Scenario::parse("s.toml", text, &[]).unwrap();
    let record = simulated::run(&scenario, &SimulatedOptions::default(), &AtomicBool::new(false)).unwrap();
    let measured = measure(&scenario.cases[0], &record.cases[0]);
    let (unit, trip) = &measured[&("tcp".to_owned(), "round_trip".to_owned())];
    assert!(
        *unit == Unit::Seconds && (0.508..0.508 + 4.0 * 0.007_85 + 1e-3).contains(trip),
        "{trip} {}",
        unit.symbol()
    );
}

/// What starts in the same instant is certain; what is spread is not, one alone aside.
#[test]
fn spread_starts_are_left_to_chance() {
    let certain = |more: &str| {
        let text = format!(
            "title = 'x'\n[links.sat]\nkind = 'acts-t1'\nbetween = ['hub', 'site']\n[[workloads]]\nname = 'file'\n\
             app = 'ftp'\nclient = 'site'\nserver = 'hub'\nbytes = '100 kB'\n{more}\n"
        );
        Experiment::is_certain(&Scenario::parse("s.toml", &text, &[]).unwrap())
    };
    assert!(certain("sessions = 4\ncopies = 2") && certain("spread = '1 s'"));
    assert!(!certain("sessions = 4\nspread = '1 s'") && !certain("copies = 2\nspread = '1 s'"));
}

#[test]
fn a_live_page_does_not_claim_virtual_time() {
    let page = |mode| {
        let table = Table {
            id: "t".to_owned(),
            title: "T".to_owned(),
            paper: "P".to_owned(),
            citation: String::new(),
            figure: "Figure 1".to_owned(),
            mode,
            certain: true,
            seed: 7,
            inputs: String::new(),
            rows: Vec::new(),
        };
        markdown(&[table])
    };
    assert!(page("virtual").contains("in virtual time.") && page("virtual").contains("Not to be edited"));
    let live = page("live");
    assert!(
        live.contains("Figure 1; live, one run") && !live.contains("virtual") && !live.contains("Not to be edited")
    );
}

#[test]
fn values_are_the_same_by_what_they_mean() {
    assert!(same_value("8 KiB", "8192 B") && same_value("\"1 s\"", "1000 ms") && same_value("1e-6", "0.000001"));
    assert!(!same_value("8 KiB", "8 kB") && !same_value("1 s", "1 B") && same_value("acts-t1", "\"acts-t1\""));
}

proptest! {
    /// Whatever a file says, it is read or refused.
    #[test]
    fn reading_never_panics(cut in 0usize..600, noise in "[ -~]{0,40}", from in 0usize..600) {
        let scenario = Scenario::parse("s.toml", SCENARIO, &[]).unwrap();
        let axes = grid::axes(&scenario).unwrap();
        let text = format!("{CLAIM}value = '1 bit/s'\ntolerance = '10 %'\nrows = [{{ at = {{ size = '2 MB' }} }}]\n");
        let cut = cut.min(text.len());
        let from = from.clamp(cut, text.len());
        let mangled = format!("{}{noise}{}", text.get(..cut).unwrap_or_default(), text.get(from..).unwrap_or_default());
        let _ = Published::parse("p.toml", &mangled, &scenario, &axes);
        let cut = cut.min(SCENARIO.len());
        let mangled = format!("{}{noise}{}", &SCENARIO[..cut], &SCENARIO[from.clamp(cut, SCENARIO.len())..]);
        if let Ok(scenario) = Scenario::parse("s.toml", &mangled, &[]) {
            let _ = grid::axes(&scenario).map(|axes| grid::points(&scenario, &axes));
        }
    }
}
