//! Verbs objects as a checker sees them.

use std::fmt::{self, Display, Formatter};

use crate::Trace;

/// Kinds of objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum ObjectKind {
    // In the order in which they must be destroyed.
    Ah,
    Qp,
    Mw,
    Mr,
    Srq,
    Cq,
    Channel,
    Xrcd,
    Dm,
    Td,
    Pd,
    Context,
    Other,
}

/// What is known of an object besides its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Facts {
    /// Nothing.
    None,
    /// A memory region.
    Region {
        /// First byte.
        addr: u64,
        /// Bytes.
        length: u64,
        /// Its key.
        key: u32,
    },
    /// A memory window.
    Window {
        /// Its key.
        key: u32,
    },
    /// A completion queue.
    Cq {
        /// Completions that it holds.
        entries: u32,
    },
    /// A queue pair.
    Qp {
        /// Its number.
        qpn: u32,
        /// Whether it is a datagram QP.
        datagrams: bool,
        /// Whether it is a reliable connection, which retries.
        reliable: bool,
        /// Work requests that its send queue holds.
        max_send: usize,
        /// Where receives come from: the address of its SRQ.
        srq: Option<usize>,
        /// Where its sends complete.
        send_cq: usize,
        /// Where its receives complete.
        recv_cq: usize,
    },
}

impl Facts {
    /// The service of a QP, by the name of its like.
    pub(crate) fn service(&self) -> Option<&'static str> {
        match self {
            Facts::Qp { datagrams: true, .. } => Some("UD"),
            Facts::Qp { reliable: true, .. } => Some("RC"),
            Facts::Qp { .. } => Some("UC"),
            _ => None,
        }
    }
}

/// An object, and where the program made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its address, by which the program names it.
    pub address: usize,
    /// Its kind.
    pub kind: ObjectKind,
    /// What else is known.
    pub facts: Facts,
    /// The objects that it uses, which cannot be destroyed before it.
    pub uses: Vec<usize>,
    /// Where it was made.
    pub made: Trace,
}

impl ObjectKind {
    /// The structure that stands for it in C.
    pub const fn structure(self) -> &'static str {
        match self {
            ObjectKind::Ah => "ibv_ah",
            ObjectKind::Qp => "ibv_qp",
            ObjectKind::Mw => "ibv_mw",
            ObjectKind::Mr => "ibv_mr",
            ObjectKind::Srq => "ibv_srq",
            ObjectKind::Cq => "ibv_cq",
            ObjectKind::Channel => "ibv_comp_channel",
            ObjectKind::Xrcd => "ibv_xrcd",
            ObjectKind::Dm => "ibv_dm",
            ObjectKind::Td => "ibv_td",
            ObjectKind::Pd => "ibv_pd",
            ObjectKind::Context => "ibv_context",
            ObjectKind::Other => "object",
        }
    }

    /// What it is called when it is made.
    pub const fn made(self) -> &'static str {
        match self {
            ObjectKind::Mr => "registered",
            ObjectKind::Pd | ObjectKind::Mw | ObjectKind::Td | ObjectKind::Dm => "allocated",
            ObjectKind::Context | ObjectKind::Xrcd => "opened",
            _ => "created",
        }
    }

    /// What it is called when it is destroyed.
    pub const fn destroyed(self) -> &'static str {
        match self {
            ObjectKind::Mr => "deregistered",
            ObjectKind::Pd | ObjectKind::Mw | ObjectKind::Td => "deallocated",
            ObjectKind::Context | ObjectKind::Xrcd => "closed",
            ObjectKind::Dm => "freed",
            _ => "destroyed",
        }
    }
}

impl Display for Object {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.facts {
            Facts::Region { addr, length, key } => {
                write!(f, "memory region of {length} B from {addr:#x}, key {key:#x},")
            }
            Facts::Window { key } => write!(f, "memory window with key {key:#x}"),
            Facts::Cq { entries } => write!(f, "completion queue of {entries} entries"),
            Facts::Qp { qpn, .. } => write!(f, "QP {qpn:#x}"),
            Facts::None => f.write_str(match self.kind {
                ObjectKind::Ah => "address handle",
                ObjectKind::Srq => "shared receive queue",
                ObjectKind::Channel => "completion channel",
                ObjectKind::Xrcd => "XRC domain",
                ObjectKind::Dm => "device memory",
                ObjectKind::Pd => "protection domain",
                ObjectKind::Context => "device context",
                kind => kind.structure(),
            }),
        }
    }
}
