//! Copies within this process that return an error where memory is not mapped.

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

/// Copies from `addr` to `dst`, which on an error may be partly filled.
pub(crate) fn read(addr: usize, dst: &mut [u8]) -> Result<(), Unmapped> {
    let ours = libc::iovec { iov_base: dst.as_mut_ptr().cast(), iov_len: dst.len() };
    // SAFETY: process_vm_readv writes only to `ours`, which is `dst`, borrowed for the call.
    unsafe { transfer(libc::process_vm_readv, ours, addr) }
}

/// Copies `src` to `addr`; on an error a part may have been written.
///
/// # Safety
///
/// The bytes at `addr` may be overwritten, as far as they are mapped writable: no reference to them exists.
pub(crate) unsafe fn write(addr: usize, src: &[u8]) -> Result<(), Unmapped> {
    let ours = libc::iovec { iov_base: src.as_ptr().cast_mut().cast(), iov_len: src.len() };
    // SAFETY: process_vm_writev only reads `ours`, which is `src`; at `addr` it may write, as the caller promises.
    unsafe { transfer(libc::process_vm_writev, ours, addr) }
}

/// Whether copies to and from memory that may be unmapped are possible here: some sandboxes filter the system calls for
/// them (`process_vm_readv` and `process_vm_writev`).
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let (source, mut copy, mut back) = ([0x5a_u8; 8], [0; 8], [0; 8]);
        let back_addr = back.as_mut_ptr().expose_provenance();
        read(source.as_ptr().expose_provenance(), &mut copy).is_ok()
            // SAFETY: `back` is local to this function, and not borrowed now.
            && unsafe { write(back_addr, &copy) }.is_ok()
            && back == source
    })
}

/// # Safety
///
/// `call` may do what it does to `ours`, and to as many bytes at `addr`, where they are mapped.
unsafe fn transfer(call: Transfer, ours: libc::iovec, addr: usize) -> Result<(), Unmapped> {
    let theirs = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(addr), iov_len: ours.iov_len };
    // The process id is looked up each time, since a fork changes it. SAFETY: both vectors live through the call; what
    // happens to what they point to is allowed, as the caller promises.
    let moved = unsafe { call(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    if usize::try_from(moved) == Ok(ours.iov_len) { Ok(()) } else { Err(Unmapped) }
}
