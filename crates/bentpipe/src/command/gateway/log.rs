//! The daemon's log: lines on standard error, as text or JSON, of each kind never more than a bounded number in a time.

use crate::cli::LogFormat;
use bentpipe_gateway::LogEvent;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use tracing::Level;

/// The log: its events and their limits.
pub struct Log {
    format: LogFormat,
    kinds: Limits,
}

/// The fields of a line in addition to its text; only JSON shows them.
#[derive(Default)]
struct Fields {
    client: Option<String>,
    server: Option<String>,
    outcome: Option<String>,
    connections: Option<u64>,
    count: Option<u64>,
    rate_bps: Option<u64>,
    declared_bps: Option<u64>,
    other_bps: Option<u64>,
}

/// Lines of each kind: what happens often, by whoever's will, leaves the room of the other kinds alone.
#[derive(Default)]
struct Limits {
    kinds: BTreeMap<&'static str, Kind>,
}

struct Kind {
    since: Instant,
    allowed: u32,
    lines: u32,
    left_out: u64,
}

/// A limit of lines in a time; and the limit where the time before had too many.
struct Limit {
    first: u32,
    then: u32,
    period: Duration,
}

/// Of what a peer, a client or this machine does.
const DEFAULT: Limit = Limit { first: 50, then: 50, period: Duration::from_secs(1) };
/// Of what anybody on the Internet can do.
const UNAUTHENTICATED: Limit = Limit { first: 5, then: 1, period: Duration::from_secs(60) };

/// Standard error, whatever becomes of it: a full disk or a closed pipe stops no gateway.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts the process's log.
    pub fn start(format: LogFormat) -> Log {
        let builder = tracing_subscriber::fmt().with_target(false).with_ansi(false).with_writer(|| StandardError);
        // Fails only if there is a log already.
        let _ = match format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().try_init(),
        };
        Log { format, kinds: Limits::default() }
    }

    /// Writes a line about the service itself.
    pub fn line(&mut self, level: Level, text: &str) {
        self.write(level, "service", text, &Fields::default());
    }

    /// Writes a line about the machine.
    pub fn remark(&mut self, text: &str) {
        self.write(Level::WARN, "machine", text, &Fields::default());
    }

    /// Writes what the gateway has noticed.
    pub fn log_event(&mut self, level: Level, log_event: &LogEvent) {
        self.write(level, log_event.kind(), &log_event.to_string(), &fields(log_event));
    }

    /// Says what was left out. To be called again and again.
    pub fn sum_up(&mut self) {
        for (kind, lines) in self.kinds.sum_up(Instant::now()) {
            tracing::warn!(kind, lines, "lines of this kind were left out of the log");
        }
    }

    fn write(&mut self, level: Level, kind: &'static str, text: &str, fields: &Fields) {
        self.sum_up();
        if !self.kinds.admit(kind, Instant::now()) {
            return;
        }
        macro_rules! write {
            ($level:ident) => {
                match self.format {
                    LogFormat::Text => tracing::$level!("{text}"),
                    LogFormat::Json => tracing::$level!(
                        kind,
                        client = fields.client,
                        server = fields.server,
                        outcome = fields.outcome,
                        connections = fields.connections,
                        count = fields.count,
                        rate_bps = fields.rate_bps,
                        declared_bps = fields.declared_bps,
                        other_bps = fields.other_bps,
                        "{text}"
                    ),
                }
            };
        }
        match level {
            Level::ERROR => write!(error),
            Level::WARN => write!(warn),
            _ => write!(info),
        }
    }
}

fn fields(log_event: &LogEvent) -> Fields {
    match log_event {
        LogEvent::Lost { connections, .. } => Fields { connections: Some(*connections as u64), ..Fields::default() },
        LogEvent::Unauthenticated { count, .. } | LogEvent::OtherVersion(count) | LogEvent::Dropped(count) => {
            Fields { count: Some(*count), ..Fields::default() }
        }
        LogEvent::Throttled { declared, now } => {
            Fields { rate_bps: Some(now.bps), declared_bps: Some(declared.bps), ..Fields::default() }
        }
        LogEvent::RatesDiffer { here, there, .. } => {
            Fields { rate_bps: Some(here.bps), other_bps: Some(there.bps), ..Fields::default() }
        }
        LogEvent::NotOpened { client, server, outcome } => Fields {
            client: client.map(|client| client.to_string()),
            server: Some(server.to_string()),
            outcome: Some(outcome.to_string()),
            ..Fields::default()
        },
        _ => Fields::default(),
    }
}

fn limit(kind: &str) -> Limit {
    if kind == "unauthenticated_peer" { UNAUTHENTICATED } else { DEFAULT }
}

impl Limits {
    /// True if a line of this kind may be written now.
    fn admit(&mut self, kind: &'static str, now: Instant) -> bool {
        let first = limit(kind).first;
        let kind = self.kinds.entry(kind).or_insert(Kind { since: now, allowed: first, lines: 0, left_out: 0 });
        let admitted = kind.lines < kind.allowed;
        kind.lines += u32::from(admitted);
        kind.left_out += u64::from(!admitted);
        admitted
    }

    /// Begins new periods: how many lines of which kinds were left out of those that are over.
    fn sum_up(&mut self, now: Instant) -> Vec<(&'static str, u64)> {
        let mut left_out = Vec::new();
        self.kinds.retain(|name, kind| {
            let limit = limit(name);
            if now.duration_since(kind.since) < limit.period {
                return true;
            }
            if kind.left_out == 0 {
                return false;
            }
            left_out.push((*name, kind.left_out));
            *kind = Kind { since: now, allowed: limit.then, lines: 0, left_out: 0 };
            true
        });
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_crowds_out_another() {
        let mut limits = Limits::default();
        let start = Instant::now();
        let (mut unauthenticated_peers, mut requests, mut left_out) = (0, 0, BTreeMap::new());
        for tenth in 0..6000 {
            let now = start + Duration::from_millis(100) * tenth;
            for (kind, lines) in limits.sum_up(now) {
                *left_out.entry(kind).or_insert(0) += lines;
            }
            for _ in 0..100 {
                unauthenticated_peers += u32::from(limits.admit("unauthenticated_peer", now));
                requests += u32::from(limits.admit("not_opened", now));
            }
            assert!(limits.admit("throttled", now) && limits.admit("lost", now));
        }
        // Ten minutes.
        assert_eq!((unauthenticated_peers, requests), (5 + 9, 50 * 600));
        let now = start + Duration::from_secs(600);
        for (kind, lines) in limits.sum_up(now) {
            *left_out.entry(kind).or_insert(0) += lines;
        }
        assert_eq!(left_out["unauthenticated_peer"], 600_000 - 14);
        // After a quiet minute the first ones are written again.
        let now = now + Duration::from_secs(60);
        assert!(limits.sum_up(now).is_empty());
        assert_eq!((0..100).filter(|_| limits.admit("unauthenticated_peer", now)).count(), 5);
    }

    #[test]
    fn a_log_event_has_fields() {
        let log_event = LogEvent::NotOpened {
            client: Some("10.0.0.1:4000".parse().unwrap()),
            server: bentpipe_gateway::Server::Name("example.net".into(), 80),
            outcome: bentpipe_gateway::Outcome::Refused,
        };
        let fields = fields(&log_event);
        assert_eq!(log_event.kind(), "not_opened");
        assert_eq!(fields.client.as_deref(), Some("10.0.0.1:4000"));
        assert_eq!(fields.server.as_deref(), Some("example.net:80"));
        assert_eq!(fields.outcome.as_deref(), Some("refused"));
    }
}
