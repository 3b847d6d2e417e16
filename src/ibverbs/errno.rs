//! Errors, as C callers see them.

use std::ffi::c_int;

/// An error number, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub c_int);

impl Errno {
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const NODATA: Errno = Errno(libc::ENODATA);
    pub const PERM: Errno = Errno(libc::EPERM);
    pub const BADF: Errno = Errno(libc::EBADF);
    pub const IO: Errno = Errno(libc::EIO);
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const NOSPC: Errno = Errno(libc::ENOSPC);
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub const AGAIN: Errno = Errno(libc::EAGAIN);

    /// What the last system call of this thread left.
    pub fn last() -> Errno {
        std::io::Error::last_os_error().into()
    }

    /// Sets the thread's `errno`.
    pub fn set(self) {
        // SAFETY: the location belongs to this thread and is always valid.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
