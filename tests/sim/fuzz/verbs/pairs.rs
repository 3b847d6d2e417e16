//! Queue pairs: made, connected, changed, asked, in groups, destroyed.

use super::*;

impl Session {
    pub(super) fn create_qp(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        if self.qps.full() {
            return;
        }
        const TYPES: [u32; 10] = [2, 2, 2, 3, 4, 4, 9, 10, 8, 77];
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            let mut init: ibv_qp_init_attr_ex = zeroed();
            init.send_cq = self.cqs.any(choices, bed);
            init.recv_cq = self.cqs.any(choices, bed);
            init.srq = if choices.byte() < 160 { null_mut() } else { self.srqs.any(choices, bed) };
            init.cap = ibv_qp_cap {
                max_send_wr: count(choices) as u32,
                max_recv_wr: count(choices) as u32,
                max_send_sge: count(choices) as u32,
                max_recv_sge: count(choices) as u32,
                max_inline_data: choices.number(1) as u32 * 3,
            };
            init.qp_type = choices.pick(&TYPES);
            init.sq_sig_all = i32::from(choices.byte() & 1);
            init.pd = self.pds.any(choices, bed);
            if choices.byte() < 80 {
                self.qps.add(ibv_create_qp(init.pd, (&raw mut init).cast()));
                return;
            }
            init.xrcd = self.xrcds.any(choices, bed);
            let asked = choices.byte();
            init.comp_mask =
                if asked < 200 { 1 | (u32::from(asked) & 2) | 0x20 } else { choices.number(2) as u32 };
            init.send_ops_flags = match choices.byte() {
                200.. => choices.number(2),
                _ if init.qp_type == 4 => 0xC,
                _ if init.qp_type == 3 => 0x18F,
                _ => 0x1BFF,
            };
            if asked & 0x10 != 0 && asked < 200 {
                init.comp_mask &= !0x20;
            }
            self.qps.add(slot!(table, create_qp_ex)(self.context(choices), &mut init));
        }
    }

    pub(super) fn address_of(&self, choices: &mut Choices<'_>) -> ibv_ah_attr {
        let mut attr: ibv_ah_attr = if choices.byte() > 230 {
            random(choices)
        } else {
            // SAFETY: a struct of numbers.
            unsafe { zeroed() }
        };
        if choices.byte() < 220 {
            (attr.is_global, attr.port_num) = (1, 1);
            attr.grh.sgid_index = choices.byte() / 200;
            let last = choices.byte() % 3 + 1;
            attr.grh.dgid.raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, last];
        }
        attr
    }

    /// As a program would, to itself or another of our QPs.
    pub(super) fn connect(&mut self, choices: &mut Choices<'_>) {
        let (qp, peer) = (self.qps.one(choices), self.qps.one(choices));
        // SAFETY: live or null.
        let (Some(shown), Some(peer)) = (unsafe { qp.as_ref() }, unsafe { peer.as_ref() }) else { return };
        let mut attr: ibv_qp_attr = random(choices);
        attr.ah_attr = self.address_of(choices);
        (attr.pkey_index, attr.port_num, attr.path_mtu) = (0, 1, 1 + u32::from(choices.byte() % 5));
        (attr.dest_qp_num, attr.qkey) = (peer.qp_num, 0x11);
        (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (4, 4);
        attr.qp_access_flags = 0xF;
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (1, 1, 1);
        (attr.sq_psn, attr.rq_psn) = (5, 5);
        let masks: [u32; 3] = match shown.qp_type {
            4 => [0x71, 0x1, 0x1_0001],
            3 => [0x39, 0x10_1181 & !0x2_0000, 0x1_0001],
            _ => [0x39, 0x12_9181, 0x1_2E01],
        };
        for (state, mask) in (1u32..).zip(masks) {
            attr.qp_state = state;
            // SAFETY: a live QP.
            unsafe { ibv_modify_qp(qp, &mut attr, mask as i32) };
        }
    }

    pub(super) fn modify_qp(&mut self, choices: &mut Choices<'_>) {
        let mut attr: ibv_qp_attr = random(choices);
        attr.qp_state = u32::from(choices.byte() % 8);
        attr.ah_attr = self.address_of(choices);
        let bytes = if choices.byte() < 200 { 2 } else { 4 };
        let mask = choices.number(bytes) as i32 | 1;
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            let qp = self.qps.any(choices, self.bed);
            ibv_modify_qp(qp, &mut attr, mask);
            if choices.byte() == 255 {
                ibv_modify_qp(qp, null_mut(), mask);
            }
        }
    }

    pub(super) fn query_qp(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
            ibv_query_qp(self.qps.any(choices, self.bed), &mut attr, choices.number(4) as i32, &mut init);
            let qp = self.qps.any(choices, self.bed);
            ibv_qp_to_qp_ex(qp);
            if self.qps.full() {
                return;
            }
            let mut open: ibv_qp_open_attr = zeroed();
            open.comp_mask = u32::from(choices.byte());
            open.qp_num = self.qps.one(choices).as_ref().map_or(0, |qp| qp.qp_num);
            open.qp_type = u32::from(choices.byte() % 12);
            open.xrcd = self.xrcds.any(choices, self.bed);
            self.qps.add(slot!(self.table(), open_qp)(self.context(choices), &mut open));
        }
    }

    pub(super) fn groups(choices: &mut Choices<'_>) -> ibv_gid {
        let mut raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 0, 0, choices.byte() % 3];
        if choices.byte() == 255 {
            raw[12] = 1;
        }
        ibv_gid { raw }
    }

    pub(super) fn destroy_qp(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            let qp = self.qps.any(choices, self.bed);
            let gid = Session::groups(choices);
            match choices.byte() % 4 {
                0 => {
                    ibv_attach_mcast(qp, &gid, 0);
                }
                1 => {
                    ibv_detach_mcast(qp, &gid, 0);
                }
                _ => {
                    let status = ibv_destroy_qp(qp);
                    self.qps.destroyed(qp, status);
                }
            }
        }
    }
}
