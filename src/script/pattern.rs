//! Bytes to recognise.

/// The first `len` bytes of pattern `id`: different for every pattern, and at every position in it.
pub fn pattern(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (place, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mixed(id, place as u64).to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// SplitMix64 at one position.
fn mixed(id: u64, place: u64) -> u64 {
    let z =
        id.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add((place + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
