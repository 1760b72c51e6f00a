//! A pair of gateway daemons between real kernels, in four namespaces in a row: client, terminal, hub, server.
//!
//! `cargo test -p bentpipe --test gateway -- [PART…] [--full]`: `make bench-gateway` runs the part `scale` with the numbers
//! that docs/reference/performance.md reports, `make test` all parts with small ones.
//!
//! A process gains the right to namespaces only while it has one thread, so this test has a main of its own.

mod bypass;
mod circuit;
mod deaths;
mod diagnosis;
mod dial;
mod faults;
mod idle;
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
mod unauthenticated_peers;

use bentpipe_host::namespace::acquire_privilege;
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::RwLock;
use std::process::{Command, ExitCode, Stdio};

/// A part's name, and what it does; `true`: with the full numbers.
type Part = (&'static str, fn(bool));
const PARTS: [Part; 16] = [
    ("faults", faults::run),
    ("relay", relay::run),
    ("unauthenticated_peers", unauthenticated_peers::run),
    ("bypass", bypass::run),
    ("reload", reload::run),
    ("ports", ports::run),
    ("machine", machine::run),
    ("silence", silence::run),
    ("idle", idle::run),
    ("diagnosis", diagnosis::run),
    ("semantics", semantics::run),
    ("circuit", circuit::run),
    ("dial", dial::run),
    ("deaths", deaths::run),
    ("pushback", pushback::run),
    ("scale", scale::run),
];
/// These measure what the machine can do, and have it to themselves.
const ALONE: [&str; 3] = ["deaths", "pushback", "scale"];
/// The others mostly wait.
const AT_ONCE: usize = 3;
/// Names the part that a process of its own runs.
const PART: &str = "BENTPIPE_GATEWAY_PART";

fn main() -> ExitCode {
    let (full, arguments): (Vec<_>, Vec<_>) = std::env::args().partition(|argument| argument == "--full");
    let full = !full.is_empty();
    if let Ok(part) = std::env::var(PART) {
        return run(&part, full);
    }
    // Several parts may be named, where the harness takes one filter.
    let is_name = |argument: &&String| PARTS.iter().any(|(name, _)| name == argument);
    let wanted: Vec<String> = arguments.iter().filter(is_name).cloned().collect();
    let mut arguments = Arguments::from_iter(arguments.into_iter().filter(|argument| !wanted.contains(argument)));
    arguments.test_threads.get_or_insert(AT_ONCE);
    let parts = PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name));
    let trials = parts.map(|(name, _)| Trial::test(*name, move || passes(name, full))).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(part: &str, full: bool) -> ExitCode {
    if acquire_privilege().is_err() {
        eprintln!("skipped: this machine lets nobody make namespaces");
        return ExitCode::SUCCESS;
    }
    eprintln!("gateway: {part}");
    let found = PARTS.iter().find(|(name, _)| *name == part);
    found.unwrap_or_else(|| panic!("there is no part {part:?}")).1(full);
    ExitCode::SUCCESS
}

/// Runs a part as a process, and shows its output once it has ended: in one piece, so that parts do not talk in between.
fn passes(name: &str, full: bool) -> Result<(), Failed> {
    static MACHINE: RwLock<()> = RwLock::new(());
    let (mut alone, mut together) = (None, None);
    if ALONE.contains(&name) {
        alone = Some(MACHINE.write());
    } else {
        together = Some(MACHINE.read());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.env(PART, name).args(full.then_some("--full")).stdin(Stdio::null());
    let output = command.output()?;
    eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    drop((alone.take(), together.take()));
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", output.status).into()) }
}
