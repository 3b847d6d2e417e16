//! Which datagrams the program steers to us, and who sees to it.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;

use super::handover::Wish;
use super::program::Addresses;

/// The addresses that the program steers to us.
pub(super) enum Steering {
    /// We have the map of them.
    Own(Addresses),
    /// A helper has it, follows the interface's addresses by itself, and does what we wish about groups.
    Helper(UnixStream),
}

impl Steering {
    /// The program steers datagrams to an address of the interface from now on.
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

    /// The same for a multicast group. A helper is told and not waited for: the caller holds the NIC.
    pub(super) fn join(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            Steering::Own(addresses) => addresses.add(group),
            Steering::Helper(stream) => tell(stream, Wish::Join(group)),
        }
    }

    pub(super) fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            Steering::Own(addresses) => addresses.remove(group),
            Steering::Helper(stream) => tell(stream, Wish::Leave(group)),
        }
    }
}

fn tell(stream: &UnixStream, wish: Wish) -> io::Result<()> {
    use rustix::net::SendFlags;
    // A line is far shorter than the room there is or is not: it goes as a whole.
    rustix::net::send(stream, wish.to_string().as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}
