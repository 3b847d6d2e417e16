//! Work requests: posted one by one, in lists, and built call by call.

use super::*;

impl Session {
    pub(super) fn address(&self, choices: &mut Choices<'_>) -> u64 {
        let base = self.bed.memory.addr() as u64;
        match choices.byte() {
            255 => 0,
            254 => u64::MAX,
            253 => base + PAGE as u64 - 8,
            byte => base + u64::from(byte) * 8,
        }
    }

    pub(super) fn key(&self, choices: &mut Choices<'_>) -> u32 {
        let mr = self.mrs.one(choices);
        // SAFETY: null or live.
        let key = unsafe { mr.as_ref() }.map_or(7, |mr| mr.lkey);
        if choices.byte() > 240 { key ^ choices.number(4) as u32 } else { key }
    }

    /// A list that ends at the edge of the page, and the length passed for it.
    pub(super) fn sges(&self, choices: &mut Choices<'_>) -> (*mut ibv_sge, i64) {
        let count = count(choices);
        if choices.byte() == 255 {
            return (null_mut(), count);
        }
        let there = usize::try_from(count).map_or(1, |count| count.min(ELEMENTS));
        // SAFETY: the last bytes of the page.
        let list: *mut ibv_sge = unsafe { self.bed.lists.add(PAGE - there * size_of::<ibv_sge>()).cast() };
        for index in 0..there.min(6) {
            let length = if choices.byte() > 250 { choices.number(4) } else { choices.number(1) % 64 };
            let element =
                ibv_sge { addr: self.address(choices), length: length as u32, lkey: self.key(choices) };
            // SAFETY: within the list.
            unsafe { list.add(index).write(element) };
        }
        (list, count)
    }

    /// As [`Session::sges`], with data that can be read now, or is too long to be.
    pub(super) fn inline(&self, choices: &mut Choices<'_>) -> (*mut ibv_sge, i64) {
        let (list, count) = self.sges(choices);
        let there = usize::try_from(count).map_or(0, |count| count.min(ELEMENTS));
        for index in 0..if list.is_null() { 0 } else { there } {
            // SAFETY: within the list.
            unsafe {
                (*list.add(index)).addr = self.bed.memory.addr() as u64;
                (*list.add(index)).length &= 0x8000_03FF;
            }
        }
        (list, count)
    }

    pub(super) fn post_send(&mut self, choices: &mut Choices<'_>) {
        const OPCODES: [u32; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 200];
        let mut requests: [ibv_send_wr; 3] = [random(choices), random(choices), random(choices)];
        let length = usize::from(choices.byte() % 4);
        for (index, request) in requests.iter_mut().enumerate().take(length) {
            request.send_flags =
                if choices.byte() < 240 { u32::from(choices.byte() & 0xF) } else { u32::MAX };
            let inline = request.send_flags & 8 != 0;
            let (list, count) = if inline && index + 1 == length {
                self.inline(choices)
            } else {
                request.send_flags &= !8;
                // One list: only the last request has it.
                if index + 1 == length { self.sges(choices) } else { (null_mut(), 0) }
            };
            (request.sg_list, request.num_sge) = (list, count as c_int);
            request.opcode = choices.pick(&OPCODES);
            request.next = null_mut();
            let remote = self.address(choices);
            // SAFETY: a live or null QP; all members are plain numbers or pointers.
            match unsafe { self.qps.one(choices).as_ref() }.map_or(0, |qp| qp.qp_type) {
                4 => {
                    request.wr.ud = send_ud {
                        ah: self.ahs.one(choices),
                        remote_qpn: choices.number(3) as u32,
                        remote_qkey: 0x11,
                    };
                }
                _ => {
                    request.wr.atomic = send_atomic {
                        remote_addr: remote & !7,
                        compare_add: choices.number(2),
                        swap: choices.number(2),
                        rkey: self.key(choices),
                    }
                }
            }
            if request.opcode == 8 {
                request.op.bind_mw = send_bind_mw {
                    mw: self.mws.one(choices),
                    rkey: choices.number(4) as u32,
                    bind_info: self.bind_info(choices),
                };
            }
        }
        for index in 1..length {
            requests[index - 1].next = &raw mut requests[index];
        }
        let mut bad = null_mut();
        let first = if length == 0 { null_mut() } else { requests.as_mut_ptr() };
        let blamed = if choices.byte() == 255 { null_mut() } else { &raw mut bad };
        let qp = self.qps.one(choices);
        // A datagram names an address handle: the other services' members are not that.
        // SAFETY: live or null.
        if unsafe { qp.as_ref() }.is_some_and(|qp| qp.qp_type == 4) {
            for request in &mut requests {
                request.wr.ud = send_ud {
                    ah: self.ahs.one(choices),
                    remote_qpn: choices.number(3) as u32,
                    remote_qkey: 0x11,
                };
            }
        }
        // SAFETY: a live or null QP, with requests as they may be.
        let status = unsafe { slot!(self.table().context.ops, post_send)(qp, first, blamed) };
        assert!(status == 0 || blamed.is_null() || !bad.is_null() || qp.is_null());
    }

    pub(super) fn bind_info(&self, choices: &mut Choices<'_>) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.mrs.one(choices),
            addr: self.address(choices),
            length: if choices.byte() < 250 { choices.number(1) } else { choices.number(8) },
            mw_access_flags: choices.number(1) as u32,
        }
    }

    pub(super) fn post_receive(&mut self, choices: &mut Choices<'_>) {
        let (list, count) = self.sges(choices);
        let mut request = ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: list, num_sge: count as c_int };
        let mut bad = null_mut();
        let ops = &self.table().context.ops;
        // SAFETY: live or null objects, with requests as they may be.
        unsafe {
            if choices.byte() < 128 {
                slot!(ops, post_recv)(self.qps.one(choices), &mut request, &mut bad);
            } else {
                slot!(ops, post_srq_recv)(self.srqs.one(choices), &mut request, &mut bad);
            }
        }
    }

    pub(super) fn build(&mut self, choices: &mut Choices<'_>) {
        let qp = self.qps.one(choices);
        // SAFETY: a live QP, whose batch is begun, built and ended by this thread.
        unsafe {
            let ex = ibv_qp_to_qp_ex(qp);
            let Some(shown) = ex.as_mut() else { return };
            slot!(shown, wr_start)(ex);
            for _ in 0..choices.byte() % 6 {
                shown.wr_flags = if choices.byte() < 240 { u32::from(choices.byte() & 7) } else { u32::MAX };
                self.build_one(shown, choices);
            }
            if choices.byte() < 220 {
                slot!(shown, wr_complete)(ex);
            } else {
                slot!(shown, wr_abort)(ex);
            }
        }
    }

    /// # Safety
    /// The QP has a batch.
    unsafe fn build_one(&self, shown: &mut ibv_qp_ex, choices: &mut Choices<'_>) {
        let ex: *mut ibv_qp_ex = shown;
        let (remote, key) = (self.address(choices), self.key(choices));
        macro_rules! call {
            ($name:ident $(, $argument:expr)*) => {
                if let Some(call) = shown.$name {
                    call(ex $(, $argument)*);
                }
            };
        }
        // SAFETY: the QP has a batch, as the caller promises; pointers are null, or lead to memory of the session.
        unsafe {
            match choices.byte() % 18 {
                0 => call!(wr_send),
                1 => call!(wr_send_imm, 5),
                2 => call!(wr_send_inv, key),
                3 => call!(wr_rdma_write, key, remote),
                4 => call!(wr_rdma_write_imm, key, remote, 6),
                5 => call!(wr_rdma_read, key, remote),
                6 => call!(wr_atomic_cmp_swp, key, remote, 1, 2),
                7 => call!(wr_atomic_fetch_add, key, remote, 1),
                8 => {
                    let value = if choices.byte() == 255 { null_mut() } else { self.bed.memory };
                    call!(wr_atomic_write, key, remote, value.cast());
                }
                9 => call!(wr_flush, key, remote, count(choices) as usize, choices.byte(), choices.byte()),
                10 => call!(wr_local_inv, key),
                11 => {
                    let info = self.bind_info(choices);
                    let info = if choices.byte() == 255 { std::ptr::null() } else { &raw const info };
                    call!(wr_bind_mw, self.mws.one(choices), key, info);
                }
                12 => call!(wr_set_ud_addr, self.ahs.one(choices), choices.number(3) as u32, 0x11),
                13 => call!(wr_set_xrc_srqn, choices.number(3) as u32),
                14 => {
                    let length =
                        if choices.byte() < 250 { choices.number(2) as usize % PAGE } else { usize::MAX };
                    call!(wr_set_inline_data, self.bed.memory.cast(), length);
                }
                15 => {
                    let count = count(choices) as usize;
                    let there = count.min(8);
                    let list: *mut ibv_data_buf =
                        self.bed.lists.add(PAGE - there.max(1) * size_of::<ibv_data_buf>()).cast();
                    for index in 0..there {
                        let length = choices.number(1) as usize * 8;
                        list.add(index).write(ibv_data_buf { addr: self.bed.memory.cast(), length });
                    }
                    let there = if choices.byte() == 255 { null_mut() } else { list };
                    // More than there are, yet few enough to be plausible, would be fatal.
                    if count <= 8 || count > PAGE {
                        call!(wr_set_inline_data_list, count, there);
                    }
                }
                16 => call!(wr_set_sge, key, self.address(choices), choices.number(2) as u32),
                _ => {
                    let (list, count) = self.sges(choices);
                    call!(wr_set_sge_list, count as usize, list);
                }
            }
        }
    }
}
