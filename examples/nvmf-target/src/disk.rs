//! The file that is the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a logical block.
pub const BLOCK: u64 = 4096;

pub struct Disk {
    file: File,
    blocks: u64,
}

impl Disk {
    /// What does not fill the last block of the file is not part of the disk.
    pub fn open(path: &Path) -> io::Result<Disk> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let blocks = file.metadata()?.len() / BLOCK;
        Ok(Disk { file, blocks })
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The first byte of these blocks; `None` if not all of them are on the disk.
    pub fn offset(&self, first: u64, blocks: u64) -> Option<u64> {
        let end = first.checked_add(blocks)?;
        (end <= self.blocks).then(|| first * BLOCK)
    }

    pub fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    pub fn write_zeroes(&self, offset: u64, blocks: u64) -> io::Result<()> {
        let zeroes = [0; BLOCK as usize];
        (0..blocks).try_for_each(|block| self.write(&zeroes, offset + block * BLOCK))
    }

    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_on_the_disk_or_not_wherever_they_begin() {
        let disk = Disk { file: File::open("/dev/null").expect("it is always there"), blocks: 10 };
        assert_eq!((disk.offset(0, 10), disk.offset(9, 1)), (Some(0), Some(9 * BLOCK)));
        for (first, blocks) in
            [(0, 11), (9, 2), (10, 1), (u64::MAX, 1), (u64::MAX / BLOCK + 1, 1), (1 << 63, 65536)]
        {
            assert_eq!(disk.offset(first, blocks), None);
        }
    }
}
