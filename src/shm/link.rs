//! The link itself.

use std::io;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use softrnic_wire::{DF, IpFacts, Time, UdpFacts};

use softrnic_link::{
    Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, ProcessSlot, Reach, Sleeper,
    TxError, TxSlot, delegate_link,
};

use crate::connections::Connections;
use crate::handshake::{self, Endpoint};
use crate::ring::{Addressing, MAX_DATAGRAM, NoRoom};

#[cfg(test)]
mod tests;

/// A stream to the process that is reached through shared memory at a slot of an address, if it is this user's.
pub fn stream_to(address: IpAddr, slot: ProcessSlot) -> Option<OwnedFd> {
    handshake::ask(Endpoint { address, slot: Some(slot) }).ok().map(|(socket, _)| socket)
}

/// A caller that polls asks the kernel this often for what is not in the rings.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// After a datagram on the link below, that is asked each time for so long.
const BELOW_ACTIVE: Duration = Duration::from_millis(1);

/// See the [crate](crate).
pub struct ShmLink<L> {
    below: L,
    pub(crate) connections: Connections,
    capabilities: Capabilities,
    /// Of the connections alone.
    counters: LinkCounters,
    below_watched: Option<(RawFd, bool)>,
    /// What is sent has its ICRC, whether or not the peer asks for it.
    keeps_icrcs: bool,
    /// What has come may stay in the peer's ring until it is copied.
    leaves_payloads: bool,
    /// Where the slot that was reserved last is.
    reserved: Option<usize>,
    next_id: u16,
    /// The link below has something that was not flushed.
    unflushed_below: bool,
    /// Connections with something queued since the last flush.
    unflushed: Vec<usize>,
    /// The connection that is read first, so that none has to wait for those before it. Behind the last, the link below.
    first: usize,
    next_look: Time,
    below_until: Time,
    /// When to stop waiting for a peer that does not read; never, if none is waited for.
    gives_up_at: Time,
    buffer: Box<[u8; MAX_DATAGRAM]>,
}

impl<L: Link> ShmLink<L> {
    /// Adds connections to a link whose only address is `address`.
    ///
    /// # Errors
    /// The kernel has no such memory, or another socket has the address' name; the link comes back.
    pub fn new(below: L, address: IpAddr) -> Result<ShmLink<L>, (L, io::Error)> {
        let slot = below.capabilities().slot;
        match Connections::open(Endpoint { address, slot }) {
            Ok(connections) => {
                let mut capabilities = below.capabilities().clone();
                capabilities.mode.push_str(", shared memory on this machine");
                capabilities.shared_memory = true;
                let mut link = ShmLink {
                    below,
                    connections,
                    capabilities,
                    counters: LinkCounters::default(),
                    below_watched: None,
                    keeps_icrcs: false,
                    leaves_payloads: false,
                    reserved: None,
                    next_id: 0,
                    unflushed_below: false,
                    unflushed: Vec::new(),
                    first: 0,
                    next_look: Time::ZERO,
                    below_until: Time::ZERO,
                    gives_up_at: Time::NEVER,
                    buffer: Box::new([0; MAX_DATAGRAM]),
                };
                link.watch_below();
                Ok(link)
            }
            Err(error) => Err((below, error)),
        }
    }

    /// All datagrams have their ICRC, in both directions: peers are asked for it, and what has none is wrong.
    #[must_use]
    pub fn with_icrcs(mut self) -> ShmLink<L> {
        self.connections.asks_for_icrcs = true;
        self.keeps_icrcs = true;
        self
    }

    /// The link below may wait for other things by now.
    fn watch_below(&mut self) {
        let wanted = self.below.descriptor().map(|fd| (fd, self.below.is_blocked()));
        if self.below_watched == wanted {
            return;
        }
        if let Some((fd, _)) = self.below_watched.take() {
            // It may be closed by now, which has removed it.
            let _ = self.connections.watch_below(libc::EPOLL_CTL_DEL, fd, 0);
        }
        if let Some((fd, blocked)) = wanted {
            let events = if blocked { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
            if self.connections.watch_below(libc::EPOLL_CTL_ADD, fd, events).is_ok() {
                self.below_watched = wanted;
            }
        }
    }

    #[cold]
    fn look(&mut self, now: Time) {
        self.next_look = now + LOOK_INTERVAL;
        if self.connections.look(now) {
            self.below_until = now + BELOW_ACTIVE;
        }
        if now >= self.connections.sweep_at() {
            self.connections.sweep(now);
        }
        if now >= self.gives_up_at {
            self.gives_up_at = Time::NEVER;
        }
    }

    /// The connection for datagrams to a destination, if they can take one.
    #[inline]
    fn connection_for(&mut self, now: Time, flow: &Flow) -> Option<usize> {
        if flow.src != self.connections.own.address {
            return None;
        }
        // Without a slot, only the kernel can tell which process it is for.
        let index = self.connections.to(now, Endpoint { address: flow.dst, slot: Some(flow.slot?) })?;
        let connection = self.connections.connection(index)?;
        // It must not overtake what waits below.
        connection.begun_to_send = connection.begun_to_send || !self.below.is_blocked();
        connection.begun_to_send.then_some(index)
    }

    #[inline]
    fn reserve_on_connection(
        &mut self,
        now: Time,
        index: usize,
        flow: &Flow,
        ip: IpFacts,
        len: usize,
    ) -> Result<TxSlot<'_>, TxError> {
        let Some(connection) = self.connections.connection(index) else { return Err(TxError::Unreachable) };
        let wants_icrc = self.keeps_icrcs || connection.peer_asks_for_icrcs;
        match connection.rings.reserve(len) {
            Ok(()) => {}
            Err(NoRoom::Full) => return Err(self.full(now, index)),
            Err(NoRoom::Corrupt(_)) => {
                self.give_up(now, index);
                return Err(TxError::Unreachable);
            }
        }
        let Flow { sport, tos, ttl, .. } = *flow;
        let addressing = Addressing { sport, id: self.next_id, tos, ttl, has_icrc: wants_icrc };
        self.next_id = self.next_id.wrapping_add(1);
        self.reserved = Some(index);
        let bytes = self
            .connections
            .connection(index)
            .map_or(&mut [][..], |connection| connection.rings.slot(addressing));
        Ok(TxSlot { bytes, facts: UdpFacts::roce(ip, sport), wants_icrc })
    }

    /// The peer has to read first. One that does not is waited for only so long: what a QP sends to others must not wait
    /// behind that for ever.
    fn full(&mut self, now: Time, index: usize) -> TxError {
        let Some(connection) = self.connections.connection(index) else { return TxError::Unreachable };
        let (until, begins) = connection.waits_until(now);
        self.counters.shm_full += u64::from(begins);
        if now < until {
            self.gives_up_at = self.gives_up_at.min(until);
            return TxError::Full;
        }
        self.counters.tx_errors += 1;
        TxError::Unreachable
    }

    /// The peer of a connection violates the ring protocol.
    #[cold]
    fn give_up(&mut self, now: Time, index: usize) {
        self.counters.shm_corrupt += 1;
        self.unflushed.retain(|&other| other != index);
        self.connections.give_up(now, index);
    }

    /// Hands what a connection has brought to `sink`, as far as `left` goes. Returns whether it was all.
    #[inline]
    fn receive_from(
        &mut self,
        now: Time,
        index: usize,
        left: &mut usize,
        sink: &mut dyn FnMut(Datagram<'_>),
    ) -> bool {
        let dst = self.connections.own.address;
        let asks_for_icrcs = self.connections.asks_for_icrcs;
        let may_stay = self.leaves_payloads && !self.keeps_icrcs && !asks_for_icrcs;
        let Some(connection) = self.connections.connection(index) else { return true };
        let looked = connection.rings.look();
        if looked == Ok(false) {
            connection.publish_head();
        }
        if !connection.begun_to_receive && looked != Ok(false) {
            // What the peer sent before it had the connection comes first.
            if !receive_all(&mut self.below, now, left, sink) {
                return false;
            }
            connection.begun_to_receive = true;
        }
        let mut corrupt = connection.corrupt.or(looked.err());
        while *left > 0 && corrupt.is_none() {
            match connection.rings.receive(&mut self.buffer, may_stay) {
                Ok(Some((len, addressing))) => {
                    *left -= 1;
                    connection.received += 1;
                    self.counters.rx_datagrams += 1;
                    self.counters.rx_bytes += len as u64;
                    let id = match dst {
                        IpAddr::V4(_) => HeaderId::Seen { id: addressing.id, flags: DF },
                        IpAddr::V6(_) => HeaderId::None,
                    };
                    sink(Datagram {
                        src: connection.peer.address,
                        dst,
                        sport: addressing.sport,
                        tos: addressing.tos,
                        ttl: addressing.ttl,
                        id,
                        ip_header: None,
                        bytes: &self.buffer[..len],
                        has_icrc: addressing.has_icrc || asks_for_icrcs,
                        record: connection.rings.record_taken(),
                    });
                    if connection.rings.has_read_much() {
                        connection.publish_head();
                    }
                }
                Ok(None) => break,
                Err(found) => corrupt = Some(found),
            }
        }
        if corrupt.is_some() {
            self.give_up(now, index);
        } else if connection.ended && *left > 0 {
            self.unflushed.retain(|&other| other != index);
            self.connections.end(index);
        }
        *left > 0
    }
}

/// Receives from a link, and takes what came from `left`.
fn receive_some(
    link: &mut impl Link,
    now: Time,
    left: &mut usize,
    sink: &mut dyn FnMut(Datagram<'_>),
) -> Overrun {
    // Not by its counters: asking a socket for these is a system call.
    let mut received = 0;
    let overrun = link.receive(now, *left, &mut |datagram| {
        received += 1;
        sink(datagram);
    });
    *left = left.saturating_sub(received);
    overrun
}

/// Receives everything that has come on a link. False if `left` did not suffice.
fn receive_all(
    link: &mut impl Link,
    now: Time,
    left: &mut usize,
    sink: &mut dyn FnMut(Datagram<'_>),
) -> bool {
    loop {
        match receive_some(link, now, left, sink) {
            Overrun::Drained => return true,
            Overrun::Unknown if *left > 0 => {}
            _ => return false,
        }
    }
}

fn facts(src: IpAddr, dst: IpAddr, id: u16) -> Option<IpFacts> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(IpFacts::V4 { src, dst, id, flags_frag: DF }),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(IpFacts::V6 { src, dst }),
        _ => None,
    }
}

impl<L: Link> Link for ShmLink<L> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.reserved = None;
        if (1..=MAX_DATAGRAM).contains(&len)
            && let Some(index) = self.connection_for(now, flow)
            && let Some(ip) = facts(flow.src, flow.dst, self.next_id)
        {
            return self.reserve_on_connection(now, index, flow, ip, len);
        }
        self.below_until = now + BELOW_ACTIVE;
        self.unflushed_below = true;
        self.below.reserve(now, flow, len)
    }

    fn reserved(&self) -> &[u8] {
        match self.reserved {
            Some(index) => self.connections.reserved(index),
            None => self.below.reserved(),
        }
    }

    #[inline]
    fn commit(&mut self, now: Time) {
        let Some(index) = self.reserved.take() else { return self.below.commit(now) };
        let Some(connection) = self.connections.connection(index) else { return };
        if !std::mem::replace(&mut connection.queued, true) {
            self.unflushed.push(index);
        }
        connection.sent += 1;
        self.counters.tx_datagrams += 1;
        self.counters.tx_bytes += connection.rings.reserved().len() as u64;
        connection.rings.commit();
    }

    fn show(&mut self) {
        for &index in &self.unflushed {
            if let Some(connection) = self.connections.connection(index) {
                connection.rings.show();
            }
        }
    }

    fn flush(&mut self, now: Time) {
        while let Some(index) = self.unflushed.pop() {
            if let Some(connection) = self.connections.connection(index) {
                connection.flush();
            }
            self.counters.tx_calls += 1;
        }
        if self.unflushed_below {
            self.below.flush(now);
            self.unflushed_below = self.below.is_blocked();
            self.watch_below();
        }
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        if now >= self.next_look || self.connections.is_watched() {
            self.look(now);
        }
        let mut left = budget;
        // The link below has its turn behind the last connection.
        let below = self.connections.places();
        let mut overrun = Overrun::Drained;
        for turn in (self.first..=below).chain(0..self.first.min(below + 1)) {
            if turn < below {
                if !self.receive_from(now, turn, &mut left, sink) {
                    overrun = Overrun::Budget;
                }
            } else if now < self.below_until {
                let before = left;
                let found = receive_some(&mut self.below, now, &mut left, sink);
                if overrun == Overrun::Drained {
                    overrun = found;
                }
                if left < before {
                    self.below_until = now + BELOW_ACTIVE;
                }
            }
            if left == 0 {
                self.first = (turn + 1) % (below + 1);
                self.connections.leave_more();
                return Overrun::Budget;
            }
        }
        overrun
    }

    fn receives_in_memory(&self, now: Time) -> bool {
        now >= self.below_until && self.connections.places() > 0
    }

    #[inline]
    fn sends_in_memory(&mut self, now: Time, flow: &Flow) -> bool {
        self.connection_for(now, flow).is_some()
    }

    #[inline]
    fn is_quiet(&mut self, now: Time) -> bool {
        now < self.next_look
            && now >= self.below_until
            && !self.unflushed_below
            && !self.connections.is_watched()
            && self.connections.are_quiet()
    }

    fn has_room(&mut self, now: Time, flow: &Flow, len: usize) -> bool {
        let to = flow.slot.map(|slot| Endpoint { address: flow.dst, slot: Some(slot) });
        // A full ring says so by itself.
        to.is_some_and(|to| self.connections.is_there(to)) || self.below.has_room(now, flow, len)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = self.gives_up_at.min(self.connections.sweep_at());
        let below = self.below.poll_timeout().unwrap_or(Time::NEVER);
        Some(own.min(below)).filter(|&at| at != Time::NEVER)
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.connections.descriptor())
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        let busy = self.connections.watch(sleeper);
        if busy || sleeper != Sleeper::Caller {
            self.next_look = Time::ZERO;
        }
        busy
    }

    fn caller_wake_fd(&self) -> Option<RawFd> {
        Some(self.connections.caller_wake_fd())
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        let joined = self.below.join(group);
        self.watch_below();
        joined
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        let left = self.below.leave(group);
        self.watch_below();
        left
    }

    fn counters(&self) -> LinkCounters {
        let below = self.below.counters();
        LinkCounters {
            tx_datagrams: below.tx_datagrams + self.counters.tx_datagrams,
            tx_bytes: below.tx_bytes + self.counters.tx_bytes,
            tx_calls: below.tx_calls + self.counters.tx_calls,
            tx_errors: below.tx_errors + self.counters.tx_errors,
            rx_datagrams: below.rx_datagrams + self.counters.rx_datagrams,
            rx_bytes: below.rx_bytes + self.counters.rx_bytes,
            shm_tx_datagrams: self.counters.tx_datagrams,
            shm_rx_datagrams: self.counters.rx_datagrams,
            shm_full: self.counters.shm_full,
            shm_corrupt: self.counters.shm_corrupt,
            shm_fallbacks: self.connections.fallbacks,
            shm_bad_hello: self.connections.bad_hellos,
            ..below
        }
    }

    fn reaches(&self) -> Vec<Reach> {
        self.connections.reaches()
    }

    fn stop_segmenting(&mut self) {
        self.below.stop_segmenting();
        self.capabilities.segments = 1;
    }

    fn keep_icrcs(&mut self) {
        self.keeps_icrcs = true;
        self.below.keep_icrcs();
    }

    fn leave_payloads(&mut self) {
        self.leaves_payloads = true;
        self.below.leave_payloads();
    }

    delegate_link!(self => self.below;
        is_blocked sharing readdress packet_memory show_headers
    );
}
