//! Creates, changes and destroys objects.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use softrnic_link::ProcessSlot;
use softrnic_memory::{MemoryError, PdId};
use softrnic_transport::{AttrError, AttrMask, Qp, QpAttr, QpState, QpStatus, QpType};
use softrnic_wire::{Qpn, Srqn, Time};

use super::completion::Cqe;
use super::data::{RecvRequest, SendRequest};
use super::object_memory::{CqMemory, DeferredFree, QpMemory, Remnant, SrqMemory};
use super::objects::{Cq, QpCounts, QpIo, QpSlot, ReceiveQueue, Srq, Xrcd};
use super::{CqKey, Engine, LocalData, QpKey, SrqKey, XrcdKey};
use softrnic_sync::notify::{Arming, Notify, arming};
use softrnic_sync::queue::{CompletionRing, RecvRing, SeenSlots, SendRing};

/// Why an object was not created, changed or destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// No such object, or no longer. EINVAL.
    UnknownObject,
    /// Other objects still use it. EBUSY.
    Busy,
    /// An argument is invalid; the text says which. EINVAL.
    Invalid(&'static str),
    /// A limit is reached, or there is no memory. ENOMEM.
    NoMemory,
    /// Memory was refused.
    Memory(MemoryError),
    /// QP attributes were refused. EINVAL.
    Attributes(AttrError),
    /// The device does not do this. EOPNOTSUPP.
    Unsupported,
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ControlError::UnknownObject => f.write_str("no such object"),
            ControlError::Busy => f.write_str("other objects still use it"),
            ControlError::Invalid(what) => f.write_str(what),
            ControlError::NoMemory => f.write_str("a limit of the device is reached, or memory has run out"),
            ControlError::Memory(error) => error.fmt(f),
            ControlError::Attributes(error) => error.fmt(f),
            ControlError::Unsupported => f.write_str("the device does not support this"),
        }
    }
}

impl std::error::Error for ControlError {}

impl From<MemoryError> for ControlError {
    fn from(error: MemoryError) -> Self {
        ControlError::Memory(error)
    }
}

impl From<AttrError> for ControlError {
    fn from(error: AttrError) -> Self {
        ControlError::Attributes(error)
    }
}

/// Where a new QP gets its receive work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveSource {
    /// A queue of its own, with this many entries.
    Own(usize),
    /// A shared receive queue.
    Shared(SrqKey),
    /// XRC SRQs of this domain (XRC targets).
    Xrc(XrcdKey),
    /// None (XRC initiators).
    None,
}

/// Parameters of a new QP.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Transport service.
    pub service: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqKey,
    /// Where receives complete.
    pub recv_cq: CqKey,
    /// Entries of the send queue.
    pub max_send_wr: usize,
    /// Source of receive work requests.
    pub receive: ReceiveSource,
}

/// A new QP: its names, and the application's ends of its queues.
pub struct QpHandle {
    /// Its key in this engine.
    pub key: QpKey,
    /// Its number on the wire.
    pub qpn: Qpn,
    /// To post sends.
    pub sends: SendRing<SendRequest>,
    /// To free the slots of sends, if polling does.
    pub seen: Option<SeenSlots>,
    /// To post receives, unless they are shared.
    pub receives: Option<RecvRing<RecvRequest>>,
    /// The state ([`QpState`] as a number), kept current by the engine.
    pub state: Arc<AtomicU8>,
}

/// Parameters of a new shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqInit {
    /// Protection domain.
    pub pd: PdId,
    /// Entries.
    pub max_wr: usize,
    /// XRC domain and CQ, for an XRC SRQ.
    pub xrc: Option<(XrcdKey, CqKey)>,
}

/// A new SRQ.
pub struct SrqHandle {
    /// Its key in this engine.
    pub key: SrqKey,
    /// Its number on the wire (XRC).
    pub srqn: Srqn,
    /// To post receives.
    pub receives: RecvRing<RecvRequest>,
}

/// What `query_qp` returns.
#[derive(Clone, Copy, Debug)]
pub struct QpQuery {
    /// Attributes as set.
    pub attr: QpAttr,
    /// The state of the queues.
    pub status: QpStatus,
}

impl Engine {
    /// Creates a completion queue with `capacity` entries; `notify` is told when an armed CQ gets a completion.
    ///
    /// # Errors
    /// Too many CQs, or no memory.
    pub fn create_cq(
        &mut self,
        capacity: usize,
        notify: Option<Arc<dyn Notify>>,
    ) -> Result<(CqKey, CompletionRing<Cqe>, Arming), ControlError> {
        self.add_cq(CqMemory::new(capacity)?, notify)
    }

    /// Creates a completion queue from prepared parts.
    ///
    /// # Errors
    /// Too many CQs, or no memory.
    pub fn add_cq(
        &mut self,
        parts: CqMemory,
        notify: Option<Arc<dyn Notify>>,
    ) -> Result<(CqKey, CompletionRing<Cqe>, Arming), ControlError> {
        if self.shared.cqs.len() >= self.config.caps.max_cq {
            return Err(ControlError::NoMemory);
        }
        self.shared.cqs.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        let (arm, armed) = arming();
        let key = self.shared.cqs.insert(Cq { ring: parts.nic, armed, notify, users: 0, overrun: false });
        Ok((key, parts.app, arm))
    }

    /// Gives a CQ another ring. `old` is its application end, which moves to the new ring too, with what it holds.
    ///
    /// # Errors
    /// The new ring cannot hold the present completions.
    pub fn resize_cq(
        &mut self,
        key: CqKey,
        parts: CqMemory,
        old: &mut CompletionRing<Cqe>,
    ) -> Result<DeferredFree, ControlError> {
        let cq = self.shared.cqs.get_mut(key).ok_or(ControlError::UnknownObject)?;
        if old.len() > parts.app.capacity() {
            return Err(ControlError::Invalid("the CQ holds more completions than the new size"));
        }
        old.replace(parts.app);
        Ok(DeferredFree(Remnant::Cq(std::mem::replace(&mut cq.ring, parts.nic))))
    }

    /// Destroys a CQ.
    ///
    /// # Errors
    /// QPs or SRQs still report to it.
    pub fn destroy_cq(&mut self, key: CqKey) -> Result<DeferredFree, ControlError> {
        if self.shared.cqs.get(key).is_some_and(|cq| cq.users > 0) {
            return Err(ControlError::Busy);
        }
        let cq = self.shared.cqs.remove(key).ok_or(ControlError::UnknownObject)?;
        Ok(DeferredFree(Remnant::Cq(cq.ring)))
    }

    /// Creates an XRC domain.
    ///
    /// # Errors
    /// There is no memory.
    pub fn create_xrcd(&mut self) -> Result<XrcdKey, ControlError> {
        self.xrcds.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        Ok(self.xrcds.insert(Xrcd::default()))
    }

    /// Destroys an XRC domain.
    ///
    /// # Errors
    /// It is in use.
    pub fn destroy_xrcd(&mut self, key: XrcdKey) -> Result<(), ControlError> {
        match self.xrcds.get(key) {
            None => Err(ControlError::UnknownObject),
            Some(xrcd) if xrcd.users > 0 => Err(ControlError::Busy),
            Some(_) => {
                self.xrcds.remove(key);
                Ok(())
            }
        }
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// Unknown PD, CQ or XRC domain, too many SRQs, or no memory.
    pub fn create_srq(&mut self, init: SrqInit) -> Result<SrqHandle, ControlError> {
        self.add_srq(init, SrqMemory::new(init.max_wr)?)
    }

    /// Creates a shared receive queue from prepared parts.
    ///
    /// # Errors
    /// As [`create_srq`](Self::create_srq).
    pub fn add_srq(&mut self, init: SrqInit, parts: SrqMemory) -> Result<SrqHandle, ControlError> {
        if self.srqs.len() >= self.config.caps.max_srq {
            return Err(ControlError::NoMemory);
        }
        if let Some((xrcd, cq)) = init.xrc
            && !(self.xrcds.contains_key(xrcd) && self.shared.cqs.contains_key(cq))
        {
            return Err(ControlError::UnknownObject);
        }
        self.srqs.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        self.shared.xrc_srqs.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        self.srqns.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        // Nothing fails from here on, so whatever is counted is in use.
        self.memory.pd_retain(init.pd)?;
        if let Some((xrcd, cq)) = init.xrc {
            self.xrcds[xrcd].users += 1;
            self.shared.cqs[cq].users += 1;
        }
        let SrqMemory { app: receives, nic: ring } = parts;
        let srqn = Srqn::new(self.srq_numbers.take(|number| self.srqns.contains(&Srqn::new(number))));
        self.srqns.insert(srqn);
        let key = self.srqs.insert(Srq { ring, pd: init.pd, srqn, limit: 0, users: 0, xrc: init.xrc });
        if let Some((xrcd, _)) = init.xrc {
            self.shared.xrc_srqs.insert(srqn, (key, xrcd));
        }
        Ok(SrqHandle { key, srqn, receives })
    }

    /// Arms the limit event of an SRQ (0 disarms), and returns the limit that was armed.
    ///
    /// # Errors
    /// No such SRQ.
    pub fn set_srq_limit(&mut self, key: SrqKey, limit: usize) -> Result<(), ControlError> {
        let srq = self.srqs.get_mut(key).ok_or(ControlError::UnknownObject)?;
        srq.limit = limit;
        Ok(())
    }

    /// The limit that is armed.
    ///
    /// # Errors
    /// No such SRQ.
    pub fn srq_limit(&self, key: SrqKey) -> Result<usize, ControlError> {
        self.srqs.get(key).map(|srq| srq.limit).ok_or(ControlError::UnknownObject)
    }

    /// Gives an SRQ another ring, which it moves to once it has taken all that is posted, and optionally another limit.
    /// The caller moves to the application end of the new ring.
    ///
    /// # Errors
    /// No such SRQ, or it holds more than the new size, or the limit exceeds that.
    pub fn resize_srq(
        &mut self,
        key: SrqKey,
        parts: SrqMemory,
        limit: Option<usize>,
    ) -> Result<RecvRing<RecvRequest>, ControlError> {
        let srq = self.srqs.get_mut(key).ok_or(ControlError::UnknownObject)?;
        let max_wr = parts.app.capacity();
        let limit = limit.unwrap_or(srq.limit);
        if srq.ring.len() > max_wr || limit > max_wr {
            return Err(ControlError::Invalid(
                "the SRQ holds more than the new size, or the limit is beyond it",
            ));
        }
        srq.limit = limit;
        srq.ring.replace(parts.nic);
        Ok(parts.app)
    }

    /// Destroys an SRQ.
    ///
    /// # Errors
    /// QPs still use it.
    pub fn destroy_srq(&mut self, key: SrqKey) -> Result<DeferredFree, ControlError> {
        if self.srqs.get(key).is_some_and(|srq| srq.users > 0) {
            return Err(ControlError::Busy);
        }
        let srq = self.srqs.remove(key).ok_or(ControlError::UnknownObject)?;
        self.srqns.remove(&srq.srqn);
        self.memory.pd_release(srq.pd);
        if let Some((xrcd, cq)) = srq.xrc {
            self.shared.xrc_srqs.remove(&srq.srqn);
            self.xrcds[xrcd].users -= 1;
            self.shared.cqs[cq].users -= 1;
        }
        Ok(DeferredFree(Remnant::Srq(srq.ring)))
    }

    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// Unknown PD, CQ, SRQ or XRC domain, too many QPs, or no memory.
    pub fn create_qp(&mut self, init: QpInit) -> Result<QpHandle, ControlError> {
        self.add_qp(init, QpMemory::new(&init)?)
    }

    /// Creates a queue pair from prepared parts.
    ///
    /// # Errors
    /// As [`create_qp`](Self::create_qp).
    pub fn add_qp(&mut self, init: QpInit, parts: QpMemory) -> Result<QpHandle, ControlError> {
        let sources_exist = match init.receive {
            ReceiveSource::Shared(srq) => self.srqs.contains_key(srq),
            ReceiveSource::Xrc(xrcd) => self.xrcds.contains_key(xrcd),
            ReceiveSource::Own(_) | ReceiveSource::None => true,
        };
        if !sources_exist
            || !self.shared.cqs.contains_key(init.send_cq)
            || !self.shared.cqs.contains_key(init.recv_cq)
        {
            return Err(ControlError::UnknownObject);
        }
        let lacks_srd = init.service == QpType::Srd && self.srd.is_none();
        if lacks_srd {
            return Err(ControlError::Unsupported);
        }
        if self.qps.len() >= self.config.caps.max_qp {
            return Err(ControlError::NoMemory);
        }
        self.qps.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        self.by_number.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        let count = self.qps.len() + 1;
        let Engine { active, delayed_acks: acks, .. } = self;
        active.try_reserve(count.saturating_sub(active.len())).map_err(|_| ControlError::NoMemory)?;
        acks.try_reserve(count.saturating_sub(acks.len())).map_err(|_| ControlError::NoMemory)?;
        // One more than the number of QPs: the next index is that of a free slot, or of a new one.
        let missing = (self.qps.len() + 1).saturating_sub(self.by_index.len());
        self.by_index.try_reserve(missing + 1).map_err(|_| ControlError::NoMemory)?;
        // Nothing fails from here on, so whatever is counted is in use.
        self.memory.pd_retain(init.pd)?;
        self.shared.cqs[init.send_cq].users += 1;
        self.shared.cqs[init.recv_cq].users += 1;
        let QpMemory { sends: (sends, nic_sends), seen, receives: own, place } = parts;
        let mut xrcd = None;
        let (app_receives, receives) = match init.receive {
            ReceiveSource::Own(_) => {
                own.map_or((None, ReceiveQueue::None), |(app, nic)| (Some(app), ReceiveQueue::Own(nic)))
            }
            ReceiveSource::Shared(key) => {
                self.srqs[key].users += 1;
                (None, ReceiveQueue::Shared(key))
            }
            ReceiveSource::Xrc(key) => {
                self.xrcds[key].users += 1;
                xrcd = Some(key);
                (None, ReceiveQueue::None)
            }
            ReceiveSource::None => (None, ReceiveQueue::None),
        };
        let qpn = Qpn::new(self.qp_numbers.take(|number| self.by_number.contains_key(&Qpn::new(number))));
        let state = Arc::new(AtomicU8::new(QpState::Reset as u8));
        let qp = Qp::<LocalData>::new(qpn, init.service, self.config.transport, self.config.rate);
        let shared_state = state.clone();
        let slot = |key| QpSlot {
            qp,
            io: QpIo {
                key,
                qpn,
                service: init.service,
                pd: init.pd,
                ecn_capable: self.config.transport.congestion_control
                    && matches!(init.service, QpType::Rc | QpType::XrcInitiator),
                in_memory: false,
                ipv4: false,
                send_cq: init.send_cq,
                recv_cq: init.recv_cq,
                xrcd,
                sends: nic_sends,
                starved: false,
                receives,
                peer: None,
                active: false,
                waiting: false,
                timer: Time::NEVER,
                peer_nic: None,
                trouble: None,
                counts: QpCounts::default(),
                shared_state,
            },
        };
        let key = self.qps.insert_with_key(|key| Box::write(place, slot(key)));
        self.by_number.insert(qpn, key);
        if self.by_index.len() <= key.index() {
            self.by_index.resize(key.index() + 1, None);
        }
        self.by_index[key.index()] = Some(key);
        Ok(QpHandle { key, qpn, sends, seen, receives: app_receives, state })
    }

    /// Changes attributes and state of a QP.
    ///
    /// # Errors
    /// See [`Qp::modify`]. Nothing has changed then.
    pub fn modify_qp(
        &mut self,
        now: Time,
        key: QpKey,
        mask: AttrMask,
        attr: &QpAttr,
    ) -> Result<(), ControlError> {
        // What was posted before belongs to the previous state.
        self.on_doorbell(now, key.index());
        if mask.contains(AttrMask::STATE) && attr.state == QpState::Reset {
            self.let_all_go(now, key);
        }
        if mask.contains(AttrMask::AV) {
            self.peers.make_room(attr.path.dst)?;
        }
        let starts = mask.contains(AttrMask::STATE) && attr.state == QpState::Rts;
        let (mask, attr) = self.srd_attributes(now, key, mask, *attr);
        self.with_qp(now, None, key, |qp, host| {
            if starts && !qp.has_room() {
                return Err(ControlError::NoMemory);
            }
            host.activate();
            Ok(qp.modify(mask, &attr, host)?)
        })
        .ok_or(ControlError::UnknownObject)??;
        let slot = &mut self.qps[key];
        if let Some(adversary) = &mut self.shared.adversary {
            adversary.modified(key, slot.qp.attr());
        }
        let slot = &mut self.qps[key];
        if slot.qp.state() == QpState::Reset {
            // No completion will come that could free them, nor be polled.
            let owed = self.shared.adversary.as_mut().map_or(0, |adversary| adversary.take_owed(key));
            slot.io.sends.retire(owed);
            while slot.io.sends.pop().is_some() {
                slot.io.sends.retire(1);
            }
            slot.io.waiting = false;
            slot.io.peer_nic = None;
            slot.io.trouble = None;
            slot.io.peer.take().into_iter().for_each(|peer| self.peers.leave(peer, key));
            self.memory.release_qp(slot.io.qpn);
        } else if mask.contains(AttrMask::AV) {
            let charged = slot.qp.status().charged;
            let peer = self.peers.join(attr.path.dst);
            let old = slot.io.peer.replace(peer);
            slot.io.waiting = false;
            self.peers.shared(old).window.release(charged);
            self.peers.shared(slot.io.peer).window.charge(charged);
            old.into_iter().for_each(|old| self.peers.leave(old, key));
        }
        if self.srd.is_some() {
            self.take_srd(now, key);
        }
        Ok(())
    }

    /// Every QP goes to the error state, as if it was modified.
    pub fn fail_qps(&mut self, now: Time) {
        let keys: Vec<QpKey> = self.qps.keys().collect();
        for key in keys {
            let Ok(query) = self.query_qp(key) else { continue };
            let attr = QpAttr { state: QpState::Err, ..query.attr };
            // From every state this is allowed.
            let _done = self.modify_qp(now, key, AttrMask::STATE, &attr);
        }
    }

    /// Attributes and state of a QP.
    ///
    /// # Errors
    /// No such QP.
    pub fn query_qp(&self, key: QpKey) -> Result<QpQuery, ControlError> {
        let slot = self.qps.get(key).ok_or(ControlError::UnknownObject)?;
        Ok(QpQuery { attr: *slot.qp.attr(), status: slot.qp.status() })
    }

    /// What a QP has counted.
    ///
    /// # Errors
    /// No such QP.
    pub fn qp_counts(&self, key: QpKey) -> Result<QpCounts, ControlError> {
        Ok(self.qps.get(key).ok_or(ControlError::UnknownObject)?.io.counts)
    }

    /// Whether a QP's peer does not answer because its process is stopped.
    pub fn is_peer_stopped(&self, query: &QpQuery) -> bool {
        let process = (query.attr.path.dst, ProcessSlot::of(query.attr.dest_qpn));
        query.status.doubts_peer && self.shared.processes.is_stopped(process)
    }

    /// All QPs with number, service, state and counts, for statistics.
    pub fn qps(&self) -> impl Iterator<Item = (Qpn, QpType, QpQuery, QpCounts)> + '_ {
        self.qps.values().map(|slot| {
            let query = QpQuery { attr: *slot.qp.attr(), status: slot.qp.status() };
            (slot.io.qpn, slot.io.service, query, slot.io.counts)
        })
    }

    /// Destroys a QP. When this returns, the engine holds none of its memory.
    ///
    /// # Errors
    /// It is attached to a multicast group.
    pub fn destroy_qp(&mut self, now: Time, key: QpKey) -> Result<DeferredFree, ControlError> {
        if !self.qps.contains_key(key) {
            return Err(ControlError::UnknownObject);
        }
        if self.is_attached(key) {
            return Err(ControlError::Busy);
        }
        if self.shared.adversary.is_some() {
            self.let_all_go(now, key);
        }
        if self.srd.is_some() {
            self.flush_srd(now, key, false);
            self.forget_srd(key);
        }
        self.with_qp(now, None, key, |qp, host| qp.close(host));
        let mut slot = self.qps.remove(key).ok_or(ControlError::UnknownObject)?;
        let io = &mut slot.io;
        self.timers.remove(io.timer, key);
        io.shared_state.store(QpState::Reset as u8, Ordering::Release);
        self.by_number.remove(&io.qpn);
        self.by_index[key.index()] = None;
        self.memory.release_qp(io.qpn);
        self.memory.pd_release(io.pd);
        self.shared.cqs[io.send_cq].users -= 1;
        self.shared.cqs[io.recv_cq].users -= 1;
        if let ReceiveQueue::Shared(srq) = io.receives {
            self.srqs[srq].users -= 1;
        }
        if let Some(xrcd) = io.xrcd {
            self.xrcds[xrcd].users -= 1;
        }
        io.peer.take().into_iter().for_each(|peer| self.peers.leave(peer, key));
        Ok(DeferredFree(Remnant::Qp(slot)))
    }

    /// The address at an index of the GID table.
    pub fn address(&self, sgid_index: usize) -> Option<IpAddr> {
        self.gids.get(sgid_index)
    }
}
