//! The C ABI under sequences of calls with hostile arguments, against real objects of two devices in memory.
//!
//! What the ABI promises holds: a wrong count, mask, number or flag, null, and an object that is gone, of another kind
//! or of another device are errors, never crashes, and in the end everything can be destroyed. Lists end at the edge of
//! a page that nothing follows. What no provider survives is left out: addresses of nothing, and on the data path
//! anything but null and live objects.

use std::ffi::{c_int, c_uint};
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use softrnic_ibverbs::abi::*;
use softrnic_ibverbs::testing::{context_on, objects};
use softrnic_link::sim::{Fabric, Path, SimOptions};
use softrnic_nic::verbs::Running;

use super::Choices;
use exports::*;

mod exports;

/// Runs the calls that the bytes stand for.
pub fn verbs(data: &[u8]) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut session = Session::new(bed());
    let mut choices = Choices(data);
    while !choices.is_empty() {
        session.step(&mut choices);
    }
    session.end();
}

/// What all inputs share.
struct Bed {
    contexts: [*mut ibv_context; 2],
    /// Where registered memory is, one page, and behind it nothing.
    memory: *mut u8,
    /// Where lists are, likewise.
    lists: *mut u8,
}

// SAFETY: one thread at a time has it, see `verbs`; the library takes any thread.
unsafe impl Send for Bed {}
// SAFETY: as above.
unsafe impl Sync for Bed {}

const PAGE: usize = 4096;
/// More than a QP or an SRQ takes.
const ELEMENTS: usize = 40;

fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| {
        let fabric = Fabric::new(1);
        fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
        let open = |last| {
            let address = IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
            let link = fabric.attach(address, SimOptions::default()).expect("a free address");
            let device =
                Running::with_link(Box::new(link), address, &format!("fuzz{last}")).expect("a device");
            let context = context_on(device);
            assert!(!context.is_null());
            // SAFETY: an open context; nothing is to wait.
            unsafe { do_not_wait((*context).async_fd) };
            context
        };
        Bed { contexts: [open(1), open(2)], memory: page_at_an_edge(), lists: page_at_an_edge() }
    })
}

fn page_at_an_edge() -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, the second page of which is made unusable.
    unsafe {
        let pages = libc::mmap(null_mut(), 2 * PAGE, protection, flags, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
        pages.cast()
    }
}

/// # Safety
/// The descriptor is open.
unsafe fn do_not_wait(fd: c_int) {
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) };
}

/// Live objects of a kind, and the last that was destroyed.
struct Known<T> {
    live: Vec<*mut T>,
    gone: *mut T,
}

impl<T> Known<T> {
    fn new() -> Known<T> {
        Known { live: Vec::new(), gone: null_mut() }
    }

    fn add(&mut self, object: *mut T) {
        if !object.is_null() {
            self.live.push(object);
        }
    }

    /// For the data path: live or null.
    fn one(&self, choices: &mut Choices<'_>) -> *mut T {
        match usize::from(choices.byte()) {
            255 => null_mut(),
            byte => byte.checked_rem(self.live.len()).map_or(null_mut(), |index| self.live[index]),
        }
    }

    /// For everything else: perhaps gone, of another kind, or no object at all.
    fn any(&self, choices: &mut Choices<'_>, bed: &Bed) -> *mut T {
        match choices.byte() {
            255 => null_mut(),
            254 => self.gone,
            253 => bed.memory.cast(),
            252 => bed.contexts[0].cast(),
            byte => {
                usize::from(byte).checked_rem(self.live.len()).map_or(self.gone, |index| self.live[index])
            }
        }
    }

    /// What a verb that destroys said of an object.
    fn destroyed(&mut self, object: *mut T, status: c_int) {
        if status == 0 {
            let before = self.live.len();
            self.live.retain(|live| *live != object);
            assert_eq!(self.live.len() + 1, before, "what was not there was destroyed");
            self.gone = object;
        }
    }

    fn full(&self) -> bool {
        self.live.len() >= 6
    }
}

struct Session {
    bed: &'static Bed,
    pds: Known<ibv_pd>,
    tds: Known<ibv_td>,
    parents: Known<ibv_pd>,
    channels: Known<ibv_comp_channel>,
    cqs: Known<ibv_cq>,
    polled: Vec<*mut ibv_cq_ex>,
    srqs: Known<ibv_srq>,
    xrcds: Known<ibv_xrcd>,
    qps: Known<ibv_qp>,
    mrs: Known<ibv_mr>,
    imported: Vec<*mut ibv_mr>,
    mws: Known<ibv_mw>,
    ahs: Known<ibv_ah>,
    dms: Known<ibv_dm>,
}

macro_rules! slot {
    ($table:expr, $name:ident) => {
        $table.$name.expect("a slot that we fill")
    };
}

/// A struct of random bytes.
fn random<T>(choices: &mut Choices<'_>) -> T {
    // SAFETY: only used for structs of numbers and pointers, which zeros are values of, as other bytes are.
    unsafe {
        let mut made: T = zeroed();
        let length = usize::from(choices.byte()).min(size_of::<T>());
        let bytes = choices.take(length);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut made).cast(), bytes.len());
        made
    }
}

fn count(choices: &mut Choices<'_>) -> i64 {
    const HOSTILE: [i64; 12] = [
        1 << 31,
        -1,
        i32::MAX as i64,
        i32::MIN as i64,
        1 << 20,
        33,
        32,
        65_536,
        u32::MAX as i64,
        i64::MAX,
        i64::MIN,
        1 << 16,
    ];
    match choices.byte() {
        byte @ 0..=199 => i64::from(byte % 6),
        byte => HOSTILE[usize::from(byte) % HOSTILE.len()],
    }
}

impl Session {
    fn new(bed: &'static Bed) -> Session {
        assert_eq!(objects(), 2, "what an earlier input has left");
        Session {
            bed,
            pds: Known::new(),
            tds: Known::new(),
            parents: Known::new(),
            channels: Known::new(),
            cqs: Known::new(),
            polled: Vec::new(),
            srqs: Known::new(),
            xrcds: Known::new(),
            qps: Known::new(),
            mrs: Known::new(),
            imported: Vec::new(),
            mws: Known::new(),
            ahs: Known::new(),
            dms: Known::new(),
        }
    }

    fn context(&self, choices: &mut Choices<'_>) -> *mut ibv_context {
        match choices.byte() {
            255 => null_mut(),
            254 => self.bed.memory.cast(),
            byte => self.bed.contexts[usize::from(byte & 0x80 != 0)],
        }
    }

    /// The extended table of either context.
    fn table(&self) -> &'static verbs_context {
        let context = self.bed.contexts[0];
        // SAFETY: contexts of ours are inside an extended one, and stay.
        unsafe { &*context.byte_sub(std::mem::offset_of!(verbs_context, context)).cast() }
    }

    fn address(&self, choices: &mut Choices<'_>) -> u64 {
        let base = self.bed.memory.addr() as u64;
        match choices.byte() {
            255 => 0,
            254 => u64::MAX,
            253 => base + PAGE as u64 - 8,
            byte => base + u64::from(byte) * 8,
        }
    }

    fn key(&self, choices: &mut Choices<'_>) -> u32 {
        let mr = self.mrs.one(choices);
        // SAFETY: null or live.
        let key = unsafe { mr.as_ref() }.map_or(7, |mr| mr.lkey);
        if choices.byte() > 240 { key ^ choices.number(4) as u32 } else { key }
    }

    /// A list that ends at the edge, and what is said of its length.
    fn sges(&self, choices: &mut Choices<'_>) -> (*mut ibv_sge, i64) {
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
    fn inline(&self, choices: &mut Choices<'_>) -> (*mut ibv_sge, i64) {
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

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 26 {
            0 => self.domains(choices),
            1 => self.channel(choices),
            2 => self.cq(choices),
            3 => self.poll(choices),
            4 => self.srq(choices),
            5 | 6 => self.create_qp(choices),
            7 => self.connect(choices),
            8 => self.modify_qp(choices),
            9 => self.query_qp(choices),
            10 => self.destroy_qp(choices),
            11 | 12 => self.post_send(choices),
            13 | 14 => self.post_receive(choices),
            15 | 16 => self.build(choices),
            17 => self.region(choices),
            18 => self.change_region(choices),
            19 => self.window(choices),
            20 => self.handle(choices),
            21 => self.xrcd(choices),
            22 => self.device_memory(choices),
            23 => self.events(choices),
            24 => self.queries(choices),
            _ => self.tamper(choices),
        }
    }

    fn domains(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: what the ABI takes.
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

    fn channel(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: what the ABI takes.
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

    fn cq(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: what the ABI takes.
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

    fn poll(&mut self, choices: &mut Choices<'_>) {
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

    fn srq(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: what the ABI takes.
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

    fn create_qp(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        if self.qps.full() {
            return;
        }
        const TYPES: [u32; 10] = [2, 2, 2, 3, 4, 4, 9, 10, 8, 77];
        // SAFETY: what the ABI takes.
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

    fn address_of(&self, choices: &mut Choices<'_>) -> ibv_ah_attr {
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
    fn connect(&mut self, choices: &mut Choices<'_>) {
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

    fn modify_qp(&mut self, choices: &mut Choices<'_>) {
        let mut attr: ibv_qp_attr = random(choices);
        attr.qp_state = u32::from(choices.byte() % 8);
        attr.ah_attr = self.address_of(choices);
        let bytes = if choices.byte() < 200 { 2 } else { 4 };
        let mask = choices.number(bytes) as i32 | 1;
        // SAFETY: what the ABI takes.
        unsafe {
            let qp = self.qps.any(choices, self.bed);
            ibv_modify_qp(qp, &mut attr, mask);
            if choices.byte() == 255 {
                ibv_modify_qp(qp, null_mut(), mask);
            }
        }
    }

    fn query_qp(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: what the ABI takes.
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

    fn groups(choices: &mut Choices<'_>) -> ibv_gid {
        let mut raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 0, 0, choices.byte() % 3];
        if choices.byte() == 255 {
            raw[12] = 1;
        }
        ibv_gid { raw }
    }

    fn destroy_qp(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: what the ABI takes.
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

    fn post_send(&mut self, choices: &mut Choices<'_>) {
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

    fn bind_info(&self, choices: &mut Choices<'_>) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.mrs.one(choices),
            addr: self.address(choices),
            length: if choices.byte() < 250 { choices.number(1) } else { choices.number(8) },
            mw_access_flags: choices.number(1) as u32,
        }
    }

    fn post_receive(&mut self, choices: &mut Choices<'_>) {
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

    fn build(&mut self, choices: &mut Choices<'_>) {
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
        // SAFETY: as above; pointers are null or good.
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
                    // More than there are, and few enough to be believed, would be a lie that kills.
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

    fn region(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        let addr = bed.memory.wrapping_add(choices.number(1) as usize * 16);
        let length =
            if choices.byte() < 230 { choices.number(2) as usize % PAGE } else { count(choices) as usize };
        // Not on demand: implicit regions are all of our memory.
        let access = if choices.byte() < 200 { 0x1F } else { choices.number(4) as i32 & !0x40 };
        // SAFETY: what the ABI takes; what may be registered is in the page.
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

    fn change_region(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: what the ABI takes; lists of prefetching are as long as they are said to be, or much longer.
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

    fn window(&mut self, choices: &mut Choices<'_>) {
        let (bed, ops) = (self.bed, &self.table().context.ops);
        // SAFETY: what the ABI takes.
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

    fn handle(&mut self, choices: &mut Choices<'_>) {
        let bed = self.bed;
        // SAFETY: what the ABI takes.
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

    fn xrcd(&mut self, choices: &mut Choices<'_>) {
        let table = self.table();
        // SAFETY: what the ABI takes.
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

    fn device_memory(&mut self, choices: &mut Choices<'_>) {
        let (bed, table) = (self.bed, self.table());
        // SAFETY: what the ABI takes; more than a page is more than there is device memory.
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

    fn events(&mut self, choices: &mut Choices<'_>) {
        // SAFETY: what the ABI takes. Nothing waits, and what is taken is acknowledged.
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

    fn drain(&self, context: u8) {
        // SAFETY: an open context that does not wait.
        unsafe {
            let mut event: ibv_async_event = zeroed();
            while ibv_get_async_event(self.bed.contexts[usize::from(context)], &mut event) == 0 {
                ibv_ack_async_event(&mut event);
            }
        }
    }

    fn queries(&mut self, choices: &mut Choices<'_>) {
        let context = self.context(choices);
        let number = count(choices);
        let table = self.table();
        // SAFETY: what the ABI takes; sizes are those of the structs, or none that a struct can have.
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
    fn tamper(&mut self, choices: &mut Choices<'_>) {
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

    /// Everything can be destroyed, and nothing is left.
    fn end(mut self) {
        let table = self.table();
        let ops = &table.context.ops;
        // SAFETY: live objects, destroyed in the order of their use.
        unsafe {
            for channel in &self.channels.live {
                let (mut cq, mut cq_context) = (null_mut(), null_mut());
                while ibv_get_cq_event(*channel, &mut cq, &mut cq_context) == 0 {
                    ibv_ack_cq_events(cq, 1);
                }
            }
            self.drain(0);
            self.drain(1);
            for &qp in &self.qps.live {
                for last in 0..3 {
                    for first in [239, 1] {
                        let raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, first, 0, 0, last];
                        while ibv_detach_mcast(qp, &ibv_gid { raw }, 0) == 0 {}
                    }
                }
            }
            let zero = |what: &str, status: c_int| assert_eq!(status, 0, "{what}");
            self.qps.live.drain(..).for_each(|qp| zero("QP", ibv_destroy_qp(qp)));
            self.srqs.live.drain(..).for_each(|srq| zero("SRQ", ibv_destroy_srq(srq)));
            self.xrcds.live.drain(..).for_each(|xrcd| zero("XRC domain", slot!(table, close_xrcd)(xrcd)));
            self.cqs.live.drain(..).for_each(|cq| zero("CQ", ibv_destroy_cq(cq)));
            self.channels
                .live
                .drain(..)
                .for_each(|channel| zero("channel", ibv_destroy_comp_channel(channel)));
            self.ahs.live.drain(..).for_each(|ah| zero("AH", ibv_destroy_ah(ah)));
            self.mws.live.drain(..).for_each(|mw| zero("window", slot!(ops, dealloc_mw)(mw)));
            self.imported.drain(..).for_each(|mr| ibv_unimport_mr(mr));
            self.mrs.live.drain(..).for_each(|mr| zero("region", ibv_dereg_mr(mr)));
            self.dms.live.drain(..).for_each(|dm| zero("device memory", slot!(table, free_dm)(dm)));
            self.parents.live.drain(..).for_each(|pd| zero("parent domain", ibv_dealloc_pd(pd)));
            self.tds.live.drain(..).for_each(|td| zero("thread domain", slot!(table, dealloc_td)(td)));
            self.pds.live.drain(..).for_each(|pd| zero("PD", ibv_dealloc_pd(pd)));
        }
        assert_eq!(objects(), 2, "something is left");
    }
}

/// # Safety
/// A live PD.
unsafe fn ibv_alloc_mw_of(table: &verbs_context, pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: as above.
    unsafe { slot!(table.context.ops, alloc_mw)(pd, 1) }
}
