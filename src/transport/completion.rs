//! What a queue pair reports: work completions and asynchronous events.

use softrnic_wire::{Imm, Qpn, Rkey};

/// Work completion status, with the numbers of verbs (`enum ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Status {
    Success = 0,
    LocalLength = 1,
    LocalQpOperation = 2,
    LocalProtection = 4,
    Flushed = 5,
    MwBind = 6,
    BadResponse = 7,
    LocalAccess = 8,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
    RemoteInvalidReadRequest = 15,
    RemoteAborted = 16,
    Fatal = 19,
    ResponseTimeout = 20,
    General = 21,
}

/// What was completed, with the numbers of verbs (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum WcOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInvalidate = 6,
    Flush = 8,
    AtomicWrite = 9,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

impl WcOpcode {
    /// Whether it completes a receive work request.
    pub const fn is_receive(self) -> bool {
        self as u8 >= 128
    }
}

/// One work completion, as the transport knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The application's number for the work request.
    pub wr_id: u64,
    /// The outcome.
    pub status: Status,
    /// The operation; tells send from receive completions.
    pub opcode: WcOpcode,
    /// Bytes moved; for UD receives including the 40-byte header area.
    pub byte_len: u32,
    /// Immediate data, received or sent; rxe and mlx5 report sent immediate data too.
    pub imm: Option<Imm>,
    /// The key that the peer's SEND with Invalidate invalidated.
    pub invalidated: Option<Rkey>,
    /// The QP that reports it.
    pub qpn: Qpn,
    /// The sender's QP (UD receives only, otherwise zero).
    pub src_qpn: Qpn,
    /// Whether the first 40 bytes of the buffer hold a network header.
    pub grh: bool,
    /// Whether it wakes a CQ armed for solicited completions: SE was set, or it is an error.
    pub solicited: bool,
}

/// An asynchronous event about one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpEvent {
    /// The first packet has arrived while the QP was in RTR.
    CommunicationEstablished,
    /// The send queue has finished what was started before SQD.
    SendQueueDrained,
    /// A QP with a shared receive queue has returned its last WQE on its way to ERR.
    LastWqeReached,
    /// A local error has moved the QP to ERR, and no completion says so.
    Fatal,
    /// The peer's request was invalid.
    RequestError,
    /// The peer's request violated access rights.
    AccessError,
}

#[cfg(test)]
mod tests {
    use super::WcOpcode;

    #[test]
    fn a_completion_of_a_receive_is_one_with_bit_7_set() {
        // enum ibv_wc_opcode: IBV_WC_RECV = 1 << 7.
        assert!(WcOpcode::Recv.is_receive() && WcOpcode::RecvRdmaWithImm.is_receive());
        assert!(!WcOpcode::Send.is_receive() && !WcOpcode::AtomicWrite.is_receive());
    }
}
