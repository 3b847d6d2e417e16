//! Why a call was refused.

use core::fmt;

/// Why a call to the connection manager was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmError {
    /// No such connection or listener, or it no longer exists.
    UnknownId,
    /// Not possible in the connection's state.
    WrongState,
    /// The private data or additional information is too long for its message.
    TooLong,
    /// The service has a listener already.
    ServiceTaken,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmError::UnknownId => "no such connection",
            CmError::WrongState => "not possible in the connection's state",
            CmError::TooLong => "more private data than the message has room for",
            CmError::ServiceTaken => "this service has a listener already",
        })
    }
}

impl core::error::Error for CmError {}
