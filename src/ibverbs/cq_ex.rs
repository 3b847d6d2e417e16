//! Polling completion by completion (`ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll`, `ibv_wc_read_*`).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::time::{SystemTime, UNIX_EPOCH};

use softrnic_nic::verbs::{Cqe, Qpn, Status, WcOpcode, short_number};

use crate::abi::*;
use crate::check;
use crate::context::Ctx;
use crate::cq::{CqObject, argument, flags, service_level, vendor_err};
use crate::efadv::slid;
use crate::errno::Errno;
use crate::ffi_boundary::{Plain, Silent, borrow, call, guard, guard_data_path};
use crate::pd::PdObject;
use crate::raw_mutex::RawMutex;

/// The state between `ibv_start_poll` and `ibv_end_poll`.
pub(crate) struct Poll {
    /// Held in between, unless the application promised to use a single thread.
    lock: Option<RawMutex>,
    /// The current completion.
    current: Cell<Cqe>,
    /// Added to a completion's time stamp, gives the wall-clock time in nanoseconds.
    wallclock: Cell<u64>,
    /// Whether `ibv_create_cq_ex` made the CQ.
    extended: bool,
}

const NOTHING: Cqe = Cqe {
    wr_id: 0,
    status: Status::Success,
    opcode: WcOpcode::Send,
    byte_len: 0,
    extra: softrnic_nic::verbs::CqeExtra::None,
    qpn: Qpn::new(0),
    src_qpn: Qpn::new(0),
    grh: false,
    ipv4: false,
    timestamp: 0,
};

impl Poll {
    /// For a CQ that is only polled with `ibv_poll_cq`.
    pub(crate) fn plain() -> Poll {
        Poll { lock: None, current: Cell::new(NOTHING), wallclock: Cell::new(0), extended: false }
    }

    fn extended(single_threaded: bool) -> Poll {
        let lock = (!single_threaded).then(RawMutex::new);
        Poll { lock, current: Cell::new(NOTHING), wallclock: Cell::new(0), extended: true }
    }

    /// The completion between `ibv_start_poll` or `ibv_next_poll` and the next.
    pub(crate) fn current(&self) -> Cqe {
        self.current.get()
    }

    fn lock(&self) {
        self.lock.iter().for_each(RawMutex::lock);
    }

    fn unlock(&self) {
        self.lock.iter().for_each(RawMutex::unlock);
    }

    /// The public part of a CQ.
    pub(crate) fn table(
        &self,
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
    ) -> ibv_cq_ex {
        macro_rules! readers {
            ($($slot:ident: $function:path),* $(,)?) => {
                ibv_cq_ex {
                    context,
                    channel,
                    cq_context,
                    handle,
                    cqe,
                    mutex: libc::PTHREAD_MUTEX_INITIALIZER,
                    cond: libc::PTHREAD_COND_INITIALIZER,
                    comp_events_completed: 0,
                    async_events_completed: 0,
                    comp_mask: 0,
                    status: 0,
                    wr_id: 0,
                    $($slot: if self.extended { Some($function) } else { None },)*
                    read_cvlan: None,
                    read_flow_tag: None,
                    read_tm_info: None,
                }
            };
        }
        readers! {
            start_poll: start_poll,
            next_poll: next_poll,
            end_poll: end_poll,
            read_opcode: read_opcode,
            read_vendor_err: read_vendor_err,
            read_byte_len: read_byte_len,
            read_imm_data: read_imm_data,
            read_qp_num: read_qp_num,
            read_src_qp: read_src_qp,
            read_wc_flags: read_wc_flags,
            read_slid: read_slid,
            read_sl: read_sl,
            read_dlid_path_bits: read_dlid_path_bits,
            read_completion_ts: read_completion_ts,
            read_completion_wallclock_ns: read_completion_wallclock_ns,
        }
    }
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    guard::<*mut ibv_cq_ex>(call!(ibv_create_cq_ex, context, attr), move || {
        const WC_FLAGS: u64 = IBV_WC_STANDARD_FLAGS
            | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
            | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
        const MASK: u32 = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (ctx, attr) = (Ctx::of(context)?, unsafe { borrow(attr)? });
        if ctx.nic()?.has_short_numbers() && attr.wc_flags & !IBV_WC_STANDARD_FLAGS != 0 {
            // `efa_create_cq_ex` of rdma-core: no time stamps.
            return Err(Errno::OPNOTSUPP);
        }
        if attr.comp_mask & !MASK != 0 || attr.wc_flags & !WC_FLAGS != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
        // Overruns are never ignored: a completion that did not fit is lost, and that is reported.
        if flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
            Ctx::check_same(context, PdObject::of(attr.parent_domain)?.context())?;
        }
        let poll = Poll::extended(flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0);
        let depth = attr.cqe as usize;
        let cq = CqObject::create(context, depth, attr.cq_context, attr.channel, attr.comp_vector, poll)?;
        Ok(cq.cast())
    })
}

/// ENOENT if there is nothing; then `ibv_end_poll` must not follow.
pub(crate) unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or a CQ of ours that the application keeps; the struct is null or valid for the call.
        let (cq, attr) = unsafe { (CqObject::live(cq.cast())?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::invalid("ibv_poll_cq_attr.comp_mask is not 0"));
        }
        cq.poll.lock();
        take(cq).inspect_err(|_| cq.poll.unlock())
    })
}

pub(crate) unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or a CQ of ours that the application keeps for the call.
        take(unsafe { CqObject::live(cq.cast())? })
    })
}

pub(crate) unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    guard_data_path::<Silent>(move || {
        // SAFETY: null, or a CQ of ours that the application keeps for the call.
        unsafe { CqObject::live(cq.cast())? }.poll.unlock();
        Ok(Silent)
    })
}

fn take(cq: &CqObject) -> Result<(), Errno> {
    let mut found = None;
    cq.nic.poll_with(1, |cqe| found = Some(cqe));
    let cqe = found.ok_or(Errno::NOENT)?;
    if check::is_on() {
        check::data_path::polled(cq.ibv.get().addr(), &cqe);
    }
    cq.poll.current.set(cqe);
    let ibv = cq.ibv.get();
    // SAFETY: fields of `cq` that belong to the thread between start and end of polling. There is only one: the lock
    // ensures that, or the application, which has promised to use a single thread.
    unsafe {
        (*ibv).wr_id = cqe.wr_id;
        (*ibv).status = cqe.status as u32;
    }
    Ok(())
}

macro_rules! readers {
    ($($name:ident -> $type:ty, |$cq:ident, $cqe:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            guard_data_path::<Plain<$type>>(move || {
                // SAFETY: null, or a CQ of ours that the application keeps for the call.
                let object = unsafe { CqObject::live(cq.cast())? };
                let $cqe = &object.poll.current.get();
                let $cq = object;
                Ok(Plain($value))
            })
        })*
    };
}

readers! {
    read_opcode -> u32, |_cq, cqe| cqe.opcode as u32;
    read_vendor_err -> u32, |_cq, cqe| vendor_err(cqe);
    read_byte_len -> u32, |_cq, cqe| cqe.byte_len;
    read_imm_data -> u32, |_cq, cqe| argument(cqe);
    read_qp_num -> u32, |cq, cqe| number(cq, cqe.qpn);
    read_src_qp -> u32, |cq, cqe| number(cq, cqe.src_qpn);
    read_wc_flags -> u32, |_cq, cqe| flags(cqe);
    read_slid -> u32, |cq, cqe| if cq.short_numbers { slid(cqe).into() } else { 0 };
    read_sl -> u8, |_cq, cqe| service_level(cqe);
    read_dlid_path_bits -> u8, |_cq, _cqe| 0;
    read_completion_ts -> u64, |_cq, cqe| cqe.timestamp;
}

/// A queue pair's number as the device shows it.
fn number(cq: &CqObject, qpn: Qpn) -> u32 {
    if cq.short_numbers { short_number(qpn) } else { qpn.get() }
}

pub(crate) unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    guard_data_path::<Plain<u64>>(move || {
        // SAFETY: null, or a CQ of ours that the application keeps for the call.
        let object = unsafe { CqObject::live(cq.cast())? };
        let poll = &object.poll;
        if poll.wallclock.get() == 0 {
            let ctx = Ctx::of(object.context())?;
            let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
            poll.wallclock.set(day.wrapping_sub(ctx.nic()?.now().as_nanos()));
        }
        Ok(Plain(poll.current.get().timestamp.wrapping_add(poll.wallclock.get())))
    })
}
