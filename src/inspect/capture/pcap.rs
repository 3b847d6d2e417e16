//! The classic format: a file header, then records of sixteen bytes and a frame each.

use std::io::Read;

use super::error::{CaptureError, CaptureFault};
use super::window::Window;
use super::{LinkType, MAX_RECORD, Record};

const FILE_HEADER: usize = 24;

/// The contents of the file header.
#[derive(Debug)]
pub(super) struct PcapState {
    big_endian: bool,
    /// Nanoseconds per unit of a record's second time word.
    tick_ns: u64,
    /// 16; 24 in the variant written by patched kernels of the 1990s.
    record_header: usize,
    link: LinkType,
}

impl PcapState {
    pub fn from_magic(magic: [u8; 4]) -> Option<PcapState> {
        let (big_endian, tick_ns, record_header) = match magic {
            [0xD4, 0xC3, 0xB2, 0xA1] => (false, 1000, 16),
            [0xA1, 0xB2, 0xC3, 0xD4] => (true, 1000, 16),
            [0x4D, 0x3C, 0xB2, 0xA1] => (false, 1, 16),
            [0xA1, 0xB2, 0x3C, 0x4D] => (true, 1, 16),
            [0x34, 0xCD, 0xB2, 0xA1] => (false, 1000, 24),
            [0xA1, 0xB2, 0xCD, 0x34] => (true, 1000, 24),
            _ => return None,
        };
        Some(PcapState { big_endian, tick_ns, record_header, link: LinkType::Ethernet })
    }

    pub fn read_header<R: Read>(mut self, window: &mut Window<R>) -> Result<PcapState, CaptureError> {
        let Some(header) = window.peek::<FILE_HEADER>()? else {
            return Err(CaptureFault::CutShort("the file header").at(0));
        };
        let major = [header[4], header[5]];
        let major = if self.big_endian { u16::from_be_bytes(major) } else { u16::from_le_bytes(major) };
        if major != 2 {
            return Err(CaptureFault::Version(major).at(4));
        }
        let network = self.word(header, 20);
        // The upper half holds the length of a trailing FCS; IP lengths exclude it.
        self.link = LinkType::from_code(network as u16);
        window.take(FILE_HEADER);
        Ok(self)
    }

    #[inline]
    pub fn next<'a, R: Read>(
        &mut self,
        window: &'a mut Window<R>,
        number: u64,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        let offset = window.offset();
        if !window.ensure(self.record_header)? {
            return match window.available() {
                0 => Ok(None),
                _ => Err(CaptureFault::CutShort("a record header").at(offset)),
            };
        }
        let header = window.at_hand(16);
        let seconds = self.word(header, 0);
        let fraction = self.word(header, 4);
        let captured = self.word(header, 8);
        let wire_len = self.word(header, 12);
        if captured > MAX_RECORD {
            return Err(CaptureFault::RecordTooLong(captured).at(offset));
        }
        let total = self.record_header + captured as usize;
        if !window.ensure(total)? {
            return Err(CaptureFault::CutShort("the record").at(offset));
        }
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.tick_ns;
        let data = &window.take(total)[self.record_header..];
        let header_len = self.record_header as u32;
        let (link, interface, direction) = (self.link, 0, None);
        Ok(Some(Record {
            number,
            time_ns,
            link,
            interface,
            direction,
            wire_len,
            data,
            comment: &[],
            offset,
            header_len,
        }))
    }

    /// Whether a complete record is buffered.
    #[inline]
    pub fn is_ready<R: Read>(&self, window: &Window<R>) -> bool {
        let available = window.available();
        available >= self.record_header
            && available - self.record_header >= self.word(window.at_hand(16), 8) as usize
    }

    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }
}
