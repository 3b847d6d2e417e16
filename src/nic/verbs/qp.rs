//! Queue pairs.

mod send_batch;

use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softrnic_memory::Sge;
use softrnic_models::SendOps;
use softrnic_transport::{AttrMask, MAX_MESSAGE, QpAttr, QpState, QpType, SendOp};
use softrnic_wire::{Gid, Mtu, Psn, Qpn, RnrTimer};

use super::address::AddressVector;
use super::context::Context;
use super::cq::Cq;
use super::error::{Error, PostError};
use super::imitation::{check_verb, executes};
use super::pd::Pd;
use super::srq::Srq;
use super::work::{self, WorkRequest};
use crate::device::{Core, EventSource};
use crate::progress::gather::PendingPosts;
use softrnic_engine::{
    ControlError, DeviceCaps, LocalData, QpCounts, QpInit, QpKey, QpMemory, QpQuery, ReceiveSource,
    RecvRequest, SendRequest, XrcdKey,
};
use softrnic_sync::queue::{Full, RecvRing, SendRing};

pub use send_batch::SendBatch;

/// Parameters of a new QP, besides its service and its CQs.
#[derive(Clone)]
pub struct QpOptions {
    /// Entries of the send queue.
    pub max_send_wr: usize,
    /// Entries of the receive queue.
    pub max_recv_wr: usize,
    /// Scatter/gather elements of a send.
    pub max_send_sge: usize,
    /// Scatter/gather elements of a receive.
    pub max_recv_sge: usize,
    /// Inline bytes of a send.
    pub max_inline: usize,
    /// The shared receive queue to take receives from.
    pub srq: Option<Arc<Srq>>,
    /// The XRC domain of an XRC target.
    pub xrcd: Option<XrcdKey>,
    /// The kinds of requests that it will be used for, if that was said. What some devices give depends on it.
    pub send_ops: Option<SendOps>,
}

impl Default for QpOptions {
    fn default() -> Self {
        QpOptions {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            srq: None,
            xrcd: None,
            send_ops: None,
        }
    }
}

/// Attributes of [`Qp::modify`]: those of the transport, and the address vector.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpAttributes {
    /// Those that the transport uses; `path` is resolved from `address`.
    pub transport: QpAttr,
    /// The path to the peer (for the `AV` bit of the mask).
    pub address: Option<AddressVector>,
}

/// A queue pair.
pub struct Qp {
    pd: Arc<Pd>,
    key: QpKey,
    qpn: Qpn,
    service: QpType,
    options: QpOptions,
    sends: Mutex<SendSide>,
    receives: Option<Mutex<RecvRing<RecvRequest>>>,
    state: Arc<AtomicU8>,
    address: Mutex<Option<AddressVector>>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
}

struct SendSide {
    ring: SendRing<SendRequest>,
    pending: PendingPosts,
}

impl Qp {
    pub(crate) fn new(
        pd: Arc<Pd>,
        service: QpType,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
        options: QpOptions,
    ) -> Result<Arc<Qp>, Error> {
        let options = pd.context().qp_options(service, options)?;
        let receive = match (service, &options.srq, options.xrcd) {
            (QpType::XrcInitiator, ..) => ReceiveSource::None,
            (QpType::XrcTarget, _, Some(xrcd)) => ReceiveSource::Xrc(xrcd),
            (QpType::XrcTarget, _, None) => {
                return Err(ControlError::Invalid("an XRC target needs an XRC domain").into());
            }
            (_, Some(srq), _) => ReceiveSource::Shared(srq.key()),
            (_, None, _) => ReceiveSource::Own(options.max_recv_wr),
        };
        let init = QpInit {
            service,
            pd: pd.id(),
            send_cq: send_cq.key(),
            recv_cq: recv_cq.key(),
            max_send_wr: options.max_send_wr,
            receive,
        };
        let sink = pd.context().sink();
        let held_slots = &pd.context().device().held_slots;
        let parts = match held_slots {
            Some(_) => QpMemory::freed_by_polling(&init)?,
            None => QpMemory::new(&init)?,
        };
        let made = pd.context().nic().control(|core, _| {
            core.routes.make_room()?;
            let made = core.engine.add_qp(init, parts)?;
            if service == QpType::Ud {
                // They are in the header that precedes each datagram in its receive buffer.
                core.link.show_headers();
            }
            core.routes.add(EventSource::Qp(made.key), sink);
            Ok::<_, ControlError>(made)
        })??;
        if let (Some(held), Some(seen)) = (held_slots, made.seen) {
            held.add(made.qpn, seen);
        }
        Ok(Arc::new(Qp {
            pd,
            key: made.key,
            qpn: made.qpn,
            service,
            options,
            sends: Mutex::new(SendSide { ring: made.sends, pending: PendingPosts::default() }),
            receives: made.receives.map(Mutex::new),
            state: made.state,
            address: Mutex::new(None),
            send_cq,
            recv_cq,
        }))
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its transport service.
    pub fn service(&self) -> QpType {
        self.service
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The parameters it was created with.
    pub fn options(&self) -> &QpOptions {
        &self.options
    }

    /// Where its sends complete.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// Where its receives complete.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    /// What identifies it in asynchronous events.
    pub fn source(&self) -> EventSource {
        EventSource::Qp(self.key)
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        QpState::ALL[(self.state.load(Ordering::Acquire) as usize).min(6)]
    }

    /// Changes attributes and state.
    ///
    /// # Errors
    /// The transition, a combination or a value is not allowed. Nothing has changed then.
    pub fn modify(&self, mask: AttrMask, attributes: &QpAttributes) -> Result<(), Error> {
        let mut attr = attributes.transport;
        self.context().check_attributes(mask, &attr)?;
        let ends = mask.contains(AttrMask::STATE) && matches!(attr.state, QpState::Reset | QpState::Err);
        let change = |core: &mut Core, now| {
            if mask.contains(AttrMask::AV) {
                let address =
                    attributes.address.ok_or(ControlError::Invalid("the address vector is missing"))?;
                let remote = if mask.contains(AttrMask::DEST_QPN) {
                    attr.dest_qpn
                } else {
                    core.engine.query_qp(self.key)?.attr.dest_qpn
                };
                attr.path = address.resolve(core.engine.gids(), self.service, self.qpn, remote)?;
            }
            core.engine.modify_qp(now, self.key, mask, &attr)
        };
        let nic = self.context().nic();
        if ends { nic.control_ending(self.key, change) } else { nic.control(change) }??;
        if mask.contains(AttrMask::STATE) && attr.state == QpState::Reset {
            self.send_cq.purge(self.qpn);
            self.recv_cq.purge(self.qpn);
            self.context().device().held_slots.iter().for_each(|held| held.forget(self.qpn));
        }
        if mask.contains(AttrMask::AV) {
            *self.address.lock().unwrap_or_else(PoisonError::into_inner) = attributes.address;
        }
        Ok(())
    }

    /// The address vector that was set.
    pub fn address(&self) -> Option<AddressVector> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its current attributes and state.
    ///
    /// # Errors
    /// The device has failed.
    pub fn query(&self) -> Result<QpQuery, Error> {
        Ok(self.context().nic().control(|core, _| core.engine.query_qp(self.key))??)
    }

    /// What it has counted since it was made.
    ///
    /// # Errors
    /// The device has failed.
    pub fn counts(&self) -> Result<QpCounts, Error> {
        Ok(self.context().nic().control(|core, _| core.engine.qp_counts(self.key))??)
    }

    /// Takes an RC or UC QP from RESET to RTS, with all access for the peer and the attributes that test programs use:
    /// MTU as given, timeout 14, 7 retries.
    ///
    /// # Errors
    /// As [`Qp::modify`].
    pub fn connect(
        &self,
        peer: AddressVector,
        peer_qpn: Qpn,
        mtu: Mtu,
        send_psn: Psn,
        recv_psn: Psn,
    ) -> Result<(), Error> {
        use softrnic_transport::QpAccess;
        let access = QpAccess {
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            flush_global: true,
            flush_persistent: false,
        };
        let reliable = self.service != QpType::Uc;
        let mut attributes = QpAttributes {
            transport: QpAttr {
                state: QpState::Init,
                access,
                mtu,
                dest_qpn: peer_qpn,
                rq_psn: recv_psn,
                sq_psn: send_psn,
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                min_rnr_timer: RnrTimer::new(12),
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                ..QpAttr::default()
            },
            address: Some(peer),
        };
        let init =
            AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::ACCESS_FLAGS);
        self.modify(init, &attributes)?;
        attributes.transport.state = QpState::Rtr;
        let mut rtr = AttrMask::STATE
            .union(AttrMask::AV)
            .union(AttrMask::PATH_MTU)
            .union(AttrMask::DEST_QPN)
            .union(AttrMask::RQ_PSN);
        if reliable {
            rtr = rtr.union(AttrMask::MAX_DEST_RD_ATOMIC).union(AttrMask::MIN_RNR_TIMER);
        }
        self.modify(rtr, &attributes)?;
        attributes.transport.state = QpState::Rts;
        let mut rts = AttrMask::STATE.union(AttrMask::SQ_PSN);
        if reliable {
            rts = rts
                .union(AttrMask::TIMEOUT)
                .union(AttrMask::RETRY_CNT)
                .union(AttrMask::RNR_RETRY)
                .union(AttrMask::MAX_QP_RD_ATOMIC);
        }
        self.modify(rts, &attributes)
    }

    /// Posts a send.
    ///
    /// # Errors
    /// The queue is full, or the request is not possible on this QP.
    pub fn post(&self, request: WorkRequest) -> Result<(), PostError> {
        let WorkRequest { mut request, address } = request;
        if let (SendOp::Datagram { path, dest_qpn, .. }, Some(address)) = (&mut request.op, address) {
            let resolved = self.resolve(&address, *dest_qpn);
            *path = resolved.map_err(|_| PostError::Invalid("the address vector is invalid"))?;
        }
        self.post_batch(|batch| batch.push(request))
    }

    /// Resolves an address vector for datagrams of this QP.
    ///
    /// # Errors
    /// The GID table has no such entry, or the destination is of another address family.
    pub fn resolve(&self, address: &AddressVector, remote: Qpn) -> Result<softrnic_transport::Path, Error> {
        Ok(self
            .context()
            .nic()
            .control(|core, _| address.resolve(core.engine.gids(), self.service, self.qpn, remote))??)
    }

    /// Posts what `fill` pushes with one doorbell, and then drives the NIC, or leaves that to the next poll.
    #[inline]
    pub fn post_batch<T>(&self, fill: impl FnOnce(&mut SendBatch<'_>) -> T) -> T {
        let mut batch = SendBatch::new(self);
        let result = fill(&mut batch);
        batch.ring();
        result
    }

    /// Posts a receive into the given memory.
    ///
    /// # Errors
    /// The queue is full, or the QP has none.
    pub fn post_recv(&self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.post_recv_request(work::receive(wr_id, sges))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full, or the QP has none.
    pub fn post_recv_request(&self, request: RecvRequest) -> Result<(), PostError> {
        self.post_recv_with(|| request, |_| Ok(()))
    }

    /// Posts a receive that `fill` completes in its place in the queue.
    ///
    /// # Errors
    /// As [`post_recv_request`](Self::post_recv_request), and those of `fill`.
    #[inline]
    pub fn post_recv_with<E: From<PostError> + From<Full>>(
        &self,
        request: impl FnOnce() -> RecvRequest,
        fill: impl FnOnce(&mut RecvRequest) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(receives) = &self.receives else {
            return Err(PostError::Invalid("the QP has no receive queue of its own").into());
        };
        let state = self.state();
        if state == QpState::Reset {
            return Err(PostError::State.into());
        }
        receives.lock().unwrap_or_else(PoisonError::into_inner).push_with(request, fill)?;
        // Pairs with the fence of the engine when the QP fails, see `Engine::with_qp`.
        fence(Ordering::SeqCst);
        if self.state() == QpState::Err {
            // Only the engine flushes, and it looks at a QP when its doorbell rings.
            self.context().nic().on_post(self.key.index(), true);
        }
        Ok(())
    }

    /// Whether it is attached to a multicast group, and so cannot be destroyed. On a device that has failed no QP is.
    pub fn is_attached(&self) -> bool {
        self.context().nic().control(|core, _| core.engine.is_attached(self.key)).unwrap_or(false)
    }

    /// Attaches a UD QP to a multicast group. Attaching again changes nothing.
    ///
    /// # Errors
    /// Not a UD QP, not a group, or the link cannot join.
    pub fn attach_multicast(&self, group: Gid) -> Result<(), Error> {
        if let Some(model) = self.context().model()
            && model.limits.max_mcast_groups == 0
        {
            return Err(model.lacks("multicast").into());
        }
        self.context().nic().control(|core, _| {
            if core.engine.is_member(self.key, group) {
                return Ok(());
            }
            if core.engine.attach_multicast(self.key, group)?
                && let Err(error) = core.link.join(group.to_ip())
            {
                // A device takes groups of the other family too, as rxe does: perftest's own is one.
                if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) {
                    tracing::warn!(%group, "the device has no address of this family, so the group receives nothing");
                    return Ok(());
                }
                core.engine.detach_multicast(self.key, group)?;
                return Err(error.into());
            }
            Ok(())
        })?
    }

    /// Detaches a UD QP from a multicast group.
    ///
    /// # Errors
    /// It is not attached.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), Error> {
        self.context().nic().control(|core, _| {
            // The QP is out of the group, whether or not the link can leave it.
            if core.engine.detach_multicast(self.key, group)?
                && let Err(error) = core.link.leave(group.to_ip())
            {
                tracing::debug!(%error, %group, "the link cannot leave a group to which no QP is attached");
            }
            Ok(())
        })?
    }

    /// The context that it is of.
    pub fn context(&self) -> &Context {
        self.pd.context()
    }

    fn lock_sends(&self) -> MutexGuard<'_, SendSide> {
        self.sends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether this QP can execute a request, before it is queued.
    ///
    /// # Errors
    /// See [`PostError`]; never [`PostError::Full`].
    pub fn check(&self, request: &SendRequest) -> Result<(), PostError> {
        if !matches!(self.state(), QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err) {
            return Err(PostError::State);
        }
        let elements = match &request.data {
            LocalData::Sges(sges) => sges.len(),
            // The eight bytes of an atomic write are part of the request.
            LocalData::Inline(bytes)
                if bytes.len() > self.options.max_inline
                    && !matches!(request.op, SendOp::AtomicWrite { .. }) =>
            {
                return Err(PostError::Invalid("more inline bytes than the QP was created for"));
            }
            _ => 0,
        };
        if elements > self.options.max_send_sge {
            return Err(PostError::Invalid("more scatter/gather elements than the QP was created for"));
        }
        if request.length > MAX_MESSAGE {
            return Err(PostError::TooLong);
        }
        let fits = match (&request.op, self.service) {
            (SendOp::Datagram { .. }, service) => service == QpType::Ud,
            (SendOp::Srd { verb, .. }, QpType::Srd) => check_verb(verb, request, elements)?,
            (SendOp::Srd { .. }, _) | (_, QpType::Srd) => false,
            (_, service) => service != QpType::XrcTarget,
        };
        if !fits {
            return Err(PostError::Invalid("the QP does not send such requests"));
        }
        // As on hardware, an operation that the service does not have is taken, and fails, and so is an atomic that is not
        // aligned: the peer refuses it.
        match &request.op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } if request.length < 8 => {
                Err(PostError::Invalid("an atomic needs 8 bytes"))
            }
            SendOp::AtomicWrite { .. } if request.length != 8 => {
                Err(PostError::Invalid("an atomic write needs 8 bytes"))
            }
            SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::Flush { .. }
                if self.context().model().is_some_and(|model| !executes(model, &request.op)) =>
            {
                Err(PostError::Invalid("the device that is imitated has no such requests"))
            }
            _ => Ok(()),
        }
    }
}

/// Nothing, if a QP of a device that imitates none can have these.
pub(crate) fn check_options(options: &QpOptions) -> Result<(), Error> {
    let caps = DeviceCaps::default();
    let refused = if options.max_send_wr > caps.max_qp_wr || options.max_recv_wr > caps.max_qp_wr {
        "more work requests than a QP can have"
    } else if options.max_send_sge > caps.max_sge || options.max_recv_sge > caps.max_sge {
        "more scatter/gather elements than a QP can have"
    } else if options.max_inline > caps.max_inline {
        "more inline bytes than a QP can have"
    } else {
        return Ok(());
    };
    Err(ControlError::Invalid(refused).into())
}

impl Drop for Qp {
    fn drop(&mut self) {
        // Still attached to groups, or the device has failed: then the NIC keeps what it has.
        let _ = self.context().nic().control_ending(self.key, |core, now| {
            core.routes.remove(EventSource::Qp(self.key));
            core.engine.destroy_qp(now, self.key)
        });
        self.context().device().held_slots.iter().for_each(|held| held.remove(self.qpn));
        if self.service == QpType::Srd {
            // rdma-core's provider drops what it finds of a QP that is gone.
            self.send_cq.purge(self.qpn);
            self.recv_cq.purge(self.qpn);
        }
        let source = self.source();
        self.context().forget_events(|event| event.source == source);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use softrnic_memory::Access;
    use softrnic_wire::Qkey;

    use super::*;
    use crate::device::DeviceSpec;

    /// Other users of the machine have to guess a number before they can send to it.
    #[test]
    fn a_device_that_shares_its_address_with_no_process_uses_all_bits_of_its_numbers() {
        let context = Context::open(&DeviceSpec::default()).expect("a device");
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(4, None).expect("a CQ");
        let qpn = || pd.create_rc_qp(&cq, &cq, QpOptions::default()).expect("a QP").qpn().get();
        let parts: std::collections::HashSet<u32> = (0..400).map(|_| qpn() >> 18).collect();
        assert!(parts.len() > 32, "{parts:?}");
        assert_eq!(context.device().slot(), None, "nor are communication ids of a part");
    }

    /// Sockets are asked for a datagram's TOS only if it is used.
    #[test]
    fn a_datagram_comes_with_the_header_it_was_sent_with() {
        const QKEY: Qkey = Qkey(0x11);
        let context = Context::open(&DeviceSpec::default()).expect("a device");
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(4, None).expect("a CQ");
        let memory = pd.register(vec![0; 64], Access::LOCAL_WRITE).expect("a region");
        let qp = pd.create_qp(QpType::Ud, &cq, &cq, QpOptions::default()).expect("a QP");
        let mut attributes = QpAttributes::default();
        attributes.transport.qkey = QKEY;
        let init = AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::QKEY);
        let steps = [
            (QpState::Init, init),
            (QpState::Rtr, AttrMask::STATE),
            (QpState::Rts, AttrMask::STATE.union(AttrMask::SQ_PSN)),
        ];
        for (state, mask) in steps {
            attributes.transport.state = state;
            qp.modify(mask, &attributes).expect("an allowed transition");
        }
        qp.post_recv(1, &[memory.sge(0, 64)]).expect("room");
        let to = AddressVector { traffic_class: 0x6A, ..AddressVector::to(context.address()) };
        let request = WorkRequest::datagram(to, qp.qpn(), QKEY, None).unsignaled().inline(b"8 bytes.");
        qp.post(request).expect("room");
        let deadline = Instant::now() + Duration::from_secs(10);
        while cq.poll_with(1, |_| ()) == 0 {
            assert!(Instant::now() < deadline, "no datagram came");
        }
        let mut received = [0; 48];
        memory.read(0, &mut received).expect("in bounds");
        assert_eq!((received[20], received[21], received[28]), (0x45, 0x6A, 64));
        assert_eq!(received[40..], *b"8 bytes.");
    }
}
