//! Why a fabric could not come up.

use std::fmt;

use rustix::io::Errno;
use softrnic_fabric::TopologyError;

/// Why a fabric could not come up.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpError {
    /// The network cannot work.
    Topology(TopologyError),
    /// There is a fabric with this name.
    NameTaken(String),
    /// Another user has taken the name.
    NameOfOthers(String),
    /// An interface cannot be used: its name, and why.
    Interface(String, i32),
    /// Time cannot be slowed for those behind interfaces.
    InterfaceInSlowMotion,
    /// The system refused memory or a descriptor.
    System(i32),
}

impl fmt::Display for UpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpError::Topology(error) => error.fmt(f),
            UpError::NameTaken(name) => {
                write!(f, "there is a fabric named {name} already: end it with `softrnic fabric down {name}`")
            }
            UpError::NameOfOthers(name) => {
                write!(f, "another user has a fabric named {name}: choose another name, with --name")
            }
            UpError::Interface(name, errno) if *errno == Errno::PERM.raw_os_error() => {
                write!(f, "the interface {name} takes CAP_NET_RAW: run this as root")
            }
            UpError::Interface(name, errno) => {
                write!(f, "the interface {name}: {}", Errno::from_raw_os_error(*errno))
            }
            UpError::InterfaceInSlowMotion => f.write_str(
                "a host is a network interface, and nobody slows the time of those behind it: leave `slow` out",
            ),
            UpError::System(errno) => write!(f, "{}", Errno::from_raw_os_error(*errno)),
        }
    }
}

impl std::error::Error for UpError {}

impl From<Errno> for UpError {
    fn from(error: Errno) -> UpError {
        UpError::System(error.raw_os_error())
    }
}

impl From<std::io::Error> for UpError {
    fn from(error: std::io::Error) -> UpError {
        UpError::System(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()))
    }
}
