//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng), as far as a capture writes them.

use std::io::{self, Write};

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// More than the longest frame.
const SNAP_LEN: u32 = 262_144;
/// `if_tsresol`: 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// Block types.
const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// A file of one section. Times are nanoseconds since 1970, and byte order is little-endian.
pub(super) struct PcapNg<W> {
    output: W,
    block: Vec<u8>,
}

/// The `isb_*` options of an interface.
pub(super) struct Statistics<'a> {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) received: u64,
    pub(super) dropped: u64,
    pub(super) comment: &'a str,
}

impl<W: Write> PcapNg<W> {
    pub(super) fn new(output: W, application: &str) -> io::Result<PcapNg<W>> {
        let mut file = PcapNg { output, block: Vec::new() };
        file.begin(SECTION_HEADER);
        file.put(&0x1A2B_3C4D_u32.to_le_bytes()); // the byte-order magic
        file.put(&[1, 0, 0, 0]); // version 1.0
        file.put(&(-1_i64).to_le_bytes()); // the section's length, not known
        file.option(4, application.as_bytes());
        file.end()?;
        Ok(file)
    }

    /// Interfaces are numbered from 0, in the order of their descriptions.
    pub(super) fn interface(&mut self, name: &str, description: &str) -> io::Result<()> {
        self.begin(INTERFACE_DESCRIPTION);
        self.put(&u32::from(ETHERNET).to_le_bytes());
        self.put(&SNAP_LEN.to_le_bytes());
        self.option(2, name.as_bytes());
        self.option(3, description.as_bytes());
        self.option(9, &[NANOSECONDS]);
        self.end()
    }

    /// `flags` as in `epb_flags`; `dropped` counts the packets that are missing before this one.
    pub(super) fn packet(
        &mut self,
        interface: u32,
        time: u64,
        flags: u32,
        dropped: u64,
        frame: &[u8],
    ) -> io::Result<()> {
        let len = (frame.len() as u32).to_le_bytes();
        self.begin(ENHANCED_PACKET);
        self.put(&interface.to_le_bytes());
        self.put(&timestamp(time));
        self.put(&len);
        self.put(&len);
        self.put(frame);
        self.pad();
        self.option(2, &flags.to_le_bytes());
        if dropped > 0 {
            self.option(4, &dropped.to_le_bytes());
        }
        self.end()
    }

    pub(super) fn statistics(&mut self, interface: u32, statistics: &Statistics<'_>) -> io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        self.put(&interface.to_le_bytes());
        self.put(&timestamp(statistics.ended));
        self.option(2, &timestamp(statistics.started));
        self.option(3, &timestamp(statistics.ended));
        self.option(4, &statistics.received.to_le_bytes());
        self.option(5, &statistics.dropped.to_le_bytes());
        self.option(1, statistics.comment.as_bytes());
        self.end()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Starts a block. [`end`](Self::end) fills in its length.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        self.put(&[0; 4]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    /// Ends a block. Every block here has options, so it ends them too.
    fn end(&mut self) -> io::Result<()> {
        self.option(0, &[]);
        let len = (self.block.len() as u32 + 4).to_le_bytes();
        self.put(&len);
        self.block[4..8].copy_from_slice(&len);
        self.output.write_all(&self.block)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}

/// The upper half comes first, whatever the byte order.
fn timestamp(time: u64) -> [u8; 8] {
    time.rotate_left(32).to_le_bytes()
}
