//! Tests of the report as a whole.

use super::charts::{self, LINES_MAX};
use super::fixture::{gateway_sample, sample};
use super::{html, text};
use crate::page::Line;
use crate::record::*;
use crate::thinning::{POINTS_MAX, decimate};
use serde_json::Value;

/// Breaks out of an element, an attribute, a script, a JSON string and a terminal line, if anything lets it.
const HOSTILE: &str = "</script><b>\"'&\u{2028}{{ 7*7 }}\u{1b}]0;x\u{7}\u{1b}[31m";

/// The sample with every string replaced, through JSON so that no field can be forgotten; objectives stay undecided.
fn hostile() -> Record {
    /// Fields that allow certain words or an address only.
    const CLOSED: &[&str] =
        &["mode", "status", "direction", "bound", "better", "address", "kind", "state", "event", "payer"];
    fn poison(value: &mut Value) {
        match value {
            Value::String(text) => *text = HOSTILE.to_string(),
            Value::Array(items) => items.iter_mut().for_each(poison),
            Value::Object(fields) => {
                let open =
                    |(key, value): &(&String, &mut Value)| !(CLOSED.contains(&key.as_str()) && value.is_string());
                fields.iter_mut().filter(open).for_each(|(_, value)| poison(value));
            }
            _ => {}
        }
    }
    let mut broken = broken_sample();
    broken.cases.extend(gateway_sample().cases);
    let mut value = serde_json::to_value(broken).unwrap();
    poison(&mut value);
    serde_json::from_value(value).unwrap()
}

/// The sample, with a reason, an error or a note wherever there can be one.
fn broken_sample() -> Record {
    let mut record = sample();
    record.cases[0].validity = Validity { valid: false, reasons: vec!["99 % within 4 ms, limit 1 ms".into()] };
    record.cases[0].notes.push("a note".into());
    record.cases[0].workloads[1].error = Some("cut".into());
    record.cases[0].workloads[1].command.as_mut().unwrap().stderr = "curl: (28) timed out".into();
    record
}

/// The data that the page's script reads.
fn chart_data(page: &str) -> Value {
    let start = page.find("id=\"chart-data\">").expect("the data") + "id=\"chart-data\">".len();
    let end = page[start..].find("</script>").expect("its end") + start;
    serde_json::from_str(&page[start..end]).expect("valid JSON")
}

#[test]
fn hostile_text_never_becomes_markup() {
    let page = html(&hostile());
    assert!(!page.contains("<b>\"") && !page.contains("</script><b"), "raw markup");
    assert!(!page.contains(HOSTILE));
    assert!(!page.contains("<b>&"), "half escaped");
    assert!(page.contains("&lt;&#x2f;script&gt;&lt;b&gt;&quot;&#x27;&amp;"), "shown, escaped");
    // Ours: the class, the data, uPlot and our script.
    assert_eq!(page.matches("</script>").count(), 4);
    assert_eq!(page.matches("<script").count(), 4);
    assert!(page.contains("{{ 7*7 }}") && !page.contains("49\u{1b}"), "the record is not a template");
    let data = chart_data(&page);
    assert_eq!(data[0]["lines"][0]["label"], format!("{HOSTILE} #1"), "the script gets the text unharmed");
    let raw = &page[page.find("chart-data").unwrap()..];
    let raw = &raw[..raw.find("</script>").unwrap()];
    assert!(!raw.contains('\u{2028}') && !raw.contains('&') && raw.matches('<').count() == 0);
}

#[test]
fn hostile_text_never_reaches_the_terminal_as_control() {
    for width in [40, 100] {
        let page = text(&hostile(), width, false);
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "control character in {page:?}");
        assert!(!page.contains('\u{2028}'));
    }
}

#[test]
fn own_assets_cannot_end_their_element() {
    for asset in [include_str!("../../assets/page.js"), include_str!("../../assets/uplot/uPlot.iife.min.js")] {
        assert!(!asset.contains("</script") && !asset.contains("<!--"));
    }
    for asset in [include_str!("../../assets/page.css"), include_str!("../../assets/uplot/uPlot.min.css")] {
        assert!(!asset.contains("</style") && !asset.contains("url(") && !asset.contains("@import"));
    }
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    let page = html(&sample());
    for attribute in ["src=", "srcset=", "<link", "<img", "<iframe", "@import", "url("] {
        let markup = page.replace(include_str!("../../assets/uplot/uPlot.iife.min.js"), "");
        assert!(!markup.contains(attribute), "{attribute}");
    }
    for (at, _) in page.match_indices("href=\"") {
        assert_eq!(&page[at + 6..at + 7], "#", "links stay inside the page");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn an_empty_record_says_that_nothing_ran() {
    let page = html(&Record::default());
    assert!(page.contains("No case ran") && page.contains("bentpipe run"));
    assert_eq!(chart_data(&page), Value::Array(vec![]));
    assert!(text(&Record::default(), 80, false).contains("No case ran"));
    let empty_case = Record { cases: vec![CaseRecord::default()], ..Record::default() };
    assert!(html(&empty_case).contains("INVALID"), "a case that is not marked valid is not valid");
    assert!(text(&empty_case, 80, true).contains("INVALID"));
}

/// The sample as a virtual run would have left it.
fn simulated_sample() -> Record {
    let mut record = sample();
    record.mode = Mode::Virtual;
    (record.created, record.machine) = (None, None);
    record.left_out = vec!["workload \"x\"".into()];
    for case in &mut record.cases {
        case.lateness = None;
        case.settings.iter_mut().for_each(|setting| setting.kernel = None);
    }
    record
}

#[test]
fn a_virtual_run_has_no_machine_no_kernel_and_no_lateness() {
    let live = html(&sample());
    let page = html(&simulated_sample());
    for part in ["Kernel says", "as the kernel saw it", "Machine", "Emulator timing", "09:26:53 UTC"] {
        assert!(live.contains(part) && !page.contains(part), "{part}");
    }
    for part in [
        "virtual: simulated packets, virtual time",
        "Simulated in virtual time.",
        "as the simulated hosts saw it",
        "bentpipe run --virtual --skip-live scenarios&#x2f;clinic.toml",
        "Seen on the wire",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let plain = page.find("Settings: asked and seen").expect("the table of settings");
    let heads = page[plain..].find("</thead>").map(|end| page[plain..plain + end].matches("<th").count() - 1);
    assert_eq!(heads, Some(4), "as many headings as cells");
    let table = text(&simulated_sample(), 100, false);
    assert!(table.contains("Simulated in virtual time.") && !table.contains("lateness"), "{table}");
    assert!(table.contains("✓ valid"), "{table}");
}

#[test]
fn without_series_there_are_no_charts_but_all_tables() {
    let mut record = sample();
    for case in &mut record.cases {
        case.tcp_samples.clear();
        case.workloads.iter_mut().for_each(|w| w.series.clear());
        case.links.iter_mut().flat_map(|l| &mut l.directions).for_each(|d| d.series.clear());
    }
    let page = html(&record);
    assert_eq!(chart_data(&page), Value::Array(vec![]));
    assert!(!page.contains("<figure"));
    for caption in ["Measurements", "Link sat", "Settings", "Lateness of 1656 packets", "Circuit sat"] {
        assert!(page.contains(caption), "{caption}");
    }
}

#[test]
fn the_sample_has_the_charts_its_series_make() {
    let data = chart_data(&html(&sample()));
    let titles: Vec<&str> = data.as_array().unwrap().iter().map(|chart| chart["title"].as_str().unwrap()).collect();
    let case = [
        "Round-trip time",
        "Goodput",
        "Received",
        "Queue",
        "Bit errors so far",
        "Damaged packets so far",
        "TCP congestion window",
    ];
    let compared = ["ping: RTT", "MRI image: Goodput", "MRI image: Received"];
    assert_eq!(titles, [&compared[..], &case[..], &case[..]].concat());
    for chart in data.as_array().unwrap() {
        assert!(html(&sample()).contains(&format!("id=\"{}\"", chart["id"].as_str().unwrap())), "a place to draw in");
    }
}

#[test]
fn a_huge_series_is_thinned_and_keeps_its_extremes() {
    let mut points: Vec<(f64, f64)> = (0..500_000).map(|i| (f64::from(i) * 1e-3, f64::from(i % 100))).collect();
    points[123_456].1 = 9999.0;
    points[321_000].1 = -5.0;
    let thin = decimate(&points, POINTS_MAX);
    assert!(thin.len() <= POINTS_MAX && thin.len() > POINTS_MAX / 2, "{} points", thin.len());
    assert!(thin.contains(&(123.456, 9999.0)) && thin.contains(&(321.0, -5.0)));
    assert_eq!((thin[0], thin[thin.len() - 1]), (points[0], points[points.len() - 1]));
    assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order of time");

    let mut record = sample();
    record.cases[0].workloads[1].series = vec![Series::new("goodput", Unit::BitsPerSecond, points)];
    assert!(html(&record).len() < 600_000);
}

#[test]
fn short_and_odd_series_survive_thinning() {
    assert_eq!(decimate(&[], 2000), []);
    assert_eq!(decimate(&[(1.0, 2.0)], 0), [(1.0, 2.0)]);
    assert_eq!(decimate(&[(f64::NAN, 1.0), (0.0, f64::INFINITY)], 10), []);
    assert_eq!(decimate(&[(2.0, 1.0), (1.0, 3.0)], 10), [(1.0, 3.0), (2.0, 1.0)]);
    let same_time: Vec<(f64, f64)> = (0..100).map(|i| (5.0, f64::from(i))).collect();
    assert!(decimate(&same_time, 10).len() <= 10);
}

#[test]
fn not_a_number_and_one_instant_twice_make_valid_lines() {
    let mut record = sample();
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, 2.0, f64::MAX];
    let points = odd.iter().flat_map(|y| odd.iter().map(move |x| (*x, *y))).collect();
    for case in &mut record.cases {
        case.seconds = f64::NAN;
        case.workloads[1].series = vec![Series::new("rtt", Unit::Seconds, Vec::clone(&points))];
        case.workloads[1].measurements.iter_mut().for_each(|m| m.value = f64::NAN);
        case.lateness.as_mut().unwrap().histogram = vec![(f64::NAN, 3), (f64::INFINITY, 4), (1.0, u64::MAX)];
        case.lateness.as_mut().unwrap().worst_hundred = vec![(f64::NAN, f64::INFINITY)];
    }
    let data = chart_data(&html(&record));
    for line in data.as_array().unwrap().iter().flat_map(|chart| chart["lines"].as_array().unwrap()) {
        let times: Vec<f64> = line["x"].as_array().unwrap().iter().map(|x| x.as_f64().expect("a number")).collect();
        assert_eq!(times.len(), line["y"].as_array().unwrap().len());
    }
    assert!(text(&record, 80, false).contains("MRI image"));

    let twice = Series::new("goodput", Unit::BitsPerSecond, vec![(1.0, 5.0), (1.0, 7.0), (1.0, 6.0)]);
    let case = CaseRecord {
        workloads: vec![WorkloadRecord { series: vec![twice], ..WorkloadRecord::default() }],
        ..CaseRecord::default()
    };
    let charts = charts::workloads(&case, "case-1");
    let expected =
        Line { label: String::new(), x: vec![1.0, 1.000001, 1.000002], y: vec![5.0, 7.0, 6.0], published: false };
    assert_eq!(charts[0].lines, [expected]);
}

#[test]
fn a_chart_has_no_more_lines_than_can_be_told_apart() {
    let mut record = sample();
    let flow = record.cases[0].tcp_samples[0].clone();
    record.cases[0].tcp_samples = vec![flow; 40];
    let charts = charts::tcp(&record.cases[0], "case-1");
    assert_eq!(charts[0].lines.len(), LINES_MAX);
    assert_eq!(charts[0].note, "12 of 40 lines drawn; the record holds all.");
    let rtt = &charts::workloads(&record.cases[0], "case-1")[0];
    assert_eq!((rtt.title.as_str(), rtt.lines[0].label.as_str()), ("Round-trip time", "ping"), "the user's line stays");
}

#[test]
fn the_verdict_says_what_is_wrong() {
    let page = html(&broken_sample());
    assert!(page.contains("INVALID") && page.contains("8 KB window: 99 % within 4 ms, limit 1 ms"));
    assert!(page.contains("✓ met (case INVALID)"), "a figure of an invalid case is marked as such");
    let mut cut = sample();
    (cut.complete, cut.interrupted) = (false, true);
    assert!(html(&cut).contains("! Interrupted"));
    cut.interrupted = false;
    assert!(html(&cut).contains("! Incomplete"));
    assert!(html(&sample()).contains("✓ Valid"));
}

#[test]
fn the_paragraph_tells_the_run() {
    let page = text(&sample(), 10_000, false);
    let expected = "3 of 4 objectives met. \
        With 8 KB window: ping had a median round-trip time of 573 ms (objective within 700 ms: met); \
        MRI image took 26.1 s (objective within 10 s: missed); patient index failed (no answer for 10 s). \
        With 64 KB window: ping had a median round-trip time of 573 ms (objective within 700 ms: met); \
        MRI image took 6.94 s (objective within 10 s: met); patient index took 3.42 s. \
        2 settings did not hold on the wire.";
    assert!(page.contains(expected), "{page}");
}

#[test]
fn repetitions_are_summed_up() {
    let mut record = sample();
    record.cases.truncate(1);
    let image = record.cases[0].workloads[1].clone();
    record.cases[0].workloads = (1..=3u32)
        .map(|repeat| {
            let mut again = image.clone();
            again.repeat = repeat;
            again.measurements[0].value = 8.0 + f64::from(repeat);
            again.objective.as_mut().unwrap().met = Some(repeat < 3);
            again
        })
        .collect();
    let page = text(&record, 10_000, false);
    let expected = "MRI image took 10.0 s in the median, 9.00 s to 11.0 s in 3 repetitions \
        (objective within 10 s: met 2 of 3 times).";
    assert!(page.contains(expected), "{page}");
    // One line in the table: the median, what 95 % reach, the share that met the objective.
    assert!(page.contains("MRI image × 3") && !page.contains("MRI image #3"), "{page}");
    assert!(page.contains("P95") && page.contains("✗ 2 of 3 met (66.7 %)"), "{page}");
    // In the report, the runs are folded away under it.
    let page = html(&record);
    assert!(page.contains("MRI image: every run (3 rows)") && page.contains("MRI image #3"));
}

#[test]
fn text_keeps_to_its_width() {
    let mut record = broken_sample();
    record.cases[1].name = "ein Fall mit 漢字 und sehr langem Namen, der nirgends in eine Spalte passt".into();
    record.cases[1].notes.push("x".repeat(500));
    record.title = "人".repeat(90);
    for width in [20, 36, 60, 80, 100, 132] {
        for line in text(&record, width, false).lines() {
            // Every wide character here is CJK: two columns.
            let columns: usize = line.chars().map(|c| if c as u32 > 0x2e7f { 2 } else { 1 }).sum();
            assert!(columns <= width, "{columns} > {width}: {line}");
        }
    }
}

#[test]
fn text_is_coloured_only_on_request() {
    let plain = text(&broken_sample(), 100, false);
    let colour = text(&broken_sample(), 100, true);
    assert!(!plain.contains('\u{1b}') && colour.contains("\u{1b}[1;31m") && colour.contains("\u{1b}[32m"));
    let mut stripped = colour;
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[1;31m"] {
        stripped = stripped.replace(code, "");
    }
    assert_eq!(stripped, plain, "the words are the same");
}

#[test]
fn the_terminal_page_of_the_sample() {
    let page = text(&sample(), 100, false);
    assert_eq!(page, include_str!("sample.txt"), "golden: see report/sample.txt");
}

#[test]
fn the_terminal_page_of_a_comparison() {
    let page = text(&gateway_sample(), 100, false);
    assert_eq!(page, include_str!("compared.txt"), "golden: see report/compared.txt");
    for width in [40, 60] {
        let page = text(&gateway_sample(), width, false);
        assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
    }
}

#[test]
fn a_comparison_stands_side_by_side_on_the_page() {
    let page = html(&gateway_sample());
    for part in [
        "Without and with the gateway pair",
        "With ÷ without",
        "Gateway pair on sat",
        "connected to the other gateway",
        "--compare gateway",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!html(&sample()).contains("With ÷ without"));
}

/// `BENTPIPE_SAMPLE_REPORT=/tmp/report.html cargo test -p bentpipe-lab sample` leaves the page to look at.
#[test]
fn the_sample_can_be_looked_at() {
    let page = html(&sample());
    assert!(page.starts_with("<!doctype html>"));
    if let Some(path) = std::env::var_os("BENTPIPE_SAMPLE_REPORT") {
        std::fs::write(path, page).unwrap();
    }
}

/// `names` workloads of `runs` copies each, in two cases, with `points` of two series each.
fn large(names: u32, runs: u32, points: u32) -> Record {
    let points: Vec<(f64, f64)> = (0..points).map(|i| (f64::from(i), f64::from(i * 7919 % 1000) * 1e3)).collect();
    let mut record = sample();
    record.cases.truncate(2);
    for case in &mut record.cases {
        let transfer = case.workloads[1].clone();
        case.workloads.clear();
        for (name, copy) in (0..names).flat_map(|name| (1..=runs).map(move |copy| (name, copy))) {
            let mut run = transfer.clone();
            run.name = format!("transfer {name}");
            run.copy = (runs > 1).then_some(copy);
            run.app = "bulk".into();
            run.command = None;
            run.measurements[0].value = f64::from(copy);
            run.objective.as_mut().unwrap().met = Some(copy * 10 <= runs * 9);
            for series in &mut run.series {
                series.points = points.clone();
            }
            case.workloads.push(run);
        }
    }
    record
}

fn points_on(page: &str) -> usize {
    let data = chart_data(page);
    let lines = data.as_array().unwrap().iter().flat_map(|chart| chart["lines"].as_array().unwrap());
    lines.map(|line| line["x"].as_array().unwrap().len()).sum()
}

#[test]
fn a_page_has_a_bounded_number_of_charts_points_and_rows() {
    // An hour of fifty workloads, sampled each second; a thousand workloads; ten thousand copies.
    for (names, runs, points) in [(50, 1, 3_600), (1_000, 1, 100), (4, 2_500, 20)] {
        let page = html(&large(names, runs, points));
        assert!(page.len() < 20_000_000, "{} B", page.len());
        assert!(points_on(&page) <= 400_000, "{}", points_on(&page));
        let charts = chart_data(&page).as_array().unwrap().len();
        assert!(charts < 24 + 2 * 10 + 2, "{charts} charts");
        assert!(page.matches("<tr").count() < 40_000, "{} rows", page.matches("<tr").count());
    }
    let page = html(&large(1_000, 1, 10));
    assert!(page.contains("more are in the cases and in the record"), "charts that were left out are counted");
    assert!(page.contains("data-long data-sorts"), "the summary can be searched and sorted");
}

#[test]
fn a_line_of_many_points_is_thinned_to_the_page_and_keeps_its_extremes() {
    let mut record = large(12, 1, 100);
    for case in &mut record.cases {
        for (i, run) in case.workloads.iter_mut().enumerate() {
            run.series = (0..40)
                .map(|number| {
                    let mut points: Vec<_> = (0..2_000).map(|at| (f64::from(at), 1.0)).collect();
                    points[777].1 = 500.0 + i as f64;
                    Series::new(format!("quantity {number}"), Unit::Number, points)
                })
                .collect();
        }
    }
    let page = html(&record);
    assert!(points_on(&page) <= 400_000, "{}", points_on(&page));
    let data = chart_data(&page);
    let lines = data.as_array().unwrap().iter().filter(|chart| chart["title"].as_str().unwrap().contains("uantity"));
    let lines: Vec<&Value> = lines.flat_map(|chart| chart["lines"].as_array().unwrap()).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let top = line["y"].as_array().unwrap().iter().map(|y| y.as_f64().unwrap()).fold(0.0, f64::max);
        assert!(top >= 500.0, "{top}");
    }
}

#[test]
fn copies_are_one_line() {
    let record = large(2, 240, 3);
    let page = text(&record, 140, false);
    let lines: Vec<&str> = page.lines().filter(|line| line.contains("× 240")).collect();
    assert_eq!(lines.len(), 4, "two workloads in two cases:\n{page}");
    for line in lines {
        assert!(line.contains("121 s") && line.contains("228 s"), "median and P95: {line}");
        assert!(line.contains("✗ 216 of 240 met (90 %)"), "{line}");
    }
    assert!(page.lines().count() < 60, "{page}");
    let page = html(&record);
    for part in ["transfer 0 ×\u{a0}240", "transfer 0: every run (240 rows)", "transfer 0 (240)"] {
        assert!(page.contains(part), "{part}");
    }
    let cut = html(&large(1, 3_000, 1));
    assert!(cut.contains("the 2000 runs of 3000 that need attention first"));
}
