//! Requests of verbs, as a checker sees them.

use softrnic_check::{Piece, Remote, Request};
use softrnic_nic::verbs::{LocalData, RecvRequest, SendRequest};
use softrnic_transport::{SendOp, SrdVerb, WcOpcode};

/// A request for a send queue.
pub fn of_send(request: &SendRequest) -> Request {
    Request {
        wr_id: request.wr_id,
        opcode: request.wc_opcode(),
        length: request.length.into(),
        pieces: pieces(&request.data),
        remote: remote(&request.op),
        fenced: request.fence,
        signaled: request.signaled,
        sum: None,
        stage: Default::default(),
        posted: Default::default(),
    }
}

/// A receive.
pub fn of_receive(request: &RecvRequest) -> Request {
    Request {
        wr_id: request.wr_id,
        opcode: WcOpcode::Recv,
        length: request.length.into(),
        pieces: pieces(&request.data),
        remote: None,
        fenced: false,
        signaled: true,
        sum: None,
        stage: Default::default(),
        posted: Default::default(),
    }
}

fn remote(op: &SendOp) -> Option<Remote> {
    match op {
        SendOp::Write { remote, .. }
        | SendOp::Read { remote }
        | SendOp::CompareSwap { remote, .. }
        | SendOp::FetchAdd { remote, .. }
        | SendOp::AtomicWrite { remote }
        | SendOp::Flush { remote, .. } => Some(Remote { rkey: remote.rkey.0, addr: remote.va }),
        SendOp::Srd { verb: SrdVerb::Write(remote, _) | SrdVerb::Read(remote), .. } => {
            Some(Remote { rkey: remote.rkey.0, addr: remote.va })
        }
        SendOp::Send(_) | SendOp::Datagram { .. } | SendOp::Srd { .. } | SendOp::Local(_) => None,
    }
}

fn pieces(data: &LocalData) -> Vec<Piece> {
    let LocalData::Sges(sges) = data else { return Vec::new() };
    sges.iter().map(|sge| Piece { addr: sge.addr, length: sge.length, lkey: sge.lkey.0 }).collect()
}
