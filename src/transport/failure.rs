//! Why a queue pair fails, as the half that noticed knows it. Words for it are not made here.

use core::net::IpAddr;

use softrnic_wire::{Qkey, Qpn, Time};

use crate::attr::{QpState, QpType};
use crate::completion::{Status, WcOpcode};
use crate::context::Context;
use crate::wqe::{RemoteBuffer, SendOp, SendWqe, SrdVerb};

/// Why a work request or a message fails. Each reason has one status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// The host refused the local bytes of a send work request, and knows why.
    LocalMemory,
    /// The host refused a local operation, and knows why: a bind, an invalidation, a fast registration.
    LocalOperation,
    /// The service has no such operation.
    WrongService,
    /// A READ or an atomic with `max_rd_atomic` 0.
    NoReadsAllowed,
    /// The request has no form on the wire.
    NoForm,
    /// A datagram longer than the MTU.
    DatagramTooLong,
    /// A packet longer than the link takes.
    PacketTooLong,
    /// Something that cannot be.
    Internal,
    /// The peer answered with NAK 0x61.
    NakInvalidRequest,
    /// The peer answered with NAK 0x62.
    NakRemoteAccess,
    /// The peer answered with NAK 0x63.
    NakRemoteOperation,
    /// The peer did not answer, however often it was asked.
    NoAnswer,
    /// The peer reported lost packets more often than requests are repeated.
    SequenceNaks,
    /// The peer had no receive more often than requests are repeated.
    ReceiverNotReady,
    /// The answer is not one to this kind of request.
    AnswerKind,
    /// A READ answer that ends too early or goes on too long.
    AnswerEnd,
    /// A packet of a READ answer with a wrong length.
    AnswerLength,
    /// The packet of a message does not follow the one before it.
    OpcodeSequence,
    /// No request has this opcode.
    Opcode,
    /// The shared receive queue that the request names does not exist, or is of another XRC domain; or the QP has no queue.
    NoReceiveQueue,
    /// The QP's access flags do not allow the operation.
    QpAccess,
    /// More READs and atomics outstanding than `max_dest_rd_atomic`.
    TooManyReads,
    /// The payload of a packet does not fit its opcode and the path MTU.
    PayloadLength,
    /// A message longer than 2^31 bytes.
    MessageTooLong,
    /// The packets of a WRITE do not add up to the length that it announced.
    WriteLength,
    /// The address of an atomic is not a multiple of 8.
    Misaligned,
    /// The message is longer than the receive that it took.
    ReceiveTooShort,
    /// The host refused the bytes of the receive, and knows why.
    ReceiveMemory,
    /// The host refused the remote key or its range, and knows why.
    RemoteMemory,
    /// The host refused to invalidate the key that the peer named, and knows why.
    RemoteInvalidate,
    /// The peer has no such queue pair of SRD, or with another Q_Key.
    NakDestination,
    /// The peer's message names another Q_Key than that of the queue pair.
    Qkey,
    /// There is no such address handle.
    AddressHandle,
}

impl Reason {
    /// What completions say.
    pub const fn status(self) -> Status {
        match self {
            Reason::LocalMemory | Reason::ReceiveMemory => Status::LocalProtection,
            Reason::LocalOperation => Status::MwBind,
            Reason::WrongService | Reason::NoReadsAllowed | Reason::NoForm | Reason::AddressHandle => {
                Status::LocalQpOperation
            }
            Reason::DatagramTooLong
            | Reason::PacketTooLong
            | Reason::AnswerLength
            | Reason::ReceiveTooShort => Status::LocalLength,
            Reason::Internal => Status::General,
            Reason::NakInvalidRequest
            | Reason::OpcodeSequence
            | Reason::Opcode
            | Reason::NoReceiveQueue
            | Reason::QpAccess
            | Reason::TooManyReads
            | Reason::PayloadLength
            | Reason::MessageTooLong
            | Reason::WriteLength
            | Reason::Misaligned
            | Reason::NakDestination
            | Reason::Qkey
            | Reason::RemoteInvalidate => Status::RemoteInvalidRequest,
            Reason::NakRemoteAccess | Reason::RemoteMemory => Status::RemoteAccess,
            Reason::NakRemoteOperation => Status::RemoteOperation,
            Reason::NoAnswer | Reason::SequenceNaks => Status::RetryExceeded,
            Reason::ReceiverNotReady => Status::RnrRetryExceeded,
            Reason::AnswerKind | Reason::AnswerEnd => Status::BadResponse,
        }
    }
}

/// What was attempted when something failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The operation; of a request of the peer, the one that it stands for here.
    pub opcode: WcOpcode,
    /// The application's number for the work request, or of the receive that the peer's message took.
    pub wr_id: Option<u64>,
    /// Bytes, as far as known.
    pub length: u64,
    /// Where at the end that does not send.
    pub remote: Option<RemoteBuffer>,
    /// Bytes that the receive could take, if one was taken.
    pub room: Option<u32>,
}

/// A failure, for the host to keep and to explain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Why.
    pub reason: Reason,
    /// What failed, if it is known.
    pub attempt: Option<Attempt>,
    /// The QP as it was.
    pub qp: QpFacts,
    /// Since when the peer has been silent, or without a receive, where that is why.
    pub since: Option<Time>,
}

/// What a QP is, and to what it is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpFacts {
    /// Its number.
    pub qpn: Qpn,
    /// Its service.
    pub service: QpType,
    /// Its state.
    pub state: QpState,
    /// Its own address; meaningless where that of the peer is.
    pub own: IpAddr,
    /// The address and the QP at the other end; meaningless for UD, and before RTR.
    pub peer: (IpAddr, Qpn),
    /// `retry_cnt`.
    pub retries: u8,
    /// `rnr_retry`.
    pub rnr_retries: u8,
    /// `timeout`: 4.096 µs times two to the power of it.
    pub timeout: u8,
}

/// What a queue pair tells its host although nothing has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concern {
    /// The peer has had no receive since then, and the request waits for one.
    NoReceiveAtPeer {
        /// When the peer first said so.
        since: Time,
        /// The request.
        attempt: Attempt,
        /// The QP.
        qp: QpFacts,
    },
    /// A datagram for this QP was dropped, as all like it will be.
    UnfitDatagram {
        /// The QP that sent it.
        from: Qpn,
        /// Why.
        unfit: Unfit,
        /// The QP.
        qp: QpFacts,
    },
}

/// Why a datagram does not fit its QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It has another Q_Key.
    Qkey {
        /// The datagram's.
        came: Qkey,
        /// The QP's.
        expected: Qkey,
    },
    /// It is longer than the receive.
    Length {
        /// Its bytes, with those of the network header.
        length: u64,
        /// Those of the receive.
        room: u32,
    },
}

impl QpFacts {
    pub(crate) fn of(cx: &Context) -> QpFacts {
        let Context { qpn, service, state, attr, .. } = cx;
        QpFacts {
            qpn: *qpn,
            service: *service,
            state: *state,
            own: attr.path.src,
            peer: (attr.path.dst, attr.dest_qpn),
            retries: attr.retry_cnt,
            rnr_retries: attr.rnr_retry,
            timeout: attr.timeout,
        }
    }
}

impl Failure {
    pub(crate) fn new(cx: &Context, reason: Reason, attempt: Option<Attempt>) -> Failure {
        Failure { reason, attempt, qp: QpFacts::of(cx), since: None }
    }
}

impl Attempt {
    /// A work request of the send queue.
    pub fn of<D>(wqe: &SendWqe<D>) -> Attempt {
        let (remote, length) = match wqe.op {
            SendOp::Write { remote, .. }
            | SendOp::Read { remote }
            | SendOp::CompareSwap { remote, .. }
            | SendOp::FetchAdd { remote, .. }
            | SendOp::AtomicWrite { remote } => (Some(remote), wqe.length),
            SendOp::Flush { remote, length, .. } => (Some(remote), length),
            SendOp::Srd { verb: SrdVerb::Write(remote, _) | SrdVerb::Read(remote), .. } => {
                (Some(remote), wqe.length)
            }
            SendOp::Send(_) | SendOp::Datagram { .. } | SendOp::Srd { .. } | SendOp::Local(_) => {
                (None, wqe.length)
            }
        };
        let (opcode, length) = (wqe.wc_opcode(), length.into());
        Attempt { opcode, wr_id: Some(wqe.wr_id), length, remote, room: None }
    }
}
