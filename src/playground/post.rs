//! Turns what somebody asks for into work requests.

use softrnic_engine::{LocalData, RecvRequest, SendRequest};
use softrnic_memory::{Access, BindSpec, Sge};
use softrnic_transport::{LocalOp, Path, QpType, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Imm, Qkey, Qpn, Rkey};

use crate::action::{Op, Post};
use crate::side::{MEMORY, Side};

/// Q_Key of all datagram QPs.
pub const QKEY: Qkey = Qkey(0x1122_3344);

/// Pieces that a work request may have.
const MAX_SGES: u32 = 8;
/// Bytes that an inline work request may have.
const MAX_INLINE: u32 = 256;
/// Bytes that precede a datagram in its receive buffer.
const GRH: u32 = 40;

/// Where receives begin in the application's memory: behind what peers write.
pub const RECEIVES: u64 = (MEMORY / 2) as u64;

/// The other end of a connection.
pub struct Peer {
    /// Address of its memory.
    pub base: u64,
    /// Its key.
    pub rkey: Rkey,
    /// The key of its window.
    pub window: Rkey,
    /// For datagrams.
    pub path: Path,
    /// Its QP.
    pub qpn: Qpn,
}

/// A send work request.
///
/// # Errors
/// Why it cannot be posted, in a sentence.
pub fn send(
    side: &Side,
    peer: &Peer,
    service: QpType,
    wr_id: u64,
    post: &Post,
) -> Result<SendRequest, String> {
    let atomic = matches!(post.op, Op::FetchAdd | Op::CompareSwap);
    let len = match post.op {
        Op::Bind | Op::Invalidate => 0,
        _ if atomic => 8,
        _ => post.len,
    };
    within("the local bytes", post.local, len)?;
    let wrong = if post.wrong_key { 0x0100_0000 } else { 0 };
    let rkey = if post.window { peer.window } else { peer.rkey };
    let remote = RemoteBuffer { va: peer.base.wrapping_add(post.remote), rkey: Rkey(rkey.0 ^ wrong) };
    let imm = post.imm.map(|imm| Imm(imm.to_be_bytes()));
    let op = match (post.op, service) {
        (Op::Send, QpType::Ud) if len > 4096 => {
            return Err(format!("a datagram has at most 4096 bytes, not {len}"));
        }
        (Op::Send, QpType::Ud) => SendOp::Datagram { path: peer.path, dest_qpn: peer.qpn, qkey: QKEY, imm },
        (_, QpType::Ud) => {
            return Err("UD knows SEND alone: everything else needs a connection".into());
        }
        (Op::Read | Op::FetchAdd | Op::CompareSwap | Op::SendInvalidate, QpType::Uc) => {
            return Err("UC knows SEND and WRITE alone: what needs an answer needs RC".into());
        }
        (Op::SendInvalidate, _) => SendOp::Send(SendTail::Inv(Rkey(peer.window.0 ^ wrong))),
        (Op::Bind, _) => SendOp::Local(LocalOp::BindWindow),
        (Op::Invalidate, _) => SendOp::Local(LocalOp::Invalidate(side.window_key())),
        (Op::Send, _) => SendOp::Send(imm.map_or(SendTail::Plain, SendTail::Imm)),
        (Op::Write, _) => SendOp::Write { remote, imm },
        (Op::Read, _) => SendOp::Read { remote },
        (Op::FetchAdd, _) => SendOp::FetchAdd { remote, add: post.operand },
        (Op::CompareSwap, _) => SendOp::CompareSwap { remote, compare: post.compare, swap: post.operand },
    };
    let data = match post.inline {
        true if !matches!(post.op, Op::Send | Op::SendInvalidate | Op::Write) => {
            return Err("only what is sent can be inline: a SEND or a WRITE".into());
        }
        true if len > MAX_INLINE => {
            return Err(format!("inline data has at most {MAX_INLINE} bytes, not {len}"));
        }
        true => LocalData::Inline(side.memory.read(post.local as usize, len as usize).into()),
        false if post.op == Op::Bind => LocalData::Bind(Box::new(bind(side, post)?)),
        false => pieces(side, post.local, len, post.sges)?,
    };
    Ok(SendRequest {
        wr_id,
        op,
        data,
        length: len,
        signaled: !post.unsignaled,
        solicited: false,
        fence: post.fence,
        srqn: None,
    })
}

/// The window over the local bytes of the request, under another key than before.
fn bind(side: &Side, post: &Post) -> Result<BindSpec, String> {
    within("the bytes of the window", post.local, post.len)?;
    let rights =
        if post.read_only { Access::REMOTE_READ } else { Access::REMOTE_READ | Access::REMOTE_WRITE };
    Ok(BindSpec {
        mw: side.window_key(),
        // The low byte is the application's to choose.
        tag: (side.window_key().0 as u8).wrapping_add(1),
        mr: side.keys.lkey,
        addr: side.base + post.local,
        length: u64::from(post.len),
        access: rights,
    })
}

/// A receive work request, behind `before` bytes of earlier ones.
///
/// # Errors
/// Why it cannot be posted, in a sentence.
pub fn receive(
    side: &Side,
    service: QpType,
    wr_id: u64,
    len: u32,
    before: u64,
) -> Result<RecvRequest, String> {
    let whole = len.saturating_add(if service == QpType::Ud { GRH } else { 0 });
    if u64::from(whole) > MEMORY as u64 - RECEIVES {
        return Err(format!("a receive has at most {} bytes here, not {len}", MEMORY as u64 - RECEIVES));
    }
    // Buffers follow each other, and begin again where the memory ends.
    let place = before % (MEMORY as u64 - RECEIVES);
    let place = if place + u64::from(whole) > MEMORY as u64 - RECEIVES { 0 } else { place };
    Ok(RecvRequest { wr_id, data: pieces(side, RECEIVES + place, whole, 1)?, length: whole })
}

fn within(what: &str, offset: u64, len: u32) -> Result<(), String> {
    let end = offset.checked_add(u64::from(len));
    if end.is_some_and(|end| end <= MEMORY as u64) {
        return Ok(());
    }
    Err(format!("{what} must lie within the {MEMORY} bytes of memory: {len} bytes from {offset} on do not"))
}

fn pieces(side: &Side, offset: u64, len: u32, count: u32) -> Result<LocalData, String> {
    if !(1..=MAX_SGES).contains(&count) {
        return Err(format!("a work request has 1 to {MAX_SGES} pieces, not {count}"));
    }
    let piece = len.div_ceil(count).max(1);
    let sges = (0..len).step_by(piece as usize).map(|start| Sge {
        addr: side.base + offset + u64::from(start),
        length: piece.min(len - start),
        lkey: side.keys.lkey,
    });
    Ok(LocalData::Sges(sges.collect()))
}
