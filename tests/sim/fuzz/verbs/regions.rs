//! Memory: regions, windows, device memory.

use super::*;

impl Session {
    pub(super) fn region(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        let addr = bed.memory.wrapping_add(choices.number(1) as usize * 16);
        let length =
            if choices.byte() < 230 { choices.number(2) as usize % PAGE } else { count(choices) as usize };
        // Not on demand: implicit regions are all of our memory.
        let access = if choices.byte() < 200 { 0x1F } else { choices.number(4) as i32 & !0x40 };
        // SAFETY: objects are live, null or of another kind, which a verb looks up; what may be registered is in the
        // page.
        unsafe {
            let pd = self.pds.any(choices, bed);
            if self.mrs.full() {
                return;
            }
            match choices.byte() % 6 {
                0..=2 => self.mrs.add(ibv_reg_mr(pd, addr.cast(), length, access)),
                3 => {
                    let iova = choices.number(8);
                    self.mrs.add(ibv_reg_mr_iova2(pd, addr.cast(), length, iova, access as c_uint));
                }
                4 => self.mrs.add(slot!(table, alloc_null_mr)(pd)),
                _ => {
                    let mut attr: ibv_mr_init_attr = random(choices);
                    (attr.addr, attr.length, attr.access, attr.fd) = (addr.cast(), length, access, -1);
                    (attr.dmah, attr.buf) = (null_mut(), bed.memory.cast());
                    self.mrs.add(slot!(table, reg_mr_ex)(pd, &mut attr));
                    self.mrs.add(ibv_reg_dmabuf_mr(pd, choices.number(8), length, 0, -1, access));
                    let mut buf = null_mut();
                    let place = ibv_alloc_buf(pd, length, &mut buf);
                    ibv_reg_buf_mr(pd, bed.memory.cast(), place, length, access);
                    ibv_free_buf(buf);
                    ibv_free_buf(buf);
                }
            }
        }
    }

    pub(super) fn change_region(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: objects are live, null or of another kind, which a verb looks up; lists of prefetching are as long as
        // they are said to be, or much longer.
        unsafe {
            let mr = self.mrs.any(choices, bed);
            match choices.byte() % 5 {
                0 | 1 => {
                    let flags = i32::from(choices.byte() & 0xF);
                    let (pd, addr) = (self.pds.any(choices, bed), bed.memory.wrapping_add(64));
                    let access = i32::from(choices.byte() & 0x1F);
                    ibv_rereg_mr(mr, flags, pd, addr.cast(), choices.number(2) as usize % 2048, access);
                }
                2 => {
                    let (list, count) = self.sges(choices);
                    if usize::try_from(count).is_ok_and(|count| count <= ELEMENTS || count > PAGE) {
                        let (advice, flags) = (u32::from(choices.byte() % 5), u32::from(choices.byte() % 3));
                        let pd = self.pds.any(choices, bed);
                        slot!(table, advise_mr)(pd, advice, flags, list, count as u32);
                    }
                }
                3 => {
                    let handle = mr.cast::<ibv_mr>();
                    let handle = if self.mrs.live.contains(&handle) { (*handle).handle } else { 3 };
                    let imported = ibv_import_mr(self.pds.any(choices, bed), handle);
                    ibv_unimport_mr(mr);
                    if !imported.is_null() {
                        self.imported.push(imported);
                    }
                    if self.imported.len() > 3 {
                        ibv_unimport_mr(self.imported.swap_remove(0));
                    }
                }
                _ => {
                    let status = ibv_dereg_mr(mr);
                    self.mrs.destroyed(mr, status);
                }
            }
        }
    }

    pub(super) fn window(&mut self, choices: &mut Choices<'_>) {
        let (bed, ops) = (self.bed, &self.table().context.ops);
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            match choices.byte() % 4 {
                0 | 1 if !self.mws.full() => {
                    let kind = u32::from(choices.byte() % 4);
                    self.mws.add(slot!(ops, alloc_mw)(self.pds.any(choices, bed), kind));
                }
                2 => {
                    let mut bind = ibv_mw_bind {
                        wr_id: 9,
                        send_flags: u32::from(choices.byte()),
                        bind_info: self.bind_info(choices),
                    };
                    slot!(ops, bind_mw)(self.qps.one(choices), self.mws.one(choices), &mut bind);
                }
                _ => {
                    let mw = self.mws.any(choices, bed);
                    let status = slot!(ops, dealloc_mw)(mw);
                    self.mws.destroyed(mw, status);
                }
            }
        }
    }

    pub(super) fn device_memory(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: objects are live, null or of another kind, which a verb looks up; more than a page is more than there
        // is device memory.
        unsafe {
            match choices.byte() % 5 {
                0 | 1 if !self.dms.full() => {
                    let length = if choices.byte() < 230 {
                        choices.number(2) as usize % 2048
                    } else {
                        count(choices) as usize
                    };
                    let mut attr =
                        ibv_alloc_dm_attr { length, log_align_req: u32::from(choices.byte()), comp_mask: 0 };
                    if !(PAGE..=1 << 40).contains(&length) {
                        self.dms.add(slot!(table, alloc_dm)(self.context(choices), &mut attr));
                    }
                }
                2 => {
                    let (dm, offset, length) =
                        (self.dms.any(choices, bed), choices.number(1), count(choices) as usize);
                    let sample = self.dms.live.first();
                    let Some(sample) = sample.and_then(|dm| dm.as_ref()) else { return };
                    slot!(sample, memcpy_to_dm)(dm, offset, bed.memory.cast(), length);
                    slot!(sample, memcpy_from_dm)(bed.memory.cast(), dm, offset, length);
                }
                3 if !self.mrs.full() => {
                    let (pd, dm) = (self.pds.any(choices, bed), self.dms.any(choices, bed));
                    let access = 0x20 | u32::from(choices.byte() & 0x1F);
                    self.mrs.add(slot!(table, reg_dm_mr)(
                        pd,
                        dm,
                        choices.number(1),
                        choices.number(2) as usize,
                        access,
                    ));
                }
                _ => {
                    let dm = self.dms.any(choices, bed);
                    let status = slot!(table, free_dm)(dm);
                    self.dms.destroyed(dm, status);
                }
            }
        }
    }
}
