//! MurmurHash3, the 32-bit variant, for whole words.

/// The hash of `bytes`, of which there are a multiple of four.
pub fn murmur3_32(bytes: &[u8], seed: u32) -> u32 {
    debug_assert!(bytes.len().is_multiple_of(4), "only whole words");
    let mut hash = seed;
    for word in bytes.chunks_exact(4) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let mixed = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        hash = (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::murmur3_32;

    #[test]
    fn known_values() {
        assert_eq!(murmur3_32(b"", 0), 0);
        assert_eq!(murmur3_32(b"", 1), 0x514E_28B7);
        assert_eq!(murmur3_32(b"test", 0), 0xBA6B_D213);
        assert_eq!(murmur3_32(b"test", 0x9747_B28C), 0x704B_81DC);
        assert_eq!(murmur3_32(&[0xFF; 4], 0), 0x7629_3B50);
        assert_eq!(murmur3_32(&[0x21, 0x43, 0x65, 0x87], 0x5082_EDEE), 0x2362_F9DE);
    }
}
