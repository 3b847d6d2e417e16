//! Memory regions.

use std::cell::UnsafeCell;
use std::sync::Arc;

use softrnic_memory::{
    Access, AppRange, Lkey, MemoryError, MrKeys, MrSpec, ReregSpec, Sge, copy_from_app, copy_to_app,
};
use softrnic_wire::{Rkey, Time};

use super::error::Error;
use super::pd::Pd;
use crate::device::Core;
use softrnic_engine::ControlError;

/// A registration of memory that the caller owns and keeps in place.
pub struct RawMr {
    pd: Arc<Pd>,
    keys: MrKeys,
}

impl RawMr {
    pub(crate) fn new(pd: Arc<Pd>, spec: MrSpec) -> Result<RawMr, Error> {
        // Faulting pages in is slow, and other connections would wait for it.
        let prepared = spec.prepare(pd.context().nic().memory_config())?;
        let keys = pd.context().nic().control(|core, _| core.engine.memory().add_mr(pd.id(), prepared))??;
        Ok(RawMr { pd, keys })
    }

    /// A region that was registered in another way (device memory, null, fast registration).
    pub fn adopt(pd: Arc<Pd>, keys: MrKeys) -> RawMr {
        RawMr { pd, keys }
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its keys.
    pub fn keys(&self) -> MrKeys {
        self.keys
    }

    /// Changes the registration. The keys stay.
    ///
    /// # Errors
    /// Those of the memory table. Nothing has changed then.
    pub fn reregister(&mut self, change: ReregSpec, pd: Option<Arc<Pd>>) -> Result<(), Error> {
        let lkey = self.keys.lkey;
        let nic = self.pd.context().nic();
        let spec = nic.control(|core, _| core.engine.memory().judge_rereg(lkey, change))??;
        let prepared = spec.map(|spec| spec.prepare(nic.memory_config())).transpose()?;
        self.keys = nic.control(|core, _| core.engine.memory().change_mr(lkey, change.pd, prepared))??;
        if let Some(pd) = pd {
            self.pd = pd;
        }
        Ok(())
    }

    /// Deregisters. When this returns, the NIC no longer uses the memory.
    ///
    /// # Errors
    /// Windows are bound to it; the registration is returned.
    pub fn deregister(self) -> Result<(), (RawMr, Error)> {
        let lkey = self.keys.lkey;
        let result = self.pd.context().nic().control(|core, now| deregister(core, now, lkey));
        match result {
            Ok(Err(error @ MemoryError::Busy)) => Err((self, error.into())),
            _ => Ok(()),
        }
    }
}

/// Takes the key out of use, and keeps when that was.
fn deregister(core: &mut Core, now: Time, lkey: Lkey) -> Result<(), MemoryError> {
    let memory = core.engine.memory();
    memory.note_time(now);
    memory.dereg_mr(lkey)
}

impl Drop for RawMr {
    fn drop(&mut self) {
        let lkey = self.keys.lkey;
        // Deregistered already, or the device has failed and copies nothing any longer.
        let _ = self.pd.context().nic().control(|core, now| deregister(core, now, lkey));
    }
}

/// A region with its memory, which the NIC and peers may read and write at any time.
pub struct Mr {
    /// Dropped before the bytes, so that nothing is copied into memory that has been freed.
    raw: RawMr,
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: `write`, `read` and the NIC access the bytes only with the copies of `memory`, which may race with each other
// and make no references to them.
unsafe impl Sync for Mr {}

impl Mr {
    pub(crate) fn new(pd: Arc<Pd>, bytes: Box<[u8]>, access: Access) -> Result<Mr, Error> {
        let length = bytes.len();
        // SAFETY: a box that was just taken apart, of a type with the same layout: `UnsafeCell<u8>` has that of `u8`.
        let bytes = unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) };
        let addr = bytes.as_ptr().expose_provenance();
        // SAFETY: the bytes stay where they are, in a box, until the registration is gone, which `Mr` drops first; no
        // reference to them is made.
        let range = unsafe { AppRange::new(addr, length as u64) };
        let raw = RawMr::new(pd, MrSpec { range, iova: addr as u64, access })?;
        Ok(Mr { raw, bytes })
    }

    /// Address of the first byte, as used by work requests and peers.
    pub fn addr(&self) -> u64 {
        self.bytes.as_ptr().addr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Local key.
    pub fn lkey(&self) -> Lkey {
        self.raw.keys.lkey
    }

    /// Remote key.
    pub fn rkey(&self) -> Rkey {
        self.raw.keys.rkey
    }

    /// A scatter/gather element for `length` bytes from `offset`. Not checked here: a work request that exceeds the
    /// region completes with a protection error.
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { addr: self.addr().wrapping_add(offset as u64), length: length as u32, lkey: self.lkey() }
    }

    /// Copies `bytes` into the region.
    ///
    /// # Errors
    /// They do not fit at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        // SAFETY: inside the bytes that this region owns, as just checked; `bytes` is not part of them, since they are
        // never lent.
        unsafe { copy_to_app(self.bytes.as_ptr().expose_provenance() + offset, bytes) };
        Ok(())
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// There are fewer than `bytes.len()` from `offset` on.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        // SAFETY: inside the bytes that this region owns, as just checked; `bytes` is not part of them, since they are
        // never lent.
        unsafe { copy_from_app(self.bytes.as_ptr().expose_provenance() + offset, bytes) };
        Ok(())
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), Error> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.bytes.len());
        if fits { Ok(()) } else { Err(ControlError::Invalid("outside the region").into()) }
    }
}
