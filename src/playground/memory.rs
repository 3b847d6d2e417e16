//! The memory of one simulated application.

use softrnic_memory::{AppRange, copy_from_app, copy_to_app};

/// Bytes that both the application and its NIC write.
pub struct AppMemory {
    words: *mut [u64],
}

impl AppMemory {
    /// `len` bytes, rounded up to whole words. The first quarter counts up, so that it can be recognised where it has been
    /// copied to; all others are 0.
    pub fn new(len: usize) -> AppMemory {
        let words = Box::into_raw(vec![0_u64; len.div_ceil(8)].into_boxed_slice());
        let mut memory = AppMemory { words };
        let pattern: Vec<u8> = (0..memory.len() / 4).map(|place| place as u8 | 1).collect();
        memory.write(0, &pattern);
        memory
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    /// All of it, to be registered: with an engine that is dropped before this.
    pub fn range(&self) -> AppRange {
        // SAFETY: it lives until this is dropped, after the engine that knows of it, as the caller answers for; there is
        // no reference into it, and everything happens on one thread.
        unsafe { AppRange::new(self.address(), self.len() as u64) }
    }

    /// The bytes now. Fewer if it ends before.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let start = offset.min(self.len());
        let mut bytes = vec![0; len.min(self.len() - start)];
        // SAFETY: inside the memory, to which there are no references.
        unsafe { copy_from_app(self.address() + start, &mut bytes) }
        bytes
    }

    /// The application writes. What lies behind the end is not written.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let start = offset.min(self.len());
        let bytes = &bytes[..bytes.len().min(self.len() - start)];
        // SAFETY: inside the memory, to which there are no references.
        unsafe { copy_to_app(self.address() + start, bytes) }
    }

    fn address(&self) -> usize {
        self.words.cast::<u8>().expose_provenance()
    }
}

impl Drop for AppMemory {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new`, and freed once.
        drop(unsafe { Box::from_raw(self.words) });
    }
}
