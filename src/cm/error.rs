//! Why a call was refused.

use core::fmt;

/// Why a call to the connection manager was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmError {
    /// No such connection or listener, or not any more.
    UnknownId,
    /// The connection is in a state in which this makes no sense.
    WrongState,
    /// The private data or additional information is longer than its message has room for.
    TooLong,
    /// Somebody listens for the service already.
    ServiceTaken,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmError::UnknownId => "no such connection",
            CmError::WrongState => "the connection is not in a state for this",
            CmError::TooLong => "more private data than the message has room for",
            CmError::ServiceTaken => "somebody listens for this service already",
        })
    }
}

impl core::error::Error for CmError {}
