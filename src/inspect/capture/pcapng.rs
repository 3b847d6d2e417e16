//! The block format: sections, interfaces with their own clocks, packets.

use std::io::Read;
use std::ops::Range;

use super::error::{CaptureError, CaptureFault};
use super::window::Window;
use super::{Direction, LinkType, MAX_RECORD, Record};

pub(super) const SECTION_MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of a block before and after its body.
const BLOCK_FRAME: u32 = 12;
/// No program writes blocks longer than this.
const MAX_BLOCK: u32 = 256 << 20;
const MAX_INTERFACES: usize = 1 << 16;
/// The rest of an interface or statistics block beyond this is ignored.
const MAX_DESCRIPTION: usize = 1 << 16;

/// `epb_flags`, and `pack_flags` of the obsolete block, with the direction in the lowest two bits.
const OPT_FLAGS: u16 = 2;
const OPT_COMMENT: u16 = 1;
const OPT_TSRESOL: u16 = 9;
const OPT_TSOFFSET: u16 = 14;
const OPT_IFDROP: u16 = 5;

/// State from the blocks read so far.
#[derive(Debug)]
pub(super) struct NgState {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Drops of interfaces of earlier sections.
    dropped_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    /// Captured length limit; 0 means none.
    snap_len: u32,
    clock: Clock,
    dropped: u64,
}

/// Units of a time stamp, and the seconds to add to it.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks_per_second: u64,
    offset_seconds: i64,
}

/// What the options of a packet block say, as far as that matters.
struct Marks {
    direction: Option<Direction>,
    /// Where in the block the first comment is.
    comment: Range<usize>,
}

/// The fixed part of a packet block: where its frame is, and what is known about it.
struct PacketPlace {
    interface: u32,
    ticks: u64,
    captured: u32,
    wire_len: u32,
    /// Bytes from the start of the block to the frame.
    header: usize,
}

impl NgState {
    pub fn new() -> NgState {
        NgState { big_endian: false, interfaces: Vec::new(), dropped_before: 0 }
    }

    pub fn dropped(&self) -> u64 {
        self.interfaces.iter().fold(self.dropped_before, |sum, i| sum.saturating_add(i.dropped))
    }

    pub fn next<'a, R: Read>(
        &mut self,
        window: &'a mut Window<R>,
        number: u64,
    ) -> Result<Option<Record<'a>>, CaptureError> {
        loop {
            let offset = window.offset();
            let Some(head) = window.peek::<8>()? else {
                return match window.available() {
                    0 => Ok(None),
                    _ => Err(CaptureFault::CutShort("a block header").at(offset)),
                };
            };
            let head = *head;
            if head[..4] == SECTION_MAGIC {
                self.begin_section(window)?;
            }
            let kind = self.u32(&head, 0);
            let len = self.u32(&head, 4);
            if !(BLOCK_FRAME..=MAX_BLOCK).contains(&len) || !len.is_multiple_of(4) {
                return Err(CaptureFault::BlockLength(len).at(offset));
            }
            match kind {
                ENHANCED_PACKET | PACKET | SIMPLE_PACKET => {
                    return self.packet(window, kind, len, number).map(Some);
                }
                INTERFACE => self.interface(window, len)?,
                STATISTICS => self.statistics(window, len)?,
                _ => {}
            }
            if !window.skip(u64::from(len) - 4)? {
                return Err(CaptureFault::CutShort("the block").at(offset));
            }
            self.check_trailer(window, offset, len)?;
            window.take(4);
        }
    }

    /// Whether a complete block is buffered.
    pub fn is_ready<R: Read>(&self, window: &Window<R>) -> bool {
        let available = window.available();
        available >= 8 && available >= self.u32(window.at_hand(8), 4) as usize
    }

    fn begin_section<R: Read>(&mut self, window: &mut Window<R>) -> Result<(), CaptureError> {
        let offset = window.offset();
        let Some(head) = window.peek::<12>()? else {
            return Err(CaptureFault::CutShort("the section header").at(offset));
        };
        self.big_endian = match [head[8], head[9], head[10], head[11]] {
            [0x1A, 0x2B, 0x3C, 0x4D] => true,
            [0x4D, 0x3C, 0x2B, 0x1A] => false,
            mark => return Err(CaptureFault::ByteOrder(mark).at(offset)),
        };
        self.dropped_before = self.dropped();
        self.interfaces.clear();
        debug_assert_eq!(SECTION_HEADER.to_be_bytes(), SECTION_MAGIC);
        Ok(())
    }

    fn interface<R: Read>(&mut self, window: &mut Window<R>, len: u32) -> Result<(), CaptureError> {
        let offset = window.offset();
        let body = self.description(window, len, 8)?;
        let link = LinkType::from_code(self.u16(body, 0));
        let snap_len = self.u32(body, 4);
        let mut clock = Clock { ticks_per_second: 1_000_000, offset_seconds: 0 };
        for (code, value) in Options::of(self, body, 8) {
            match (code, value) {
                (OPT_TSRESOL, [resolution, ..]) => clock.ticks_per_second = ticks_per_second(*resolution),
                (OPT_TSOFFSET, value) if value.len() >= 8 => {
                    clock.offset_seconds = self.u64(value, 0) as i64;
                }
                _ => {}
            }
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(CaptureFault::TooManyInterfaces.at(offset));
        }
        self.interfaces.push(Interface { link, snap_len, clock, dropped: 0 });
        Ok(())
    }

    fn statistics<R: Read>(&mut self, window: &mut Window<R>, len: u32) -> Result<(), CaptureError> {
        let body = self.description(window, len, 12)?;
        let interface = self.u32(body, 0) as usize;
        let dropped = Options::of(self, body, 12)
            .find_map(|(code, value)| (code == OPT_IFDROP && value.len() >= 8).then(|| self.u64(value, 0)));
        if let (Some(interface), Some(dropped)) = (self.interfaces.get_mut(interface), dropped) {
            interface.dropped = dropped;
        }
        Ok(())
    }

    /// The body of a descriptive block, up to a sensible length.
    fn description<'a, R: Read>(
        &self,
        window: &'a mut Window<R>,
        len: u32,
        at_least: u32,
    ) -> Result<&'a [u8], CaptureError> {
        let offset = window.offset();
        if len < BLOCK_FRAME + at_least {
            return Err(CaptureFault::BlockLength(len).at(offset));
        }
        let body = ((len - BLOCK_FRAME) as usize).min(MAX_DESCRIPTION);
        if !window.ensure(8 + body)? {
            return Err(CaptureFault::CutShort("the block").at(offset));
        }
        Ok(&window.at_hand(8 + body)[8..])
    }

    fn packet<'a, R: Read>(
        &self,
        window: &'a mut Window<R>,
        kind: u32,
        len: u32,
        number: u64,
    ) -> Result<Record<'a>, CaptureError> {
        let offset = window.offset();
        if len > MAX_RECORD {
            return Err(CaptureFault::RecordTooLong(len).at(offset));
        }
        if !window.ensure(len as usize)? {
            return Err(CaptureFault::CutShort("the packet block").at(offset));
        }
        let block = window.at_hand(len as usize);
        let place = self.place(block, kind).ok_or(CaptureFault::BlockLength(len).at(offset))?;
        let interface = *self
            .interfaces
            .get(place.interface as usize)
            .ok_or(CaptureFault::UnknownInterface(place.interface).at(offset))?;
        let limit =
            if kind == SIMPLE_PACKET && interface.snap_len > 0 { interface.snap_len } else { u32::MAX };
        let captured = place.captured.min(limit) as usize;
        if captured > block.len() - place.header - 4 {
            return Err(CaptureFault::BlockLength(len).at(offset));
        }
        let trailer = self.u32(block, block.len() - 4);
        if trailer != len {
            return Err(CaptureFault::BlockEnds(len, trailer).at(offset));
        }
        let Marks { direction, comment } = self.marks(block, kind, place.header + captured);
        let block = window.take(len as usize);
        let data = &block[place.header..place.header + captured];
        Ok(Record {
            number,
            time_ns: interface.clock.to_ns(place.ticks),
            link: interface.link,
            interface: place.interface,
            direction,
            wire_len: place.wire_len,
            data,
            comment: &block[comment],
            offset,
            header_len: place.header as u32,
        })
    }

    /// What the options behind the frame, which ends at `end`, say.
    #[inline]
    fn marks(&self, block: &[u8], kind: u32, end: usize) -> Marks {
        let mut marks = Marks { direction: None, comment: 0..0 };
        if kind == SIMPLE_PACKET {
            return marks;
        }
        let options = &block[..block.len() - 4];
        for (code, value) in Options::of(self, options, end.next_multiple_of(4)) {
            match code {
                OPT_FLAGS if value.len() == 4 => {
                    marks.direction = match self.u32(value, 0) & 0b11 {
                        1 => Some(Direction::Inbound),
                        2 => Some(Direction::Outbound),
                        _ => None,
                    };
                }
                OPT_COMMENT if marks.comment.is_empty() => {
                    let at = value.as_ptr().addr() - block.as_ptr().addr();
                    marks.comment = at..at + value.len();
                }
                _ => {}
            }
        }
        marks
    }

    /// `None` if the block is shorter than its fixed fields.
    fn place(&self, block: &[u8], kind: u32) -> Option<PacketPlace> {
        let header = if kind == SIMPLE_PACKET { 12 } else { 28 };
        if block.len() < header + 4 {
            return None;
        }
        Some(match kind {
            SIMPLE_PACKET => {
                let wire_len = self.u32(block, 8);
                // What the block holds is the shorter of the frame and the space for it.
                let captured = wire_len.min((block.len() - header - 4) as u32);
                PacketPlace { interface: 0, ticks: 0, captured, wire_len, header }
            }
            _ => PacketPlace {
                interface: if kind == PACKET { self.u16(block, 8).into() } else { self.u32(block, 8) },
                ticks: u64::from(self.u32(block, 12)) << 32 | u64::from(self.u32(block, 16)),
                captured: self.u32(block, 20),
                wire_len: self.u32(block, 24),
                header,
            },
        })
    }

    fn check_trailer<R: Read>(
        &self,
        window: &mut Window<R>,
        offset: u64,
        len: u32,
    ) -> Result<(), CaptureError> {
        match window.peek::<4>()? {
            Some(trailer) => match self.u32(trailer, 0) {
                same if same == len => Ok(()),
                other => Err(CaptureFault::BlockEnds(len, other).at(offset)),
            },
            None => Err(CaptureFault::CutShort("the block").at(offset)),
        }
    }

    #[inline]
    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        if self.big_endian { u16::from_be_bytes(word) } else { u16::from_le_bytes(word) }
    }

    #[inline]
    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn u64(&self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, at)), u64::from(self.u32(bytes, at + 4)));
        if self.big_endian { first << 32 | second } else { second << 32 | first }
    }
}

impl Clock {
    #[inline]
    fn to_ns(self, ticks: u64) -> u64 {
        const NS: u64 = 1_000_000_000;
        let ns = match self.ticks_per_second {
            NS => ticks,
            1_000_000 => ticks.saturating_mul(1000),
            rate => u64::try_from(u128::from(ticks) * u128::from(NS) / u128::from(rate)).unwrap_or(u64::MAX),
        };
        let shift = self.offset_seconds.unsigned_abs().saturating_mul(NS);
        if self.offset_seconds < 0 { ns.saturating_sub(shift) } else { ns.saturating_add(shift) }
    }
}

/// The meaning of if_tsresol: a power of ten, or of two when the high bit is set. Exponents beyond a
/// 64-bit rate are taken for microseconds, the default.
fn ticks_per_second(resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7F);
    let rate = if resolution & 0x80 == 0 { 10u64.checked_pow(exponent) } else { 1u64.checked_shl(exponent) };
    rate.unwrap_or(1_000_000)
}

/// Options as code and value, until they end or are malformed.
struct Options<'a> {
    state: &'a NgState,
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    fn of(state: &'a NgState, body: &'a [u8], fixed: usize) -> Options<'a> {
        Options { state, rest: body.get(fixed..).unwrap_or_default() }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.rest.first_chunk::<4>()?;
        let (code, len) = (self.state.u16(header, 0), usize::from(self.state.u16(header, 2)));
        let value = self.rest.get(4..4 + len)?;
        if code == 0 {
            return None;
        }
        self.rest = self.rest.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    }
}
