//! Writing numbers and addresses into a reused byte buffer, without `format!`'s detours.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// Text appended to a byte buffer.
pub trait Out {
    /// As it is.
    fn text(&mut self, text: &str);
    /// In decimal.
    fn dec(&mut self, value: u64);
    /// Followed by spaces to eight characters.
    fn dec_padded(&mut self, value: u64);
    /// At least `width` characters, filled with spaces in front.
    fn dec_wide(&mut self, value: u64, width: usize);
    /// At least `digits` digits, with zeros in front.
    fn dec_zeros(&mut self, value: u64, digits: usize);
    /// `0x` and exactly `digits` digits.
    fn hex(&mut self, value: u64, digits: usize);
    /// The same with a number of digits that is known beforehand, which is much faster.
    fn hex_of<const N: usize>(&mut self, value: u64);
    /// The first `len` bytes of `block`. A copy of constant size is cheaper than one of the right size.
    fn front_of<const N: usize>(&mut self, block: &[u8; N], len: usize);
    /// Two digits for each, without `0x`.
    fn hex_bytes(&mut self, bytes: &[u8]);
    /// As the standard library writes it.
    fn ip(&mut self, ip: IpAddr);
    /// Spaces up to `width` after what was written since `from`, one character a byte.
    fn pad_from(&mut self, from: usize, width: usize);
}

const SPACES: [u8; 64] = [b' '; 64];
static HEX_PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut i = 0;
    while i < 256 {
        pairs[i] = [DIGITS[i >> 4], DIGITS[i & 0xF]];
        i += 1;
    }
    pairs
};
const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Out for Vec<u8> {
    #[inline]
    fn text(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn dec(&mut self, value: u64) {
        self.text(itoa::Buffer::new().format(value));
    }

    #[inline]
    fn dec_padded(&mut self, value: u64) {
        let mut digits = [b' '; 28];
        let (head, _) = digits.split_first_chunk_mut::<20>().expect("28 bytes");
        let first = write_digits(head, value);
        match digits[first..].first_chunk::<8>() {
            Some(eight) if first >= 12 => self.extend_from_slice(eight),
            _ => self.extend_from_slice(&digits[first..20]),
        }
    }

    #[inline]
    fn dec_wide(&mut self, value: u64, width: usize) {
        let mut digits = [b' '; 20];
        let first = write_digits(&mut digits, value);
        self.extend_from_slice(&digits[first.min(20 - width.min(20))..]);
    }

    #[inline]
    fn dec_zeros(&mut self, value: u64, digits: usize) {
        let mut text = [b'0'; 20];
        let first = write_digits(&mut text, value);
        self.extend_from_slice(&text[first.min(20 - digits.min(20))..]);
    }

    #[inline]
    fn hex(&mut self, value: u64, digits: usize) {
        let mut buffer = [b'0'; 18];
        buffer[1] = b'x';
        let digits = digits.min(16);
        for (i, place) in buffer[2..2 + digits].iter_mut().enumerate() {
            *place = DIGITS[(value >> (4 * (digits - 1 - i))) as usize & 0xF];
        }
        self.extend_from_slice(&buffer[..2 + digits]);
    }

    #[inline]
    fn hex_of<const N: usize>(&mut self, value: u64) {
        const { assert!(N.is_multiple_of(2) && N <= 16) };
        let mut digits = [0; N];
        for (i, pair) in digits.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *pair = HEX_PAIRS[(value >> (4 * (N - 2 - 2 * i))) as usize & 0xFF];
        }
        self.extend_from_slice(b"0x");
        self.extend_from_slice(&digits);
    }

    #[inline]
    fn front_of<const N: usize>(&mut self, block: &[u8; N], len: usize) {
        let end = self.len() + len;
        self.extend_from_slice(block);
        self.truncate(end);
    }

    fn hex_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(DIGITS[usize::from(byte >> 4)]);
            self.push(DIGITS[usize::from(byte & 0xF)]);
        }
    }

    fn ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => ipv4(self, ip),
            // Writing to a Vec cannot fail.
            IpAddr::V6(ip) => drop(write!(self, "{ip}")),
        }
    }

    #[inline]
    fn pad_from(&mut self, from: usize, width: usize) {
        let written = self.len() - from;
        self.extend_from_slice(&SPACES[..width.saturating_sub(written).min(SPACES.len())]);
    }
}

/// Writes the digits to the end of `place` and returns where they begin.
#[inline]
fn write_digits(place: &mut [u8; 20], mut value: u64) -> usize {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut i = 0;
        while i < 100 {
            pairs[i] = [b'0' + i as u8 / 10, b'0' + i as u8 % 10];
            i += 1;
        }
        pairs
    };
    let mut at = place.len();
    while value >= 100 && at >= 4 {
        at -= 2;
        place[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if value >= 10 {
        at -= 2;
        place[at..at + 2].copy_from_slice(&PAIRS[value as usize % 100]);
    } else {
        at -= 1;
        place[at] = b'0' + value as u8;
    }
    at
}

fn ipv4(out: &mut Vec<u8>, ip: Ipv4Addr) {
    for (i, octet) in ip.octets().into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        out.dec(octet.into());
    }
}

/// Appends `text` as the inside of a JSON string.
pub fn json_text(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' => out.text("\\\""),
            b'\\' => out.text("\\\\"),
            b'\n' => out.text("\\n"),
            0..=0x1F => {
                out.text("\\u00");
                out.hex_bytes(&[byte]);
            }
            _ => out.push(byte),
        }
    }
}
