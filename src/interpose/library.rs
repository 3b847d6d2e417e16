//! `dlopen` of libibverbs by a path, or of a renamed copy of it, gives ours.
//!
//! The C library searches the RPATH of whoever calls `dlopen`, which it knows by the return address. So these functions
//! change the argument and jump to the next function, instead of calling it.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};

use crate::next::{Next, fail};
use crate::node;
use crate::rewrite::exists;

/// Opens a library.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        ".cfi_startproc",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "call {resolve}",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        resolve = sym resolve_dlopen,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "stp x30, x1, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x30, 0",
        "bl {resolve}",
        "mov x16, x0",
        "mov x0, x1",
        "ldp x30, x1, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        resolve = sym resolve_dlopen,
    );
}

/// Opens a library in a namespace.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlmopen(namespace: libc::c_long, path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rsi",
        "call {resolve}",
        "mov rsi, rdx",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        resolve = sym resolve_dlmopen,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "stp x30, x0, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_rel_offset x30, 0",
        "str x2, [sp, #16]",
        "mov x0, x1",
        "bl {resolve}",
        "mov x16, x0",
        "ldr x2, [sp, #16]",
        "ldp x30, x0, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        resolve = sym resolve_dlmopen,
    );
}

/// Where to go on, and with which path: returned in two registers.
#[repr(C)]
struct Resolved {
    next: *mut c_void,
    path: *const c_char,
}

/// # Safety
/// `path` is null or a C string.
unsafe extern "C" fn resolve_dlopen(path: *const c_char) -> Resolved {
    static NEXT: Next = Next::new(c"dlopen");
    // SAFETY: as the caller promises.
    unsafe { resolve(&NEXT, path) }
}

/// # Safety
/// `path` is null or a C string.
unsafe extern "C" fn resolve_dlmopen(path: *const c_char) -> Resolved {
    static NEXT: Next = Next::new(c"dlmopen");
    // SAFETY: as the caller promises.
    unsafe { resolve(&NEXT, path) }
}

/// # Safety
/// `path` is null or a C string.
unsafe fn resolve(next: &Next, path: *const c_char) -> Resolved {
    unsafe extern "C" fn none() -> *mut c_void {
        fail(libc::ENOSYS)
    }
    let next = match next.address() {
        address if address.is_null() => none as *mut c_void,
        address => address,
    };
    // SAFETY: not null, so a C string, as the caller promises.
    let is_copy = !path.is_null() && is_copy(unsafe { CStr::from_ptr(path) });
    Resolved { next, path: if is_copy { OURS.as_ptr() } else { path } }
}

/// The name that our library is loaded under.
pub const OURS: &CStr = c"libibverbs.so.1";

/// Whether a path names libibverbs, and ours is there instead.
fn is_copy(path: &CStr) -> bool {
    is_name(path.to_bytes()) && (!path.to_bytes().contains(&b'/') || exists(path)) && node::is_served()
}

/// Whether a path ends in `libibverbs.so.1.14.48.0`, or in a name as in Python wheels, `libibverbs-1de1263b.so.1.14.48.0`;
/// but not in that which ours has anyway.
fn is_name(path: &[u8]) -> bool {
    if path == OURS.to_bytes() {
        return false;
    }
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let Some(rest) = file.strip_prefix(b"libibverbs") else { return false };
    let rest = rest
        .strip_prefix(b"-")
        .map_or(rest, |hash| &hash[hash.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()..]);
    rest == b".so" || rest.starts_with(b".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_known_by_their_names() {
        for name in [
            "libibverbs.so",
            "/usr/lib/libibverbs.so.1",
            "libibverbs-1de1263b.so.1.14.48.0",
            "a/libibverbs-0a.so",
        ] {
            assert!(is_name(name.as_bytes()), "{name}");
        }
        for name in [
            "libibverbs.so.1",
            "libibverbs",
            "libibverbs.a",
            "libibverbs-rxe.conf",
            "libibverbs.so.1/x",
            "libmlx5.so",
            "",
        ] {
            assert!(!is_name(name.as_bytes()), "{name}");
        }
    }
}
