//! The C ABI under sequences of calls with hostile arguments, against real objects of two devices in memory.
//!
//! What the ABI promises holds: a wrong count, mask, number or flag, null, and an object that was destroyed, of another
//! kind or of another device are errors, never crashes, and in the end everything can be destroyed. Lists end at the
//! edge of a page with nothing mapped behind it. What no provider survives is left out: unmapped addresses, and on the
//! data path anything but null and live objects.

use std::ffi::{c_int, c_uint};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use softrnic_ibverbs::abi::*;
use softrnic_ibverbs::testing::objects;

use super::Choices;
use bed::{Bed, ELEMENTS, PAGE, bed};
use exports::*;
use known::Known;

macro_rules! slot {
    ($table:expr, $name:ident) => {
        $table.$name.expect("a slot that we fill")
    };
}

mod bed;
mod exports;
mod known;
mod others;
mod pairs;
mod queues;
mod regions;
mod requests;

/// Executes the calls that the bytes stand for.
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
