//! The one copy between our own memory and memory that others may write at the same time.
//!
//! Registered memory is like memory that a device writes: any thread of the application may change the bytes while they
//! are copied, and then gets a mixture. In Rust an ordinary access that races with another is undefined behaviour,
//! whatever is done with the value, and `ptr::copy` is one; so is a volatile access. Atomic accesses are not. But a
//! loop of atomic bytes costs many times what a copy costs. Atomic words do not help at the ends, and may not be mixed
//! with accesses of another size by the other side.
//!
//! So the bytes are moved by code outside the language: libc's `memcpy`, called through a pointer whose target the
//! compiler cannot know, so that it does not treat the call as a copy of its own. Foreign code must do only what Rust
//! code could do; this does what a loop of relaxed atomic bytes does. Each byte that arrives was there at some moment
//! of the call, nothing else follows from its value, and no other byte is touched. To the processor it is an ordinary
//! copy, at the usual cost.
//!
//! `process_vm_readv` and `process_vm_writev` (`safe_copy.rs`) are in the same position: the kernel copies.

use std::arch::asm;
use std::ffi::c_void;

/// Copies `length` bytes, each as if by a relaxed atomic load and store.
///
/// # Safety
///
/// `from` is readable and `to` writable for `length` bytes, which do not overlap, for the duration of the call. Others
/// may write either at the same time; Rust code has no reference to the bytes on the racing side.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    let mut memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = libc::memcpy;
    // SAFETY: emits no instruction; it makes the compiler forget which function this is.
    unsafe { asm!("/* {0} */", inout(reg) memcpy, options(pure, readonly, nostack, preserves_flags)) };
    // SAFETY: still `memcpy`, and both sides are as the caller promises.
    unsafe { memcpy(to.cast(), from.cast(), length) };
}
