//! Work requests of scripts as those of the engine.

use softrnic_engine::{FastRegister, InlineBytes, LocalData, SendRequest, SgeList};
use softrnic_memory::{Access, BindSpec, Lkey, Sge as Piece};
use softrnic_script::{Op, Request, Sge};
use softrnic_transport::{LocalOp, Path, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Feth, Imm, Placement, Qkey, Qpn, Rkey, Selectivity, Srqn};

use crate::world::ALL_ACCESS;

/// Pieces of local memory.
pub fn local(sges: &[Sge]) -> LocalData {
    let mut list = SgeList::new();
    for sge in sges {
        list.push(piece(sge));
    }
    if sges.is_empty() { LocalData::empty() } else { LocalData::Sges(list) }
}

fn piece(sge: &Sge) -> Piece {
    Piece { addr: sge.addr, length: sge.length, lkey: Lkey(sge.lkey) }
}

/// The request; datagrams take `path`.
pub fn request(told: &Request, path: Path) -> SendRequest {
    let (data, length) = data(told);
    SendRequest {
        wr_id: told.wr_id,
        op: operation(told, path),
        data,
        length,
        signaled: told.signaled,
        solicited: told.solicited,
        fence: told.fence,
        srqn: told.srqn.map(Srqn::new),
    }
}

fn operation(told: &Request, path: Path) -> SendOp {
    let imm = |imm: Option<u32>| imm.map(|imm| Imm(imm.to_be_bytes()));
    let remote = |va, rkey| RemoteBuffer { va, rkey: Rkey(rkey) };
    match told.op {
        Op::Send { imm: Some(imm), .. } => SendOp::Send(SendTail::Imm(Imm(imm.to_be_bytes()))),
        Op::Send { invalidate: Some(key), .. } => SendOp::Send(SendTail::Inv(Rkey(key))),
        Op::Send { .. } => SendOp::Send(SendTail::Plain),
        Op::Write { va, rkey, imm: with } => SendOp::Write { remote: remote(va, rkey), imm: imm(with) },
        Op::Read { va, rkey } => SendOp::Read { remote: remote(va, rkey) },
        Op::CompareSwap { va, rkey, compare, swap } => {
            SendOp::CompareSwap { remote: remote(va, rkey), compare, swap }
        }
        Op::FetchAdd { va, rkey, add } => SendOp::FetchAdd { remote: remote(va, rkey), add },
        Op::AtomicWrite { va, rkey } => SendOp::AtomicWrite { remote: remote(va, rkey) },
        Op::Flush { va, rkey, length, whole } => {
            let selectivity = if whole { Selectivity::Region } else { Selectivity::Range };
            let feth = Feth { placement: Placement::GLOBAL_VISIBILITY, selectivity };
            SendOp::Flush { remote: remote(va, rkey), length, feth }
        }
        Op::Datagram { qpn, qkey, imm: with } => {
            SendOp::Datagram { path, dest_qpn: Qpn::new(qpn), qkey: Qkey(qkey), imm: imm(with) }
        }
        Op::Invalidate { rkey } => SendOp::Local(LocalOp::Invalidate(Rkey(rkey))),
        Op::FastRegister { .. } => SendOp::Local(LocalOp::FastRegister),
        Op::Bind { .. } => SendOp::Local(LocalOp::BindWindow),
    }
}

/// What a local operation needs, and the local bytes of any other with their number.
fn data(told: &Request) -> (LocalData, u32) {
    if let Some(bytes) = &told.inline {
        return (LocalData::Inline(InlineBytes::from_slice(bytes)), bytes.len() as u32);
    }
    let length = told.sges.iter().map(|sge| sge.length).sum();
    let data = match told.op {
        Op::FastRegister { lkey, new_key } => {
            let request = FastRegister { lkey: Lkey(lkey), new_key, access: ALL_ACCESS };
            LocalData::FastRegister(Box::new(request))
        }
        Op::Bind { window, tag } => {
            let Piece { addr, length, lkey: mr } = told.sges.first().map(piece).unwrap_or_default();
            let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let (mw, length) = (Rkey(window), length.into());
            LocalData::Bind(Box::new(BindSpec { mw, tag, mr, addr, length, access }))
        }
        _ => local(&told.sges),
    };
    (data, length)
}
