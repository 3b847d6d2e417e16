use softrnic_wire::Rkey;

use crate::access::Access;
use crate::app_range::AppRange;
use crate::device_memory::DmId;
use crate::error::MemoryError;
use crate::key::{Lkey, MrKeys, with_tag};
use crate::lost_page;
use crate::page_list::PageList;
use crate::pd::PdId;
use crate::populate::populate;
use crate::region::{Backing, MrSpec, Region, RegionKind, RegionState, ReregSpec};
use crate::registered::Registered;
use crate::safe_copy;
use crate::sge::Sge;
use crate::table::{Config, Entry, MemoryTable};
use crate::valgrind;

/// A registration that has been checked and whose pages have been faulted in. The rest needs the table, and is quick.
pub struct PreparedMr(Translation);

/// Memory for a fast-register region, with its pages faulted in.
pub struct PreparedPages<'a>(&'a [AppRange]);

/// On-demand memory to fault in (`ibv_advise_mr`), for writing or not.
#[derive(Clone, Copy)]
pub struct Prefetch {
    addr: usize,
    length: u64,
    write: bool,
}

/// The parts of a region that a registration decides.
struct Translation {
    iova: u64,
    length: u64,
    access: Access,
    kind: RegionKind,
    backing: Backing,
    registered: Option<Registered>,
}

impl MemoryTable {
    /// Registers application memory (`ibv_reg_mr`, `ibv_reg_mr_iova`, and DMA-BUF memory once mapped).
    ///
    /// With ON_DEMAND pages may be missing, then and later. Otherwise all are faulted in; [`MemoryError::BadAddress`]
    /// if some are not mapped or, with LOCAL_WRITE, not writable.
    ///
    /// `spec.iova` and the address may differ by any amount. (Kernel verbs refuse with EINVAL where the two differ
    /// within a page; that check belongs to the layer that implements the kernel's interface.)
    pub fn reg_mr(&mut self, pd: PdId, spec: MrSpec) -> Result<MrKeys, MemoryError> {
        let prepared = spec.prepare(&self.config)?;
        self.add_mr(pd, prepared)
    }

    /// The second half of [`reg_mr`](Self::reg_mr), which does not wait for the kernel.
    pub fn add_mr(&mut self, pd: PdId, prepared: PreparedMr) -> Result<MrKeys, MemoryError> {
        self.add_region(pd, prepared.0)
    }

    /// Registers `length` bytes, possibly none, from `offset` of a device memory. As in verbs, ZERO_BASED must be set.
    pub fn reg_dm_mr(
        &mut self,
        pd: PdId,
        dm: DmId,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<MrKeys, MemoryError> {
        let access = access.for_region()?;
        if !access.contains(Access::ZERO_BASED) || access.contains(Access::ON_DEMAND) {
            return Err(MemoryError::InvalidArgument);
        }
        let base = self.dms.locate(dm, offset, length)?;
        let backing = Backing::Plain(base);
        let kind = RegionKind::Device(dm);
        let keys =
            self.add_region(pd, Translation { iova: 0, length, access, kind, backing, registered: None })?;
        self.dms.retain(dm);
        Ok(keys)
    }

    /// Creates a null region: any address is valid, writes are discarded, reads return zeros. It has no rkey.
    pub fn alloc_null_mr(&mut self, pd: PdId) -> Result<MrKeys, MemoryError> {
        let (kind, backing) = (RegionKind::Null, Backing::Null);
        let access = Access::LOCAL_WRITE;
        self.add_region(
            pd,
            Translation { iova: 0, length: u64::MAX, access, kind, backing, registered: None },
        )
    }

    /// Creates a fast-register region for up to `max_pages` pages, in state Free: [`map_pages`](Self::map_pages) says
    /// what it will cover, [`fast_register`](Self::fast_register) makes it usable.
    pub fn alloc_mr(&mut self, pd: PdId, max_pages: usize) -> Result<MrKeys, MemoryError> {
        if max_pages == 0 || max_pages > self.config.limits.max_fast_reg_pages {
            return Err(MemoryError::InvalidArgument);
        }
        let guarded = self.config.safe_copies;
        if guarded && !safe_copy::available() {
            return Err(MemoryError::Unsupported);
        }
        self.add_region(
            pd,
            Translation {
                iova: 0,
                length: 0,
                access: Access::empty(),
                kind: RegionKind::FastRegister,
                backing: Backing::Pages {
                    list: PageList::with_capacity(max_pages)?,
                    max: max_pages,
                    guarded,
                    registered: Vec::new(),
                },
                registered: None,
            },
        )
    }

    /// Gives a Free fast-register region the memory it will cover (`ib_map_mr_sg`), in pages of `page_size` bytes,
    /// known from address `iova` on. Every range but the first must start, and every one but the last must end, at a
    /// page boundary, and `iova` must have the same offset in a page as the first range.
    pub fn map_pages(
        &mut self,
        lkey: Lkey,
        pages: &PreparedPages<'_>,
        page_size: u64,
        iova: u64,
    ) -> Result<(), MemoryError> {
        let region = self.find_region_mut(lkey.0).ok_or(MemoryError::UnknownObject)?;
        if region.state != RegionState::Free {
            return Err(MemoryError::InvalidState);
        }
        let Backing::Pages { list, max, registered, .. } = &mut region.backing else {
            return Err(MemoryError::InvalidState);
        };
        region.length = 0;
        registered.clear();
        list.set(pages.0, page_size, *max)?;
        registered.extend(pages.0.iter().map(|range| Registered::new(range.addr(), range.length())));
        let fits =
            iova & list.page_mask() == list.first_offset() && iova.checked_add(list.length()).is_some();
        if !fits {
            return Err(MemoryError::InvalidArgument);
        }
        region.iova = iova;
        region.length = list.length();
        Ok(())
    }

    /// Executes a REG_MR work request: the mapped pages become usable with `access`, under the region's key with
    /// the low 8 bits replaced by those of `new_key`.
    pub fn fast_register(
        &mut self,
        pd: PdId,
        lkey: Lkey,
        new_key: u32,
        access: Access,
    ) -> Result<MrKeys, MemoryError> {
        let access = access.for_region()?;
        if access.intersects(Access::ON_DEMAND | Access::ZERO_BASED) {
            return Err(MemoryError::Unsupported);
        }
        let region = self.find_region_mut(lkey.0).ok_or(MemoryError::UnknownObject)?;
        let ready =
            region.kind == RegionKind::FastRegister && region.state == RegionState::Free && region.length > 0;
        if region.pd != pd || !ready || new_key >> 8 != region.key >> 8 {
            return Err(MemoryError::InvalidState);
        }
        region.key = with_tag(region.key, new_key as u8);
        region.access = access;
        region.state = RegionState::Valid;
        Ok(region.keys())
    }

    /// Changes a region in place; its keys stay. On an error the region is unchanged. Regions with windows are
    /// [`MemoryError::Busy`], regions other than ordinary and on-demand ones [`MemoryError::Unsupported`].
    pub fn rereg_mr(&mut self, lkey: Lkey, change: ReregSpec) -> Result<MrKeys, MemoryError> {
        let prepared = match self.judge_rereg(lkey, change)? {
            Some(spec) => Some(spec.prepare(&self.config)?),
            None => None,
        };
        self.change_mr(lkey, change.pd, prepared)
    }

    /// The first part of [`rereg_mr`](Self::rereg_mr): what has to be prepared, if anything, for
    /// [`change_mr`](Self::change_mr).
    pub fn judge_rereg(&self, lkey: Lkey, change: ReregSpec) -> Result<Option<MrSpec>, MemoryError> {
        let (region, base) = self.changeable(lkey)?;
        if change.pd.is_some_and(|pd| !self.pds.contains(pd)) {
            return Err(MemoryError::UnknownPd);
        }
        if change.translation.is_none() && change.access.is_none() {
            return Ok(None);
        }
        // SAFETY: the range of a registration that has not ended, so the promise made when it began still holds. If the
        // change concerns writability, that is checked anew (`MrSpec::prepare`).
        let old_range = unsafe { AppRange::new(base, region.length) };
        let (range, iova) = change.translation.unwrap_or((old_range, region.iova));
        Ok(Some(MrSpec { range, iova, access: change.access.unwrap_or(region.access) }))
    }

    /// The last part of [`rereg_mr`](Self::rereg_mr), which does not wait for the kernel.
    pub fn change_mr(
        &mut self,
        lkey: Lkey,
        pd: Option<PdId>,
        prepared: Option<PreparedMr>,
    ) -> Result<MrKeys, MemoryError> {
        let old_pd = self.changeable(lkey)?.0.pd;
        let pd = pd.unwrap_or(old_pd);
        self.pds.retain(pd)?;
        self.pds.release(old_pd);
        let region = self.find_region_mut(lkey.0).ok_or(MemoryError::UnknownObject)?;
        region.pd = pd;
        if let Some(PreparedMr(new)) = prepared {
            region.iova = new.iova;
            region.length = new.length;
            region.access = new.access;
            region.kind = new.kind;
            region.backing = new.backing;
            region.registered = new.registered;
        }
        Ok(region.keys())
    }

    /// Deregisters a region; [`MemoryError::Busy`] while windows are bound to it.
    pub fn dereg_mr(&mut self, lkey: Lkey) -> Result<(), MemoryError> {
        let region = self.find_region(lkey.0).ok_or(MemoryError::UnknownObject)?;
        if region.windows > 0 {
            return Err(MemoryError::Busy);
        }
        let (pd, kind, valid) = (region.pd, region.kind, region.valid());
        self.keys.remove(lkey.0);
        self.graveyard.bury(lkey.0, false, valid);
        self.regions -= 1;
        self.pds.release(pd);
        if let RegionKind::Device(dm) = kind {
            self.dms.release(dm);
        }
        Ok(())
    }

    /// Finds the on-demand memory of `sge`; `None` where there is nothing to fault in.
    pub fn prefetch(&self, pd: PdId, sge: &Sge, write: bool) -> Result<Option<Prefetch>, MemoryError> {
        if sge.length == 0 {
            return Ok(None);
        }
        self.check_local(pd, sge, write).map_err(|_| MemoryError::BadAddress)?;
        let region = self.find_region(sge.lkey.0).ok_or(MemoryError::UnknownObject)?;
        let Backing::Guarded(base) = region.backing else { return Ok(None) };
        let addr = base + (sge.addr - region.iova) as usize;
        Ok(Some(Prefetch { addr, length: u64::from(sge.length), write }))
    }

    /// A region that can be re-registered, and its address.
    fn changeable(&self, lkey: Lkey) -> Result<(&Region, usize), MemoryError> {
        let region = self.find_region(lkey.0).ok_or(MemoryError::UnknownObject)?;
        let (Backing::Plain(base) | Backing::Guarded(base)) = region.backing else {
            return Err(MemoryError::Unsupported);
        };
        if !matches!(region.kind, RegionKind::Ordinary | RegionKind::OnDemand) {
            return Err(MemoryError::Unsupported);
        }
        if region.windows > 0 {
            return Err(MemoryError::Busy);
        }
        Ok((region, base))
    }

    fn add_region(&mut self, pd: PdId, new: Translation) -> Result<MrKeys, MemoryError> {
        if self.regions >= self.config.limits.max_mr {
            return Err(MemoryError::NoMemory);
        }
        self.pds.retain(pd)?;
        let Translation { iova, length, access, kind, backing, registered } = new;
        let state = if kind == RegionKind::FastRegister { RegionState::Free } else { RegionState::Valid };
        let made = self.insert(|key| {
            Entry::Region(Region {
                key,
                pd,
                iova,
                length,
                access,
                kind,
                state,
                windows: 0,
                backing,
                registered,
            })
        });
        let key = match made {
            Ok(key) => key,
            Err(error) => {
                self.pds.release(pd);
                return Err(error);
            }
        };
        self.regions += 1;
        let rkey = if kind == RegionKind::Null { Rkey(0) } else { Rkey(key) };
        Ok(MrKeys { lkey: Lkey(key), rkey })
    }
}

impl MrSpec {
    /// The first half of [`MemoryTable::reg_mr`]: checks the registration for a table of this configuration, and faults
    /// its pages in. Slow if there are many.
    pub fn prepare(self, config: &Config) -> Result<PreparedMr, MemoryError> {
        let access = self.access.for_region()?;
        let on_demand = access.contains(Access::ON_DEMAND);
        let guarded = on_demand || config.safe_copies;
        let (addr, length) = (self.range.addr(), self.range.length());
        let zero_based = access.contains(Access::ZERO_BASED);
        let iova = if zero_based { 0 } else { self.iova };

        if self.range.is_whole() {
            if !on_demand || zero_based || iova != 0 {
                return Err(MemoryError::InvalidArgument);
            }
        } else if !self.range.is_sound()
            || iova.checked_add(length).is_none()
            || length > config.limits.max_mr_size
        {
            return Err(MemoryError::InvalidArgument);
        }
        if guarded && !safe_copy::available() {
            return Err(MemoryError::Unsupported);
        }
        lost_page::install();
        // From before its pages are there, so that nothing of the NIC's comes in between.
        let registered = Some(Registered::new(addr, length));
        if !on_demand {
            populate(addr, length, access.contains(Access::LOCAL_WRITE))?;
        }
        if !self.range.is_whole() {
            valgrind::ignore_races(addr, length);
        }
        let kind = if on_demand { RegionKind::OnDemand } else { RegionKind::Ordinary };
        let backing = if guarded { Backing::Guarded(addr) } else { Backing::Plain(addr) };
        Ok(PreparedMr(Translation { iova, length, access, kind, backing, registered }))
    }
}

impl<'a> PreparedPages<'a> {
    /// Faults the pages in for writing, because the rights are known only when the work request comes. Slow if there
    /// are many.
    pub fn new(ranges: &'a [AppRange]) -> Result<PreparedPages<'a>, MemoryError> {
        lost_page::install();
        for range in ranges {
            populate(range.addr(), range.length(), true)?;
            valgrind::ignore_races(range.addr(), range.length());
        }
        Ok(PreparedPages(ranges))
    }
}

impl Prefetch {
    /// Faults the pages in, and returns whether that succeeded for all. Slow if there are many. Pages that are no
    /// longer the region's are faulted in too, which does not change their contents.
    pub fn run(self) -> Result<(), MemoryError> {
        populate(self.addr, self.length, self.write)
    }
}
