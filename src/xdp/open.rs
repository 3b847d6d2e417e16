//! Opens a link with a [`Grant`]; no privilege is needed.

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsRawFd;

use softrnic_af_xdp::{BindMode, single_buffer};
use softrnic_wire::{IPV4_LEN, Time, UDP_LEN};

use softrnic_link::{Capabilities, LinkCounters};
use softrnic_netdev::Host;

use super::grant::{Grant, GrantDescription, LINK_HEADER};
use super::identity::Identity;
use super::link::XdpLink;
use super::membership::Membership;
use super::options::{XdpError, XdpMode, XdpOptions};
use super::paths::Paths;
use super::program::Verdicts;
use super::readiness::Readiness;

pub(super) fn open(grant: Grant, options: &XdpOptions) -> Result<XdpLink, XdpError> {
    options.check()?;
    let Grant { description, program, verdicts, queues: bound, mut steering } = grant;
    let GrantDescription { ifindex, zero_copy, multi_buffer, chunk_size, .. } = description;
    let wanted_frame = description.max_frame as usize;
    let mut refused = description.refused;
    let host = Host::open().map_err(XdpError::system("reading the machine's interfaces"))?;
    let interface =
        host.interface(ifindex).ok_or_else(|| XdpError::NoInterface(description.interface.clone()))?;

    let mode = BindMode { zero_copy, multi_buffer };
    let mut queues = Vec::new();
    for bound in bound {
        queues.push(bound.start(mode, !options.need_wakeup, wanted_frame)?);
    }
    if queues.first().is_none_or(|first| first.transmit_count().is_none()) {
        return Err(XdpError::BadOption("a link needs at least one queue"));
    }

    let max_frame = mode.max_frame(chunk_size, wanted_frame);
    if max_frame < wanted_frame {
        refused.push(format!(
            "MTU {}: a frame of one buffer holds an IP packet of at most {} bytes",
            wanted_frame - LINK_HEADER,
            max_frame - LINK_HEADER
        ));
    }
    let ip_mtu = max_frame - LINK_HEADER;
    let xdp_mode = XdpMode {
        interface: description.interface,
        attach: description.attach,
        zero_copy: mode.zero_copy,
        multi_buffer: mode.multi_buffer,
        busy_poll: description.busy_poll,
        queues: description.queues.iter().map(|layout| layout.queue).collect(),
        refused,
    };
    // A peer's datagrams may all arrive by the same queue.
    let rx_chunks = queues.iter().map(|queue| queue.receive_count().chunks).min().unwrap_or(0);
    let chunks_per_frame = max_frame.div_ceil(single_buffer(chunk_size));
    let capabilities = Capabilities {
        mode: xdp_mode.to_string(),
        max_datagram: ip_mtu - IPV4_LEN - UDP_LEN,
        ip_mtu,
        sees_ip_header: true,
        segments: 1,
        receive_buffer: rx_chunks as usize / chunks_per_frame * max_frame,
        zero_copy: mode.zero_copy,
        shared_memory: false,
        slot: None,
    };
    let mut identity = Identity {
        ifindex,
        mac: interface.mac,
        is_up: false,
        wanted: options.addresses.clone(),
        addresses: HashSet::new(),
        groups: HashSet::new(),
        max_datagram: capabilities.max_datagram,
    };
    identity.update(&host, &mut steering);
    let sockets: Vec<_> = queues.iter().map(|queue| queue.socket().as_raw_fd()).collect();
    let readiness = Readiness::new(&sockets).map_err(XdpError::system("watching the sockets"))?;
    let slots = options.tx_slots as usize;
    Ok(XdpLink {
        capabilities,
        mode: xdp_mode,
        identity,
        host,
        host_checked: Time::ZERO,
        queues,
        steering,
        verdicts: Verdicts::new(verdicts)?,
        membership: Membership::default(),
        paths: Paths::default(),
        reserved: None,
        own: VecDeque::with_capacity(slots),
        own_since: Time::ZERO,
        retry_at: None,
        first_queue: 0,
        readiness,
        counters: LinkCounters::default(),
        _program: program,
    })
}
