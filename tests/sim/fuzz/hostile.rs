//! A whole NIC is fed hostile packets whose ICRC is right. It never panics, never writes where it may not,
//! holds no more than it should, and counts every datagram.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softrnic_link::sim::{Path, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_memory::{MrSpec, MwType, Sge};
use softrnic_nic::engine::{
    CqKey, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest, SrqHandle,
    SrqInit,
};
use softrnic_transport::{QpType, RemoteBuffer, SendExtra, SendOp};
use softrnic_wire::{
    Feth, Header, ICRC_LEN, Mtu, Opcode, Placement, Psn, ROCE_UDP_PORT, Selectivity, Srqn, UdpFacts, seal,
};

use super::Choices;
use crate::world::{Agreement, Node, QKEY, Region, World};

const NIC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Bytes of memory that the peer may reach; around it lies memory that it may not.
const REACHABLE: usize = 8192;

/// More than these a QP never holds.
const MOST_RESPONSES: usize = 1024 + 2;
const RD_ATOMIC: u8 = 4;

struct Target {
    qp: QpHandle,
    service: QpType,
}

struct Scene {
    world: World,
    peer: SimLink,
    targets: Vec<Target>,
    region: Region,
    window: u32,
    srqs: [SrqHandle; 2],
    cq: CqKey,
}

/// Each choice is a packet, a post, or time that passes.
pub fn hostile(data: &[u8]) {
    let mut choices = Choices(data);
    let mut scene = Scene::new(choices.byte());
    let mut steps = 0;
    while !choices.is_empty() && steps < 400 {
        steps += 1;
        match choices.byte() % 8 {
            0..=4 => scene.packet(&mut choices),
            5 => scene.post(&mut choices),
            6 => scene.receive(&mut choices),
            _ => scene.time(&mut choices),
        }
        if choices.byte() % 4 > 0 {
            scene.settle();
        }
    }
    scene.settle();
    scene.check();
}

impl Scene {
    fn new(options: u8) -> Scene {
        let mut world = World::new(1, Path { delay: Duration::ZERO, ..Path::default() });
        let mut config = EngineConfig::with_seed(7);
        config.transport.early_retransmission = options & 1 == 0;
        config.transport.congestion_control = options & 2 != 0;
        let sim = SimOptions {
            sees_ip_header: options & 4 != 0,
            transmit_buffer: 64 << 10,
            ..SimOptions::default()
        };
        let mut node = Node::new(&world.fabric, NIC.into(), sim, config, 4 * REACHABLE);
        // The peer knows one key, to a piece in the middle.
        for region in node.regions.drain(..) {
            node.engine.memory().dereg_mr(region.lkey).expect("deregistered");
        }
        let _before = node.arena.take(REACHABLE, REACHABLE).expect("memory");
        let span = node.arena.take(REACHABLE, REACHABLE).expect("memory");
        let base = node.arena.address() as u64 + span.offset as u64;
        let spec = MrSpec { range: node.arena.part(span), iova: base, access: crate::world::ALL_ACCESS };
        let keys = node.engine.memory().reg_mr(node.pd, spec).expect("a region");
        node.arena.expose(span);
        let region = Region { lkey: keys.lkey, rkey: keys.rkey, base };
        let window = node.engine.memory().alloc_mw(node.pd, MwType::Type2).expect("a window").0;
        let cq = node.create_cq(256);
        let xrcd = node.engine.create_xrcd();
        let pd = node.pd;
        let srqs = [None, Some((xrcd, cq))]
            .map(|xrc| node.engine.create_srq(SrqInit { pd, max_wr: 8, xrc }).expect("an SRQ"));
        world.nodes.push(node);
        let peer = world.fabric.attach(PEER.into(), SimOptions::default()).expect("a link");
        let mut scene = Scene { world, peer, targets: Vec::new(), region, window, srqs, cq };
        let shared = ReceiveSource::Shared(scene.srqs[0].key);
        for (service, receive) in [
            (QpType::Rc, ReceiveSource::Own(8)),
            (QpType::Rc, shared),
            (QpType::Uc, ReceiveSource::Own(8)),
            (QpType::Ud, ReceiveSource::Own(8)),
            (QpType::XrcTarget, ReceiveSource::Xrc(xrcd)),
            (QpType::XrcInitiator, ReceiveSource::None),
        ] {
            scene.create(service, receive);
        }
        scene
    }

    fn create(&mut self, service: QpType, receive: ReceiveSource) {
        let node = &mut self.world.nodes[0];
        let cq = self.cq;
        let init = QpInit { service, pd: node.pd, send_cq: cq, recv_cq: cq, max_send_wr: 8, receive };
        let qp = node.engine.create_qp(init).expect("a QP");
        let agreement = Agreement {
            mtu: Mtu::B256,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 1,
            rd_atomic: RD_ATOMIC,
            tos: 2,
        };
        let psns = (Psn::new(0xFF_FFF0), Psn::new(0xFF_FFF0));
        let mut attr = self.world.attributes(0, 0, qp.qpn, &agreement, psns);
        attr.path.dst = PEER.into();
        self.world.bring_up(0, qp.key, service, &attr);
        self.targets.push(Target { qp, service });
    }

    /// A packet whose every field is chosen, though often one that makes sense, and whose ICRC is right.
    fn packet(&mut self, choices: &mut Choices<'_>) {
        let target = usize::from(choices.byte()) % self.targets.len();
        let Target { qp, service } = &self.targets[target];
        let status = self.world.nodes[0].engine.query_qp(qp.key).expect("a QP").status;
        let (mode, low) = (choices.byte(), choices.byte());
        let transport = match service {
            QpType::Rc => 0x00,
            QpType::Uc => 0x20,
            QpType::Ud => 0x60,
            QpType::XrcInitiator | QpType::XrcTarget => 0xA0,
        };
        let opcode = if mode & 1 == 0 { transport | low & 0x1F } else { low };
        let is_response = matches!(low & 0x1F, 0x0D..=0x12);
        let near = if is_response { status.una } else { status.expected_psn };
        let psn = near + (choices.byte() as i8 as u32);
        let psn = if mode & 2 == 0 { near } else { psn };
        let len = match mode >> 2 & 3 {
            0 => 0,
            1 => usize::from(choices.byte()),
            2 => 256,
            _ => 8,
        };
        let flags =
            if mode & 0x10 == 0 { (len.wrapping_neg() as u8 & 3) << 4 | 0x40 } else { choices.byte() };
        let mut bytes = vec![opcode, flags, 0xFF, 0xFF, 0];
        bytes.extend(&qp.qpn.get().to_be_bytes()[1..]);
        bytes.push(choices.byte() & 0x80);
        bytes.extend(&psn.get().to_be_bytes()[1..]);
        let headers = Opcode::from_byte(opcode).map_or(&[][..], |opcode| opcode.info().headers);
        for &header in headers {
            let at = bytes.len();
            bytes.resize(at + header.size(), 0);
            let raw = choices.take(header.size());
            bytes[at..at + raw.len()].copy_from_slice(raw);
            if mode & 0x20 == 0 {
                self.make_sense(header, &mut bytes[at..], choices);
            }
        }
        let payload = choices.take(len);
        let padded = len + usize::from(flags >> 4 & 3);
        let end = bytes.len() + padded;
        bytes.extend(payload);
        bytes.resize(end + ICRC_LEN, 0x5A);
        if mode & 0x40 != 0 {
            bytes.truncate(bytes.len().saturating_sub(usize::from(choices.byte() % 32)).max(1));
        }
        self.send(bytes, mode & 0x80 == 0, choices.byte());
    }

    /// Puts values that exist into a header: a key, an address near the memory, a queue.
    fn make_sense(&self, header: Header, bytes: &mut [u8], choices: &mut Choices<'_>) {
        match header {
            Header::Reth | Header::AtomicEth => {
                let place = choices.number(2) % (REACHABLE as u64 + 64);
                let va = (self.region.base + place).wrapping_sub(16) & !u64::from(choices.byte() & 7);
                bytes[..8].copy_from_slice(&va.to_be_bytes());
                bytes[8..12].copy_from_slice(&self.region.rkey.0.to_be_bytes());
                if header == Header::Reth {
                    let dma = choices.pick(&[8_u32, 0, 4, 256, 300, 512, 1000, 8192, 1 << 31]);
                    bytes[12..16].copy_from_slice(&dma.to_be_bytes());
                }
            }
            Header::XrcEth => bytes[..4].copy_from_slice(&self.srqs[1].srqn.get().to_be_bytes()),
            Header::Deth => bytes[..4].copy_from_slice(&QKEY.0.to_be_bytes()),
            Header::Ieth => bytes[..4].copy_from_slice(&self.window.to_be_bytes()),
            _ => {}
        }
    }

    fn send(&mut self, bytes: Vec<u8>, sealed: bool, tos: u8) {
        let now = self.world.now;
        let flow = Flow { src: PEER.into(), dst: IpAddr::from(NIC), sport: 0xC000, tos, ttl: 1 };
        let Ok(slot) = self.peer.reserve(now, &flow, bytes.len()) else { return };
        slot.bytes.copy_from_slice(&bytes);
        let facts = UdpFacts { ip: slot.ip, src_port: slot.sport, dst_port: ROCE_UDP_PORT };
        if sealed && bytes.len() > ICRC_LEN {
            seal(&facts, slot.bytes);
        }
        self.peer.commit(now);
        self.peer.flush(now);
    }

    fn post(&mut self, choices: &mut Choices<'_>) {
        let target = usize::from(choices.byte()) % self.targets.len();
        let len = choices.pick(&[0_u32, 1, 8, 256, 300, 1000]);
        let kind = choices.byte() % 7;
        let remote = RemoteBuffer { va: 0x1000, rkey: self.region.rkey };
        let len = if (3..=5).contains(&kind) { 8 } else { len };
        let node = &mut self.world.nodes[0];
        let sge = Sge { addr: self.region.base, length: len, lkey: self.region.lkey };
        let feth = Feth { placement: Placement::GLOBAL_VISIBILITY, selectivity: Selectivity::Range };
        let Target { qp, service } = &mut self.targets[target];
        let op = match (*service, kind) {
            (QpType::Ud, _) => {
                let path = node.engine.query_qp(qp.key).expect("a QP").attr.path;
                SendOp::Datagram { path, dest_qpn: qp.qpn, qkey: QKEY, imm: None }
            }
            (QpType::Uc, 2..) | (_, 0) => SendOp::Send(SendExtra::Plain),
            (_, 1) => SendOp::Write { remote, imm: None },
            (_, 2) => SendOp::Read { remote },
            (_, 3) => SendOp::FetchAdd { remote, add: 1 },
            (_, 4) => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
            (QpType::Rc, 5) => SendOp::AtomicWrite { remote },
            (QpType::Rc, _) => SendOp::Flush { remote, length: 8, feth },
            _ => SendOp::Send(SendExtra::Plain),
        };
        let request = SendRequest {
            wr_id: 1,
            op,
            data: LocalData::Sges([sge].into_iter().collect()),
            length: len,
            signaled: true,
            solicited: false,
            fence: kind == 6,
            srqn: Some(Srqn::new(1)),
        };
        let accepts = qp.state.load(std::sync::atomic::Ordering::Relaxed) >= 3;
        if accepts && qp.sends.push(request).is_ok() {
            node.engine.on_doorbell(self.world.now, qp.key.index());
        }
    }

    fn receive(&mut self, choices: &mut Choices<'_>) {
        let target = usize::from(choices.byte()) % (self.targets.len() + 2);
        let offset = u64::from(choices.byte()) * 16;
        let length = choices.pick(&[0_u32, 1, 40, 41, 256, 300, 1000]);
        let sge = Sge { addr: self.region.base + offset, length, lkey: self.region.lkey };
        let request = RecvRequest { wr_id: 2, data: LocalData::Sges([sge].into_iter().collect()), length };
        if target >= self.targets.len() {
            let _ = self.srqs[target - self.targets.len()].receives.push(request);
            return;
        }
        let qp = &mut self.targets[target].qp;
        if let Some(ring) = &mut qp.receives
            && ring.push(request).is_ok()
        {
            self.world.nodes[0].engine.on_doorbell(self.world.now, qp.key.index());
        }
    }

    fn time(&mut self, choices: &mut Choices<'_>) {
        let until = self.world.now + Duration::from_nanos(1 << (choices.byte() % 27));
        let mut steps = 0;
        while steps < 100 && self.world.advance(until) {
            steps += 1;
            self.drain();
        }
        self.world.now = self.world.now.max(until);
    }

    fn settle(&mut self) {
        self.world.settle();
        self.drain();
    }

    fn drain(&mut self) {
        let now = self.world.now;
        self.peer.receive(now, usize::MAX, &mut |_| {});
        self.world.nodes[0].cqs.values_mut().for_each(|ring| while ring.pop().is_some() {});
        self.world.nodes[0].events.clear();
    }

    fn check(&mut self) {
        let count = self.targets.len();
        let node = &mut self.world.nodes[0];
        node.arena.verify_all();
        let usage = node.engine.usage();
        let saved = count * usize::from(RD_ATOMIC).next_power_of_two();
        assert!(usage.responses <= count * MOST_RESPONSES && usage.saved <= saved, "{usage:?}");
        assert!(usage.timers <= count && usage.active <= count && usage.waiting <= count, "{usage:?}");
        assert!(usage.peers == 1 && usage.queue_pairs == count, "{usage:?}");
        let arrived = node.link.counters().rx_datagrams;
        let dropped: u64 = node.engine.drops().map(|(_, count)| count).sum();
        let delivered: u64 = node.engine.qps().map(|(.., counts)| counts.packets_received).sum();
        assert_eq!(arrived, dropped + delivered, "every datagram is counted once");
    }
}
