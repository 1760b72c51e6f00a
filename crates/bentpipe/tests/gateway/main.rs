//! A pair of gateway daemons between real kernels, in four namespaces in a row: client, terminal, hub, server.
//!
//! `cargo test -p bentpipe --test gateway -- [PART…] [--full]`: `make bench-gateway` runs the part `scale` with the numbers
//! that docs/gateway.md reports, `make test` all parts with small ones.
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

/// A part's name, and what it does; `true`: with the full numbers.
type Part = (&'static str, fn(bool));
const PARTS: [Part; 13] = [
    ("relay", relay::run),
    ("semantics", semantics::run),
    ("machine", machine::run),
    ("beside", beside::run),
    ("ports", ports::run),
    ("deaths", deaths::run),
    ("faults", faults::run),
    ("silence", silence::run),
    ("reload", reload::run),
    ("strangers", strangers::run),
    ("circuit", circuit::run),
    ("pushback", pushback::run),
    ("scale", scale::run),
];

fn main() {
    if acquire_privilege().is_err() {
        eprintln!("skipped: this machine lets nobody make namespaces");
        return;
    }
    let (flags, wanted): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let full = flags.iter().any(|flag| flag == "--full");
    for (name, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            eprintln!("gateway: {name}");
            run(full);
        }
    }
}
