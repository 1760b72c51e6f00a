//! What a workload says about itself.
//!
//! Each side reports what it alone can know; a spec's `combine` joins the two. Between the sides, points in time travel
//! as measurements whose names end in `_at` (seconds since the run's start); `combine` turns them into spans and drops
//! them.

use bentpipe_net::socket::Program;
use bentpipe_net::time::Instant;

/// Where a workload, or one side of it, stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Not at its end.
    Running,
    /// Everything that was asked for happened.
    Done,
    /// It ended otherwise; a sentence says why.
    Failed(String),
}

/// One number with its unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// `goodput`, `completion_time`, `rtt_median`, …
    pub name: &'static str,
    /// `bit/s`, `s`, `B`, `1` for ratios and counts.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
}

/// A number over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// `received`, `goodput`, `rtt`.
    pub name: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Time in the run, value; in order of time.
    pub points: Vec<(Instant, f64)>,
}

/// What is known at some moment; partial before the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Where it stands.
    pub status: Status,
    /// When it was done or failed.
    pub ended: Option<Instant>,
    /// Single numbers; a name occurs once.
    pub measurements: Vec<Measurement>,
    /// Numbers over time; a name occurs once.
    pub series: Vec<Series>,
}

/// One side of a workload that can say how it went.
pub trait App: Program {
    /// What is known at `now`, at any time: before the end the results are partial.
    fn report(&self, now: Instant) -> Report;
}

impl Report {
    /// The value of the measurement called `name`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.measurements.iter().find(|m| m.name == name).map(|m| m.value)
    }

    /// The points of the series called `name`; none when there is no such series.
    #[must_use]
    pub fn points(&self, name: &str) -> &[(Instant, f64)] {
        self.series.iter().find(|s| s.name == name).map_or(&[], |s| &s.points)
    }

    pub(crate) fn new(status: Status, ended: Option<Instant>) -> Self {
        Report { status, ended, measurements: Vec::new(), series: Vec::new() }
    }

    /// Adds a measurement, or replaces the one of this name.
    pub(crate) fn put(&mut self, name: &'static str, unit: &'static str, value: f64) {
        match self.measurements.iter_mut().find(|m| m.name == name) {
            Some(m) => *m = Measurement { name, unit, value },
            None => self.measurements.push(Measurement { name, unit, value }),
        }
    }

    pub(crate) fn put_time(&mut self, name: &'static str, at: Option<Instant>) {
        if let Some(at) = at {
            self.put(name, "s", at.as_secs_f64());
        }
    }

    /// Derives `first_byte`, `completion_time` (when done) and `goodput` from the points in time that are known.
    pub(crate) fn derive(&mut self) {
        let Some(started) = self.value(STARTED_AT) else { return };
        if let Some(first) = self.value(FIRST_BYTE_AT) {
            self.put("first_byte", "s", first - started);
        }
        self.measurements.retain(|m| m.name != "completion_time");
        let Some(took) = self.value(LAST_BYTE_AT).map(|last| last - started) else { return };
        if self.status == Status::Done {
            self.put("completion_time", "s", took);
        }
        if let Some(bytes) = self.value("bytes").filter(|_| took > 0.0) {
            self.put("goodput", "bit/s", bytes * 8.0 / took);
        }
    }
}

/// Where the data of a workload is received, and thus measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receiver {
    Client,
    Server,
}

/// Joins both sides. What the receiver measured replaces what the other side believed.
pub(crate) fn combine(client: Report, server: Report, receiver: Receiver) -> Report {
    let mut joined = Report {
        status: combine_status(client.status, server.status),
        ended: client.ended,
        measurements: client.measurements,
        series: client.series,
    };
    if receiver == Receiver::Server {
        for m in server.measurements {
            joined.put(m.name, m.unit, m.value);
        }
        joined.series.retain(|mine| server.series.iter().all(|theirs| theirs.name != mine.name));
        joined.series.extend(server.series);
    }
    joined.derive();
    joined.measurements.retain(|m| !m.name.ends_with("_at"));
    joined
}

/// Failed when either side failed; otherwise as the client stands, for a server may be cut when its client is done.
fn combine_status(client: Status, server: Status) -> Status {
    match (client, server) {
        (Status::Failed(mine), Status::Failed(theirs)) if mine != theirs => {
            Status::Failed(format!("{mine}; server: {theirs}"))
        }
        (Status::Failed(why), _) => Status::Failed(why),
        (_, Status::Failed(why)) => Status::Failed(format!("server: {why}")),
        (client, _) => client,
    }
}

/// When the client first asked for a connection.
pub(crate) const STARTED_AT: &str = "started_at";
/// When the first data byte was received.
pub(crate) const FIRST_BYTE_AT: &str = "first_byte_at";
/// When the last data byte was received.
pub(crate) const LAST_BYTE_AT: &str = "last_byte_at";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_server_does_not_fail_a_done_client() {
        let failed = |text: &str| Status::Failed(text.to_owned());
        assert_eq!(combine_status(Status::Done, Status::Running), Status::Done);
        assert_eq!(combine_status(Status::Running, Status::Done), Status::Running);
        assert_eq!(combine_status(Status::Done, failed("x")), failed("server: x"));
        assert_eq!(combine_status(failed("a"), failed("b")), failed("a; server: b"));
        assert_eq!(combine_status(failed("a"), Status::Running), failed("a"));
    }

    #[test]
    fn the_receiver_measures() {
        let mut client = Report::new(Status::Done, Some(Instant { ns: 9_000_000_000 }));
        client.put(STARTED_AT, "s", 1.0);
        client.put("bytes", "B", 7.0);
        let mut server = Report::new(Status::Running, None);
        server.put("bytes", "B", 1000.0);
        server.put(FIRST_BYTE_AT, "s", 2.0);
        server.put(LAST_BYTE_AT, "s", 5.0);
        let joined = combine(client, server, Receiver::Server);
        assert_eq!(joined.value("first_byte"), Some(1.0));
        assert_eq!(joined.value("completion_time"), Some(4.0));
        assert_eq!(joined.value("goodput"), Some(2000.0));
        assert_eq!(joined.value(LAST_BYTE_AT), None);
    }
}
