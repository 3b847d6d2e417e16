//! The link between a NIC and the fabric.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use softrnic_link::{Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, TxError, TxSlot};
use softrnic_wire::{DF, IpFacts, Time, UdpFacts};

use crate::packet::Packet;
use crate::spares::Spares;

/// What a NIC has sent and not yet got rid of, and what has arrived for it.
pub struct StudyPort {
    capabilities: Capabilities,
    counters: LinkCounters,
    reserved: Option<Box<Packet>>,
    pub outbox: VecDeque<Box<Packet>>,
    pub inbox: VecDeque<Box<Packet>>,
    /// A reservation was refused: the NIC waits for room.
    pub is_full: bool,
    spares: Spares<Packet>,
}

impl StudyPort {
    pub fn new(ip_mtu: usize) -> StudyPort {
        let capabilities = Capabilities {
            max_datagram: softrnic_wire::MAX_TRANSPORT_LEN,
            ip_mtu,
            sees_ip_header: true,
            receive_buffer: usize::MAX,
            ..Capabilities::none("fabric")
        };
        StudyPort {
            capabilities,
            counters: LinkCounters::default(),
            reserved: None,
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            is_full: false,
            spares: Spares::default(),
        }
    }

    /// The next packet to leave.
    pub fn take(&mut self) -> Option<Box<Packet>> {
        self.outbox.pop_front()
    }

    /// The fabric has no room for it: it leaves first, later.
    pub fn put_back(&mut self, packet: Box<Packet>) {
        self.outbox.push_front(packet);
    }
}

impl Link for StudyPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, _now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.reserved = None;
        if len == 0 || len > self.capabilities.max_datagram {
            return Err(TxError::TooLong);
        }
        // One packet at a time, so that the NIC decides as late as it can what leaves next.
        if !self.outbox.is_empty() {
            self.is_full = true;
            return Err(TxError::Full);
        }
        let ip = match (flow.src, flow.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id: 0, flags_frag: DF },
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
            _ => return Err(TxError::Unreachable),
        };
        let mut packet = self.spares.take();
        (packet.src, packet.dst, packet.sport) = (flow.src, flow.dst, flow.sport);
        (packet.tos, packet.ttl) = (flow.tos, flow.ttl);
        packet.bytes.resize(len, 0);
        let packet = self.reserved.insert(packet);
        Ok(TxSlot { bytes: &mut packet.bytes, facts: UdpFacts::roce(ip, flow.sport), wants_icrc: true })
    }

    fn reserved(&self) -> &[u8] {
        self.reserved.as_ref().map_or(&[], |packet| &packet.bytes)
    }

    fn commit(&mut self, _now: Time) {
        if let Some(packet) = self.reserved.take() {
            self.counters.tx_datagrams += 1;
            self.counters.tx_bytes += packet.bytes.len() as u64;
            self.outbox.push_back(packet);
        }
    }

    fn flush(&mut self, _now: Time) {
        self.reserved = None;
    }

    fn is_blocked(&self) -> bool {
        self.is_full
    }

    fn receive(&mut self, _now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        for _ in 0..budget {
            let Some(packet) = self.inbox.pop_front() else { return Overrun::Drained };
            self.counters.rx_datagrams += 1;
            self.counters.rx_bytes += packet.bytes.len() as u64;
            sink(Datagram {
                src: packet.src,
                dst: packet.dst,
                sport: packet.sport,
                tos: packet.tos,
                ttl: packet.ttl,
                id: if packet.dst.is_ipv4() { HeaderId::Seen { id: 0, flags: DF } } else { HeaderId::None },
                ip_header: None,
                bytes: &packet.bytes,
                has_icrc: true,
                record: None,
            });
            self.spares.keep(packet);
        }
        if self.inbox.is_empty() { Overrun::Drained } else { Overrun::Budget }
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}
