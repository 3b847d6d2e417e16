//! Completion channels, completion queues and shared receive queues.

use super::bed::do_not_wait;
use super::*;

impl Session {
    pub(super) fn channel(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            if choices.byte() < 160 && !self.channels.full() {
                let channel = ibv_create_comp_channel(self.context(choices));
                if !channel.is_null() {
                    do_not_wait((*channel).fd);
                }
                self.channels.add(channel);
            } else {
                let channel = self.channels.any(choices, self.bed);
                let status = ibv_destroy_comp_channel(channel);
                self.channels.destroyed(channel, status);
            }
        }
    }

    pub(super) fn cq(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            let channel = if choices.byte() < 100 { null_mut() } else { self.channels.any(choices, bed) };
            match choices.byte() % 5 {
                0 | 1 if !self.cqs.full() => {
                    let (cqe, vector) = (count(choices) as c_int, count(choices) as c_int / 2);
                    self.cqs.add(ibv_create_cq(self.context(choices), cqe, null_mut(), channel, vector));
                }
                2 if !self.cqs.full() => {
                    let mut attr: ibv_cq_init_attr_ex = random(choices);
                    attr.cqe = count(choices) as u32;
                    attr.comp_vector %= 2;
                    attr.wc_flags &= if choices.byte() < 200 { 0x7F } else { u64::MAX };
                    (attr.channel, attr.parent_domain) = (channel, self.parents.any(choices, bed));
                    let cq = slot!(table, create_cq_ex)(self.context(choices), &mut attr);
                    if !cq.is_null() {
                        self.polled.push(cq);
                    }
                    self.cqs.add(cq.cast());
                }
                3 => {
                    ibv_resize_cq(self.cqs.any(choices, bed), count(choices) as c_int);
                }
                _ => {
                    let cq = self.cqs.any(choices, bed);
                    let status = ibv_destroy_cq(cq);
                    self.cqs.destroyed(cq, status);
                    self.polled.retain(|polled| status != 0 || polled.cast() != cq);
                }
            }
        }
    }

    pub(super) fn poll(&mut self, choices: &mut Choices<'_>) {
        let ops = &self.table().context.ops;
        // SAFETY: live or null; room for as many completions as are ever asked for.
        unsafe {
            let cq = self.cqs.one(choices);
            match choices.byte() % 4 {
                0 | 1 => {
                    let mut wc: [ibv_wc; 8] = zeroed();
                    let most = count(choices).min(8) as c_int;
                    let to = if choices.byte() == 255 { null_mut() } else { wc.as_mut_ptr() };
                    let found = slot!(ops, poll_cq)(cq, most, to);
                    assert!(found <= most.max(0));
                }
                2 => {
                    slot!(ops, req_notify_cq)(cq, c_int::from(choices.byte()));
                }
                _ => {
                    let Some(index) = usize::from(choices.byte()).checked_rem(self.polled.len()) else {
                        return;
                    };
                    let cq = self.polled[index];
                    let mut attr: ibv_poll_cq_attr = random(choices);
                    if slot!((*cq), start_poll)(cq, &mut attr) == 0 {
                        slot!((*cq), read_opcode)(cq);
                        slot!((*cq), read_wc_flags)(cq);
                        slot!((*cq), read_byte_len)(cq);
                        slot!((*cq), read_completion_wallclock_ns)(cq);
                        slot!((*cq), next_poll)(cq);
                        slot!((*cq), end_poll)(cq);
                    }
                }
            }
        }
    }

    pub(super) fn srq(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: objects are live, null or of another kind, which a verb looks up; structs are this function's.
        unsafe {
            let mut attr =
                ibv_srq_attr { max_wr: count(choices) as u32, max_sge: count(choices) as u32, srq_limit: 0 };
            match choices.byte() % 6 {
                0 | 1 if !self.srqs.full() => {
                    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
                    self.srqs.add(ibv_create_srq(self.pds.any(choices, bed), &mut init));
                }
                2 if !self.srqs.full() => {
                    let mut init: ibv_srq_init_attr_ex = zeroed();
                    init.attr = attr;
                    init.comp_mask = u32::from(choices.byte() & 0x1F);
                    init.srq_type = u32::from(choices.byte() % 4);
                    init.pd = self.pds.any(choices, bed);
                    init.xrcd = self.xrcds.any(choices, bed);
                    init.cq = self.cqs.any(choices, bed);
                    self.srqs.add(slot!(table, create_srq_ex)(self.context(choices), &mut init));
                }
                3 => {
                    attr.srq_limit = count(choices) as u32;
                    ibv_modify_srq(self.srqs.any(choices, bed), &mut attr, i32::from(choices.byte() & 7));
                }
                4 => {
                    let srq = self.srqs.any(choices, bed);
                    ibv_query_srq(srq, &mut attr);
                    slot!(table, get_srq_num)(srq, &mut attr.max_wr);
                }
                _ => {
                    let srq = self.srqs.any(choices, bed);
                    let status = ibv_destroy_srq(srq);
                    self.srqs.destroyed(srq, status);
                }
            }
        }
    }
}
