//! The part of setting up that needs privilege, so that another process can do it.

use std::os::fd::OwnedFd;

use crate::host::Host;

use super::options::{AttachMode, XdpError, XdpOptions};
use super::program::{Attached, describe_programs};
use super::xsk::Xsk;

/// What a process needs to open a link without privilege: the attached program, its maps, and one
/// unbound socket per queue. Packet memory is the process's own.
///
/// Getting a grant takes `CAP_NET_RAW` (sockets), `CAP_BPF` and `CAP_PERFMON` (the program, which reads packets at
/// offsets that are not constant) and `CAP_NET_ADMIN` (attaching it, busy polling). Using one
/// takes none on Linux 5.19 and later, but a memory lock limit (`ulimit -l`) that the packet memory
/// fits in; before 5.19 access to the maps takes `CAP_BPF` where `kernel.unprivileged_bpf_disabled`
/// is set.
pub struct Grant {
    pub(super) description: GrantDescription,
    pub(super) link: OwnedFd,
    pub(super) maps: [OwnedFd; 3],
    pub(super) sockets: Vec<Xsk>,
}

/// What the descriptors of a [`Grant`] are for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantDescription {
    /// The interface, in the network namespace of the process that got the grant.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Where the program runs.
    pub attach: AttachMode,
    /// Whether the program takes frames of several buffers.
    pub frags: bool,
    /// Whether the sockets poll the driver.
    pub busy_poll: bool,
    /// The receive queues, one socket each.
    pub queues: Vec<u32>,
    /// What was refused so far, one sentence each.
    pub refused: Vec<String>,
}

impl Grant {
    /// Loads and attaches the program to `interface` and creates the sockets.
    ///
    /// # Errors
    /// See [`XdpError`]; in particular [`XdpError::Occupied`] and [`XdpError::Privilege`].
    pub fn acquire(interface: &str, options: &XdpOptions) -> Result<Grant, XdpError> {
        options.check()?;
        let host = Host::open().map_err(XdpError::system("reading the machine's interfaces"))?;
        let Some(interface) = host.interface_by_name(interface) else {
            return Err(XdpError::NoInterface(interface.to_owned()));
        };
        if !interface.is_ethernet {
            return Err(XdpError::NotEthernet(interface.name.clone()));
        }
        if !interface.xdp_programs.is_empty() {
            let programs = describe_programs(&interface.xdp_programs);
            return Err(XdpError::Occupied { interface: interface.name.clone(), programs });
        }
        let queues = match options.queues.as_slice() {
            [] => (0..interface.queues().rx).collect(),
            queues => queues.to_vec(),
        };
        let sockets: Vec<Xsk> =
            queues.iter().map(|_| Xsk::new()).collect::<Result<_, _>>().map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM) => {
                        XdpError::Privilege { what: "an AF_XDP socket", needs: "CAP_NET_RAW" }
                    }
                    _ => XdpError::System { what: "creating an AF_XDP socket", error },
                }
            })?;
        if let Some(busy_poll) = options.busy_poll {
            for socket in &sockets {
                socket
                    .set_busy_poll(busy_poll)
                    .map_err(XdpError::system("switching busy polling on (without CAP_NET_ADMIN?)"))?;
            }
        }
        let mut refused = Vec::new();
        let attached = Attached::new(interface.index, &interface.name, options.attach, &mut refused)?;
        Ok(Grant {
            description: GrantDescription {
                ifindex: interface.index,
                interface: interface.name.clone(),
                attach: attached.mode,
                frags: attached.frags,
                busy_poll: options.busy_poll.is_some(),
                queues,
                refused,
            },
            link: attached.link,
            maps: attached.maps,
            sockets,
        })
    }

    /// The descriptors, to be sent to another process: the program's link, its three maps, then the
    /// sockets in the order of the queues.
    pub fn into_descriptors(self) -> (GrantDescription, Vec<OwnedFd>) {
        let sockets = self.sockets.into_iter().map(Xsk::into_fd);
        (self.description, [self.link].into_iter().chain(self.maps).chain(sockets).collect())
    }

    /// The opposite of [`Grant::into_descriptors`].
    ///
    /// # Errors
    /// [`XdpError::BadOption`] for the wrong number of descriptors.
    pub fn from_descriptors(
        description: GrantDescription,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Grant, XdpError> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(XdpError::BadOption("a grant has more descriptors"));
        let link = next()?;
        let maps = [next()?, next()?, next()?];
        let sockets: Vec<_> = descriptors.map(Xsk::from_fd).collect();
        if sockets.len() != description.queues.len() {
            return Err(XdpError::BadOption("a grant has one socket for each queue"));
        }
        Ok(Grant { description, link, maps, sockets })
    }
}
