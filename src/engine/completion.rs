//! Completion queues as the engine sees them, and the completion entry that crosses to the application.

use softrnic_diagnosis::Code;
use softrnic_transport::{Status, WcOpcode};
use softrnic_wire::{Imm, Qpn, Rkey};

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// The application's number for the work request.
    pub wr_id: u64,
    /// The outcome.
    pub status: Status,
    /// The operation.
    pub opcode: WcOpcode,
    /// Bytes moved.
    pub byte_len: u32,
    /// Immediate data, invalidated key, or why it failed.
    pub extra: CqeExtra,
    /// The QP that it belongs to.
    pub qpn: Qpn,
    /// The sender's QP (UD).
    pub src_qpn: Qpn,
    /// Whether a network header precedes the payload.
    pub grh: bool,
    /// Whether that header is an IPv4 header, which the completion reports (IBTA A17.4.5.1).
    pub ipv4: bool,
    /// When it was generated, in nanoseconds of the engine's clock.
    pub timestamp: u64,
}

/// What came with a received message, or why none did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CqeExtra {
    /// Nothing.
    None,
    /// Immediate data, in network order.
    Imm(Imm),
    /// The local key that the peer invalidated.
    Invalidated(Rkey),
    /// Nothing came: why the QP has failed.
    Failed(Code),
}
