//! How to open queues.

use std::ops::RangeInclusive;

use super::error::Error;

/// How to open the queues of an interface. The default uses the best that it offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether the kernel copies frames.
    pub copy: CopyChoice,
    /// Bytes of a UMEM chunk: 2048 or 4096.
    pub chunk_size: u32,
    /// UMEM chunks for receiving, and the size of the receive ring; a power of two.
    pub rx_chunks: u32,
    /// Frames that can be queued for sending; a power of two. Each has room for the largest frame.
    pub tx_slots: u32,
    /// Whether frames may span several chunks. Otherwise the largest frame is that of a [single
    /// buffer](crate::single_buffer).
    pub multi_buffer: bool,
    /// Whether the kernel may say when it needs a system call; otherwise every [kick](crate::Queue::kick) makes one.
    pub need_wakeup: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            copy: CopyChoice::Best,
            chunk_size: 4096,
            rx_chunks: 2048,
            tx_slots: 512,
            multi_buffer: true,
            need_wakeup: true,
        }
    }
}

impl Options {
    /// Sizes of a chunk, in bytes.
    pub const CHUNK_SIZES: [u32; 2] = [2048, 4096];
    /// Receive chunks and transmit slots, powers of two.
    pub const RING_SIZES: RangeInclusive<u32> = 64..=1 << 16;

    /// # Errors
    /// [`Error::BadOption`] for values that the kernel would refuse without saying which one.
    pub fn check(&self) -> Result<(), Error> {
        if !Options::CHUNK_SIZES.contains(&self.chunk_size) {
            return Err(Error::BadOption("chunk_size must be 2048 or 4096"));
        }
        let ring = Options::RING_SIZES;
        if !(self.rx_chunks.is_power_of_two() && ring.contains(&self.rx_chunks)) {
            return Err(Error::BadOption("rx_chunks must be a power of two from 64 to 65536"));
        }
        if !(self.tx_slots.is_power_of_two() && ring.contains(&self.tx_slots)) {
            return Err(Error::BadOption("tx_slots must be a power of two from 64 to 65536"));
        }
        Ok(())
    }
}

/// Whether frames should be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyChoice {
    /// Zero copy, or failing that `Copy`.
    Best,
    /// The driver must use the UMEM itself.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

/// `SO_PREFER_BUSY_POLL` and related options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyPoll {
    /// How long one call may poll the driver, in microseconds.
    pub micros: u32,
    /// Packets that one call may process.
    pub budget: u32,
}
