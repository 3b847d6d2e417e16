//! One end of a connection as the application sees it, and what it waits for.

use std::collections::VecDeque;

use softrnic_engine::{QpHandle, RecvRequest, SendRequest};
use softrnic_transport::{QpType, Status, WcOpcode};
use softrnic_wire::{Imm, Rkey, Time};

use super::window::Window;
use crate::arena::Span;

/// See the [module](self).
pub struct Endpoint {
    /// The NIC.
    pub node: usize,
    /// The QP.
    pub qp: QpHandle,
    /// Its service.
    pub service: QpType,
    /// Sends that were posted and not yet seen to be complete, oldest first.
    pub outstanding: VecDeque<Posted>,
    /// Receives in the QP's own queue, oldest first.
    pub receives: VecDeque<Receive>,
    /// Since when there has been no receive, and no memory for one.
    pub hungry_since: Option<Time>,
    /// Messages that the peer has posted for us and that take a receive, oldest first.
    pub incoming: VecDeque<Message>,
    /// Words in the peer's memory that only this end's atomics touch.
    pub words: Vec<Word>,
    /// A window of its own.
    pub window: Option<Window>,
    /// Messages still to be posted.
    pub budget: u32,
    /// It no longer posts: something was posted that must fail.
    pub doomed: bool,
    /// The first status other than success of its sends.
    pub send_error: Option<Status>,
    /// The first status other than success of its receives.
    pub receive_error: Option<Status>,
    /// Unsignaled sends since the last signaled one.
    pub unsignaled: usize,
    /// Its QP was reset or destroyed.
    pub gone: bool,
    /// Peer memory whose contents are not known until the connection is gone.
    pub limbo: Vec<Span>,
}

/// A send work request.
pub struct Posted {
    /// Its number.
    pub wr_id: u64,
    /// Whether success is to be reported.
    pub signaled: bool,
    /// What its completion must say.
    pub opcode: WcOpcode,
    /// Length in bytes.
    pub length: u32,
    /// Local buffer.
    pub local: Vec<Span>,
    /// What it does.
    pub effect: Effect,
    /// How it must fail.
    pub must_fail: Option<Status>,
}

/// What a send work request does besides sending a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: a SEND, or something without bytes.
    None,
    /// Puts pattern `id` into the peer's memory.
    Write { target: Span, id: u64 },
    /// Gets pattern `id`, which lies in the peer's memory, into the local buffer, or into `kept`, which the
    /// next request sends from.
    Read { source: Span, id: u64, kept: Vec<Span> },
    /// An operation on a word of its own, which held `original`.
    Word { index: usize, original: Option<u64> },
    /// Adds 1 to a word that many add to.
    Shared,
    /// Binds the window, which has this key then.
    Bind { key: Rkey },
    /// Ends the window.
    Unbind,
    /// Puts pattern `id` into everything that the peer's window shows.
    WindowWrite { id: u64 },
}

/// A word that one QP's atomics work on.
pub struct Word {
    /// Where, in the peer's memory.
    pub span: Span,
    /// Its value after everything that is complete, then after each request that is not.
    pub values: VecDeque<u64>,
}

/// A receive work request.
pub struct Receive {
    /// Its number.
    pub wr_id: u64,
    /// Its buffer.
    pub buffer: Vec<Span>,
}

/// A message that takes a receive of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Pattern.
    pub id: u64,
    /// Bytes.
    pub len: usize,
    /// Where a WRITE with immediate data has put them.
    pub written: Option<Span>,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// A key of the receiver that it invalidates.
    pub invalidates: Option<Rkey>,
}

impl Effect {
    /// The same READ, into a buffer that is used again.
    pub fn kept_in(self, spans: &[Span]) -> Effect {
        match self {
            Effect::Read { source, id, .. } => Effect::Read { source, id, kept: spans.into() },
            other => other,
        }
    }
}

impl Endpoint {
    /// An end that has not sent anything.
    pub fn new(node: usize, qp: QpHandle, service: QpType, budget: u32) -> Endpoint {
        Endpoint {
            node,
            qp,
            service,
            outstanding: VecDeque::new(),
            receives: VecDeque::new(),
            hungry_since: None,
            incoming: VecDeque::new(),
            words: Vec::new(),
            window: None,
            budget,
            doomed: false,
            send_error: None,
            receive_error: None,
            unsignaled: 0,
            gone: false,
            limbo: Vec::new(),
        }
    }

    /// Whether either direction has failed.
    pub fn has_failed(&self) -> bool {
        self.send_error.is_some() || self.receive_error.is_some()
    }

    /// Whether it may post a send.
    pub fn can_send(&self) -> bool {
        self.qp.sends.outstanding() < self.qp.sends.capacity() && !self.doomed && !self.has_failed()
    }

    /// Puts a send into the queue.
    pub fn push_send(&mut self, request: SendRequest, posted: Posted) {
        self.qp.sends.push(request).unwrap_or_else(|_| panic!("the send queue has room"));
        self.outstanding.push_back(posted);
    }

    /// Puts a receive into the queue; `false` when it is full.
    pub fn push_receive(&mut self, request: RecvRequest) -> bool {
        self.qp.receives.as_mut().is_some_and(|ring| ring.push(request).is_ok())
    }
}

/// Bytes of a list of spans.
pub fn total(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.len).sum()
}
