//! Work requests as a checker sees them.

use std::fmt::{self, Display, Formatter};

use softrnic_transport::WcOpcode;

use crate::Trace;

/// The queue that a request was posted to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// The send queue of the QP with this number.
    Send(u32),
    /// Its receive queue.
    Receive(u32),
    /// The shared receive queue at this address.
    Shared(usize),
}

/// Bytes that a request reads or writes here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The key.
    pub lkey: u32,
}

/// Bytes that a request reads or writes at the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The peer's key.
    pub rkey: u32,
    /// First byte.
    pub addr: u64,
}

/// A posted work request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it does.
    pub opcode: WcOpcode,
    /// Bytes in all.
    pub length: u64,
    /// Where they are; nothing if they are inline.
    pub pieces: Vec<Piece>,
    /// Where at the peer, if it names its memory.
    pub remote: Option<Remote>,
    /// Whether it waits for READs and atomics before it.
    pub fenced: bool,
    /// Whether success completes.
    pub signaled: bool,
    /// A checksum of the bytes when it was posted, if they must not change: until it is complete, or until the NIC writes there.
    pub sum: Option<u32>,
    /// How far the NIC is with it, if it writes there.
    pub stage: Stage,
    /// Where it was posted.
    pub posted: Trace,
}

/// How far the NIC is with a request whose bytes it writes. The numbers are of the log of uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It has written nothing, since it was posted.
    Waiting {
        /// When that was.
        since: u64,
    },
    /// It has written something.
    Placed,
    /// It has written all, and this is the checksum.
    Complete {
        /// The checksum, if somebody may look at it again.
        sum: Option<u32>,
        /// When that was.
        since: u64,
    },
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::Waiting { since: 0 }
    }
}

/// A completion that the program has polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The program's number for the request.
    pub wr_id: u64,
    /// The QP.
    pub qpn: u32,
    /// Whether it is of a receive.
    pub receive: bool,
    /// Whether it failed: then it may be of a request that is not signaled.
    pub failed: bool,
    /// The bytes of a message that a receive has taken, with those of a network header.
    pub filled: Option<u32>,
}

impl Request {
    /// Whether the NIC writes to the pieces.
    pub fn writes(&self) -> bool {
        matches!(
            self.opcode,
            WcOpcode::Recv
                | WcOpcode::RecvRdmaWithImm
                | WcOpcode::RdmaRead
                | WcOpcode::CompareSwap
                | WcOpcode::FetchAdd
        )
    }

    /// Whether it touches bytes of this process that another one does.
    pub fn meets_here(&self, other: &Request) -> bool {
        let meets = |a: &Piece, b: &Piece| {
            let range = |piece: &Piece| (piece.addr, u64::from(piece.length));
            meet(range(a), range(b))
        };
        self.pieces.iter().any(|piece| other.pieces.iter().any(|theirs| meets(piece, theirs)))
    }

    /// Whether both name bytes of their peers with the same key, and some of them are the same.
    pub fn meets_there(&self, other: &Request) -> bool {
        match (self.remote, other.remote) {
            (Some(a), Some(b)) => a.rkey == b.rkey && meet((a.addr, self.length), (b.addr, other.length)),
            _ => false,
        }
    }
}

/// Whether two ranges, each its first byte and its length, have bytes in common.
fn meet((a, a_length): (u64, u64), (b, b_length): (u64, u64)) -> bool {
    a_length > 0 && b_length > 0 && a < b.saturating_add(b_length) && b < a.saturating_add(a_length)
}

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(operation(self.opcode))?;
        if !matches!(self.opcode, WcOpcode::BindMw | WcOpcode::LocalInvalidate) {
            write!(f, " of {} B", self.length)?;
        }
        write!(f, ", wr_id {:#x},", self.wr_id)
    }
}

fn operation(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "SEND",
        WcOpcode::RdmaWrite => "WRITE",
        WcOpcode::RdmaRead => "READ",
        WcOpcode::CompareSwap => "compare-and-swap",
        WcOpcode::FetchAdd => "fetch-and-add",
        WcOpcode::BindMw => "bind of a window",
        WcOpcode::LocalInvalidate => "invalidation",
        WcOpcode::Flush => "FLUSH",
        WcOpcode::AtomicWrite => "ATOMIC WRITE",
        WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => "receive",
    }
}
