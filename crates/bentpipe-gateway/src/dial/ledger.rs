//! The ledger: every call, written before it is dialled, and kept up to date while it lasts.
//!
//! A line of JSON an entry, only ever appended. After a crash the last line may be torn; a call without an end is charged up
//! to its last entry, which is at most one increment old. Times are nanoseconds since 1970-01-01 00:00 UTC.

use super::Raise;
use bentpipe_link::tariff::{Account, Money, Tariff, Usage};
use bentpipe_net::line::LineFailure;
use bentpipe_net::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The call's number, from 1.
    pub call: u64,
    /// When, in nanoseconds since 1970-01-01 00:00 UTC.
    pub at_ns: u64,
    /// The news.
    #[serde(flatten)]
    pub news: News,
}

/// What an entry says of its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum News {
    /// It is about to be dialled.
    Dial {
        /// What asked for it.
        by: Raise,
        /// It overrides the caps.
        priority: bool,
    },
    /// It is up.
    Up {
        /// Airtime is charged from here on.
        charged_from_ns: u64,
    },
    /// It lasts.
    Lasts {
        /// Bytes from the hub so far.
        forward: u64,
        /// Bytes to the hub so far.
        back: u64,
    },
    /// It did not come up.
    Failed {
        /// Why.
        why: LineFailure,
    },
    /// It has ended.
    Ended {
        /// Why.
        why: Ending,
        /// Bytes from the hub.
        forward: u64,
        /// Bytes to the hub.
        back: u64,
        /// Its price.
        cost_nano: u64,
    },
}

/// Why a call that was up has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Nothing had passed for as long as it may linger.
    Idle,
    /// Its next increment would exceed a cap.
    Cap,
    /// It ended by itself.
    Dropped,
    /// The gateway was stopped.
    Stopped,
    /// The gateway ended without a word; found at its next start.
    Crashed,
}

/// A call as the ledger tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerCall {
    /// Its number.
    pub call: u64,
    /// When it was dialled.
    pub dialled: Instant,
    /// What asked for it.
    pub by: Raise,
    /// When it came up, and from when on it is charged.
    pub up: Option<(Instant, Instant)>,
    /// The time of its last entry.
    pub last: Instant,
    /// Bytes from the hub.
    pub forward: u64,
    /// Bytes to the hub.
    pub back: u64,
    /// How it ended, if it has.
    pub end: Option<CallEnd>,
}

/// The end of a call in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEnd {
    /// It did not come up.
    Failed(LineFailure),
    /// It was up.
    Ended(Ending),
}

/// A ledger that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Its calls, in the order of dialling.
    pub calls: Vec<LedgerCall>,
    /// The last line was torn: the machine or the gateway ended while it was written.
    pub torn: bool,
    /// Bytes up to the end of the last whole line.
    pub whole_bytes: u64,
}

/// A ledger that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line} is no entry of a ledger: {what}")]
pub struct LedgerProblem {
    /// From 1.
    pub line: usize,
    /// The mistake.
    pub what: String,
}

impl Entry {
    /// The entry as a line, its end included.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

impl Ledger {
    /// Reads the bytes of a ledger. Only its last line may be torn.
    pub fn read(bytes: &[u8]) -> Result<Ledger, LedgerProblem> {
        let mut ledger = Ledger::default();
        let mut at = 0;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let whole = line.last() == Some(&b'\n');
            let is_last = at + line.len() == bytes.len();
            match serde_json::from_slice::<Entry>(line) {
                Ok(entry) if whole => {
                    ledger.add(&entry).map_err(|what| LedgerProblem { line: number + 1, what: what.to_owned() })?;
                    at += line.len();
                    ledger.whole_bytes = at as u64;
                }
                // A torn write may leave anything behind the last whole line, zeros included.
                _ if is_last => {
                    ledger.torn = true;
                    break;
                }
                Ok(_) => unreachable!("only the last line has no end"),
                Err(error) => return Err(LedgerProblem { line: number + 1, what: error.to_string() }),
            }
        }
        Ok(ledger)
    }

    fn add(&mut self, entry: &Entry) -> Result<(), &'static str> {
        let at = Instant { ns: entry.at_ns };
        if let News::Dial { by, .. } = entry.news {
            if self.calls.last().is_some_and(|last| last.call >= entry.call) {
                return Err("calls are numbered upwards");
            }
            self.calls.push(LedgerCall {
                call: entry.call,
                dialled: at,
                by,
                up: None,
                last: at,
                forward: 0,
                back: 0,
                end: None,
            });
            return Ok(());
        }
        let call = self.calls.last_mut().filter(|call| call.call == entry.call && call.end.is_none());
        let call = call.ok_or("no such call was dialled, or it has ended")?;
        call.last = call.last.max(at);
        match entry.news {
            News::Dial { .. } => {}
            News::Up { charged_from_ns } => call.up = Some((at, Instant { ns: charged_from_ns })),
            News::Lasts { forward, back } => (call.forward, call.back) = (forward, back),
            News::Failed { why } => call.end = Some(CallEnd::Failed(why)),
            News::Ended { why, forward, back, .. } => {
                (call.forward, call.back) = (forward, back);
                call.end = Some(CallEnd::Ended(why));
            }
        }
        Ok(())
    }

    /// The calls with their prices by `tariff`, and the account that they make.
    #[must_use]
    pub fn bill(&self, tariff: &Tariff) -> (Vec<(LedgerCall, Money)>, Account) {
        let mut account = Account::new(tariff.clone());
        let priced = self.calls.iter().map(|call| {
            let price = call.charged().map_or(Money::ZERO, |(from, usage)| account.settle(from, &usage));
            (*call, price)
        });
        (priced.collect(), account)
    }
}

impl LedgerCall {
    /// From when on it is charged, and what it used; `None`: it was never up.
    #[must_use]
    pub fn charged(&self) -> Option<(Instant, Usage)> {
        let (_, from) = self.up?;
        Some((from, Usage { time: self.last.since(from), forward: self.forward, back: self.back }))
    }

    /// Time on air.
    #[must_use]
    pub fn airtime(&self) -> Duration {
        self.charged().map_or(Duration::ZERO, |(_, usage)| usage.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |call, seconds: u64, news| Entry { call, at_ns: seconds * 1_000_000_000, news };
        vec![
            entry(1, 100, News::Dial { by: Raise::Open, priority: false }),
            entry(1, 130, News::Failed { why: LineFailure::Busy }),
            entry(2, 200, News::Dial { by: Raise::Data, priority: false }),
            entry(2, 230, News::Up { charged_from_ns: 228 * 1_000_000_000 }),
            entry(2, 248, News::Lasts { forward: 10, back: 20 }),
            entry(2, 261, News::Ended { why: Ending::Idle, forward: 15, back: 25, cost_nano: 960_000_000 }),
            entry(3, 300, News::Dial { by: Raise::Data, priority: true }),
            entry(3, 330, News::Up { charged_from_ns: 330 * 1_000_000_000 }),
            entry(3, 350, News::Lasts { forward: 1, back: 2 }),
        ]
    }

    fn tariff() -> Tariff {
        let link = bentpipe_link::catalogue::named("iridium").unwrap().unwrap().config().unwrap();
        link.tariff.unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let text: String = entries().iter().map(Entry::line).collect();
        let ledger = Ledger::read(text.as_bytes()).unwrap();
        assert!(!ledger.torn && ledger.whole_bytes == text.len() as u64);
        let ends: Vec<_> = ledger.calls.iter().map(|call| call.end).collect();
        let busy = CallEnd::Failed(LineFailure::Busy);
        assert_eq!(ends, [Some(busy), Some(CallEnd::Ended(Ending::Idle)), None]);
        let (priced, account) = ledger.bill(&tariff());
        let prices: Vec<String> = priced.iter().map(|(_, price)| price.to_string()).collect();
        assert_eq!(prices, ["0.00", "0.96", "0.48"], "33 s; and 20 s known of the call without an end");
        assert_eq!(account.total().to_string(), "1.44");
    }

    /// Cut at every byte: what was whole before is there, and nothing is made up.
    #[test]
    fn a_torn_last_line_is_left_out() {
        let lines: Vec<String> = entries().iter().map(Entry::line).collect();
        let text = lines.concat();
        for cut in 0..=text.len() {
            let ledger = Ledger::read(&text.as_bytes()[..cut]).unwrap();
            let whole: usize = lines
                .iter()
                .scan(0, |at, line| {
                    *at += line.len();
                    Some(*at)
                })
                .take_while(|end| *end <= cut)
                .last()
                .unwrap_or(0);
            assert_eq!((ledger.whole_bytes, ledger.torn), (whole as u64, whole != cut), "cut at {cut}");
            let mut zeros = text.as_bytes()[..cut].to_vec();
            zeros.extend([0; 50]);
            assert!(Ledger::read(&zeros).unwrap().torn, "zeros behind {cut}");
        }
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let entries = entries();
        let text = format!("{}nonsense\n{}", entries[0].line(), entries[1].line());
        assert_eq!(Ledger::read(text.as_bytes()).unwrap_err().line, 2);
        let text = format!("{}{}", entries[1].line(), entries[0].line());
        assert_eq!(Ledger::read(text.as_bytes()).unwrap_err().line, 1);
    }
}
