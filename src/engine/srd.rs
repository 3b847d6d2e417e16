//! Queue pairs of SRD: what the endpoint of `softrnic-srd` needs from this NIC, and address handles by number.
//!
//! A device without SRD has none of this.

mod failures;
mod handles;

use std::net::IpAddr;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustc_hash::{FxHashMap, FxHashSet};
use slotmap::SlotMap;
use softrnic_diagnosis::{Code as Why, Denied};
use softrnic_link::{Datagram, Flow, Link, ProcessSlot, TxError};
use softrnic_memory::{Access, MemoryTable, PdId};
use softrnic_srd::{Arrival, Code, Config, Counter, Endpoint, Host, Payload, Peer, Post};
use softrnic_transport::{
    AttrMask, LocalFault, QpAttr, QpState, QpType, Reason, RemoteFault, SendOp, Status, TransmitError,
    WcOpcode,
};
use softrnic_wire::{
    ICRC_LEN, Mtu, Pkey, Qkey, Qpn, Rkey, SrdBody, SrdHeaders, SrdOpcode, SrdPacket, Time, is_srd,
    rxe_qpn_to_sport,
};

use super::attention::Act;
use super::completion::{Cqe, CqeExtra};
use super::control::ControlError;
use super::data::{LocalData, RecvRequest, SendRequest};
use super::host::{Staged, gather};
use super::objects::{QpKey, QpSlot, ReceiveQueue};
use super::seed::Purpose;
use super::shared::Shared;
use super::{Budget, DropReason, Engine, Step};
use failures::Arrived;
use handles::{Handles, NO_HANDLE};

/// TTL of packets, the same as for all unicast packets.
const TTL: u8 = 64;

/// A NIC with SRD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdConfig {
    /// How many bits of its queue pair numbers the NIC chooses, an even number. The others say which process of an address it
    /// is.
    pub number_bits: u32,
    /// The longest SEND.
    pub max_message: u32,
    /// The longest WRITE or READ.
    pub max_rdma: u32,
}

impl Default for SrdConfig {
    fn default() -> SrdConfig {
        let Config { max_message, max_rdma, .. } = Config::default();
        SrdConfig { number_bits: 18, max_message, max_rdma }
    }
}

/// The part of an engine that speaks SRD.
pub struct Srd {
    endpoint: Endpoint<QpKey, LocalData>,
    around: Around,
}

/// What it has besides.
struct Around {
    random: ChaCha20Rng,
    counters: [u64; Counter::ALL.len()],
    handles: Handles,
    /// Addresses of senders without a handle, by the numbers that completions carry.
    strangers: Vec<IpAddr>,
    /// Receives that a message had taken that did not come.
    spare: Vec<(QpKey, RecvRequest)>,
    /// QPs of which WRITEs with immediate data take no receive.
    unsolicited: FxHashSet<QpKey>,
}

/// Who sent a message, and how it came: SRD's completions have this in place of a time stamp, which EFA has none of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdSource {
    /// The handle of the sender's address; none if there is none.
    pub handle: Option<u16>,
    /// It took no receive.
    pub unsolicited: bool,
    /// By what number the engine knows the sender's address, if there is no handle.
    pub stranger: u32,
}

/// The most senders without a handle that are remembered.
const MAX_STRANGERS: usize = 4096;

const UNSOLICITED: u64 = 1 << 16;

impl SrdSource {
    fn pack(self) -> u64 {
        let handle = self.handle.map_or(NO_HANDLE, u64::from);
        handle | if self.unsolicited { UNSOLICITED } else { 0 } | u64::from(self.stranger) << 32
    }

    /// From a completion of an SRD QP.
    pub fn of(cqe: &Cqe) -> SrdSource {
        let bits = cqe.timestamp;
        SrdSource {
            handle: Some(bits as u16).filter(|handle| u64::from(*handle) != NO_HANDLE),
            unsolicited: bits & UNSOLICITED != 0,
            stranger: (bits >> 32) as u32,
        }
    }
}

impl Srd {
    pub(super) fn new(config: SrdConfig, seed: [u8; 32]) -> Srd {
        let SrdConfig { max_message, max_rdma, .. } = config;
        Srd {
            endpoint: Endpoint::new(Config { max_message, max_rdma, ..Config::default() }),
            around: Around {
                random: ChaCha20Rng::from_seed(seed),
                counters: [0; Counter::ALL.len()],
                handles: Handles::default(),
                strangers: Vec::new(),
                spare: Vec::new(),
                unsolicited: FxHashSet::default(),
            },
        }
    }

    pub(super) fn purpose() -> Purpose {
        Purpose::Srd
    }

    pub(super) fn poll_timeout(&self) -> Time {
        self.endpoint.poll_timeout()
    }

    pub(super) fn has_work(&self) -> bool {
        self.endpoint.has_work()
    }

    pub(super) fn set_mtu(&mut self, mtu: Mtu) {
        self.endpoint.set_mtu(mtu.bytes());
    }
}

/// The engine as its endpoint sees it.
struct View<'a, 'l> {
    around: &'a mut Around,
    memory: &'a mut MemoryTable,
    qps: &'a mut SlotMap<QpKey, Box<QpSlot>>,
    by_number: &'a FxHashMap<Qpn, QpKey>,
    shared: &'a mut Shared,
    link: Option<&'a mut (dyn Link + 'l)>,
    now: Time,
    /// Nothing of this one completes.
    discarded: Option<QpKey>,
    /// What is being received.
    packet: Option<Arrived>,
}

impl View<'_, '_> {
    fn stage(&mut self, qp: QpKey, cqe: Cqe) {
        let Some(slot) = self.qps.get_mut(qp) else { return };
        if self.discarded == Some(qp) {
            return;
        }
        let io = &slot.io;
        let cq = if cqe.opcode.is_receive() { io.recv_cq } else { io.send_cq };
        let solicited = cqe.status != Status::Success;
        self.shared.stage(Staged { qp, cq, cqe, solicited });
    }

    /// A completion of a QP, without what depends on its kind.
    fn blank(&self, qp: QpKey, opcode: WcOpcode, wr_id: u64, code: Code) -> Cqe {
        let extra = match code {
            Code::Ok => CqeExtra::None,
            code => CqeExtra::Failed(Why::of_srd(code as u8)),
        };
        Cqe {
            wr_id,
            status: code.status(),
            opcode,
            byte_len: 0,
            extra,
            qpn: self.qps.get(qp).map_or(Qpn::SMI, |slot| slot.io.qpn),
            src_qpn: Qpn::SMI,
            grh: false,
            ipv4: false,
            timestamp: SrdSource { handle: None, unsolicited: false, stranger: 0 }.pack(),
        }
    }

    fn source(&mut self, qp: QpKey, from: &Peer, unsolicited: bool) -> SrdSource {
        let around = &mut *self.around;
        let pd = self.qps.get(qp).map(|slot| slot.io.pd);
        let known = |pd| around.handles.by_address.get(&(pd, from.local, from.remote)).copied();
        let handle = pd.and_then(known);
        let mut stranger = 0;
        if handle.is_none() {
            let known = around.strangers.iter().position(|address| *address == from.remote);
            stranger = known.unwrap_or_else(|| {
                if around.strangers.len() >= MAX_STRANGERS {
                    around.strangers.clear();
                }
                around.strangers.push(from.remote);
                around.strangers.len() - 1
            });
        }
        SrdSource { handle, unsolicited, stranger: stranger as u32 }
    }
}

impl Host for View<'_, '_> {
    type Qp = QpKey;
    type Data = LocalData;

    fn transmit(
        &mut self,
        to: &Peer,
        headers: &SrdHeaders,
        payload: Payload<'_, QpKey, LocalData>,
    ) -> Result<(), TransmitError> {
        let Some(link) = self.link.as_deref_mut() else { return Err(TransmitError::Full) };
        let len = headers.transport_len(payload.length());
        let flow = Flow {
            src: to.local,
            dst: to.remote,
            // One path for each connection.
            sport: rxe_qpn_to_sport(Qpn::new(headers.src_tag)),
            slot: Some(ProcessSlot::of(headers.bth.dest_qpn)),
            tos: 0,
            ttl: TTL,
        };
        let mut slot = match link.reserve(self.now, &flow, len) {
            Ok(slot) => slot,
            Err(TxError::Full) => return Err(TransmitError::Full),
            Err(TxError::TooLong) => return Err(TransmitError::TooLong),
            // It was lost in the network: it goes out again.
            Err(TxError::Unreachable) => return Ok(()),
        };
        let at = headers.emit(slot.bytes);
        let (body, tail) = slot.bytes[at..].split_at_mut(payload.length());
        match payload {
            Payload::None => {}
            Payload::Local { qp, data, offset, .. } => {
                let io = &self.qps.get(qp).ok_or(TransmitError::Local(LocalFault))?.io;
                gather(self.memory, io, data, offset, body).map_err(|_| TransmitError::Local(LocalFault))?;
            }
            Payload::Remote { qp, rkey, va, .. } => {
                let refused = TransmitError::Remote(RemoteFault::Access);
                let io = &self.qps.get(qp).ok_or(refused)?.io;
                self.memory.read_remote(io.pd, io.qpn, rkey, va, body).map_err(|_| refused)?;
            }
        }
        let pad = tail.len() - ICRC_LEN;
        tail[..pad].fill(0);
        slot.seal();
        link.commit(self.now);
        Ok(())
    }

    fn target(&mut self, qpn: Qpn, qkey: Qkey) -> Option<QpKey> {
        let key = *self.by_number.get(&qpn)?;
        let slot = self.qps.get_mut(key)?;
        let receives = matches!(slot.qp.state(), QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let expected = slot.qp.attr().qkey;
        let is_meant = slot.io.service == QpType::Srd && receives;
        if is_meant && qkey != expected {
            self.refuse(key, Reason::Qkey, Some(Denied::Qkey { came: qkey, expected }), None);
            return None;
        }
        is_meant.then_some(key)
    }

    fn take_receive(&mut self, qp: QpKey) -> Option<RecvRequest> {
        if let Some(place) = self.around.spare.iter().position(|(owner, _)| *owner == qp) {
            return Some(self.around.spare.remove(place).1);
        }
        match &mut self.qps.get_mut(qp)?.io.receives {
            ReceiveQueue::Own(ring) => ring.pop(),
            _ => None,
        }
    }

    fn is_unsolicited(&mut self, qp: QpKey) -> bool {
        self.around.unsolicited.contains(&qp)
    }

    fn return_receive(&mut self, qp: QpKey, wqe: RecvRequest) {
        if let Some(Arrived { body: SrdBody::Send(_, part, _), .. }) = self.packet
            && wqe.length < part.length
        {
            self.refuse(qp, Reason::ReceiveTooShort, None, Some((wqe.wr_id, wqe.length)));
        }
        if self.qps.contains_key(qp) {
            self.around.spare.push((qp, wqe));
        }
    }

    fn check_local(&mut self, qp: QpKey, data: &LocalData, sink: bool) -> Result<(), LocalFault> {
        let io = &self.qps.get(qp).ok_or(LocalFault)?.io;
        match data {
            LocalData::Sges(sges) => {
                let check = |sge| self.memory.check_local(io.pd, sge, sink);
                sges.iter().try_for_each(check).map_err(|_| LocalFault)
            }
            LocalData::Inline(_) if !sink => Ok(()),
            _ => Err(LocalFault),
        }
    }

    fn scatter(&mut self, qp: QpKey, data: &LocalData, offset: u64, bytes: &[u8]) -> Result<(), LocalFault> {
        let io = &self.qps.get(qp).ok_or(LocalFault)?.io;
        let LocalData::Sges(sges) = data else { return Err(LocalFault) };
        self.tell(&Act::Place { qpn: io.qpn, list: sges });
        self.memory.scatter(io.pd, sges, offset, bytes).map_err(|_| {
            if matches!(self.packet, Some(Arrived { body: SrdBody::Send(..), .. })) {
                let denied = self.local_denial(qp, data, true);
                self.refuse(qp, Reason::ReceiveMemory, denied, None);
            }
            LocalFault
        })
    }

    fn check_read(&mut self, qp: QpKey, rkey: Rkey, va: u64, len: u64) -> Result<(), RemoteFault> {
        let io = &self.qps.get(qp).ok_or(RemoteFault::Access)?.io;
        let checked = self.memory.check_remote(io.pd, io.qpn, rkey, va, len, Access::REMOTE_READ);
        checked.map(|_| ()).map_err(|_| {
            self.refuse_key(qp, rkey, (va, len), Access::REMOTE_READ);
            RemoteFault::Access
        })
    }

    fn write(&mut self, qp: QpKey, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), RemoteFault> {
        let io = &self.qps.get(qp).ok_or(RemoteFault::Access)?.io;
        let length = bytes.len() as u64;
        self.tell(&Act::Write { rkey, va, length });
        self.memory.write_remote(io.pd, io.qpn, rkey, va, bytes).map_err(|_| {
            self.refuse_key(qp, rkey, (va, length), Access::REMOTE_WRITE);
            RemoteFault::Access
        })
    }

    fn complete_send(&mut self, qp: QpKey, wqe: SendRequest, code: Code) {
        if code != Code::Ok {
            self.diagnose(qp, &wqe, code);
        }
        let Some(slot) = self.qps.get_mut(qp) else { return };
        let sends = &mut slot.io.sends;
        match sends.is_freed_by_polling() {
            true => {
                sends.retire_unseen(1);
                sends.announce();
            }
            false => sends.retire(1),
        }
        let byte_len = if code == Code::Ok { wqe.length } else { 0 };
        let cqe = Cqe { byte_len, ..self.blank(qp, wqe.wc_opcode(), wqe.wr_id, code) };
        self.stage(qp, cqe);
    }

    fn complete_receive(&mut self, qp: QpKey, from: &Peer, arrival: Arrival<LocalData>) {
        let opcode = if arrival.is_write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
        let source = self.source(qp, from, arrival.wqe.is_none());
        let wr_id = arrival.wqe.map_or(0, |wqe| wqe.wr_id);
        let mut cqe = Cqe {
            byte_len: arrival.length,
            src_qpn: arrival.src_qpn,
            timestamp: source.pack(),
            ..self.blank(qp, opcode, wr_id, arrival.code)
        };
        if let (Code::Ok, Some(imm)) = (arrival.code, arrival.imm) {
            cqe.extra = CqeExtra::Imm(imm);
        }
        self.stage(qp, cqe);
    }

    fn random(&mut self) -> u32 {
        self.around.random.next_u32()
    }

    fn count(&mut self, counter: Counter) {
        self.around.counters[counter as usize] += 1;
    }
}

impl Engine {
    /// Drives the endpoint, if there is one.
    fn with_srd<T>(
        &mut self,
        now: Time,
        link: Option<&mut (dyn Link + '_)>,
        discarded: Option<QpKey>,
        drive: impl FnOnce(&mut Endpoint<QpKey, LocalData>, &mut View<'_, '_>) -> T,
    ) -> Option<T> {
        let Engine { srd, memory, qps, by_number, shared, .. } = self;
        let Srd { endpoint, around } = &mut **srd.as_mut()?;
        let mut view = View { around, memory, qps, by_number, shared, link, now, discarded, packet: None };
        Some(drive(endpoint, &mut view))
    }

    /// Whether this is a QP of SRD.
    fn is_srd_qp(&self, key: QpKey) -> bool {
        self.srd.is_some() && self.qps.get(key).is_some_and(|slot| slot.io.service == QpType::Srd)
    }

    /// Takes what was posted to a QP of SRD. Returns whether it is one, and does not flush what is posted.
    pub(super) fn take_srd(&mut self, now: Time, key: QpKey) -> bool {
        if !self.is_srd_qp(key) {
            return false;
        }
        while let Some(slot) = self.qps.get_mut(key).filter(|slot| slot.qp.state() == QpState::Rts) {
            let (qpn, pd, rnr_retry) = (slot.io.qpn, slot.io.pd, slot.qp.attr().rnr_retry);
            let Some(wqe) = slot.io.sends.pop() else { return true };
            self.with_srd(now, None, None, |endpoint, view| {
                let SendOp::Srd { handle, dest_qpn, qkey, .. } = wqe.op else {
                    return view.complete_send(key, wqe, Code::UnsupportedOp);
                };
                let place = view.around.handles.places.get(usize::from(handle)).copied().flatten();
                let Some(to) = place.filter(|to| to.pd == pd) else {
                    return view.complete_send(key, wqe, Code::InvalidAh);
                };
                let place = ProcessSlot::of(dest_qpn).number() as u8;
                let peer = Peer { local: to.local, remote: to.remote, place };
                let post = Post { qp: key, qpn, dest_qpn, qkey, rnr_retry, wqe };
                endpoint.post(now, peer, post, view);
            });
        }
        self.qps.get(key).is_some_and(|slot| slot.qp.state() != QpState::Err)
    }

    /// A packet with an opcode of SRD, whose ICRC is verified.
    pub(super) fn on_srd(&mut self, now: Time, datagram: &Datagram<'_>) -> Result<(), DropReason> {
        if self.srd.is_none() {
            return Err(DropReason::Malformed);
        }
        let packet = SrdPacket::parse(datagram.bytes).map_err(|_| DropReason::Malformed)?;
        let headers = &packet.headers;
        if !headers.bth.pkey.matches(Pkey::DEFAULT) {
            return Err(DropReason::Pkey);
        }
        if let Some(slot) = self.config.slot
            && slot != ProcessSlot::of(headers.bth.dest_qpn)
        {
            return Err(DropReason::OtherProcess);
        }
        let place = ProcessSlot::of(headers.src_qpn).number() as u8;
        let peer = Peer { local: datagram.dst, remote: datagram.src, place };
        if datagram.dst.is_multicast() {
            return Err(DropReason::Multicast);
        }
        let from = (datagram.src, headers.src_qpn);
        let arrived = Arrived { own: datagram.dst, from, body: headers.body };
        self.with_srd(now, None, None, |endpoint, view| {
            view.packet = Some(arrived);
            endpoint.on_packet(now, peer, &packet, view);
        });
        Ok(())
    }

    /// Sends what there is to send.
    pub(super) fn transmit_srd(&mut self, now: Time, link: &mut dyn Link, budget: Budget, step: &mut Step) {
        let budget = budget.transmit.saturating_sub(step.sent);
        let progress =
            self.with_srd(now, Some(link), None, |endpoint, view| endpoint.poll_transmit(now, budget, view));
        if let Some(progress) = progress {
            step.sent += progress.sent;
            step.more |= progress.more && !progress.full;
            if progress.full {
                link.flush(now);
                step.more |= !link.is_blocked();
            }
        }
    }

    pub(super) fn run_srd_timers(&mut self, now: Time) {
        if self.srd.as_ref().is_some_and(|srd| srd.poll_timeout() <= now) {
            self.with_srd(now, None, None, |endpoint, view| endpoint.on_timeout(now, view));
        }
    }

    /// What a change of a QP means for its messages of SRD, and its attributes as SRD has them.
    pub(super) fn srd_attributes(
        &mut self,
        now: Time,
        key: QpKey,
        mut mask: AttrMask,
        mut attr: QpAttr,
    ) -> (AttrMask, QpAttr) {
        if self.is_srd_qp(key) && mask.contains(AttrMask::STATE) {
            match attr.state {
                QpState::Reset | QpState::Err => self.flush_srd(now, key, attr.state == QpState::Err),
                // Who does not say how often waits for ever.
                QpState::Rts
                    if !mask.contains(AttrMask::RNR_RETRY) && self.qps[key].qp.state() == QpState::Rtr =>
                {
                    mask |= AttrMask::RNR_RETRY;
                    attr.rnr_retry = 7;
                }
                _ => {}
            }
        }
        (mask, attr)
    }

    /// A QP of SRD goes to ERR; or to RESET or away, and then nothing of it completes.
    pub(super) fn flush_srd(&mut self, now: Time, key: QpKey, completes: bool) {
        if !self.is_srd_qp(key) {
            return;
        }
        let discarded = (!completes).then_some(key);
        self.with_srd(now, None, discarded, |endpoint, view| {
            endpoint.flush(key, view);
            let spare = std::mem::take(&mut view.around.spare);
            for (owner, wqe) in spare {
                if owner == key {
                    let cqe = view.blank(key, WcOpcode::Recv, wqe.wr_id, Code::Flushed);
                    view.stage(key, cqe);
                } else {
                    view.around.spare.push((owner, wqe));
                }
            }
        });
        if !completes {
            self.shared.staged.forget(key);
        }
    }

    /// A QP is gone.
    pub(super) fn forget_srd(&mut self, key: QpKey) {
        if let Some(srd) = &mut self.srd {
            srd.around.unsolicited.remove(&key);
        }
    }

    /// WRITEs with immediate data to this QP take no receive.
    pub fn set_unsolicited(&mut self, key: QpKey) {
        if let Some(srd) = &mut self.srd {
            srd.around.unsolicited.insert(key);
        }
    }

    /// Counts a handle of an address in a protection domain, and gives its number.
    ///
    /// # Errors
    /// There are too many, or the device has no SRD.
    pub fn add_handle(&mut self, pd: PdId, local: IpAddr, remote: IpAddr) -> Result<u16, ControlError> {
        self.srd.as_mut().ok_or(ControlError::Unsupported)?.around.handles.add(pd, local, remote)
    }

    /// One handle less.
    pub fn remove_handle(&mut self, number: u16) {
        if let Some(srd) = &mut self.srd {
            srd.around.handles.remove(number);
        }
    }

    /// The address of a sender without a handle.
    pub fn stranger(&self, number: u32) -> Option<IpAddr> {
        self.srd.as_ref()?.around.strangers.get(number as usize).copied()
    }

    /// The counters of SRD, and the number of its connections; nothing, if the device has no SRD.
    pub fn srd_counters(&self) -> Option<(usize, impl Iterator<Item = (Counter, u64)> + '_)> {
        let srd = self.srd.as_ref()?;
        let counters = Counter::ALL.iter().map(|&counter| (counter, srd.around.counters[counter as usize]));
        Some((srd.endpoint.connections(), counters))
    }
}

/// Whether a datagram is a packet of SRD by which a peer asks for something.
pub(super) fn is_srd_request(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|&byte| {
        is_srd(byte) && SrdOpcode::from_byte(byte).is_some_and(|opcode| opcode.is_numbered())
    })
}
