use softrnic_wire::Rkey;

use crate::access::Access;
use crate::app_range::AppRange;
use crate::denial::ValidRange;
use crate::device_memory::DmId;
use crate::key::{Lkey, MrKeys};
use crate::page_list::PageList;
use crate::pd::PdId;
use crate::registered::Registered;

/// What to register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrSpec {
    /// The memory. [`AppRange::whole`] with ON_DEMAND makes an implicit region.
    pub range: AppRange,
    /// The address under which work requests and peers know the first byte; for `ibv_reg_mr`, its real address. Ignored
    /// with ZERO_BASED (it is 0 then), and must be 0 for an implicit region.
    pub iova: u64,
    /// Rights.
    pub access: Access,
}

/// What to change about a registered region (`IBV_REREG_MR_CHANGE_*`); `None` keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReregSpec {
    /// New memory and iova.
    pub translation: Option<(AppRange, u64)>,
    /// New protection domain.
    pub pd: Option<PdId>,
    /// New rights.
    pub access: Option<Access>,
}

/// Kind of region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// A range of application memory.
    Ordinary,
    /// The same with ON_DEMAND, or the whole address space (implicit).
    OnDemand,
    /// Discards what is written, reads as zeros; for local use only.
    Null,
    /// Part of a device memory.
    Device(DmId),
    /// Made valid by a work request over a page list, and invalidated by another.
    FastRegister,
}

/// Whether a region can be used. Only fast-register regions are ever `Free`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionState {
    /// Waiting for fast registration.
    Free,
    /// Usable.
    Valid,
}

/// A region as queries report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionInfo {
    /// Its keys.
    pub keys: MrKeys,
    /// Its protection domain.
    pub pd: PdId,
    /// First address as used with its keys.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Rights, without the optional flags.
    pub access: Access,
    /// Kind.
    pub kind: RegionKind,
    /// State.
    pub state: RegionState,
    /// Number of windows bound to it.
    pub windows: u32,
}

/// Where the bytes of a region are.
pub(crate) enum Backing {
    /// From this address on, copied directly.
    Plain(usize),
    /// From this address on, copied by the kernel.
    Guarded(usize),
    /// Nowhere.
    Null,
    /// In listed pages, copied directly or by the kernel.
    Pages { list: PageList, max: usize, guarded: bool, registered: Vec<Registered> },
}

pub(crate) struct Region {
    pub(crate) key: u32,
    pub(crate) pd: PdId,
    pub(crate) iova: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    pub(crate) kind: RegionKind,
    pub(crate) state: RegionState,
    pub(crate) windows: u32,
    pub(crate) backing: Backing,
    /// Keeps memory of the NIC's own away from that of the region. Pages have theirs in the backing.
    pub(crate) registered: Option<Registered>,
}

/// Bytes that have passed all checks, ready to be copied.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Plain(usize),
    Guarded(usize),
    Null,
    Pages { list: &'a PageList, offset: u64, guarded: bool },
}

impl Region {
    /// Whether `[va, va + len)` lies inside the region. No sum is formed that could overflow.
    pub(crate) fn covers(&self, va: u64, len: u64) -> bool {
        within(self.iova, self.length, va, len)
    }

    /// The range that its keys name.
    pub(crate) fn valid(&self) -> ValidRange {
        ValidRange { start: self.iova, length: self.length }
    }

    /// The bytes at `va`, which `covers` has accepted.
    pub(crate) fn target(&self, va: u64) -> Target<'_> {
        let offset = va - self.iova;
        match &self.backing {
            Backing::Plain(base) => Target::Plain(base + offset as usize),
            Backing::Guarded(base) => Target::Guarded(base + offset as usize),
            Backing::Null => Target::Null,
            Backing::Pages { list, guarded, .. } => Target::Pages { list, offset, guarded: *guarded },
        }
    }

    pub(crate) fn keys(&self) -> MrKeys {
        let rkey = if self.kind == RegionKind::Null { Rkey(0) } else { Rkey(self.key) };
        MrKeys { lkey: Lkey(self.key), rkey }
    }

    pub(crate) fn info(&self) -> RegionInfo {
        RegionInfo {
            keys: self.keys(),
            pd: self.pd,
            iova: self.iova,
            length: self.length,
            access: self.access,
            kind: self.kind,
            state: self.state,
            windows: self.windows,
        }
    }
}

/// Whether `[va, va + len)` lies inside `[start, start + length)`.
pub(crate) fn within(start: u64, length: u64, va: u64, len: u64) -> bool {
    va >= start && len <= length && va - start <= length - len
}
