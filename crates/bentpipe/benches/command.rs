//! The whole command, from the scenario's file to the report: CPU time, memory, and the size of what it leaves. `make bench`.
//!
//! Each case is a process of its own, so that its memory is its own. What something is asked of has a verdict after it; the
//! bench fails when one is missed.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The resources that one process took, and the sizes of its files.
struct Taken {
    wall_s: f64,
    cpu_s: f64,
    memory_mb: f64,
    record_mb: f64,
    report_mb: f64,
}

/// CPU time of 10,000 flows at most, in those of 1000.
const FLOWS_RATIO_MAX: f64 = 12.0;
/// Memory and record of 10,000 flows at most.
const MEMORY_MB_MAX: f64 = 300.0;
const RECORD_MB_MAX: f64 = 50.0;
/// Time for the report of an hour with 50 workloads, and its size.
const REPORT_S_MAX: f64 = 5.0;
const REPORT_MB_MAX: f64 = 20.0;

fn main() -> ExitCode {
    let folder = std::env::temp_dir().join(format!("bentpipe-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let mut missed = 0;
    let mut judge = |what: &str, value: f64, limit: f64| {
        let met = value <= limit;
        missed += usize::from(!met);
        println!("  {} {what}: {value:.2}, at most {limit}", if met { "met   " } else { "MISSED" });
    };
    println!(
        "{:<34} {:>8} {:>8} {:>10} {:>10} {:>10}",
        "command", "wall s", "CPU s", "memory MB", "record MB", "report MB"
    );
    // The largest comes last: the most memory of all processes so far is what the system tells.
    let hour = run(&folder, "hour", &hour());
    let report = taken(&folder.join("hour"), Command::new(BIN).arg("report").arg(folder.join("hour")));
    print("report: an hour, 50 workloads", &report);
    judge("its wall time, s", report.wall_s, REPORT_S_MAX);
    judge("its size, MB", hour.report_mb, REPORT_MB_MAX);
    let thousand = run(&folder, "flows-1000", &flows(250));
    let ten_thousand = run(&folder, "flows-10000", &flows(2_500));
    judge("CPU time of 10,000 flows ÷ 1000", ten_thousand.cpu_s / thousand.cpu_s, FLOWS_RATIO_MAX);
    judge("memory, MB", ten_thousand.memory_mb, MEMORY_MB_MAX);
    judge("record, MB", ten_thousand.record_mb, RECORD_MB_MAX);
    let _ = std::fs::remove_dir_all(&folder);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Four workloads of so many copies, 4 MB each, over 1 Gbit/s.
fn flows(copies: u32) -> String {
    let mut text = "title = 'flows'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'site']\nrate = '1 Gbit/s'\n\
                    one_way_delay = '20 ms'\nqueue = { bytes = '5 MB' }\n"
        .to_owned();
    for name in ["a", "b", "c", "d"] {
        let _ = write!(
            text,
            "[[workloads]]\nname = '{name}'\napp = 'bulk'\nclient = 'site'\nserver = 'hub'\ncopies = {copies}\n\
             bytes = '4 MB'\ntimeout = '1000 s'\n"
        );
    }
    text
}

/// An hour of 25 pings and 25 transfers over a GEO link, in two cases.
fn hour() -> String {
    let mut text = "title = 'hour'\n[links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\n".to_owned();
    for number in 1..=25 {
        let _ = write!(
            text,
            "[[workloads]]\nname = 'ping {number}'\napp = 'ping'\nclient = 'ship'\nserver = 'hub'\ncount = 3600\n\
             interval = '1 s'\n[[workloads]]\nname = 'file {number}'\napp = 'bulk'\nclient = 'ship'\nserver = 'hub'\n\
             seconds = '3600 s'\n"
        );
    }
    text + "[[cases]]\nname = 'one'\n[[cases]]\nname = 'two'\n"
}

/// Runs a scenario in virtual time.
fn run(folder: &Path, name: &str, scenario: &str) -> Taken {
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, scenario).expect("a temporary file");
    let out = folder.join(name);
    let taken = taken(&out, Command::new(BIN).args(["run", "--virtual", "--out"]).arg(&out).arg(&file));
    print(&format!("run --virtual: {name}"), &taken);
    taken
}

/// Runs a command, which leaves its results in `out`.
fn taken(out: &Path, command: &mut Command) -> Taken {
    let (start, before) = (Instant::now(), children().0);
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (cpu_s, memory_mb) = children();
    let size = |name: &str| std::fs::metadata(out.join(name)).map_or(0.0, |file| file.len() as f64 / 1e6);
    Taken {
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: cpu_s - before,
        memory_mb,
        record_mb: size("record.json"),
        report_mb: size("report.html"),
    }
}

fn print(what: &str, taken: &Taken) {
    let Taken { wall_s, cpu_s, memory_mb, record_mb, report_mb } = taken;
    println!("{what:<34} {wall_s:>8.2} {cpu_s:>8.2} {memory_mb:>10.1} {record_mb:>10.2} {report_mb:>10.2}");
}

/// CPU seconds of all processes so far that have ended, and the most memory that one of them had, in MB.
fn children() -> (f64, f64) {
    // SAFETY: all zeros is a value of this structure, and the call writes nothing else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss as f64 * 1024.0 / 1e6)
}

const BIN: &str = env!("CARGO_BIN_EXE_bentpipe");
