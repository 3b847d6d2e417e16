//! Why a link of an address could not be opened.

use std::fmt;
use std::io;
use std::net::IpAddr;

use softrnic_sys::stands_for_many;
use softrnic_wire::ROCE_UDP_PORT;

use crate::ProcessSlot;

/// Why a link of an address could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// UDP port 4791 of this address is taken.
    AddressInUse(IpAddr),
    /// The address belongs to no interface of this machine (or network namespace).
    NotLocal(IpAddr),
    /// The address cannot be a NIC's: it is unspecified, multicast or broadcast.
    NotUnicast(IpAddr),
    /// A security policy forbids the socket.
    Permission(IpAddr),
    /// No free loopback address was found.
    NoFreeAddress,
    /// Another user's processes have the address.
    OtherUser {
        /// The address.
        address: IpAddr,
        /// Their user.
        uid: u32,
        /// The first of them; 0 in another PID namespace.
        pid: i32,
    },
    /// As many processes share the address as can.
    TooManyProcesses(IpAddr),
    /// The slot that is wanted belongs to another process.
    PartTaken(IpAddr),
    /// There is no such interface.
    NoInterface,
    /// The interface has no address.
    NoAddress,
    /// Those that share the address do not let this one in.
    NoAnswer(IpAddr),
    /// Those that share the address run another version of the library.
    OtherVersion(IpAddr),
    /// A shared address takes this many descriptors.
    TooFewDescriptors(usize),
    /// A system call failed.
    System {
        /// What was attempted.
        doing: &'static str,
        /// The system's error number.
        errno: i32,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::AddressInUse(address) => write!(
                f,
                "UDP port {ROCE_UDP_PORT} of {address} is in use, by another SoftRNIC device or by the kernel's \
                 rxe, which takes it on all addresses; stop that user (`ss -ulnp sport = :{ROCE_UDP_PORT}` names \
                 it) or choose another address"
            ),
            OpenError::NotLocal(address) => write!(
                f,
                "{address} is not an address of this machine; `ip address` lists those that are, and an interface \
                 that is down has none"
            ),
            OpenError::NotUnicast(address) => {
                write!(f, "{address} cannot be the address of a device: it is not the address of one host")
            }
            OpenError::Permission(address) => {
                write!(f, "a security policy forbids a UDP socket on port {ROCE_UDP_PORT} of {address}")
            }
            OpenError::NoFreeAddress => write!(
                f,
                "no loopback address with a free UDP port {ROCE_UDP_PORT} was found; is the loopback interface up, \
                 and does the kernel's rxe have the port on all addresses?"
            ),
            OpenError::OtherUser { address, uid, pid } => {
                write!(f, "{address} is in use by user {uid}")?;
                if stands_for_many(*uid) {
                    f.write_str(" (which stands for all users that this user namespace does not map)")?;
                }
                if *pid != 0 {
                    write!(f, ", since process {pid} opened it")?;
                }
                f.write_str("; only processes of one user can share an address")
            }
            OpenError::TooManyProcesses(address) => {
                write!(f, "{} processes already share {address}, which is the maximum", ProcessSlot::COUNT)
            }
            OpenError::PartTaken(address) => write!(
                f,
                "another process has the queue pair numbers at {address} that this one has at the other addresses of \
                 the interface; try again, or give all processes the interface"
            ),
            OpenError::NoInterface => {
                f.write_str("there is no such interface; `ip link` lists the interfaces")
            }
            OpenError::NoAddress => {
                f.write_str("it has no address that is ready; `ip address add` gives it one")
            }
            OpenError::NoAnswer(address) => write!(
                f,
                "the processes that share {address} do not answer; they may be stopped, for instance in a debugger"
            ),
            OpenError::OtherVersion(address) => write!(
                f,
                "the processes that share {address} run another version of SoftRNIC; restart them with this one, or \
                 choose another address"
            ),
            OpenError::TooFewDescriptors(needed) => write!(
                f,
                "a shared address takes {needed} descriptors, more than this process has left: raise the limit \
                 (`ulimit -n`)"
            ),
            OpenError::System { doing, errno } => {
                write!(f, "{doing} failed: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for OpenError {}
