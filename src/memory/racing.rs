//! The one copy between memory of our own and memory that others may write meanwhile.
//!
//! Registered memory is like memory that a device writes: the application, on any thread, may change the bytes while
//! they are copied, and gets some mixture. In Rust an ordinary access that races with another is undefined behaviour,
//! whatever is done with the value, and `ptr::copy` is one; so is a volatile access. Atomic accesses are not. A loop
//! of atomic bytes costs many times what a copy costs, and atomic words are no better than that at the ends, and
//! cannot be mixed with the other side's sizes.
//!
//! So the bytes are moved by code outside of the language: libc's `memcpy`, called through a pointer of which the
//! compiler cannot know where it leads, so that it does not take the call for its own copy. Foreign code is bound to
//! do what Rust code could do; this does what a loop of relaxed atomic bytes does. Each byte that arrives is one that
//! was there at some moment of the call, nothing else follows from its value, and no other byte is touched.
//! What the processor does is what a copy has always done, and costs the same.
//!
//! `process_vm_readv` and `process_vm_writev` (`safe_copy.rs`) are in the same position: the kernel copies.

use std::arch::asm;
use std::ffi::c_void;

/// Copies `length` bytes, each as if by a relaxed atomic load and store.
///
/// # Safety
///
/// `from` is readable and `to` writable for `length` bytes, which do not overlap, for the time of the call. Either may
/// be written by others meanwhile; no reference to what is at the racing side exists in Rust code.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    let mut memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = libc::memcpy;
    // SAFETY: no instruction; it makes the compiler forget which function this is.
    unsafe { asm!("/* {0} */", inout(reg) memcpy, options(pure, readonly, nostack, preserves_flags)) };
    // SAFETY: still `memcpy`, for two sides that are as the caller promises.
    unsafe { memcpy(to.cast(), from.cast(), length) };
}
