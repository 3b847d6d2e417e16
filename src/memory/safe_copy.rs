//! Copies within this process that return an error where memory is not mapped.

use std::sync::OnceLock;

use softrnic_mapping::SharedBytes;

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
pub(crate) unsafe fn write(addr: usize, src: SharedBytes<'_>) -> Result<(), Unmapped> {
    let ours = libc::iovec { iov_base: src.base().cast_mut().cast(), iov_len: src.len() };
    // SAFETY: process_vm_writev only reads `ours`, which is `src`, and may be written meanwhile; at `addr` it may write, as the caller promises.
    unsafe { transfer(libc::process_vm_writev, ours, addr) }
}

/// Whether copies to and from memory that may be unmapped are possible here: some sandboxes filter the system calls for
/// them (`process_vm_readv` and `process_vm_writev`).
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| (!is_sandboxed() || in_a_child(works)) && works())
}

fn works() -> bool {
    let (source, mut copy, mut back) = ([0x5a_u8; 8], [0; 8], [0; 8]);
    let back_addr = back.as_mut_ptr().expose_provenance();
    read(source.as_ptr().expose_provenance(), &mut copy).is_ok()
        // SAFETY: `back` is local to this function, and not borrowed now.
        && unsafe { write(back_addr, (&copy).into()) }.is_ok()
        && back == source
}

/// Whether system calls are filtered.
fn is_sandboxed() -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 }
}

/// What `probe` says in a child process: a filter may end the process that makes a call. `probe` makes system calls alone.
fn in_a_child(probe: fn() -> bool) -> bool {
    // SAFETY: a child of this thread alone, with a copy of the memory and without a signal when it ends, which the program
    // does not notice. It makes system calls until it ends, and takes no lock.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            // No core dump.
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::syscall(libc::SYS_exit_group, libc::c_long::from(!probe()));
        }
        let mut status: libc::c_int = 1;
        let mut ended = || libc::syscall(libc::SYS_wait4, child, &raw mut status, libc::__WALL, 0);
        while child > 0 && ended() < 0 {
            if *libc::__errno_location() != libc::EINTR {
                return false;
            }
        }
        status == 0
    }
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
