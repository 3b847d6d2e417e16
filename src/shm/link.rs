//! The link itself.

use std::io;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use softrnic_wire::{DF, IpFacts, Time, UdpFacts};

use softrnic_link::FrameAudit;
use softrnic_link::{
    Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Part, Reach, Sharing, Sleeper,
    TxError, TxSlot,
};

use crate::hello::{self, Endpoint};
use crate::ring::{Addressing, MAX_DATAGRAM, NoRoom};
use crate::roads::Roads;

#[cfg(test)]
mod tests;

/// A stream to the process that is reached through shared memory at a part of an address, if it is this user's.
pub fn stream_to(address: IpAddr, part: Part) -> Option<OwnedFd> {
    hello::ask(Endpoint { address, part: Some(part) }).ok().map(|(socket, _)| socket)
}

/// A caller that polls asks the kernel this often for what is not in the rings.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// After a datagram on the link below, that is asked each time for so long.
const BELOW_ACTIVE: Duration = Duration::from_millis(1);

/// See the [crate](crate).
pub struct ShmLink<L> {
    below: L,
    pub(crate) roads: Roads,
    capabilities: Capabilities,
    /// Of the roads alone.
    counters: LinkCounters,
    below_watched: Option<(RawFd, bool)>,
    /// Where the slot that was reserved last is.
    reserved: Option<usize>,
    next_id: u16,
    /// The link below has something that was not flushed.
    unflushed_below: bool,
    /// Roads with something queued since the last flush.
    unflushed: Vec<usize>,
    /// The road that is read first, so that none has to wait for those before it. Behind the last, the link below.
    first: usize,
    next_look: Time,
    below_until: Time,
    /// When to stop waiting for a peer that does not read; never, if none is waited for.
    gives_up_at: Time,
    buffer: Box<[u8; MAX_DATAGRAM]>,
}

impl<L: Link> ShmLink<L> {
    /// Adds roads to a link whose only address is `address`.
    ///
    /// # Errors
    /// The kernel has no such memory, or another socket has the address' name; the link comes back.
    pub fn new(below: L, address: IpAddr) -> Result<ShmLink<L>, (L, io::Error)> {
        let part = below.capabilities().part;
        match Roads::open(Endpoint { address, part }) {
            Ok(roads) => {
                let mut capabilities = below.capabilities().clone();
                capabilities.mode.push_str(", shared memory on this machine");
                capabilities.shared_memory = true;
                let mut link = ShmLink {
                    below,
                    roads,
                    capabilities,
                    counters: LinkCounters::default(),
                    below_watched: None,
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

    /// The link below may wait for other things by now.
    fn watch_below(&mut self) {
        let wanted = self.below.descriptor().map(|fd| (fd, self.below.is_blocked()));
        if self.below_watched == wanted {
            return;
        }
        if let Some((fd, _)) = self.below_watched.take() {
            // It may be closed by now, which has removed it.
            let _ = self.roads.watch_below(libc::EPOLL_CTL_DEL, fd, 0);
        }
        if let Some((fd, blocked)) = wanted {
            let events = if blocked { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
            if self.roads.watch_below(libc::EPOLL_CTL_ADD, fd, events).is_ok() {
                self.below_watched = wanted;
            }
        }
    }

    #[cold]
    fn look(&mut self, now: Time) {
        self.next_look = now + LOOK_INTERVAL;
        if self.roads.look(now) {
            self.below_until = now + BELOW_ACTIVE;
        }
        if now >= self.roads.sweep_at() {
            self.roads.sweep(now);
        }
        if now >= self.gives_up_at {
            self.gives_up_at = Time::NEVER;
        }
    }

    /// The road for datagrams to a destination, if they can take one.
    #[inline]
    fn road_for(&mut self, now: Time, flow: &Flow) -> Option<usize> {
        if flow.src != self.roads.own.address {
            return None;
        }
        // Without a part, only the kernel can tell which process it is for.
        let index = self.roads.to(now, Endpoint { address: flow.dst, part: Some(flow.part?) })?;
        let road = self.roads.road(index)?;
        // It must not overtake what waits below.
        road.begun_to_send = road.begun_to_send || !self.below.is_blocked();
        road.begun_to_send.then_some(index)
    }

    #[inline]
    fn reserve_on_road(
        &mut self,
        now: Time,
        index: usize,
        flow: &Flow,
        ip: IpFacts,
        len: usize,
    ) -> Result<TxSlot<'_>, TxError> {
        match self.roads.road(index).map(|road| road.rings.reserve(len)) {
            Some(Ok(())) => {}
            Some(Err(NoRoom::Full)) => return Err(self.full(now, index)),
            Some(Err(NoRoom::Corrupt(_))) => {
                self.give_up(now, index);
                return Err(TxError::Unreachable);
            }
            None => return Err(TxError::Unreachable),
        }
        let addressing = Addressing { sport: flow.sport, id: self.next_id, tos: flow.tos, ttl: flow.ttl };
        self.next_id = self.next_id.wrapping_add(1);
        self.reserved = Some(index);
        let bytes = self.roads.road(index).map_or(&mut [][..], |road| road.rings.slot(addressing));
        Ok(TxSlot { bytes, facts: UdpFacts::roce(ip, flow.sport) })
    }

    /// The peer has to read first. One that does not is waited for only so long: what a QP sends to others must not wait
    /// behind that for ever.
    fn full(&mut self, now: Time, index: usize) -> TxError {
        let Some(road) = self.roads.road(index) else { return TxError::Unreachable };
        let (until, begins) = road.waits_until(now);
        self.counters.shm_full += u64::from(begins);
        if now < until {
            self.gives_up_at = self.gives_up_at.min(until);
            return TxError::Full;
        }
        self.counters.tx_errors += 1;
        TxError::Unreachable
    }

    /// The peer of a road violates the ring protocol.
    #[cold]
    fn give_up(&mut self, now: Time, index: usize) {
        self.counters.shm_corrupt += 1;
        self.unflushed.retain(|&other| other != index);
        self.roads.give_up(now, index);
    }

    /// Hands what a road has brought to `sink`, as far as `left` goes. Returns whether it was all.
    #[inline]
    fn receive_from(
        &mut self,
        now: Time,
        index: usize,
        left: &mut usize,
        sink: &mut dyn FnMut(Datagram<'_>),
    ) -> bool {
        let dst = self.roads.own.address;
        let Some(road) = self.roads.road(index) else { return true };
        let looked = road.rings.look();
        if looked == Ok(false) {
            road.tell();
        }
        if !road.begun_to_receive && looked != Ok(false) {
            // What the peer sent before it had the road comes first.
            if !receive_all(&mut self.below, now, left, sink) {
                return false;
            }
            road.begun_to_receive = true;
        }
        let mut corrupt = road.corrupt.or(looked.err());
        while *left > 0 && corrupt.is_none() {
            match road.rings.receive(&mut self.buffer) {
                Ok(Some((len, addressing))) => {
                    *left -= 1;
                    road.received += 1;
                    self.counters.rx_datagrams += 1;
                    self.counters.rx_bytes += len as u64;
                    let id = match dst {
                        IpAddr::V4(_) => HeaderId::Seen { id: addressing.id, flags: DF },
                        IpAddr::V6(_) => HeaderId::None,
                    };
                    sink(Datagram {
                        src: road.peer.address,
                        dst,
                        sport: addressing.sport,
                        tos: addressing.tos,
                        ttl: addressing.ttl,
                        id,
                        ip_header: None,
                        bytes: &self.buffer[..len],
                    });
                    if road.rings.has_read_much() {
                        road.tell();
                    }
                }
                Ok(None) => break,
                Err(found) => corrupt = Some(found),
            }
        }
        if corrupt.is_some() {
            self.give_up(now, index);
        } else if road.ended && *left > 0 {
            self.unflushed.retain(|&other| other != index);
            self.roads.end(index);
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
            && let Some(index) = self.road_for(now, flow)
            && let Some(ip) = facts(flow.src, flow.dst, self.next_id)
        {
            return self.reserve_on_road(now, index, flow, ip, len);
        }
        self.below_until = now + BELOW_ACTIVE;
        self.unflushed_below = true;
        self.below.reserve(now, flow, len)
    }

    fn reserved(&self) -> &[u8] {
        match self.reserved {
            Some(index) => self.roads.reserved(index),
            None => self.below.reserved(),
        }
    }

    #[inline]
    fn commit(&mut self, now: Time) {
        let Some(index) = self.reserved.take() else { return self.below.commit(now) };
        let Some(road) = self.roads.road(index) else { return };
        if !std::mem::replace(&mut road.queued, true) {
            self.unflushed.push(index);
        }
        road.sent += 1;
        self.counters.tx_datagrams += 1;
        self.counters.tx_bytes += road.rings.reserved().len() as u64;
        road.rings.commit();
    }

    fn show(&mut self) {
        for &index in &self.unflushed {
            if let Some(road) = self.roads.road(index) {
                road.rings.show();
            }
        }
    }

    fn flush(&mut self, now: Time) {
        while let Some(index) = self.unflushed.pop() {
            if let Some(road) = self.roads.road(index) {
                road.flush();
            }
            self.counters.tx_calls += 1;
        }
        if self.unflushed_below {
            self.below.flush(now);
            self.unflushed_below = self.below.is_blocked();
            self.watch_below();
        }
    }

    fn is_blocked(&self) -> bool {
        self.below.is_blocked()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        if now >= self.next_look || self.roads.is_watched() {
            self.look(now);
        }
        let mut left = budget;
        // The link below has its turn behind the last road.
        let below = self.roads.places();
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
                self.roads.leave_more();
                return Overrun::Budget;
            }
        }
        overrun
    }

    fn receives_in_memory(&self, now: Time) -> bool {
        now >= self.below_until && self.roads.places() > 0
    }

    #[inline]
    fn sends_in_memory(&mut self, now: Time, flow: &Flow) -> bool {
        self.road_for(now, flow).is_some()
    }

    #[inline]
    fn is_quiet(&mut self, now: Time) -> bool {
        now < self.next_look
            && now >= self.below_until
            && !self.unflushed_below
            && !self.roads.is_watched()
            && self.roads.are_quiet()
    }

    fn has_room(&mut self, now: Time, flow: &Flow, len: usize) -> bool {
        let to = flow.part.map(|part| Endpoint { address: flow.dst, part: Some(part) });
        // A full ring says so by itself.
        to.is_some_and(|to| self.roads.is_there(to)) || self.below.has_room(now, flow, len)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = self.gives_up_at.min(self.roads.sweep_at());
        let below = self.below.poll_timeout().unwrap_or(Time::NEVER);
        Some(own.min(below)).filter(|&at| at != Time::NEVER)
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.roads.descriptor())
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        let busy = self.roads.watch(sleeper);
        if busy || sleeper != Sleeper::Caller {
            self.next_look = Time::ZERO;
        }
        busy
    }

    fn caller_bell(&self) -> Option<RawFd> {
        Some(self.roads.caller_bell())
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
            shm_fallbacks: self.roads.fallbacks,
            shm_bad_hello: self.roads.bad_hellos,
            ..below
        }
    }

    fn reaches(&self) -> Vec<Reach> {
        self.roads.reaches()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        self.below.sharing()
    }

    fn readdress(&mut self, addresses: &[IpAddr]) {
        self.below.readdress(addresses);
    }

    fn packet_memory(&self) -> Option<FrameAudit> {
        self.below.packet_memory()
    }

    fn stop_segmenting(&mut self) {
        self.below.stop_segmenting();
        self.capabilities.segments = 1;
    }

    fn show_headers(&mut self) {
        self.below.show_headers();
    }
}
