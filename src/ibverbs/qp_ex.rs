//! Extended queue pairs: creating them, and building work requests call by call (`ibv_wr_*`).

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use softrnic_nic::verbs::InlineBytes;
use softrnic_nic::verbs::{Features, LocalData, QpType, Rkey, SendOps, SendRequest, Srqn};
use softrnic_transport::{LocalOp, SendOp, SendTail};
use softrnic_wire::{Feth, Placement, Selectivity};

use crate::abi::*;
use crate::check;
use crate::errno::Errno;
use crate::ffi_boundary::{Silent, borrow, borrow_mut, call, guard, guard_data_path};
use crate::mw::{bind_spec, binding, show_key};
use crate::pd::PdObject;
use crate::post::{address_message, append, datagram, element_list, frame, gather, immediate, remote, total};
use crate::qp::{QpObject, Request, create, service};
use crate::raw_mutex::RawMutex;
use crate::reserve;
use crate::unaligned::Unaligned;

/// Work requests between `ibv_wr_start` and `ibv_wr_complete`.
pub(crate) struct Builder {
    /// Held in between, so that threads that share the QP take turns.
    lock: RawMutex,
    batch: UnsafeCell<Batch>,
}

#[derive(Default)]
struct Batch {
    /// Its memory is reused from one batch to the next.
    requests: Vec<SendRequest>,
    /// The windows that they bind, each with the requested key.
    windows: Vec<(*mut ibv_mw, u32)>,
    /// The first error.
    error: Option<Errno>,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder { lock: RawMutex::new(), batch: UnsafeCell::new(Batch::default()) }
    }
}

const RDMA: u64 = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;

/// The operations of each type of QP, out of `IBV_QP_EX_WITH_*`.
pub(crate) fn operations(qp_type: QpType) -> u64 {
    const DATAGRAM: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const WRITE: u64 = RDMA & !IBV_QP_EX_WITH_RDMA_READ;
    const UNRELIABLE: u64 = DATAGRAM | WRITE | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    const RELIABLE: u64 = UNRELIABLE
        | RDMA
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_FLUSH
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    match qp_type {
        QpType::Rc | QpType::XrcInitiator => RELIABLE,
        QpType::Uc => UNRELIABLE,
        QpType::Ud => DATAGRAM,
        QpType::XrcTarget => 0,
        QpType::Srd => DATAGRAM | RDMA,
    }
}

/// The operations that a device lacks.
fn lacking(features: &Features) -> u64 {
    let mut lacking = 0;
    if !features.atomics {
        lacking |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    if !features.persistence {
        lacking |= IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH;
    }
    lacking
}

/// The kinds of requests that a QP is made for.
pub(crate) fn kinds(send_ops: u64) -> SendOps {
    const ATOMICS: u64 = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    const WINDOWS: u64 = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
    SendOps { rdma: send_ops & RDMA != 0, atomics: send_ops & ATOMICS != 0, windows: send_ops & WINDOWS != 0 }
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    guard::<*mut ibv_qp>(call!(ibv_create_qp_ex, context, init), move || {
        const KNOWN: u32 = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_XRCD
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let init = unsafe { borrow_mut(init)? };
        let mask = init.comp_mask;
        let flagged = mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0;
        if mask & !KNOWN != 0 || flagged {
            return Err(Errno::OPNOTSUPP);
        }
        let service = service(init.qp_type)?;
        let send_ops = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0).then_some(init.send_ops_flags);
        let model = if init.pd.is_null() { None } else { PdObject::of(init.pd)?.nic.context().model() };
        let supported = operations(service) & !model.map_or(0, |model| lacking(&model.features));
        if send_ops.unwrap_or(0) & !supported != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let needed = if service == QpType::XrcTarget { IBV_QP_INIT_ATTR_XRCD } else { IBV_QP_INIT_ATTR_PD };
        if mask & needed == 0 {
            return Err(Errno::invalid(format_args!(
                "comp_mask {mask:#x} lacks {needed:#x}, the PD or XRC domain"
            )));
        }
        let request = Request { pd: init.pd, xrcd: init.xrcd, send_ops, srd: false };
        // SAFETY: the extended struct begins with the fields of the plain one (`testdata/layout.txt`), and `init` is
        // not used while the plain one is borrowed.
        create(context, unsafe { &mut *(&raw mut *init).cast::<ibv_qp_init_attr>() }, &request)
    })
}

/// Null unless the QP was created for `ibv_wr_*`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    guard::<*mut ibv_qp_ex>(call!(ibv_qp_to_qp_ex, qp), move || {
        let object = QpObject::of(qp)?;
        object
            .builder
            .as_ref()
            .ok_or_else(|| Errno::invalid("the QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS"))?;
        Ok(object.ibv.get())
    })
}

/// The public part of a QP. Operations that were not requested are null.
pub(crate) fn table(qp_base: ibv_qp, send_ops: Option<u64>) -> ibv_qp_ex {
    macro_rules! table {
        (operations { $($slot:ident: $function:path, $flag:expr;)* } always { $($setter:ident: $set:path,)* }) => {
            ibv_qp_ex {
                qp_base,
                comp_mask: 0,
                wr_id: 0,
                wr_flags: 0,
                $($slot: (send_ops.unwrap_or(0) & $flag != 0).then_some($function as _),)*
                $($setter: send_ops.map(|_| $set as _),)*
                wr_send_tso: None,
            }
        };
    }
    table! {
        operations {
            wr_atomic_cmp_swp: wr_atomic_cmp_swp, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
            wr_atomic_fetch_add: wr_atomic_fetch_add, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
            wr_bind_mw: wr_bind_mw, IBV_QP_EX_WITH_BIND_MW;
            wr_local_inv: wr_local_inv, IBV_QP_EX_WITH_LOCAL_INV;
            wr_rdma_read: wr_rdma_read, IBV_QP_EX_WITH_RDMA_READ;
            wr_rdma_write: wr_rdma_write, IBV_QP_EX_WITH_RDMA_WRITE;
            wr_rdma_write_imm: wr_rdma_write_imm, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
            wr_send: wr_send, IBV_QP_EX_WITH_SEND;
            wr_send_imm: wr_send_imm, IBV_QP_EX_WITH_SEND_WITH_IMM;
            wr_send_inv: wr_send_inv, IBV_QP_EX_WITH_SEND_WITH_INV;
            wr_atomic_write: wr_atomic_write, IBV_QP_EX_WITH_ATOMIC_WRITE;
            wr_flush: wr_flush, IBV_QP_EX_WITH_FLUSH;
        }
        always {
            wr_set_ud_addr: wr_set_ud_addr,
            wr_set_xrc_srqn: wr_set_xrc_srqn,
            wr_set_inline_data: wr_set_inline_data,
            wr_set_inline_data_list: wr_set_inline_data_list,
            wr_set_sge: wr_set_sge,
            wr_set_sge_list: wr_set_sge_list,
            wr_start: wr_start,
            wr_complete: wr_complete,
            wr_abort: wr_abort,
        }
    }
}

/// Ends a batch, whatever its result.
struct Unlocks<'a>(&'a QpObject);

impl Drop for Unlocks<'_> {
    fn drop(&mut self) {
        self.0.builder.iter().for_each(|builder| builder.lock.unlock());
    }
}

/// The QP and its batch, between start and completion.
///
/// # Safety
/// The pointer is as for [`QpObject::live`], and this thread has a batch on the QP. It does not call this again while
/// it uses the result.
unsafe fn open<'a>(qp: *mut ibv_qp_ex) -> Result<(&'a QpObject, &'a mut Batch), Errno> {
    // SAFETY: as the caller promises.
    let object = unsafe { QpObject::live(qp.cast())? };
    let builder = object
        .builder
        .as_ref()
        .ok_or_else(|| Errno::invalid("the QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS"))?;
    // SAFETY: one thread at a time has a batch (`Builder::lock`), and has one reference to it, as the caller promises.
    Ok((object, unsafe { &mut *builder.batch.get() }))
}

/// Starts a request; errors are kept for `ibv_wr_complete`.
///
/// # Safety
/// As for [`open`].
unsafe fn begin(
    qp: *mut ibv_qp_ex,
    op: impl FnOnce(&QpObject) -> Result<(SendOp, LocalData, u32), Errno>,
) -> Result<Silent, Errno> {
    // SAFETY: as the caller promises; `op` and `change` are made in this file, and do not open the batch.
    let (object, batch) = unsafe { open(qp)? };
    // SAFETY: fields of the QP that was just found to live; the application sets them, between the calls of a batch.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let made = op(object).and_then(|(op, data, length)| {
        let mut request = SendRequest { length, ..SendRequest::new(op, data) };
        frame(&mut request, object, wr_id, flags).map(|()| request)
    });
    match made {
        Ok(request) => batch.push(request),
        Err(errno) => batch.refuse(errno),
    }
    Ok(Silent)
}

/// Changes the request started last.
///
/// # Safety
/// As for [`open`].
unsafe fn amend(
    qp: *mut ibv_qp_ex,
    change: impl FnOnce(&QpObject, &mut SendRequest) -> Result<(), Errno>,
) -> Result<Silent, Errno> {
    // SAFETY: as the caller promises; `op` and `change` are made in this file, and do not open the batch.
    let (object, batch) = unsafe { open(qp)? };
    let changed = match batch.requests.last_mut() {
        Some(request) => change(object, request),
        None => Err(Errno::invalid("no work request has been begun: call ibv_wr_send or the like first")),
    };
    if let Err(errno) = changed {
        batch.refuse(errno);
    }
    Ok(Silent)
}

impl Batch {
    fn push(&mut self, request: SendRequest) {
        let requests = &mut self.requests;
        if requests.len() == requests.capacity()
            && let Err(errno) = reserve::check_blocks().and_then(|()| Ok(requests.try_reserve(1)?))
        {
            return self.refuse(errno);
        }
        requests.push(request);
    }

    fn refuse(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.windows.clear();
        self.error = None;
    }
}

/// A request, without bytes so far.
type Begun = Result<(SendOp, LocalData, u32), Errno>;

fn bare(op: SendOp) -> Begun {
    Ok((op, LocalData::empty(), 0))
}

pub(crate) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    guard_data_path::<Silent>(move || {
        // SAFETY: null, or a QP of ours that the application keeps for the call.
        let object = unsafe { QpObject::live(qp.cast())? };
        object
            .builder
            .as_ref()
            .ok_or_else(|| Errno::invalid("the QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS"))?
            .lock
            .lock();
        // SAFETY: a QP of ours that the application keeps; this thread holds the lock, so the batch is its own.
        unsafe { open(qp)? }.1.clear();
        Ok(Silent)
    })
}

/// Posts all of the batch, or nothing.
pub(crate) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        let (object, batch) = unsafe { open(qp)? };
        let _unlocks = Unlocks(object);
        let result = match check::is_on() {
            true => {
                let recorded = check::data_path::building(object, &batch.requests);
                complete(object, batch)
                    .inspect_err(|errno| check::data_path::not_built(object, recorded, *errno))
            }
            false => complete(object, batch),
        };
        batch.clear();
        result
    })
}

pub(crate) unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        let (object, batch) = unsafe { open(qp)? };
        let _unlocks = Unlocks(object);
        batch.clear();
        Ok(Silent)
    })
}

pub(crate) unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Send(SendTail::Plain))) }
    })
}

pub(crate) unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Send(SendTail::Imm(immediate(imm))))) }
    })
}

pub(crate) unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Send(SendTail::Inv(Rkey(rkey))))) }
    })
}

pub(crate) unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, va: u64) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Write { remote: remote(va, rkey), imm: None })) }
    })
}

pub(crate) unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, va: u64, imm: u32) {
    guard_data_path::<Silent>(move || {
        let imm = Some(immediate(imm));
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Write { remote: remote(va, rkey), imm })) }
    })
}

pub(crate) unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, va: u64) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Read { remote: remote(va, rkey) })) }
    })
}

pub(crate) unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    compare: u64,
    swap: u64,
) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::CompareSwap { remote: remote(va, rkey), compare, swap })) }
    })
}

pub(crate) unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, va: u64, add: u64) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::FetchAdd { remote: remote(va, rkey), add })) }
    })
}

/// The eight bytes are read now.
pub(crate) unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    value: *const c_void,
) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps, its batch this thread's; eight bytes are readable for the
        // call.
        unsafe {
            begin(qp, |_| {
                let mut bytes = InlineBytes::new();
                if value.is_null() {
                    return Err(Errno::invalid("the value of an atomic write is null"));
                }
                append(&mut bytes, value.expose_provenance(), 8, 8)?;
                Ok((SendOp::AtomicWrite { remote: remote(va, rkey) }, LocalData::Inline(bytes), 8))
            })
        }
    })
}

pub(crate) unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    length: usize,
    kind: u8,
    level: u8,
) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe {
            begin(qp, |_| {
                let selectivity = match u32::from(level) {
                    IBV_FLUSH_RANGE => Selectivity::Range,
                    IBV_FLUSH_MR => Selectivity::Region,
                    _ => return Err(Errno::invalid(format_args!("level {level} is no level of a FLUSH"))),
                };
                let placement = Placement::from_bits(kind);
                if u32::from(kind) & !(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT) != 0 || kind == 0 {
                    return Err(Errno::invalid(format_args!("type {kind:#x} is no placement of a FLUSH")));
                }
                let length = u32::try_from(length).map_err(|_| {
                    Errno::invalid(format_args!("a FLUSH of {length} B, and 2^32 are too many"))
                })?;
                let feth = Feth { placement, selectivity };
                bare(SendOp::Flush { remote: remote(va, rkey), length, feth })
            })
        }
    })
}

pub(crate) unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { begin(qp, |_| bare(SendOp::Local(LocalOp::Invalidate(Rkey(rkey))))) }
    })
}

pub(crate) unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP and a window of ours that the application keeps, the batch this thread's; the struct is valid
        // for the call.
        unsafe {
            let begun = begin(qp, |_| {
                let spec = bind_spec(mw, rkey, borrow(info)?)?;
                Ok((SendOp::Local(LocalOp::BindWindow), binding(spec)?, 0))
            });
            open(qp)?.1.windows.push((mw, rkey));
            begun
        }
    })
}

pub(crate) unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP and an address handle of ours that the application keeps; the batch is this thread's.
        unsafe {
            amend(qp, |object, request| {
                if object.nic.service() == QpType::Srd {
                    return address_message(request, object, ah, qpn, qkey);
                }
                let imm = match request.op {
                    _ if object.nic.service() != QpType::Ud => {
                        return Err(Errno::invalid("an address handle is for UD alone"));
                    }
                    SendOp::Send(SendTail::Plain) => None,
                    SendOp::Send(SendTail::Imm(imm)) => Some(imm),
                    _ => return Err(Errno::invalid("UD has SENDs alone")),
                };
                request.op = datagram(object, ah, qpn, qkey, imm)?;
                Ok(())
            })
        }
    })
}

pub(crate) unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe {
            amend(qp, |_, request| {
                request.srqn = Some(Srqn::new(srqn));
                Ok(())
            })
        }
    })
}

pub(crate) unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    guard_data_path::<Silent>(move || {
        let one = ibv_data_buf { addr, length };
        // SAFETY: a QP of ours that the application keeps, its batch this thread's; the memory is readable for the
        // call.
        unsafe { set_inline(qp, &[Unaligned::new(one)]) }
    })
}

pub(crate) unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps, its batch this thread's; the list is valid for the call.
        unsafe {
            match element_list(list, count, MOST_BUFFERS) {
                Ok(list) => set_inline(qp, list),
                Err(errno) => amend(qp, |_, _| Err(errno)),
            }
        }
    })
}

pub(crate) unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    guard_data_path::<Silent>(move || {
        let one = ibv_sge { addr, length, lkey };
        // SAFETY: a QP of ours that the application keeps; its batch is this thread's from start to end (`verbs.h`).
        unsafe { set_sges(qp, &[Unaligned::new(one)]) }
    })
}

pub(crate) unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    guard_data_path::<Silent>(move || {
        // SAFETY: a QP of ours that the application keeps, its batch this thread's; the list is valid for the call.
        unsafe {
            let most = QpObject::live(qp.cast())?.nic.options().max_send_sge;
            match element_list(list, count, most) {
                Ok(list) => set_sges(qp, list),
                Err(errno) => amend(qp, |_, _| Err(errno)),
            }
        }
    })
}

/// # Safety
/// As for [`open`].
unsafe fn set_sges(qp: *mut ibv_qp_ex, sges: &[Unaligned<ibv_sge>]) -> Result<Silent, Errno> {
    // SAFETY: as the caller promises.
    unsafe {
        amend(qp, |_, request| {
            request.length = total(sges)?;
            gather(sges, &mut request.data)
        })
    }
}

/// The most buffers of inline data: more would be pointless, given how few bytes are allowed.
const MOST_BUFFERS: usize = 1024;

/// # Safety
/// As for [`open`]; the memory of the buffers can be read.
unsafe fn set_inline(qp: *mut ibv_qp_ex, buffers: &[Unaligned<ibv_data_buf>]) -> Result<Silent, Errno> {
    // SAFETY: as the caller promises.
    unsafe {
        amend(qp, |object, request| {
            let most = object.nic.options().max_inline;
            let mut bytes = InlineBytes::new();
            for buffer in buffers {
                let buffer = buffer.get();
                append(&mut bytes, buffer.addr.expose_provenance(), buffer.length, most)?;
            }
            request.length = bytes.len() as u32;
            request.data = LocalData::Inline(bytes);
            Ok(())
        })
    }
}

fn complete(qp: &QpObject, batch: &mut Batch) -> Result<(), Errno> {
    if let Some(errno) = batch.error {
        return Err(errno);
    }
    batch.requests.iter().try_for_each(|request| qp.nic.check(request))?;
    qp.nic.post_batch(|sends| {
        if sends.room() < batch.requests.len() {
            return Err(Errno::NOMEM);
        }
        Ok(batch.requests.drain(..).try_for_each(|request| sends.push(request))?)
    })?;
    // SAFETY: windows of requests that have just been accepted: `bind_spec` found them, and the application keeps them
    // until those are complete.
    batch.windows.drain(..).try_for_each(|(mw, rkey)| unsafe { show_key(mw, rkey) })
}
