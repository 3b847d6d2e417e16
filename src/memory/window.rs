use softrnic_wire::{Qpn, Rkey};

use crate::access::Access;
use crate::denial::ValidRange;
use crate::key::Lkey;
use crate::pd::PdId;

/// Type of a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MwType {
    /// Usable through every QP of its PD; may be bound again at any time; cannot be invalidated by key.
    Type1,
    /// Type 2B: belongs to the QP that bound it until it is invalidated.
    Type2,
}

/// A bind work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindSpec {
    /// The window, by any rkey it has had: the tag byte is ignored, because applications keep older keys.
    pub mw: Rkey,
    /// Low 8 bits of the window's new rkey.
    pub tag: u8,
    /// The region. Ignored for length 0.
    pub mr: Lkey,
    /// First address, in the region's addresses.
    pub addr: u64,
    /// Length in bytes. 0 unbinds a type 1 window.
    pub length: u64,
    /// Rights of peers, and ZERO_BASED.
    pub access: Access,
}

/// A window as queries report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowInfo {
    /// Its present rkey.
    pub rkey: Rkey,
    /// Its protection domain.
    pub pd: PdId,
    /// Type.
    pub mw_type: MwType,
    /// Whether it is bound.
    pub bound: bool,
    /// First address as peers use it; 0 when zero-based.
    pub addr: u64,
    /// Length in bytes; 0 when not bound.
    pub length: u64,
    /// Rights of peers.
    pub access: Access,
    /// The queue pair that bound a type 2 window.
    pub qpn: Option<Qpn>,
}

/// What a bound window gives access to, and in which region.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// Key of the region.
    pub(crate) region: u32,
    /// First address for peers.
    pub(crate) start: u64,
    /// First address in the region.
    pub(crate) region_addr: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    /// Set for type 2 windows.
    pub(crate) qpn: Option<Qpn>,
}

impl Binding {
    /// The range that the window's key names.
    pub(crate) fn valid(&self) -> ValidRange {
        ValidRange { start: self.start, length: self.length }
    }
}

pub(crate) struct Window {
    pub(crate) key: u32,
    pub(crate) pd: PdId,
    pub(crate) mw_type: MwType,
    pub(crate) binding: Option<Binding>,
}

impl Window {
    pub(crate) fn info(&self) -> WindowInfo {
        let binding = self.binding;
        WindowInfo {
            rkey: Rkey(self.key),
            pd: self.pd,
            mw_type: self.mw_type,
            bound: binding.is_some(),
            addr: binding.map_or(0, |b| b.start),
            length: binding.map_or(0, |b| b.length),
            access: binding.map_or(Access::empty(), |b| b.access),
            qpn: binding.and_then(|b| b.qpn),
        }
    }
}
