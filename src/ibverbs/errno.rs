//! Errors as C callers see them.

use std::collections::TryReserveError;
use std::ffi::c_int;
use std::fmt::Display;

use softrnic_memory::MemoryError;
use softrnic_nic::device::OpenError;
use softrnic_nic::verbs::{ControlError, Error, PostError, Refusal, Rule};
use softrnic_sync::queue::Full;

use crate::check;

/// An error number, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub c_int);

impl Errno {
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const NODATA: Errno = Errno(libc::ENODATA);
    pub const IO: Errno = Errno(libc::EIO);
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

    /// The error of this thread's last system call.
    pub fn last() -> Errno {
        std::io::Error::last_os_error().into()
    }

    /// EINVAL, with the reason for the log.
    #[cold]
    pub fn invalid(why: impl Display) -> Errno {
        told(&why);
        Errno::INVAL
    }

    /// The thread's `errno`.
    #[inline]
    pub fn current() -> Errno {
        // SAFETY: the location belongs to this thread and is always valid.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Sets the thread's `errno`.
    #[inline]
    pub fn set(self) {
        // SAFETY: the location belongs to this thread and is always valid.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// Says why something fails: to the log, and to whoever checks the program.
#[cold]
pub(crate) fn told(why: &dyn Display) {
    tracing::debug!("{why}");
    if check::is_on() {
        check::because(why);
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<TryReserveError> for Errno {
    fn from(_: TryReserveError) -> Errno {
        Errno::NOMEM
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        told(&error);
        match error {
            Error::Spec(_) => Errno::INVAL,
            Error::Open(OpenError::System(error) | OpenError::Capture { error, .. }) => error.into(),
            Error::Open(_) => Errno(libc::ENODEV),
            Error::Control(error) => error.into(),
            Error::Model(Refusal { rule: Rule::Lacks(_), .. }) => Errno::OPNOTSUPP,
            Error::Model(_) => Errno::INVAL,
            Error::System(error) => error.into(),
            Error::DeviceFatal => Errno::IO,
        }
    }
}

impl From<ControlError> for Errno {
    fn from(error: ControlError) -> Errno {
        match error {
            ControlError::UnknownObject | ControlError::Invalid(_) | ControlError::Attributes(_) => {
                Errno::INVAL
            }
            ControlError::Busy => Errno::BUSY,
            ControlError::NoMemory => Errno::NOMEM,
            ControlError::Unsupported => Errno::OPNOTSUPP,
            ControlError::Memory(error) => Errno::of_memory(error),
        }
    }
}

impl From<MemoryError> for Errno {
    fn from(error: MemoryError) -> Errno {
        told(&error);
        Errno::of_memory(error)
    }
}

impl Errno {
    fn of_memory(error: MemoryError) -> Errno {
        match error {
            MemoryError::Busy => Errno::BUSY,
            MemoryError::UnknownPd
            | MemoryError::UnknownObject
            | MemoryError::InvalidArgument
            | MemoryError::InvalidAccess
            | MemoryError::InvalidState => Errno::INVAL,
            MemoryError::Unsupported => Errno::OPNOTSUPP,
            MemoryError::BadAddress => Errno(libc::EFAULT),
            MemoryError::NoMemory => Errno::NOMEM,
        }
    }
}

impl From<Full> for Errno {
    fn from(full: Full) -> Errno {
        PostError::from(full).into()
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Errno {
        told(&error);
        match error {
            PostError::Full => Errno::NOMEM,
            PostError::State | PostError::Invalid(_) | PostError::TooLong => Errno::INVAL,
        }
    }
}
