//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng), as far as a capture writes them.

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

/// The blocks of a section that the file has not got yet. Times are nanoseconds since 1970, and byte order is
/// little-endian.
#[derive(Default)]
pub(super) struct Blocks {
    bytes: Vec<u8>,
    /// Where the block that is being made begins.
    block: usize,
}

/// What is known about a packet besides its bytes.
pub(super) struct PacketInfo<'a> {
    pub(super) interface: u32,
    pub(super) time: u64,
    /// As in `epb_flags`.
    pub(super) flags: u32,
    /// How many packets are missing before this one.
    pub(super) dropped: u64,
    pub(super) comment: Option<&'a str>,
}

/// The `isb_*` options of an interface.
pub(super) struct Statistics<'a> {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) received: u64,
    pub(super) dropped: u64,
    pub(super) comment: &'a str,
}

impl Blocks {
    /// Whole blocks.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The file has them.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn section(&mut self, application: &str) {
        self.begin(SECTION_HEADER);
        self.put(&0x1A2B_3C4D_u32.to_le_bytes()); // the byte-order magic
        self.put(&[1, 0, 0, 0]); // version 1.0
        self.put(&(-1_i64).to_le_bytes()); // the section's length, not known
        self.option(4, application.as_bytes());
        self.end();
    }

    /// Interfaces are numbered from 0, in the order of their descriptions.
    pub(super) fn interface(&mut self, name: &str, description: &str, snap_len: Option<u32>) {
        self.begin(INTERFACE_DESCRIPTION);
        self.put(&u32::from(ETHERNET).to_le_bytes());
        self.put(&snap_len.unwrap_or(SNAP_LEN).to_le_bytes());
        self.option(2, name.as_bytes());
        self.option(3, description.as_bytes());
        self.option(9, &[NANOSECONDS]);
        self.end();
    }

    /// `build` appends the frame, as far as it is known, and returns its length on the wire. At most `snap_len` bytes
    /// of it stay.
    pub(super) fn packet(
        &mut self,
        info: &PacketInfo<'_>,
        snap_len: Option<u32>,
        build: impl FnOnce(&mut Vec<u8>) -> usize,
    ) {
        self.begin(ENHANCED_PACKET);
        self.put(&info.interface.to_le_bytes());
        self.put(&timestamp(info.time));
        let lengths = self.bytes.len();
        self.put(&[0; 8]);
        let frame = self.bytes.len();
        let wire_len = build(&mut self.bytes);
        if let Some(snap_len) = snap_len {
            self.bytes.truncate(frame.saturating_add(snap_len as usize));
        }
        let captured = (self.bytes.len() - frame) as u32;
        self.bytes[lengths..lengths + 4].copy_from_slice(&captured.to_le_bytes());
        self.bytes[lengths + 4..frame].copy_from_slice(&(wire_len as u32).to_le_bytes());
        self.pad();
        if let Some(comment) = info.comment {
            self.option(1, comment.as_bytes());
        }
        self.option(2, &info.flags.to_le_bytes());
        if info.dropped > 0 {
            self.option(4, &info.dropped.to_le_bytes());
        }
        self.end();
    }

    pub(super) fn statistics(&mut self, interface: u32, statistics: &Statistics<'_>) {
        self.begin(INTERFACE_STATISTICS);
        self.put(&interface.to_le_bytes());
        self.put(&timestamp(statistics.ended));
        self.option(2, &timestamp(statistics.started));
        self.option(3, &timestamp(statistics.ended));
        self.option(4, &statistics.received.to_le_bytes());
        self.option(5, &statistics.dropped.to_le_bytes());
        self.option(1, statistics.comment.as_bytes());
        self.end();
    }

    /// Starts a block. [`end`](Self::end) fills in its length.
    fn begin(&mut self, kind: u32) {
        self.block = self.bytes.len();
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
    fn end(&mut self) {
        self.option(0, &[]);
        let len = ((self.bytes.len() - self.block) as u32 + 4).to_le_bytes();
        self.put(&len);
        self.bytes[self.block + 4..self.block + 8].copy_from_slice(&len);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A block begins at a multiple of four, and so do its parts.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The upper half comes first, whatever the byte order.
fn timestamp(time: u64) -> [u8; 8] {
    time.rotate_left(32).to_le_bytes()
}
