//! One line per packet.

use std::net::IpAddr;

use softrnic_wire::{AtomicEth, Body, Op, Packet, Reth, SendTail, Syndrome};

use super::clock::Clock;
use super::names::{millis, nak_name, placement_name, selectivity_name};
use super::out::Out;
use crate::capture::Record;
use crate::dissect::{CmBody, CmMessage, Icrc, Net, Roce, Transport};

/// Writes lines; keeps the address texts of recent flows.
#[derive(Debug)]
pub(crate) struct LineWriter {
    clock: Clock,
    addresses: AddressTexts,
}

/// Where the opcode's column ends and the next begins.
const OPCODE_WIDTH: usize = 28;

impl LineWriter {
    pub fn new(clock: Clock) -> LineWriter {
        LineWriter { clock, addresses: AddressTexts::new() }
    }

    /// Takes note of a record that may not be shown.
    #[inline]
    pub fn see(&mut self, record: &Record<'_>) {
        self.clock.see(record.time_ns);
    }

    /// Appends the packet's line.
    pub fn write(&mut self, out: &mut Vec<u8>, record: &Record<'_>, roce: &Roce<'_>) {
        out.dec_wide(record.number, 7);
        out.push(b' ');
        self.clock.write(out, record.time_ns);
        out.text("  ");
        out.extend_from_slice(self.addresses.of(roce.net.src(), roce.net.dst()));
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

    #[inline]
    fn packet(&mut self, out: &mut Vec<u8>, roce: &Roce<'_>, packet: &Packet<'_>) {
        let from = out.len();
        out.text(packet.body.opcode().name());
        out.pad_from(from, OPCODE_WIDTH);
        out.text(" qp ");
        out.hex(packet.bth.dest_qpn.get().into(), 6);
        out.text(" psn ");
        let psn_at = out.len();
        out.dec(packet.bth.psn.get().into());
        out.pad_from(psn_at, 8);
        flags(out, packet);
        if roce.net.congestion_experienced() {
            out.text(" CE");
        }
        match &packet.body {
            Body::Rc(op) => operation(out, op),
            Body::Xrc(xrc) => {
                if let Some(srqn) = xrc.srqn() {
                    out.text(" srq ");
                    out.hex(srqn.get().into(), 6);
                }
                operation(out, &xrc.op());
            }
            Body::Uc(op) => operation(out, &Op::from(*op)),
            Body::Ud { deth, imm } => {
                out.text(" src_qp ");
                out.hex(deth.src_qpn.get().into(), 6);
                out.text(" qkey ");
                out.hex(deth.qkey.0.into(), 8);
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
        out.hex(bth.dest_qpn().get().into(), 6);
        out.text(" psn ");
        out.dec(bth.psn().get().into());
    }
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
                out.hex(rkey.0.into(), 8);
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
            out.hex(*original, 16);
        }
        Op::CompareSwap(atomic) => {
            target(out, atomic);
            out.text(" compare ");
            out.hex(atomic.compare, 16);
            out.text(" swap ");
            out.hex(atomic.swap_or_add, 16);
        }
        Op::FetchAdd(atomic) => {
            target(out, atomic);
            out.text(" add ");
            out.hex(atomic.swap_or_add, 16);
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
    out.hex(reth.va, 16);
    out.text(" rkey ");
    out.hex(reth.rkey.0.into(), 8);
    out.text(" dma_len ");
    out.dec(reth.dma_len.into());
}

fn target(out: &mut Vec<u8>, atomic: &AtomicEth) {
    out.text(" va ");
    out.hex(atomic.va, 16);
    out.text(" rkey ");
    out.hex(atomic.rkey.0.into(), 8);
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
            out.hex(syndrome.byte().into(), 2);
            out.push(b')');
        }
        Syndrome::Reserved(byte) => {
            out.text(" reserved syndrome ");
            out.hex(byte.into(), 2);
        }
    }
    out.text(" msn ");
    out.dec(msn.into());
}

fn immediate(out: &mut Vec<u8>, imm: [u8; 4]) {
    out.text(" imm ");
    out.hex(u32::from_be_bytes(imm).into(), 8);
}

#[cold]
fn connection(out: &mut Vec<u8>, cm: &CmMessage<'_>) {
    out.text("  CM ");
    out.text(cm.name());
    match &cm.body {
        CmBody::Req(req) => {
            out.text(" id ");
            out.hex(req.local_id.into(), 8);
            service(out, req.service);
            out.text(" qp ");
            out.hex(req.qpn.get().into(), 6);
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
            out.hex(rep.qpn.get().into(), 6);
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
            out.hex(dreq.remote_qpn.get().into(), 6);
        }
        CmBody::SidrReq(req) => {
            out.text(" id ");
            out.hex(req.request_id.into(), 8);
            service(out, req.service);
        }
        CmBody::SidrRep(rep) => {
            out.text(" id ");
            out.hex(rep.request_id.into(), 8);
            out.push(b' ');
            out.text(rep.status_name());
            out.text(" qp ");
            out.hex(rep.qpn.get().into(), 6);
            out.text(" qkey ");
            out.hex(rep.qkey.0.into(), 8);
        }
        CmBody::Lap(lap) => ids(out, lap.ids.local, lap.ids.remote),
        CmBody::Apr(apr) => ids(out, apr.ids.local, apr.ids.remote),
    }
}

fn ids(out: &mut Vec<u8>, local: u32, remote: u32) {
    out.text(" id ");
    out.hex(local.into(), 8);
    out.text(" to ");
    out.hex(remote.into(), 8);
}

fn service(out: &mut Vec<u8>, id: crate::dissect::ServiceId) {
    out.text(" service ");
    match id.port() {
        Some((space, port)) => {
            out.text(space);
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

/// The texts of recently seen address pairs; formatting addresses is the dearest part of a line.
#[derive(Debug)]
struct AddressTexts {
    slots: Vec<Option<(IpAddr, IpAddr, Vec<u8>)>>,
}

const SLOTS: usize = 256;

impl AddressTexts {
    fn new() -> AddressTexts {
        AddressTexts { slots: vec![None; SLOTS] }
    }

    #[inline]
    fn of(&mut self, src: IpAddr, dst: IpAddr) -> &[u8] {
        let slot = &mut self.slots[slot_of(src, dst)];
        if !matches!(slot, Some((s, d, _)) if *s == src && *d == dst) {
            let mut text = Vec::new();
            text.ip(src);
            text.text(" → ");
            text.ip(dst);
            *slot = Some((src, dst, text));
        }
        slot.as_ref().map_or(&[], |(_, _, text)| text)
    }
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
