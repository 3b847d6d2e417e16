//! The NIC as one QP sees it: implements the transport's [`Host`] with memory, queues and the link.

use std::collections::VecDeque;

use slotmap::SlotMap;
use softrnic_diagnosis::Denied;
use softrnic_link::{Flow, Link, ProcessSlot, TxError};
use softrnic_memory::{Access, BindSpec, FlushScope, MemoryTable, PdId, SharedBytes, append_shared};
use softrnic_transport::{
    AtomicOp, Completion, Concern, Counter, Domain, Failure, Host, LocalFault, LocalOp, LocalOpFault, NoRecv,
    Path, Payload, Peer, PeerProcess, QpAttr, QpEvent, Receive, RemoteAccess, RemoteFault, Status, Transmit,
    TransmitError,
};
use softrnic_wire::{
    Body, Feth, ICRC_LEN, IcrcForm, Placement, Qpn, Rkey, Selectivity, Srqn, Time, UdpFacts, rxe_flush_icrc,
};

use super::attention::Act;
use super::completion::{Cqe, CqeExtra};
use super::data::{LocalData, SgeList};
use super::objects::{CqKey, Event, QpIo, QpKey, ReceiveQueue, Srq, SrqKey};
use super::peers::Peers;
use super::shared::Shared;

/// A completion that is about to become visible.
#[derive(Clone, Copy)]
pub struct Staged {
    pub qp: QpKey,
    pub cq: CqKey,
    pub cqe: Cqe,
    pub solicited: bool,
}

/// Everything that a QP may access while it is driven.
pub struct HostView<'a, 'l> {
    pub io: &'a mut QpIo,
    pub memory: &'a mut MemoryTable,
    pub peers: &'a mut Peers,
    pub srqs: &'a mut SlotMap<SrqKey, Srq>,
    pub shared: &'a mut Shared,
    /// QPs that may have work, each once.
    pub active: &'a mut VecDeque<QpKey>,
    /// Absent while packets are received, since nothing is sent then.
    pub link: Option<&'a mut (dyn Link + 'l)>,
    pub now: Time,
    /// While a datagram is received whose payload is still with the peer: its bytes here, and all of it there.
    pub record: Option<(&'a [u8], SharedBytes<'a>)>,
}

/// Bytes that a NIC holds of requests that come before their turn. A QP that fills its reorder window with packets of 4 KiB has
/// 2 MiB.
pub const MAX_HELD: usize = 16 << 20;

/// Buffers of such requests that are kept for the next ones; each has room for a packet at most.
const MAX_SPARE_BUFFERS: usize = 64;

/// QPs that may ask in one step what their peers' NICs can do.
const MAX_LOSERS: usize = 16;

/// ECN field: ECN-capable, as senders set it.
const ECT_0: u8 = 0b10;
const ECN: u8 = 0b11;

impl HostView<'_, '_> {
    /// Marks the QP as having work.
    pub fn activate(&mut self) {
        if !self.io.active {
            self.io.active = true;
            self.active.push_back(self.io.key);
        }
    }

    /// The TOS of a packet. The application's own ECN bits are kept.
    fn marked(&self, tos: u8) -> u8 {
        if self.io.ecn_capable && tos & ECN == 0 { tos | ECT_0 } else { tos }
    }

    /// The XRC SRQ with this number, if it is in the QP's XRC domain.
    fn xrc_srq(&self, srqn: Srqn) -> Option<&Srq> {
        self.shared.xrc_srq(srqn, self.io.xrcd).and_then(|key| self.srqs.get(key))
    }

    /// How packets to a QP leave.
    fn flow(&self, path: &Path, to: Qpn) -> Flow {
        Flow {
            src: path.src,
            dst: path.dst,
            sport: path.sport,
            slot: Some(ProcessSlot::of(to)),
            tos: self.marked(path.tos),
            ttl: path.ttl,
        }
    }

    /// Whether the peer that the QP is connected to finds what it was shown although this process ends.
    pub fn sends_in_memory(&mut self, attr: &QpAttr) -> bool {
        let flow = self.flow(&attr.path, attr.dest_qpn);
        self.link.as_deref_mut().is_some_and(|link| link.sends_in_memory(self.now, &flow))
    }

    /// Where the payload of the packet that is received is.
    #[inline(always)]
    fn source<'b>(&'b self, payload: &'b [u8]) -> SharedBytes<'b> {
        let Some((datagram, record)) = self.record else { return payload.into() };
        let at = payload.as_ptr().addr().wrapping_sub(datagram.as_ptr().addr());
        // What is not of the datagram was made here.
        record.get(at..at.wrapping_add(payload.len())).unwrap_or_else(|| payload.into())
    }

    /// Writes for the peer.
    #[inline(always)]
    pub fn write_now(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteFault> {
        self.memory.write_remote(pd(domain), self.io.qpn, rkey, va, self.source(bytes)).map_err(|fault| {
            let range = (va, bytes.len() as u64);
            self.note_remote(domain, rkey, range, Access::REMOTE_WRITE, fault)
        })
    }

    /// Writes to the memory of a work request.
    #[inline(always)]
    pub fn scatter_now(
        &mut self,
        domain: Domain,
        sges: &SgeList,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LocalFault> {
        self.memory.scatter(pd(domain), sges, offset, self.source(bytes)).map_err(|fault| {
            self.note_local(pd(domain), sges, (offset, bytes.len() as u64), true, fault);
            LocalFault
        })
    }

    fn fill(&mut self, packet: &Transmit<'_, LocalData>) -> Result<(), TransmitError> {
        let payload_len = packet.payload.length();
        let len = packet.headers.transport_len(payload_len);
        let flow = self.flow(packet.path, packet.headers.bth.dest_qpn);
        let Some(link) = self.link.as_deref_mut() else { return Err(TransmitError::Full) };
        let is_sent_once = matches!(packet.headers.body, Body::Uc(_) | Body::Ud { .. });
        if is_sent_once && !link.has_room(self.now, &flow, len) {
            return Err(TransmitError::Full);
        }
        let mut reserved = link.reserve(self.now, &flow, len);
        let slot = match &mut reserved {
            Ok(slot) => slot,
            Err(TxError::Full) => return Err(TransmitError::Full),
            Err(TxError::TooLong) => return Err(TransmitError::TooLong),
            // To the transport the packet was lost in the network: it will try again.
            Err(TxError::Unreachable) => {
                self.io.in_memory = false;
                return Ok(());
            }
        };
        // Nobody sees it on its way, so nobody loses it.
        self.io.in_memory = !slot.wants_icrc;
        let at = packet.headers.emit(slot.bytes);
        let (body, tail) = slot.bytes[at..].split_at_mut(payload_len);
        match &packet.payload {
            Payload::None => {}
            Payload::Zeros(_) => body.fill(0),
            Payload::Bytes(bytes) => body.copy_from_slice(bytes),
            Payload::Local { data, offset, .. } => {
                if let Err(fault) = gather(self.memory, self.io, data, *offset, body) {
                    let range = (*offset, payload_len as u64);
                    if let LocalData::Sges(sges) = data {
                        self.note_local(self.io.pd, sges, range, false, fault);
                    }
                    return Err(TransmitError::Local(LocalFault));
                }
            }
            Payload::Remote { domain, rkey, va, .. } => {
                let read = self.memory.read_remote(pd(*domain), self.io.qpn, *rkey, *va, body);
                if let Err(fault) = read {
                    let range = (*va, payload_len as u64);
                    let fault = self.note_remote(*domain, *rkey, range, Access::REMOTE_READ, fault);
                    return Err(TransmitError::Remote(fault));
                }
            }
        }
        let pad = tail.len() - ICRC_LEN;
        if pad > 0 {
            tail[..pad].fill(0);
        }
        match packet.icrc {
            IcrcForm::Standard => slot.seal(),
            IcrcForm::RxeFlush => seal_as_rxe(&slot.facts, slot.bytes),
        }
        link.commit(self.now);
        self.io.counts.packets_sent += 1;
        self.io.counts.bytes_sent += len as u64;
        Ok(())
    }
}

fn seal_as_rxe(facts: &UdpFacts, packet: &mut [u8]) {
    let at = packet.len() - ICRC_LEN;
    let icrc = rxe_flush_icrc(facts, &packet[..at]);
    packet[at..].copy_from_slice(&icrc.to_le_bytes());
}

#[inline(always)]
pub(super) fn gather(
    memory: &MemoryTable,
    io: &QpIo,
    data: &LocalData,
    offset: u64,
    out: &mut [u8],
) -> Result<(), softrnic_memory::LocalFault> {
    use softrnic_memory::LocalFault::ListTooShort;
    match data {
        LocalData::Sges(sges) => memory.gather(io.pd, sges, offset, out),
        LocalData::Inline(bytes) => {
            let from = usize::try_from(offset).map_err(|_| ListTooShort)?;
            let to = from.checked_add(out.len()).ok_or(ListTooShort)?;
            out.copy_from_slice(bytes.get(from..to).ok_or(ListTooShort)?);
            Ok(())
        }
        LocalData::Bind(_) | LocalData::FastRegister(_) => Err(ListTooShort),
    }
}

/// The protection domain of a transport domain.
pub(super) fn pd(domain: Domain) -> PdId {
    PdId::new(domain.0)
}

fn flush_access(feth: Feth) -> Access {
    let mut access = Access::empty();
    if feth.placement.contains(Placement::GLOBAL_VISIBILITY) {
        access |= Access::FLUSH_GLOBAL;
    }
    if feth.placement.contains(Placement::PERSISTENCE) {
        access |= Access::FLUSH_PERSISTENT;
    }
    access
}

impl HostView<'_, '_> {
    /// Requests are complete, whose slots are not free yet.
    #[cold]
    #[inline(never)]
    fn retire_later(&mut self, count: u32) {
        match &mut self.shared.adversary {
            Some(adversary) if !self.io.sends.is_freed_by_polling() => adversary.owe(self.io.key, count),
            _ => self.io.sends.retire_unseen(count),
        }
    }
}

impl Host for HostView<'_, '_> {
    type Data = LocalData;

    fn transmit(&mut self, packet: Transmit<'_, LocalData>) -> Result<(), TransmitError> {
        self.fill(&packet)
    }

    fn loses_nothing(&self) -> bool {
        self.io.in_memory
    }

    fn show(&mut self) {
        if let Some(link) = self.link.as_deref_mut() {
            link.show();
        }
    }

    fn check_local(&mut self, data: &LocalData, sink: bool) -> Result<(), LocalFault> {
        match data {
            LocalData::Sges(sges) => {
                let allowed = sges.iter().try_for_each(|sge| self.memory.check_local(self.io.pd, sge, sink));
                allowed.map_err(|fault| {
                    self.note_local(self.io.pd, sges, (0, u64::MAX), sink, fault);
                    LocalFault
                })
            }
            LocalData::Inline(_) if sink => Err(LocalFault),
            _ => Ok(()),
        }
    }

    fn own_domain(&self) -> Domain {
        Domain(self.io.pd.get())
    }

    fn srq_domain(&self, srqn: Srqn) -> Option<Domain> {
        self.xrc_srq(srqn).map(|srq| Domain(srq.pd.get()))
    }

    #[inline(always)]
    fn scatter(
        &mut self,
        domain: Domain,
        data: &LocalData,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LocalFault> {
        match data {
            LocalData::Sges(sges) if self.shared.is_attended => {
                self.scatter_attended(domain, sges, offset, bytes)
            }
            LocalData::Sges(sges) => self.scatter_now(domain, sges, offset, bytes),
            _ => Err(LocalFault),
        }
    }

    fn execute(&mut self, op: LocalOp, data: &LocalData) -> Result<(), LocalOpFault> {
        let (qpn, pd) = (self.io.qpn, self.io.pd);
        let denied = match (op, data) {
            (LocalOp::Invalidate(rkey), _) => {
                self.memory.invalidate(qpn, pd, rkey, false).map_err(|error| Denied::Invalidate(rkey, error))
            }
            (LocalOp::BindWindow, LocalData::Bind(spec)) => {
                let spec: BindSpec = **spec;
                self.memory.bind_mw(qpn, pd, spec).map(|_| ()).map_err(Denied::Bind)
            }
            (LocalOp::FastRegister, LocalData::FastRegister(request)) => self
                .memory
                .fast_register(pd, request.lkey, request.new_key, request.access)
                .map(|_| ())
                .map_err(Denied::FastRegister),
            (LocalOp::BindWindow | LocalOp::FastRegister, _) => return Err(LocalOpFault),
        };
        denied.map_err(|denied| {
            self.note_operation(denied);
            LocalOpFault
        })
    }

    fn next_recv_length(&mut self) -> Option<u32> {
        let ring = match &mut self.io.receives {
            ReceiveQueue::Own(ring) => ring,
            ReceiveQueue::Shared(key) => &mut self.srqs.get_mut(*key)?.ring,
            ReceiveQueue::None => return None,
        };
        ring.peek(|wqe| wqe.length)
    }

    fn lacks_resources(&mut self) -> bool {
        match &mut self.shared.adversary {
            Some(adversary) => adversary.lacks_resources(self.io.key),
            None => false,
        }
    }

    fn take_recv(&mut self, srqn: Option<Srqn>) -> Result<Receive<LocalData>, NoRecv> {
        let key = match (&mut self.io.receives, srqn) {
            (ReceiveQueue::Own(ring), _) => {
                let wqe = ring.pop().ok_or(NoRecv::Empty)?;
                return Ok(Receive { wqe, domain: self.own_domain() });
            }
            (ReceiveQueue::Shared(key), _) => *key,
            (ReceiveQueue::None, None) => return Err(NoRecv::NoQueue),
            (ReceiveQueue::None, Some(srqn)) => {
                self.shared.xrc_srq(srqn, self.io.xrcd).ok_or(NoRecv::NoQueue)?
            }
        };
        let srq = self.srqs.get_mut(key).ok_or(NoRecv::NoQueue)?;
        let wqe = srq.ring.pop().ok_or(NoRecv::Empty)?;
        if srq.limit > 0 && srq.ring.len() < srq.limit {
            srq.limit = 0;
            self.shared.events.push(Event::SrqLimit(key));
        }
        Ok(Receive { wqe, domain: Domain(srq.pd.get()) })
    }

    fn has_srq(&self) -> bool {
        !matches!(self.io.receives, ReceiveQueue::Own(_))
    }

    fn check_remote(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        len: u64,
        need: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        let access = match need {
            RemoteAccess::Read => Access::REMOTE_READ,
            RemoteAccess::Write => Access::REMOTE_WRITE,
            RemoteAccess::Atomic => Access::REMOTE_ATOMIC,
            // A FLUSH of a whole region names no range.
            RemoteAccess::Flush(_) => return Ok(()),
        };
        self.memory
            .check_remote(pd(domain), self.io.qpn, rkey, va, len, access)
            .map_err(|fault| self.note_remote(domain, rkey, (va, len), access, fault))
    }

    #[inline(always)]
    fn write_remote(&mut self, domain: Domain, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), RemoteFault> {
        if self.shared.is_attended {
            return self.write_attended(domain, rkey, va, bytes);
        }
        self.write_now(domain, rkey, va, bytes)
    }

    fn atomic(&mut self, domain: Domain, rkey: Rkey, va: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        self.place_held();
        let (pd, qpn) = (pd(domain), self.io.qpn);
        let before = match op {
            AtomicOp::CompareSwap { compare, swap } => {
                self.memory.compare_swap(pd, qpn, rkey, va, compare, swap)
            }
            AtomicOp::FetchAdd { add } => self.memory.fetch_add(pd, qpn, rkey, va, add),
        };
        if self.shared.is_attended
            && let Ok(before) = before
        {
            self.tell_atomic(rkey, va, op, before);
        }
        before.map_err(|fault| self.note_remote(domain, rkey, (va, 8), Access::REMOTE_ATOMIC, fault))
    }

    fn atomic_write(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        bytes: [u8; 8],
    ) -> Result<(), RemoteFault> {
        self.place_held();
        if self.shared.is_attended {
            self.tell(&Act::Write { rkey, va, length: 8 });
        }
        self.memory
            .atomic_write(pd(domain), self.io.qpn, rkey, va, bytes)
            .map_err(|fault| self.note_remote(domain, rkey, (va, 8), Access::REMOTE_WRITE, fault))
    }

    fn flush_remote(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        len: u64,
        feth: Feth,
    ) -> Result<(), RemoteFault> {
        self.place_held();
        let scope = match feth.selectivity {
            Selectivity::Range => FlushScope::Range { va, len },
            _ => FlushScope::Region,
        };
        let access = flush_access(feth);
        let range = match scope {
            FlushScope::Range { va, len } => (va, len),
            FlushScope::Region => (va, 0),
        };
        self.memory
            .flush(pd(domain), self.io.qpn, rkey, scope, access)
            .map_err(|fault| self.note_remote(domain, rkey, range, access, fault))
    }

    fn invalidate_remote(&mut self, domain: Domain, rkey: Rkey) -> Result<(), RemoteFault> {
        self.place_held();
        self.memory.invalidate(self.io.qpn, pd(domain), rkey, true).map_err(|error| {
            self.note_invalidate(Denied::Invalidate(rkey, error));
            RemoteFault::Access
        })
    }

    fn complete(&mut self, completion: Completion, srqn: Option<Srqn>) {
        if self.shared.holds_slots && !completion.opcode.is_receive() {
            self.io.sends.announce();
        }
        let cq = match srqn {
            _ if !completion.opcode.is_receive() => self.io.send_cq,
            None => self.io.recv_cq,
            Some(srqn) => match self.xrc_srq(srqn).and_then(|srq| srq.xrc) {
                Some((_, cq)) => cq,
                None => return,
            },
        };
        let extra = match (completion.imm, completion.invalidated) {
            (Some(imm), _) => CqeExtra::Imm(imm),
            (None, Some(rkey)) => CqeExtra::Invalidated(rkey),
            (None, None) if completion.status != Status::Success => self.why(),
            (None, None) => CqeExtra::None,
        };
        let cqe = Cqe {
            wr_id: completion.wr_id,
            status: completion.status,
            opcode: completion.opcode,
            byte_len: completion.byte_len,
            extra,
            qpn: completion.qpn,
            src_qpn: completion.src_qpn,
            grh: completion.grh,
            ipv4: completion.grh && self.io.ipv4,
            timestamp: self.now.as_nanos(),
        };
        self.shared.stage(Staged { qp: self.io.key, cq, cqe, solicited: completion.solicited });
    }

    fn failed(&mut self, failure: Failure) {
        self.diagnose(failure);
    }

    fn concern(&mut self, concern: Concern) {
        self.warn(concern);
    }

    fn retire_sends(&mut self, count: u32) {
        match self.shared.holds_slots {
            true => self.retire_later(count),
            false => self.io.sends.retire(count),
        }
    }

    fn event(&mut self, event: QpEvent) {
        self.shared.events.push(Event::Qp(self.io.key, event));
    }

    fn peer_process(&mut self, path: &Path, qpn: Qpn, since: Time) -> PeerProcess {
        self.shared.processes.state(self.now, (path.dst, ProcessSlot::of(qpn)), since)
    }

    fn peer(&mut self) -> &mut Peer {
        self.peers.shared(self.io.peer)
    }

    fn note_loss(&mut self) {
        if self.shared.asks_peers && self.shared.losers.len() < MAX_LOSERS {
            self.shared.losers.push(self.io.key);
        }
    }

    fn ask_for_paths(&mut self) {
        self.note_loss();
    }

    fn reserve_held(&mut self, bytes: usize) -> bool {
        let fits = self.shared.held + bytes <= MAX_HELD;
        self.shared.held += if fits { bytes } else { 0 };
        fits
    }

    fn read_received(&self, payload: &[u8], to: &mut Vec<u8>) {
        append_shared(self.source(payload), to);
    }

    fn release_held(&mut self, bytes: usize) {
        self.shared.held = self.shared.held.saturating_sub(bytes);
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        self.shared.spare_buffers.pop().unwrap_or_default()
    }

    fn return_buffer(&mut self, mut buffer: Vec<u8>) {
        let spare = &mut self.shared.spare_buffers;
        if buffer.capacity() > 0 && spare.len() < MAX_SPARE_BUFFERS && spare.try_reserve(1).is_ok() {
            buffer.clear();
            spare.push(buffer);
        }
    }

    fn count(&mut self, counter: Counter) {
        self.shared.counters[counter as usize] += 1;
        let own = &mut self.io.counts;
        match counter {
            Counter::RetransmittedPacket => own.retransmitted += 1,
            Counter::SendRnrErr => own.rnr_sent += 1,
            Counter::RcvdRnrErr => own.rnr_received += 1,
            _ => {}
        }
    }
}
