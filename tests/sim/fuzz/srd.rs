//! A NIC with SRD is fed packets of SRD whose ICRC is right, by a peer that knows the tags of its connections, while the
//! application posts, registers, binds and fails queue pairs. It never panics, never writes or reveals what it must not, and counts
//! every datagram.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use softrnic_engine::{
    EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest, SrdConfig, SrdCounter,
};
use softrnic_link::sim::{Path, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_memory::Sge;
use softrnic_transport::{QpAttr, QpState, QpType, RemoteBuffer, SendOp, SrdVerb};
use softrnic_wire::{
    Bth, Imm, Pad, Psn, Qkey, Qpn, Rkey, SRD_WINDOW, SrdBody, SrdHeaders, SrdMessage, SrdPacket, SrdPart,
    SrdPsn, SrdRemote, seal,
};

use super::Choices;
use super::hostile::memory::{ARENA, Memory, leaks, tame};
use crate::world::{Node, QKEY, World, empty_send};

const NIC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// What the peer calls its connections.
const TAGS: [u32; 2] = [0x1111_1111, 0x2222_2222];
const QUEUE: usize = 8;

/// What the peer has learnt from what the NIC sent.
#[derive(Clone, Copy, Default)]
struct Learnt {
    tag: u32,
    psn: u32,
    message: u32,
    /// One past the last number that the peer has used.
    next: u32,
}

struct Scene {
    world: World,
    peer: SimLink,
    qps: [QpHandle; 2],
    memory: Memory,
    handle: u16,
    learnt: Learnt,
}

/// Takes the bytes as what the peer sends and the application does.
pub fn srd(data: &[u8]) {
    let mut choices = Choices(data);
    let mut scene = Scene::new(choices.byte());
    let mut steps = 0;
    while !choices.is_empty() && steps < 400 {
        steps += 1;
        match choices.byte() % 16 {
            0..=7 => scene.packet(&mut choices),
            8 | 9 => scene.post(&mut choices),
            10 | 11 => scene.receive(&mut choices),
            12 => scene.acknowledge(),
            13 => scene.time(&mut choices),
            14 => scene.change_qp(&mut choices),
            _ => {
                let qpn = scene.qps[usize::from(choices.byte() & 1)].qpn;
                scene.memory.change(&mut scene.world.nodes[0], qpn, &mut choices);
            }
        }
        if choices.byte() % 4 > 0 {
            scene.settle();
        }
    }
    scene.settle();
    scene.every_datagram_is_counted();
}

impl Scene {
    fn new(options: u8) -> Scene {
        let mut world = World::new(1, Path { delay: Duration::ZERO, ..Path::default() });
        let config = EngineConfig {
            srd: Some(SrdConfig { max_message: 2_000, max_rdma: 4_096, ..SrdConfig::default() }),
            ..EngineConfig::with_seed(7)
        };
        let sim = SimOptions {
            sees_ip_header: options & 1 != 0,
            transmit_buffer: if options & 2 != 0 { 16 << 10 } else { 64 << 10 },
            ..SimOptions::default()
        };
        let mut node = Node::new(&world.fabric, NIC.into(), sim, config, ARENA);
        let memory = Memory::new(&mut node, &config);
        let handle = node.engine.add_handle(memory.pd, NIC.into(), PEER.into()).expect("a handle");
        let cq = node.create_cq(256);
        let init = QpInit {
            service: QpType::Srd,
            pd: memory.pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: QUEUE,
            receive: ReceiveSource::Own(QUEUE),
        };
        let qps = [(); 2].map(|()| node.engine.create_qp(init).expect("a QP"));
        if options & 4 != 0 {
            node.engine.set_unsolicited(qps[1].key);
        }
        world.nodes.push(node);
        let peer = world.fabric.attach(PEER.into(), SimOptions::default()).expect("a link");
        let mut scene = Scene { world, peer, qps, memory, handle, learnt: Learnt::default() };
        scene.bring_up(0);
        scene.bring_up(1);
        scene
    }

    fn bring_up(&mut self, qp: usize) {
        let attr = QpAttr { qkey: QKEY, ..QpAttr::default() };
        self.world.bring_up(0, self.qps[qp].key, QpType::Srd, &attr);
    }

    /// A packet of which every field is chosen, though often sensibly.
    fn packet(&mut self, choices: &mut Choices<'_>) {
        let (kind, mode) = (choices.byte(), choices.byte());
        let near = |known: u32, choices: &mut Choices<'_>| known.wrapping_add(choices.byte() as i8 as u32);
        let psn = match mode & 3 {
            0 | 1 => self.learnt.next,
            2 => near(self.learnt.next, choices),
            _ => near(self.learnt.psn, choices),
        };
        self.learnt.next = self.learnt.next.max(psn.wrapping_add(1));
        let una = if mode & 4 == 0 {
            psn.saturating_sub(u32::from(choices.byte()))
        } else {
            choices.number(4) as u32
        };
        let id =
            if mode & 8 == 0 { u32::from(choices.byte() % 4) } else { near(self.learnt.message, choices) };
        let message = SrdMessage { una: SrdPsn(una), id };
        let lengths = [0_u32, 1, 8, 256, 1000, 2000, 4096, 9000, u32::MAX];
        let (length, offset) =
            (choices.pick(&lengths), choices.pick(&[0, 0, 0, 8, 968, 1000, 4000, u32::MAX]));
        let qkey = if choices.byte().is_multiple_of(8) { Qkey(choices.number(4) as u32) } else { QKEY };
        let part = SrdPart { qkey, length, offset };
        let remote = self.remote(choices);
        let imm = (mode & 16 != 0).then_some(Imm([1, 2, 3, 4]));
        let code = choices.byte();
        let body = match kind % 11 {
            0 | 1 => SrdBody::Send(message, part, imm),
            2 => SrdBody::Write(message, part, remote, imm),
            3 => SrdBody::ReadRequest(message, part, remote),
            4 => SrdBody::ReadResponse(message, offset),
            5 => SrdBody::ReadFailure(message, code),
            6 => SrdBody::Cancel(message),
            7 => SrdBody::Acknowledge { latest: SrdPsn(psn), bits: [0; 8].map(|_: u64| choices.number(2)) },
            8 => SrdBody::Refuse { id, code },
            9 => SrdBody::Hello,
            _ => SrdBody::Reset,
        };
        let bytes = match body.message() {
            Some(_) if mode & 32 == 0 => choices.pick(&[0_usize, 8, 256, 968, 1000]),
            Some(_) => usize::from(choices.byte()),
            None => 0,
        };
        let mut payload = choices.take(bytes).to_vec();
        payload.resize(bytes, 7);
        tame(&mut payload);
        let dst_tag = if mode & 64 == 0 { self.learnt.tag } else { choices.pick(&[0, 0, TAGS[0]]) };
        let headers = SrdHeaders {
            bth: Bth {
                pad: Pad::for_payload(payload.len()),
                ..Bth::new(self.destination(choices), Psn::new(psn))
            },
            src_qpn: Qpn::new(0x20 + u32::from(code & 1)),
            src_tag: choices.pick(&[TAGS[0], TAGS[0], TAGS[0], TAGS[0], TAGS[1], 0]),
            dst_tag,
            psn: SrdPsn(psn),
            body,
        };
        let cut = if mode & 128 == 0 { 0 } else { usize::from(choices.byte() % 64) };
        self.send(&headers, &payload, cut);
    }

    fn destination(&self, choices: &mut Choices<'_>) -> Qpn {
        let [one, other] = self.qps.each_ref().map(|qp| qp.qpn);
        choices.pick(&[one, one, one, other, other, Qpn::new(0x77)])
    }

    /// Memory that exists, with places over its edges; or none.
    fn remote(&mut self, choices: &mut Choices<'_>) -> SrdRemote {
        let table = self.world.nodes[0].engine.memory();
        let (rkey, base, len) = self.memory.remote(table, choices);
        let va = base.wrapping_add(choices.number(2) % (len as u64 + 32)).wrapping_sub(16)
            & !choices.pick(&[7, 7, 0]);
        let rkey = if choices.byte().is_multiple_of(16) { Rkey(choices.number(4) as u32) } else { rkey };
        SrdRemote { va, rkey }
    }

    /// The peer has all that the NIC has sent.
    fn acknowledge(&mut self) {
        let Learnt { tag, psn, next, .. } = self.learnt;
        let body = SrdBody::Acknowledge { latest: SrdPsn(psn), bits: [0; SRD_WINDOW as usize / 64] };
        let bth = Bth::new(self.qps[0].qpn, Psn::new(next));
        let all = SrdPsn(psn).plus(1);
        let headers =
            SrdHeaders { bth, src_qpn: Qpn::new(0x20), src_tag: TAGS[0], dst_tag: tag, psn: all, body };
        self.send(&headers, &[], 0);
    }

    fn send(&mut self, headers: &SrdHeaders, payload: &[u8], cut: usize) {
        let mut bytes = vec![0; headers.transport_len(payload.len())];
        let at = headers.emit(&mut bytes);
        bytes[at..at + payload.len()].copy_from_slice(payload);
        bytes.truncate(bytes.len().saturating_sub(cut).max(5));
        let (now, len) = (self.world.now, bytes.len());
        let flow = Flow { src: PEER.into(), dst: NIC.into(), sport: 0xC000, slot: None, tos: 0, ttl: 1 };
        let Ok(slot) = self.peer.reserve(now, &flow, len) else { return };
        slot.bytes.copy_from_slice(&bytes);
        seal(&slot.facts, slot.bytes);
        self.peer.commit(now);
        self.peer.flush(now);
    }

    fn post(&mut self, choices: &mut Choices<'_>) {
        let (which, length) =
            (usize::from(choices.byte() & 1), choices.pick(&[0_u32, 8, 256, 1000, 2000, 4096]));
        let remote = RemoteBuffer { va: 0x1000, rkey: Rkey(0x1234) };
        let imm = Some(Imm([5; 4]));
        let verb = choices.pick(&[
            SrdVerb::Send(None),
            SrdVerb::Send(imm),
            SrdVerb::Write(remote, None),
            SrdVerb::Write(remote, imm),
            SrdVerb::Read(remote),
        ]);
        let handle = if choices.byte().is_multiple_of(8) { choices.number(2) as u16 } else { self.handle };
        let op = SendOp::Srd { handle, dest_qpn: Qpn::new(0x20), qkey: QKEY, verb };
        let data = LocalData::Sges([self.local(choices, length)].into_iter().collect());
        let qp = &mut self.qps[which];
        let accepts = qp.state.load(Ordering::Relaxed) >= QpState::Rts as u8;
        if accepts && qp.sends.push(SendRequest { op, data, length, ..empty_send(1) }).is_ok() {
            self.world.nodes[0].engine.on_doorbell(self.world.now, qp.key.index());
        }
    }

    fn receive(&mut self, choices: &mut Choices<'_>) {
        let (which, length) = (usize::from(choices.byte() & 1), choices.pick(&[0_u32, 1, 256, 1000, 2000]));
        let data = LocalData::Sges([self.local(choices, length)].into_iter().collect());
        let ring = self.qps[which].receives.as_mut().expect("its own queue");
        let _ = ring.push(RecvRequest { wr_id: 2, data, length });
    }

    /// A local buffer in any region, but never one whose use is allowed and would change or reveal what must not be.
    fn local(&self, choices: &mut Choices<'_>, length: u32) -> Sge {
        let offset = u64::from(choices.byte()) * 16;
        let sge = self.memory.sge(choices, offset, length);
        let guarded = [self.memory.secret, self.memory.leased].map(|region| region.lkey);
        if guarded.contains(&sge.lkey) { self.memory.open_sge(offset, length) } else { sge }
    }

    /// The application fails a queue pair, or uses it anew.
    fn change_qp(&mut self, choices: &mut Choices<'_>) {
        let (which, what) = (usize::from(choices.byte() & 1), choices.byte());
        let key = self.qps[which].key;
        if what & 1 == 0 {
            self.world.go(0, key, QpState::Reset);
            self.bring_up(which);
        } else if self.world.nodes[0].state(key) != QpState::Reset {
            self.world.go(0, key, QpState::Err);
        }
    }

    fn time(&mut self, choices: &mut Choices<'_>) {
        let until = self.world.now + Duration::from_nanos(1 << (choices.byte() % 34));
        self.memory.before(&mut self.world.nodes[0]);
        let mut steps = 0;
        while steps < 100 && self.world.advance(until) {
            steps += 1;
            self.drain();
        }
        self.memory.after(&mut self.world.nodes[0]);
        self.world.now = self.world.now.max(until);
    }

    fn settle(&mut self) {
        self.memory.before(&mut self.world.nodes[0]);
        self.world.settle();
        self.memory.after(&mut self.world.nodes[0]);
        self.drain();
    }

    /// The peer looks at what the NIC has sent.
    fn drain(&mut self) {
        let learnt = &mut self.learnt;
        self.peer.receive(self.world.now, usize::MAX, &mut |datagram| {
            assert!(!leaks(datagram.bytes), "secret memory was sent: {:02x?}", datagram.bytes);
            let headers = SrdPacket::parse(datagram.bytes).expect("a packet of SRD").headers;
            learnt.tag = headers.src_tag;
            if let Some(message) = headers.body.message() {
                (learnt.psn, learnt.message) = (headers.psn.0, message.id);
            }
        });
        self.world.nodes[0].cqs.values_mut().for_each(|ring| while ring.pop().is_some() {});
        self.world.nodes[0].events.clear();
    }

    fn every_datagram_is_counted(&self) {
        let node = &self.world.nodes[0];
        let arrived = node.link.counters().rx_datagrams;
        let dropped: u64 = node.engine.drops().map(|(_, count)| count).sum();
        let (connections, mut counters) = node.engine.srd_counters().expect("SRD");
        let received =
            counters.find(|(counter, _)| *counter == SrdCounter::Received).map_or(0, |(_, count)| count);
        assert_eq!(dropped + received, arrived);
        assert!(connections <= 1, "one peer, one connection");
        let usage = node.engine.usage();
        assert!(usage.queue_pairs == 2 && usage.in_flight == 0, "{usage:?}");
    }
}
