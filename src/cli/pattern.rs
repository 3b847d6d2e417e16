//! Bytes that both processes can generate from a number, and check.

use softrnic_link::Rng;

/// Fills `bytes` with the pattern of `seed`.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    let mut words = Rng::new(seed);
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
    parts.iter().fold(0, |state, part| Rng::new(state ^ part).next())
}

/// The first position where two images differ.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<usize> {
    if expected == found {
        return None;
    }
    let differing = expected.iter().zip(found).position(|(expected, found)| expected != found);
    Some(differing.unwrap_or(expected.len().min(found.len())))
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
    fn mixing_depends_on_the_order() {
        assert_ne!(mix(&[1, 2]), mix(&[2, 1]));
    }
}
