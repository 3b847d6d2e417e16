//! What the controller says about itself and its disk (NVM Express Base 2.0, 5.17; NVM Command Set 1.0, 4.1.5).

use crate::disk::BLOCK;

/// Bytes of each of these structures.
pub const IDENTIFY: usize = 4096;
/// The version that this target follows: 1.2.1 spares it lists that newer hosts ask newer controllers for.
pub const VERSION: u32 = 0x0001_0201;
/// The most data of a command, as a power of two of 4 KiB.
const MDTS: u8 = 5;
/// The most data of a command.
pub const MOST_DATA: usize = 4096 << MDTS;
/// Data that may follow the submission queue entry in a capsule.
pub const IN_CAPSULE: usize = 4096;
/// The most entries of a queue.
pub const MOST_ENTRIES: u16 = 64;
/// The only namespace.
pub const NAMESPACE: u32 = 1;

/// CNS 01h.
pub fn controller(id: u16, nqn: &str) -> Box<[u8; IDENTIFY]> {
    let mut page = Page::new();
    page.text(4, 20, "softrnic-1").text(24, 40, "SoftRNIC nvmf-target").text(
        64,
        8,
        env!("CARGO_PKG_VERSION"),
    );
    page.put(77, &[MDTS]).put(78, &id.to_le_bytes()).put(80, &VERSION.to_le_bytes());
    // CNTRLTYPE: an I/O controller.
    page.put(111, &[1]);
    // AERL counts from 0. KAS: keep-alive timers have a second's steps.
    page.put(259, &[3]).put(320, &10_u16.to_le_bytes());
    // SQES and CQES: entries of 2^6 and 2^4 bytes, no others. MAXCMD.
    page.put(512, &[0x66, 0x44]).put(514, &MOST_ENTRIES.to_le_bytes()).put(516, &NAMESPACE.to_le_bytes());
    // ONCS: Write Zeroes. VWC: a volatile write cache, so Flush means something.
    page.put(520, &(1_u16 << 3).to_le_bytes()).put(525, &[1]);
    // SGLS: supported, keyed blocks, offsets into the capsule.
    page.put(536, &(1_u32 | 1 << 2 | 1 << 20).to_le_bytes()).put(768, nqn.as_bytes());
    // IOCCSZ and IORCSZ in units of 16 bytes; MSDBD.
    let capsule = (64 + IN_CAPSULE) as u32 / 16;
    page.put(1792, &capsule.to_le_bytes()).put(1796, &1_u32.to_le_bytes()).put(1803, &[1]);
    page.0
}

/// CNS 00h, of the only namespace; all zeroes of others.
pub fn namespace(namespace: u32, blocks: u64) -> Box<[u8; IDENTIFY]> {
    let mut page = Page::new();
    if namespace == NAMESPACE {
        let size = blocks.to_le_bytes();
        // NSZE, NCAP, NUSE; NGUID; LBADS of the only format.
        page.put(0, &size)
            .put(8, &size)
            .put(16, &size)
            .put(104, b"softrnic-nvmf-01")
            .put(130, &[BLOCK.ilog2() as u8]);
    }
    page.0
}

/// CNS 02h: the active namespaces above this one.
pub fn namespaces(above: u32) -> Box<[u8; IDENTIFY]> {
    let mut page = Page::new();
    if above < NAMESPACE {
        page.put(0, &NAMESPACE.to_le_bytes());
    }
    page.0
}

struct Page(Box<[u8; IDENTIFY]>);

impl Page {
    fn new() -> Page {
        Page(Box::new([0; IDENTIFY]))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Page {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// ASCII, filled up with spaces.
    fn text(&mut self, at: usize, length: usize, text: &str) -> &mut Page {
        self.0[at..at + length].fill(b' ');
        self.put(at, text.as_bytes())
    }
}
