//! Why a call was refused.

use std::fmt;

use softrnic_nic::verbs;

/// Why a call was refused, or an address or route was not found. Each stands for one `errno` of Linux's rdma_cm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// No such identifier. ENOENT.
    UnknownId,
    /// Not valid in this state, on this channel, or with these arguments. EINVAL.
    Invalid,
    /// The port is taken on the same address. EADDRINUSE.
    AddressInUse,
    /// Not an address of this machine, or its port is taken on all addresses. EADDRNOTAVAIL.
    AddressNotAvailable,
    /// Ports below 1024 need privilege. EACCES.
    Denied,
    /// No device has the address, or could be opened. ENODEV.
    NoDevice,
    /// No route to the destination. ENETUNREACH.
    NetworkUnreachable,
    /// No answer. ETIMEDOUT.
    TimedOut,
    /// A table is full. ENOMEM.
    NoMemory,
    /// No descriptor is free. EMFILE.
    NoDescriptor,
    /// RoCE does not have it. EOPNOTSUPP.
    NotSupported,
    /// No such option or query. ENOSYS.
    Unknown,
    /// Already established. EISCONN.
    IsConnected,
    /// The channel belongs to another process, or the device has failed. EIO.
    Gone,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::UnknownId => "no such identifier",
            Error::Invalid => "the state or an argument is not valid",
            Error::AddressInUse => "the port is taken",
            Error::AddressNotAvailable => "not an address of this machine, or its port is taken",
            Error::Denied => "ports below 1024 need privilege",
            Error::NoDevice => "no device has this address",
            Error::NetworkUnreachable => "no route to the destination",
            Error::TimedOut => "no answer",
            Error::NoMemory => "a table is full",
            Error::NoDescriptor => "no descriptor is free",
            Error::NotSupported => "RoCE does not support this",
            Error::Unknown => "no such option",
            Error::IsConnected => "the connection is established already",
            Error::Gone => "the channel belongs to another process, or its device has failed",
        })
    }
}

impl std::error::Error for Error {}

impl From<verbs::Error> for Error {
    fn from(error: verbs::Error) -> Error {
        match error {
            verbs::Error::DeviceFatal => Error::Gone,
            verbs::Error::Spec(_) | verbs::Error::Open(_) | verbs::Error::System(_) => Error::NoDevice,
            verbs::Error::Control(_) | verbs::Error::Model(_) => Error::Invalid,
        }
    }
}
