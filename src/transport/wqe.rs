//! Work queue elements. `D` describes local bytes, and only the host interprets it.

use softrnic_wire::{Feth, Imm, Qkey, Qpn, Reth, Rkey, SendTail, Srqn};

use crate::attr::QpType;
use crate::completion::WcOpcode;
use crate::host::Domain;
use crate::path::Path;

/// A work request on the send queue.
#[derive(Clone, Debug)]
pub struct SendWqe<D> {
    /// The application's number for it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// The local bytes: source of SEND and WRITE, destination of READ and atomics; what a local operation needs.
    pub data: D,
    /// How many bytes `data` holds in all.
    pub length: u32,
    /// Whether success is reported too; errors always are.
    pub signaled: bool,
    /// Whether it completes as solicited at the peer.
    pub solicited: bool,
    /// Whether it waits for all earlier READs and atomics.
    pub fence: bool,
    /// The shared receive queue at the peer (XRC only).
    pub srqn: Option<Srqn>,
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum SendOp {
    /// SEND, with what its last packet carries.
    Send(SendTail),
    /// RDMA WRITE.
    Write {
        /// Where the peer stores it.
        remote: RemoteBuffer,
        /// Immediate data, which consumes a receive WQE of the peer.
        imm: Option<Imm>,
    },
    /// RDMA READ.
    Read {
        /// Where the peer reads it.
        remote: RemoteBuffer,
    },
    /// Compare `compare` with the remote 64-bit word, and store `swap` there if they are equal.
    CompareSwap {
        /// The word.
        remote: RemoteBuffer,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add to the remote 64-bit word.
    FetchAdd {
        /// The word.
        remote: RemoteBuffer,
        /// What is added.
        add: u64,
    },
    /// Store eight bytes atomically.
    AtomicWrite {
        /// Where.
        remote: RemoteBuffer,
    },
    /// Make earlier writes globally visible or persistent at the peer.
    Flush {
        /// The range; its length is `flush_length`.
        remote: RemoteBuffer,
        /// Bytes to flush.
        length: u32,
        /// Placement and selectivity.
        feth: Feth,
    },
    /// A datagram (UD only).
    Datagram {
        /// The path to the peer.
        path: Path,
        /// The peer's QP.
        dest_qpn: Qpn,
        /// Q_Key on the wire, or, if its high bit is set, replaced by the QP's own.
        qkey: Qkey,
        /// Immediate data.
        imm: Option<Imm>,
    },
    /// A message to any queue pair (SRD only).
    Srd {
        /// The address handle that leads to the peer, by its number.
        handle: u16,
        /// The peer's QP.
        dest_qpn: Qpn,
        /// Its Q_Key.
        qkey: Qkey,
        /// What to do.
        verb: SrdVerb,
    },
    /// A local operation, executed in queue order without a packet.
    Local(LocalOp),
}

impl SendOp {
    /// Whether a service has such requests (IBTA 10.8.2, 11.4.1.1).
    pub(crate) fn is_of(&self, service: QpType) -> bool {
        match service {
            QpType::Rc | QpType::XrcInitiator => {
                !matches!(self, SendOp::Datagram { .. } | SendOp::Srd { .. })
            }
            QpType::Uc => match self {
                SendOp::Send(tail) => !matches!(tail, SendTail::Inv(_)),
                _ => matches!(self, SendOp::Write { .. } | SendOp::Local(_)),
            },
            QpType::Ud => matches!(self, SendOp::Datagram { .. }),
            QpType::Srd => matches!(self, SendOp::Srd { .. }),
            QpType::XrcTarget => false,
        }
    }
}

/// What a message of SRD does.
#[derive(Clone, Copy, Debug)]
pub enum SrdVerb {
    /// SEND, with immediate data or without.
    Send(Option<Imm>),
    /// RDMA WRITE, with immediate data or without.
    Write(RemoteBuffer, Option<Imm>),
    /// RDMA READ.
    Read(RemoteBuffer),
}

/// An address and key at the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteBuffer {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: Rkey,
}

impl RemoteBuffer {
    pub(crate) fn of(reth: &Reth) -> RemoteBuffer {
        RemoteBuffer { va: reth.va, rkey: reth.rkey }
    }
}

/// A memory operation of the send queue. What it does is up to the host, which finds the rest in the request's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalOp {
    /// Invalidate a key of ours.
    Invalidate(Rkey),
    /// Bind a memory window.
    BindWindow,
    /// Register a fast-registration memory region.
    FastRegister,
}

/// A work request on a receive queue.
#[derive(Clone, Debug)]
pub struct RecvWqe<D> {
    /// The application's number for it.
    pub wr_id: u64,
    /// The local bytes.
    pub data: D,
    /// How many bytes `data` can take in all.
    pub length: u32,
}

/// A receive work request that a message has taken.
#[derive(Clone, Debug)]
pub struct Receive<D> {
    /// The work request.
    pub wqe: RecvWqe<D>,
    /// Where its keys are valid: the domain of the queue to which it was posted.
    pub domain: Domain,
}

impl<D> SendWqe<D> {
    /// A signaled request with nothing but its operation, and `data` of no bytes.
    #[inline(always)]
    pub fn new(op: SendOp, data: D) -> SendWqe<D> {
        SendWqe { wr_id: 0, op, data, length: 0, signaled: true, solicited: false, fence: false, srqn: None }
    }

    /// The immediate data that it sends.
    pub fn imm(&self) -> Option<Imm> {
        match self.op {
            SendOp::Send(SendTail::Imm(imm)) => Some(imm),
            SendOp::Write { imm, .. } | SendOp::Datagram { imm, .. } => imm,
            SendOp::Srd { verb: SrdVerb::Send(imm) | SrdVerb::Write(_, imm), .. } => imm,
            _ => None,
        }
    }

    /// The opcode of its completion.
    pub fn wc_opcode(&self) -> WcOpcode {
        match &self.op {
            SendOp::Send(_) | SendOp::Datagram { .. } => WcOpcode::Send,
            SendOp::Write { .. } | SendOp::Srd { verb: SrdVerb::Write(..), .. } => WcOpcode::RdmaWrite,
            // rdma-core's EFA provider reports READs so, too, and libfabric 1.17 expects that.
            SendOp::Srd { verb: SrdVerb::Send(_) | SrdVerb::Read(_), .. } => WcOpcode::Send,
            SendOp::Read { .. } => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            SendOp::Flush { .. } => WcOpcode::Flush,
            SendOp::Local(LocalOp::Invalidate(_) | LocalOp::FastRegister) => WcOpcode::LocalInvalidate,
            SendOp::Local(LocalOp::BindWindow) => WcOpcode::BindMw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, send_wqe};

    #[test]
    fn only_sends_writes_and_datagrams_carry_immediate_data() {
        let imm = Some(Imm([1, 2, 3, 4]));
        let remote = RemoteBuffer { va: 0, rkey: Rkey(1) };
        let path = context().attr.path;
        let datagram = |imm| SendOp::Datagram { path, dest_qpn: Qpn::new(7), qkey: Qkey(1), imm };
        let write = |imm| SendOp::Write { remote, imm };
        for (op, sent) in [
            (SendOp::Send(SendTail::Imm(Imm([1, 2, 3, 4]))), imm),
            (SendOp::Send(SendTail::Plain), None),
            (SendOp::Send(SendTail::Inv(Rkey(1))), None),
            (write(imm), imm),
            (write(None), None),
            (datagram(imm), imm),
            (datagram(None), None),
            (SendOp::Read { remote }, None),
        ] {
            assert_eq!(send_wqe(1, op, 0).imm(), sent, "{op:?}");
        }
    }
}
