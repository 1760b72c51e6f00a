//! Dial-up links: how long a host keeps asking for a connection, and how long the circuit takes.

use super::hosts::{Atom, Hosts, Side};
use bentpipe_link::config::LinkConfig;
use serde::Serialize;

/// Set-up compared with what the connecting host does meanwhile; closed forms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SetUp {
    /// Time until the circuit is up, in seconds.
    pub seconds: f64,
    /// SYNs that the terminal sends before the first answer can be there.
    pub syns: u32,
    /// Times that it sends a SYN again before it gives up, the even intervals not counted.
    pub syn_retries: u32,
    /// When it gives up.
    pub gives_up_seconds: f64,
    /// The least number of retries that outlasts twice the set-up and a round trip; none when today's do.
    pub syn_retries_needed: Option<u32>,
}

/// Linux's first retransmission time-out (RFC 6298 §2.1), which nothing sets.
const FIRST: f64 = 1.0;
/// Linux's default retries, and those at even intervals since 6.5 (Documentation/networking/ip-sysctl.rst).
const SYN_RETRIES: u32 = 6;
const SYN_LINEAR: u32 = 4;
/// The most that Linux takes.
const SYN_RETRIES_MAX: u32 = 127;
/// Linux's upper bound of a time-out.
const LONGEST: f64 = 120.0;

/// Times at which a host sends its SYN, and after the last one when it gives up: `linear` intervals of a second and then
/// doubled ones, 131 s with Linux's default settings.
fn syns(retries: u32, linear: u32) -> (Vec<f64>, f64) {
    let (mut at, mut interval, mut times) = (0.0, FIRST, Vec::new());
    for number in 0..=retries.saturating_add(linear) {
        times.push(at);
        at += interval;
        if number >= linear {
            interval = (interval * 2.0).min(LONGEST);
        }
    }
    (times, at)
}

/// The requirements of a circuit on the host that connects; none without one.
#[must_use]
pub fn set_up(link: &LinkConfig, hosts: &Hosts, round_trip_seconds: f64) -> Option<SetUp> {
    let circuit = link.circuit.as_ref()?;
    let seconds: f64 = circuit.stages.iter().map(|stage| stage.time.as_secs_f64()).sum();
    let tcp = &hosts.terminal;
    let (retries, linear) = (tcp.syn_retries.unwrap_or(SYN_RETRIES), tcp.syn_linear_timeouts.unwrap_or(SYN_LINEAR));
    let answer = seconds + round_trip_seconds;
    let (times, gives_up) = syns(retries, linear);
    let lasts = |retries: &u32| syns(*retries, linear).1 > 2.0 * answer;
    let needed = if gives_up > answer { None } else { (retries..=SYN_RETRIES_MAX).find(lasts) };
    Some(SetUp {
        seconds,
        syns: times.iter().filter(|at| **at < answer).count() as u32,
        syn_retries: retries,
        gives_up_seconds: gives_up,
        syn_retries_needed: needed,
    })
}

/// The setting that outlasts the set-up.
#[must_use]
pub fn atom(set_up: &SetUp) -> Option<Atom> {
    set_up.syn_retries_needed.map(|retries| Atom::new(Side::Terminal, "syn_retries", i64::from(retries)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::stack::TcpConfig;

    #[test]
    fn linux_gives_up_after_131_seconds() {
        // Documentation/networking/ip-sysctl.rst, tcp_syn_retries: 131 s with four even intervals, 67 s of them before
        // the last SYN; 127 s without.
        let (times, gives_up) = syns(6, 4);
        assert_eq!((times.last().copied(), gives_up), (Some(67.0), 131.0));
        assert_eq!(syns(6, 0).1, 127.0);
    }

    #[test]
    fn retries_outlast_twice_the_set_up() {
        let link = |stage: &str| {
            let text = format!(
                "rate = '2400 bit/s'\none_way_delay = '1 s'\n[circuit]\nstages = [{{ name = 'a', time = '{stage}' }}]"
            );
            LinkConfig::from_table(toml::from_str(&text).unwrap()).unwrap()
        };
        let linux = Hosts::alike(&TcpConfig::default());
        let default = set_up(&link("50 s"), &linux, 2.0).unwrap();
        assert_eq!((default.syns, default.syn_retries_needed), (10, None));
        let slow = set_up(&link("200 s"), &linux, 2.0).unwrap();
        let needed = slow.syn_retries_needed.unwrap();
        assert!(syns(needed, 4).1 > 404.0 && syns(needed - 1, 4).1 <= 404.0, "{needed}");
        let mut without = link("1 s");
        without.circuit = None;
        assert!(set_up(&without, &linux, 2.0).is_none());
    }
}
