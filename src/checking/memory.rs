//! What the NIC does to memory, by the thread that drives it.

use softrnic_check::{Piece, Word};
use softrnic_nic::device::Act;
use softrnic_nic::verbs::Sge;

use super::{is_logging, sum, with};

/// The NIC does something, or is about to.
pub fn saw(act: &Act<'_>) {
    if !is_logging() && !matches!(act, Act::Atomic(_)) {
        return;
    }
    with(|state| match *act {
        Act::Place { qpn, list } => {
            let piece = |sge: &Sge| Piece { addr: sge.addr, length: sge.length, lkey: sge.lkey.0 };
            // SAFETY: the bytes were registered when the request was posted.
            state.checker.places(qpn.get(), list.iter().map(piece), |request| unsafe { sum(request) });
        }
        Act::Write { rkey, va, length } => state.checker.peer_writes(rkey.0, va, length),
        Act::Atomic(atomic) => state.checker.executed(Word {
            qpn: atomic.qpn.get(),
            rkey: atomic.rkey.0,
            addr: atomic.va,
            before: atomic.before,
            after: atomic.after,
            step: atomic.step.as_nanos(),
        }),
        Act::Complete(cqe) => {
            let is_receive = cqe.opcode.is_receive();
            // SAFETY: the bytes were registered when the request was posted.
            state.checker.completes(cqe.qpn.get(), cqe.wr_id, is_receive, |request| unsafe { sum(request) });
        }
    });
}
