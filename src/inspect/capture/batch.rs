//! Many records at once, with the buffer that holds them, to pass to another thread.

use super::{Direction, LinkType, Record};

/// Records and their bytes.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) buffer: Vec<u8>,
    records: Vec<Entry>,
}

/// A record without its bytes.
#[derive(Debug)]
pub(super) struct RecordHeader {
    number: u64,
    time_ns: u64,
    link: LinkType,
    interface: u32,
    direction: Option<Direction>,
    wire_len: u32,
    captured: u32,
    /// Where the comment is, counted from the frame, and how long.
    comment: (u32, u16),
    offset: u64,
    header_len: u32,
    /// Byte of the file at which the frame begins.
    pub frame_offset: u64,
}

/// A record, and the position of its frame in the buffer.
#[derive(Debug)]
struct Entry {
    header: RecordHeader,
    at: usize,
}

impl RecordHeader {
    #[inline]
    pub fn of(record: &Record<'_>) -> RecordHeader {
        RecordHeader {
            number: record.number,
            time_ns: record.time_ns,
            link: record.link,
            interface: record.interface,
            direction: record.direction,
            wire_len: record.wire_len,
            captured: record.data.len() as u32,
            comment: match record.comment {
                [] => (0, 0),
                // Both are of the same block.
                comment => {
                    ((comment.as_ptr().addr() - record.data.as_ptr().addr()) as u32, comment.len() as u16)
                }
            },
            offset: record.offset,
            header_len: record.header_len,
            frame_offset: record.offset + u64::from(record.header_len),
        }
    }
}

impl RecordHeader {
    /// The record, whose frame is `data`.
    pub fn record<'a>(&self, data: &'a [u8], comment: &'a [u8]) -> Record<'a> {
        Record {
            number: self.number,
            time_ns: self.time_ns,
            link: self.link,
            interface: self.interface,
            direction: self.direction,
            wire_len: self.wire_len,
            data,
            comment,
            offset: self.offset,
            header_len: self.header_len,
        }
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The records, in the order of the file.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|Entry { header, at }| {
            let comment = *at + header.comment.0 as usize;
            header.record(
                &self.buffer[*at..*at + header.captured as usize],
                &self.buffer[comment..comment + usize::from(header.comment.1)],
            )
        })
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, header: RecordHeader, at: usize) {
        self.records.push(Entry { header, at });
    }
}
