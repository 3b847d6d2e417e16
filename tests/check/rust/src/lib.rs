//! What the planted programs share: two connected queue pairs of one process, over libibverbs as any program in Rust calls it.
//! With the word `correct` a program makes no mistake.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU8, Ordering};

use softrnic_abi::*;

pub const SIZE: usize = 4096;
pub const LOCAL_WRITE: i32 = 1;
pub const REMOTE_WRITE: i32 = 2;
pub const REMOTE_READ: i32 = 4;
pub const ALL: i32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;

const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const PSN: u32 = 77;
/// STATE, PKEY_INDEX, PORT and ACCESS_FLAGS.
const TO_INIT: i32 = 1 | 1 << 4 | 1 << 5 | 1 << 3;
/// STATE, AV, PATH_MTU, DEST_QPN, RQ_PSN, MAX_DEST_RD_ATOMIC and MIN_RNR_TIMER.
const TO_RTR: i32 = 1 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12 | 1 << 17 | 1 << 15;
/// STATE, TIMEOUT, RETRY_CNT, RNR_RETRY, SQ_PSN and MAX_QP_RD_ATOMIC.
const TO_RTS: i32 = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 13;

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_device_list(count: *mut i32) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> i32;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> i32;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut u8, length: usize, access: i32) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> i32;
    fn ibv_create_cq(context: *mut ibv_context, cqe: i32, of: *mut u8, channel: *mut u8, vector: i32) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> i32;
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> i32;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: i32) -> i32;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: i32, gid: *mut ibv_gid) -> i32;
}

/// Whether the program is to make no mistake.
pub fn correct() -> bool {
    std::env::args().any(|word| word == "correct")
}

/// One of two values.
pub fn right<T>(right: T, wrong: T) -> T {
    if correct() { right } else { wrong }
}

/// Zeros, which most structures of verbs begin with.
fn zeroed<T>() -> T {
    // SAFETY: used for structures of integers and pointers of C alone.
    unsafe { std::mem::zeroed() }
}

pub struct Domain {
    pub pd: *mut ibv_pd,
}

impl Domain {
    pub fn new(context: *mut ibv_context) -> Domain {
        // SAFETY: an open context.
        let pd = unsafe { ibv_alloc_pd(context) };
        assert!(!pd.is_null());
        Domain { pd }
    }

    pub fn close(self) {
        // SAFETY: its own domain, whose objects are gone.
        assert_eq!(unsafe { ibv_dealloc_pd(self.pd) }, 0);
    }
}

pub struct Region {
    mr: *mut ibv_mr,
    memory: Box<[u8; SIZE]>,
}

impl Region {
    #[inline(never)]
    pub fn new(domain: &Domain, access: i32) -> Region {
        let mut memory = Box::new([0; SIZE]);
        // SAFETY: a live domain, and memory that lives as long as the region.
        let mr = unsafe { ibv_reg_mr(domain.pd, memory.as_mut_ptr(), SIZE, access) };
        assert!(!mr.is_null());
        Region { mr, memory }
    }

    pub fn addr(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }

    pub fn lkey(&self) -> u32 {
        // SAFETY: a live region.
        unsafe { (*self.mr).lkey }
    }

    pub fn rkey(&self) -> u32 {
        // SAFETY: a live region.
        unsafe { (*self.mr).rkey }
    }

    pub fn bytes(&self, length: u32) -> ibv_sge {
        ibv_sge { addr: self.addr(), length, lkey: self.lkey() }
    }

    /// Writes a byte as the program does.
    pub fn set(&mut self, at: usize, byte: u8) {
        // SAFETY: a byte of the memory, which lives, and is changed here and by the NIC alone.
        unsafe { AtomicU8::from_ptr(&raw mut self.memory[at]) }.store(byte, Ordering::Relaxed);
    }

    pub fn close(self) {
        // SAFETY: its own region.
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
    }
}

pub struct End {
    context: *mut ibv_context,
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
}

pub struct Pair {
    context: *mut ibv_context,
    pub domain: Domain,
    pub here: End,
    pub there: End,
}

impl End {
    fn new(context: *mut ibv_context, domain: &Domain) -> End {
        // SAFETY: an open context.
        let cq = unsafe { ibv_create_cq(context, 64, null_mut(), null_mut(), 0) };
        assert!(!cq.is_null());
        let cap =
            ibv_qp_cap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 0 };
        let mut init = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, cap, qp_type: IBV_QPT_RC, ..zeroed() };
        // SAFETY: live objects.
        let qp = unsafe { ibv_create_qp(domain.pd, &mut init) };
        assert!(!qp.is_null());
        End { context, cq, qp }
    }

    pub fn number(&self) -> u32 {
        // SAFETY: a live QP.
        unsafe { (*self.qp).qp_num }
    }

    /// The status of `ibv_modify_qp`.
    #[inline(never)]
    pub fn modify(&self, attr: &mut ibv_qp_attr, mask: i32) -> i32 {
        // SAFETY: a live QP, and attributes for the call.
        unsafe { ibv_modify_qp(self.qp, attr, mask) }
    }

    pub fn to_init(&self) {
        let mut attr =
            ibv_qp_attr { qp_state: INIT, port_num: 1, qp_access_flags: ALL as u32, ..zeroed::<ibv_qp_attr>() };
        assert_eq!(self.modify(&mut attr, TO_INIT), 0);
    }

    /// What RTR takes.
    pub fn for_rtr(&self, peer: u32) -> (ibv_qp_attr, i32) {
        let mut attr = ibv_qp_attr {
            qp_state: RTR,
            path_mtu: 3,
            dest_qp_num: peer,
            rq_psn: PSN,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            ..zeroed::<ibv_qp_attr>()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.hop_limit = 64;
        // SAFETY: an open context, and room for a GID.
        assert_eq!(unsafe { ibv_query_gid(self.context, 1, 0, &mut attr.ah_attr.grh.dgid) }, 0);
        (attr, TO_RTR)
    }

    pub fn connect(&self, peer: &End, psn: u32) {
        self.to_init();
        let (mut attr, mask) = self.for_rtr(peer.number());
        assert_eq!(self.modify(&mut attr, mask), 0);
        let mut attr = ibv_qp_attr {
            qp_state: RTS,
            sq_psn: psn,
            timeout: 8,
            retry_cnt: 1,
            rnr_retry: 1,
            max_rd_atomic: 1,
            ..zeroed::<ibv_qp_attr>()
        };
        assert_eq!(self.modify(&mut attr, TO_RTS), 0);
    }

    /// Posts a signaled request, and returns the status of `ibv_post_send`.
    #[inline(always)]
    pub fn post(&self, opcode: u32, mut sge: ibv_sge, to: Option<(u64, u32)>, flags: u32) -> i32 {
        let mut wr = ibv_send_wr { wr_id: 7, sg_list: &mut sge, num_sge: 1, opcode, send_flags: flags, ..zeroed() };
        if let Some((remote_addr, rkey)) = to {
            wr.wr.rdma = send_rdma { remote_addr, rkey };
        }
        let mut bad = null_mut();
        // SAFETY: a live QP, whose context has the function; the request and its list live during the call.
        unsafe { ((*(*self.qp).context).ops.post_send.expect("a function"))(self.qp, &mut wr, &mut bad) }
    }

    /// Posts a receive.
    #[inline(always)]
    pub fn receive(&self, mut sge: ibv_sge) {
        let mut wr = ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: as for `post`.
        let status =
            unsafe { ((*(*self.qp).context).ops.post_recv.expect("a function"))(self.qp, &mut wr, &mut bad) };
        assert_eq!(status, 0);
    }

    /// Waits for a completion, whose status is `wrong` unless the program is correct.
    pub fn finish(&self, wrong: u32) {
        let mut wc: ibv_wc = zeroed();
        // SAFETY: a live CQ, whose context has the function, and room for a completion.
        while unsafe { ((*self.context).ops.poll_cq.expect("a function"))(self.cq, 1, &mut wc) } == 0 {}
        assert_eq!(wc.status, right(0, wrong));
    }

    fn close(&self) {
        // SAFETY: its own objects.
        unsafe { assert_eq!(ibv_destroy_qp(self.qp) | ibv_destroy_cq(self.cq), 0) }
    }
}

impl Pair {
    /// Two ends that are not connected.
    pub fn new() -> Pair {
        // SAFETY: a list of devices, of which the first is opened.
        let context = unsafe {
            let list = ibv_get_device_list(null_mut());
            assert!(!list.is_null() && !(*list).is_null());
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            context
        };
        assert_ne!(context.cast_const(), null());
        let domain = Domain::new(context);
        let (here, there) = (End::new(context, &domain), End::new(context, &domain));
        Pair { context, domain, here, there }
    }

    pub fn connected() -> Pair {
        let pair = Pair::new();
        pair.connect(PSN);
        pair
    }

    /// `psn` is what the first end begins with; the other one expects 77.
    pub fn connect(&self, psn: u32) {
        self.there.connect(&self.here, PSN);
        self.here.connect(&self.there, psn);
    }

    pub fn other_domain(&self) -> Domain {
        Domain::new(self.context)
    }

    /// Ends it all; the regions come first.
    pub fn close(self, regions: impl IntoIterator<Item = Region>) {
        self.here.close();
        self.there.close();
        regions.into_iter().for_each(Region::close);
        self.domain.close();
        // SAFETY: nothing of it is left.
        assert_eq!(unsafe { ibv_close_device(self.context) }, 0);
    }
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}
