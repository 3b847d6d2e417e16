//! Everything else: domains, address handles, events, queries, and fields that a careless program overwrites.

use super::*;

impl Session {
    pub(super) fn domains(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            match choices.byte() % 9 {
                0..=2 if !self.pds.full() => self.pds.add(ibv_alloc_pd(self.context(choices))),
                3 => {
                    let pd = self.pds.any(choices, bed);
                    let known = self.pds.live.contains(&pd);
                    let status = ibv_dealloc_pd(pd);
                    assert!(known || status != 0);
                    self.pds.destroyed(pd, status);
                }
                4 if !self.tds.full() => {
                    let mut attr: ibv_td_init_attr = random(choices);
                    self.tds.add(slot!(table, alloc_td)(self.context(choices), &mut attr));
                }
                5 => {
                    let td = self.tds.any(choices, bed);
                    let status = slot!(table, dealloc_td)(td);
                    self.tds.destroyed(td, status);
                }
                6 if !self.parents.full() => {
                    let mut attr: ibv_parent_domain_init_attr = zeroed();
                    attr.pd = self.pds.any(choices, bed);
                    attr.td = if choices.byte() < 128 { null_mut() } else { self.tds.any(choices, bed) };
                    attr.comp_mask = u32::from(choices.byte() & 7);
                    self.parents.add(slot!(table, alloc_parent_domain)(self.context(choices), &mut attr));
                }
                7 => {
                    let pd = self.parents.any(choices, bed);
                    if !self.pds.live.contains(&pd) {
                        let status = ibv_dealloc_pd(pd);
                        self.parents.destroyed(pd, status);
                    }
                }
                _ => {
                    let handle = self.pds.one(choices).as_ref().map_or(9, |pd| pd.handle);
                    let pd = ibv_import_pd(self.context(choices), handle);
                    ibv_unimport_pd(self.pds.any(choices, bed));
                    ibv_unimport_pd(pd);
                }
            }
        }
    }

    pub(super) fn handle(&mut self, choices: &mut Choices<'_>) {
        let bed = self.bed;
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            match choices.byte() % 4 {
                0 | 1 if !self.ahs.full() => {
                    let mut attr = self.address_of(choices);
                    self.ahs.add(ibv_create_ah(self.pds.any(choices, bed), &mut attr));
                }
                2 if !self.ahs.full() => {
                    let mut wc: ibv_wc = random(choices);
                    let mut grh: ibv_grh = random(choices);
                    let grh = if choices.byte() > 200 { null_mut() } else { &raw mut grh };
                    let mut attr: ibv_ah_attr = zeroed();
                    ibv_init_ah_from_wc(self.context(choices), 1, &mut wc, grh, &mut attr);
                    self.ahs.add(ibv_create_ah_from_wc(self.pds.any(choices, bed), &mut wc, grh, 1));
                }
                _ => {
                    let ah = self.ahs.any(choices, bed);
                    let status = ibv_destroy_ah(ah);
                    self.ahs.destroyed(ah, status);
                }
            }
        }
    }

    pub(super) fn xrcd(&mut self, choices: &mut Choices<'_>) {
        let table = self.table();
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            if choices.byte() < 160 && !self.xrcds.full() {
                let mask = if choices.byte() < 230 { 3 } else { choices.number(1) as u32 };
                let mut attr = ibv_xrcd_init_attr { comp_mask: mask, fd: -1, oflags: libc::O_CREAT };
                self.xrcds.add(slot!(table, open_xrcd)(self.context(choices), &mut attr));
            } else {
                let xrcd = self.xrcds.any(choices, self.bed);
                let status = slot!(table, close_xrcd)(xrcd);
                self.xrcds.destroyed(xrcd, status);
            }
        }
    }

    pub(super) fn events(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: objects are live, null or of another kind, which a verb looks up. Nothing waits, and what is taken is
        // acknowledged.
        unsafe {
            let (mut cq, mut cq_context) = (null_mut(), null_mut());
            let channel = self.channels.any(choices, self.bed);
            if ibv_get_cq_event(channel, &mut cq, &mut cq_context) == 0 {
                assert!(self.cqs.live.contains(&cq));
                ibv_ack_cq_events(cq, u32::from(choices.byte() % 3) + 1);
            }
            self.drain(choices.byte() & 1);
        }
    }

    pub(super) fn drain(&self, context: u8) {
        // SAFETY: an open context that does not wait.
        unsafe {
            let mut event: ibv_async_event = zeroed();
            while ibv_get_async_event(self.bed.contexts[usize::from(context)], &mut event) == 0 {
                ibv_ack_async_event(&mut event);
            }
        }
    }

    pub(super) fn queries(&mut self, choices: &mut Choices<'_>) {
        let context = self.context(choices);
        let number = count(choices);
        let table = self.table();
        // SAFETY: objects are live, null or of another kind, which a verb looks up; sizes are those of the structs, or
        // none that a struct can have.
        unsafe {
            let mut attr: ibv_device_attr_ex = zeroed();
            let sizes = [0, 8, size_of::<ibv_device_attr_ex>(), 1 << 13, usize::MAX];
            let (mut gid, mut pkey): (ibv_gid, u16) = (zeroed(), 0);
            match choices.byte() % 8 {
                0 => {
                    let size = choices.pick(&sizes);
                    slot!(table, query_device_ex)(context, std::ptr::null(), &mut attr, size);
                }
                1 => {
                    ibv_query_device(context, &mut attr.orig_attr);
                }
                2 => {
                    let mut port: ibv_port_attr = zeroed();
                    let sizes = [0, 8, size_of::<ibv_port_attr>(), 1 << 13, usize::MAX];
                    let (number, size) = (choices.byte() % 3, choices.pick(&sizes));
                    slot!(table, query_port)(context, number, &mut port, size);
                }
                3 => {
                    ibv_query_gid(context, 1, number as c_int, &mut gid);
                }
                4 => {
                    let mut entries: [ibv_gid_entry; 2] = zeroed();
                    let sizes = [0, 31, 32, 1 << 13, usize::MAX];
                    let most = (number as usize).min(2);
                    _ibv_query_gid_table(context, entries.as_mut_ptr(), most, 0, choices.pick(&sizes));
                    let size = choices.pick(&sizes);
                    _ibv_query_gid_ex(context, 1, number as u32, entries.as_mut_ptr(), 0, size);
                }
                5 => {
                    ibv_query_pkey(context, 1, number as c_int, &mut pkey);
                    ibv_get_pkey_index(context, 1, 7);
                }
                6 => {
                    let mut values: ibv_values_ex = random(choices);
                    slot!(table, query_rt_values)(context, &mut values);
                    ibv_import_device(number as c_int | i32::MIN);
                }
                _ => {
                    ibv_rate_to_mult(number as u32);
                    mbps_to_ibv_rate(number as c_int);
                    ibv_wc_status_str(number as u32);
                    ibv_event_type_str(number as u32);
                    ibv_node_type_str(number as u32);
                    ibv_port_state_str(number as u32);
                }
            }
        }
    }

    /// A handle that is another's.
    pub(super) fn tamper(&mut self, choices: &mut Choices<'_>) {
        let (pd, cq, qp) = (self.pds.one(choices), self.cqs.one(choices), self.qps.one(choices));
        // SAFETY: live or null; handles are put right again.
        unsafe {
            if let Some(shown) = pd.as_mut() {
                shown.handle ^= 0x55;
                assert!(ibv_alloc_mw_of(self.table(), pd).is_null() && ibv_dealloc_pd(pd) != 0);
                shown.handle ^= 0x55;
            }
            if let Some(shown) = cq.as_mut() {
                shown.handle ^= 0x55;
                assert!(ibv_destroy_cq(cq) != 0 && ibv_resize_cq(cq, 4) != 0);
                shown.handle ^= 0x55;
            }
            if let Some(shown) = qp.as_mut() {
                let own = shown.context;
                shown.context = self.bed.memory.cast();
                assert_ne!(ibv_destroy_qp(qp), 0);
                shown.context = own;
            }
        }
    }
}

/// # Safety
/// A live PD.
unsafe fn ibv_alloc_mw_of(table: &verbs_context, pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: a live PD, as the caller promises, and a table of ours.
    unsafe { slot!(table.context.ops, alloc_mw)(pd, 1) }
}
