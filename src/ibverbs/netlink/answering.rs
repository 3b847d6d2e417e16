//! The sockets that answers come from.
//!
//! A socket of NETLINK_USERSOCK takes messages from everybody in its network namespace. So a program's socket is connected to
//! the one that answers it: from then on, the kernel refuses it the messages of all others. What others sent before is
//! thrown away, as nothing has been asked by then.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::errno::Errno;
use crate::registry::registry;

/// The socket that answers what a program sends on a descriptor.
pub(super) fn answering(fd: c_int) -> Result<Arc<OwnedFd>, Errno> {
    let known = registry().answering.get(&fd).cloned();
    if let Some(known) = known
        && answers(&known, fd)
    {
        return Ok(known);
    }
    // SAFETY: takes no pointers; the result is checked.
    let socket = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_USERSOCK)
    };
    if socket < 0 {
        return Err(Errno::last());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let socket = Arc::new(unsafe { OwnedFd::from_raw_fd(socket) });
    give_number(socket.as_raw_fd())?;
    let peer = to(number_of(socket.as_raw_fd())?);
    // SAFETY: an address that lives through the call, with its length.
    let done = unsafe { libc::connect(fd, (&raw const peer).cast(), size_of_val(&peer) as libc::socklen_t) };
    if done < 0 {
        return Err(Errno::last());
    }
    throw_away(fd);
    let answering = &mut registry().answering;
    // Programs close their sockets without our seeing it.
    answering.retain(|fd, socket| answers(socket, *fd));
    answering.insert(fd, socket.clone());
    Ok(socket)
}

/// Whether a descriptor is connected to this socket. It may be another's by now.
fn answers(socket: &OwnedFd, fd: c_int) -> bool {
    let mut address = to(0);
    let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: an address, and its length, which live through the call.
    let done = unsafe { libc::getpeername(fd, (&raw mut address).cast(), &mut length) };
    let is_netlink = done == 0 && c_int::from(address.nl_family) == libc::AF_NETLINK;
    is_netlink && number_of(socket.as_raw_fd()) == Ok(address.nl_pid)
}

/// Reads all that is there.
fn throw_away(fd: c_int) {
    loop {
        // SAFETY: no byte is written, to no address.
        let read = unsafe { libc::recv(fd, std::ptr::null_mut::<c_void>(), 0, libc::MSG_DONTWAIT) };
        // If there was no room for more, that is said once.
        if read < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOBUFS) {
            return;
        }
    }
}

/// The number of a socket, which it is given if it has none, as when something is sent on it.
pub(super) fn port_of(fd: c_int) -> Result<u32, Errno> {
    match number_of(fd)? {
        0 => {
            give_number(fd)?;
            number_of(fd)
        }
        number => Ok(number),
    }
}

pub(super) fn number_of(fd: c_int) -> Result<u32, Errno> {
    let mut address = to(0);
    let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: an address, and its length, which live through the call.
    let done = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &mut length) };
    match address.nl_family {
        _ if done < 0 => Err(Errno::last()),
        family if c_int::from(family) == libc::AF_NETLINK => Ok(address.nl_pid),
        _ => Err(Errno(libc::EBADF)),
    }
}

fn give_number(fd: c_int) -> Result<(), Errno> {
    let any = to(0);
    // SAFETY: an address that lives through the call, with its length.
    let done = unsafe { libc::bind(fd, (&raw const any).cast(), size_of_val(&any) as libc::socklen_t) };
    if done < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// The address of a socket.
pub(super) fn to(port: u32) -> libc::sockaddr_nl {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_pid = port;
    address
}
