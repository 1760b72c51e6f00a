//! What is typed, and when.

use bentpipe_net::content::{Content, pattern_byte};
use bentpipe_net::seed::{Seed, Stream, exponential, unit};
use bentpipe_net::time::Duration;

/// The end of a line on the connection (RFC 854, NVT).
pub(super) const LINE_END: &[u8] = b"\r\n";

/// A script of keystrokes. Letters and blanks follow from the seed; a text is typed as it stands.
#[derive(Clone, Debug)]
pub(super) struct Script {
    keys: Keys,
    count: u64,
    /// Of the letters, and of the output.
    patterns: [u64; 2],
}

#[derive(Clone, Debug)]
enum Keys {
    /// Lines of so many letters, each ended by Enter.
    Lines(u64),
    Text(Vec<u8>),
}

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Character(u8),
    Enter,
}

impl Script {
    /// So many keys in lines of so many characters; the last key is Enter.
    pub fn lines(count: u64, line: u64, seed: u64) -> Script {
        Script { keys: Keys::Lines(line), count, patterns: patterns(seed) }
    }

    /// A text, whose line ends are Enter; one is added at its end if it has none.
    pub fn text(text: &str, seed: u64) -> Script {
        let mut keys: Vec<u8> = text.bytes().filter(|byte| *byte != b'\r').collect();
        if keys.last() != Some(&b'\n') {
            keys.push(b'\n');
        }
        Script { count: keys.len() as u64, keys: Keys::Text(keys), patterns: patterns(seed) }
    }

    /// Keys in it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Key number `index`, which must be in it.
    pub fn key(&self, index: u64) -> Key {
        match &self.keys {
            Keys::Lines(line) if index + 1 == self.count || index % (line + 1) == *line => Key::Enter,
            Keys::Lines(_) => Key::Character(letter(self.patterns[0], index)),
            Keys::Text(text) => match text[index as usize] {
                b'\n' => Key::Enter,
                byte => Key::Character(byte),
            },
        }
    }

    /// Byte number `index` of a command's output, which line `line` caused.
    pub fn output(&self, line: u64, index: u64) -> u8 {
        letter(self.patterns[1], (line << 24) + index)
    }
}

fn patterns(seed: u64) -> [u64; 2] {
    [seed, !seed].map(|seed| Content::Random.pattern(seed))
}

fn letter(pattern: u64, index: u64) -> u8 {
    LETTERS[usize::from(pattern_byte(pattern, index)) % LETTERS.len()]
}

impl Key {
    /// Appends its bytes on the connection.
    pub fn put(self, bytes: &mut Vec<u8>) {
        match self {
            Key::Character(byte) => bytes.push(byte),
            Key::Enter => bytes.extend(LINE_END),
        }
    }

    /// Its bytes on the connection: byte `index` of them.
    pub fn byte(self, index: usize) -> u8 {
        match self {
            Key::Character(byte) => byte,
            Key::Enter => LINE_END[index],
        }
    }

    /// How many bytes it has on the connection.
    pub fn bytes(self) -> usize {
        match self {
            Key::Character(_) => 1,
            Key::Enter => LINE_END.len(),
        }
    }
}

/// The pauses of somebody who types: between keys evenly distributed from half of the mean to one and a half, and before a
/// line exponentially around its mean.
#[derive(Clone, Debug)]
pub(super) struct Rhythm {
    interval: Duration,
    think: Duration,
    random: Stream,
}

impl Rhythm {
    pub fn new(interval: Duration, think: Duration, seed: u64) -> Rhythm {
        Rhythm { interval, think, random: Seed(seed).stream("rhythm") }
    }

    /// Between two keys of a line.
    pub fn interval(&mut self) -> Duration {
        Duration::from_nanos((self.interval.ns as f64 * (0.5 + unit(&mut self.random))) as u64)
    }

    /// Before a line, once what the last one caused is there.
    pub fn think(&mut self) -> Duration {
        Duration::from_nanos((self.think.ns as f64 * exponential(&mut self.random)) as u64)
    }
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz ";

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(script: &Script) -> String {
        let mut bytes = Vec::new();
        (0..script.count()).for_each(|index| script.key(index).put(&mut bytes));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_script_ends_with_enter() {
        let lines = typed(&Script::lines(25, 10, 7));
        assert_eq!(lines.split("\r\n").map(str::len).collect::<Vec<_>>(), [10, 10, 2, 0]);
        assert!(lines.bytes().all(|byte| LETTERS.contains(&byte) || LINE_END.contains(&byte)), "{lines:?}");
        assert_ne!(lines, typed(&Script::lines(25, 10, 8)));
        assert_eq!(typed(&Script::text("ls -l\nquit", 7)), "ls -l\r\nquit\r\n");
        assert_eq!(Script::text("ls\r\n", 7).count(), 3);
    }

    #[test]
    fn the_rhythm_has_its_means() {
        let (interval, think) = (Duration::from_millis(200), Duration::from_secs(2));
        let mut rhythm = Rhythm::new(interval, think, 3);
        let intervals: Vec<f64> = (0..10_000).map(|_| rhythm.interval().as_secs_f64()).collect();
        assert!(intervals.iter().all(|gap| (0.1..=0.3).contains(gap)));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean(&intervals) / 0.2 - 1.0).abs() < 0.01);
        let thinking: Vec<f64> = (0..10_000).map(|_| rhythm.think().as_secs_f64()).collect();
        assert!((mean(&thinking) / 2.0 - 1.0).abs() < 0.05);
    }
}
