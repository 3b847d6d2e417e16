//! Posting work requests. Nothing here allocates for requests of up to two elements or 64 inline bytes.

use std::ffi::c_int;

use softrnic_memory::copy_from_app;
use softrnic_nic::verbs::InlineBytes;
use softrnic_nic::verbs::{
    Imm, LocalData, Qkey, QpType, Qpn, RecvRequest, Rkey, SendRequest, Srqn, long_number,
};
use softrnic_transport::{LocalOp, RemoteBuffer, SendOp, SendTail, SrdVerb};

use crate::abi::*;
use crate::advise_mr::sge;
use crate::ah::AhObject;
use crate::errno::Errno;
use crate::ffi_boundary::guard_data_path;
use crate::mw::{bind_spec, binding, show_key};
use crate::object::live;
use crate::qp::QpObject;
use crate::reserve;
use crate::srq::SrqObject;
use crate::unaligned::Unaligned;

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or a QP of ours that the application keeps for the call.
        let qp = unsafe { QpObject::live(qp)? };
        qp.nic.post_batch(|batch| {
            let mut next = wr;
            // SAFETY: the application's list, valid for the call and ended by null.
            while let Some(wr) = unsafe { next.as_ref() } {
                // SAFETY: a request of the application's; what it points to is valid for the call.
                let posted = batch.push_with(blank_send, |to| unsafe { fill_send(to, qp, wr) });
                if let Err(errno) = posted {
                    // SAFETY: null, or the application has room for a pointer there.
                    unsafe { blame("ibv_post_send", wr.wr_id, bad, next) };
                    return Err(errno);
                }
                if wr.opcode == IBV_WR_BIND_MW && binds(qp) {
                    // SAFETY: the request has just been accepted, with the caller's window.
                    unsafe { show_key(wr.op.bind_mw.mw, wr.op.bind_mw.rkey)? };
                }
                next = wr.next;
            }
            Ok(())
        })
    })
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or a QP of ours that the application keeps for the call.
        let qp = unsafe { QpObject::live(qp)? };
        let most = qp.nic.options().max_recv_sge;
        // SAFETY: the application's list, valid for the call and ended by null, and its pointer, null or valid.
        unsafe {
            post_receives("ibv_post_recv", wr, bad, |wr| {
                qp.nic.post_recv_with(blank_recv, |to| fill_recv(to, wr, most))
            })
        }
    })
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or an SRQ of ours that the application keeps for the call.
        let srq = unsafe { live::<SrqObject>(srq)? };
        // SAFETY: the application's list, valid for the call and ended by null, and its pointer, null or valid.
        unsafe {
            post_receives("ibv_post_srq_recv", wr, bad, |wr| {
                srq.nic.post_recv_with(blank_recv, |to| fill_recv(to, wr, srq.max_sge))
            })
        }
    })
}

/// # Safety
/// `first` begins a list that is ended by null; `bad` is as [`blame`] requires.
#[inline]
unsafe fn post_receives(
    verb: &str,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ibv_recv_wr) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut next = first;
    // SAFETY: null, or a request of the list, as the caller promises.
    while let Some(wr) = unsafe { next.as_ref() } {
        if let Err(errno) = post(wr) {
            // SAFETY: as the caller promises.
            unsafe { blame(verb, wr.wr_id, bad, next) };
            return Err(errno);
        }
        next = wr.next;
    }
    Ok(())
}

/// Says and stores which request was refused. Why stands above it in the log.
///
/// # Safety
/// `bad` is null or has room for a pointer.
#[cold]
unsafe fn blame<T>(verb: &str, wr_id: u64, bad: *mut *mut T, wr: *mut T) {
    tracing::debug!(wr_id, "{verb}: the work request is refused");
    if !bad.is_null() {
        // SAFETY: not null, so there is room for a pointer, as the caller promises.
        unsafe { *bad = wr };
    }
}

/// A receive that [`fill_recv`] completes.
#[inline(always)]
pub(crate) fn blank_recv() -> RecvRequest {
    RecvRequest { wr_id: 0, data: LocalData::empty(), length: 0 }
}

/// Makes a receive what one of C says.
///
/// # Safety
/// `num_sge` elements can be read at `sg_list`, if there are no more than `most`.
#[inline]
pub(crate) unsafe fn fill_recv(
    request: &mut RecvRequest,
    wr: &ibv_recv_wr,
    most: usize,
) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    let sges = unsafe { elements(wr.sg_list, wr.num_sge, most)? };
    request.wr_id = wr.wr_id;
    request.length = total(sges)?;
    gather(sges, &mut request.data)
}

/// A request that [`fill_send`] completes.
#[inline(always)]
pub(crate) fn blank_send() -> SendRequest {
    SendRequest::new(SendOp::Send(SendTail::Plain), LocalData::empty())
}

/// Makes a request what one of C says.
///
/// # Safety
/// The union members that go with the opcode, the flags and the type of QP are set. The list of elements can be read,
/// and of an inline request the memory that they name; an address handle, window or region is as [`live`] requires.
#[inline]
pub(crate) unsafe fn fill_send(
    request: &mut SendRequest,
    qp: &QpObject,
    wr: &ibv_send_wr,
) -> Result<(), Errno> {
    // SAFETY: the opcode, the flags and the type of QP determine what is set and can be read, as the caller promises.
    // Union members that are not set hold other integers, or the bits of a pointer, which are integers too.
    unsafe {
        let sges = elements(wr.sg_list, wr.num_sge, qp.nic.options().max_send_sge)?;
        request.op = operation(qp, wr)?;
        let sinks =
            matches!(request.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        if sinks && wr.send_flags & IBV_SEND_INLINE != 0 {
            return Err(Errno::invalid("IBV_SEND_INLINE is set for a READ or an atomic"));
        }
        if let SendOp::Local(op) = request.op {
            if op == LocalOp::BindWindow && binds(qp) {
                let bind = wr.op.bind_mw;
                request.data = binding(bind_spec(bind.mw, bind.rkey, &bind.bind_info)?)?;
            }
        } else if wr.send_flags & IBV_SEND_INLINE != 0 {
            let bytes = copied(sges, qp.nic.options().max_inline)?;
            request.length = bytes.len() as u32;
            request.data = LocalData::Inline(bytes);
        } else {
            request.length = total(sges)?;
            gather(sges, &mut request.data)?;
        }
        if qp.nic.service() == QpType::XrcInitiator {
            request.srqn = Some(Srqn::new(wr.qp_type.xrc.remote_srqn));
        }
        frame(request, qp, wr.wr_id, wr.send_flags)
    }
}

/// Whether a QP can bind windows at all. On others the request fails when it is its turn, whatever the window.
fn binds(qp: &QpObject) -> bool {
    qp.nic.service() != QpType::Ud
}

/// Gives a request its number, and the effects of its flags.
#[inline]
pub(crate) fn frame(request: &mut SendRequest, qp: &QpObject, wr_id: u64, flags: u32) -> Result<(), Errno> {
    const KNOWN: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    if flags & !KNOWN != 0 {
        return Err(Errno::invalid(format_args!(
            "send_flags are {flags:#x}, of which {:#x} are unknown",
            flags & !KNOWN
        )));
    }
    if qp.nic.service() == QpType::Srd
        && (flags & !(IBV_SEND_SIGNALED | IBV_SEND_INLINE) != 0 || !qp.signals(flags))
    {
        // `efa_post_send_validate_wr` of rdma-core.
        return Err(Errno::invalid(format_args!(
            "send_flags {flags:#x}: requests of SRD are signaled, and know no others"
        )));
    }
    request.wr_id = wr_id;
    request.signaled = qp.signals(flags);
    request.solicited = flags & IBV_SEND_SOLICITED != 0;
    request.fence = flags & IBV_SEND_FENCE != 0;
    Ok(())
}

/// # Safety
/// As for [`fill_send`].
#[inline]
unsafe fn operation(qp: &QpObject, wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    // SAFETY: the opcode and the type of QP say which members of the unions are set, as the caller promises; the others
    // are not read.
    unsafe {
        let imm = || immediate(wr.arg.imm_data);
        let rdma = || remote(wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
        let atomic = || remote(wr.wr.atomic.remote_addr, wr.wr.atomic.rkey);
        if qp.nic.service() == QpType::Srd {
            let verb = match wr.opcode {
                IBV_WR_SEND => SrdVerb::Send(None),
                IBV_WR_SEND_WITH_IMM => SrdVerb::Send(Some(imm())),
                opcode => {
                    return Err(Errno::invalid(format_args!(
                        "opcode {opcode}: ibv_post_send has SENDs alone on SRD"
                    )));
                }
            };
            return addressed(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey, verb);
        }
        if qp.nic.service() == QpType::Ud {
            let sends = match wr.opcode {
                IBV_WR_SEND => Some(None),
                IBV_WR_SEND_WITH_IMM => Some(Some(imm())),
                // Fails when it is its turn.
                _ => None,
            };
            if let Some(imm) = sends {
                return datagram(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey, imm);
            }
        }
        Ok(match wr.opcode {
            IBV_WR_RDMA_WRITE => SendOp::Write { remote: rdma(), imm: None },
            IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write { remote: rdma(), imm: Some(imm()) },
            IBV_WR_SEND => SendOp::Send(SendTail::Plain),
            IBV_WR_SEND_WITH_IMM => SendOp::Send(SendTail::Imm(imm())),
            IBV_WR_SEND_WITH_INV => SendOp::Send(SendTail::Inv(Rkey(wr.arg.invalidate_rkey))),
            IBV_WR_RDMA_READ => SendOp::Read { remote: rdma() },
            IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
                remote: atomic(),
                compare: wr.wr.atomic.compare_add,
                swap: wr.wr.atomic.swap,
            },
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                SendOp::FetchAdd { remote: atomic(), add: wr.wr.atomic.compare_add }
            }
            IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite { remote: rdma() },
            IBV_WR_LOCAL_INV => SendOp::Local(LocalOp::Invalidate(Rkey(wr.arg.invalidate_rkey))),
            IBV_WR_BIND_MW => SendOp::Local(LocalOp::BindWindow),
            opcode => return Err(Errno::invalid(format_args!("opcode is {opcode}, which is not supported"))),
        })
    }
}

/// A datagram through an address handle.
///
/// # Safety
/// As for [`live`].
#[inline]
pub(crate) unsafe fn datagram(
    qp: &QpObject,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
    imm: Option<Imm>,
) -> Result<SendOp, Errno> {
    // SAFETY: null or an address handle of ours that stays, as the caller promises.
    let path = unsafe { live::<AhObject>(ah)? }.nic.path(qp.nic.qpn());
    Ok(SendOp::Datagram { path, dest_qpn: number(qp, remote_qpn), qkey: Qkey(remote_qkey), imm })
}

/// A message of SRD through an address handle.
///
/// # Safety
/// As for [`live`].
pub(crate) unsafe fn addressed(
    qp: &QpObject,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
    verb: SrdVerb,
) -> Result<SendOp, Errno> {
    // SAFETY: null or an address handle of ours that stays, as the caller promises.
    let handle = unsafe { live::<AhObject>(ah)? }.nic.ahn();
    let handle = handle.ok_or_else(|| Errno::invalid("the address handle is of a device without SRD"))?;
    Ok(SendOp::Srd { handle, dest_qpn: number(qp, remote_qpn), qkey: Qkey(remote_qkey), verb })
}

/// Makes a request begun by `ibv_wr_*` a message of SRD.
///
/// # Safety
/// As for [`live`].
pub(crate) unsafe fn address_message(
    request: &mut SendRequest,
    qp: &QpObject,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) -> Result<(), Errno> {
    let verb = match request.op {
        SendOp::Send(SendTail::Plain) => SrdVerb::Send(None),
        SendOp::Send(SendTail::Imm(imm)) => SrdVerb::Send(Some(imm)),
        SendOp::Write { remote, imm } => SrdVerb::Write(remote, imm),
        SendOp::Read { remote } => SrdVerb::Read(remote),
        _ => return Err(Errno::invalid("SRD has no such requests")),
    };
    // SAFETY: as the caller promises.
    request.op = unsafe { addressed(qp, ah, remote_qpn, remote_qkey, verb)? };
    Ok(())
}

/// The queue pair that an application means by a number.
fn number(qp: &QpObject, shown: u32) -> Qpn {
    if qp.short_numbers { long_number(shown) } else { Qpn::new(shown) }
}

#[inline]
pub(crate) fn remote(va: u64, rkey: u32) -> RemoteBuffer {
    RemoteBuffer { va, rkey: Rkey(rkey) }
}

/// Immediate data, whose bytes C has in network order.
#[inline]
pub(crate) fn immediate(imm_data: u32) -> Imm {
    Imm(imm_data.to_ne_bytes())
}

/// The elements of a work request. Their number is checked first: at most `most` are ever read.
///
/// # Safety
/// `count` elements from `list` on can be read for `'a`, if there are no more than `most`.
#[inline]
unsafe fn elements<'a>(
    list: *const ibv_sge,
    count: c_int,
    most: usize,
) -> Result<&'a [Unaligned<ibv_sge>], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::invalid(format_args!("num_sge is {count}")))?;
    // SAFETY: as the caller promises.
    unsafe { element_list(list, count, most) }
}

/// Like [`elements`], for an unsigned count.
///
/// # Safety
/// As for [`elements`].
#[inline]
pub(crate) unsafe fn element_list<'a, T>(
    list: *const T,
    count: usize,
    most: usize,
) -> Result<&'a [Unaligned<T>], Errno> {
    match count {
        0 => Ok(&[]),
        _ if count > most => Err(Errno::invalid(format_args!("num_sge is {count}, of at most {most}"))),
        _ if list.is_null() => Err(Errno::invalid(format_args!("sg_list is null, num_sge {count}"))),
        // SAFETY: not null and no more than `most`, so that they can be read, as the caller promises, wherever they are.
        _ => Ok(unsafe { std::slice::from_raw_parts(list.cast(), count) }),
    }
}

/// Elements for the NIC.
///
/// # Errors
/// ENOMEM.
#[inline]
pub(crate) fn gather(sges: &[Unaligned<ibv_sge>], data: &mut LocalData) -> Result<(), Errno> {
    *data = LocalData::empty();
    let LocalData::Sges(list) = data else { return Ok(()) };
    if let [only] = sges {
        list.push(sge(only.get()));
        return Ok(());
    }
    if sges.len() > list.inline_size() {
        reserve::check_blocks()?;
        list.try_reserve_exact(sges.len()).map_err(|_| Errno::NOMEM)?;
    }
    list.extend(sges.iter().map(|element| sge(element.get())));
    Ok(())
}

/// Total number of bytes of the elements.
#[inline]
pub(crate) fn total(sges: &[Unaligned<ibv_sge>]) -> Result<u32, Errno> {
    sges.iter()
        .try_fold(0u32, |sum, element| sum.checked_add(element.get().length))
        .ok_or_else(|| Errno::invalid("the elements add up to 4 GiB or more"))
}

/// The bytes of inline elements, which have no keys.
///
/// # Safety
/// The memory that the elements name can be read, if it is no more than `most` bytes.
#[inline]
unsafe fn copied(sges: &[Unaligned<ibv_sge>], most: usize) -> Result<InlineBytes, Errno> {
    let length = total(sges)? as usize;
    if length > most {
        return Err(Errno::invalid(format_args!(
            "{length} bytes are inline, of at most {most} (max_inline_data)"
        )));
    }
    let mut bytes = InlineBytes::new();
    resize(&mut bytes, length)?;
    let mut at = 0;
    for element in sges {
        let sge = element.get();
        let to = at + sge.length as usize;
        // SAFETY: an element's memory is readable for its length, as the caller promises, and apart from `bytes`, which
        // is ours. It may change while it is copied.
        unsafe { copy_from_app(sge.addr as usize, &mut bytes[at..to]) };
        at = to;
    }
    Ok(bytes)
}

/// Inline bytes from one address.
///
/// # Safety
/// `length` bytes from `addr` on can be read, if there is room for them.
#[inline]
pub(crate) unsafe fn append(
    bytes: &mut InlineBytes,
    addr: usize,
    length: usize,
    most: usize,
) -> Result<(), Errno> {
    let at = bytes.len();
    let to = at.checked_add(length).filter(|to| *to <= most).ok_or_else(|| {
        Errno::invalid(format_args!("inline data: {length} B more than {at} B exceed max_inline_data {most}"))
    })?;
    resize(bytes, to)?;
    // SAFETY: `length` bytes are readable at `addr`, as the caller promises, and apart from `bytes`, which is ours.
    // They may change while they are copied.
    unsafe { copy_from_app(addr, &mut bytes[at..to]) };
    Ok(())
}

#[inline]
fn resize(bytes: &mut InlineBytes, length: usize) -> Result<(), Errno> {
    if length > bytes.capacity() {
        reserve::check_blocks()?;
        bytes.try_reserve(length - bytes.len()).map_err(|_| Errno::NOMEM)?;
    }
    bytes.resize(length, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_may_be_anywhere() {
        #[repr(C, packed)]
        struct Packed {
            before: u8,
            list: [ibv_sge; 3],
        }
        #[repr(align(8))]
        struct Aligned(Packed);
        let element = |at: u32| ibv_sge { addr: at.into(), length: at, lkey: at + 1 };
        let packed = Aligned(Packed { before: 0, list: [element(10), element(20), element(30)] });
        let list = (&raw const packed.0.list).cast::<ibv_sge>();
        assert!(!list.is_aligned() && packed.0.before == 0);
        for count in 1..=3 {
            // SAFETY: there are three.
            let sges = unsafe { elements(list, count, 3) }.expect("three elements");
            let mut data = LocalData::empty();
            gather(sges, &mut data).expect("memory");
            let LocalData::Sges(gathered) = data else { panic!("the data are inline") };
            let expected: Vec<_> = (1..=count as u32).map(|i| sge(element(10 * i))).collect();
            assert_eq!(gathered[..], expected[..]);
            assert_eq!(total(sges).expect("a sum"), expected.iter().map(|sge| sge.length).sum::<u32>());
        }
    }
}
