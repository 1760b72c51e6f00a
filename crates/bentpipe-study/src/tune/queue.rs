//! The queue disciplines of the link's own transmitters: a shorter FIFO, FQ-CoDel and CAKE, judged by the transfers and by a ping
//! during the largest of them.
//!
//! Data and delay are weighed by their quotient, which is known as power: goodput ÷ delay (A. Giessler, J. Haenle, A. König and E. Pade,
//! "Free buffer allocation: an investigation by simulation", Computer Networks 2, 1978; L. Kleinrock, "Power and deterministic rules of thumb for
//! probabilistic problems in computer communications", ICC 1979). Here it is 1 ÷ (time of the transfer · round trip of the ping).

use super::candidate::Path;
use super::hosts::{Hosts, Side};
use super::measure::{self, Ratio, Times, Transfer};
use super::{Effect, Verdict};
use bentpipe_apps::Direction;
use bentpipe_lab::report::quantity;
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_net::units::{BitRate, DataSize};
use bentpipe_sim::network::NetworkError;
use serde::Serialize;
use toml::{Table, Value};

/// A queue discipline with its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Discipline {
    /// First in, first out.
    Fifo {
        /// What may wait.
        bytes: u64,
    },
    /// RFC 8290.
    FqCodel {
        /// The delay to aim for.
        target_ms: u64,
        /// How long the delay may be above it: a round trip.
        interval_ms: u64,
    },
    /// Høiland-Jørgensen, Täht and Morton 2018.
    Cake {
        /// The delay to aim for: a twentieth of the round trip, as Linux has it.
        target_ms: u64,
        /// How long the delay may be above it: a round trip.
        interval_ms: u64,
        /// What may wait.
        bytes: u64,
    },
}

/// A discipline in front of one direction, and what it makes of transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The direction of the data: `download` or `upload`.
    pub direction: &'static str,
    /// Whose transmitter has the queue: the sender's.
    pub host: Side,
    /// The discipline.
    pub discipline: Discipline,
    /// The link has it now.
    pub is_present: bool,
    /// The verdict. One of a direction is recommended at most.
    pub verdict: Verdict,
    /// Power ÷ that with the present one.
    pub power: Option<f64>,
    /// Application bytes of the largest transfer.
    pub bytes: u64,
    /// Simulated median time of it, with all that is recommended on the hosts, in seconds.
    pub seconds: Option<f64>,
    /// Simulated median round trip of a ping during it, in seconds.
    pub ping_seconds: Option<f64>,
    /// Time with it ÷ time with the present one, of each size.
    pub effects: Vec<Effect>,
    /// What a link file or a scenario's link sets: `forward.queue = { … }`.
    pub keys: String,
    /// The line for Linux at the host whose device is the transmitter.
    pub command: String,
}

/// The variable that the commands name the device by.
pub const DEVICE: &str = "$DEVICE";

/// Parts of a FIFO's present room that are tried.
const SHORTER: [u64; 2] = [2, 4];
/// A FIFO below so many packets of MTU size is no candidate.
const PACKETS_MIN: u64 = 4;
/// RFC 8290 §5.2: the default interval, and the packets that may wait.
const INTERVAL_MS_MIN: u64 = 100;
const FQ_CODEL_PACKETS: i64 = 10_240;
/// The target's part of the interval: 5 % (RFC 8289 §4.4: 5 to 10 %); and half, for one flow that has the link to itself. CUBIC
/// shrinks its window to 0.7 (RFC 9438 §4.6), which still fills the link only if 0.43 products waited. The packets of other flows do not
/// wait for them.
const TARGET_PARTS: [u64; 2] = [20, 2];
/// Power must grow by this factor to count.
const POWER_GAIN: f64 = 1.1;
/// No transfer may take more than this part of its present time, whatever a ping gains.
const SLOWER_MAX: f64 = 1.1;

impl Discipline {
    /// The table of a link file's `queue`.
    #[must_use]
    pub fn table(self) -> Table {
        let text = |text: String| Value::String(text);
        let size = |bytes: u64| ("bytes".to_owned(), text(DataSize::from_bytes(bytes).to_string()));
        let time = |key: &str, ms: u64| (key.to_owned(), text(format!("{ms} ms")));
        let kind = |kind: &str| ("kind".to_owned(), text(kind.to_owned()));
        match self {
            Discipline::Fifo { bytes } => Table::from_iter([size(bytes)]),
            Discipline::FqCodel { target_ms, interval_ms } => {
                let times = [time("interval", interval_ms), time("target", target_ms)];
                let limit = ("packets".to_owned(), Value::Integer(FQ_CODEL_PACKETS));
                [kind("fq-codel")].into_iter().chain(times).chain([limit]).collect()
            }
            Discipline::Cake { target_ms, interval_ms, bytes } => {
                let times = [time("interval", interval_ms), time("target", target_ms)];
                [kind("cake")].into_iter().chain(times).chain([size(bytes)]).collect()
            }
        }
    }

    /// The line that gives it to a device of Linux. CAKE takes its target from the round trip.
    #[must_use]
    pub fn command(self) -> String {
        let settings = match self {
            Discipline::Fifo { bytes } => format!("bfifo limit {bytes}"),
            Discipline::FqCodel { target_ms, interval_ms } => {
                format!("fq_codel target {target_ms}ms interval {interval_ms}ms")
            }
            Discipline::Cake { interval_ms, .. } => format!("cake rtt {interval_ms}ms"),
        };
        format!("tc qdisc replace dev {DEVICE} root {settings}")
    }

    /// For people: `FQ-CoDel, 30 ms of 600 ms`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Discipline::Fifo { bytes } => format!("FIFO, {}", quantity::bytes(bytes as f64)).replace('\u{a0}', " "),
            Discipline::FqCodel { target_ms, interval_ms } => format!("FQ-CoDel, {target_ms} ms of {interval_ms} ms"),
            Discipline::Cake { interval_ms, .. } => format!("CAKE, round trip {interval_ms} ms"),
        }
    }
}

/// Every discipline tried for each direction whose queue is a FIFO, the present one first.
///
/// `transfers` are the transfers of a direction, the largest last, and the seeds that each is run with.
pub fn table(
    link: &LinkConfig,
    hosts: &Hosts,
    paths: &[Path],
    transfers: impl Fn(Direction) -> Vec<(Transfer, u64)>,
) -> Result<Vec<Row>, NetworkError> {
    let mut rows = Vec::new();
    for path in paths {
        let transfers = transfers(path.direction);
        let Some(room) = of(link, path.direction).queue.room_bytes(link.mtu) else { continue };
        let present = Discipline::Fifo { bytes: room };
        let Some(before) = Measured::of(link, hosts, &transfers)? else { continue };
        rows.push(row(path, present, (&before, None), Vec::new(), &transfers));
        let first = rows.len();
        for discipline in candidates(path, room, link.mtu) {
            let Some(with) = with_queue(link, path.direction, discipline) else { continue };
            let Some(after) = Measured::of(&with, hosts, &transfers)? else { continue };
            let effects: Vec<Effect> = transfers
                .iter()
                .zip(after.times.iter().zip(&before.times))
                .map(|((transfer, _), (after, before))| Effect {
                    direction: super::name(path.direction),
                    bytes: transfer.bytes,
                    after_idle: false,
                    ratio: Ratio::of(after, before),
                })
                .collect();
            rows.push(row(path, discipline, (&after, Some(&before)), effects, &transfers));
        }
        keep_best(&mut rows[first..]);
    }
    Ok(rows)
}

/// Of several that are recommended, leaves the one with the greatest power.
fn keep_best(rows: &mut [Row]) {
    let power = |row: &Row| row.power.filter(|_| row.verdict == Verdict::Recommended);
    let best = rows.iter().filter_map(power).reduce(f64::max);
    let mut is_found = false;
    for row in rows.iter_mut().filter(|row| row.verdict == Verdict::Recommended) {
        if is_found || row.power != best {
            row.verdict = Verdict::NoGain;
        } else {
            is_found = true;
        }
    }
}

fn of(link: &LinkConfig, direction: Direction) -> &DirectionConfig {
    match direction {
        Direction::Download => &link.forward,
        Direction::Upload => &link.back,
    }
}

fn candidates(path: &Path, room: u64, mtu: u64) -> Vec<Discipline> {
    let round_trip = (path.inputs.rtt_seconds * 1e3).ceil() as u64;
    let interval_ms = round_trip.next_multiple_of(10).max(INTERVAL_MS_MIN);
    let shorter = SHORTER.into_iter().map(|part| room / part).filter(|bytes| *bytes >= PACKETS_MIN * mtu);
    let mut all: Vec<Discipline> = shorter.map(|bytes| Discipline::Fifo { bytes }).collect();
    let targets = TARGET_PARTS.map(|part| interval_ms / part);
    all.extend(targets.map(|target_ms| Discipline::FqCodel { target_ms, interval_ms }));
    all.push(Discipline::Cake { target_ms: targets[0], interval_ms, bytes: room });
    all
}

/// The link with another discipline in one direction. `None`: the link file's reader refuses it, as a FIFO too short for a packet.
fn with_queue(link: &LinkConfig, direction: Direction, discipline: Discipline) -> Option<LinkConfig> {
    let there = of(link, direction);
    let rate = BitRate::from_bps(there.rate.highest().bps.saturating_mul(there.channels as u64));
    let text = |text: String| Value::String(text);
    // A direction of the same rate and MTU, whose queue is read as a link file's is.
    let table = Table::from_iter([
        ("rate".to_owned(), text(rate.to_string())),
        ("one_way_delay".to_owned(), text("0 s".to_owned())),
        ("mtu".to_owned(), text(DataSize::from_bytes(link.mtu).to_string())),
        ("queue".to_owned(), Value::Table(discipline.table())),
    ]);
    let queue = LinkConfig::from_table(table).ok()?.forward.queue;
    let mut with = link.clone();
    match direction {
        Direction::Download => with.forward.queue = queue,
        Direction::Upload => with.back.queue = queue,
    }
    Some(with)
}

/// The runs with one discipline.
struct Measured {
    times: Vec<Times>,
    ping: Option<f64>,
}

impl Measured {
    /// `None`: there is no transfer.
    fn of(link: &LinkConfig, hosts: &Hosts, transfers: &[(Transfer, u64)]) -> Result<Option<Measured>, NetworkError> {
        let Some((largest, _)) = transfers.last() else { return Ok(None) };
        let times = transfers.iter().map(|(transfer, seeds)| measure::times(link, hosts, transfer, *seeds));
        let times = times.collect::<Result<_, _>>()?;
        Ok(Some(Measured { times, ping: measure::ping_during_transfer(link, hosts, largest)? }))
    }

    /// The median time of the largest transfer.
    fn seconds(&self) -> Option<f64> {
        self.times.last()?.summary().seconds
    }

    fn power(&self) -> Option<f64> {
        Some(1.0 / (self.seconds()? * self.ping?))
    }
}

fn row(
    path: &Path,
    discipline: Discipline,
    (measured, before): (&Measured, Option<&Measured>),
    effects: Vec<Effect>,
    transfers: &[(Transfer, u64)],
) -> Row {
    let power = before.and_then(|before| Some(measured.power()? / before.power()?));
    let verdict = match power {
        _ if effects.iter().any(|effect| effect.ratio.ratio > SLOWER_MAX) => Verdict::Loss,
        Some(power) if power >= POWER_GAIN => Verdict::Recommended,
        _ => Verdict::NoGain,
    };
    let side = match path.direction {
        Direction::Download => "forward",
        Direction::Upload => "return",
    };
    Row {
        direction: super::name(path.direction),
        host: Side::sender(path.direction),
        discipline,
        is_present: before.is_none(),
        verdict,
        power,
        bytes: transfers.last().map_or(0, |(transfer, _)| transfer.bytes),
        seconds: measured.seconds(),
        ping_seconds: measured.ping,
        effects,
        keys: format!("{side}.queue = {}", Value::Table(discipline.table())),
        command: discipline.command(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{self, Question};
    use bentpipe_net::stack::TcpConfig;

    fn rows(queue: &str, window: &str) -> Vec<Row> {
        let text = format!("rate = '2 Mbit/s'\none_way_delay = '270 ms'\nqueue = {{ {queue} }}");
        let link = LinkConfig::from_table(toml::from_str(&text).unwrap()).unwrap();
        let tcp = TcpConfig::from_table(toml::from_str(window).unwrap()).unwrap();
        let direction = Direction::Download;
        let bytes = DataSize::from_bytes(5_000_000);
        let question = Question { name: "link", link: &link, tcp: &tcp, direction, bytes, loss: None, connections: 1 };
        let path = Path { direction, inputs: predict::predict(&question).unwrap().inputs };
        let transfer = Transfer { direction, bytes: bytes.bytes, connections: 1, after_idle: false };
        table(&link, &Hosts::alike(&tcp), &[path], |_| vec![(transfer, 1)]).unwrap()
    }

    fn recommended(rows: &[Row]) -> Vec<&Row> {
        rows.iter().filter(|row| row.verdict == Verdict::Recommended).collect()
    }

    /// A window that Linux tunes up fills a queue of 1 MB, which takes 4 s at 2 Mbit/s. With a queue for each flow a ping waits for
    /// one packet at most, 6 ms.
    #[test]
    fn a_discipline_with_more_power_is_recommended() {
        let rows = rows("bytes = '1 MB'", "");
        assert!(rows[0].is_present && rows[0].ping_seconds.unwrap() > 1.5, "{:?}", rows[0]);
        let [best] = recommended(&rows)[..] else { panic!("{rows:?}") };
        assert!(!matches!(best.discipline, Discipline::Fifo { .. }), "{best:?}");
        let ping = best.ping_seconds.unwrap();
        assert!((0.54..0.54 + 0.02).contains(&ping), "{ping}");
        // A target of half the interval costs one flow some percent (docs/explanation/tuning.md).
        assert!(best.seconds.unwrap() <= rows[0].seconds.unwrap() * 1.05, "{best:?}");
    }

    /// A window of a quarter of what the link holds leaves its queue empty.
    #[test]
    fn an_empty_queue_is_left_alone() {
        let rows = rows("bytes = '1 MB'", "receive_window = '32 KiB'");
        assert!(rows.len() == 6 && recommended(&rows).is_empty(), "{rows:?}");
        let short = super::tests::rows("packets = 6", "");
        assert_eq!(short.len(), 4, "a shorter FIFO has no room for four packets: {short:?}");
    }

    #[test]
    fn other_disciplines_than_a_fifo_are_left_alone() {
        assert!(rows("kind = 'fq-codel'", "").is_empty());
    }

    #[test]
    fn a_discipline_is_keys_and_a_command() {
        let codel = Discipline::FqCodel { target_ms: 30, interval_ms: 600 };
        assert_eq!(
            Value::Table(codel.table()).to_string(),
            r#"{ kind = "fq-codel", interval = "600 ms", target = "30 ms", packets = 10240 }"#
        );
        assert_eq!(codel.command(), "tc qdisc replace dev $DEVICE root fq_codel target 30ms interval 600ms");
        let fifo = Discipline::Fifo { bytes: 64_000 };
        assert_eq!(Value::Table(fifo.table()).to_string(), r#"{ bytes = "64000 B" }"#);
        assert_eq!(fifo.command(), "tc qdisc replace dev $DEVICE root bfifo limit 64000");
        let cake = Discipline::Cake { target_ms: 30, interval_ms: 600, bytes: 150_000 };
        assert_eq!(cake.command(), "tc qdisc replace dev $DEVICE root cake rtt 600ms");
    }
}
