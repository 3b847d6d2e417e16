//! Copies within this process that come back with an error where the memory is not mapped.

use std::sync::OnceLock;

/// Some byte was not mapped, or not with the permission needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unmapped;

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// Copies from `addr` to `dst`, which on an error may be filled in part.
pub(crate) fn read(addr: usize, dst: &mut [u8]) -> Result<(), Unmapped> {
    let ours = libc::iovec { iov_base: dst.as_mut_ptr().cast(), iov_len: dst.len() };
    // SAFETY: process_vm_readv writes only to `ours`, which is `dst`.
    unsafe { transfer(libc::process_vm_readv, ours, addr) }
}

/// Copies `src` to `addr`; on an error a part may be written.
///
/// # Safety
///
/// The bytes at `addr`, as far as they are mapped writable, may be overwritten.
pub(crate) unsafe fn write(addr: usize, src: &[u8]) -> Result<(), Unmapped> {
    let ours = libc::iovec { iov_base: src.as_ptr().cast_mut().cast(), iov_len: src.len() };
    // SAFETY: process_vm_writev only reads `ours`; the caller allows the rest.
    unsafe { transfer(libc::process_vm_writev, ours, addr) }
}

/// Whether copies to and from memory that may be unmapped are possible here: some sandboxes filter the system calls
/// that they take (`process_vm_readv` and `process_vm_writev`).
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let (source, mut copy, mut back) = ([0x5a_u8; 8], [0; 8], [0; 8]);
        let back_addr = back.as_mut_ptr().expose_provenance();
        read(source.as_ptr().expose_provenance(), &mut copy).is_ok()
            // SAFETY: `back` is there to be overwritten.
            && unsafe { write(back_addr, &copy) }.is_ok()
            && back == source
    })
}

/// # Safety
///
/// What `call` does to `ours`, and to as many bytes at `addr` where they are mapped, is allowed.
unsafe fn transfer(call: Transfer, ours: libc::iovec, addr: usize) -> Result<(), Unmapped> {
    let theirs = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(addr), iov_len: ours.iov_len };
    // The process id is asked for each time: after a fork it is another one.
    // SAFETY: both vectors live over the call; the caller vouches for what they point to.
    let moved = unsafe { call(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    if usize::try_from(moved) == Ok(ours.iov_len) { Ok(()) } else { Err(Unmapped) }
}
