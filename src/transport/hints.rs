//! What the caller of a queue pair knows and the queue pair does not.

/// What drives a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// An application that polls a CQ.
    Poll,
    /// An application that has posted.
    Post,
    /// The progress thread, because no application thread does.
    Thread,
    /// Any other call. It may end the QP, so no ACK is delayed.
    Control,
}

/// What [`Qp::poll_transmit`](crate::Qp::poll_transmit) is told about the call in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    /// The kind of call.
    pub caller: Caller,
    /// The call will return completions.
    pub completes: bool,
    /// The packets of one call leave in segmented sends, each of which ends with its shortest packet.
    pub segments: bool,
}
