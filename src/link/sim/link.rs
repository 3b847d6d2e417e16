//! An attachment to a fabric.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use softrnic_wire::{
    DF, EthHeader, FrameHeader, IPV4_LEN, IPV6_LEN, IpFacts, IpHeader, MAX_FRAME_HEADER_LEN,
    MAX_TRANSPORT_LEN, ROCE_UDP_PORT, Time, UDP_LEN, UdpFacts,
};

use crate::rng::Rng;
use crate::{Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, RawFd, TxError, TxSlot};

use super::fabric::Parcel;
use super::{Fabric, SimOptions};

/// A link into a [`Fabric`].
#[derive(Debug)]
pub struct SimLink {
    fabric: Fabric,
    address: IpAddr,
    options: SimOptions,
    capabilities: Capabilities,
    counters: LinkCounters,
    next_id: u16,
    reserved: Option<Parcel>,
    outbox: VecDeque<Parcel>,
    /// When everything handed to the fabric has been sent.
    busy_until: Time,
    blocked_until: Option<Time>,
}

impl SimLink {
    pub(super) fn new(fabric: Fabric, address: IpAddr, options: SimOptions) -> SimLink {
        let header = UDP_LEN + if address.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let capabilities = Capabilities {
            mode: format!("sim {address}"),
            max_datagram: options.ip_mtu.saturating_sub(header).min(MAX_TRANSPORT_LEN),
            ip_mtu: options.ip_mtu,
            sees_ip_header: options.sees_ip_header,
            segments: 1,
            receive_buffer: options.receive_buffer,
            zero_copy: false,
            shared_memory: false,
            slot: None,
        };
        // The first value does not matter, as long as a run is repeatable.
        let first_id = Rng::stream(0, address.to_string().as_bytes()).next() as u16;
        SimLink {
            fabric,
            address,
            options,
            capabilities,
            counters: LinkCounters::default(),
            next_id: if options.counts_ids { first_id } else { 0 },
            reserved: None,
            outbox: VecDeque::new(),
            busy_until: Time::ZERO,
            blocked_until: None,
        }
    }

    /// The address at which it is attached.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The fabric it is attached to.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn send_time(&self, bytes: usize) -> Duration {
        let Some(bandwidth) = self.options.bandwidth else { return Duration::ZERO };
        let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(bandwidth.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        self.fabric.lock().detach(self.address);
    }
}

impl Link for SimLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, _now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.reserved = None;
        if len == 0 || len > self.capabilities.max_datagram {
            return Err(TxError::TooLong);
        }
        let ip = match (flow.src, flow.dst) {
            _ if flow.src != self.address => return Err(TxError::Unreachable),
            (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id: self.next_id, flags_frag: DF },
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
            _ => return Err(TxError::Unreachable),
        };
        let queued: usize = self.outbox.iter().map(Parcel::wire_len).sum();
        if queued + len > self.options.transmit_buffer {
            return Err(TxError::Full);
        }
        let parcel = self.reserved.insert(Parcel {
            src: flow.src,
            dst: flow.dst,
            sport: flow.sport,
            tos: flow.tos,
            ttl: flow.ttl,
            id: self.next_id,
            bytes: vec![0xA5; len],
        });
        Ok(TxSlot { bytes: &mut parcel.bytes, facts: UdpFacts::roce(ip, flow.sport), wants_icrc: true })
    }

    fn reserved(&self) -> &[u8] {
        self.reserved.as_ref().map_or(&[], |parcel| &parcel.bytes)
    }

    fn commit(&mut self, _now: Time) {
        if let Some(parcel) = self.reserved.take() {
            if self.options.counts_ids {
                self.next_id = self.next_id.wrapping_add(1);
            }
            self.outbox.push_back(parcel);
        }
    }

    fn flush(&mut self, now: Time) {
        let mut fabric = self.fabric.lock();
        fabric.advance(now);
        self.reserved = None;
        self.blocked_until = None;
        self.counters.tx_calls += u64::from(!self.outbox.is_empty());
        let spool_time = self.send_time(self.options.transmit_buffer);
        while let Some(parcel) = self.outbox.pop_front() {
            let backlog = self.busy_until.since(now);
            if backlog > spool_time {
                self.blocked_until = Some(now + (backlog - spool_time));
                self.outbox.push_front(parcel);
                return;
            }
            self.busy_until = self.busy_until.max(now) + self.send_time(parcel.wire_len());
            self.counters.tx_datagrams += 1;
            self.counters.tx_bytes += parcel.bytes.len() as u64;
            fabric.send(self.busy_until, parcel);
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked_until.is_some()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        self.fabric.lock().advance(now);
        for _ in 0..budget {
            // The lock is not held while the datagram is handled.
            let Some(parcel) = self.fabric.lock().take(self.address) else { return Overrun::Drained };
            self.counters.rx_calls += 1;
            self.counters.rx_datagrams += 1;
            self.counters.rx_bytes += parcel.bytes.len() as u64;
            let header = ip_header(&parcel);
            let seen = self.options.sees_ip_header;
            let id = match (parcel.dst, seen) {
                (IpAddr::V6(_), _) => HeaderId::None,
                (IpAddr::V4(_), true) => HeaderId::Seen { id: parcel.id, flags: DF },
                (IpAddr::V4(_), false) => HeaderId::Hidden { place: 0 },
            };
            sink(Datagram {
                src: parcel.src,
                dst: parcel.dst,
                sport: parcel.sport,
                tos: parcel.tos,
                ttl: parcel.ttl,
                id,
                ip_header: header.as_ref().filter(|_| seen).map(|(bytes, len)| &bytes[..*len]),
                bytes: &parcel.bytes,
                has_icrc: true,
                record: None,
            });
        }
        if self.fabric.waiting(self.address) == 0 { Overrun::Drained } else { Overrun::Budget }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.blocked_until
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if !group.is_multicast() || group.is_ipv4() != self.address.is_ipv4() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.fabric.lock().join(self.address, group);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        match self.fabric.lock().leave(self.address, group) {
            true => Ok(()),
            false => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters { rx_overruns: self.fabric.lock().overruns(self.address), ..self.counters }
    }
}

/// The IP header as it is on the wire, and its length.
fn ip_header(parcel: &Parcel) -> Option<([u8; IPV6_LEN], usize)> {
    let (headers, range) = headers(parcel)?;
    let len = range.len() - UDP_LEN;
    let mut bytes = [0; IPV6_LEN];
    bytes[..len].copy_from_slice(&headers[range.start..range.start + len]);
    Some((bytes, len))
}

/// What is on the wire from the IP header on.
pub(super) fn packet(parcel: &Parcel) -> Vec<u8> {
    let headers = headers(parcel);
    let before = headers.as_ref().map_or(&[][..], |(bytes, range)| &bytes[range.clone()]);
    [before, &parcel.bytes].concat()
}

/// The headers down to UDP, and where in them the IP and UDP headers are.
fn headers(parcel: &Parcel) -> Option<([u8; MAX_FRAME_HEADER_LEN], Range<usize>)> {
    let facts = match (parcel.src, parcel.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id: parcel.id, flags_frag: DF },
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
        _ => return None,
    };
    let header = FrameHeader {
        eth: EthHeader::default(),
        ip: IpHeader { facts, tos: parcel.tos, ttl: parcel.ttl, flow_label: 0 },
        src_port: parcel.sport,
        dst_port: ROCE_UDP_PORT,
    };
    let mut frame = [0; MAX_FRAME_HEADER_LEN];
    header.emit(&mut frame, parcel.bytes.len());
    let start = header.eth.wire_len();
    Some((frame, start..start + header.ip.wire_len() + UDP_LEN))
}
