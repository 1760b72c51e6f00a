//! Settings as commands for Linux, and what Linux has no command for.
//!
//! Only what the kernel keeps becomes a command: sysctls, and attributes of the route that leads over the link. Each is
//! run and read back in a test.

use super::buffers::{RECEIVE_BUFFER_DEFAULT, RECEIVE_BUFFER_RECENT, SEND_BUFFER_DEFAULT};
use super::hosts::{Atom, Side};
use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;
use serde::Serialize;
use std::ops::RangeInclusive;
use toml::Value;

/// A line to type as root at one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Command {
    /// Where.
    pub host: Side,
    /// The line; `$ROUTE` in it stands for the route, as [`ROUTE_EXPLAINED`] says.
    pub text: String,
}

/// The form of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// A sysctl and its value.
    Sysctl(&'static str, String),
    /// A route attribute with its value.
    Route(String),
    /// Linux's default limits allow it already.
    Allowed,
    /// Nothing.
    None,
}

/// The text that explains `$ROUTE`.
pub const ROUTE_EXPLAINED: &str = "ROUTE is the route over the link, as `ip route show` prints it";
/// The shell command that finds the default route.
pub const ROUTE_COMMAND: &str = "ROUTE=$(ip -4 route show default | head -n 1)";

/// Linux's first and default values of a receive and of a send buffer (Documentation/networking/ip-sysctl.rst).
const RECEIVE_BUFFER: &str = "4096 131072";
const SEND_BUFFER: &str = "4096 16384";
/// Buffer for a byte of window: the kernel counts the memory that packets take, 2304 bytes for 1448 of data, and halves
/// what it has when in doubt.
const BUFFER_PER_BYTE: u64 = 2;

/// The lines for these settings, the hub's first; one `ip route` line a host.
#[must_use]
pub fn commands(atoms: &[Atom]) -> Vec<Command> {
    let mut commands = Vec::new();
    for host in Side::BOTH {
        let (mut lines, mut route) = (Vec::new(), Vec::new());
        for atom in atoms.iter().filter(|atom| atom.host == host) {
            match form(atom) {
                Form::Sysctl(name, value) => {
                    let value = if value.contains(' ') { format!("'{value}'") } else { value };
                    lines.push(format!("sysctl -w {name}={value}"));
                }
                Form::Route(attribute) => route.push(attribute),
                Form::Allowed | Form::None => {}
            }
        }
        if !route.is_empty() {
            lines.push(format!("ip route change $ROUTE {}", route.join(" ")));
        }
        // Both directions may ask for the same switch.
        let mut reported: Vec<String> = Vec::new();
        for line in lines {
            if !reported.contains(&line) {
                reported.push(line);
            }
        }
        commands.extend(reported.into_iter().map(|text| Command { host, text }));
    }
    commands
}

/// Linux needs no command for it: its default limits allow it.
#[must_use]
pub fn is_allowed_anyway(atom: &Atom) -> bool {
    form(atom) == Form::Allowed
}

/// The limits of a simulated host, as commands: what a measurement starts from.
#[must_use]
pub fn default_limits() -> [String; 2] {
    [
        format!("sysctl -w net.ipv4.tcp_rmem='{RECEIVE_BUFFER} {RECEIVE_BUFFER_RECENT}'"),
        format!("sysctl -w net.ipv4.tcp_wmem='{SEND_BUFFER} {SEND_BUFFER_DEFAULT}'"),
    ]
}

fn form(atom: &Atom) -> Form {
    let text = atom.value.as_str().unwrap_or_default();
    let number = atom.value.as_integer().map(|n| n.to_string());
    let switch = |name| match atom.value {
        Value::Boolean(on) => Form::Sysctl(name, u8::from(on).to_string()),
        _ => Form::None,
    };
    let route = |key: &str, value: Option<String>| value.map_or(Form::None, |v| Form::Route(format!("{key} {v}")));
    let bytes = text.parse::<DataSize>().map(|size| size.bytes);
    // The largest of the default limits is the least that is requested: a command must not lower what a newer kernel has.
    let buffer = |name, first: &str, default: RangeInclusive<u64>| match bytes {
        _ if atom.is_open() => Form::Allowed,
        Ok(bytes) if bytes.saturating_mul(BUFFER_PER_BYTE) <= *default.start() => Form::Allowed,
        Ok(bytes) => {
            let most = bytes.saturating_mul(BUFFER_PER_BYTE).next_multiple_of(1 << 20);
            Form::Sysctl(name, format!("{first} {}", most.clamp(*default.end(), i32::MAX as u64)))
        }
        Err(_) => Form::None,
    };
    match atom.key {
        "receive_window" => buffer("net.ipv4.tcp_rmem", RECEIVE_BUFFER, RECEIVE_BUFFER_DEFAULT..=RECEIVE_BUFFER_RECENT),
        "send_buffer" => buffer("net.ipv4.tcp_wmem", SEND_BUFFER, SEND_BUFFER_DEFAULT..=SEND_BUFFER_DEFAULT),
        "window_scaling" => switch("net.ipv4.tcp_window_scaling"),
        "sack" => switch("net.ipv4.tcp_sack"),
        "timestamps" => switch("net.ipv4.tcp_timestamps"),
        "ecn" => switch("net.ipv4.tcp_ecn"),
        "slow_start_after_idle" => switch("net.ipv4.tcp_slow_start_after_idle"),
        "syn_retries" => number.map_or(Form::None, |n| Form::Sysctl("net.ipv4.tcp_syn_retries", n)),
        "initial_window" => route("initcwnd", number),
        "ack_every" => match atom.value {
            Value::Integer(1) => route("quickack", Some("1".to_owned())),
            _ => Form::None,
        },
        "congestion_control" => route("congctl", Some(text.to_owned())),
        "mtu" => route("mtu", bytes.ok().map(|bytes| bytes.to_string())),
        "rto_min" => {
            let time = text.parse::<Duration>().ok();
            route("rto_min", time.map(|time| format!("{}ms", time.ns / 1_000_000)))
        }
        _ => Form::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_lines_by_host() {
        let atoms = [
            Atom::new(Side::Terminal, "sack", true),
            Atom::new(Side::Terminal, "sack", true),
            Atom::size(Side::Terminal, "receive_window", 40 << 20),
            Atom::new(Side::Hub, "initial_window", 30),
            Atom::new(Side::Hub, "congestion_control", "bbr"),
            Atom::new(Side::Hub, "rto_min", "1 s"),
            Atom::new(Side::Terminal, "ack_every", 1),
            Atom::size(Side::Terminal, "mtu", 576),
        ];
        let lines: Vec<String> =
            commands(&atoms).into_iter().map(|c| format!("{}: {}", c.host.name(), c.text)).collect();
        assert_eq!(
            lines,
            [
                "hub: ip route change $ROUTE initcwnd 30 congctl bbr rto_min 1000ms",
                "terminal: sysctl -w net.ipv4.tcp_sack=1",
                "terminal: sysctl -w net.ipv4.tcp_rmem='4096 131072 83886080'",
                "terminal: ip route change $ROUTE quickack 1 mtu 576",
            ]
        );
    }

    #[test]
    fn what_linux_has_no_way_to_set_becomes_no_line() {
        let atoms = [
            Atom::new(Side::Hub, "rto_initial", "5 s"),
            Atom::new(Side::Hub, "ack_every", 4),
            Atom::new(Side::Hub, "hystart", false),
            Atom::new(Side::Hub, "delayed_ack", "500 ms"),
        ];
        assert_eq!(commands(&atoms), []);
        // Above what kernels before 6.16 allow, below what later ones do.
        let lines = commands(&[Atom::size(Side::Terminal, "receive_window", 8 << 20)]);
        assert_eq!(lines[0].text, "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'");
        let small = Atom::size(Side::Terminal, "receive_window", 65_536);
        assert!(is_allowed_anyway(&small) && commands(&[small]).is_empty());
    }
}
