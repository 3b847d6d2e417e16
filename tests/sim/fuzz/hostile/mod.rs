//! A whole NIC is fed hostile packets whose ICRC is right, by two peers, on queue pairs of two domains, while the
//! application registers, binds, fails and destroys. It never panics, never writes or reveals what it must not, holds
//! no more than it should, and counts every datagram.

pub(super) mod memory;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use softrnic_engine::{
    CqKey, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest, SrqHandle,
    SrqInit,
};
use softrnic_link::sim::{Path, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_memory::{MemoryTable, PdId, Sge};
use softrnic_transport::{AttrMask, LocalOp, QpAttr, QpState, QpType, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Feth, Gid, Header, ICRC_LEN, Mtu, Opcode, Placement, Psn, Qpn, Selectivity, seal};

use self::memory::Memory;
use super::Choices;
use crate::world::{Agreement, Node, QKEY, World};

const NIC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// A QP never holds more than this.
const MOST_RESPONSES: usize = 1024 + 2;
const RD_ATOMIC: u8 = 4;

struct Target {
    qp: QpHandle,
    service: QpType,
    receive: ReceiveSource,
    pd: PdId,
    /// The peer that it is connected to.
    peer: usize,
}

struct Scene {
    world: World,
    peers: [SimLink; 2],
    targets: Vec<Target>,
    memory: Memory,
    srqs: [SrqHandle; 2],
    cq: CqKey,
    /// What destroyed QPs have received.
    received_by_gone: u64,
    /// Several QPs were in the group at some time, and each may have received the same datagram.
    was_shared: bool,
}

/// Each choice is a packet, a post, a change, or time that passes.
pub fn hostile(data: &[u8]) {
    let mut choices = Choices(data);
    let mut scene = Scene::new(choices.byte());
    let mut steps = 0;
    while !choices.is_empty() && steps < 400 {
        steps += 1;
        match choices.byte() % 16 {
            0..=7 => scene.packet(&mut choices),
            8 | 9 => scene.post(&mut choices),
            10 | 11 => scene.receive(&mut choices),
            12 => scene.time(&mut choices),
            13 => scene.change_qp(&mut choices),
            _ => {
                let at = usize::from(choices.byte()) % scene.targets.len();
                let qpn = scene.targets[at].qp.qpn;
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
        let mut config = EngineConfig::with_seed(7);
        config.transport.early_retransmission = options & 1 == 0;
        config.transport.congestion_control = options & 2 != 0;
        config.safe_copies = options & 8 != 0 && MemoryTable::on_demand_available();
        let sim = SimOptions {
            sees_ip_header: options & 4 != 0,
            transmit_buffer: 64 << 10,
            ..SimOptions::default()
        };
        let mut node = Node::new(&world.fabric, NIC.into(), sim, config, memory::ARENA);
        let memory = Memory::new(&mut node, &config);
        let cq = node.create_cq(256);
        let xrcd = node.engine.create_xrcd().expect("an XRC domain");
        let pd = memory.pd;
        let srqs = [None, Some((xrcd, cq))]
            .map(|xrc| node.engine.create_srq(SrqInit { pd, max_wr: 8, xrc }).expect("an SRQ"));
        node.link.join(GROUP.into()).expect("joined");
        world.nodes.push(node);
        let peers =
            PEERS.map(|peer| world.fabric.attach(peer.into(), SimOptions::default()).expect("a link"));
        let (own, shared) = (ReceiveSource::Own(8), ReceiveSource::Shared(srqs[0].key));
        let foreign = memory.foreign_pd;
        let mut scene = Scene {
            world,
            peers,
            targets: Vec::new(),
            memory,
            srqs,
            cq,
            received_by_gone: 0,
            was_shared: false,
        };
        for (service, receive, pd, peer) in [
            (QpType::Rc, own, pd, 0),
            (QpType::Rc, shared, pd, 1),
            (QpType::Uc, own, pd, 0),
            (QpType::Ud, own, pd, 0),
            (QpType::XrcTarget, ReceiveSource::Xrc(xrcd), pd, 0),
            (QpType::XrcInitiator, ReceiveSource::None, pd, 0),
            (QpType::Rc, own, foreign, 1),
            (QpType::Ud, own, foreign, 1),
        ] {
            let target = scene.create(service, receive, pd, peer);
            scene.bring_up(&target);
            scene.targets.push(target);
        }
        scene
    }

    fn create(&mut self, service: QpType, receive: ReceiveSource, pd: PdId, peer: usize) -> Target {
        let (send_cq, recv_cq) = (self.cq, self.cq);
        let init = QpInit { service, pd, send_cq, recv_cq, max_send_wr: 8, receive };
        let qp = self.world.nodes[0].engine.create_qp(init).expect("a QP");
        Target { qp, service, receive, pd, peer }
    }

    fn bring_up(&mut self, target: &Target) {
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
        let mut attr = self.world.attributes(0, 0, target.qp.qpn, &agreement, psns);
        attr.path.dst = PEERS[target.peer].into();
        self.world.bring_up(0, target.qp.key, target.service, &attr);
    }

    /// A packet of which every field is chosen, though often sensibly, and whose ICRC is right.
    fn packet(&mut self, choices: &mut Choices<'_>) {
        let target = usize::from(choices.byte()) % self.targets.len();
        let Target { qp, service, pd, peer, .. } = &self.targets[target];
        let (qpn, foreign, connected) = (qp.qpn, *pd == self.memory.foreign_pd, *peer);
        let status = self.world.nodes[0].engine.query_qp(qp.key).expect("a QP").status;
        let (mode, low) = (choices.byte(), choices.byte());
        let transport = match service {
            QpType::Rc => 0x00,
            QpType::Uc => 0x20,
            QpType::Ud | QpType::Srd => 0x60,
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
        // Sender and receiver.
        let way = choices.byte();
        let (sender, to_group) = (connected ^ usize::from(way & 7 == 7), way >> 3 == 31);
        let dest = if to_group { Qpn::MULTICAST } else { qpn };
        let mut bytes = vec![opcode, flags, 0xFF, 0xFF, 0];
        bytes.extend(&dest.get().to_be_bytes()[1..]);
        bytes.push(choices.byte() & 0x80);
        bytes.extend(&psn.get().to_be_bytes()[1..]);
        let headers = Opcode::from_byte(opcode).map_or(&[][..], |opcode| opcode.info().headers);
        for &header in headers {
            let at = bytes.len();
            bytes.resize(at + header.size(), 0);
            let raw = choices.take(header.size());
            bytes[at..at + raw.len()].copy_from_slice(raw);
            memory::tame(&mut bytes[at..]);
            if mode & 0x20 == 0 {
                self.make_sense(header, &mut bytes[at..], choices);
            }
            // A QP of the other domain may do anything there, so it is not asked to.
            if matches!(header, Header::Reth | Header::AtomicEth)
                && foreign
                && bytes[at + 8..at + 12] == self.memory.foreign.rkey.0.to_be_bytes()
            {
                bytes[at + 8..at + 12].fill(0);
            }
        }
        let payload = choices.take(len);
        let padded = len + usize::from(flags >> 4 & 3);
        let (at, end) = (bytes.len(), bytes.len() + padded);
        bytes.extend(payload);
        memory::tame(&mut bytes[at..]);
        bytes.resize(end + ICRC_LEN, 0x5A);
        if mode & 0x40 != 0 {
            bytes.truncate(bytes.len().saturating_sub(usize::from(choices.byte() % 32)).max(1));
        }
        let dst = if to_group { GROUP } else { NIC };
        self.send(sender, dst.into(), bytes, mode & 0x80 == 0, choices.byte());
    }

    /// Puts existing values into a header: a key, an address near the memory, a queue.
    fn make_sense(&mut self, header: Header, bytes: &mut [u8], choices: &mut Choices<'_>) {
        let table = self.world.nodes[0].engine.memory();
        match header {
            Header::Reth | Header::AtomicEth => {
                let (rkey, base, len) = self.memory.remote(table, choices);
                // Most lie inside, some over an edge.
                let place = choices.number(2) % (len as u64 + 32);
                let va = (base + place).wrapping_sub(16) & !choices.pick(&[7, 7, 3, 0]);
                bytes[..8].copy_from_slice(&va.to_be_bytes());
                bytes[8..12].copy_from_slice(&rkey.0.to_be_bytes());
                if header == Header::Reth {
                    let dma = choices.pick(&[8_u32, 8, 0, 4, 256, 300, 512, 1000, 4096, 1 << 31]);
                    bytes[12..16].copy_from_slice(&dma.to_be_bytes());
                }
            }
            Header::XrcEth => bytes[..4].copy_from_slice(&self.srqs[1].srqn.get().to_be_bytes()),
            Header::Deth => bytes[..4].copy_from_slice(&QKEY.0.to_be_bytes()),
            Header::Ieth => {
                let key = self.memory.invalidated(table, choices);
                bytes[..4].copy_from_slice(&key.0.to_be_bytes());
            }
            _ => {}
        }
    }

    fn send(&mut self, peer: usize, dst: IpAddr, bytes: Vec<u8>, sealed: bool, tos: u8) {
        let now = self.world.now;
        let flow = Flow { src: PEERS[peer].into(), dst, sport: 0xC000, slot: None, tos, ttl: 1 };
        let link = &mut self.peers[peer];
        let Ok(slot) = link.reserve(now, &flow, bytes.len()) else { return };
        slot.bytes.copy_from_slice(&bytes);
        if sealed && bytes.len() > ICRC_LEN {
            seal(&slot.facts, slot.bytes);
        }
        link.commit(now);
        link.flush(now);
    }

    fn post(&mut self, choices: &mut Choices<'_>) {
        let target = usize::from(choices.byte()) % self.targets.len();
        let len = choices.pick(&[0_u32, 1, 8, 256, 300, 1000]);
        let kind = choices.byte() % 10;
        let len = if (3..=5).contains(&kind) { 8 } else { len };
        let offset = u64::from(choices.byte() & 0x0F) * 8;
        let sge = self.local(target, choices, offset, len);
        let spec = self.memory.bind(choices);
        let node = &mut self.world.nodes[0];
        let remote = RemoteBuffer { va: 0x1000, rkey: self.memory.open.rkey };
        let invalidated = self.memory.invalidated(node.engine.memory(), choices);
        let feth = Feth { placement: Placement::GLOBAL_VISIBILITY, selectivity: Selectivity::Range };
        let Target { qp, service, .. } = &mut self.targets[target];
        let op = match (*service, kind) {
            (QpType::Ud, _) => {
                let path = node.engine.query_qp(qp.key).expect("a QP").attr.path;
                SendOp::Datagram { path, dest_qpn: qp.qpn, qkey: QKEY, imm: None }
            }
            (QpType::Rc, 7) => {
                self.memory.bind_is_posted = true;
                SendOp::Local(LocalOp::BindWindow)
            }
            (QpType::Rc, 8) => SendOp::Local(LocalOp::Invalidate(invalidated)),
            (QpType::Rc, 9) => SendOp::Send(SendTail::Inv(invalidated)),
            (QpType::Uc, 2..) | (_, 0) => SendOp::Send(SendTail::Plain),
            (_, 1) => SendOp::Write { remote, imm: None },
            (_, 2) => SendOp::Read { remote },
            (_, 3) => SendOp::FetchAdd { remote, add: 1 },
            (_, 4) => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
            (QpType::Rc, 5) => SendOp::AtomicWrite { remote },
            (QpType::Rc, _) => SendOp::Flush { remote, length: 8, feth },
            _ => SendOp::Send(SendTail::Plain),
        };
        let data = match op {
            SendOp::Local(LocalOp::BindWindow) => LocalData::Bind(Box::new(spec)),
            _ => LocalData::Sges([sge].into_iter().collect()),
        };
        let request = SendRequest {
            wr_id: 1,
            op,
            data,
            length: len,
            signaled: true,
            solicited: false,
            fence: kind == 6,
            srqn: Some(self.srqs[1].srqn),
        };
        let accepts = qp.state.load(Ordering::Relaxed) >= QpState::Rts as u8;
        if accepts && qp.sends.push(request).is_ok() {
            node.engine.on_doorbell(self.world.now, qp.key.index());
        }
    }

    fn receive(&mut self, choices: &mut Choices<'_>) {
        let target = usize::from(choices.byte()) % (self.targets.len() + 2);
        let offset = u64::from(choices.byte()) * 16;
        let length = choices.pick(&[0_u32, 1, 40, 41, 256, 300, 1000]);
        let sge = self.local(target, choices, offset, length);
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

    /// A local buffer in any region, but never one whose use is allowed and would change or reveal what must not be.
    fn local(&self, target: usize, choices: &mut Choices<'_>, offset: u64, length: u32) -> Sge {
        let sge = self.memory.sge(choices, offset, length);
        let foreign = self.targets.get(target).is_some_and(|target| target.pd == self.memory.foreign_pd);
        let own = [self.memory.secret, self.memory.leased].map(|region| region.lkey);
        let allowed = if foreign { sge.lkey == self.memory.foreign.lkey } else { own.contains(&sge.lkey) };
        if allowed { self.memory.open_sge(offset, length) } else { sge }
    }

    /// The application fails, resets or replaces a QP, or moves it into a group or out of it.
    fn change_qp(&mut self, choices: &mut Choices<'_>) {
        let at = usize::from(choices.byte()) % self.targets.len();
        let Target { service, receive, pd, peer, .. } = self.targets[at];
        let key = self.targets[at].qp.key;
        let now = self.world.now;
        let engine = &mut self.world.nodes[0].engine;
        let group = Gid::from(IpAddr::from(GROUP));
        match choices.byte() % 8 {
            0 | 1 => {
                let state = choices.pick(&[QpState::Err, QpState::Sqd, QpState::Rts]);
                let _ = engine.modify_qp(now, key, AttrMask::STATE, &QpAttr { state, ..QpAttr::default() });
            }
            2 => drop(engine.detach_multicast(key, group)),
            3 => {
                let _ = engine.attach_multicast(key, group);
                self.was_shared |= self.targets.iter().filter(|t| t.service == QpType::Ud).count() > 1;
            }
            4..=6 => {
                self.world.go(0, key, QpState::Reset);
                let (peer, other) = (peer, usize::from(choices.byte() % 2));
                self.targets[at].peer = if pd == self.memory.pd { other } else { peer };
                let target = self.targets.swap_remove(at);
                self.bring_up(&target);
                self.targets.push(target);
            }
            _ => {
                let _ = engine.detach_multicast(key, group);
                let counts = engine.qps().find(|(qpn, ..)| *qpn == self.targets[at].qp.qpn);
                self.received_by_gone += counts.map_or(0, |(.., counts)| counts.packets_received);
                engine.destroy_qp(now, key).expect("destroyed");
                let target = self.create(service, receive, pd, peer);
                self.bring_up(&target);
                self.targets[at] = target;
            }
        }
    }

    fn time(&mut self, choices: &mut Choices<'_>) {
        let until = self.world.now + Duration::from_nanos(1 << (choices.byte() % 27));
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
        self.bounded();
    }

    fn drain(&mut self) {
        let now = self.world.now;
        for peer in &mut self.peers {
            peer.receive(now, usize::MAX, &mut |datagram| {
                assert!(!memory::leaks(datagram.bytes), "secret memory was sent: {:02x?}", datagram.bytes);
            });
        }
        self.world.nodes[0].cqs.values_mut().for_each(|ring| while ring.pop().is_some() {});
        self.world.nodes[0].events.clear();
    }

    fn bounded(&self) {
        let count = self.targets.len();
        let usage = self.world.nodes[0].engine.usage();
        let saved = count * usize::from(RD_ATOMIC).next_power_of_two();
        assert!(usage.responses <= count * MOST_RESPONSES && usage.saved <= saved, "{usage:?}");
        assert!(usage.timers <= count && usage.active <= count && usage.waiting <= count, "{usage:?}");
        assert!(usage.peers <= PEERS.len() && usage.queue_pairs == count, "{usage:?}");
    }

    fn every_datagram_is_counted(&self) {
        let node = &self.world.nodes[0];
        let arrived = node.link.counters().rx_datagrams;
        let dropped: u64 = node.engine.drops().map(|(_, count)| count).sum();
        let delivered: u64 = node.engine.qps().map(|(.., counts)| counts.packets_received).sum();
        let counted = dropped + delivered + self.received_by_gone;
        assert!(
            counted == arrived || self.was_shared && counted > arrived,
            "{arrived} came, {counted} counted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A READ or WRITE of the other domain's memory, on a queue pair that belongs to it: what the oracle would see if a
    /// queue pair of the first domain could do the same.
    fn reach_foreign_memory(opcode: u8, payload: &[u8]) {
        let mut scene = Scene::new(0);
        let target = &scene.targets[6];
        let mut bytes = vec![opcode, 0x40, 0xFF, 0xFF, 0];
        bytes.extend(&target.qp.qpn.get().to_be_bytes()[1..]);
        bytes.extend(&0x80FF_FFF0_u32.to_be_bytes());
        bytes.extend(&scene.memory.foreign.base.to_be_bytes());
        bytes.extend(&scene.memory.foreign.rkey.0.to_be_bytes());
        bytes.extend(&8_u32.to_be_bytes());
        bytes.extend(payload);
        bytes.extend([0; ICRC_LEN]);
        scene.send(1, NIC.into(), bytes, true, 0);
        scene.settle();
        scene.settle();
    }

    #[test]
    #[should_panic(expected = "secret memory was sent")]
    fn foreign_memory_that_is_read_is_noticed() {
        reach_foreign_memory(0x0C, &[]);
    }

    #[test]
    #[should_panic(expected = "memory that nobody may write")]
    fn foreign_memory_that_is_written_is_noticed() {
        reach_foreign_memory(0x0A, &[1; 8]);
    }
}
