//! Asks the processor to fetch a cache line while it does something else. It is a hint: nothing is accessed, and where there is
//! no such instruction, nothing happens.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;

/// A line that will be read.
#[inline(always)]
pub(super) fn to_read(line: *const u8) {
    // SAFETY: a hint, which accesses no memory and cannot fault, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("prefetcht0 [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
    }
    // SAFETY: a hint, which accesses no memory and cannot fault, whatever the address.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
    }
    let _ = line;
}

/// A line that will be written: the other processors' copies of it go.
#[inline(always)]
pub(super) fn to_write(line: *const u8) {
    // SAFETY: a hint, which accesses no memory and cannot fault, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("prefetchw [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
    }
    // SAFETY: a hint, which accesses no memory and cannot fault, whatever the address.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("prfm pstl1keep, [{}]", in(reg) line, options(readonly, nostack, preserves_flags));
    }
    let _ = line;
}
