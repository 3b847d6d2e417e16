use std::fmt;

use softrnic_wire::{Qpn, Rkey};

use crate::access::Access;
use crate::key::Lkey;
use crate::pd::PdId;
use crate::region::{Backing, Region, RegionState, Target, within};
use crate::sge::Sge;
use crate::table::{Entry, MemoryTable};
use crate::window::{Binding, Window};

/// Why a local work request may not touch memory. All are protection errors (LOC_PROT_ERR).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalFault {
    /// No region has this lkey.
    UnknownKey,
    /// The region is of another protection domain.
    WrongPd,
    /// The region lacks LOCAL_WRITE.
    Access,
    /// Outside the region.
    Bounds,
    /// The region is Free.
    State,
    /// On-demand memory that is not mapped, or not writable.
    Unmapped,
    /// The scatter/gather list holds fewer bytes than were asked for.
    ListTooShort,
}

/// Why a peer may not touch memory. All but `Misaligned` are remote access errors (NAK 0x62).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RemoteFault {
    /// No region or window has this rkey.
    UnknownKey,
    /// Another protection domain than the queue pair's.
    WrongPd,
    /// The right is missing.
    Access,
    /// Outside the region or window.
    Bounds,
    /// A Free region, or a window that is not bound.
    State,
    /// A type 2 window bound to another queue pair.
    WrongQp,
    /// On-demand memory that is not mapped, or not writable.
    Unmapped,
    /// An atomic whose address is not a multiple of 8: invalid request (NAK 0x61).
    Misaligned,
}

impl MemoryTable {
    /// Checks a scatter/gather element for reading or, with `write`, for writing. Length 0 always passes.
    #[inline(always)]
    pub fn check_local(&self, pd: PdId, sge: &Sge, write: bool) -> Result<(), LocalFault> {
        if sge.length == 0 {
            return Ok(());
        }
        self.resolve_local(pd, sge.lkey, sge.addr, u64::from(sge.length), write).map(|_| ())
    }

    /// Checks `len` bytes at `va` under `rkey` for a request of queue pair `qpn` in domain `pd` that needs all of
    /// `needed` (IBTA 10.6.3, 9.7.4.1.5). The caller skips the check where the rules do: for a READ or WRITE of length
    /// 0.
    #[inline(always)]
    pub fn check_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<(), RemoteFault> {
        self.resolve_remote(pd, qpn, rkey, va, len, needed).map(|_| ())
    }

    /// Whether a copy with this key may find that memory is not mapped, after all checks.
    pub fn may_be_unmapped(&self, key: u32) -> bool {
        let region = match self.keys.get(key) {
            Some(Entry::Region(region)) => Some(region),
            Some(Entry::Window(window)) => {
                window.binding.as_ref().and_then(|binding| self.find_region(binding.region))
            }
            None => None,
        };
        region.is_some_and(|region| {
            matches!(region.backing, Backing::Guarded(_) | Backing::Pages { guarded: true, .. })
        })
    }

    #[inline]
    pub(crate) fn resolve_local(
        &self,
        pd: PdId,
        lkey: Lkey,
        addr: u64,
        len: u64,
        write: bool,
    ) -> Result<Target<'_>, LocalFault> {
        let region = self.find_region(lkey.0).ok_or(LocalFault::UnknownKey)?;
        if region.state != RegionState::Valid {
            return Err(LocalFault::State);
        }
        if region.pd != pd {
            return Err(LocalFault::WrongPd);
        }
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(LocalFault::Access);
        }
        if !region.covers(addr, len) {
            return Err(LocalFault::Bounds);
        }
        Ok(region.target(addr))
    }

    #[inline]
    pub(crate) fn resolve_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target<'_>, RemoteFault> {
        match self.keys.get(rkey.0) {
            Some(Entry::Region(region)) if region.key == rkey.0 => {
                allow_region(region, pd, needed)?;
                if !region.covers(va, len) {
                    return Err(RemoteFault::Bounds);
                }
                Ok(region.target(va))
            }
            Some(Entry::Window(window)) if window.key == rkey.0 => {
                let binding = allow_window(window, pd, qpn, needed)?;
                if !within(binding.start, binding.length, va, len) {
                    return Err(RemoteFault::Bounds);
                }
                // A region outlives its windows and does not change while it has any.
                let region = self.find_region(binding.region).ok_or(RemoteFault::State)?;
                Ok(region.target(binding.region_addr + (va - binding.start)))
            }
            _ => Err(RemoteFault::UnknownKey),
        }
    }

    /// Like `resolve_remote`, but does not check the range.
    pub(crate) fn allow_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        needed: Access,
    ) -> Result<(), RemoteFault> {
        match self.keys.get(rkey.0) {
            Some(Entry::Region(region)) if region.key == rkey.0 => allow_region(region, pd, needed),
            Some(Entry::Window(window)) if window.key == rkey.0 => {
                allow_window(window, pd, qpn, needed).map(|_| ())
            }
            _ => Err(RemoteFault::UnknownKey),
        }
    }
}

fn allow_region(region: &Region, pd: PdId, needed: Access) -> Result<(), RemoteFault> {
    if region.state != RegionState::Valid {
        return Err(RemoteFault::State);
    }
    if region.pd != pd {
        return Err(RemoteFault::WrongPd);
    }
    if !region.access.contains(needed) {
        return Err(RemoteFault::Access);
    }
    Ok(())
}

fn allow_window(window: &Window, pd: PdId, qpn: Qpn, needed: Access) -> Result<&Binding, RemoteFault> {
    let binding = window.binding.as_ref().ok_or(RemoteFault::State)?;
    if window.pd != pd {
        return Err(RemoteFault::WrongPd);
    }
    if binding.qpn.is_some_and(|owner| owner != qpn) {
        return Err(RemoteFault::WrongQp);
    }
    if !binding.access.contains(needed) {
        return Err(RemoteFault::Access);
    }
    Ok(binding)
}

impl fmt::Display for LocalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "unknown lkey",
            Self::WrongPd => "protection domains differ",
            Self::Access => "region is not writable",
            Self::Bounds => "outside the region",
            Self::State => "region is not valid",
            Self::Unmapped => "memory is not mapped",
            Self::ListTooShort => "scatter/gather list is too short",
        })
    }
}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "unknown rkey",
            Self::WrongPd => "protection domains differ",
            Self::Access => "right is missing",
            Self::Bounds => "outside the region or window",
            Self::State => "region or window is not valid",
            Self::WrongQp => "window is bound to another queue pair",
            Self::Unmapped => "memory is not mapped",
            Self::Misaligned => "address of an atomic is not aligned",
        })
    }
}

impl std::error::Error for LocalFault {}
impl std::error::Error for RemoteFault {}
