//! The data of workloads: bytes that are a function of a pattern's number and an offset, so that 75 MB in
//! flight cost no 75 MB, and that compress as little or as well as a scenario says.
//!
//! | content | bytes | zstd, level 3 |
//! |---|---|---|
//! | [`Content::Random`] | the finaliser of SplitMix64 over the word's number | 100 % |
//! | [`Content::Text`] | words by Zipf's law: the commonest of English, then made-up ones | 37 % |
//! | [`Content::Share`] | of each 1000 bytes so many percent random, the rest one byte over and over | that share |
//!
//! A pattern's number holds its content: its upper half says which, unless it is random.

use crate::units::Percent;
use std::sync::OnceLock;

/// The composition of a workload's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// Nothing shrinks it.
    #[default]
    Random,
    /// English as far as a compressor can tell.
    Text,
    /// Shrinks to this share, in percent, 0 to 100.
    Share(u8),
}

/// A content that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no content; allowed: \"random\", \"text\", or the share that it compresses to in whole percent, such as \"40 %\""
)]
pub struct ContentError(String);

impl std::str::FromStr for Content {
    type Err = ContentError;
    fn from_str(text: &str) -> Result<Self, ContentError> {
        match text {
            "random" => Ok(Content::Random),
            "text" => Ok(Content::Text),
            _ => match text.parse::<Percent>().map(|share| share.fraction() * 100.0) {
                Ok(share) if (share - share.round()).abs() < 1e-9 => Ok(Content::Share(share.round() as u8)),
                _ => Err(ContentError(text.to_owned())),
            },
        }
    }
}

impl<'de> serde::Deserialize<'de> for Content {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        <String as serde::Deserialize>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Content {
    /// The pattern of this content that belongs to a seed.
    #[must_use]
    pub fn pattern(self, seed: u64) -> u64 {
        let of_kind = |kind: u64| MARK | kind << 32 | (seed ^ seed >> 32) & 0xFFFF_FFFF;
        match self {
            Content::Random if Content::of(seed) != Content::Random => seed ^ 1 << 63,
            Content::Random => seed,
            Content::Text => of_kind(TEXT),
            Content::Share(percent) => of_kind(u64::from(percent.min(100))),
        }
    }

    /// The composition of a pattern's data.
    #[must_use]
    #[inline]
    pub fn of(pattern: u64) -> Content {
        if pattern & MARKED == MARK {
            match pattern >> 32 & 0xFF {
                TEXT => return Content::Text,
                percent @ 0..=100 => return Content::Share(percent as u8),
                _ => {}
            }
        }
        Content::Random
    }
}

/// The upper 24 bits of a pattern that is not random, and where they stand; below them a byte says which.
const MARK: u64 = 0x007E_87C0 << 40;
const MARKED: u64 = 0xFF_FFFF << 40;
/// The byte of [`Content::Text`]; that of a share is its percent.
const TEXT: u64 = 0xFF;

/// The byte at `offset` of `pattern`.
#[must_use]
pub fn pattern_byte(pattern: u64, offset: u64) -> u8 {
    let mut byte = [0];
    fill_pattern(pattern, offset, &mut byte);
    byte[0]
}

/// Fills `into` with `pattern` from `offset`.
pub fn fill_pattern(pattern: u64, offset: u64, into: &mut [u8]) {
    let mut filled = 0;
    pieces(pattern, offset, into.len(), |piece| {
        into[filled..filled + piece.len()].copy_from_slice(piece);
        filled += piece.len();
    });
}

/// The number of bytes of `data` that differ from `pattern` at `offset`.
#[must_use]
pub fn count_wrong(pattern: u64, offset: u64, data: &[u8]) -> u64 {
    let (mut seen, mut wrong) = (0, 0);
    pieces(pattern, offset, data.len(), |piece| {
        let own = &data[seen..seen + piece.len()];
        if own != piece {
            wrong += own.iter().zip(piece).filter(|(a, b)| a != b).count() as u64;
        }
        seen += piece.len();
    });
    wrong
}

/// Hands out `length` bytes of `pattern` from `offset`, piece by piece.
#[inline]
fn pieces(pattern: u64, offset: u64, length: usize, mut take: impl FnMut(&[u8])) {
    match Content::of(pattern) {
        Content::Random => {
            let mut at = offset;
            let mut left = length;
            while left > 0 {
                let word = pattern_word(pattern, at >> 3).to_le_bytes();
                let skip = (at & 7) as usize;
                let taken = (8 - skip).min(left);
                take(&word[skip..skip + taken]);
                at = at.wrapping_add(taken as u64);
                left -= taken;
            }
        }
        Content::Text => blocks(offset, length, BLOCK, &mut take, |number, block| {
            text_block(pattern_word(pattern, number), block);
        }),
        Content::Share(percent) => blocks(offset, length, STRETCH, &mut take, |number, block| {
            let random = STRETCH * usize::from(percent) / 100;
            for (word, bytes) in block[..random].chunks_mut(8).enumerate() {
                let value = pattern_word(pattern, number * STRETCH as u64 + word as u64).to_le_bytes();
                bytes.copy_from_slice(&value[..bytes.len()]);
            }
            block[random..].fill(0);
        }),
    }
}

/// The same of a pattern that is made in blocks of `size` bytes.
fn blocks(
    offset: u64,
    length: usize,
    size: usize,
    take: &mut impl FnMut(&[u8]),
    mut make: impl FnMut(u64, &mut [u8; BLOCK]),
) {
    let mut block = [0; BLOCK];
    let mut at = offset;
    let mut left = length;
    while left > 0 {
        make(at / size as u64, &mut block);
        let skip = (at % size as u64) as usize;
        let taken = (size - skip).min(left);
        take(&block[skip..skip + taken]);
        at = at.wrapping_add(taken as u64);
        left -= taken;
    }
}

/// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014) over a number.
fn pattern_word(pattern: u64, index: u64) -> u64 {
    let mut z = pattern.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Text is made in blocks of so many bytes, each from its own number.
const BLOCK: usize = 1024;
/// Bytes of which a share is random.
const STRETCH: usize = 1000;

/// Sentences, cut where the block ends.
fn text_block(seed: u64, block: &mut [u8; BLOCK]) {
    let mut drawn = 0;
    let mut draw = || {
        drawn += 1;
        pattern_word(seed, drawn)
    };
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        let taken = bytes.len().min(BLOCK - at);
        block[at..at + taken].copy_from_slice(&bytes[..taken]);
        at += taken;
        at < BLOCK
    };
    let mut sentence_begins = true;
    let mut word = Vec::with_capacity(16);
    loop {
        word.clear();
        spell(rank(draw()), &mut word);
        if sentence_begins {
            word[0] = word[0].to_ascii_uppercase();
        }
        // Sentences of 15 words, a comma after every twelfth, lines of about twelve words.
        let dice = draw();
        sentence_begins = dice % 15 == 0;
        if sentence_begins {
            word.push(b'.');
        } else if dice >> 8 & 0xFF < 21 {
            word.push(b',');
        }
        word.push(if dice >> 16 & 0xFF < 21 { b'\n' } else { b' ' });
        if !put(&word) {
            return;
        }
    }
}

/// Words that the text knows.
const WORDS: usize = 8192;

/// A rank from 0 on, by Zipf's law: each word is as frequent as its rank, counted from 1, divides.
fn rank(draw: u64) -> usize {
    static UP_TO: OnceLock<Vec<u64>> = OnceLock::new();
    let up_to = UP_TO.get_or_init(|| {
        let mut sum = 0;
        let weight = |rank: u64| (1 << 40) / (rank + 1);
        (0..WORDS as u64).map(|rank| (sum += weight(rank), sum).1).collect()
    });
    let all = up_to[WORDS - 1];
    let point = ((u128::from(draw) * u128::from(all)) >> 64) as u64;
    up_to.partition_point(|sum| *sum <= point)
}

/// The commonest words of English, in this order in most counts, then words of two to four syllables.
fn spell(rank: usize, word: &mut Vec<u8>) {
    if let Some(common) = COMMON.get(rank) {
        word.extend_from_slice(common.as_bytes());
        return;
    }
    let mut choice = pattern_word(0, rank as u64);
    let mut choose = |from: &[&'static str]| {
        let chosen = from[(choice % from.len() as u64) as usize];
        choice /= from.len() as u64;
        chosen.as_bytes()
    };
    let syllables = 2 + rank * 2 / WORDS + rank % 2;
    for _ in 0..syllables {
        word.extend_from_slice(choose(&ONSETS));
        word.extend_from_slice(choose(&VOWELS));
        word.extend_from_slice(choose(&CODAS));
    }
}

const COMMON: [&str; 96] = [
    "the", "of", "and", "to", "a", "in", "is", "it", "you", "that", "he", "was", "for", "on", "are", "with", "as",
    "his", "they", "be", "at", "one", "have", "this", "from", "or", "had", "by", "not", "but", "what", "all", "were",
    "when", "we", "there", "can", "an", "your", "which", "their", "said", "if", "do", "will", "each", "about", "how",
    "up", "out", "them", "then", "she", "many", "some", "so", "these", "would", "other", "into", "has", "more", "her",
    "two", "like", "him", "see", "time", "could", "no", "make", "than", "first", "been", "its", "who", "now", "people",
    "my", "made", "over", "did", "down", "only", "way", "find", "use", "may", "water", "long", "little", "very",
    "after", "words", "called", "just",
];
const ONSETS: [&str; 16] = ["b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "st", "pr", "tr", "v"];
const VOWELS: [&str; 8] = ["a", "e", "i", "o", "u", "ea", "io", "e"];
const CODAS: [&str; 10] = ["", "", "", "n", "r", "s", "t", "l", "nd", "ng"];

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Content; 4] = [Content::Random, Content::Text, Content::Share(40), Content::Share(0)];

    #[test]
    fn a_pattern_is_the_same_from_any_offset() {
        for content in KINDS {
            let pattern = content.pattern(7);
            let mut whole = vec![0; 5000];
            fill_pattern(pattern, 900, &mut whole);
            for start in (0..20).chain(1000..1030) {
                let mut part = [0; 2500];
                fill_pattern(pattern, 900 + start as u64, &mut part);
                assert_eq!(part, whole[start..start + 2500], "{content:?}");
                assert_eq!(part[0], pattern_byte(pattern, 900 + start as u64));
            }
            assert_eq!(count_wrong(pattern, 900, &whole), 0);
            whole[13] ^= 1;
            whole[4999] ^= 128;
            assert_eq!(count_wrong(pattern, 900, &whole), 2);
            fill_pattern(pattern, u64::MAX - 2, &mut [0; 2]);
        }
    }

    #[test]
    fn a_pattern_knows_its_content() {
        for seed in [0, 1, u64::MAX, MARK, MARK | TEXT << 32 | 5, MARK | 40 << 32, MARK | 200 << 32] {
            for content in KINDS.into_iter().chain([Content::Share(100)]) {
                assert_eq!(Content::of(content.pattern(seed)), content, "{seed:x}");
            }
        }
        assert_eq!(Content::Random.pattern(7), 7);
        assert_ne!(Content::Text.pattern(7), Content::Text.pattern(8));
    }

    #[test]
    fn each_content_compresses_as_it_says() {
        for (content, least, most) in [
            (Content::Random, 1.0, 1.001),
            (Content::Text, 0.35, 0.39),
            (Content::Share(100), 1.0, 1.001),
            (Content::Share(50), 0.50, 0.52),
            (Content::Share(10), 0.10, 0.12),
            (Content::Share(0), 0.0, 0.001),
        ] {
            let mut bytes = vec![0; 1 << 20];
            fill_pattern(content.pattern(1), 0, &mut bytes);
            let share = zstd::bulk::compress(&bytes, 3).unwrap().len() as f64 / bytes.len() as f64;
            assert!((least..=most).contains(&share), "{content:?}: {share}");
        }
    }

    #[test]
    fn text_reads_like_text() {
        let mut bytes = vec![0; 100_000];
        fill_pattern(Content::Text.pattern(3), 0, &mut bytes);
        assert!(bytes.is_ascii());
        let text = String::from_utf8(bytes).unwrap();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mean = text.len() as f64 / words.len() as f64;
        assert!((5.0..7.5).contains(&mean), "{mean} bytes a word");
        let the = words.iter().filter(|word| word.eq_ignore_ascii_case("the")).count() as f64 / words.len() as f64;
        // 1 ÷ the harmonic number of 8192 is 10.4 %; some have a comma or a full stop behind them.
        assert!((0.08..0.105).contains(&the), "{the}");
    }

    #[test]
    fn a_content_reads() {
        for (text, content) in [
            ("random", Content::Random),
            ("text", Content::Text),
            ("40 %", Content::Share(40)),
            ("0 %", Content::Share(0)),
        ] {
            assert_eq!(text.parse(), Ok(content));
        }
        for text in ["", "Text", "40", "40.5 %", "101 %", "-1 %"] {
            let error = text.parse::<Content>().unwrap_err().to_string();
            assert!(error.contains("is no content") && error.contains("\"40 %\""), "{error}");
        }
    }
}
