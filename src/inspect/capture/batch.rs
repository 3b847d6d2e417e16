//! Many records at once, with the buffer they lie in, for handing to another thread.

use super::{Direction, LinkType, Record};

/// Records and their bytes.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) buffer: Vec<u8>,
    records: Vec<Entry>,
}

/// A record without its bytes.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    time_ns: u64,
    link: LinkType,
    interface: u32,
    direction: Option<Direction>,
    wire_len: u32,
    captured: u32,
    offset: u64,
    header_len: u32,
    /// Byte of the file at which the frame begins.
    pub frame_offset: u64,
}

/// A record and where in the buffer its frame begins.
#[derive(Debug)]
struct Entry {
    place: Place,
    at: usize,
}

impl Place {
    #[inline]
    pub fn of(record: &Record<'_>) -> Place {
        Place {
            number: record.number,
            time_ns: record.time_ns,
            link: record.link,
            interface: record.interface,
            direction: record.direction,
            wire_len: record.wire_len,
            captured: record.data.len() as u32,
            offset: record.offset,
            header_len: record.header_len,
            frame_offset: record.offset + u64::from(record.header_len),
        }
    }
}

impl Batch {
    /// Holds nothing yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The records, in the order of the file.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|Entry { place, at }| Record {
            number: place.number,
            time_ns: place.time_ns,
            link: place.link,
            interface: place.interface,
            direction: place.direction,
            wire_len: place.wire_len,
            data: &self.buffer[*at..*at + place.captured as usize],
            offset: place.offset,
            header_len: place.header_len,
        })
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, place: Place, at: usize) {
        self.records.push(Entry { place, at });
    }
}
