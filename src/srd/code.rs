//! Why a message failed, with the numbers of EFA, which programs find in `ibv_wc.vendor_err`.

use softrnic_transport::Status;

/// The outcome of a message (`enum efa_io_comp_status` of rdma-core).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Code {
    /// Delivered.
    Ok = 0,
    /// The queue pair left RTS.
    Flushed = 1,
    /// An error of the queue pair.
    QpInternal = 2,
    /// The queue pair has no such operation.
    UnsupportedOp = 3,
    /// There is no such address handle.
    InvalidAh = 4,
    /// A key of this side does not allow it.
    InvalidLkey = 5,
    /// The message is too long.
    BadLength = 6,
    /// The peer's key or range does not allow it.
    BadAddress = 7,
    /// The peer does not know the connection any more.
    Aborted = 8,
    /// The peer has no such queue pair, or it does not receive, or has another key.
    BadDestination = 9,
    /// The peer had no receive, too often.
    ReceiverNotReady = 10,
    /// The peer's receive is shorter than the message.
    ReceiveTooShort = 11,
    /// The peer could not do what was asked.
    BadStatus = 12,
    /// The peer has answered before, and does not now.
    Unresponsive = 13,
    /// The peer has never answered.
    Unreachable = 15,
}

/// Of a refusal: the peer answers as many READs as it can, so try again. Not an outcome.
pub(crate) const BUSY: u8 = 0x80;

impl Code {
    /// All that a peer may send.
    const OF_PEERS: [Code; 6] = [
        Code::BadAddress,
        Code::Aborted,
        Code::BadDestination,
        Code::ReceiverNotReady,
        Code::ReceiveTooShort,
        Code::BadStatus,
    ];

    /// What a peer says; [`BadStatus`](Code::BadStatus) if that says nothing.
    pub(crate) fn of_peer(byte: u8) -> Code {
        Code::OF_PEERS.into_iter().find(|code| *code as u8 == byte).unwrap_or(Code::BadStatus)
    }

    /// The status of verbs that goes with it (`to_ibv_status` of rdma-core's EFA provider).
    pub const fn status(self) -> Status {
        match self {
            Code::Ok => Status::Success,
            Code::Flushed => Status::Flushed,
            Code::QpInternal | Code::UnsupportedOp | Code::InvalidAh => Status::LocalQpOperation,
            Code::InvalidLkey => Status::LocalProtection,
            Code::BadLength => Status::LocalLength,
            Code::BadAddress => Status::RemoteAccess,
            Code::Aborted => Status::RemoteAborted,
            Code::BadDestination => Status::RemoteInvalidReadRequest,
            Code::ReceiverNotReady => Status::RnrRetryExceeded,
            Code::ReceiveTooShort => Status::RemoteInvalidRequest,
            Code::BadStatus => Status::BadResponse,
            Code::Unresponsive | Code::Unreachable => Status::ResponseTimeout,
        }
    }
}
