//! Receiving: passes each datagram to the QP that it is for.

use std::net::IpAddr;

use softrnic_link::{Datagram, HeaderId, Link, Overrun, ProcessSlot};
use softrnic_transport::{QpType, Received};
use softrnic_wire::{
    BTH_LEN, Body, DF, IpFacts, Opcode, Packet, ParseError, Pkey, Qpn, ROCE_UDP_PORT, Time, UdpFacts,
    ipv4_checksum, is_srd, verify, verify_either_flush, verify_unknown_id, verify_unknown_id_rxe_flush,
};

use super::objects::QpKey;
use super::srd::is_srd_request;
use super::{DropReason, Engine, Step};

/// RC FLUSH, whose ICRC kernel rxe computes in its own way.
const FLUSH_BYTE: u8 = 0x1C;

/// ECN field: congestion experienced.
const CE: u8 = 0b11;

impl Engine {
    pub(super) fn receive(&mut self, now: Time, link: &mut dyn Link, budget: usize, step: &mut Step) {
        if budget == 0 {
            return;
        }
        let (mut received, mut requests) = (0, false);
        let overrun = link.receive(now, budget, &mut |datagram| {
            received += 1;
            requests |= is_request(datagram.bytes);
            if let Err(reason) = self.on_datagram(now, &datagram) {
                self.drop_datagram(reason);
            }
        });
        step.received += received;
        step.requests |= requests;
        step.more |= overrun == Overrun::Budget;
        self.paused = overrun == Overrun::Paused;
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>) -> Result<(), DropReason> {
        if datagram.bytes.len() < BTH_LEN {
            return Err(DropReason::Malformed);
        }
        let id = match datagram.id {
            HeaderId::Hidden { place } => (self.hidden_id(now, datagram, place)?, DF),
            HeaderId::Seen { id, flags } if !datagram.has_icrc || is_sound(datagram, id, flags) => {
                (id, flags)
            }
            HeaderId::None if !datagram.has_icrc || is_sound(datagram, 0, 0) => (0, 0),
            HeaderId::Seen { .. } | HeaderId::None => return Err(DropReason::Icrc),
        };
        let packet = match Packet::parse(datagram.bytes) {
            Ok(packet) => packet,
            Err(ParseError::UnknownOpcode(byte)) if is_srd(byte) => return self.on_srd(now, datagram),
            Err(_) => return Err(DropReason::Malformed),
        };
        if !packet.bth.pkey.matches(Pkey::DEFAULT) {
            return Err(DropReason::Pkey);
        }
        match packet.bth.dest_qpn {
            Qpn::SMI => Err(DropReason::SpecialQp),
            Qpn::GSI => self.on_management(now, datagram, &packet),
            Qpn::MULTICAST => self.on_multicast(now, datagram, id, &packet),
            qpn => {
                let key = *self.by_number.get(&qpn).ok_or_else(|| self.why_unknown(qpn))?;
                self.deliver(now, key, datagram, id, &packet)
            }
        }
    }

    #[cold]
    fn why_unknown(&self, qpn: Qpn) -> DropReason {
        match self.config.slot {
            Some(slot) if slot != ProcessSlot::of(qpn) => DropReason::OtherProcess,
            _ => DropReason::UnknownQp,
        }
    }

    /// Verifies the ICRC if the link does not show the IPv4 identification; returns the identification.
    fn hidden_id(&mut self, now: Time, datagram: &Datagram<'_>, place: u16) -> Result<u16, DropReason> {
        let IpAddr::V4(src) = datagram.src else { return Err(DropReason::Icrc) };
        let sender = (src, datagram.sport);
        self.hidden_ids.verify(now, sender, place, |guess| recovered_id(datagram, guess))
    }

    /// Passes a packet to a QP, if it comes from the address that the QP is connected to.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        key: QpKey,
        datagram: &Datagram<'_>,
        id: (u16, u16),
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        self.with_qp_and(now, None, key, Some(datagram), |qp, host| {
            let path = &qp.attr().path;
            if qp.service() != QpType::Ud && (datagram.src != path.dst || datagram.dst != path.src) {
                return Err(DropReason::WrongAddress);
            }
            host.io.counts.packets_received += 1;
            host.io.counts.bytes_received += datagram.bytes.len() as u64;
            host.io.ipv4 = datagram.dst.is_ipv4();
            let mut grh = [0; 40];
            if matches!(packet.body, Body::Ud { .. }) {
                grh = network_header(datagram, id);
            }
            let received = Received { ce: datagram.tos & CE == CE, sport: datagram.sport, grh: &grh };
            qp.on_packet(now, packet, received, host);
            host.activate();
            Ok(())
        })
        .unwrap_or(Err(DropReason::UnknownQp))
    }
}

/// Whether the opcode of a datagram is a request.
fn is_request(bytes: &[u8]) -> bool {
    match bytes.first().and_then(|&byte| Opcode::from_byte(byte)) {
        Some(opcode) => opcode.info().is_request,
        None => is_srd_request(bytes),
    }
}

/// Verifies the ICRC with an IPv4 identification and flags.
#[inline]
fn is_sound(datagram: &Datagram<'_>, id: u16, flags_frag: u16) -> bool {
    // By reference: what was stored in pieces is slow to move as a whole.
    facts(datagram, id, flags_frag).as_ref().is_some_and(|facts| {
        verify(facts, datagram.bytes)
            || is_flush(datagram) && verify_either_flush(facts, datagram.bytes).is_some()
    })
}

/// Verifies the ICRC with an IPv4 identification, or else with the one that fits; returns the identification.
#[inline]
fn recovered_id(datagram: &Datagram<'_>, guess: u16) -> Option<u16> {
    let facts = facts(datagram, guess, DF)?;
    verify_unknown_id(&facts, datagram.bytes)
        .or_else(|| is_flush(datagram).then(|| verify_unknown_id_rxe_flush(&facts, datagram.bytes)).flatten())
}

fn is_flush(datagram: &Datagram<'_>) -> bool {
    datagram.bytes[0] == FLUSH_BYTE
}

#[inline]
fn facts(datagram: &Datagram<'_>, id: u16, flags_frag: u16) -> Option<UdpFacts> {
    let ip = match (datagram.src, datagram.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id, flags_frag },
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
        _ => return None,
    };
    Some(UdpFacts { ip, src_port: datagram.sport, dst_port: ROCE_UDP_PORT })
}

/// The 40 bytes in front of a UD payload: the IPv6 header, or zeros and the IPv4 header (as in rxe).
fn network_header(datagram: &Datagram<'_>, (id, flags): (u16, u16)) -> [u8; 40] {
    let mut grh = [0; 40];
    if let Some(header) = datagram.ip_header {
        let at = 40 - header.len().min(40);
        grh[at..].copy_from_slice(&header[..40 - at]);
        return grh;
    }
    let udp_len = (datagram.bytes.len() + 8) as u16;
    match (datagram.src, datagram.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = [0; 20];
            ip[0] = 0x45;
            ip[1] = datagram.tos;
            ip[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[6..8].copy_from_slice(&flags.to_be_bytes());
            ip[8] = datagram.ttl;
            ip[9] = 17;
            ip[12..16].copy_from_slice(&src.octets());
            ip[16..20].copy_from_slice(&dst.octets());
            let checksum = ipv4_checksum(&ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            grh[20..].copy_from_slice(&ip);
        }
        (src, dst) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V6(v6) => v6.octets(),
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            };
            grh[0] = 0x60 | datagram.tos >> 4;
            grh[1] = datagram.tos << 4;
            grh[4..6].copy_from_slice(&udp_len.to_be_bytes());
            grh[6] = 17;
            grh[7] = datagram.ttl;
            grh[8..24].copy_from_slice(&octets(src));
            grh[24..40].copy_from_slice(&octets(dst));
        }
    }
    grh
}
