//! Tells Valgrind's tools what they cannot see.
//!
//! Its race detectors are to leave registered memory alone: the NIC writes it as a device does, and says so by a completion. To helgrind and drd it is a thread that shares no lock
//! with the reader. A suppression is not enough: it goes by the code that is found, which may be the application's.

use std::arch::asm;

/// `_VG_USERREQ__HG_ARANGE_MAKE_UNTRACKED`, what `VALGRIND_HG_DISABLE_CHECKING` asks helgrind for.
const HELGRIND_UNTRACKED: usize = 0x4847_0127;
/// `VG_USERREQ__DRD_START_SUPPRESSION`, what `ANNOTATE_BENIGN_RACE_SIZED` asks drd for.
const DRD_SUPPRESSED: usize = 0x4452_0002;
/// `VG_USERREQ__MAKE_MEM_DEFINED`, of memcheck.
const MEMCHECK_DEFINED: usize = 0x4d43_0002;

/// Has races in this range not be reported, until it is freed or unmapped.
pub(crate) fn ignore_races(addr: usize, length: u64) {
    for request in [HELGRIND_UNTRACKED, DRD_SUPPRESSED] {
        ask(&[request, addr, length as usize, 0, 0, 0]);
    }
}

/// Has these bytes count as written, whatever they were copied from.
pub(crate) fn define(bytes: &[u8]) {
    ask(&[MEMCHECK_DEFINED, bytes.as_ptr().addr(), bytes.len(), 0, 0, 0]);
}

/// A client request (`VALGRIND_DO_CLIENT_REQUEST_EXPR`): instructions that do nothing, except in Valgrind, which knows them.
/// A tool ignores the requests of others.
fn ask(request: &[usize; 6]) {
    // SAFETY: rotates a register by as many bits as it has, and exchanges one with itself. Valgrind reads the request,
    // and writes only to the register of the answer.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => _,
            options(nostack),
        );
    }
    // SAFETY: the same.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") request.as_ptr(),
            inout("x3") 0_usize => _,
            options(nostack),
        );
    }
}
