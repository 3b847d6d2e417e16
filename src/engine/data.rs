//! The local bytes of a work request.

use smallvec::SmallVec;
use softrnic_memory::{Access, BindSpec, Lkey, Sge};
use softrnic_transport::{RecvWqe, SendWqe};

/// Scatter/gather elements; two fit without an allocation.
pub type SgeList = SmallVec<[Sge; 2]>;

/// Inline bytes; small ones fit without an allocation.
pub type InlineBytes = SmallVec<[u8; 64]>;

/// The local side of a work request.
#[derive(Clone, Debug)]
pub enum LocalData {
    /// Registered memory.
    Sges(SgeList),
    /// Bytes that were copied when the request was posted.
    Inline(InlineBytes),
    /// A memory window to bind.
    Bind(Box<BindSpec>),
    /// A fast registration.
    FastRegister(Box<FastRegister>),
}

/// A fast-registration work request (REG_MR).
#[derive(Clone, Copy, Debug)]
pub struct FastRegister {
    /// The region's key.
    pub lkey: Lkey,
    /// Its key from then on: the same except for the low byte.
    pub new_key: u32,
    /// The rights to grant.
    pub access: Access,
}

impl LocalData {
    /// No bytes at all.
    #[inline(always)]
    pub fn empty() -> LocalData {
        LocalData::Sges(SgeList::new())
    }
}

/// A send work request as it is posted.
pub type SendRequest = SendWqe<LocalData>;

/// A receive work request as it is posted.
pub type RecvRequest = RecvWqe<LocalData>;
