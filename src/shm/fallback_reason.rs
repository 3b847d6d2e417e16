//! Why there is no connection to an address.

use std::fmt;
use std::io;

/// See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FallbackReason {
    /// No process has the name: the address is elsewhere, or wants no shared memory.
    Nobody,
    OtherUser,
    NoAnswer,
    /// The peer has violated the ring protocol.
    Corrupt,
    /// The system refused something with this error number.
    System(i32),
}

impl From<io::Error> for FallbackReason {
    fn from(error: io::Error) -> FallbackReason {
        FallbackReason::System(error.raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FallbackReason::Nobody => f.write_str("no process on this machine offers it at that address"),
            FallbackReason::OtherUser => f.write_str("the process there belongs to another user"),
            FallbackReason::NoAnswer => f.write_str("the process there does not answer"),
            FallbackReason::Corrupt => f.write_str("the process there violated the ring protocol"),
            FallbackReason::System(errno) => {
                write!(f, "the system refuses it: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}
