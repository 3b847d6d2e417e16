//! Errors, as the kernel numbers them.

use std::ffi::c_int;

/// An error number, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

impl Errno {
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const FAULT: Errno = Errno(libc::EFAULT);
    pub(crate) const INVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const NOSPC: Errno = Errno(libc::ENOSPC);
    pub(crate) const NOSYS: Errno = Errno(libc::ENOSYS);
    pub(crate) const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
