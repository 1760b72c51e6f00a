//! One seed a run, an independent random stream per object: adding an object shifts no other stream.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The seed of a run, or of a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(pub u64);

/// A fast stream for one object.
pub type Stream = Xoshiro256PlusPlus;

impl Seed {
    /// The seed of the part called `name`.
    #[must_use]
    pub fn child(self, name: &str) -> Seed {
        Seed(self.keyed(name).next_u64())
    }

    /// The stream of the object called `name`.
    #[must_use]
    pub fn stream(self, name: &str) -> Stream {
        Xoshiro256PlusPlus::from_rng(&mut self.keyed(name))
    }

    /// A ChaCha8 generator keyed by the seed and the name (64-bit FNV-1a, folded into three key words).
    fn keyed(self, name: &str) -> ChaCha8Rng {
        let mut key = [0u8; 32];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        for (i, word) in key[8..].chunks_exact_mut(8).enumerate() {
            let basis = 0xcbf2_9ce4_8422_2325 ^ (i as u64);
            let hash =
                name.bytes().fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
            word.copy_from_slice(&hash.to_le_bytes());
        }
        ChaCha8Rng::from_seed(key)
    }
}

/// A number from the exponential distribution with mean 1, by inversion: exactly one number of the stream.
pub fn exponential(stream: &mut Stream) -> f64 {
    let open_zero = ((stream.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -open_zero.ln()
}

/// A number in [0, 1).
pub fn unit(stream: &mut Stream) -> f64 {
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_name_and_seed_only() {
        let first = |seed: u64, name: &str| Seed(seed).stream(name).next_u64();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(Seed(1).child("x"), Seed(1).child("y"));
    }
}
