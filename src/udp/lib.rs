//! RoCEv2 over an ordinary UDP socket: no privileges, works in any container.
//!
//! Sockets send with DF. On an unconnected socket, Linux sends datagrams with IPv4 ID 0, and the segments of one
//! `UDP_SEGMENT` send with 0, 1, 2, …; so the ICRC can be computed in advance. Send-only sockets are connected and
//! count differently, see `sender.rs`. Received datagrams do not show their ID;
//! [`HeaderId::Hidden`](softrnic_link::HeaderId::Hidden) holds what is known about it.

mod members;
mod message;
mod open;
mod room;
mod rx;
mod sender;
mod sys;
mod tx;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use softrnic_wire::{IPV4_LEN, IPV6_LEN, MAX_TRANSPORT_LEN, ROCE_UDP_PORT, Time, UDP_LEN, UdpFacts};

use softrnic_link::{
    Capabilities, Datagram, Flow, Link, LinkCounters, OpenError, Overrun, Sharing, TxError, TxSlot,
};

pub use members::{Members, lifeline_to};
pub use open::UdpOptions;
#[doc(hidden)]
pub use room::answered_room;
#[doc(hidden)]
pub use rx::{RawMessage, replay};

use message::SockAddr;
use open::Local;
use room::Rooms;
use rx::{RxBuffers, RxSocket};
use sender::Sender;
use sys::{Epoll, Socket};
use tx::{Route, RunLimits, TxQueue};

/// The most bytes of one segmented send over IPv4; a little less than a datagram can hold.
const MAX_RUN_BYTES: usize = 65_493;
/// The most source ports other than 4791 that are remembered, each with sockets of its own.
const MAX_PORTS: usize = 16;
/// Index of the socket that sends from port 4791.
const MAIN: usize = 0;

/// See the [module](self).
pub struct UdpLink {
    local: Local,
    /// If the address is shared.
    members: Option<Members>,
    capabilities: Capabilities,
    counters: LinkCounters,
    /// What the socket of a shared address had lost before it was ours.
    lost_before: u32,
    /// The socket on our address, then one for each group.
    receivers: Vec<RxSocket>,
    /// Sockets bound to other source ports; index 0 of a [`Route`] is the main socket, n is `senders[n - 1]`.
    senders: Vec<Sender>,
    /// Source ports that were requested.
    ports: Vec<Port>,
    tx: TxQueue,
    rx: RxBuffers,
    rooms: Rooms,
    blocked: Option<usize>,
    /// Over all sockets that are read, and the one that is full.
    epoll: Epoll,
}

/// A source port, and the indices of the sockets that send from it.
struct Port {
    number: u16,
    /// Connected to its first peer.
    first: usize,
    /// For other peers, once there are any.
    others: Option<usize>,
}

impl UdpLink {
    /// Opens a link, and probes what the kernel supports.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: UdpOptions) -> Result<UdpLink, OpenError> {
        let (main, local, members) = open::open(&options)?;
        let epoll = Epoll::new().map_err(open::system("watching sockets"))?;
        epoll.add(&main, libc::EPOLLIN).map_err(open::system("watching sockets"))?;
        let header = UDP_LEN + if local.address.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let limits = RunLimits {
            segments: local.segments,
            bytes: if local.address.is_ipv4() {
                MAX_RUN_BYTES
            } else {
                MAX_RUN_BYTES - (IPV6_LEN - IPV4_LEN)
            },
        };
        let capabilities = Capabilities {
            mode: mode(&options, &local),
            max_datagram: local.interface.mtu.saturating_sub(header).min(MAX_TRANSPORT_LEN),
            ip_mtu: local.interface.mtu,
            sees_ip_header: false,
            segments: local.segments,
            receive_buffer: held_bytes(local.receive_buffer),
            zero_copy: false,
            shared_memory: false,
            slot: local.slot,
        };
        Ok(UdpLink {
            local,
            members,
            capabilities,
            counters: LinkCounters::default(),
            lost_before: main.drops(),
            receivers: vec![RxSocket { socket: main, address: local.address }],
            senders: Vec::with_capacity(2 * MAX_PORTS),
            ports: Vec::with_capacity(MAX_PORTS),
            tx: TxQueue::new(limits),
            rx: RxBuffers::new(),
            rooms: Rooms::default(),
            blocked: None,
            epoll,
        })
    }

    /// The link's address, and the source of all its datagrams.
    pub fn address(&self) -> IpAddr {
        self.local.address
    }

    /// The socket that sends from the port of `flow`; the main one if there is none.
    fn sender(&mut self, flow: &Flow, to: SockAddr) -> usize {
        let wanted = flow.sport;
        if wanted == ROCE_UDP_PORT || wanted == 0 {
            return MAIN;
        }
        let known = self.ports.iter().position(|port| port.number == wanted);
        let Some(place) = known.or_else(|| self.open_port(wanted, flow.dst, to)) else { return MAIN };
        let first = self.ports[place].first;
        match first.checked_sub(1) {
            Some(sender) if !self.senders[sender].serves(&to) => self.sender_beside(place, sender),
            _ => first,
        }
    }

    /// Remembers a port, also one that is taken, so as not to try it for each run.
    #[cold]
    fn open_port(&mut self, number: u16, dst: IpAddr, to: SockAddr) -> Option<usize> {
        if self.ports.len() == MAX_PORTS {
            return None;
        }
        let opened = Sender::open(&self.local, number, dst, to);
        let first = self.add_sender(opened);
        self.ports.push(Port { number, first, others: None });
        Some(self.ports.len() - 1)
    }

    /// The socket for peers other than the one that the first socket of a port, `sender`, is connected to. That one counts
    /// what it sends, and its peer takes gaps in the count for damage (`engine/hidden_ids.rs`).
    fn sender_beside(&mut self, place: usize, sender: usize) -> usize {
        if let Some(index) = self.ports[place].others {
            return index;
        }
        let opened = self.senders[sender].beside();
        let index = self.add_sender(opened);
        self.ports[place].others = Some(index);
        index
    }

    fn add_sender(&mut self, opened: io::Result<Sender>) -> usize {
        let Ok(sender) = opened else { return MAIN };
        self.senders.push(sender);
        self.senders.len()
    }

    fn route(&mut self, flow: &Flow) -> Result<Route, TxError> {
        if flow.src != self.local.address || flow.dst.is_ipv4() != flow.src.is_ipv4() {
            return Err(TxError::Unreachable);
        }
        let to = SockAddr::new(flow.dst, ROCE_UDP_PORT, self.scope(flow.dst));
        let index = self.sender(flow, to);
        if let Some(sender) = index.checked_sub(1).map(|place| &mut self.senders[place]) {
            if !sender.is_certain() && self.tx.unsent().is_empty() {
                sender.learn_id();
            }
            if sender.is_certain() {
                return Ok(sender.route(index, to));
            }
        }
        Ok(Route { socket: MAIN, sport: ROCE_UDP_PORT, to: Some(to), first_id: 0 })
    }

    /// The interface through which `dst` must be reached, if its address does not say.
    fn scope(&self, dst: IpAddr) -> u32 {
        match dst {
            IpAddr::V6(dst) if dst.is_unicast_link_local() || dst.is_multicast() => {
                self.local.interface.index
            }
            _ => 0,
        }
    }

    fn socket(&self, index: usize) -> &Socket {
        match index {
            MAIN => &self.receivers[0].socket,
            _ => &self.senders[index - 1].socket,
        }
    }

    /// Accounts for the first `count` runs, which have been sent.
    fn sent(&mut self, count: usize) {
        for run in &self.tx.unsent()[..count] {
            self.counters.tx_datagrams += run.count() as u64;
            self.counters.tx_bytes += run.len() as u64;
        }
        self.tx.advance(count);
    }

    /// Drops the first run, which the kernel refuses.
    fn refused(&mut self, error: &io::Error) {
        let Some(run) = self.tx.unsent().first() else { return };
        self.counters.tx_errors += run.count() as u64;
        let segmented = run.count() > 1;
        if let Some(place) = run.socket().checked_sub(1) {
            self.senders[place].refused(run.first_id());
        }
        self.tx.advance(1);
        // EIO: the device below cannot fill in checksums, or transforms packets (IPsec).
        if segmented && error.raw_os_error() == Some(libc::EIO) {
            self.stop_segmenting();
            self.capabilities.mode.push_str(" [segmentation was refused by the device below]");
        }
    }

    /// Remembers that `socket` is full, so that a waiting thread is told when it no longer is.
    fn block(&mut self, socket: usize) {
        self.blocked = Some(socket);
        let watched = if socket == MAIN { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLOUT };
        let watching = self.epoll.modify(self.socket(socket), watched);
        let _ = watching.or_else(|_| self.epoll.add(self.socket(socket), watched));
    }

    fn unblock(&mut self) {
        let Some(socket) = self.blocked.take() else { return };
        let _ = self.epoll.modify(self.socket(socket), if socket == MAIN { libc::EPOLLIN } else { 0 });
    }
}

impl Link for UdpLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    fn reserve(&mut self, _now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        if len > self.capabilities.max_datagram || len == 0 {
            return Err(TxError::TooLong);
        }
        let reservation = match self.tx.append(flow, len) {
            Some(reservation) => reservation,
            None => {
                let route = self.route(flow)?;
                self.tx.start(flow, route, len)?
            }
        };
        let ip = tx::ip_facts(flow, reservation.id).ok_or(TxError::Unreachable)?;
        Ok(TxSlot {
            bytes: self.tx.bytes_mut(&reservation),
            facts: UdpFacts::roce(ip, reservation.sport),
            wants_icrc: true,
        })
    }

    fn reserved(&self) -> &[u8] {
        self.tx.reserved()
    }

    #[inline]
    fn commit(&mut self, _now: Time) {
        if let Some(place) = self.tx.commit().and_then(|socket| socket.checked_sub(1)) {
            self.senders[place].queued();
        }
    }

    fn flush(&mut self, _now: Time) {
        self.unblock();
        let mut retried = false;
        while let Some(first) = self.tx.unsent().first() {
            let index = first.socket();
            let socket = match index {
                MAIN => &self.receivers[0].socket,
                _ => &self.senders[index - 1].socket,
            };
            let result = sys::send_many(socket, self.tx.span());
            self.counters.tx_calls += 1;
            match result {
                Ok(count) => {
                    self.sent(count);
                    retried = false;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.block(index);
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // An ICMP error for an earlier datagram; reporting it has cleared it.
                Err(e) if !retried && is_earlier_error(&e) => {
                    self.counters.tx_errors += 1;
                    retried = true;
                }
                Err(e) => {
                    self.refused(&e);
                    retried = false;
                }
            }
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        self.rooms.retried(now);
        let mut left = budget;
        let mut overrun = Overrun::Drained;
        for receiver in &mut self.receivers {
            match self.rx.receive(receiver, &mut left, &mut self.counters, sink) {
                Overrun::Drained => {}
                Overrun::Budget => return Overrun::Budget,
                other => overrun = other,
            }
        }
        overrun
    }

    fn has_room(&mut self, now: Time, flow: &Flow, len: usize) -> bool {
        let dst = flow.dst;
        if dst.is_multicast() {
            return true;
        }
        if let Some(known) = self.rooms.check(now, dst, len) {
            return known;
        }
        self.flush(now);
        self.rooms.look(now, dst, self.scope(dst));
        self.rooms.check(now, dst, len).unwrap_or(true)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.rooms.retry()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.epoll.fd())
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if !group.is_multicast() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if self.receivers[1..].iter().any(|receiver| receiver.address == group) {
            return Ok(());
        }
        let socket = open::open_group(group, &self.local)?;
        self.epoll.add(&socket, libc::EPOLLIN)?;
        self.receivers.push(RxSocket { socket, address: group });
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        // Closing the socket ends the membership and removes it from the epoll instance.
        match self.receivers[1..].iter().position(|receiver| receiver.address == group) {
            Some(index) => {
                let left = self.receivers.remove(index + 1);
                self.counters.rx_overruns += u64::from(left.socket.drops());
            }
            None => return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)),
        }
        Ok(())
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        self.members.as_mut().map(|members| members as &mut dyn Sharing)
    }

    fn counters(&self) -> LinkCounters {
        let dropped: u64 = self.receivers.iter().map(|receiver| u64::from(receiver.socket.drops())).sum();
        let dropped = dropped.saturating_sub(self.lost_before.into());
        LinkCounters { rx_overruns: self.counters.rx_overruns + dropped, ..self.counters }
    }

    fn stop_segmenting(&mut self) {
        self.tx.set_segments(1);
        self.capabilities.segments = 1;
    }

    fn show_headers(&mut self) {
        // UDP sockets cannot refuse.
        let _ = open::ask_for_ttl(&self.receivers[0].socket, self.local.address);
    }
}

fn is_earlier_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENOPROTOOPT | libc::EPROTO)
    )
}

/// How many datagram bytes a receive buffer is certain to hold, counting each datagram as at least 640 bytes: the
/// kernel charges whole allocations (2315 bytes for 1040, 8519 for 4112, never less than 832), and returns a quarter of
/// the room late.
fn held_bytes(receive_buffer: usize) -> usize {
    receive_buffer / 32 * 11
}

fn mode(options: &UdpOptions, local: &Local) -> String {
    let mut mode = format!("udp {} (", local.address);
    match (options.segmentation, local.segments) {
        (false, _) => mode.push_str("segmentation off"),
        (true, 1) => mode.push_str("no segmentation, the kernel refuses it"),
        (true, segments) => {
            let _ = write!(mode, "segmentation {segments}");
        }
    }
    mode.push_str(match (options.gro, local.gro) {
        (_, true) => ", coalescing",
        (true, false) => ", no coalescing, the kernel refuses it",
        (false, false) => ", coalescing off",
    });
    let buffer = local.receive_buffer / 2;
    let _ = match (buffer >> 20, buffer >> 10) {
        (mib @ 1.., _) if buffer.is_multiple_of(1 << 20) => write!(mode, ", receive buffer {mib} MiB)"),
        (_, kib @ 1..) if buffer.is_multiple_of(1 << 10) => write!(mode, ", receive buffer {kib} KiB)"),
        _ => write!(mode, ", receive buffer {buffer} bytes)"),
    };
    if let Some(why) = local.alone {
        let _ = write!(mode, " [for one process: {why}]");
    }
    mode
}
