//! The results of a workload, or of one party of it.
//!
//! Each party reports what it alone can know; a workload's `combine` joins the parties' reports. Points in time that a
//! quantity spans from one party to another stand in [`Moments`] until then.

use crate::quantity::{BYTES, COMPLETION_TIME, FIRST_BYTE, GOODPUT, Quantity};
use bentpipe_net::socket::Program;
use bentpipe_net::time::Instant;

/// Where a workload, or one party of it, stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Not at its end.
    Running,
    /// Everything that was asked for happened.
    Done,
    /// It ended otherwise; a sentence says why.
    Failed(String),
}

/// A single number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measurement {
    /// The measurement's name.
    pub quantity: Quantity,
    /// The value, in the quantity's unit.
    pub value: f64,
}

/// A number over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// The measurement's name.
    pub quantity: Quantity,
    /// Time in the run, value; in order of time.
    pub points: Vec<(Instant, f64)>,
}

/// Points in time that one party knows and another's measurements are counted from or to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moments {
    /// The client first asked for a connection.
    pub started: Option<Instant>,
    /// The first byte of data was received.
    pub first_byte: Option<Instant>,
    /// The last byte of data was received.
    pub last_byte: Option<Instant>,
}

/// The results at some moment; partial before the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Where it stands.
    pub status: Status,
    /// When it was done or failed.
    pub ended: Option<Instant>,
    /// Single numbers; a quantity occurs once.
    pub measurements: Vec<Measurement>,
    /// Numbers over time; a quantity occurs once.
    pub series: Vec<Series>,
    /// Points in time for the parties' reports to be joined by.
    pub moments: Moments,
}

/// One party of a workload, which can say how it went.
pub trait App: Program {
    /// The results at `now`; partial before the end.
    fn report(&self, now: Instant) -> Report;
}

impl Report {
    /// A report without measurements.
    #[must_use]
    pub fn new(status: Status, ended: Option<Instant>) -> Self {
        Report { status, ended, measurements: Vec::new(), series: Vec::new(), moments: Moments::default() }
    }

    /// A report without measurements of a party that ended then, well or for a reason; `None`: it runs.
    #[must_use]
    pub fn of_end(end: Option<&(Instant, Result<(), String>)>) -> Self {
        match end {
            None => Report::new(Status::Running, None),
            Some((at, Ok(()))) => Report::new(Status::Done, Some(*at)),
            Some((at, Err(why))) => Report::new(Status::Failed(why.clone()), Some(*at)),
        }
    }

    /// The value measured of a quantity.
    #[must_use]
    pub fn value(&self, quantity: Quantity) -> Option<f64> {
        self.measurements.iter().find(|m| m.quantity == quantity).map(|m| m.value)
    }

    /// The points of a quantity's series; none when there is no such series.
    #[must_use]
    pub fn points(&self, quantity: Quantity) -> &[(Instant, f64)] {
        self.series.iter().find(|s| s.quantity == quantity).map_or(&[], |s| &s.points)
    }

    /// Adds a measurement, or replaces the one of this quantity.
    pub fn put(&mut self, quantity: Quantity, value: f64) {
        match self.measurements.iter_mut().find(|m| m.quantity == quantity) {
            Some(m) => m.value = value,
            None => self.measurements.push(Measurement { quantity, value }),
        }
    }

    /// Derives [`FIRST_BYTE`], [`COMPLETION_TIME`] (when done) and [`GOODPUT`] from the points in time that are known.
    pub fn derive(&mut self) {
        let seconds = |at: Option<Instant>| at.map(Instant::as_secs_f64);
        let Some(started) = seconds(self.moments.started) else { return };
        if let Some(first) = seconds(self.moments.first_byte) {
            self.put(FIRST_BYTE, first - started);
        }
        self.measurements.retain(|m| m.quantity != COMPLETION_TIME);
        let Some(took) = seconds(self.moments.last_byte).map(|last| last - started) else { return };
        if self.status == Status::Done {
            self.put(COMPLETION_TIME, took);
        }
        if let Some(bytes) = self.value(BYTES).filter(|_| took > 0.0) {
            self.put(GOODPUT, bytes * 8.0 / took);
        }
    }
}

/// Where the data of a workload is received, and thus measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receiver {
    Client,
    Server,
}

/// Joins a client's and a server's report. Measurements of the receiver replace what the other side believed.
pub(crate) fn combine(client: Report, server: Report, receiver: Receiver) -> Report {
    let mut joined = Report { status: combine_status(client.status, server.status), ..client };
    if receiver == Receiver::Server {
        for m in server.measurements {
            joined.put(m.quantity, m.value);
        }
        joined.series.retain(|mine| server.series.iter().all(|theirs| theirs.quantity != mine.quantity));
        joined.series.extend(server.series);
        joined.moments.first_byte = server.moments.first_byte.or(joined.moments.first_byte);
        joined.moments.last_byte = server.moments.last_byte.or(joined.moments.last_byte);
    }
    joined.derive();
    joined
}

/// Failed when either side failed; otherwise as the client stands, for a server may be stopped when its client is done.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Option<Instant> {
        Some(Instant { ns: seconds * 1_000_000_000 })
    }

    #[test]
    fn a_stopped_server_does_not_fail_a_done_client() {
        let failed = |text: &str| Status::Failed(text.to_owned());
        assert_eq!(combine_status(Status::Done, Status::Running), Status::Done);
        assert_eq!(combine_status(Status::Running, Status::Done), Status::Running);
        assert_eq!(combine_status(Status::Done, failed("x")), failed("server: x"));
        assert_eq!(combine_status(failed("a"), failed("b")), failed("a; server: b"));
        assert_eq!(combine_status(failed("a"), Status::Running), failed("a"));
    }

    #[test]
    fn the_receiver_measures() {
        let mut client = Report::new(Status::Done, at(9));
        client.moments.started = at(1);
        client.put(BYTES, 7.0);
        let mut server = Report::new(Status::Running, None);
        server.put(BYTES, 1000.0);
        (server.moments.first_byte, server.moments.last_byte) = (at(2), at(5));
        let joined = combine(client, server, Receiver::Server);
        assert_eq!(joined.value(FIRST_BYTE), Some(1.0));
        assert_eq!(joined.value(COMPLETION_TIME), Some(4.0));
        assert_eq!(joined.value(GOODPUT), Some(2000.0));
    }
}
