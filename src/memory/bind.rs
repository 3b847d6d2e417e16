use softrnic_wire::{Qpn, Rkey};

use crate::access::Access;
use crate::denial::ValidRange;
use crate::error::{BindError, InvalidateError, MemoryError};
use crate::key::with_tag;
use crate::pd::PdId;
use crate::region::{Region, RegionKind, RegionState};
use crate::table::{Entry, MemoryTable};
use crate::window::{BindSpec, Binding, MwType, Window};

impl MemoryTable {
    /// Creates a window that gives access to nothing until it is bound.
    pub fn alloc_mw(&mut self, pd: PdId, mw_type: MwType) -> Result<Rkey, MemoryError> {
        if self.windows >= self.config.limits.max_mw {
            return Err(MemoryError::NoMemory);
        }
        self.pds.retain(pd)?;
        match self.insert(|key| Entry::Window(Window { key, pd, mw_type, binding: None })) {
            Ok(key) => {
                self.windows += 1;
                Ok(Rkey(key))
            }
            Err(error) => {
                self.pds.release(pd);
                Err(error)
            }
        }
    }

    /// Destroys a window, bound or not. The tag of `mw` is ignored.
    pub fn dealloc_mw(&mut self, mw: Rkey) -> Result<(), MemoryError> {
        let window = self.find_window_mut(mw).ok_or(MemoryError::UnknownObject)?;
        let (pd, key, binding) = (window.pd, window.key, window.binding.take());
        let valid = binding.map_or(ValidRange { start: 0, length: 0 }, |binding| binding.valid());
        self.unbound(binding);
        self.keys.remove(mw.0);
        self.graveyard.bury(key, true, valid);
        self.windows -= 1;
        self.pds.release(pd);
        Ok(())
    }

    /// Executes a bind work request of queue pair `qpn` in domain `pd`; the new rkey is valid at once, the old one no
    /// longer (IBTA 10.6.7.2, o10-37.2.x).
    pub fn bind_mw(&mut self, qpn: Qpn, pd: PdId, spec: BindSpec) -> Result<Rkey, BindError> {
        let window = self.find_window(spec.mw).ok_or(BindError::UnknownWindow)?;
        let binding = self.judge_bind(window, qpn, pd, spec)?;
        if let Some(binding) = binding {
            if let Some(region) = self.find_region_mut(binding.region) {
                region.windows += 1;
            }
            self.owned_windows += usize::from(binding.qpn.is_some());
        }
        let window = self.find_window_mut(spec.mw).ok_or(BindError::UnknownWindow)?;
        window.key = with_tag(window.key, spec.tag);
        let rkey = Rkey(window.key);
        let old = std::mem::replace(&mut window.binding, binding);
        self.unbound(old);
        Ok(rkey)
    }

    /// Executes a local invalidate, or a peer's SEND with Invalidate (`remote`), that arrived at queue pair `qpn` in
    /// domain `pd`. Fast-register regions and type 2 windows become Free, or stay Free.
    pub fn invalidate(
        &mut self,
        qpn: Qpn,
        pd: PdId,
        rkey: Rkey,
        remote: bool,
    ) -> Result<(), InvalidateError> {
        match self.keys.get_mut(rkey.0) {
            Some(Entry::Region(region)) if region.key == rkey.0 => invalidate_region(region, pd, remote),
            Some(Entry::Window(window)) if window.key == rkey.0 => {
                if window.mw_type != MwType::Type2 {
                    return Err(InvalidateError::WrongKind);
                }
                if window.pd != pd {
                    return Err(InvalidateError::WrongPd);
                }
                if window.binding.is_some_and(|b| b.qpn != Some(qpn)) {
                    return Err(InvalidateError::WrongQp);
                }
                let old = window.binding.take();
                self.unbound(old);
                Ok(())
            }
            _ => Err(InvalidateError::UnknownKey),
        }
    }

    /// Frees the type 2 windows that `qpn` has bound; called when the queue pair is destroyed or reset.
    pub fn release_qp(&mut self, qpn: Qpn) {
        if self.owned_windows == 0 {
            return;
        }
        let mut freed = Vec::new();
        for entry in self.keys.values_mut() {
            if let Entry::Window(window) = entry
                && window.binding.is_some_and(|b| b.qpn == Some(qpn))
            {
                freed.push(window.binding.take());
            }
        }
        for binding in freed {
            self.unbound(binding);
        }
    }

    fn judge_bind(
        &self,
        window: &Window,
        qpn: Qpn,
        pd: PdId,
        spec: BindSpec,
    ) -> Result<Option<Binding>, BindError> {
        let type2 = window.mw_type == MwType::Type2;
        if window.pd != pd {
            return Err(BindError::WrongPd);
        }
        if type2 && window.binding.is_some() {
            return Err(BindError::State);
        }
        if spec.length == 0 {
            return if type2 { Err(BindError::ZeroLength) } else { Ok(None) };
        }
        let access = window_access(spec.access, type2)?;
        let region = self.find_region(spec.mr.0).ok_or(BindError::UnknownRegion)?;
        judge_region(region, pd, access, spec)?;
        let start = if access.contains(Access::ZERO_BASED) { 0 } else { spec.addr };
        Ok(Some(Binding {
            region: region.key,
            start,
            region_addr: spec.addr,
            length: spec.length,
            access,
            qpn: type2.then_some(qpn),
        }))
    }

    /// Adjusts the counts for a binding that has ended.
    fn unbound(&mut self, binding: Option<Binding>) {
        let Some(binding) = binding else { return };
        self.owned_windows -= usize::from(binding.qpn.is_some());
        if let Some(region) = self.find_region_mut(binding.region) {
            region.windows -= 1;
        }
    }

    fn find_window(&self, mw: Rkey) -> Option<&Window> {
        match self.keys.get(mw.0) {
            Some(Entry::Window(window)) => Some(window),
            _ => None,
        }
    }

    fn find_window_mut(&mut self, mw: Rkey) -> Option<&mut Window> {
        match self.keys.get_mut(mw.0) {
            Some(Entry::Window(window)) => Some(window),
            _ => None,
        }
    }
}

/// The rights of a window: those of peers, and for type 2 ZERO_BASED.
fn window_access(asked: Access, type2: bool) -> Result<Access, BindError> {
    let access = asked.without_optional();
    let possible = if type2 { Access::REMOTE | Access::ZERO_BASED } else { Access::REMOTE };
    if possible.contains(access) { Ok(access) } else { Err(BindError::WindowAccess) }
}

/// Checks the region. Its own remote rights do not matter: with MW_BIND, the window may grant them. Flushing is the
/// exception, as a property of the memory.
fn judge_region(region: &Region, pd: PdId, access: Access, spec: BindSpec) -> Result<(), BindError> {
    if region.state != RegionState::Valid {
        return Err(BindError::State);
    }
    if region.pd != pd {
        return Err(BindError::WrongPd);
    }
    if region.access.contains(Access::ZERO_BASED) {
        return Err(BindError::ZeroBasedRegion);
    }
    if !region.access.contains(Access::MW_BIND) {
        return Err(BindError::NoBindAccess);
    }
    let flush = access & (Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT);
    if access.writes_remotely() && !region.access.contains(Access::LOCAL_WRITE)
        || !region.access.contains(flush)
    {
        return Err(BindError::RegionAccess);
    }
    if !region.covers(spec.addr, spec.length) {
        return Err(BindError::Bounds);
    }
    Ok(())
}

fn invalidate_region(region: &mut Region, pd: PdId, remote: bool) -> Result<(), InvalidateError> {
    if region.kind != RegionKind::FastRegister {
        return Err(InvalidateError::WrongKind);
    }
    if region.pd != pd {
        return Err(InvalidateError::WrongPd);
    }
    if remote && !region.access.intersects(Access::REMOTE) {
        return Err(InvalidateError::Access);
    }
    if region.windows > 0 {
        return Err(InvalidateError::WindowsBound);
    }
    region.state = RegionState::Free;
    Ok(())
}
