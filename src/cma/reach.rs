//! Which listener of a port is accepted: any user of the machine may take any name.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use softrnic_nic::device::Network;
use softrnic_sys::Credentials;

use super::host;
use super::names::{Name, Taken, is_privileged, taken};

/// Names that are tried for a privileged port if another user has the plain ones.
const MOST_UNFORESEEN: usize = 64;

/// Result of looking for a listener.
#[derive(Debug)]
pub(super) enum Reached {
    /// A stream to it.
    Listener(OwnedFd),
    /// There may be one, whose backlog is full.
    Busy,
    Nobody,
}

/// Connects to the listener of a port on an address. There is only one, unless a user disregards the other's name: then
/// it is the one of this process's user or of root. The name with the address comes first. A privileged port is root's.
pub(super) fn reach(network: Option<&Network>, wanted: &Name, address: IpAddr) -> Reached {
    let (every, one) = Name::both(network, wanted.space, wanted.port, wanted.family, address);
    let plain = one.iter().chain([&every]).map(Name::text);
    let mut others: Option<(OwnedFd, u32)> = None;
    let mut busy = false;
    for text in plain.chain(std::iter::once_with(|| unforeseen(&every, one.as_ref())).flatten()) {
        let socket = match connect_to(&text) {
            Ok(socket) => socket,
            Err(error) => {
                busy |= error == Errno::AGAIN;
                continue;
            }
        };
        let Ok(owner) = Credentials::of_peer(&socket) else { continue };
        match &others {
            _ if is_believed(owner, wanted.port) => return Reached::Listener(socket),
            _ if is_privileged(wanted.port) => {}
            None => others = Some((socket, owner.uid)),
            Some((_, uid)) if *uid == owner.uid => {}
            Some((_, uid)) => {
                tracing::warn!(
                    "users {uid} and {} both claim to listen on {every}; neither is accepted",
                    owner.uid
                );
                return Reached::Nobody;
            }
        }
    }
    match others {
        _ if busy => Reached::Busy,
        Some((socket, _)) => Reached::Listener(socket),
        None => Reached::Nobody,
    }
}

/// Whether a name that another process has taken keeps its port from us.
pub(super) fn is_kept_by(taken: &Taken) -> bool {
    let can_listen = taken.name.address.is_none_or(|address| match address {
        _ if taken.name.network.is_some() => true,
        _ if address.is_loopback() => false,
        // Local or not depends on the interface, which the name does not say.
        IpAddr::V6(ip) if ip.is_unicast_link_local() => true,
        _ => host::is_local((address, 0).into()),
    });
    can_listen && (!is_privileged(taken.name.port) || is_roots(&taken.text))
}

/// Whether root listens at a name. For a privileged port it does from the start.
pub(super) fn is_roots(text: &str) -> bool {
    connect_to(text).is_ok_and(|socket| Credentials::of_peer(socket).is_ok_and(Credentials::are_roots))
}

/// A socket for a name.
pub(super) fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn is_believed(owner: Credentials, port: u16) -> bool {
    owner.are_roots() || owner.are_ours() && !is_privileged(port)
}

fn connect_to(text: &str) -> Result<OwnedFd, Errno> {
    let socket = stream()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(text.as_bytes())?)?;
    Ok(socket)
}

/// What root may have taken instead of the plain names of a privileged port.
fn unforeseen(every: &Name, one: Option<&Name>) -> Vec<String> {
    if !is_privileged(every.port) {
        return Vec::new();
    }
    let is_wanted =
        |taken: &Taken| taken.is_unforeseen() && (taken.name == *every || Some(&taken.name) == one);
    let wanted = taken().unwrap_or_default().into_iter().filter(is_wanted);
    wanted.take(MOST_UNFORESEEN).map(|taken| taken.text).collect()
}
