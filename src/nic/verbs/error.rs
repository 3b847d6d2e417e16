//! Why a verb failed.

use std::fmt;

use crate::device::{OpenError, SpecError};
use softrnic_engine::ControlError;
use softrnic_memory::MemoryError;
use softrnic_models::Refusal;
use softrnic_sync::lock::Poisoned;
use softrnic_sync::queue::Full;

/// Why a control verb failed.
#[derive(Debug)]
pub enum Error {
    /// The device specification cannot be parsed.
    Spec(SpecError),
    /// The device cannot be opened.
    Open(OpenError),
    /// The NIC refused.
    Control(ControlError),
    /// The device that is imitated would refuse. EINVAL, or EOPNOTSUPP for what it lacks.
    Model(Refusal),
    /// A system call failed.
    System(std::io::Error),
    /// The device has failed and serves no further calls. EIO.
    DeviceFatal,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Spec(error) => error.fmt(f),
            Error::Open(error) => error.fmt(f),
            Error::Control(error) => error.fmt(f),
            Error::Model(refusal) => refusal.fmt(f),
            Error::System(error) => error.fmt(f),
            Error::DeviceFatal => f.write_str("the device has failed"),
        }
    }
}

impl std::error::Error for Error {}

macro_rules! from {
    ($($source:ty => $make:expr),* $(,)?) => {
        $(impl From<$source> for Error {
            fn from(error: $source) -> Error {
                $make(error)
            }
        })*
    };
}

from! {
    SpecError => Error::Spec,
    OpenError => Error::Open,
    ControlError => Error::Control,
    Refusal => Error::Model,
    std::io::Error => Error::System,
    MemoryError => |error| Error::Control(ControlError::Memory(error)),
    Poisoned => |_| Error::DeviceFatal,
}

/// Why a work request was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The queue is full. ENOMEM.
    Full,
    /// The QP's state does not accept such work requests. EINVAL.
    State,
    /// The work request is not valid for this QP; the text says why. EINVAL.
    Invalid(&'static str),
    /// The message is too long. EINVAL.
    TooLong,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Full => "the queue is full",
            PostError::State => "the QP's state does not accept such work requests",
            PostError::Invalid(what) => what,
            PostError::TooLong => "the message is longer than 2 GiB",
        })
    }
}

impl std::error::Error for PostError {}

impl From<Full> for PostError {
    fn from(_: Full) -> PostError {
        PostError::Full
    }
}
