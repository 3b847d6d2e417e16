//! What stands for the files of the same names where there is neither a kernel nor a second thread: WebAssembly.
//!
//! Nothing writes memory during a copy and no page can go away, so the plain operations are the right ones.

/// See `lost_page.rs`: no page is ever lost.
pub(crate) mod lost_page {
    pub(crate) fn install() {}
}

/// See `populate.rs`: memory exists as far as it reaches.
pub(crate) mod populate {
    use crate::error::MemoryError;

    pub(crate) fn populate(addr: usize, length: u64, _write: bool) -> Result<(), MemoryError> {
        let size = core::arch::wasm32::memory_size(0) as u64 * PAGE;
        let fits = (addr as u64).checked_add(length).is_some_and(|end| end <= size);
        if fits { Ok(()) } else { Err(MemoryError::BadAddress) }
    }

    pub(crate) fn fault_in(addr: usize, length: usize, write: bool) -> Result<(), i32> {
        const EFAULT: i32 = 14;
        populate(addr, length as u64, write).map_err(|_| EFAULT)
    }

    /// There is nothing to fault in, and registration knows what exists.
    pub fn available() -> bool {
        true
    }

    /// A page of WebAssembly, in bytes.
    const PAGE: u64 = 65_536;
}

/// See `racing.rs`: nothing races.
pub(crate) mod racing {
    use crate::safe_copy::Unmapped;

    /// # Safety
    ///
    /// `from` is readable and `to` writable for `length` bytes, which do not overlap.
    pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: as the caller promises; there is one thread.
        unsafe { std::ptr::copy_nonoverlapping(from, to, length) }
    }

    /// # Safety
    ///
    /// As for [`copy`].
    pub(crate) unsafe fn copy_registered(
        from: *const u8,
        to: *mut u8,
        length: usize,
    ) -> Result<(), Unmapped> {
        // SAFETY: as the caller promises. An address beyond the memory is a trap of the machine.
        unsafe { copy(from, to, length) };
        Ok(())
    }

    /// An 8-byte word in registered memory, aligned.
    pub(crate) struct Word(*mut u64);

    impl Word {
        /// # Safety
        ///
        /// `at` is a multiple of 8, and the word is registered for writing while this lives.
        pub(crate) unsafe fn new(at: usize) -> Word {
            Word(std::ptr::with_exposed_provenance_mut(at))
        }

        pub(crate) fn fetch_add(&self, add: u64) -> Result<u64, Unmapped> {
            self.update(|found| found.wrapping_add(add))
        }

        pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, Unmapped> {
            self.update(|found| if found == compare { swap } else { found })
        }

        pub(crate) fn store(&self, value: u64) -> Result<(), Unmapped> {
            self.update(|_| value).map(drop)
        }

        fn update(&self, change: impl FnOnce(u64) -> u64) -> Result<u64, Unmapped> {
            // SAFETY: the word of `new`; there is one thread, and no reference to the word.
            let found = unsafe { self.0.read() };
            // SAFETY: as before.
            unsafe { self.0.write(change(found)) };
            Ok(found)
        }
    }
}

/// See the crate `mapping`: there are no mappings.
pub(crate) mod registered {
    pub(crate) struct Registered;

    impl Registered {
        pub(crate) fn new(_addr: usize, _length: u64) -> Self {
            Self
        }
    }
}

/// See `safe_copy.rs`: there is no memory that could be unmapped, so there are no on-demand regions either.
pub(crate) mod safe_copy {
    /// Some byte was not mapped.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Unmapped;

    pub(crate) fn read(_addr: usize, _dst: &mut [u8]) -> Result<(), Unmapped> {
        Err(Unmapped)
    }

    /// # Safety
    ///
    /// None needed: nothing is written.
    pub(crate) unsafe fn write(
        _addr: usize,
        _src: softrnic_mapping::SharedBytes<'_>,
    ) -> Result<(), Unmapped> {
        Err(Unmapped)
    }

    /// They are not possible here.
    pub fn available() -> bool {
        false
    }
}

/// See `valgrind.rs`, which runs no WebAssembly.
pub(crate) mod valgrind {
    pub(crate) fn ignore_races(_addr: usize, _length: u64) {}

    pub(crate) fn define(_bytes: &[u8]) {}
}
