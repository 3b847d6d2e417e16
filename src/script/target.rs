//! What a script is played on.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::statement::{Event, MrSpec, QpSpec, Server, Setting, State};

/// Why a script cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The NIC does not do what the script says.
    Deviation(String),
    /// This target has no way to play the line, or the NIC does not have what it needs.
    NotApplicable(String),
    /// The script is wrong, or the target broke.
    Broken(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Trouble::Deviation(what) | Trouble::NotApplicable(what) | Trouble::Broken(what)) = self;
        f.write_str(what)
    }
}

/// Where a named piece of memory begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The region.
    pub memory: String,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// The keys of a region and the address of its first byte under them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub struct Keys {
    pub lkey: u32,
    pub rkey: u32,
    pub base: u64,
}

/// The numbers of both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpNumbers {
    /// The QP of the NIC.
    pub ours: u32,
    /// The one that the script plays.
    pub peer: u32,
}

/// How a server is asked for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The NIC's address.
    pub nic: IpAddr,
    /// That of the side which the script plays.
    pub peer: IpAddr,
    /// The service that the server listens for.
    pub service: u64,
    /// The GUID of the adapter that the script plays.
    pub guid: u64,
    /// The first of the 256 communication ids that the script may choose.
    pub first_id: u32,
    /// The first of its QP numbers.
    pub first_qpn: u32,
}

/// How a packet's ICRC is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seal {
    /// As the specification says.
    Good,
    /// One bit is wrong.
    Bad,
    /// As kernel rxe does it for FLUSH.
    Rxe,
}

/// A packet to the NIC.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// BTH to ICRC; the ICRC is still to be made.
    pub bytes: Vec<u8>,
    /// How.
    pub seal: Seal,
    /// Whether it comes from an address that no QP is connected with.
    pub stranger: bool,
    /// The traffic class.
    pub tos: u8,
}

/// A packet of the NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
    /// How it is sealed.
    pub seal: Seal,
    /// The traffic class.
    pub tos: u8,
    /// The UDP source port.
    pub sport: u16,
}

/// A piece of local memory in a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// What a work request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub enum Op {
    Send { imm: Option<u32>, invalidate: Option<u32> },
    Write { va: u64, rkey: u32, imm: Option<u32> },
    Read { va: u64, rkey: u32 },
    CompareSwap { va: u64, rkey: u32, compare: u64, swap: u64 },
    FetchAdd { va: u64, rkey: u32, add: u64 },
    AtomicWrite { va: u64, rkey: u32 },
    Flush { va: u64, rkey: u32, length: u32, whole: bool },
    Datagram { qpn: u32, qkey: u32, imm: Option<u32> },
    Invalidate { rkey: u32 },
    FastRegister { lkey: u32, new_key: u32 },
    Bind { window: u32, tag: u8 },
}

/// A work request for a send queue.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub struct Request {
    pub wr_id: u64,
    pub op: Op,
    pub sges: Vec<Sge>,
    pub inline: Option<Vec<u8>>,
    pub srqn: Option<u32>,
    pub fence: bool,
    pub solicited: bool,
    pub signaled: bool,
    /// The names in it, for targets that know objects by them.
    pub named: Posted,
}

/// The names of what a work request is about.
#[derive(Clone, Default, Debug)]
pub struct Posted {
    /// The region of the first piece.
    pub memory: Option<String>,
    /// The window.
    pub window: Option<String>,
}

/// A queue that takes receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue<'a> {
    /// That of a QP.
    Own(&'a str),
    /// A shared one.
    Shared(&'a str),
}

/// A completion. What it does not say is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub struct Completion {
    pub wr_id: u64,
    /// `Success`, `Flushed`, `RemoteAccess` and the like.
    pub status: String,
    /// `Send`, `RdmaWrite`, `Recv` and the like.
    pub opcode: Option<String>,
    pub byte_len: Option<u64>,
    pub src_qpn: Option<u64>,
    pub qpn: u32,
    pub imm: Option<u32>,
    pub invalidated: Option<u32>,
}

/// One NIC whose peer is played by a script, and which does what the script says otherwise.
///
/// Time is that of the target. What happens "after" happens so long after the last line had its effect.
pub trait Target {
    /// Sets the NIC up. Comes before everything else.
    fn option(&mut self, setting: Setting) -> Result<(), Trouble>;

    /// A server on the NIC, which answers whoever asks for a connection.
    fn server(&mut self, kind: Server) -> Result<Served, Trouble>;

    /// The next message of the NIC's connection manager: soon, or `after` that time.
    fn next_message(&mut self, after: Option<Duration>) -> Result<Received, Trouble>;

    /// A message that the NIC's connection manager has sent and that nobody asked about, if there is one.
    fn unexpected_message(&mut self) -> Result<Option<Received>, Trouble>;

    /// Makes a QP and brings it to its state. Its peer is the script.
    fn create_qp(&mut self, spec: &QpSpec) -> Result<QpNumbers, Trouble>;

    /// Makes a shared receive queue, in the domain of the QPs or `elsewhere`, and returns its number.
    fn create_srq(&mut self, name: &str, places: u32, xrc: bool, elsewhere: bool) -> Result<u32, Trouble>;

    /// Arms the limit event of a shared receive queue.
    fn limit(&mut self, srq: &str, limit: u32) -> Result<(), Trouble>;

    /// Registers new memory.
    fn create_mr(&mut self, spec: &MrSpec) -> Result<Keys, Trouble>;

    /// Makes a window of type 1 or 2 and returns its key.
    fn create_window(&mut self, name: &str, kind: u8) -> Result<u32, Trouble>;

    /// Maps pages and registers them on demand.
    fn create_mapping(&mut self, name: &str, pages: usize) -> Result<Keys, Trouble>;

    /// Makes a region that a work request will register, over a mapping.
    fn create_fast_mr(&mut self, name: &str, mapping: &str) -> Result<Keys, Trouble>;

    /// Unmaps a page of a mapping.
    fn unmap(&mut self, mapping: &str, page: usize) -> Result<(), Trouble>;

    /// Deregisters memory.
    fn deregister(&mut self, memory: &str) -> Result<(), Trouble>;

    /// Changes a QP's state, and returns whether that was accepted.
    fn modify(&mut self, qp: &str, state: State, notify: bool) -> Result<bool, Trouble>;

    /// Destroys a QP.
    fn destroy_qp(&mut self, qp: &str) -> Result<(), Trouble>;

    /// Destroys a shared receive queue.
    fn destroy_srq(&mut self, srq: &str) -> Result<(), Trouble>;

    /// The application writes its memory.
    fn write(&mut self, place: &Place, bytes: &[u8]) -> Result<(), Trouble>;

    /// What the application's memory holds.
    fn read(&mut self, place: &Place, len: usize) -> Result<Vec<u8>, Trouble>;

    /// What it would hold if nobody but the application had written it.
    fn untouched(&mut self, place: &Place, len: usize) -> Result<Vec<u8>, Trouble>;

    /// Posts a request.
    fn post(&mut self, qp: &str, request: Request) -> Result<(), Trouble>;

    /// Posts requests to QPs, one right behind the other. An error comes with the number of requests before it.
    fn post_all(&mut self, requests: Vec<(&str, Request)>) -> Result<(), (usize, Trouble)> {
        for (at, (qp, request)) in requests.into_iter().enumerate() {
            self.post(qp, request).map_err(|trouble| (at, trouble))?;
        }
        Ok(())
    }

    /// Posts a receive.
    fn receive(&mut self, queue: Queue<'_>, wr_id: u64, sges: Vec<Sge>) -> Result<(), Trouble>;

    /// Sends a packet to the NIC.
    fn inject(&mut self, packet: Outgoing) -> Result<(), Trouble>;

    /// From `true` to `false` packets gather, which the NIC then finds all at once.
    fn burst(&mut self, begin: bool) -> Result<(), Trouble>;

    /// The next packet of the NIC: now, or `after` that time.
    fn next_packet(&mut self, after: Option<Duration>) -> Result<Received, Trouble>;

    /// Whether the NIC may have sent this packet again of its own accord, because an answer took too long.
    fn is_repeat(&mut self, packet: &Received) -> bool {
        let _ = packet;
        false
    }

    /// Whether every packet must have MigReq set. If not, it matters in lines that say `M` alone, so that a peer that
    /// never sets it deviates in one script.
    fn wants_migration_bit(&self) -> bool {
        true
    }

    /// The key that a bound window has, if that is known better than by the tag that was asked for.
    fn bound_key(&mut self, window: &str) -> Option<u32> {
        let _ = window;
        None
    }

    /// A packet that the NIC has sent and that nobody asked about, if there is one.
    fn unexpected_packet(&mut self) -> Result<Option<Received>, Trouble>;

    /// Forgets the packets that the NIC has sent.
    fn forget_packets(&mut self) -> Result<(), Trouble>;

    /// Lets time pass.
    fn pass(&mut self, time: Duration) -> Result<(), Trouble>;

    /// Lets as much time pass as anything that is still to come could take.
    fn rest(&mut self) -> Result<(), Trouble>;

    /// The next completion, in any order of queues: now, or `after` that time.
    fn next_completion(&mut self, after: Option<Duration>) -> Result<Completion, Trouble>;

    /// A completion that nobody asked about, if there is one.
    fn unexpected_completion(&mut self) -> Result<Option<Completion>, Trouble>;

    /// The next asynchronous event, with the name of the object, or `cq`. With `expected`, it is worth waiting for.
    fn next_event(&mut self, expected: bool) -> Result<Option<(String, Event)>, Trouble>;

    /// The state of a QP.
    fn state(&mut self, qp: &str) -> Result<State, Trouble>;

    /// Whether a state, or memory, that is not what it should be is worth another look.
    fn look_again(&mut self) -> bool;

    /// The value of a counter, if it can be seen.
    fn counter(&mut self, name: &str) -> Result<Option<u64>, Trouble>;

    /// How many packets were dropped for a reason, if it can be seen.
    fn dropped(&mut self, reason: &str) -> Result<Option<u64>, Trouble>;

    /// How much of something is held, if it can be seen.
    fn usage(&mut self, what: &str) -> Result<Option<u64>, Trouble>;

    /// The script has ended: what must hold then, besides what the script says.
    fn finish(&mut self) -> Result<(), Trouble>;
}
