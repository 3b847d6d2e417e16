//! One line per packet.

use std::net::IpAddr;

use softrnic_wire::{
    AtomicEth, Body, CmBody, CmMessage, OPCODES, Op, Packet, Reth, SendTail, ServiceId, SrdBody, SrdPacket,
    Syndrome,
};

use super::clock::Clock;
use super::names::{millis, nak_name, placement_name, selectivity_name};
use super::out::Out;
use crate::capture::Record;
use crate::dissect::{Icrc, Net, Roce, Transport};

/// Writes lines; caches the address texts of recent flows.
#[derive(Debug)]
pub(crate) struct LineWriter {
    addresses: AddressTexts,
}

/// The column at which the opcode ends and the next one begins.
const OPCODE_WIDTH: usize = 28;
/// No opcode's name is longer.
const NAME_MAX: usize = 40;

/// The names of all opcodes, padded to the width of the column, and their resulting lengths.
static NAMES: [([u8; NAME_MAX], usize); 256] = {
    let mut names = [([b' '; NAME_MAX], 0); 256];
    let mut row = 0;
    while row < OPCODES.len() {
        let name = OPCODES[row].name.as_bytes();
        let place = &mut names[OPCODES[row].opcode.byte() as usize];
        let mut i = 0;
        while i < name.len() {
            place.0[i] = name[i];
            i += 1;
        }
        place.1 = if name.len() < OPCODE_WIDTH { OPCODE_WIDTH } else { name.len() };
        row += 1;
    }
    names
};

impl LineWriter {
    pub fn new() -> LineWriter {
        LineWriter { addresses: AddressTexts::new() }
    }

    /// Appends the packet's line.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, clock: &mut Clock, record: &Record<'_>, roce: &Roce<'_>) {
        out.dec_wide(record.number, 7);
        out.push(b' ');
        clock.write(out, record.time_ns);
        out.text("  ");
        let (text, len) = self.addresses.of(roce.net.src(), roce.net.dst());
        match text.first_chunk::<SHORT_ADDRESSES>() {
            Some(block) if *len <= SHORT_ADDRESSES => out.front_of(block, *len),
            _ => out.extend_from_slice(&text[..*len]),
        }
        vlan(out, roce);
        out.text("  ");
        if matches!(roce.net, Net::V1 { .. }) {
            out.text("RoCEv1 ");
        }
        match &roce.transport {
            Transport::Packet(packet) => {
                self.packet(out, roce, packet);
            }
            other => damaged(out, roce, other),
        }
        icrc(out, roce.icrc);
        out.push(b'\n');
    }

    #[inline(always)]
    fn packet(&mut self, out: &mut Vec<u8>, roce: &Roce<'_>, packet: &Packet<'_>) {
        let (name, len) = &NAMES[usize::from(packet.body.opcode().byte())];
        out.front_of(name, *len);
        out.text(" qp ");
        out.hex_of::<6>(packet.bth.dest_qpn.get().into());
        out.text(" psn ");
        out.dec_padded(packet.bth.psn.get().into());
        flags(out, packet);
        if roce.net.congestion_experienced() {
            out.text(" CE");
        }
        match &packet.body {
            Body::Rc(op) => operation(out, op),
            Body::Xrc(xrc) => {
                if let Some(srqn) = xrc.srqn() {
                    out.text(" srq ");
                    out.hex_of::<6>(srqn.get().into());
                }
                operation(out, &xrc.op());
            }
            Body::Uc(op) => operation(out, &Op::from(*op)),
            Body::Ud { deth, imm } => {
                out.text(" src_qp ");
                out.hex_of::<6>(deth.src_qpn.get().into());
                out.text(" qkey ");
                out.hex_of::<8>(deth.qkey.0.into());
                if let Some(imm) = imm {
                    immediate(out, imm.0);
                }
                if let Some(mad) = roce.mad() {
                    match mad.cm() {
                        Some(cm) => connection(out, &cm),
                        None => {
                            out.text("  MAD ");
                            out.text(mad.message_name());
                        }
                    }
                }
            }
            Body::Cnp => {}
            Body::SelectiveAck(aeth) => {
                operation(out, &Op::Acknowledge(*aeth));
                arrived(out, packet);
            }
        }
        out.text(" len ");
        out.dec(packet.payload.len() as u64);
    }
}

#[inline]
fn flags(out: &mut Vec<u8>, packet: &Packet<'_>) {
    let bth = &packet.bth;
    for (set, name) in [(bth.ack_req, " A"), (bth.solicited, " SE"), (bth.fecn, " FECN"), (bth.becn, " BECN")]
    {
        if set {
            out.text(name);
        }
    }
}

/// Which packets a selective acknowledgement says have come, besides those before its PSN.
#[cold]
fn arrived(out: &mut Vec<u8>, packet: &Packet<'_>) {
    let bit = |at: usize| packet.payload.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 != 0);
    let psn = |at: usize| u64::from((packet.bth.psn + at as u32).get());
    let mut separator = " came ";
    let mut at = 0;
    while at < packet.payload.len() * 8 {
        let first = at;
        while bit(at) {
            at += 1;
        }
        if at > first {
            out.text(std::mem::replace(&mut separator, ","));
            out.dec(psn(first));
            if at > first + 1 {
                out.push(b'-');
                out.dec(psn(at - 1));
            }
        }
        at += 1;
    }
}

fn vlan(out: &mut Vec<u8>, roce: &Roce<'_>) {
    if !roce.eth_captured {
        return;
    }
    let eth = roce.net.eth();
    if let Some(inner) = eth.vlan {
        out.text("  vlan ");
        if let Some(outer) = eth.outer_vlan {
            out.dec(outer.id().into());
            out.push(b'.');
        }
        out.dec(inner.id().into());
        if inner.pcp() != 0 {
            out.text(" prio ");
            out.dec(inner.pcp().into());
        }
    }
}

#[cold]
fn damaged(out: &mut Vec<u8>, roce: &Roce<'_>, transport: &Transport<'_>) {
    if let Some(packet) = roce.srd() {
        return srd(out, &packet);
    }
    match transport {
        Transport::Malformed(error) => {
            out.text("malformed: ");
            out.text(&error.to_string());
        }
        _ => {
            out.text(roce.opcode().map_or("opcode not defined", |opcode| opcode.name()));
            out.text(", headers cut by the capture");
        }
    }
    if let Some(bth) = roce.bth() {
        out.text(" qp ");
        out.hex_of::<6>(bth.dest_qpn().get().into());
        out.text(" psn ");
        out.dec(bth.psn().get().into());
    }
}

/// A packet of SRD: what it says, with the names that `docs/wire-extensions.md` has.
fn srd(out: &mut Vec<u8>, packet: &SrdPacket<'_>) {
    let headers = &packet.headers;
    out.text(headers.body.opcode().name());
    out.text(" qp ");
    out.hex_of::<6>(headers.bth.dest_qpn.get().into());
    out.text(" psn ");
    out.dec(headers.psn.0.into());
    out.text(" src_qp ");
    out.hex_of::<6>(headers.src_qpn.get().into());
    for (name, tag) in [(" tags ", headers.src_tag), (" to ", headers.dst_tag)] {
        out.text(name);
        out.hex_of::<8>(tag.into());
    }
    if let Some(message) = headers.body.message() {
        out.text(" msg ");
        out.hex_of::<8>(message.id.into());
    }
    match headers.body {
        SrdBody::Send(_, part, _) | SrdBody::Write(_, part, ..) => {
            out.text(" at ");
            out.dec(part.offset.into());
            out.text(" of ");
            out.dec(part.length.into());
        }
        SrdBody::ReadRequest(_, part, _) => {
            out.text(" of ");
            out.dec(part.length.into());
        }
        SrdBody::ReadResponse(_, offset) => {
            out.text(" at ");
            out.dec(offset.into());
        }
        SrdBody::ReadFailure(_, code) | SrdBody::Refuse { code, .. } => {
            out.text(" reason ");
            out.dec(code.into());
        }
        _ => {}
    }
    if let Some(imm) = headers.body.imm() {
        immediate(out, imm.0);
    }
    out.text(" len ");
    out.dec(packet.payload.len() as u64);
}

#[inline]
fn operation(out: &mut Vec<u8>, op: &Op) {
    match op {
        Op::SendFirst | Op::SendMiddle | Op::WriteMiddle | Op::ReadResponseMiddle => {}
        Op::SendLast(tail) | Op::SendOnly(tail) => match tail {
            SendTail::Plain => {}
            SendTail::Imm(imm) => immediate(out, imm.0),
            SendTail::Inv(rkey) => {
                out.text(" invalidates rkey ");
                out.hex_of::<8>(rkey.0.into());
            }
        },
        Op::WriteFirst(reth) | Op::ReadRequest(reth) | Op::AtomicWrite(reth) => rdma(out, reth),
        Op::WriteLast(imm) => {
            if let Some(imm) = imm {
                immediate(out, imm.0);
            }
        }
        Op::WriteOnly(reth, imm) => {
            rdma(out, reth);
            if let Some(imm) = imm {
                immediate(out, imm.0);
            }
        }
        Op::ReadResponseFirst(aeth)
        | Op::ReadResponseLast(aeth)
        | Op::ReadResponseOnly(aeth)
        | Op::Acknowledge(aeth) => acknowledge(out, aeth.syndrome, aeth.msn.get()),
        Op::AtomicAcknowledge(aeth, original) => {
            acknowledge(out, aeth.syndrome, aeth.msn.get());
            out.text(" original ");
            out.hex_of::<16>(*original);
        }
        Op::CompareSwap(atomic) => {
            target(out, atomic);
            out.text(" compare ");
            out.hex_of::<16>(atomic.compare);
            out.text(" swap ");
            out.hex_of::<16>(atomic.swap_or_add);
        }
        Op::FetchAdd(atomic) => {
            target(out, atomic);
            out.text(" add ");
            out.hex_of::<16>(atomic.swap_or_add);
        }
        Op::Flush(feth, reth) => {
            out.text(" for ");
            out.text(placement_name(feth.placement));
            out.text(" of ");
            out.text(selectivity_name(feth.selectivity));
            rdma(out, reth);
        }
    }
}

#[inline]
fn rdma(out: &mut Vec<u8>, reth: &Reth) {
    out.text(" va ");
    out.hex_of::<16>(reth.va);
    out.text(" rkey ");
    out.hex_of::<8>(reth.rkey.0.into());
    out.text(" dma_len ");
    out.dec(reth.dma_len.into());
}

fn target(out: &mut Vec<u8>, atomic: &AtomicEth) {
    out.text(" va ");
    out.hex_of::<16>(atomic.va);
    out.text(" rkey ");
    out.hex_of::<8>(atomic.rkey.0.into());
}

#[inline]
fn acknowledge(out: &mut Vec<u8>, syndrome: Syndrome, msn: u32) {
    match syndrome {
        Syndrome::Ack(credits) => {
            out.text(" ACK msn ");
            out.dec(msn.into());
            if let Some(count) = credits.count() {
                out.text(" credits ");
                out.dec(count.into());
            }
            return;
        }
        Syndrome::RnrNak(timer) => {
            out.text(" RNR NAK wait ");
            millis(out, timer.delay_us().into());
        }
        Syndrome::Nak(code) => {
            out.text(" NAK ");
            out.text(nak_name(code));
            out.text(" (");
            out.hex_of::<2>(syndrome.byte().into());
            out.push(b')');
        }
        Syndrome::Reserved(byte) => {
            out.text(" reserved syndrome ");
            out.hex_of::<2>(byte.into());
        }
    }
    out.text(" msn ");
    out.dec(msn.into());
}

fn immediate(out: &mut Vec<u8>, imm: [u8; 4]) {
    out.text(" imm ");
    out.hex_of::<8>(u32::from_be_bytes(imm).into());
}

#[cold]
fn connection(out: &mut Vec<u8>, cm: &CmMessage<'_>) {
    out.text("  CM ");
    out.text(cm.name());
    match cm.body() {
        CmBody::Req(req) => {
            out.text(" id ");
            out.hex_of::<8>(req.local_id.into());
            service(out, req.service);
            out.text(" qp ");
            out.hex_of::<6>(req.qpn.get().into());
            out.text(" psn ");
            out.dec(req.starting_psn.get().into());
            if let Some(mtu) = req.mtu() {
                out.text(" mtu ");
                out.dec(mtu.bytes().into());
            }
        }
        CmBody::Rep(rep) => {
            ids(out, rep.ids.local, rep.ids.remote);
            out.text(" qp ");
            out.hex_of::<6>(rep.qpn.get().into());
            out.text(" psn ");
            out.dec(rep.starting_psn.get().into());
        }
        CmBody::Rej(rej) => {
            ids(out, rej.ids.local, rej.ids.remote);
            out.text(" refuses ");
            out.text(rej.answers.name());
            out.text(": ");
            out.text(rej.reason.name());
            out.text(" (");
            out.dec(rej.reason.0.into());
            out.push(b')');
        }
        CmBody::Mra(mra) => {
            ids(out, mra.ids.local, mra.ids.remote);
            out.text(" for ");
            out.text(mra.answers.name());
        }
        CmBody::Rtu(of) | CmBody::Drep(of) => ids(out, of.local, of.remote),
        CmBody::Dreq(dreq) => {
            ids(out, dreq.ids.local, dreq.ids.remote);
            out.text(" remote_qp ");
            out.hex_of::<6>(dreq.remote_qpn.get().into());
        }
        CmBody::SidrReq(req) => {
            out.text(" id ");
            out.hex_of::<8>(req.request_id.into());
            service(out, req.service);
        }
        CmBody::SidrRep(rep) => {
            out.text(" id ");
            out.hex_of::<8>(rep.request_id.into());
            out.push(b' ');
            out.text(rep.status_name());
            out.text(" qp ");
            out.hex_of::<6>(rep.qpn.get().into());
            out.text(" qkey ");
            out.hex_of::<8>(rep.qkey.0.into());
        }
        CmBody::Lap(lap) => ids(out, lap.ids.local, lap.ids.remote),
        CmBody::Apr(apr) => ids(out, apr.ids.local, apr.ids.remote),
    }
}

fn ids(out: &mut Vec<u8>, local: u32, remote: u32) {
    out.text(" id ");
    out.hex_of::<8>(local.into());
    out.text(" to ");
    out.hex_of::<8>(remote.into());
}

fn service(out: &mut Vec<u8>, id: ServiceId) {
    out.text(" service ");
    match id.port() {
        Some((space, port)) => {
            out.text(space.name());
            out.push(b':');
            out.dec(port.into());
        }
        None => out.hex(id.0, 16),
    }
}

#[inline]
fn icrc(out: &mut Vec<u8>, icrc: Icrc) {
    match icrc {
        Icrc::Good => out.text(" icrc good"),
        Icrc::RxeFlush => out.text(" icrc rxe-FLUSH"),
        Icrc::NotCaptured => out.text(" icrc not captured"),
        Icrc::Bad { received, computed } => {
            out.text(" icrc BAD ");
            out.hex_bytes(&received.to_le_bytes());
            out.text(", should be ");
            out.hex_bytes(&computed.to_le_bytes());
        }
    }
}

/// The texts of recently seen address pairs; formatting addresses is the most expensive part of a line.
#[derive(Debug)]
struct AddressTexts {
    slots: Vec<Option<Slot>>,
}

#[derive(Clone, Debug)]
struct Slot {
    src: IpAddr,
    dst: IpAddr,
    /// Padded with spaces to [`SHORT_ADDRESSES`], and its length without them.
    text: (Vec<u8>, usize),
}

const SLOTS: usize = 256;
/// Two IPv4 addresses and an arrow are at most this long.
const SHORT_ADDRESSES: usize = 40;

impl AddressTexts {
    fn new() -> AddressTexts {
        AddressTexts { slots: vec![None; SLOTS] }
    }

    #[inline]
    fn of(&mut self, src: IpAddr, dst: IpAddr) -> &(Vec<u8>, usize) {
        let slot = &mut self.slots[slot_of(src, dst)];
        if slot.as_ref().is_some_and(|s| s.src != src || s.dst != dst) {
            *slot = None;
        }
        &slot.get_or_insert_with(|| Slot { src, dst, text: address_text(src, dst) }).text
    }
}

#[cold]
fn address_text(src: IpAddr, dst: IpAddr) -> (Vec<u8>, usize) {
    let mut text = Vec::new();
    text.ip(src);
    text.text(" → ");
    text.ip(dst);
    let len = text.len();
    text.resize(len.max(SHORT_ADDRESSES), b' ');
    (text, len)
}

#[inline]
fn slot_of(src: IpAddr, dst: IpAddr) -> usize {
    let fold = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits ^ bits >> 64) as u32 ^ (bits >> 32) as u32
        }
    };
    let mixed = fold(src).wrapping_mul(0x9E37_79B9) ^ fold(dst).wrapping_mul(0x85EB_CA6B);
    (mixed >> 16) as usize % SLOTS
}
