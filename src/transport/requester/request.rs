//! The contents of a request packet.

use softrnic_wire::{AtomicEth, Body, Deth, Headers, Op, Pad, Psn, Qkey, Reth, SendTail, UcOp, XrcBody};

use super::send_queue::Entry;
use crate::QpType;
use crate::config::Config;
use crate::context::Context;
use crate::host::Payload;
use crate::segment::{self, Position};
use crate::wqe::{RemoteBuffer, SendExtra, SendOp};

/// The operation and payload of packet number `index` of a work request; a READ request asks for the PSNs below `to`.
pub fn packet<D>(entry: &Entry<D>, index: u32, to: Psn, mtu: u32) -> (Op, Payload<'_, D>) {
    let length = entry.wqe.length;
    let offset = index as u64 * mtu as u64;
    let position = Position::of(index, entry.packets);
    let payload = match &entry.wqe.op {
        SendOp::Send(_) | SendOp::Write { .. } | SendOp::AtomicWrite { .. } => {
            local(entry, offset, (length as u64 - offset).min(mtu as u64) as usize)
        }
        // One packet whatever the path MTU, which UD does not have; the port's MTU was checked before.
        SendOp::Datagram { .. } => local(entry, 0, length as usize),
        _ => Payload::None,
    };
    let op = match &entry.wqe.op {
        SendOp::Send(extra) => segment::send_op(position, tail(*extra)),
        SendOp::Datagram { imm, .. } => {
            segment::send_op(Position::Only, imm.map_or(SendTail::Plain, SendTail::Imm))
        }
        SendOp::Write { remote, imm } => segment::write_op(position, reth(remote, 0, length), *imm),
        SendOp::Read { remote } => {
            let rest = (length as u64 - offset).min((to - entry.first) as u64 * mtu as u64 - offset);
            Op::ReadRequest(reth(remote, offset, rest as u32))
        }
        SendOp::CompareSwap { remote, compare, swap } => Op::CompareSwap(AtomicEth {
            va: remote.va,
            rkey: remote.rkey,
            swap_or_add: *swap,
            compare: *compare,
        }),
        SendOp::FetchAdd { remote, add } => {
            Op::FetchAdd(AtomicEth { va: remote.va, rkey: remote.rkey, swap_or_add: *add, compare: 0 })
        }
        SendOp::AtomicWrite { remote } => Op::AtomicWrite(reth(remote, 0, 8)),
        SendOp::Flush { remote, length, feth } => Op::Flush(*feth, reth(remote, 0, *length)),
        SendOp::Local(_) => unreachable!("local operations own no packets"),
    };
    (op, payload)
}

/// The headers of a request of `entry`; `None` if the service has no such request.
#[inline]
pub fn headers<D>(
    cx: &Context,
    entry: &Entry<D>,
    op: Op,
    psn: Psn,
    ack_req: bool,
    ends: bool,
    payload_len: usize,
) -> Option<Headers> {
    let mut bth = cx.bth(psn);
    if let SendOp::Datagram { dest_qpn, .. } = entry.wqe.op {
        bth.dest_qpn = dest_qpn;
    }
    bth.ack_req = ack_req;
    bth.pad = Pad::for_payload(payload_len);
    bth.solicited = ends && entry.wqe.solicited && segment::may_be_solicited(&op);
    body(cx, entry, op).map(|body| Headers { bth, body })
}

fn body<D>(cx: &Context, entry: &Entry<D>, op: Op) -> Option<Body> {
    match (&entry.wqe.op, cx.service) {
        (SendOp::Datagram { qkey, imm, .. }, QpType::Ud) => {
            let deth = Deth { qkey: datagram_qkey(cx, *qkey), src_qpn: cx.qpn };
            Some(Body::Ud { deth, imm: *imm })
        }
        (SendOp::Datagram { .. }, _) | (_, QpType::Ud | QpType::XrcTarget) => None,
        (_, QpType::XrcInitiator) => XrcBody::request(entry.wqe.srqn?, op).map(Body::Xrc),
        (_, QpType::Uc) => UcOp::from_op(op).map(Body::Uc),
        (_, QpType::Rc) => Some(Body::Rc(op)),
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

fn tail(extra: SendExtra) -> SendTail {
    match extra {
        SendExtra::Plain => SendTail::Plain,
        SendExtra::Imm(imm) => SendTail::Imm(imm),
        SendExtra::Invalidate(rkey) => SendTail::Inv(rkey),
    }
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
