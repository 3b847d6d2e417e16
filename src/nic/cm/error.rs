//! Why a call was refused.

use std::fmt;

use crate::verbs;

/// Why a call was refused, or an address or route not found. Each stands for one `errno`, that of Linux's rdma_cm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// No such identifier. ENOENT.
    UnknownId,
    /// It makes no sense in this state, on this channel, or with these arguments. EINVAL.
    Invalid,
    /// The port is another's, on the same address. EADDRINUSE.
    AddressInUse,
    /// The address is none of this machine's, or its port another's on all addresses. EADDRNOTAVAIL.
    AddressNotAvailable,
    /// Ports below 1024 are for the privileged. EACCES.
    Denied,
    /// No device has the address, or could be opened. ENODEV.
    NoDevice,
    /// No way to the destination. ENETUNREACH.
    NetworkUnreachable,
    /// Nobody answers there. ETIMEDOUT.
    TimedOut,
    /// A table is full. ENOMEM.
    NoMemory,
    /// No descriptor is to be had. EMFILE.
    NoDescriptor,
    /// RoCE has no such thing. EOPNOTSUPP.
    NotSupported,
    /// No such option or query. ENOSYS.
    Unknown,
    /// It is established already. EISCONN.
    IsConnected,
    /// The channel is another process's, or the device has failed. EIO.
    Gone,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::UnknownId => "no such identifier",
            Error::Invalid => "the state or an argument does not fit",
            Error::AddressInUse => "the port is taken",
            Error::AddressNotAvailable => "not an address of this machine, or its port is taken",
            Error::Denied => "ports below 1024 need privilege",
            Error::NoDevice => "no device has this address",
            Error::NetworkUnreachable => "no way to the destination",
            Error::TimedOut => "nobody answers",
            Error::NoMemory => "a table is full",
            Error::NoDescriptor => "no descriptor is to be had",
            Error::NotSupported => "RoCE has no such thing",
            Error::Unknown => "no such option",
            Error::IsConnected => "the connection is established already",
            Error::Gone => "the channel is another process's, or its device has failed",
        })
    }
}

impl std::error::Error for Error {}

impl From<verbs::Error> for Error {
    fn from(error: verbs::Error) -> Error {
        match error {
            verbs::Error::DeviceFatal => Error::Gone,
            verbs::Error::Spec(_) | verbs::Error::Open(_) | verbs::Error::System(_) => Error::NoDevice,
            verbs::Error::Control(_) => Error::Invalid,
        }
    }
}
