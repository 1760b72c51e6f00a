//! A pair of gateway daemons between real kernels, in four namespaces in a row: client, terminal, hub, server.
//!
//! `cargo test -p bentpipe --test gateway -- [PART…] [--full]`: `make bench-gateway` runs the part `scale` with the numbers
//! that docs/reference/performance.md reports, `make test` all parts with small ones.
//!
//! A process gains the right to namespaces only while it has one thread, so this test has a main of its own.

mod beside;
mod circuit;
mod deaths;
mod faults;
mod link;
mod machine;
#[path = "../../../bentpipe-host/tests/gateway/peers.rs"]
mod peers;
mod ports;
mod pushback;
mod relay;
mod reload;
mod row;
mod scale;
mod semantics;
mod silence;
mod strangers;

use bentpipe_host::namespace::acquire_privilege;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

/// A part's name, and what it does; `true`: with the full numbers.
type Part = (&'static str, fn(bool));
const PARTS: [Part; 13] = [
    ("faults", faults::run),
    ("relay", relay::run),
    ("strangers", strangers::run),
    ("beside", beside::run),
    ("reload", reload::run),
    ("ports", ports::run),
    ("machine", machine::run),
    ("silence", silence::run),
    ("semantics", semantics::run),
    ("circuit", circuit::run),
    ("deaths", deaths::run),
    ("pushback", pushback::run),
    ("scale", scale::run),
];
/// These measure what the machine can do, and have it to themselves.
const ALONE: [&str; 3] = ["deaths", "pushback", "scale"];
/// The others mostly wait.
const AT_ONCE: usize = 3;

fn main() -> ExitCode {
    let (flags, wanted): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let full = flags.iter().any(|flag| flag == "--full");
    let is_wanted = |part: &&Part| wanted.is_empty() || wanted.iter().any(|name| part.0.contains(name.as_str()));
    let parts: Vec<&Part> = PARTS.iter().filter(is_wanted).collect();
    if let [(name, run)] = parts[..] {
        if acquire_privilege().is_err() {
            eprintln!("skipped: this machine lets nobody make namespaces");
            return ExitCode::SUCCESS;
        }
        eprintln!("gateway: {name}");
        run(full);
        return ExitCode::SUCCESS;
    }
    // Each in a process of its own, so that several can go on side by side.
    let (alone, together): (Vec<&str>, Vec<&str>) =
        parts.iter().map(|part| part.0).partition(|name| ALONE.contains(name));
    let failed = Mutex::new(Vec::new());
    let waiting = Mutex::new(together.into_iter());
    let next = || waiting.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = next() {
                    if !passes(name, full) {
                        failed.lock().unwrap().push(name);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.extend(alone.into_iter().filter(|name| !passes(name, full)));
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("gateway: failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Runs a part as a process, and shows what it says once it has ended.
fn passes(name: &str, full: bool) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(name).args(full.then_some("--full")).stdin(Stdio::null());
    let output = command.output().unwrap();
    // In one piece, so that parts do not talk in between.
    eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.success()
}
