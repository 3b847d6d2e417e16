//! The accesses to memory that others may write at the same time, or take away.
//!
//! Registered memory is like memory that a device writes: any thread of the application may change the bytes while they
//! are copied, and then gets a mixture. In Rust an ordinary access that races with another is undefined behaviour,
//! whatever is done with the value, and `ptr::copy` is one; so is a volatile access. Atomic accesses are not. But a
//! loop of atomic bytes costs many times what a copy costs. Atomic words do not help at the ends, and may not be mixed
//! with accesses of another size by the other side.
//!
//! So the bytes are moved by code outside the language: libc's `memcpy`, called from assembly, or through a pointer whose
//! target the compiler cannot know, so that it does not treat the call as a copy of its own. Foreign code must do only
//! what Rust code could do; this does what a loop of relaxed atomic bytes does. Each byte that arrives was there at some
//! moment of the call, nothing else follows from its value, and no other byte is touched. To the processor it is an
//! ordinary copy, at the usual cost.
//!
//! `process_vm_readv` and `process_vm_writev` (`safe_copy.rs`) are in the same position: the kernel copies.
//!
//! # Pages that are not there
//!
//! The functions for registered memory return [`Unmapped`] for a page that has gone, if the handler of `lost_page.rs`
//! sees the signal. It knows them by where they are: the return address of `memcpy`, which keeps no stack frame of its
//! own in glibc and musl, and the instructions of the atomics.

use std::arch::asm;
use std::ffi::c_void;

use crate::safe_copy::Unmapped;

/// Copies `length` bytes, each as if by a relaxed atomic load and store.
///
/// # Safety
///
/// `from` is readable and `to` writable for `length` bytes, which do not overlap, for the duration of the call. Others
/// may write either at the same time; Rust code has no reference to the bytes on the racing side.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    let mut memcpy: Memcpy = libc::memcpy;
    // SAFETY: emits no instruction; it makes the compiler forget which function this is.
    unsafe { asm!("/* {0} */", inout(reg) memcpy, options(pure, readonly, nostack, preserves_flags)) };
    // SAFETY: still `memcpy`, and both sides are as the caller promises.
    unsafe { memcpy(to.cast(), from.cast(), length) };
}

/// [`copy`] from or to registered memory. On an error a part may have been copied.
///
/// # Safety
///
/// As for [`copy`], except that registered memory may not be mapped any more. The process ends then if the handler of
/// `lost_page.rs` was not installed, or was replaced by the application.
#[inline]
pub(crate) unsafe fn copy_registered(from: *const u8, to: *mut u8, length: usize) -> Result<(), Unmapped> {
    // SAFETY: as the caller promises.
    let end = unsafe { foreign::copy(to.cast(), from.cast(), length, libc::memcpy) };
    if end == LOST { Err(Unmapped) } else { Ok(()) }
}

/// An 8-byte word in registered memory, aligned.
///
/// Its operations are single instructions, or a loop of exclusive accesses, so that they are atomic for the application
/// as well, and order everything before and after.
pub(crate) struct Word(*mut u64);

impl Word {
    /// # Safety
    ///
    /// `at` is a multiple of 8, and the word is registered for writing while this lives. It may have been unmapped; see
    /// [`copy_registered`].
    pub(crate) unsafe fn new(at: usize) -> Word {
        Word(std::ptr::with_exposed_provenance_mut(at))
    }

    /// Adds, wrapping. Returns what was there.
    pub(crate) fn fetch_add(&self, add: u64) -> Result<u64, Unmapped> {
        // SAFETY: the word of `new`.
        unsafe { foreign::fetch_add(self.0, add) }.found()
    }

    /// Stores `swap` if `compare` is there. Returns what was there.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, Unmapped> {
        // SAFETY: the word of `new`.
        unsafe { foreign::compare_swap(self.0, compare, swap) }.found()
    }

    /// Stores.
    pub(crate) fn store(&self, value: u64) -> Result<(), Unmapped> {
        // SAFETY: the word of `new`.
        unsafe { foreign::swap(self.0, value) }.found().map(drop)
    }
}

/// What `memcpy` never returns for a copy of one byte or more.
const LOST: usize = usize::MAX;

/// What an atomic found. In two registers.
#[repr(C)]
struct Found {
    value: u64,
    lost: u64,
}

impl Found {
    fn found(self) -> Result<u64, Unmapped> {
        if self.lost == 0 { Ok(self.value) } else { Err(Unmapped) }
    }
}

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Whether an access from these functions was interrupted at `pc`, in a function that returns to `caller`, and where to
/// go on: at code that returns to the same caller and says that the page is lost.
pub(crate) fn resume(pc: usize, caller: usize) -> Option<usize> {
    let atomics = foreign::address(&raw const foreign::softrnic_atomics)
        ..foreign::address(&raw const foreign::softrnic_atomics_end);
    let lost = caller == foreign::address(&raw const foreign::softrnic_copied) || atomics.contains(&pc);
    lost.then(|| foreign::address(&raw const foreign::softrnic_lost))
}

mod foreign {
    use super::{Found, Memcpy};
    use std::arch::global_asm;
    use std::ffi::c_void;

    unsafe extern "C" {
        /// Calls `memcpy`, and returns what it does.
        #[link_name = "softrnic_copy"]
        pub(super) fn copy(to: *mut c_void, from: *const c_void, length: usize, memcpy: Memcpy) -> usize;
        #[link_name = "softrnic_fetch_add"]
        pub(super) fn fetch_add(word: *mut u64, add: u64) -> Found;
        #[link_name = "softrnic_compare_swap"]
        pub(super) fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Found;
        #[link_name = "softrnic_swap"]
        pub(super) fn swap(word: *mut u64, value: u64) -> Found;

        /// Where `memcpy` returns to.
        pub(super) static softrnic_copied: u8;
        /// The atomics, and their end.
        pub(super) static softrnic_atomics: u8;
        pub(super) static softrnic_atomics_end: u8;
        /// Returns `LOST`, or a `Found` that is lost, to the caller of the function that was interrupted.
        pub(super) static softrnic_lost: u8;
    }

    pub(super) fn address(symbol: *const u8) -> usize {
        symbol.expose_provenance()
    }

    #[cfg(target_arch = "x86_64")]
    global_asm!(
        ".pushsection .text.softrnic_racing,\"ax\",@progbits",
        ".hidden softrnic_copy, softrnic_copied, softrnic_fetch_add, softrnic_compare_swap, softrnic_swap",
        ".hidden softrnic_atomics, softrnic_atomics_end, softrnic_lost",
        ".globl softrnic_copy, softrnic_copied, softrnic_fetch_add, softrnic_compare_swap, softrnic_swap",
        ".globl softrnic_atomics, softrnic_atomics_end, softrnic_lost",
        ".balign 16",
        "softrnic_copy:",
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call rcx",
        "softrnic_copied:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        ".balign 16",
        "softrnic_atomics:",
        "softrnic_fetch_add:",
        "mov rax, rsi",
        "lock xadd [rdi], rax",
        "xor edx, edx",
        "ret",
        "softrnic_compare_swap:",
        "mov rax, rsi",
        "lock cmpxchg [rdi], rdx",
        "xor edx, edx",
        "ret",
        "softrnic_swap:",
        "mov rax, rsi",
        "xchg [rdi], rax",
        "xor edx, edx",
        "ret",
        "softrnic_atomics_end:",
        "softrnic_lost:",
        "mov rax, -1",
        "mov edx, 1",
        "ret",
        ".popsection",
    );

    #[cfg(target_arch = "aarch64")]
    global_asm!(
        ".pushsection .text.softrnic_racing,\"ax\",@progbits",
        ".hidden softrnic_copy, softrnic_copied, softrnic_fetch_add, softrnic_compare_swap, softrnic_swap",
        ".hidden softrnic_atomics, softrnic_atomics_end, softrnic_lost",
        ".globl softrnic_copy, softrnic_copied, softrnic_fetch_add, softrnic_compare_swap, softrnic_swap",
        ".globl softrnic_atomics, softrnic_atomics_end, softrnic_lost",
        ".balign 16",
        "softrnic_copy:",
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x30, 8",
        "blr x3",
        "softrnic_copied:",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        "ret",
        ".cfi_endproc",
        ".balign 16",
        "softrnic_atomics:",
        "softrnic_fetch_add:",
        "ldaxr x2, [x0]",
        "add x3, x2, x1",
        "stlxr w4, x3, [x0]",
        "cbnz w4, softrnic_fetch_add",
        "b 2f",
        "softrnic_compare_swap:",
        "mov x5, x2",
        "1: ldaxr x2, [x0]",
        "cmp x2, x1",
        "b.ne 3f",
        "stlxr w4, x5, [x0]",
        "cbnz w4, 1b",
        "b 2f",
        "softrnic_swap:",
        "ldaxr x2, [x0]",
        "stlxr w4, x1, [x0]",
        "cbnz w4, softrnic_swap",
        "b 2f",
        "softrnic_atomics_end:",
        "3: clrex",
        "2: mov x0, x2",
        "mov x1, #0",
        "ret",
        "softrnic_lost:",
        "mov x0, #-1",
        "mov x1, #1",
        "ret",
        ".popsection",
    );
}
