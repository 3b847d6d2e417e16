//! Writing numbers and addresses into a reused byte buffer, without `format!`'s detours.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// Text appended to a byte buffer.
pub(crate) trait Out {
    fn text(&mut self, text: &str);
    fn dec(&mut self, value: u64);
    /// At least `width` characters, filled with spaces in front.
    fn dec_wide(&mut self, value: u64, width: usize);
    /// At least `digits` digits, with zeros in front.
    fn dec_zeros(&mut self, value: u64, digits: usize);
    /// `0x` and exactly `digits` digits.
    fn hex(&mut self, value: u64, digits: usize);
    fn hex_bytes(&mut self, bytes: &[u8]);
    fn ip(&mut self, ip: IpAddr);
    /// Spaces up to `width` after what was written since `from`, one character a byte.
    fn pad_from(&mut self, from: usize, width: usize);
}

const SPACES: [u8; 64] = [b' '; 64];
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
    fn dec_wide(&mut self, value: u64, width: usize) {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(value);
        self.extend_from_slice(&SPACES[..width.saturating_sub(text.len()).min(SPACES.len())]);
        self.text(text);
    }

    #[inline]
    fn dec_zeros(&mut self, value: u64, digits: usize) {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(value);
        self.extend_from_slice(&[b'0'; 20][..digits.saturating_sub(text.len()).min(20)]);
        self.text(text);
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

fn ipv4(out: &mut Vec<u8>, ip: Ipv4Addr) {
    for (i, octet) in ip.octets().into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        out.dec(octet.into());
    }
}

/// Appends `text` as the inside of a JSON string.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &str) {
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
