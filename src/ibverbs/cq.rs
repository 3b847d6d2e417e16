//! Completion queues.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use softrnic_nic::verbs::{ContextId, Cq, Cqe, CqeExtra};
use softrnic_sync::channel::AckCounter;

use crate::abi::*;
use crate::c_view::Shown;
use crate::check;
use crate::context::Ctx;
use crate::cq_ex::Poll;
use crate::errno::Errno;
use crate::event::{ChannelObject, add_target, remove_target};
use crate::ffi_boundary::{Outcome, call, guard, guard_data_path};
use crate::object::{Kind, ObjectSlot, Seal, find, find_last, live, object, retire};
use crate::pd::Users;
use crate::registry::registry;

/// A completion queue as C sees it, and what it stands for. All are made as extended ones.
#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) ibv: Shown<ibv_cq_ex>,
    seal: Seal,
    of: ContextId,
    channel: *mut ibv_comp_channel,
    pub(crate) nic: Arc<Cq>,
    pub(crate) completion_acks: AckCounter,
    pub(crate) async_acks: Arc<AckCounter>,
    pub(crate) users: Users,
    /// The state of `ibv_start_poll` and related functions.
    pub(crate) poll: Poll,
    /// Numbers of queue pairs have 16 bits, as on EFA.
    pub(crate) short_numbers: bool,
    /// What `efadv.h` adds.
    pub(crate) efa: softrnic_efa::efadv_cq,
}

object!(CqObject, Cq, ibv_cq, handle);

impl CqObject {
    pub(crate) fn of<'a>(cq: *mut ibv_cq) -> Result<&'a CqObject, Errno> {
        find(cq)
    }

    /// On the data path.
    ///
    /// # Safety
    /// As for [`object::live`](crate::object::live).
    #[inline]
    pub(crate) unsafe fn live<'a>(cq: *mut ibv_cq) -> Result<&'a CqObject, Errno> {
        // SAFETY: null or a CQ of ours that stays, as the caller promises.
        unsafe { live(cq) }
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: a field of a live object, which is written only when it is made (`verbs.h`).
        unsafe { (*self.ibv.get()).context }
    }

    /// The application's context of the CQ, which identifies it in events.
    pub(crate) fn context_of_application(&self) -> *mut c_void {
        // SAFETY: a field of `self`, written when it is made and never again (`verbs.h`).
        unsafe { (*self.ibv.get()).cq_context }
    }

    /// Creates a CQ; `channel` may be null.
    pub(crate) fn create(
        context: *mut ibv_context,
        depth: usize,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        poll: Poll,
    ) -> Result<*mut ibv_cq, Errno> {
        let ctx = Ctx::of(context)?;
        // SAFETY: an open context, as was just found; the field is written when it is made and never again.
        if i64::from(comp_vector) >= i64::from(unsafe { (*context).num_comp_vectors }) {
            return Err(Errno::invalid(format_args!(
                "comp_vector {comp_vector} is not below num_comp_vectors"
            )));
        }
        let channel_object = match channel.is_null() {
            true => None,
            false => Some(ChannelObject::of(channel)?),
        };
        if let Some(channel) = channel_object {
            Ctx::check_same(context, channel.context())?;
        }
        // The CQ's events carry its address, which must be known before the CQ exists.
        let slot = ObjectSlot::<CqObject>::new()?;
        let token = slot.address().expose_provenance() as u64;
        let reports_to = channel_object.map(|channel| channel.nic.clone());
        let of = ctx.nic()?.id();
        let short_numbers = ctx.nic()?.has_short_numbers();
        let nic = Cq::new(ctx.nic()?.clone(), depth, reports_to, Some(token))?;
        let handle = registry().handle();
        let ibv = poll.table(context, channel, cq_context, handle, nic.depth() as c_int);
        let async_acks = Arc::new(AckCounter::new());
        let source = nic.source();
        if let Some(channel) = channel_object {
            channel.users().fetch_add(1, Ordering::AcqRel);
        }
        let cq = slot.publish(CqObject {
            ibv: Shown::new(ibv),
            seal: Seal::new(Kind::Cq),
            of,
            channel,
            nic,
            completion_acks: AckCounter::new(),
            async_acks: async_acks.clone(),
            users: Users::default(),
            poll,
            short_numbers,
            efa: crate::efadv::cq_table(),
        });
        add_target(of, source, cq.cast(), &async_acks);
        Ok(cq)
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    guard::<*mut ibv_cq>(call!(ibv_create_cq, context, cqe, cq_context, channel, comp_vector), move || {
        let depth =
            usize::try_from(cqe).map_err(|_| Errno::invalid(format_args!("cqe {cqe} is negative")))?;
        let vector = u32::try_from(comp_vector)
            .map_err(|_| Errno::invalid(format_args!("comp_vector {comp_vector} is negative")))?;
        CqObject::create(context, depth, cq_context, channel, vector, Poll::plain())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    guard::<()>(call!(ibv_resize_cq, cq, cqe), move || {
        let object = CqObject::of(cq)?;
        object.nic.resize(
            usize::try_from(cqe).map_err(|_| Errno::invalid(format_args!("cqe {cqe} is negative")))?,
        )?;
        // SAFETY: a field of what was just found, which nothing else writes once the CQ is made, and nothing reads
        // here.
        let shown = unsafe { AtomicI32::from_ptr(&raw mut (*object.ibv.get()).cqe) };
        shown.store(object.nic.depth() as c_int, Ordering::Relaxed);
        Ok(())
    })
}

/// Waits until all events of the CQ have been acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    guard::<()>(call!(ibv_destroy_cq, cq), move || {
        let object: &CqObject = find_last(cq)?;
        object.users.none()?;
        remove_target(object.of, object.nic.source());
        // Nothing reports to the CQ any longer, so no event can follow those that are dropped here.
        if let Some(channel) = object.nic.channel() {
            channel.forget(object.nic.token());
        }
        crate::report::destroys(object);
        if check::is_on() {
            check::waits::destroys(cq.addr(), &object.nic);
            check::unacknowledged("ibv_destroy_cq", cq.addr(), &object.completion_acks);
            check::unacknowledged("ibv_destroy_cq", cq.addr(), &object.async_acks);
        }
        object.completion_acks.wait();
        object.async_acks.wait();
        if !object.channel.is_null() {
            ChannelObject::of(object.channel)?.users().fetch_sub(1, Ordering::AcqRel);
        }
        // SAFETY: just found, and no event names it; the application, which destroys it, no longer uses it.
        drop(unsafe { retire::<CqObject>(cq) });
        Ok(())
    })
}

/// Number of completions; negative for an error.
pub(crate) struct Found(usize);

impl Outcome for Found {
    type C = c_int;
    fn into_c(result: Result<Found, Errno>) -> c_int {
        result.map_or_else(
            |errno| {
                errno.set();
                -errno.0
            },
            |Found(count)| count as c_int,
        )
    }
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    guard_data_path::<Found>(move || {
        // SAFETY: null, or a CQ of ours that the application keeps for the call.
        let cq = unsafe { CqObject::live(cq)? };
        let most = usize::try_from(most)
            .map_err(|_| Errno::invalid(format_args!("num_entries {most} is negative")))?;
        if wc.is_null() && most > 0 {
            return Err(Errno::invalid("wc is null"));
        }
        let mut next = wc;
        Ok(Found(cq.nic.poll_with(most, |cqe| {
            // SAFETY: the application has room for `most` completions, and no more are taken.
            unsafe {
                next.write(work_completion(&cqe));
                if cq.short_numbers {
                    crate::efadv::shorten(&mut *next, &cqe);
                }
                next = next.add(1);
            }
        })))
    })
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or a CQ of ours that the application keeps for the call.
        unsafe { CqObject::live(cq)? }.nic.arm(solicited_only != 0);
        Ok(())
    })
}

/// Event moderation is not supported, as `ibv_query_device_ex` reports.
pub(crate) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, _attr: *mut ibv_modify_cq_attr) -> c_int {
    guard::<()>(call!(ibv_modify_cq), move || Err(Errno::OPNOTSUPP))
}

/// A completion in C's form.
#[inline]
fn work_completion(cqe: &Cqe) -> ibv_wc {
    ibv_wc {
        wr_id: cqe.wr_id,
        status: cqe.status as u32,
        opcode: cqe.opcode as u32,
        vendor_err: vendor_err(cqe),
        byte_len: cqe.byte_len,
        arg: wc_arg { imm_data: argument(cqe) },
        qp_num: cqe.qpn.get(),
        src_qp: cqe.src_qpn.get(),
        wc_flags: flags(cqe),
        pkey_index: 0,
        slid: 0,
        sl: service_level(cqe),
        dlid_path_bits: 0,
    }
}

/// Immediate data as it was on the wire, or the invalidated key.
#[inline]
pub(crate) fn argument(cqe: &Cqe) -> u32 {
    match cqe.extra {
        CqeExtra::None | CqeExtra::Failed(_) => 0,
        CqeExtra::Imm(imm) => u32::from_ne_bytes(imm.0),
        CqeExtra::Invalidated(rkey) => rkey.0,
    }
}

/// Why it failed, by the table in `docs/troubleshooting.md`.
#[inline]
pub(crate) fn vendor_err(cqe: &Cqe) -> u32 {
    match cqe.extra {
        CqeExtra::Failed(code) => code.get().into(),
        _ => 0,
    }
}

#[inline]
pub(crate) fn flags(cqe: &Cqe) -> u32 {
    let argument = match cqe.extra {
        CqeExtra::None | CqeExtra::Failed(_) => 0,
        CqeExtra::Imm(_) => IBV_WC_WITH_IMM,
        CqeExtra::Invalidated(_) => IBV_WC_WITH_INV,
    };
    argument | if cqe.grh { IBV_WC_GRH } else { 0 }
}

/// RoCE has no service levels. As in mlx5, and as UCX relies on, the field says which kind of network header a datagram
/// came with (IBTA A17.4.5.1 requires that this be reported): bit 3 for UDP below it, then 1 for IPv6 or 2 for IPv4.
#[inline]
pub(crate) fn service_level(cqe: &Cqe) -> u8 {
    match (cqe.grh, cqe.ipv4) {
        (false, _) => 0,
        (true, true) => 8 | 2,
        (true, false) => 8 | 1,
    }
}

// `ibv_cq_ex` begins like `ibv_cq`.
const _: () = assert!(std::mem::offset_of!(ibv_cq_ex, comp_mask) == size_of::<ibv_cq>());
