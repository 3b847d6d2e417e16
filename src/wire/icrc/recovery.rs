//! Verifies an IPv4 packet whose identification the socket did not report.
//!
//! A CRC is linear: two packets that differ only in the 32 bits of ID, flags and fragment offset have ICRCs that differ
//! by `delta * x^(32 + n)` modulo the CRC polynomial, where `delta` is the difference of those bits and `n` the number
//! of bits that follow them. The factor has an inverse, so `delta`, and with it the sender's ID, follows from the
//! received ICRC and one computed with a guessed ID. With an ID that is not known in advance only half of the 32 check
//! bits protect the packet: one in 2^16 damaged packets yields some ID, so callers must know which IDs are likely.

use super::{DF, IpFacts, UdpFacts, icrc, is_flush, rxe_flush_icrc, split_icrc};
use crate::frame::UDP_LEN;
use crate::ip::IPV4_LEN;

/// Verifies `packet` (BTH to ICRC inclusive) and returns the IPv4 ID it was sent with. The ID of `facts` is a guess
/// that is tried first; any other is recovered from the ICRC, and means nothing if the packet is damaged. DF is
/// expected, whatever `facts` say. For IPv6, which has no ID, this is [`crate::verify`] and returns 0.
#[inline]
pub fn verify_unknown_id(facts: &UdpFacts, packet: &[u8]) -> Option<u16> {
    let (covered, received) = split_icrc(packet)?;
    let facts = with_df(facts);
    resolve(&facts, received ^ icrc(&facts, covered), covered.len())
}

/// [`verify_unknown_id`] for a FLUSH sealed the way rxe does ([`rxe_flush_icrc`]). `None` for any
/// other opcode.
pub fn verify_unknown_id_rxe_flush(facts: &UdpFacts, packet: &[u8]) -> Option<u16> {
    let (covered, received) = split_icrc(packet)?;
    if !is_flush(covered) {
        return None;
    }
    let facts = with_df(facts);
    resolve(&facts, received ^ rxe_flush_icrc(&facts, covered), 2 * covered.len())
}

/// Finds the ID and the flags of the IPv4 packet whose transport bytes, without the ICRC, are `transport_len` long,
/// from the ICRC it carries and the one computed for it with ID 0 and DF. `None` when no ID explains the difference:
/// the packet is damaged, or was sent with flags other than DF or none.
#[inline]
pub fn recover_v4_id(received: u32, computed_with_id_0: u32, transport_len: usize) -> Option<(u16, u16)> {
    IdRecovery::new(transport_len).recover(received, computed_with_id_0)
}

/// [`recover_v4_id`] prepared for packets of one length, which saves most of the arithmetic for
/// those that recover IDs packet after packet.
#[derive(Clone, Copy, Debug)]
pub struct IdRecovery {
    inverse: u32,
}

impl IdRecovery {
    /// Prepares for packets of `transport_len` bytes, the ICRC not counted.
    pub const fn new(transport_len: usize) -> IdRecovery {
        const AFTER_FLAGS: usize = IPV4_LEN - 8 + UDP_LEN;
        const DELTA_ITSELF: usize = 4;
        let mut bytes = AFTER_FLAGS + DELTA_ITSELF + transport_len;
        let mut inverse = ONE;
        let mut bit = 0;
        while bytes != 0 && bit < INVERSE_POWERS.len() {
            if bytes & 1 != 0 {
                inverse = multiply(inverse, INVERSE_POWERS[bit]);
            }
            bytes >>= 1;
            bit += 1;
        }
        IdRecovery { inverse }
    }

    /// See [`recover_v4_id`].
    #[inline]
    pub const fn recover(&self, received: u32, computed_with_id_0: u32) -> Option<(u16, u16)> {
        let delta = multiply(received ^ computed_with_id_0, self.inverse);
        // A reflected CRC takes bytes in order, low bit first, so the first byte is the lowest.
        let [id0, id1, flags0, flags1] = delta.to_le_bytes();
        let flags_frag = u16::from_be_bytes([flags0, flags1]) ^ DF;
        match flags_frag {
            DF | 0 => Some((u16::from_be_bytes([id0, id1]), flags_frag)),
            _ => None,
        }
    }
}

#[inline]
fn resolve(facts: &UdpFacts, difference: u32, hashed_len: usize) -> Option<u16> {
    match (difference, facts.ip) {
        (0, IpFacts::V4 { id, .. }) => Some(id),
        (0, IpFacts::V6 { .. }) => Some(0),
        (_, IpFacts::V4 { id: guess, .. }) => match IdRecovery::new(hashed_len).recover(difference, 0) {
            Some((change, DF)) => Some(guess ^ change),
            _ => None,
        },
        (_, IpFacts::V6 { .. }) => None,
    }
}

#[inline]
fn with_df(facts: &UdpFacts) -> UdpFacts {
    match facts.ip {
        IpFacts::V4 { src, dst, id, .. } => {
            UdpFacts { ip: IpFacts::V4 { src, dst, id, flags_frag: DF }, ..*facts }
        }
        IpFacts::V6 { .. } => *facts,
    }
}

/// The CRC-32 polynomial, reflected: bit 31 is the coefficient of x^0, bit 0 that of x^31.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// x^-(8 * 2^i) for each bit i of a length in bytes, enough for twice the longest IP packet.
const INVERSE_POWERS: [u32; 18] = {
    let mut byte = ONE;
    let mut i = 0;
    while i < 8 {
        byte = divide_by_x(byte);
        i += 1;
    }
    let mut powers = [byte; 18];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = multiply(powers[i - 1], powers[i - 1]);
        i += 1;
    }
    powers
};

/// Multiplies modulo the polynomial, without branches.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut i = 0;
    while i < 32 {
        // Coefficients of `a` from x^0 up, while `b` is multiplied by x each time round.
        product ^= b & 0u32.wrapping_sub((a >> (31 - i)) & 1);
        b = (b >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(b & 1));
        i += 1;
    }
    product
}

/// Undoes one multiplication by x. The polynomial has a constant term, so whether it was added shows
/// in the top bit.
const fn divide_by_x(v: u32) -> u32 {
    if v & ONE != 0 { ((v ^ POLYNOMIAL) << 1) | 1 } else { v << 1 }
}
