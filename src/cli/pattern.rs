//! Bytes that both processes can make from a number, and check.

/// Fills `bytes` with the pattern of `seed`.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    let mut words = Words(seed);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&words.next().to_le_bytes());
    }
    let tail = chunks.into_remainder();
    let last = words.next().to_le_bytes();
    tail.copy_from_slice(&last[..tail.len()]);
}

/// A number that depends on all of `parts`, in their order.
pub fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |state, part| Words(state ^ part).next())
}

/// The first place where two images differ.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<usize> {
    if expected == found {
        return None;
    }
    let differing = expected.iter().zip(found).position(|(expected, found)| expected != found);
    Some(differing.unwrap_or(expected.len().min(found.len())))
}

/// SplitMix64.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_depends_on_its_seed_and_reaches_the_last_byte() {
        let image = |seed, length| {
            let mut bytes = vec![0; length];
            fill(seed, &mut bytes);
            bytes
        };
        assert_eq!(image(1, 1021), image(1, 1021));
        assert_ne!(image(1, 1021), image(2, 1021));
        assert_eq!(image(1, 1021)[..1016], image(1, 1016));
        assert_ne!(image(1, 1021)[1016..], [0; 5]);
    }

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert_eq!(difference(b"abc", b"aXX"), Some(1));
        assert_eq!(difference(b"abc", b"ab"), Some(2));
    }

    #[test]
    fn mixing_minds_the_order() {
        assert_ne!(mix(&[1, 2]), mix(&[2, 1]));
    }
}
