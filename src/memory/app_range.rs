use std::ptr;

use crate::racing;

/// A range of application memory that the NIC may read and write.
///
/// Creating one makes the promise about the memory; all code that uses it is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppRange {
    addr: usize,
    length: u64,
}

impl AppRange {
    /// `length` bytes from address `addr` of this process.
    ///
    /// Checks nothing; registration refuses ranges that wrap or are not mapped.
    ///
    /// # Safety
    ///
    /// From the registration of this range until its end (deregistration, a re-registration that replaces the range, or
    /// the invalidation of a fast-register region):
    /// - the range stays mapped, and writable if registered with LOCAL_WRITE, unless the registration is ON_DEMAND or
    ///   the table makes safe copies;
    /// - as far as the access flags allow, the bytes may change at any time, so no Rust reference to them may live
    ///   while a work request or a peer could touch them.
    ///
    /// Pointer provenance must have been exposed (`pointer::expose_provenance`), as it is for every pointer that came
    /// from C.
    pub const unsafe fn new(addr: usize, length: u64) -> Self {
        Self { addr, length }
    }

    /// The whole address space: with [`Access::ON_DEMAND`](crate::Access::ON_DEMAND) an implicit region.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new), of all memory that work requests or peers name, as far as the access flags allow: the
    /// caller that registers it answers for what they do.
    pub const unsafe fn whole() -> Self {
        Self { addr: 0, length: u64::MAX }
    }

    /// Whether it is [`whole`](Self::whole).
    pub(crate) fn is_whole(self) -> bool {
        (self.addr, self.length) == (0, u64::MAX)
    }

    /// Address of the first byte.
    pub fn addr(self) -> usize {
        self.addr
    }

    /// Length in bytes.
    pub fn length(self) -> u64 {
        self.length
    }

    /// Whether it ends before the address space does.
    pub(crate) fn is_sound(self) -> bool {
        (self.addr as u64).checked_add(self.length).is_some()
    }
}

/// Copies the payload of an inline post out of application memory.
///
/// # Safety
///
/// `dst.len()` bytes from `addr` are readable and are not part of `dst`.
pub unsafe fn copy_from_app(addr: usize, dst: &mut [u8]) {
    // SAFETY: the source is readable and apart, as the caller promises; the destination is borrowed for the call.
    unsafe { racing::copy(ptr::with_exposed_provenance(addr), dst.as_mut_ptr(), dst.len()) }
}

/// Copies from registered memory that the application may have unmapped; false if it has. To memcheck, all that is copied was
/// written before.
///
/// # Safety
///
/// `dst.len()` bytes from `addr` were registered, and are not part of `dst`. The process ends at an unmapped page if the
/// application has replaced the handlers of SIGSEGV and SIGBUS.
pub unsafe fn copy_if_mapped(addr: usize, dst: &mut [u8]) -> bool {
    let from = ptr::with_exposed_provenance(addr);
    // SAFETY: was registered, as the caller promises; the destination is borrowed for the call.
    let is_copied = unsafe { racing::copy_registered(from, dst.as_mut_ptr(), dst.len()) }.is_ok();
    crate::valgrind::define(dst);
    is_copied
}

/// Copies `src` to registered memory that the application may have unmapped; false if it has.
///
/// # Safety
///
/// `src.len()` bytes from `addr` were registered for writing, and are not part of `src`. The process ends at an unmapped page
/// as with [`copy_if_mapped`].
pub unsafe fn write_if_mapped(addr: usize, src: &[u8]) -> bool {
    let to = ptr::with_exposed_provenance_mut(addr);
    // SAFETY: was registered, as the caller promises; the source is borrowed for the call.
    unsafe { racing::copy_registered(src.as_ptr(), to, src.len()) }.is_ok()
}

/// Copies `src` to application memory that no key covers.
///
/// # Safety
///
/// `src.len()` bytes from `addr` are writable and are not part of `src`.
pub unsafe fn copy_to_app(addr: usize, src: &[u8]) {
    // SAFETY: the destination is writable and apart, as the caller promises; the source is borrowed for the call.
    unsafe { racing::copy(src.as_ptr(), ptr::with_exposed_provenance_mut(addr), src.len()) }
}
