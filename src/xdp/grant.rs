//! The privileged part of the setup, so that another process can do it.

use std::os::fd::OwnedFd;

use softrnic_af_xdp::{BoundQueue, QueueLayout, QueueSetup, Sharing, Xsk, bind_modes};
use softrnic_netdev::Host;

use super::options::{AttachMode, XdpError, XdpOptions};
use super::program::{Attached, Maps, describe_programs};
use super::steering::Steering;

/// Ethernet header with two VLAN tags.
pub(super) const LINK_HEADER: usize = 22;

/// An interface that is ready for use: the attached program and, for each receive queue, a socket bound to it, with
/// packet memory.
///
/// Acquiring one takes `CAP_NET_RAW` (sockets), `CAP_BPF` and `CAP_PERFMON` (the program, which reads packets at
/// offsets that are not constant), `CAP_NET_ADMIN` (attaching it, busy polling), and a memory lock limit (`ulimit -l`)
/// large enough for the packet memory. Using one takes no privilege. One that a helper has handed over is tied to its
/// interface and queues, and to the addresses that the helper lets the program steer.
pub struct Grant {
    pub(super) description: GrantDescription,
    pub(super) program: OwnedFd,
    pub(super) verdicts: OwnedFd,
    pub(super) queues: Vec<BoundQueue>,
    pub(super) steering: Steering,
}

/// What was prepared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantDescription {
    /// The interface, in the network namespace of the process that acquired the grant.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Where the program runs.
    pub attach: AttachMode,
    /// Whether the driver uses the packet memory itself.
    pub zero_copy: bool,
    /// Whether frames may span several chunks.
    pub multi_buffer: bool,
    /// Whether the sockets poll the driver.
    pub busy_poll: bool,
    /// Bytes of a chunk of packet memory.
    pub chunk_size: u32,
    /// The longest frame that the interface's MTU allows, in bytes.
    pub max_frame: u32,
    /// The receive queues, one socket each. The first also transmits.
    pub queues: Vec<QueueLayout>,
    /// What was refused so far, one sentence each.
    pub refused: Vec<String>,
}

impl Grant {
    /// Loads and attaches the program to `interface`, and creates and binds the sockets, for this process.
    ///
    /// # Errors
    /// See [`XdpError`]; in particular [`XdpError::Occupied`] and [`XdpError::Privilege`].
    pub fn acquire(interface: &str, options: &XdpOptions) -> Result<Grant, XdpError> {
        let Prepared { description, program, maps, queues } = prepare(interface, options, Sharing::Private)?;
        let Maps { addresses, verdicts, .. } = maps;
        Ok(Grant { description, program, verdicts, queues, steering: Steering::Own(addresses) })
    }
}

/// What preparing an interface yields.
pub(super) struct Prepared {
    pub(super) description: GrantDescription,
    pub(super) program: OwnedFd,
    pub(super) maps: Maps,
    pub(super) queues: Vec<BoundQueue>,
}

pub(super) fn prepare(interface: &str, options: &XdpOptions, sharing: Sharing) -> Result<Prepared, XdpError> {
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
    let numbers = match options.queues.as_slice() {
        [] => (0..interface.queues().rx).collect(),
        queues => queues.to_vec(),
    };
    let sockets = sockets(numbers.len(), options)?;
    let mut refused = Vec::new();
    let mut attached = Attached::new(interface.index, &interface.name, options.attach, &mut refused)?;
    let max_frame = interface.mtu as usize + LINK_HEADER;
    let native = attached.mode == AttachMode::Native;
    let queue_options = options.of_queues();
    let mut modes = bind_modes(&queue_options, native, attached.frags, max_frame, &mut refused);
    let mut queues: Vec<BoundQueue> = Vec::new();
    for (queue, socket) in numbers.into_iter().zip(sockets) {
        let transmits = queues.is_empty();
        let setup = QueueSetup {
            ifindex: interface.index,
            queue,
            modes: &modes,
            options: &queue_options,
            max_frame,
            transmits,
            sharing,
        };
        let (bound, mode) = BoundQueue::open(socket, &setup, &mut refused)?;
        attached.maps.sockets.set(queue, bound.socket())?;
        queues.push(bound);
        // The other queues must get the same mode as the first.
        modes = vec![mode];
    }
    let &[mode] = modes.as_slice() else {
        return Err(XdpError::BadOption("a link needs at least one queue"));
    };
    let description = GrantDescription {
        ifindex: interface.index,
        interface: interface.name.clone(),
        attach: attached.mode,
        zero_copy: mode.zero_copy,
        multi_buffer: mode.multi_buffer,
        busy_poll: options.busy_poll.is_some(),
        chunk_size: options.chunk_size,
        max_frame: max_frame as u32,
        queues: queues.iter().map(|bound| bound.layout()).collect(),
        refused,
    };
    Ok(Prepared { description, program: attached.link, maps: attached.maps, queues })
}

fn sockets(count: usize, options: &XdpOptions) -> Result<Vec<Xsk>, XdpError> {
    let sockets: std::io::Result<Vec<Xsk>> = (0..count).map(|_| Xsk::new()).collect();
    let sockets = sockets.map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => XdpError::Privilege { what: "an AF_XDP socket", needs: "CAP_NET_RAW" },
        _ => XdpError::System { what: "creating an AF_XDP socket", error },
    })?;
    if let Some(busy_poll) = options.busy_poll {
        for socket in &sockets {
            socket
                .set_busy_poll(busy_poll)
                .map_err(XdpError::system("switching on busy polling (CAP_NET_ADMIN may be missing)"))?;
        }
    }
    Ok(sockets)
}
