//! What a helper keeps of a grant that it has handed over.

use std::collections::HashSet;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use softrnic_wire::MacAddr;

use softrnic_netdev::Host;

use super::grant::GrantDescription;
use super::handover::{Wish, Wishes};
use super::identity::Identity;
use super::options::XdpError;
use super::program::Addresses;
use super::steering::Steering;

/// The most groups that an application can have steered. The map has room for the interface's addresses too.
const MOST_GROUPS: usize = 2048;

/// Maintains the addresses that a handed-over program steers: those of the interface, and the groups that the
/// application has joined. Only the keeper can change them.
pub struct Keeper {
    stream: UnixStream,
    host: Host,
    identity: Identity,
    steering: Steering,
    wishes: Wishes,
}

impl Keeper {
    pub(super) fn new(
        stream: UnixStream,
        description: &GrantDescription,
        wanted: Vec<std::net::IpAddr>,
        addresses: Addresses,
    ) -> Result<Keeper, XdpError> {
        let host = Host::open().map_err(XdpError::system("reading the machine's interfaces"))?;
        let identity = Identity {
            ifindex: description.ifindex,
            mac: MacAddr::default(),
            is_up: false,
            wanted,
            addresses: HashSet::new(),
            groups: HashSet::new(),
            max_datagram: 0,
        };
        let mut keeper =
            Keeper { stream, host, identity, steering: Steering::Own(addresses), wishes: Wishes::default() };
        keeper.follow();
        Ok(keeper)
    }

    /// Follows the interface and the application, until the application has gone.
    ///
    /// # Errors
    /// The application sends something malformed, or a system call fails. Its addresses are then no longer followed.
    pub fn keep(mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        loop {
            let mut sources =
                [PollFd::new(&self.stream, PollFlags::IN), PollFd::new(&self.host, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [said, changed] = sources.map(|source| !source.revents().is_empty());
            if changed {
                self.host.poll(&mut |_| {})?;
                self.follow();
            }
            if said && !self.listen()? {
                return Ok(());
            }
        }
    }

    fn follow(&mut self) {
        self.identity.update(&self.host, &mut self.steering);
    }

    /// Does what the application wishes; returns whether it has gone.
    fn listen(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 1024];
        let len = match io::Read::read(&mut &self.stream, &mut bytes) {
            Ok(0) => return Ok(false),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        let Keeper { wishes, identity, steering, .. } = self;
        wishes.add(&bytes[..len], &mut |wish| {
            // What the map does not accept is not steered, as the application can tell.
            let _full = match wish {
                Wish::Join(group) if identity.groups.len() < MOST_GROUPS => {
                    identity.groups.insert(group);
                    steering.join(group)
                }
                Wish::Join(_) => Ok(()),
                Wish::Leave(group) if identity.groups.remove(&group) => steering.leave(group),
                Wish::Leave(_) => Ok(()),
            };
        })?;
        Ok(true)
    }
}
