//! What the caller of a queue pair knows of the world, and the queue pair does not.

/// Who drives a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// An application that polls a CQ.
    Poll,
    /// An application that has posted.
    Post,
    /// The progress thread, since nobody else does.
    Thread,
    /// Anybody else. It may end the QP, so no ACK waits.
    Control,
}

/// What [`Qp::poll_transmit`](crate::Qp::poll_transmit) is told about the call that it is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    /// Who has called.
    pub caller: Caller,
    /// The caller will find completions.
    pub completes: bool,
    /// Packets of one call leave in segmented sends, each of which ends with its shortest packet.
    pub segments: bool,
}
