//! What a device that is imitated (`like=`) refuses besides what the NIC does, and what it gives instead of what it is asked
//! for. A device that imitates none asks nobody.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use softrnic_engine::{Cqe, DeviceCaps, LocalData, SendRequest, SrdConfig};
use softrnic_memory::Access;
use softrnic_models::{Asked, Model, SendOps, Service};
use softrnic_sync::queue::SeenSlots;
use softrnic_transport::{AttrMask, QpAttr, QpType, SendOp, SrdVerb};
use softrnic_wire::Qpn;

use super::context::Context;
use super::error::{Error, PostError};
use super::qp::{Qp, QpOptions, check_options};
use crate::device::EventSource;

impl Context {
    /// The device that this one imitates, if it imitates one.
    pub fn model(&self) -> Option<&'static Model> {
        self.device().model()
    }

    /// How many entries, and elements of each, an SRQ gets.
    ///
    /// # Errors
    /// The device that is imitated has no such SRQs.
    pub fn srq_size(&self, max_wr: usize, max_sge: usize) -> Result<(usize, usize), Error> {
        let Some(model) = self.model() else { return Ok((max_wr, max_sge)) };
        let (max_wr, max_sge) = model.shared_receive_queue(number(max_wr), number(max_sge))?;
        Ok((max_wr as usize, max_sge as usize))
    }

    /// How many entries a CQ gets.
    pub(crate) fn cq_depth(&self, depth: usize) -> Result<Option<usize>, Error> {
        let Some(model) = self.model() else { return Ok(None) };
        Ok(Some(model.completion_queue(number(depth))? as usize))
    }

    /// What a QP gets.
    pub(crate) fn qp_options(&self, service: QpType, options: QpOptions) -> Result<QpOptions, Error> {
        let Some(model) = self.model() else { return check_options(&options).map(|()| options) };
        let service = match service {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcInitiator | QpType::XrcTarget => Service::Xrc,
            QpType::Srd => Service::Srd,
        };
        let granted = model.queue_pair(&Asked {
            service,
            ops: options.send_ops.unwrap_or(SendOps::ALL),
            max_send_wr: number(options.max_send_wr),
            max_recv_wr: number(options.max_recv_wr),
            max_send_sge: number(options.max_send_sge),
            max_recv_sge: number(options.max_recv_sge),
            max_inline: number(options.max_inline),
            receives: options.srq.is_none() && service != Service::Xrc,
        })?;
        Ok(QpOptions {
            max_send_wr: granted.max_send_wr as usize,
            max_recv_wr: granted.max_recv_wr as usize,
            max_send_sge: granted.max_send_sge as usize,
            max_recv_sge: granted.max_recv_sge as usize,
            max_inline: granted.max_inline as usize,
            ..options
        })
    }

    /// Nothing, if the device that is imitated takes these attributes.
    pub(crate) fn check_attributes(&self, mask: AttrMask, attr: &QpAttr) -> Result<(), Error> {
        let Some(model) = self.model() else { return Ok(()) };
        let limits = &model.limits;
        if mask.contains(AttrMask::MAX_QP_RD_ATOMIC) {
            let (asked, most) = (attr.max_rd_atomic, limits.max_qp_init_rd_atom);
            model.limit("max_rd_atomic", asked.into(), most.into())?;
        }
        if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
            let (asked, most) = (attr.max_dest_rd_atomic, limits.max_qp_rd_atom);
            model.limit("max_dest_rd_atomic", asked.into(), most.into())?;
        }
        Ok(())
    }

    /// Nothing, if the device that is imitated has such regions.
    pub(crate) fn check_access(&self, access: Access) -> Result<(), Error> {
        let Some(model) = self.model() else { return Ok(()) };
        if access.contains(Access::ON_DEMAND) && !model.features.on_demand {
            return Err(model.lacks("on-demand regions").into());
        }
        let flush = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        if access.intersects(flush) && !model.features.persistence {
            return Err(model.lacks("FLUSH").into());
        }
        Ok(())
    }
}

/// Numbers of queue pairs as a device with SRD shows them, whose descriptors have 16 bits for them: 6 of them say which
/// process of an address it is, as the first 6 on the wire do.
const SHOWN_BITS: u32 = 10;
const WIRE_BITS: u32 = 18;

impl Context {
    /// Whether numbers of queue pairs have 16 bits.
    pub fn has_short_numbers(&self) -> bool {
        self.model().is_some_and(|model| model.srd.is_some())
    }
}

impl Qp {
    /// WRITEs with immediate data take no receive of it (SRD).
    ///
    /// # Errors
    /// The device has failed.
    pub fn take_unsolicited(&self) -> Result<(), Error> {
        let EventSource::Qp(key) = self.source() else { return Ok(()) };
        Ok(self.context().nic().control(|core, _| core.engine.set_unsolicited(key))?)
    }
}

/// The short form of a queue pair's number.
pub fn short_number(qpn: Qpn) -> u32 {
    (qpn.get() >> WIRE_BITS) << SHOWN_BITS | qpn.get() & ((1 << SHOWN_BITS) - 1)
}

/// The number of which this is the short form.
pub fn long_number(short: u32) -> Qpn {
    Qpn::new((short >> SHOWN_BITS) << WIRE_BITS | short & ((1 << SHOWN_BITS) - 1))
}

/// What the descriptors of EFA have no room for, or no field.
pub(crate) fn check_verb(verb: &SrdVerb, request: &SendRequest, elements: usize) -> Result<bool, PostError> {
    match (verb, &request.data) {
        (SrdVerb::Send(_), _) => Ok(true),
        (_, LocalData::Inline(_)) => Err(PostError::Invalid("only SENDs have inline bytes")),
        _ if elements > 1 => Err(PostError::Invalid("WRITEs and READs have one element")),
        _ => Ok(true),
    }
}

/// What a device with SRD has of it.
pub(crate) fn srd(model: &Model) -> Option<SrdConfig> {
    let max_rdma = model.srd?.max_rdma;
    Some(SrdConfig { number_bits: SHOWN_BITS, max_message: model.limits.max_message, max_rdma })
}

/// Whether a device has such requests. What it reports of itself says so, too.
pub(crate) fn executes(model: &Model, op: &SendOp) -> bool {
    match op {
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => model.features.atomics,
        SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => model.features.persistence,
        _ => true,
    }
}

/// The limits of a device that is like another.
pub(crate) fn limited(caps: DeviceCaps, model: &Model) -> DeviceCaps {
    let limits = &model.limits;
    let least = |ours: usize, theirs: u32| ours.min(theirs as usize);
    DeviceCaps {
        max_qp: least(caps.max_qp, limits.max_qp),
        max_qp_wr: least(caps.max_qp_wr, limits.max_qp_wr),
        max_sge: least(caps.max_sge, limits.max_sge),
        // What a QP gets, not what fits into its program's memory: a real limit is the model's alone.
        max_inline: limits.max_inline as usize,
        max_cq: least(caps.max_cq, limits.max_cq),
        max_cqe: least(caps.max_cqe, limits.max_cqe),
        max_mr: least(caps.max_mr, limits.max_mr),
        max_mw: least(caps.max_mw, limits.max_mw),
        max_pd: least(caps.max_pd, limits.max_pd),
        max_rd_atomic: caps.max_rd_atomic.min(limits.max_qp_rd_atom),
        max_ah: least(caps.max_ah, limits.max_ah),
        max_srq: least(caps.max_srq, limits.max_srq),
        max_srq_wr: least(caps.max_srq_wr, limits.max_srq_wr),
        max_srq_sge: least(caps.max_srq_sge, limits.max_srq_sge),
        max_mcast_groups: least(caps.max_mcast_groups, limits.max_mcast_groups),
        max_mcast_qp_attach: least(caps.max_mcast_qp_attach, limits.max_mcast_qp_attach),
        max_fast_reg_pages: caps.max_fast_reg_pages,
        gid_table_len: least(caps.gid_table_len, limits.gid_table_len),
        max_dm_size: caps.max_dm_size.min(limits.max_dm_size),
    }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The send queues of a device whose slots are free only once a completion was polled.
#[derive(Default)]
pub(crate) struct HeldSlots(Mutex<FxHashMap<Qpn, SeenSlots>>);

impl HeldSlots {
    pub fn add(&self, qpn: Qpn, slots: SeenSlots) {
        self.with(|queues| queues.insert(qpn, slots));
    }

    pub fn remove(&self, qpn: Qpn) {
        self.with(|queues| queues.remove(&qpn));
    }

    /// A completion was polled.
    pub fn see(&self, cqe: &Cqe) {
        if !cqe.opcode.is_receive() {
            self.with(|queues| queues.get_mut(&cqe.qpn).map(SeenSlots::see));
        }
    }

    /// The completions of a QP were dropped, and its slots are free.
    pub fn forget(&self, qpn: Qpn) {
        self.with(|queues| queues.get_mut(&qpn).map(SeenSlots::forget));
    }

    fn with<T>(&self, change: impl FnOnce(&mut FxHashMap<Qpn, SeenSlots>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
