//! Flows: what is sent from one host to another.

use softrnic_fabric::{Host, Picos};

/// A flow: one queue pair sends these bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The sender.
    pub src: Host,
    /// The receiver.
    pub dst: Host,
    /// Bytes of the application.
    pub bytes: u64,
    /// When the application posts it.
    pub start: Picos,
    /// DSCP of its packets.
    pub dscp: u8,
    /// UDP source port, which ECMP hashes.
    pub sport: u16,
}

/// How far a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowState {
    /// It has not started, or is under way.
    Running,
    /// The sender got its last completion.
    Done(Picos),
    /// A completion told of an error.
    Failed(Picos, softrnic_transport::Status),
}
