//! The boundary to C: every exported function passes through here.
//!
//! Nothing unwinds into C. A panic makes every open device fatal, which raises the asynchronous event, and the
//! function fails with EIO in the way that its return type has for that.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use softrnic_sys::Uncancelled;
use tracing::Span;

use crate::check;
use crate::errno::Errno;

/// A C return type, with its way of reporting failure.
pub(crate) trait Outcome {
    /// What crosses the boundary.
    type C;
    /// Converts to the value for C.
    fn into_c(result: Result<Self, Errno>) -> Self::C
    where
        Self: Sized;
}

/// A pointer: null, and `errno` is set.
impl<T> Outcome for *mut T {
    type C = *mut T;
    fn into_c(result: Result<Self, Errno>) -> *mut T {
        result.unwrap_or_else(|errno| {
            errno.set();
            std::ptr::null_mut()
        })
    }
}

/// 0, or the error number itself, as most verbs do.
impl Outcome for () {
    type C = c_int;
    fn into_c(result: Result<Self, Errno>) -> c_int {
        match result {
            Ok(()) => 0,
            Err(errno) => {
                errno.set();
                errno.0
            }
        }
    }
}

/// A number, or -1 with `errno` set.
pub(crate) struct OrMinusOne(pub c_int);

impl Outcome for OrMinusOne {
    type C = c_int;
    fn into_c(result: Result<Self, Errno>) -> c_int {
        match result {
            Ok(OrMinusOne(value)) => value,
            Err(errno) => {
                errno.set();
                -1
            }
        }
    }
}

/// A number, or the negated error number.
pub(crate) struct OrNegated<T>(pub T);

impl Outcome for OrNegated<isize> {
    type C = isize;
    fn into_c(result: Result<Self, Errno>) -> isize {
        result.map_or_else(
            |errno| {
                errno.set();
                -(errno.0 as isize)
            },
            |OrNegated(value)| value,
        )
    }
}

/// Returns nothing, whatever happens.
pub(crate) struct Silent;

impl Outcome for Silent {
    type C = ();
    fn into_c(_: Result<Self, Errno>) {}
}

/// A plain value; `Default` after a panic.
pub(crate) struct Plain<T>(pub T);

impl<T: Default> Outcome for Plain<T> {
    type C = T;
    fn into_c(result: Result<Self, Errno>) -> T {
        result.map(|Plain(value)| value).unwrap_or_default()
    }
}

/// A call of a verb: its name, and what makes the span of it.
#[derive(Clone, Copy)]
pub(crate) struct Call<F>(pub &'static str, pub F);

/// Makes the [`Call`] of a verb: what is logged meanwhile is logged with its name and arguments.
macro_rules! call {
    ($verb:ident $(, $argument:ident)*) => {
        $crate::ffi_boundary::Call(
            stringify!($verb),
            || tracing::debug_span!(stringify!($verb) $(, $argument = ?$argument)*),
        )
    };
}
pub(crate) use call;

/// Runs the body of an exported function, whose [`call!`] is logged if it is refused. The thread cannot be cancelled
/// meanwhile.
pub(crate) fn guard<O: Outcome>(
    call: Call<impl FnOnce() -> Span>,
    body: impl FnOnce() -> Result<O, Errno>,
) -> O::C {
    let _uncancelled = Uncancelled::new();
    guard_data_path(move || {
        let Call(verb, span) = call;
        let _entered = span().entered();
        if check::is_on() {
            check::enter();
        }
        let done = body().inspect_err(|errno| refused(verb, *errno));
        if check::is_on() {
            check::write();
        }
        done
    })
}

#[cold]
fn refused(verb: &str, errno: Errno) {
    if check::is_on() {
        check::refused(verb, errno);
    }
    tracing::debug!("refused: {}", std::io::Error::from_raw_os_error(errno.0));
}

/// Runs the body of a function without cancellation points, so cancellation need not be switched off: its system calls
/// bypass the C library, or are made while [`Uncancelled`] lives (tools/check-cancellation). Only a thread with
/// asynchronous cancellation could be lost in it, and POSIX forbids such a thread to call any library. Whatever system
/// calls leave in `errno` is hidden from the caller: only failures set it.
#[inline]
pub(crate) fn guard_data_path<O: Outcome>(body: impl FnOnce() -> Result<O, Errno>) -> O::C {
    let before = Errno::current();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| panicked());
    before.set();
    O::into_c(result)
}

#[cold]
fn panicked<O>() -> Result<O, Errno> {
    // Failing a device is not made for the data path.
    let _uncancelled = Uncancelled::new();
    // A second panic, while the devices are failed, must not escape either.
    let _ = catch_unwind(crate::device::fail_all);
    Err(Errno::IO)
}

const NULL: &str = "a required pointer is null";

/// Borrows what a C caller points to; null is EINVAL.
///
/// # Safety
/// A pointer that is not null points to a valid `T` that nothing changes while the borrow lives.
#[inline]
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: null, or valid and unchanged while it is borrowed, as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Errno::invalid(NULL))
}

/// Borrows for writing what a C caller points to; null is EINVAL.
///
/// # Safety
/// A pointer that is not null points to a valid `T` that nothing else uses while the borrow lives.
#[inline]
pub(crate) unsafe fn borrow_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: null, or valid and used by nothing else while it is borrowed, as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| Errno::invalid(NULL))
}

#[cfg(test)]
mod tests;
