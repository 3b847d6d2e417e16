//! What the lines of a script say.

use std::time::Duration;

use softrnic_wire::OpcodeInfo;

use crate::message::MessageKind;
use crate::target::{Place, Seal};

/// One line. Names stand for objects that lines before it made.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// How long after the last line it happens.
    pub after: Option<Duration>,
    pub act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Option(Setting),
    Server(Server),
    Qp(QpSpec),
    Srq {
        name: String,
        places: u32,
        xrc: bool,
        elsewhere: bool,
    },
    Limit {
        srq: String,
        limit: u32,
    },
    Mr(MrSpec),
    Window {
        name: String,
        kind: u8,
    },
    Mapping {
        name: String,
        pages: usize,
    },
    FastMr {
        name: String,
        mapping: String,
    },
    Unmap {
        mapping: String,
        page: usize,
    },
    Deregister(String),
    Modify {
        qp: String,
        state: State,
        notify: bool,
        refused: bool,
    },
    Destroy(String),
    Tag {
        name: String,
        tag: u8,
    },
    Fill {
        piece: Piece,
        pattern: u64,
    },
    Word {
        place: Place,
        value: u64,
    },
    Post(Post),
    Receive {
        queue: String,
        wr: u64,
        pieces: Vec<Piece>,
    },
    /// `<`
    Inject(Packet),
    /// `>`
    Expect(Packet),
    /// `< SOFTRNIC capabilities`
    Ask(Agreed),
    /// `> SOFTRNIC capabilities`
    ExpectAnswer(Agreed),
    /// `> SOFTRNIC question`
    ExpectQuestion(Agreed),
    /// `< SOFTRNIC answer`
    Answer(Agreed),
    /// `< CM`
    SendMessage(Message),
    /// `> CM`
    ExpectMessage(Message),
    Nothing(Option<Duration>),
    Quiet,
    Wait(Duration),
    Ignore,
    IgnoreEvents,
    Burst(bool),
    Complete(Complete),
    Event {
        object: String,
        event: Event,
    },
    State {
        qp: String,
        state: State,
    },
    Memory {
        piece: Piece,
        filling: Filling,
    },
    MemoryWord {
        place: Place,
        value: u64,
    },
    Counter {
        name: String,
        value: u64,
    },
    Drop {
        name: String,
        value: u64,
    },
    Usage {
        name: String,
        at_most: bool,
        value: u64,
    },
}

/// What runs on the NIC and answers those who ask it for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// It accepts whoever asks for a reliable connection, and posts nothing that sends.
    Connections,
    /// It tells whoever asks the QP of a datagram service.
    Datagrams,
}

/// How the NIC is set up, before anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "docs/drill.md has them")]
pub enum Setting {
    EarlyRetransmission(bool),
    Congestion(bool),
    ReadChunk(u32),
    CnpInterval(u32),
    SafeCopies(bool),
    CqPlaces(usize),
    HiddenHeaders(bool),
    Window(u64),
    SelectiveRecovery(bool),
    Paths(u8),
}

/// What SoftRNICs tell each other of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub qp: String,
    /// Besides selective recovery: packets from many source ports.
    pub paths: bool,
}

/// A transport service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Service {
    Rc,
    Uc,
    Ud,
    XrcInitiator,
    XrcTarget,
}

/// The states of a QP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl State {
    /// All, with their names.
    pub const NAMES: [(&'static str, State); 7] = [
        ("RESET", State::Reset),
        ("INIT", State::Init),
        ("RTR", State::Rtr),
        ("RTS", State::Rts),
        ("SQD", State::Sqd),
        ("SQE", State::Sqe),
        ("ERR", State::Err),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        State::NAMES.iter().find(|(_, state)| *state == self).map_or("", |(name, _)| name)
    }
}

/// What a QP or a region lets peers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Right {
    LocalWrite,
    RemoteWrite,
    RemoteRead,
    RemoteAtomic,
    Bind,
    Flush,
}

/// Several rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u8);

impl Access {
    /// No right.
    pub const NONE: Access = Access(0);
    /// Every right.
    pub const ALL: Access = Access(0x3F);

    /// With this right too.
    #[must_use]
    pub fn with(self, right: Right) -> Access {
        Access(self.0 | 1 << right as u8)
    }

    /// Without this right.
    #[must_use]
    pub fn without(self, right: Right) -> Access {
        Access(self.0 & !(1 << right as u8))
    }

    /// Whether this right is among them.
    pub fn has(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }
}

/// A QP and the state that it is brought to. What a script does not say has the values that docs/drill.md names.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub struct QpSpec {
    pub name: String,
    pub service: Service,
    pub state: State,
    pub mtu: u32,
    pub sq_psn: u32,
    pub rq_psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub access: Access,
    pub tos: u8,
    /// Places of the send queue.
    pub depth: usize,
    /// Places of the receive queue.
    pub receives: usize,
    /// The shared receive queue instead of one of its own.
    pub srq: Option<String>,
}

impl QpSpec {
    /// The Q_Key of datagram QPs.
    pub const QKEY: u32 = 0x1122_3344;

    pub(crate) fn new(name: &str, service: Service) -> QpSpec {
        QpSpec {
            name: name.into(),
            service,
            state: State::Rts,
            mtu: 1024,
            sq_psn: 100,
            rq_psn: 100,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            access: Access::ALL,
            tos: 0,
            depth: 16,
            receives: 16,
            srq: None,
        }
    }
}

/// A registered piece of memory.
#[derive(Clone, Debug)]
pub struct MrSpec {
    /// Its name.
    pub name: String,
    /// In bytes.
    pub len: u64,
    /// What may be done with it.
    pub access: Access,
    /// Whether addresses in it count from 0.
    pub zero_based: bool,
    /// Whether its pages may come and go.
    pub on_demand: bool,
    /// Whether it is of another protection domain than the QPs.
    pub elsewhere: bool,
}

/// `NAME+OFFSET:LENGTH`, and bits that falsify its key.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub place: Place,
    pub len: usize,
    pub flip: u32,
}

/// A number, or what a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(u64),
    /// `NAME+OFFSET` as an address, `NAME^BITS` as a key.
    Name {
        name: String,
        offset: u64,
        flip: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub info: &'static OpcodeInfo,
    pub fields: Vec<(&'static str, Value)>,
    pub len: usize,
    /// Pattern, and offset into it.
    pub data: Option<(u64, usize)>,
    /// The PSNs that a selective acknowledgement says have come.
    pub came: Option<Vec<u32>>,
    pub qp: Option<String>,
    pub seal: Option<Seal>,
    pub stranger: bool,
    pub tos: Option<u8>,
    /// In what the lowest four bits of the source port differ from those of the first packet.
    pub path: Option<u16>,
    /// An opcode byte instead of the named one.
    pub raw_opcode: Option<u8>,
}

/// A message of the connection manager.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub kind: MessageKind,
    /// The connection.
    pub of: String,
    pub fields: Vec<(&'static str, Value)>,
    /// The same as the last of its kind.
    pub again: bool,
    pub seal: Seal,
    pub stranger: bool,
    /// Bytes of the datagram, if it is not a whole one.
    pub len: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub qp: String,
    pub kind: Kind,
    pub wr: u64,
    pub pieces: Vec<Piece>,
    pub inline: Option<(u64, usize)>,
    pub to: Option<Value>,
    pub key: Option<Value>,
    pub srq: Option<Value>,
    pub imm: Option<u32>,
    pub invalidate: Option<u32>,
    /// `compare`, `length`, `qkey`, `tag`.
    pub first: u64,
    /// `swap`, `add`, `dest`.
    pub second: u64,
    pub whole: bool,
    pub fence: bool,
    pub solicited: bool,
    pub signaled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    Datagram,
    Invalidate,
    FastRegister,
    Bind,
}

#[derive(Clone, Debug)]
pub(crate) struct Complete {
    pub wr: u64,
    pub status: String,
    pub opcode: Option<String>,
    pub len: Option<u64>,
    pub src: Option<u64>,
    pub imm: Option<u32>,
    pub inv: Option<Value>,
    pub of: Option<String>,
}

/// What a piece of memory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filling {
    /// A pattern, from this byte of it on.
    Pattern(u64, usize),
    /// Zeros.
    Zeros,
    /// What it held before the peer could reach it.
    Untouched,
}

/// Asynchronous events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of verbs")]
pub enum Event {
    CommunicationEstablished,
    SendQueueDrained,
    LastWqeReached,
    QpFatal,
    RequestError,
    AccessError,
    SrqLimit,
    CqError,
}

impl Event {
    /// All, with their names.
    pub const NAMES: [(&'static str, Event); 8] = [
        ("COMM_EST", Event::CommunicationEstablished),
        ("SQ_DRAINED", Event::SendQueueDrained),
        ("LAST_WQE_REACHED", Event::LastWqeReached),
        ("QP_FATAL", Event::QpFatal),
        ("QP_REQ_ERR", Event::RequestError),
        ("QP_ACCESS_ERR", Event::AccessError),
        ("SRQ_LIMIT_REACHED", Event::SrqLimit),
        ("CQ_ERR", Event::CqError),
    ];

    /// Its name in scripts.
    pub fn name(self) -> &'static str {
        Event::NAMES.iter().find(|(_, event)| *event == self).map_or("", |(name, _)| name)
    }
}
