//! HDLC on a synchronous line (ISO/IEC 13239): frame check sequences, and the bits of a frame with bit stuffing.

/// A frame check sequence, sent least significant octet first (ISO/IEC 13239 §4.2.5; RFC 1662 appendix C).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fcs {
    /// x¹⁶ + x¹² + x⁵ + 1, as SDLC has it.
    Bits16,
    /// The polynomial of IEEE 802.3.
    Bits32,
}

impl Fcs {
    /// Octets of the sequence.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Fcs::Bits16 => 2,
            Fcs::Bits32 => 4,
        }
    }

    /// The sequence of a frame, address to information.
    #[must_use]
    pub fn of(self, frame: &[u8]) -> u32 {
        let (polynomial, start) = match self {
            Fcs::Bits16 => (0x8408, 0xffff),
            Fcs::Bits32 => (0xedb8_8320, u32::MAX),
        };
        let fold = |register: u32, byte: &u8| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| {
                register >> 1 ^ if register & 1 == 1 { polynomial } else { 0 }
            })
        };
        frame.iter().fold(start, fold) ^ start
    }

    /// Appends the sequence to a frame.
    pub fn append(self, frame: &mut Vec<u8>) {
        let sequence = self.of(frame).to_le_bytes();
        frame.extend_from_slice(&sequence[..self.bytes()]);
    }

    /// The frame without its sequence; `None`: it is damaged, or too short to have one.
    #[must_use]
    pub fn check(self, received: &[u8]) -> Option<&[u8]> {
        let (frame, sequence) = received.split_at_checked(received.len().checked_sub(self.bytes())?)?;
        (self.of(frame).to_le_bytes()[..self.bytes()] == *sequence).then_some(frame)
    }
}

/// Counts the bits between two flags: the octets' own, least significant bit first, and a zero inserted after five ones in
/// a row.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StuffedBits {
    ones: u8,
    octets: u64,
    zeros: u64,
}

impl StuffedBits {
    /// The next octet.
    #[inline]
    pub fn add(&mut self, octet: u8) {
        self.octets += 1;
        for bit in 0..8 {
            if octet >> bit & 1 == 1 {
                self.ones += 1;
                if self.ones == 5 {
                    self.zeros += 1;
                    self.ones = 0;
                }
            } else {
                self.ones = 0;
            }
        }
    }

    /// Zeros inserted.
    #[must_use]
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// All bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.octets * 8 + self.zeros
    }
}

/// Bits that a frame takes between its flags, its check sequence included in `frame`.
#[must_use]
pub fn stuffed_bits(frame: &[u8]) -> u64 {
    let mut bits = StuffedBits::default();
    frame.iter().for_each(|octet| bits.add(*octet));
    bits.bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a line carries between two flags.
    fn stuff(frame: &[u8]) -> Vec<bool> {
        let (mut line, mut ones) = (Vec::new(), 0);
        for bit in frame.iter().flat_map(|octet| (0..8).map(move |bit| octet >> bit & 1 == 1)) {
            line.push(bit);
            ones = if bit { ones + 1 } else { 0 };
            if ones == 5 {
                line.push(false);
                ones = 0;
            }
        }
        line
    }

    /// What a receiver makes of it.
    fn unstuff(line: &[bool]) -> Option<Vec<u8>> {
        let (mut bits, mut ones) = (Vec::new(), 0);
        for bit in line {
            if ones == 5 {
                if *bit {
                    return None;
                }
                ones = 0;
                continue;
            }
            ones = if *bit { ones + 1 } else { 0 };
            bits.push(*bit);
        }
        let octet = |bits: &[bool]| bits.iter().rev().fold(0, |octet, bit| octet << 1 | u8::from(*bit));
        (bits.len() % 8 == 0).then(|| bits.chunks(8).map(octet).collect())
    }

    #[test]
    fn sequences_are_the_published_ones() {
        // The check values of CRC-16/IBM-SDLC and CRC-32/ISO-HDLC in the RevEng catalogue.
        assert_eq!(Fcs::Bits16.of(b"123456789"), 0x906e);
        assert_eq!(Fcs::Bits32.of(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_line_never_shows_a_flag_inside_a_frame() {
        assert_eq!(stuffed_bits(&[]), 0);
        assert_eq!(stuffed_bits(&[0x00, 0x7e]), 17);
        assert_eq!(stuffed_bits(&[0xff; 5]), 48, "eight runs of five ones");
        assert_eq!(stuffed_bits(&[0xf0, 0x01]), 17, "a run across octets");
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_the_bits(frame in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), Just(0x7e)], 0..300)) {
            let line = stuff(&frame);
            prop_assert_eq!(stuffed_bits(&frame), line.len() as u64);
            prop_assert!(!line.windows(6).any(|six| six.iter().all(|bit| *bit)));
            prop_assert_eq!(unstuff(&line), Some(frame));
        }

        /// Distance 4 up to 32,751 bits: up to three wrong bits are always found.
        #[test]
        fn damage_is_found(frame in prop::collection::vec(any::<u8>(), 2..300), bits in prop::collection::btree_set(0usize..2400, 1..4)) {
            for fcs in [Fcs::Bits16, Fcs::Bits32] {
                let mut sent = frame.clone();
                fcs.append(&mut sent);
                prop_assert_eq!(fcs.check(&sent), Some(&frame[..]));
                let length = sent.len() * 8;
                let wrong: std::collections::BTreeSet<usize> = bits.iter().map(|bit| bit % length).collect();
                wrong.iter().for_each(|bit| sent[bit / 8] ^= 1 << (bit % 8));
                prop_assert_eq!(fcs.check(&sent), None);
            }
        }
    }
}
