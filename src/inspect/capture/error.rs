//! Faults of a capture file, and their positions.

use std::fmt;
use std::io::ErrorKind;

use super::MAX_RECORD;

/// A fault and its position in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureError {
    /// Offset from the start of the file.
    pub offset: u64,
    /// The fault.
    pub fault: CaptureFault,
}

/// Faults of a capture file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CaptureFault {
    /// The source could not be read.
    Io(ErrorKind),
    /// The file has no bytes.
    Empty,
    /// The first bytes are not those of a capture file.
    NotACapture([u8; 4]),
    /// The first bytes are those of this compressor.
    Compressed(&'static str),
    /// pcap of a version other than 2.
    Version(u16),
    /// The file ends inside this.
    CutShort(&'static str),
    /// A record claims this many bytes, more than [`MAX_RECORD`].
    RecordTooLong(u32),
    /// A pcapng block claims this length, which no block of its type can have.
    BlockLength(u32),
    /// The two lengths at both ends of a pcapng block differ.
    BlockEnds(u32, u32),
    /// A pcapng section whose byte order mark is this.
    ByteOrder([u8; 4]),
    /// A packet names an interface that no block described.
    UnknownInterface(u32),
    /// More interfaces are described than a file can sensibly have.
    TooManyInterfaces,
}

impl CaptureFault {
    pub(super) const fn at(self, offset: u64) -> CaptureError {
        CaptureError { offset, fault: self }
    }
}

/// Names formats that are opened by mistake.
pub(super) fn name_magic(magic: [u8; 4]) -> CaptureFault {
    match magic {
        [0x1F, 0x8B, ..] => CaptureFault::Compressed("gzip"),
        [0x28, 0xB5, 0x2F, 0xFD] => CaptureFault::Compressed("zstd"),
        [0xFD, b'7', b'z', b'X'] => CaptureFault::Compressed("xz"),
        [0x04, 0x22, 0x4D, 0x18] => CaptureFault::Compressed("lz4"),
        other => CaptureFault::NotACapture(other),
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.offset;
        match self.fault {
            CaptureFault::Io(kind) => write!(f, "the capture could not be read at byte {at}: {kind}"),
            CaptureFault::Empty => f.write_str("the capture is empty"),
            CaptureFault::NotACapture([a, b, c, d]) => {
                write!(f, "this is neither pcap nor pcapng: it begins with {a:02x} {b:02x} {c:02x} {d:02x}")
            }
            CaptureFault::Compressed(by) => {
                write!(
                    f,
                    "this file is compressed with {by}: decompress it and pass it as - on standard input"
                )
            }
            CaptureFault::Version(v) => write!(f, "pcap version {v} is not known (only 2 is), at byte {at}"),
            CaptureFault::CutShort(what) => {
                write!(f, "the file is cut short: it ends inside {what} that begins at byte {at}")
            }
            CaptureFault::RecordTooLong(len) => write!(
                f,
                "the record at byte {at} claims {len} bytes, more than the {MAX_RECORD} allowed: the file is damaged"
            ),
            CaptureFault::BlockLength(len) => {
                write!(f, "the pcapng block at byte {at} claims an impossible length of {len} bytes")
            }
            CaptureFault::BlockEnds(a, b) => {
                write!(f, "the pcapng block at byte {at} gives its length as {a} in front and {b} at its end")
            }
            CaptureFault::ByteOrder([a, b, c, d]) => {
                write!(
                    f,
                    "the pcapng section at byte {at} has the byte order mark {a:02x}{b:02x}{c:02x}{d:02x}"
                )
            }
            CaptureFault::UnknownInterface(id) => {
                write!(f, "the packet at byte {at} names interface {id}, which the file does not describe")
            }
            CaptureFault::TooManyInterfaces => {
                write!(f, "too many interfaces are described, the last at byte {at}")
            }
        }
    }
}

impl std::error::Error for CaptureError {}
