//! What fuzzing runs of this crate's internals: each function accepts any bytes and panics if something is wrong.

pub use crate::host::fuzz::netlink;
pub use crate::shm::fuzz::shm;
pub use crate::xdp::fuzz::{grant, xdp};

/// Bytes that decide what happens next; zeros once they are used up.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl<'a> Choices<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// At most `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}
