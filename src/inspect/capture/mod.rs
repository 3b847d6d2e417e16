//! Capture files: pcap and pcapng from any byte stream, one record at a time.
//!
//! The reader is the crate's own because it has to do what the published ones do not all do at once:
//! lend records without copying them, honour each interface's clock resolution, keep memory bounded
//! whatever lengths a hostile file claims, and say at which byte a damaged file goes wrong.

mod batch;
mod error;
mod fault;
mod merge;
mod pcap;
mod pcapng;
mod window;

use std::io::Read;

pub use batch::Batch;
pub use error::{CaptureError, CaptureFault};
pub use fault::{FabricNote, InjectedFault};
pub use merge::{Merge, Source};

use batch::RecordHeader;
use pcap::PcapState;
use pcapng::NgState;
use window::Window;

/// No record may claim to be longer than this many bytes; real link layers use far less.
pub const MAX_RECORD: u32 = 16 << 20;

/// Reads the records of a capture in file order.
#[derive(Debug)]
pub struct Reader<R> {
    window: Window<R>,
    format: Format,
    records: u64,
}

/// One captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Number of the record in the file, counting from 1.
    pub number: u64,
    /// Nanoseconds since 1970-01-01 UTC; 0 for pcapng blocks that carry no time.
    pub time_ns: u64,
    /// What the bytes begin with.
    pub link: LinkType,
    /// Index of the pcapng interface; 0 in pcap.
    pub interface: u32,
    /// Whether it was received or sent, if the file says.
    pub direction: Option<Direction>,
    /// Bytes of the frame on the wire; at least `data.len()` unless the file is odd.
    pub wire_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The first comment; empty if there is none.
    pub comment: &'a [u8],
    /// Byte of the file at which the record begins.
    pub offset: u64,
    /// Bytes of the record before the frame.
    pub header_len: u32,
}

/// Direction of a frame, seen from the capturing host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Direction {
    Inbound,
    Outbound,
}

/// The header with which a frame begins; the numbers of the tcpdump registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    RawIp,
    /// The 16-byte header that Linux writes when capturing on all interfaces.
    LinuxSll,
    /// Its 20-byte successor.
    LinuxSll2,
    /// Four bytes that say which family the IP header behind them is of: what BSD writes on loopback.
    Loopback,
    /// The records of Endace cards, in which mirrors of NVIDIA's tools come as well.
    Erf,
    /// Something else, by its number.
    Other(u16),
}

impl LinkType {
    /// The type with a number from the registry.
    pub const fn from_code(code: u16) -> LinkType {
        match code {
            1 => LinkType::Ethernet,
            12 | 14 | 101 | 228 | 229 => LinkType::RawIp,
            0 | 108 => LinkType::Loopback,
            113 => LinkType::LinuxSll,
            197 => LinkType::Erf,
            276 => LinkType::LinuxSll2,
            other => LinkType::Other(other),
        }
    }
}

impl std::fmt::Display for LinkType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkType::Ethernet => f.write_str("Ethernet"),
            LinkType::RawIp => f.write_str("raw IP"),
            LinkType::LinuxSll => f.write_str("Linux cooked"),
            LinkType::LinuxSll2 => f.write_str("Linux cooked v2"),
            LinkType::Loopback => f.write_str("BSD loopback"),
            LinkType::Erf => f.write_str("ERF"),
            LinkType::Other(code) => write!(f, "link type {code}"),
        }
    }
}

#[derive(Debug)]
enum Format {
    Pcap(PcapState),
    Ng(NgState),
}

impl<R: Read> Reader<R> {
    /// Reads the file header from `source`, which need not be buffered.
    ///
    /// # Errors
    /// The source fails, is empty, or does not begin like a capture.
    pub fn new(source: R) -> Result<Reader<R>, CaptureError> {
        let mut window = Window::new(source);
        let magic = match window.peek::<4>()?.copied() {
            Some(magic) => magic,
            None if window.is_empty() => return Err(CaptureFault::Empty.at(0)),
            None => return Err(CaptureFault::CutShort("its first four bytes").at(0)),
        };
        let format = match PcapState::from_magic(magic) {
            Some(state) => Format::Pcap(state.read_header(&mut window)?),
            None if magic == pcapng::SECTION_MAGIC => Format::Ng(NgState::new()),
            None => return Err(error::name_magic(magic).at(0)),
        };
        Ok(Reader { window, format, records: 0 })
    }

    /// The next record, `None` at the end of the file.
    ///
    /// # Errors
    /// The source fails, or the file is damaged here; nothing after that point can be read.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "records are lent, which Iterator cannot say")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        let number = self.records + 1;
        let record = match &mut self.format {
            Format::Pcap(state) => state.next(&mut self.window, number)?,
            Format::Ng(state) => state.next(&mut self.window, number)?,
        };
        self.records += u64::from(record.is_some());
        Ok(record)
    }

    /// Takes the records that have already been read, and at least one. Their bytes are not copied: the batch and the
    /// reader exchange buffers. False at the end of the file.
    ///
    /// # Errors
    /// As for [`Reader::next`]; the batch then holds the records before the error.
    pub fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.clear();
        let outcome = loop {
            if !batch.is_empty() && !self.is_ready() {
                break Ok(true);
            }
            let header = match self.next() {
                Ok(Some(record)) => RecordHeader::of(&record),
                Ok(None) => break Ok(!batch.is_empty()),
                Err(error) => break Err(error),
            };
            // Relative to the next byte, which is behind the frame.
            let behind = (self.window.offset() - header.frame_offset) as usize;
            batch.push(header, self.window.place() - behind);
            self.window.hold(true);
        };
        self.window.hold(false);
        self.window.swap(&mut batch.buffer);
        outcome
    }

    /// Whether the next record is available without waiting for the source, as far as is known.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match &self.format {
            Format::Pcap(state) => state.is_ready(&self.window),
            Format::Ng(state) => state.is_ready(&self.window),
        }
    }

    /// Bytes of the file consumed so far, for showing progress.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// Packets that the capturing program reports as dropped (pcapng statistics blocks read so far).
    pub fn dropped_by_capture(&self) -> u64 {
        match &self.format {
            Format::Pcap(_) => 0,
            Format::Ng(state) => state.dropped(),
        }
    }
}

#[cfg(test)]
mod tests;
