//! The contents of a request packet.

use softrnic_wire::{AtomicEth, Body, Deth, Headers, Op, Pad, Psn, Qkey, Reth, UcOp, XrcBody};

use super::send_queue::Entry;
use crate::QpType;
use crate::config::Config;
use crate::context::Context;
use crate::host::Payload;
use crate::segment::{self, Position};
use crate::wqe::{RemoteBuffer, SendOp};

/// One packet of a work request.
pub struct Packet {
    /// Its number in the request.
    pub index: u32,
    /// One past the last PSN that it uses; a READ request asks for those below.
    pub to: Psn,
    pub ack_req: bool,
    /// It is the last one of the request.
    pub ends: bool,
}

/// The payload of packet number `index` of a work request.
pub fn payload<D>(entry: &Entry<D>, index: u32, mtu: u32) -> Payload<'_, D> {
    let length = entry.wqe.length;
    match entry.wqe.op {
        SendOp::Send(_) | SendOp::Write { .. } | SendOp::AtomicWrite { .. } => {
            let offset = index as u64 * mtu as u64;
            local(entry, offset, (length as u64 - offset).min(mtu as u64) as usize)
        }
        // One packet whatever the path MTU, which UD does not have; the port's MTU was checked before.
        SendOp::Datagram { .. } => local(entry, 0, length as usize),
        _ => Payload::None,
    }
}

/// Completes the headers of a packet of `entry`; `None` if the service has no such request.
///
/// They are made in their place: what was stored in pieces and is then moved as a whole has to wait until the processor
/// has stored everything before it.
#[inline(always)]
pub fn complete<D>(
    headers: &mut Headers,
    cx: &Context,
    entry: &Entry<D>,
    packet: &Packet,
    payload_len: usize,
) -> Option<()> {
    headers.bth.ack_req = packet.ack_req;
    headers.bth.pad = Pad::for_payload(payload_len);
    headers.bth.solicited = packet.ends && entry.wqe.solicited && segment::may_be_solicited(&entry.wqe.op);
    match (&entry.wqe.op, cx.service) {
        (SendOp::Datagram { dest_qpn, qkey, imm, .. }, QpType::Ud) => {
            headers.bth.dest_qpn = *dest_qpn;
            let deth = Deth { qkey: datagram_qkey(cx, *qkey), src_qpn: cx.qpn };
            headers.body = Body::Ud { deth, imm: *imm };
        }
        (SendOp::Datagram { .. }, _) | (_, QpType::Ud | QpType::XrcTarget) => return None,
        (_, QpType::Rc) => {
            headers.body = Body::Rc(Op::SendMiddle);
            if let Body::Rc(op) = &mut headers.body {
                set_operation(op, cx, entry, packet);
            }
        }
        (_, service) => {
            let mut op = Op::SendMiddle;
            set_operation(&mut op, cx, entry, packet);
            headers.body = match service {
                QpType::Uc => Body::Uc(UcOp::from_op(op)?),
                _ => Body::Xrc(XrcBody::request(entry.wqe.srqn?, op)?),
            };
        }
    }
    Some(())
}

fn set_operation<D>(op: &mut Op, cx: &Context, entry: &Entry<D>, packet: &Packet) {
    let mtu = cx.config.mtu as u64;
    let length = entry.wqe.length;
    let position = Position::of(packet.index, entry.packets);
    match &entry.wqe.op {
        SendOp::Send(tail) => match position {
            Position::First => *op = Op::SendFirst,
            Position::Middle => *op = Op::SendMiddle,
            Position::Last => *op = Op::SendLast(*tail),
            Position::Only => *op = Op::SendOnly(*tail),
        },
        SendOp::Write { remote, imm } => match position {
            Position::First => *op = Op::WriteFirst(reth(remote, 0, length)),
            Position::Middle => *op = Op::WriteMiddle,
            Position::Last => *op = Op::WriteLast(*imm),
            Position::Only => *op = Op::WriteOnly(reth(remote, 0, length), *imm),
        },
        SendOp::Read { remote } => {
            let offset = packet.index as u64 * mtu;
            let rest = (length as u64 - offset).min((packet.to - entry.first) as u64 * mtu - offset);
            *op = Op::ReadRequest(reth(remote, offset, rest as u32));
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            *op = Op::CompareSwap(AtomicEth {
                va: remote.va,
                rkey: remote.rkey,
                swap_or_add: *swap,
                compare: *compare,
            });
        }
        SendOp::FetchAdd { remote, add } => {
            *op = Op::FetchAdd(AtomicEth { va: remote.va, rkey: remote.rkey, swap_or_add: *add, compare: 0 });
        }
        SendOp::AtomicWrite { remote } => *op = Op::AtomicWrite(reth(remote, 0, 8)),
        SendOp::Flush { remote, length, feth } => *op = Op::Flush(*feth, reth(remote, 0, *length)),
        SendOp::Datagram { .. } | SendOp::Srd { .. } | SendOp::Local(_) => {
            unreachable!("datagrams have no operation, and a local operation no packet")
        }
    }
}

/// A work request with a privileged Q_Key uses the QP's own (C10-15).
fn datagram_qkey(cx: &Context, qkey: Qkey) -> Qkey {
    if qkey.is_privileged() { cx.attr.qkey } else { qkey }
}

fn local<D>(entry: &Entry<D>, offset: u64, len: usize) -> Payload<'_, D> {
    if len == 0 { Payload::None } else { Payload::Local { data: &entry.wqe.data, offset, len } }
}

fn reth(remote: &RemoteBuffer, offset: u64, dma_len: u32) -> Reth {
    Reth { va: remote.va.wrapping_add(offset), rkey: remote.rkey, dma_len }
}

impl Config {
    pub(super) fn packets_of<D>(&self, entry: &Entry<D>) -> u32 {
        match entry.wqe.op {
            SendOp::Send(_) | SendOp::Write { .. } | SendOp::Read { .. } => {
                entry.wqe.length.div_ceil(self.mtu).max(1)
            }
            SendOp::Local(_) => 0,
            _ => 1,
        }
    }
}
