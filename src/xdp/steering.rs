//! Which datagrams the program steers to us, and which process controls that.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;

use super::handover::Wish;
use super::program::Addresses;

/// The addresses that the program steers to us.
pub(super) enum Steering {
    /// We own the map.
    Own(Addresses),
    /// A helper owns it, follows the interface's addresses itself, and executes our wishes about groups.
    Helper(UnixStream),
}

impl Steering {
    /// Steers datagrams to an address of the interface from now on.
    pub(super) fn add_address(&mut self, ip: IpAddr) -> io::Result<()> {
        match self {
            Steering::Own(addresses) => addresses.add(ip),
            Steering::Helper(_) => Ok(()),
        }
    }

    pub(super) fn remove_address(&mut self, ip: IpAddr) -> io::Result<()> {
        match self {
            Steering::Own(addresses) => addresses.remove(ip),
            Steering::Helper(_) => Ok(()),
        }
    }

    /// The same for a multicast group. A helper is told without waiting for it: the caller holds the NIC.
    pub(super) fn join(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            Steering::Own(addresses) => addresses.add(group),
            Steering::Helper(stream) => send_wish(stream, Wish::Join(group)),
        }
    }

    pub(super) fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            Steering::Own(addresses) => addresses.remove(group),
            Steering::Helper(stream) => send_wish(stream, Wish::Leave(group)),
        }
    }
}

fn send_wish(stream: &UnixStream, wish: Wish) -> io::Result<()> {
    use rustix::net::SendFlags;
    // A line is so short that it is sent whole or not at all.
    rustix::net::send(stream, wish.to_string().as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}
