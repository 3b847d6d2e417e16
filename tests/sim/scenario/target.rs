//! The machine as what scripts are played on.

use std::time::Duration;

use softrnic_engine::{CqeExtra, Event as Raised, QpInit, ReceiveSource, RecvRequest, SrqInit};
use softrnic_memory::{Access as Rights, MrSpec as Region, MwType, PreparedPages};
use softrnic_script::{
    Access, Completion, Event, Keys, MrSpec, Outgoing, Place, QpNumbers, QpSpec, Queue, Received, Request,
    Right, Served, Server, Service, Setting, Sge, State, Target,
};
use softrnic_transport::{AttrMask, QpAccess, QpAttr, QpEvent, QpState, QpType};
use softrnic_wire::{Mtu, Psn, Qpn, RnrTimer};

use super::machine::{Actor, Machine, Memory, REMOTE, Result, broken};
use super::post;
use crate::arena::Span;
use crate::pages::Pages;
use crate::world::{ALL_ACCESS, Agreement, Region as Known, mask_to};

impl Target for Machine {
    fn option(&mut self, setting: Setting) -> Result {
        let transport = &mut self.config.transport;
        match setting {
            Setting::EarlyRetransmission(on) => transport.early_retransmission = on,
            Setting::Congestion(on) => transport.congestion_control = on,
            Setting::ReadChunk(bytes) => transport.read_chunk = bytes,
            Setting::CnpInterval(microseconds) => transport.cnp_interval_us = microseconds,
            Setting::SafeCopies(on) => self.config.safe_copies = on,
            Setting::SelectiveRecovery(on) => transport.selective_recovery = on,
            Setting::Paths(count) => (transport.paths, transport.early_retransmission) = (count, true),
            Setting::CqPlaces(places) => self.cq_places = places,
            Setting::HiddenHeaders(on) => self.options.sees_ip_header = !on,
            Setting::Window(bytes) => {
                (self.config.window.initial, self.config.window.max) = (bytes, bytes);
            }
        }
        Ok(())
    }

    fn server(&mut self, kind: Server) -> Result<Served> {
        self.start_server(kind)
    }

    fn next_message(&mut self, after: Option<Duration>) -> Result<Received> {
        self.next_message(after).map(Machine::received)
    }

    fn unexpected_message(&mut self) -> Result<Option<Received>> {
        self.settle();
        Ok(self.messages.pop_front().map(Machine::received))
    }

    fn create_qp(&mut self, spec: &QpSpec) -> Result<QpNumbers> {
        let cq = self.cq();
        let service = match spec.service {
            Service::Rc => QpType::Rc,
            Service::Uc => QpType::Uc,
            Service::Ud => QpType::Ud,
            Service::XrcInitiator => QpType::XrcInitiator,
            Service::XrcTarget => QpType::XrcTarget,
        };
        let receive = match (&spec.srq, service) {
            (Some(srq), _) => {
                ReceiveSource::Shared(self.srqs.get(srq).ok_or_else(|| broken("no such SRQ"))?.key)
            }
            (None, QpType::XrcTarget) => ReceiveSource::Xrc(self.xrcd.ok_or_else(|| broken("no domain"))?),
            (None, QpType::XrcInitiator) => ReceiveSource::None,
            (None, _) => ReceiveSource::Own(spec.receives),
        };
        let attr = self.attributes(spec);
        let wanted = state(spec.state);
        let world = self.world();
        let node = &mut world.nodes[0];
        let init =
            QpInit { service, pd: node.pd, send_cq: cq, recv_cq: cq, max_send_wr: spec.depth, receive };
        let handle = node.engine.create_qp(init).map_err(broken)?;
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if next as u8 <= wanted as u8 {
                world.modify(0, handle.key, mask_to(service, next), &QpAttr { state: next, ..attr });
            }
        }
        if matches!(wanted, QpState::Sqd | QpState::Err) {
            world.go(0, handle.key, wanted);
        }
        let numbers = QpNumbers { ours: handle.qpn.get(), peer: attr.dest_qpn.get() };
        self.qps.push((spec.name.clone(), Actor { handle, service, attr }));
        self.settle();
        Ok(numbers)
    }

    fn create_srq(&mut self, name: &str, places: u32, xrc: bool, elsewhere: bool) -> Result<u32> {
        let (cq, xrcd, other) = (self.cq(), self.xrcd, self.other_pd);
        let node = self.node();
        let xrc = xrcd.filter(|_| xrc).map(|xrcd| (xrcd, cq));
        let pd = if elsewhere { other.ok_or_else(|| broken("no PD"))? } else { node.pd };
        let init = SrqInit { pd, max_wr: places as usize, xrc };
        let srq = node.engine.create_srq(init).map_err(broken)?;
        let number = srq.srqn.get();
        self.srqs.insert(name.into(), srq);
        Ok(number)
    }

    fn limit(&mut self, srq: &str, limit: u32) -> Result {
        let key = self.srqs.get(srq).ok_or_else(|| broken("no such SRQ"))?.key;
        self.node().engine.set_srq_limit(key, limit as usize).map_err(broken)
    }

    fn create_mr(&mut self, spec: &MrSpec) -> Result<Keys> {
        let other = self.other_pd();
        let node = self.node();
        let span = node.arena.take(spec.len as usize, 4096);
        let span = span.ok_or_else(|| broken("the NIC's application has no such memory"))?;
        let pd = if spec.elsewhere { other.ok_or_else(|| broken("no PD"))? } else { node.pd };
        let iova = node.arena.address() as u64 + span.offset as u64;
        let access = rights(spec);
        let region = Region { range: node.arena.part(span), iova, access };
        let keys = node.engine.memory().reg_mr(pd, region).map_err(broken)?;
        node.arena.expose(span);
        let base = if spec.zero_based { 0 } else { iova };
        self.remember(&spec.name, span, Known { lkey: keys.lkey, rkey: keys.rkey, base })
    }

    fn create_window(&mut self, _name: &str, kind: u8) -> Result<u32> {
        let kind = if kind == 1 { MwType::Type1 } else { MwType::Type2 };
        let node = self.node();
        Ok(node.engine.memory().alloc_mw(node.pd, kind).map_err(broken)?.0)
    }

    fn create_mapping(&mut self, name: &str, pages: usize) -> Result<Keys> {
        let mapping = Pages::new(pages);
        let node = self.node();
        let base = mapping.range().addr() as u64;
        let region = Region { range: mapping.range(), iova: base, access: ALL_ACCESS | Rights::ON_DEMAND };
        let keys = node.engine.memory().reg_mr(node.pd, region).map_err(broken)?;
        self.mappings.insert(name.into(), mapping);
        self.remember(name, Span { offset: 0, len: 0 }, Known { lkey: keys.lkey, rkey: keys.rkey, base })
    }

    fn create_fast_mr(&mut self, name: &str, mapping: &str) -> Result<Keys> {
        let range = self.mappings.get(mapping).ok_or_else(|| broken("no such mapping"))?.range();
        let base = range.addr() as u64;
        let node = self.node();
        let keys = node.engine.memory().alloc_mr(node.pd, 8).map_err(broken)?;
        PreparedPages::new(&[range])
            .and_then(|pages| node.engine.memory().map_pages(keys.lkey, &pages, 4096, base))
            .map_err(broken)?;
        self.remember(name, Span { offset: 0, len: 0 }, Known { lkey: keys.lkey, rkey: keys.rkey, base })
    }

    fn unmap(&mut self, mapping: &str, page: usize) -> Result {
        self.mappings.get(mapping).ok_or_else(|| broken("no such mapping"))?.unmap(page);
        Ok(())
    }

    fn deregister(&mut self, memory: &str) -> Result {
        let lkey = self.known(memory)?.region.lkey;
        self.node().engine.memory().dereg_mr(lkey).map_err(broken)
    }

    fn modify(&mut self, qp: &str, wanted: State, notify: bool) -> Result<bool> {
        let wanted = state(wanted);
        let mut mask = AttrMask::STATE;
        let actor = self.actor(qp)?;
        let (key, service, mut attr) = (actor.handle.key, actor.service, actor.attr);
        match wanted {
            QpState::Sqd if notify => {
                mask = mask.union(AttrMask::EN_SQD_ASYNC_NOTIFY);
                attr.sqd_notify = true;
            }
            QpState::Init | QpState::Rtr => mask = mask_to(service, wanted),
            QpState::Rts if self.node().state(key) == QpState::Rtr => mask = mask_to(service, wanted),
            _ => {}
        }
        let world = self.world();
        let now = world.now;
        let result = world.nodes[0].engine.modify_qp(now, key, mask, &QpAttr { state: wanted, ..attr });
        self.settle();
        Ok(result.is_ok())
    }

    fn destroy_qp(&mut self, qp: &str) -> Result {
        let key = self.actor(qp)?.handle.key;
        let world = self.world();
        let now = world.now;
        world.nodes[0].engine.destroy_qp(now, key).map_err(broken)?;
        self.settle();
        Ok(())
    }

    fn destroy_srq(&mut self, srq: &str) -> Result {
        let key = self.srqs.get(srq).ok_or_else(|| broken("no such SRQ"))?.key;
        self.node().engine.destroy_srq(key).map(drop).map_err(broken)
    }

    fn write(&mut self, place: &Place, bytes: &[u8]) -> Result {
        let span = self.span(place, bytes.len())?;
        self.node().arena.poke(span, bytes);
        Ok(())
    }

    fn read(&mut self, place: &Place, len: usize) -> Result<Vec<u8>> {
        let span = self.span(place, len)?;
        Ok(self.node().arena.read(span))
    }

    fn untouched(&mut self, place: &Place, len: usize) -> Result<Vec<u8>> {
        let span = self.span(place, len)?;
        Ok(self.node().arena.expected(span))
    }

    fn post(&mut self, qp: &str, request: Request) -> Result {
        let path = self.actor(qp)?.attr.path;
        let request = post::request(&request, path);
        let actor = self.actor(qp)?;
        let index = actor.handle.key.index();
        actor.handle.sends.push(request).map_err(|_| broken("the send queue is full"))?;
        self.ring_doorbell(index);
        Ok(())
    }

    fn receive(&mut self, queue: Queue<'_>, wr_id: u64, sges: Vec<Sge>) -> Result {
        let length = sges.iter().map(|sge| sge.length).sum();
        let request = RecvRequest { wr_id, data: post::local(&sges), length };
        match queue {
            Queue::Shared(name) => {
                let srq = self.srqs.get_mut(name).ok_or_else(|| broken("no such SRQ"))?;
                srq.receives.push(request).map_err(|_| broken("the SRQ is full"))
            }
            Queue::Own(name) => {
                let actor = self.actor(name)?;
                let index = actor.handle.key.index();
                let ring = actor.handle.receives.as_mut();
                let ring = ring.ok_or_else(|| broken("the QP has no receive queue"))?;
                ring.push(request).map_err(|_| broken("the receive queue is full"))?;
                self.ring_doorbell(index);
                Ok(())
            }
        }
    }

    fn inject(&mut self, packet: Outgoing) -> Result {
        self.send(packet)
    }

    fn burst(&mut self, begin: bool) -> Result {
        self.settle();
        self.burst = begin;
        Ok(())
    }

    fn next_packet(&mut self, after: Option<Duration>) -> Result<Received> {
        let seen = self.next_seen(after)?;
        Ok(Machine::received(seen))
    }

    fn unexpected_packet(&mut self) -> Result<Option<Received>> {
        self.settle();
        Ok(self.seen.pop_front().map(Machine::received))
    }

    fn forget_packets(&mut self) -> Result {
        self.settle();
        self.seen.clear();
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result {
        self.advance(time);
        Ok(())
    }

    fn rest(&mut self) -> Result {
        self.pass(Duration::from_secs(60))
    }

    fn next_completion(&mut self, after: Option<Duration>) -> Result<Completion> {
        Ok(completion(&self.next_cqe(after)?))
    }

    fn unexpected_completion(&mut self) -> Result<Option<Completion>> {
        Ok(self.cqes.pop_front().as_ref().map(completion))
    }

    fn next_event(&mut self, _expected: bool) -> Result<Option<(String, Event)>> {
        let of_server = |event: &Raised, machine: &Machine| match event {
            Raised::Qp(key, _) => machine.served.iter().any(|(_, handle)| handle.key == *key),
            _ => false,
        };
        let event = loop {
            match self.take_event() {
                None => return Ok(None),
                Some(event) if of_server(&event, self) => {}
                Some(event) => break event,
            }
        };
        let of = |name: Option<&String>| name.cloned().unwrap_or_else(|| "an unknown object".into());
        Ok(Some(match event {
            Raised::Qp(key, event) => {
                let found = self.qps.iter().find(|(_, actor)| actor.handle.key == key);
                (of(found.map(|(name, _)| name)), qp_event(event))
            }
            Raised::SrqLimit(key) => {
                let found = self.srqs.iter().find(|(_, srq)| srq.key == key);
                (of(found.map(|(name, _)| name)), Event::SrqLimit)
            }
            Raised::CqError(_) => ("cq".into(), Event::CqError),
            other => return Err(broken(format!("raised: {other:?}"))),
        }))
    }

    fn state(&mut self, qp: &str) -> Result<State> {
        self.settle();
        let key = self.actor(qp)?.handle.key;
        let found = self.node().state(key);
        let known = State::NAMES.iter().map(|(_, known)| *known).find(|known| state(*known) == found);
        known.ok_or_else(|| broken(format!("it is {found:?}")))
    }

    fn look_again(&mut self) -> bool {
        false
    }

    fn counter(&mut self, name: &str) -> Result<Option<u64>> {
        self.settle();
        let mut counters = self.node().engine.counters();
        let found = counters.find(|(counter, _)| counter.name() == name).map(|(_, count)| count);
        found.map(Some).ok_or_else(|| broken("there is no such counter"))
    }

    fn dropped(&mut self, reason: &str) -> Result<Option<u64>> {
        self.settle();
        let mut drops = self.node().engine.drops();
        let found = drops.find(|(known, _)| known.name() == reason).map(|(_, count)| count);
        found.map(Some).ok_or_else(|| broken("there is no such reason"))
    }

    fn usage(&mut self, what: &str) -> Result<Option<u64>> {
        self.settle();
        let usage = self.node().engine.usage();
        Ok(Some(match what {
            "in_flight" => usage.in_flight,
            "responses" => usage.responses as u64,
            "saved" => usage.saved as u64,
            "timers" => usage.timers as u64,
            other => return Err(broken(format!("`{other}` is nothing that is held"))),
        }))
    }

    /// No memory may have changed that was not exposed.
    fn finish(&mut self) -> Result {
        self.node().arena.verify_all();
        Ok(())
    }
}

impl Machine {
    /// The attributes of a QP; `dest_qpn` is a number of the script's own.
    fn attributes(&mut self, spec: &QpSpec) -> QpAttr {
        let peer_qpn = Qpn::new(0xA00 + self.qps.len() as u32);
        let agreement = Agreement {
            mtu: Mtu::from_bytes(spec.mtu).expect("checked with the script"),
            timeout: spec.timeout,
            retry_cnt: spec.retry_cnt,
            rnr_retry: spec.rnr_retry,
            rnr_timer: spec.min_rnr_timer,
            rd_atomic: spec.max_rd_atomic,
            tos: spec.tos,
        };
        let psns = (Psn::new(spec.sq_psn), Psn::new(spec.rq_psn));
        let mut attr = self.world().attributes(0, 0, peer_qpn, &agreement, psns);
        attr.path.dst = REMOTE.into();
        attr.min_rnr_timer = RnrTimer::new(spec.min_rnr_timer);
        attr.max_dest_rd_atomic = spec.max_dest_rd_atomic;
        attr.access = QpAccess {
            remote_read: spec.access.has(Right::RemoteRead),
            remote_write: spec.access.has(Right::RemoteWrite),
            remote_atomic: spec.access.has(Right::RemoteAtomic),
            flush_global: spec.access.has(Right::Flush),
            flush_persistent: false,
        };
        attr
    }

    fn remember(&mut self, name: &str, span: Span, region: Known) -> Result<Keys> {
        self.memory.insert(name.into(), Memory { span, region });
        Ok(Keys { lkey: region.lkey.0, rkey: region.rkey.0, base: region.base })
    }

    fn span(&mut self, place: &Place, len: usize) -> Result<Span> {
        let memory = self.known(&place.memory)?;
        Ok(Span { offset: memory.span.offset + place.offset as usize, len })
    }

    fn ring_doorbell(&mut self, index: usize) {
        let world = self.world();
        let now = world.now;
        world.nodes[0].engine.on_doorbell(now, index);
        self.settle();
    }
}

fn rights(spec: &MrSpec) -> Rights {
    let known = [
        (Right::LocalWrite, Rights::LOCAL_WRITE),
        (Right::RemoteWrite, Rights::REMOTE_WRITE),
        (Right::RemoteRead, Rights::REMOTE_READ),
        (Right::RemoteAtomic, Rights::REMOTE_ATOMIC),
        (Right::Bind, Rights::MW_BIND),
        (Right::Flush, Rights::FLUSH_GLOBAL),
    ];
    let of = |access: Access| known.into_iter().filter(move |(right, _)| access.has(*right));
    let mut rights = of(spec.access).fold(Rights::empty(), |all, (_, right)| all | right);
    rights.set(Rights::ZERO_BASED, spec.zero_based);
    rights.set(Rights::ON_DEMAND, spec.on_demand);
    rights
}

fn state(state: State) -> QpState {
    match state {
        State::Reset => QpState::Reset,
        State::Init => QpState::Init,
        State::Rtr => QpState::Rtr,
        State::Rts => QpState::Rts,
        State::Sqd => QpState::Sqd,
        State::Sqe => QpState::Sqe,
        State::Err => QpState::Err,
    }
}

fn qp_event(event: QpEvent) -> Event {
    match event {
        QpEvent::CommunicationEstablished => Event::CommunicationEstablished,
        QpEvent::SendQueueDrained => Event::SendQueueDrained,
        QpEvent::LastWqeReached => Event::LastWqeReached,
        QpEvent::Fatal => Event::QpFatal,
        QpEvent::RequestError => Event::RequestError,
        QpEvent::AccessError => Event::AccessError,
    }
}

fn completion(cqe: &softrnic_engine::Cqe) -> Completion {
    let (imm, invalidated) = match cqe.extra {
        CqeExtra::None | CqeExtra::Failed(_) => (None, None),
        CqeExtra::Imm(imm) => (Some(u32::from_be_bytes(imm.0)), None),
        CqeExtra::Invalidated(key) => (None, Some(key.0)),
    };
    Completion {
        wr_id: cqe.wr_id,
        status: format!("{:?}", cqe.status),
        opcode: Some(format!("{:?}", cqe.opcode)),
        byte_len: Some(cqe.byte_len.into()),
        src_qpn: Some(cqe.src_qpn.get().into()),
        qpn: cqe.qpn.get(),
        imm,
        invalidated,
    }
}
