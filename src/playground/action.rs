//! What somebody decides: how everything is set up, and what is done between steps.

use serde::{Deserialize, Serialize};

/// How the NICs and the network are set up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    /// Determines keys, queue pair numbers, and what the network does by chance.
    pub seed: u64,
    /// NICs: 2, or 3, of which the first and the last send to the second.
    pub sides: usize,
    /// Transport service.
    pub service: Service,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Code of the local ACK timeout: 4.096 µs × 2^timeout.
    pub timeout: u8,
    /// Retries after timeouts and sequence errors.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs; 7 is for ever.
    pub rnr_retry: u8,
    /// Code of the wait that RNR NAKs ask for.
    pub rnr_timer: u8,
    /// READs and atomics outstanding.
    pub rd_atomic: u8,
    /// First PSNs: those of the first end of each connection, and those of the second.
    pub psns: [u32; 2],
    /// Nanoseconds on the way.
    pub delay: u64,
    /// Bits per second of every link.
    pub bandwidth: u64,
    /// Whether packets are ECN-capable, and congestion notifications slow a sender down (DCQCN).
    pub congestion_control: bool,
    /// Whether losses are repaired before the local ACK timeout.
    pub early_retransmission: bool,
    /// Whether the NICs ask each other, after a loss, to send again only what was lost.
    pub selective_recovery: bool,
    /// Probability that a switch marks an ECN-capable packet.
    pub mark: f64,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// What is between the NICs.
    pub network: Network,
    /// Bytes in the queue of a switch's port from which on it marks; 0 for no marks. It needs a switch.
    pub mark_at: u64,
    /// Bytes of memory of each switch; 0 for more than can be filled.
    pub buffer: u64,
    /// Whether a switch whose memory fills pauses its neighbours (PFC), instead of dropping.
    pub pfc: bool,
    /// Nanoseconds after which the routes follow a link that has failed.
    pub convergence: u64,
    /// UDP source ports of the connections, from which switches choose among paths.
    pub sports: [u16; 2],
    /// Whether the NICs are connected by messages to QP 1, when somebody asks for it, and not from the beginning.
    pub connection_manager: bool,
}

/// What is between the NICs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing that queues.
    Cable,
    /// A switch.
    Switch,
    /// A leaf with the senders, a leaf with the receiver, and two spines between them. The receiver's link is twice as fast as the
    /// others.
    Spines,
}

/// The transport service of all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Service {
    Rc,
    Uc,
    Ud,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            seed: 1,
            sides: 2,
            service: Service::Rc,
            mtu: 1024,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            rd_atomic: 4,
            psns: [100, 9000],
            delay: 5_000,
            bandwidth: 10_000_000_000,
            congestion_control: false,
            early_retransmission: false,
            selective_recovery: false,
            mark: 0.0,
            loss: 0.0,
            network: Network::Cable,
            mark_at: 0,
            buffer: 0,
            pfc: false,
            convergence: 0,
            sports: [0xC000; 2],
            connection_manager: false,
        }
    }
}

/// What is done between two steps. Ends of connections are numbered: 0 and 1 are those of the first one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Posts a work request to the send queue.
    Post(Post),
    /// Posts a receive.
    Recv {
        /// To which end.
        end: usize,
        /// Bytes that it can take.
        len: u32,
    },
    /// Takes what has been completed.
    Poll {
        /// At which end.
        end: usize,
    },
    /// Asks for a connection.
    Connect {
        /// At which end: not at a server's.
        end: usize,
    },
    /// Ends a connection.
    Disconnect {
        /// At which end.
        end: usize,
    },
    /// The application writes to its memory.
    Write {
        /// Which NIC's.
        side: usize,
        /// From where.
        offset: usize,
        /// A 64-bit word.
        word: u64,
    },
    /// Lets time pass, but not past the next thing that happens by itself.
    Wait {
        /// Nanoseconds.
        ns: u64,
    },
    /// Loses a packet under way.
    Drop {
        /// Which one.
        packet: usize,
    },
    /// Copies a packet under way.
    Duplicate {
        /// Which one.
        packet: usize,
    },
    /// Keeps a packet under way for longer.
    Delay {
        /// Which one.
        packet: usize,
        /// For so many nanoseconds.
        ns: u64,
    },
    /// Marks a packet under way: congestion experienced.
    Mark {
        /// Which one.
        packet: usize,
    },
    /// Inverts a bit of a packet under way.
    Flip {
        /// Which one.
        packet: usize,
        /// The bit, counted from the first of the BTH.
        bit: u32,
    },
    /// Lets a link between two switches fail, or work again.
    Link {
        /// Which one.
        link: usize,
        /// Whether it works.
        up: bool,
    },
    /// Changes what the network does by chance.
    Network {
        /// Probability of a mark.
        mark: f64,
        /// Probability of a loss.
        loss: f64,
    },
}

/// A work request for the send queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Post {
    /// To which end.
    pub end: usize,
    /// What to do.
    pub op: Op,
    /// Bytes.
    #[serde(default)]
    pub len: u32,
    /// Where they are in the poster's memory.
    #[serde(default)]
    pub local: u64,
    /// Where in the memory of the peer.
    #[serde(default)]
    pub remote: u64,
    /// Immediate data, with SEND and WRITE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imm: Option<u32>,
    /// Whether the bytes are copied when it is posted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inline: bool,
    /// Pieces into which the bytes are divided.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub sges: u32,
    /// Whether success is not reported.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unsignaled: bool,
    /// Whether it waits for earlier READs and atomics.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fence: bool,
    /// Whether the remote key is one that the peer has never issued.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wrong_key: bool,
    /// Whether the remote key is that of the peer's window, and not that of its region.
    #[serde(default, skip_serializing_if = "is_false")]
    pub window: bool,
    /// Whether peers may only read through the window that is bound.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// How many times the same is posted.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u32,
    /// What is added, or what is stored in place of `compare`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub operand: u64,
    /// What must be there for that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compare: u64,
}

/// An operation of the send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Op {
    Send,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
    /// Binds the poster's window to its local bytes.
    Bind,
    /// Takes the poster's window away from its peer.
    Invalidate,
    /// A SEND that takes the peer's window away from the poster.
    SendInvalidate,
}

/// A move of a session: so many steps, or an action.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Move {
    /// Steps.
    Steps(u32),
    /// An action.
    Do(Action),
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_false(b: &bool) -> bool {
    !b
}
