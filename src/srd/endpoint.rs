//! All connections of a NIC.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use softrnic_transport::TransmitError;
use softrnic_wire::{Bth, Psn, SRD_HEADERS_LEN, SrdBody, SrdHeaders, SrdPacket, SrdPsn, Time};

use crate::code::Code;
use crate::connection::Connection;
use crate::counters::Counter;
use crate::host::{Host, Payload, Post};
use crate::receiving::Ends;
use crate::tuning::{FORGET, MAX_REPLIES};

/// A NIC that this one speaks with: two addresses, and which NIC of the second it is, if several have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// Our address.
    pub local: IpAddr,
    /// Its address.
    pub remote: IpAddr,
    /// Its place there, by a number that its queue pairs have in common.
    pub place: u8,
}

/// Limits of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The most bytes that a packet carries.
    pub payload: u32,
    /// The longest SEND.
    pub max_message: u32,
    /// The longest WRITE or READ.
    pub max_rdma: u32,
    /// The most connections.
    pub max_peers: usize,
}

impl Config {
    /// The most bytes that a packet carries where the MTU is this.
    pub fn payload_of(mtu: u32) -> u32 {
        mtu.saturating_sub(SRD_HEADERS_LEN as u32).max(128)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config { payload: Config::payload_of(4096), max_message: 8928, max_rdma: 1 << 30, max_peers: 4096 }
    }
}

/// What [`Endpoint::poll_transmit`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Packets sent.
    pub sent: usize,
    /// The link is full.
    pub full: bool,
    /// There is more to send.
    pub more: bool,
}

/// An answer to somebody who means a connection that there is not.
struct Reply {
    peer: Peer,
    ends: Ends,
    tag: u32,
    unknown: u32,
}

/// The connections of a NIC. `Q` names queue pairs, `D` describes local bytes.
pub struct Endpoint<Q, D> {
    config: Config,
    by_peer: BTreeMap<Peer, usize>,
    connections: Vec<Option<Box<Connection<Q, D>>>>,
    free: Vec<usize>,
    /// Those that may have something to send, each once.
    active: VecDeque<usize>,
    timers: BTreeSet<(Time, usize)>,
    replies: VecDeque<Reply>,
}

impl<Q: Copy + Eq, D> Endpoint<Q, D> {
    /// One without connections.
    pub fn new(config: Config) -> Endpoint<Q, D> {
        Endpoint {
            config,
            by_peer: BTreeMap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            active: VecDeque::new(),
            timers: BTreeSet::new(),
            replies: VecDeque::new(),
        }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.by_peer.len()
    }

    /// The limits.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The MTU has changed.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.config.payload = Config::payload_of(mtu);
    }

    /// The tags of a connection, ours first, and the next PSN that is expected there.
    #[cfg(test)]
    pub(crate) fn tags(&self, peer: &Peer) -> Option<(u32, u32, SrdPsn)> {
        let connection = self.connections[*self.by_peer.get(peer)?].as_ref()?;
        Some((connection.tag, connection.peer_tag, connection.expected()))
    }

    /// Takes a message to a peer. It completes later, or at once if that is not possible.
    pub fn post<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, peer: Peer, post: Post<Q, D>, host: &mut H) {
        let Some(place) = self.find(peer, now, host) else {
            return host.complete_send(post.qp, post.wqe, Code::QpInternal);
        };
        self.with(place, |connection, _| connection.post(now, post, host));
    }

    /// A packet whose ICRC and P_Key are verified.
    pub fn on_packet<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        peer: Peer,
        packet: &SrdPacket<'_>,
        host: &mut H,
    ) {
        host.count(Counter::Received);
        let headers = &packet.headers;
        let known = self.by_peer.get(&peer).copied();
        let Some(place) = known else {
            return self.on_stranger(now, peer, packet, host);
        };
        let Some(connection) = self.connections[place].as_deref() else { return };
        let (ours, theirs) = (connection.tag, connection.peer_tag);
        if headers.body == SrdBody::Reset {
            // It repeats both tags of what it answers: that may have been another connection's, or somebody else's.
            if headers.dst_tag == ours && headers.src_tag == theirs && theirs != 0 {
                self.with(place, |connection, _| connection.on_reset(now, host));
            } else {
                host.count(Counter::UnknownTag);
            }
        } else if headers.dst_tag == ours && headers.src_tag != 0 {
            self.with(place, |connection, config| {
                if theirs == 0 {
                    connection.peer_tag = headers.src_tag;
                    if headers.body == SrdBody::Hello {
                        connection.on_hello();
                    }
                } else if theirs != headers.src_tag {
                    connection.on_new_peer(now, headers.src_tag, host);
                }
                connection.on_packet(now, packet, config, host);
            });
        } else if headers.dst_tag == 0 && headers.src_tag != 0 && headers.body.opcode().is_numbered() {
            self.with(place, |connection, config| {
                if theirs == 0 || theirs == headers.src_tag {
                    connection.peer_tag = headers.src_tag;
                    connection.on_packet(now, packet, config, host);
                } else {
                    // Somebody else at this address, or who says so: it has to show that it gets what we send.
                    host.count(Counter::UnknownTag);
                    connection.hello = Some((Ends::of_answer(packet), headers.src_tag));
                }
            });
        } else {
            self.refuse(peer, packet, host);
        }
    }

    /// A packet of somebody without a connection.
    fn on_stranger<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        peer: Peer,
        packet: &SrdPacket<'_>,
        host: &mut H,
    ) {
        let headers = &packet.headers;
        if headers.dst_tag != 0 || headers.src_tag == 0 || !headers.body.opcode().is_numbered() {
            return self.refuse(peer, packet, host);
        }
        let Some(place) = self.find(peer, now, host) else { return host.count(Counter::TooManyPeers) };
        self.with(place, |connection, config| {
            connection.peer_tag = headers.src_tag;
            connection.on_packet(now, packet, config, host);
        });
    }

    /// Tells a peer that there is no such connection.
    fn refuse<H: Host<Qp = Q, Data = D>>(&mut self, peer: Peer, packet: &SrdPacket<'_>, host: &mut H) {
        host.count(Counter::UnknownTag);
        let headers = &packet.headers;
        let asks = headers.body.opcode().is_numbered() || headers.body == SrdBody::Hello;
        let answers = asks && headers.src_tag != 0;
        let told = |reply: &Reply| reply.peer == peer && reply.tag == headers.src_tag;
        if answers && self.replies.len() < MAX_REPLIES && !self.replies.iter().any(told) {
            let (tag, unknown) = (headers.src_tag, headers.dst_tag);
            self.replies.push_back(Reply { peer, ends: Ends::of_answer(packet), tag, unknown });
        }
    }

    /// The connection with a peer, a new one if there is none. Nothing if there may be no more.
    fn find<H: Host<Qp = Q, Data = D>>(&mut self, peer: Peer, now: Time, host: &mut H) -> Option<usize> {
        if let Some(&place) = self.by_peer.get(&peer) {
            return Some(place);
        }
        if self.by_peer.len() >= self.config.max_peers {
            self.forget_one(now)?;
        }
        let connection = Box::new(Connection::new(peer, now, host));
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.connections.push(None);
                self.connections.len() - 1
            }
        };
        self.connections[place] = Some(connection);
        self.by_peer.insert(peer, place);
        Some(place)
    }

    /// Forgets the connection that has been idle for longest, if it has been for long.
    fn forget_one(&mut self, now: Time) -> Option<()> {
        let idle = |connection: &&Connection<Q, D>| {
            connection.is_idle() && !connection.active && now.since(connection.heard) >= FORGET
        };
        let connections = self.connections.iter().flatten().map(Box::as_ref);
        let peer = connections.filter(idle).min_by_key(|connection| connection.heard)?.peer;
        let place = self.by_peer.remove(&peer)?;
        let connection = self.connections[place].take()?;
        self.timers.remove(&(connection.timer, place));
        self.free.push(place);
        Some(())
    }

    /// Drives a connection, and notes when it is to be driven again.
    fn with<T>(
        &mut self,
        place: usize,
        drive: impl FnOnce(&mut Connection<Q, D>, &Config) -> T,
    ) -> Option<T> {
        let connection = self.connections.get_mut(place)?.as_deref_mut()?;
        let result = drive(connection, &self.config);
        let next = connection.deadline();
        if next < connection.timer {
            // An entry that is too early is cheaper than moving it each time.
            self.timers.remove(&(connection.timer, place));
            connection.timer = next;
            self.timers.insert((next, place));
        }
        if !connection.active && connection.wants_transmit() {
            connection.active = true;
            self.active.push_back(place);
        }
        Some(result)
    }

    /// Sends at most `budget` packets.
    pub fn poll_transmit<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        budget: usize,
        host: &mut H,
    ) -> Progress {
        let mut sent = 0;
        while let Some(reply) = self.replies.front() {
            if sent >= budget || !reply.transmit(host) {
                return Progress { sent, full: sent < budget, more: true };
            }
            sent += 1;
            self.replies.pop_front();
        }
        while let Some(&place) = self.active.front() {
            if sent >= budget {
                return Progress { sent, full: false, more: true };
            }
            let quantum = (budget - sent).min(64);
            let outcome = self.with(place, |connection, config| {
                let (count, full) = connection.poll_transmit(now, quantum, config, host);
                connection.active = full || count == quantum;
                (count, full, connection.active)
            });
            let Some((count, full, more)) = outcome else {
                self.active.pop_front();
                continue;
            };
            sent += count;
            // If it wants more and has just become active again, it is at the end of the list.
            match (full, more) {
                (true, _) => return Progress { sent, full, more: true },
                (false, true) => self.active.rotate_left(1),
                (false, false) => {
                    self.active.pop_front();
                }
            }
        }
        Progress { sent, full: false, more: false }
    }

    /// Whether something could be sent now.
    pub fn has_work(&self) -> bool {
        !self.active.is_empty() || !self.replies.is_empty()
    }

    /// When [`on_timeout`](Self::on_timeout) is due; never, if nothing waits.
    pub fn poll_timeout(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Does what is due.
    pub fn on_timeout<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, host: &mut H) {
        while let Some(&(at, place)) = self.timers.first() {
            if at > now {
                return;
            }
            self.timers.pop_first();
            self.with(place, |connection, _| {
                connection.timer = Time::NEVER;
                if let Some(code) = connection.on_timeout(now, host) {
                    connection.give_up(now, code, host);
                }
            });
        }
    }

    /// A queue pair leaves RTS, or is destroyed: its messages end, and so do answers through it.
    pub fn flush<H: Host<Qp = Q, Data = D>>(&mut self, qp: Q, host: &mut H) {
        for place in 0..self.connections.len() {
            self.with(place, |connection, config| connection.flush(qp, config, host));
        }
    }
}

impl Reply {
    /// Sends it. Returns whether that was possible.
    fn transmit<H: Host>(&self, host: &mut H) -> bool {
        let bth = Bth::new(self.ends.to, Psn::ZERO);
        let headers = SrdHeaders {
            bth,
            src_qpn: self.ends.from,
            src_tag: self.unknown,
            dst_tag: self.tag,
            psn: SrdPsn(0),
            body: SrdBody::Reset,
        };
        let sent = host.transmit(&self.peer, &headers, Payload::None);
        if sent.is_ok() {
            host.count(Counter::Sent);
        }
        sent != Err(TransmitError::Full)
    }
}
