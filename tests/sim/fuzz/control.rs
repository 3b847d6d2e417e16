//! Objects are created, changed, used and destroyed in any order. QPs communicate through one NIC. When all are
//! destroyed, nothing is left.

use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_engine::{
    CqKey, CqMemory, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest,
    SrqHandle, SrqInit, SrqMemory, XrcdKey,
};
use softrnic_link::Link;
use softrnic_link::sim::{Path, SimOptions};
use softrnic_memory::{Access, BindSpec, Lkey, MrSpec, MwType, Sge};
use softrnic_transport::{AttrMask, LocalOp, QpAttr, QpState, QpType, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Gid, Imm, Mtu, Psn, Qpn, Rkey, Srqn};

use super::Choices;
use crate::world::{ALL_ACCESS, Agreement, Node, QKEY, World, mask_to};

const NIC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MEMORY: usize = 16 << 10;

struct Live {
    qp: QpHandle,
    service: QpType,
}

struct Scene {
    world: World,
    qps: Vec<Live>,
    cqs: Vec<CqKey>,
    srqs: Vec<SrqHandle>,
    xrcds: Vec<XrcdKey>,
    lkeys: Vec<Lkey>,
    windows: Vec<Rkey>,
}

/// Each choice is a call.
pub fn control(data: &[u8]) {
    let mut choices = Choices(data);
    let mut scene = Scene::new();
    let mut calls = 0;
    while !choices.is_empty() && calls < 400 {
        calls += 1;
        scene.call(&mut choices);
        scene.bounded();
    }
    scene.end();
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new(1, Path { delay: Duration::from_micros(1), ..Path::default() });
        let config = EngineConfig::with_seed(7);
        let options = SimOptions { transmit_buffer: 32 << 10, ..SimOptions::default() };
        let mut node = Node::new(&world.fabric, NIC.into(), options, config, MEMORY);
        let lkeys = node.regions.iter().map(|region| region.lkey).collect();
        let whole = node.arena.take(MEMORY, 8).expect("all of it");
        node.arena.expose(whole);
        let cqs = vec![node.create_cq(8)];
        world.nodes.push(node);
        Scene { world, qps: Vec::new(), cqs, srqs: Vec::new(), xrcds: Vec::new(), lkeys, windows: Vec::new() }
    }

    fn call(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 16 {
            0 => self.create_qp(choices),
            1 => self.connect(choices),
            2 | 3 => self.modify(choices),
            4..=6 => self.post(choices),
            7 | 8 => self.receive(choices),
            9 => self.destroy_qp(choices),
            10 => self.memory(choices),
            11 => self.queues(choices),
            12 => self.multicast(choices),
            13 => {
                let until = self.world.now + Duration::from_nanos(1 << (choices.byte() % 28));
                let mut steps = 0;
                while steps < 200 && self.world.advance(until) {
                    steps += 1;
                }
                self.world.now = self.world.now.max(until);
            }
            14 => {
                for ring in self.world.nodes[0].cqs.values_mut() {
                    while ring.pop().is_some() {}
                }
                self.world.nodes[0].events.clear();
            }
            _ => self.world.settle(),
        }
    }

    fn create_qp(&mut self, choices: &mut Choices<'_>) {
        let service =
            choices.pick(&[QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator, QpType::XrcTarget]);
        let shared = choices.byte();
        let receive = match (service, self.srqs.first(), self.xrcds.first()) {
            (QpType::XrcInitiator, ..) => ReceiveSource::None,
            (QpType::XrcTarget, _, Some(&xrcd)) => ReceiveSource::Xrc(xrcd),
            (QpType::XrcTarget, ..) => return,
            (_, Some(srq), _) if shared.is_multiple_of(2) => ReceiveSource::Shared(srq.key),
            _ => ReceiveSource::Own(usize::from(shared % 5)),
        };
        let (send_cq, recv_cq) = (choices.pick(&self.cqs), choices.pick(&self.cqs));
        let node = &mut self.world.nodes[0];
        let max_send_wr = usize::from(choices.byte() % 6);
        let init = QpInit { service, pd: node.pd, send_cq, recv_cq, max_send_wr, receive };
        if let Ok(qp) = node.engine.create_qp(init) {
            self.qps.push(Live { qp, service });
        }
    }

    /// Connects two QPs, or one to itself.
    fn connect(&mut self, choices: &mut Choices<'_>) {
        let [one, other] = [0, 1].map(|_| usize::from(choices.byte()).checked_rem(self.qps.len()));
        let (Some(one), Some(other)) = (one, other) else { return };
        for (near, far) in [(one, other), (other, one)] {
            let attr = self.attributes(choices, self.qps[far].qp.qpn);
            let Live { qp, service } = &self.qps[near];
            let now = self.world.now;
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                let mask = mask_to(*service, state);
                let _ = self.world.nodes[0].engine.modify_qp(now, qp.key, mask, &QpAttr { state, ..attr });
            }
        }
    }

    fn attributes(&self, choices: &mut Choices<'_>, dest: Qpn) -> QpAttr {
        let agreement = Agreement {
            mtu: choices.pick(&Mtu::ALL),
            timeout: choices.byte() % 33,
            retry_cnt: choices.byte() % 9,
            rnr_retry: choices.byte() % 9,
            rnr_timer: choices.byte() % 32,
            rd_atomic: choices.byte(),
            tos: choices.byte(),
        };
        self.world.attributes(0, 0, dest, &agreement, (Psn::new(0xFF_FFFE), Psn::new(0xFF_FFFE)))
    }

    fn modify(&mut self, choices: &mut Choices<'_>) {
        let Some(index) = usize::from(choices.byte()).checked_rem(self.qps.len()) else { return };
        let (state, cur_state) = (choices.pick(&QpState::ALL), choices.pick(&QpState::ALL));
        let Live { qp, service } = &self.qps[index];
        let mask = match choices.byte() % 3 {
            0 => AttrMask::from_bits_retain(choices.number(4) as u32),
            1 => AttrMask::STATE,
            _ => mask_to(*service, state),
        };
        let dest = qp.qpn;
        let attr = QpAttr { state, cur_state, ..self.attributes(choices, dest) };
        let (key, now) = (qp.key, self.world.now);
        let before = self.world.nodes[0].state(key);
        if self.world.nodes[0].engine.modify_qp(now, key, mask, &attr).is_err() {
            assert_eq!(self.world.nodes[0].state(key), before);
        }
    }

    fn sge(&mut self, choices: &mut Choices<'_>) -> Sge {
        let lkey = choices.pick(&[self.lkeys.as_slice(), &[Lkey(5)]].concat());
        let region = self.world.nodes[0].engine.memory().region(lkey);
        let addr = region.map_or(0, |region| region.iova) + choices.number(2) % MEMORY as u64;
        Sge { addr, length: choices.pick(&[0, 1, 8, 8, 8, 256, 1000, 5000]), lkey }
    }

    /// What a library would have checked holds: the state accepts posts, the kind fits the service, the length is that
    /// of the list.
    fn post(&mut self, choices: &mut Choices<'_>) {
        let Some(index) = usize::from(choices.byte()).checked_rem(self.qps.len()) else { return };
        let sges: Vec<Sge> = (0..choices.byte() % 3).map(|_| self.sge(choices)).collect();
        let length = sges.iter().map(|sge| sge.length).sum();
        let target = self.sge(choices);
        let remote = RemoteBuffer { va: target.addr, rkey: Rkey(target.lkey.0) };
        let imm = (choices.byte().is_multiple_of(2)).then_some(Imm([1, 2, 3, 4]));
        let node = &mut self.world.nodes[0];
        let window = self.windows.last().copied().unwrap_or(Rkey(9));
        let Live { qp, service } = &mut self.qps[index];
        let reliable = !matches!(service, QpType::Uc | QpType::Ud);
        let op = match choices.byte() % 10 {
            _ if *service == QpType::XrcTarget => return,
            _ if *service == QpType::Ud => {
                let path = node.engine.query_qp(qp.key).expect("a QP").attr.path;
                let path = softrnic_transport::Path { src: NIC.into(), dst: NIC.into(), ..path };
                SendOp::Datagram { path, dest_qpn: qp.qpn, qkey: QKEY, imm }
            }
            0 | 1 => SendOp::Send(imm.map_or(SendTail::Inv(window), SendTail::Imm)),
            2 if reliable => SendOp::Read { remote },
            3 if reliable && length == 8 => SendOp::FetchAdd { remote, add: 1 },
            4 if reliable && length == 8 => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
            5 => SendOp::Local(LocalOp::Invalidate(window)),
            6 => SendOp::Local(LocalOp::BindWindow),
            7 if *service == QpType::Rc && length == 8 => SendOp::AtomicWrite { remote },
            _ => SendOp::Write { remote, imm },
        };
        let op = match op {
            SendOp::Send(SendTail::Inv(_)) if !reliable => SendOp::Send(SendTail::Plain),
            op => op,
        };
        let data = match op {
            SendOp::Local(LocalOp::BindWindow) => LocalData::Bind(Box::new(BindSpec {
                mw: window,
                tag: choices.byte(),
                mr: target.lkey,
                addr: target.addr,
                length: target.length.into(),
                access: Access::REMOTE_READ,
            })),
            _ => LocalData::Sges(sges.into_iter().collect()),
        };
        let flags = choices.byte();
        let request = SendRequest {
            wr_id: 1,
            op,
            data,
            length,
            signaled: flags & 1 == 0,
            solicited: flags & 2 == 0,
            fence: flags & 4 == 0,
            srqn: Some(self.srqs.last().map_or(Srqn::new(3), |srq| srq.srqn)),
        };
        let accepts = qp.state.load(std::sync::atomic::Ordering::Relaxed) >= QpState::Rts as u8;
        if accepts && qp.sends.push(request).is_ok() && flags & 8 == 0 {
            node.engine.on_doorbell(self.world.now, qp.key.index());
        }
    }

    fn receive(&mut self, choices: &mut Choices<'_>) {
        let sge = self.sge(choices);
        let data = LocalData::Sges([sge].into_iter().collect());
        let request = RecvRequest { wr_id: 2, data, length: sge.length };
        if choices.byte().is_multiple_of(4) {
            if let Some(srq) = self.srqs.last_mut() {
                let _ = srq.receives.push(request);
            }
            return;
        }
        let Some(index) = usize::from(choices.byte()).checked_rem(self.qps.len()) else { return };
        let qp = &mut self.qps[index].qp;
        if let Some(ring) = &mut qp.receives {
            let _ = ring.push(request);
            // Any doorbell may ring, at any time.
            let index = usize::from(choices.byte() % 8);
            self.world.nodes[0].engine.on_doorbell(self.world.now, index);
        }
    }

    fn destroy_qp(&mut self, choices: &mut Choices<'_>) {
        let Some(index) = usize::from(choices.byte()).checked_rem(self.qps.len()) else { return };
        let (key, now) = (self.qps[index].qp.key, self.world.now);
        if self.world.nodes[0].engine.destroy_qp(now, key).is_ok() {
            self.qps.swap_remove(index);
        }
    }

    fn memory(&mut self, choices: &mut Choices<'_>) {
        let node = &mut self.world.nodes[0];
        match choices.byte() % 4 {
            0 if self.lkeys.len() < 8 => {
                let spec =
                    MrSpec { range: node.arena.range(), iova: choices.number(3) * 8, access: ALL_ACCESS };
                if let Ok(keys) = node.engine.memory().reg_mr(node.pd, spec) {
                    self.lkeys.push(keys.lkey);
                }
            }
            1 if self.lkeys.len() > 1 => {
                let lkey = self.lkeys[usize::from(choices.byte()) % self.lkeys.len()];
                if node.engine.memory().dereg_mr(lkey).is_ok() {
                    self.lkeys.retain(|known| *known != lkey);
                }
            }
            2 if self.windows.len() < 8 => {
                let kind = choices.pick(&[MwType::Type1, MwType::Type2]);
                self.windows.extend(node.engine.memory().alloc_mw(node.pd, kind));
            }
            _ => {
                if let Some(window) = self.windows.pop() {
                    node.engine.memory().dealloc_mw(window).expect("deallocated");
                }
            }
        }
    }

    fn queues(&mut self, choices: &mut Choices<'_>) {
        let node = &mut self.world.nodes[0];
        match choices.byte() % 6 {
            0 if self.cqs.len() < 4 => self.cqs.push(node.create_cq(usize::from(choices.byte() % 16) + 1)),
            1 => {
                let cq = choices.pick(&self.cqs);
                let ring = node.cqs.get_mut(&cq).expect("a ring");
                let parts = CqMemory::new(usize::from(choices.byte() % 32) + 1).expect("memory");
                let _ = node.engine.resize_cq(cq, parts, ring);
            }
            2 if self.cqs.len() > 1 => {
                let cq = self.cqs[usize::from(choices.byte()) % self.cqs.len()];
                if node.engine.destroy_cq(cq).is_ok() {
                    self.cqs.retain(|known| *known != cq);
                }
            }
            3 if self.srqs.len() < 4 => {
                if self.xrcds.is_empty() {
                    self.xrcds.push(node.engine.create_xrcd().expect("an XRC domain"));
                }
                let xrc = (choices.byte().is_multiple_of(2)).then(|| (self.xrcds[0], self.cqs[0]));
                let init = SrqInit { pd: node.pd, max_wr: usize::from(choices.byte() % 8), xrc };
                self.srqs.extend(node.engine.create_srq(init));
            }
            4 => {
                if let Some(srq) = self.srqs.last() {
                    let _ = node.engine.set_srq_limit(srq.key, usize::from(choices.byte() % 8));
                    let parts = SrqMemory::new(usize::from(choices.byte() % 16)).expect("memory");
                    let _ = node.engine.resize_srq(srq.key, parts, None).map(|ring| {
                        self.srqs.last_mut().expect("as before").receives.replace(ring);
                    });
                }
            }
            _ => {
                if let Some(srq) = self.srqs.pop()
                    && node.engine.destroy_srq(srq.key).is_err()
                {
                    self.srqs.push(srq);
                }
            }
        }
    }

    fn multicast(&mut self, choices: &mut Choices<'_>) {
        let Some(index) = usize::from(choices.byte()).checked_rem(self.qps.len()) else { return };
        let key = self.qps[index].qp.key;
        let group = Gid::from(std::net::IpAddr::from(Ipv4Addr::new(239, 0, 0, choices.byte() % 4)));
        let node = &mut self.world.nodes[0];
        match choices.byte() % 2 {
            0 => drop(node.engine.attach_multicast(key, group)),
            _ => drop(node.engine.detach_multicast(key, group)),
        }
    }

    fn bounded(&self) {
        let usage = self.world.nodes[0].engine.usage();
        let count = self.qps.len();
        assert_eq!(usage.queue_pairs, count);
        assert!(usage.timers <= count && usage.peers <= count, "{usage:?}");
    }

    /// Everything is destroyed, and nothing may be left.
    fn end(mut self) {
        let now = self.world.now;
        let node = &mut self.world.nodes[0];
        for live in &self.qps {
            for last in 0..4 {
                let group = Gid::from(std::net::IpAddr::from(Ipv4Addr::new(239, 0, 0, last)));
                let _ = node.engine.detach_multicast(live.qp.key, group);
            }
            node.engine.destroy_qp(now, live.qp.key).expect("destroyed");
        }
        self.srqs.iter().for_each(|srq| drop(node.engine.destroy_srq(srq.key).expect("destroyed")));
        self.xrcds.iter().for_each(|&xrcd| node.engine.destroy_xrcd(xrcd).expect("destroyed"));
        self.cqs.iter().for_each(|&cq| drop(node.engine.destroy_cq(cq).expect("destroyed")));
        let memory = node.engine.memory();
        self.windows.iter().for_each(|&window| memory.dealloc_mw(window).expect("deallocated"));
        self.lkeys.iter().for_each(|&lkey| memory.dereg_mr(lkey).expect("deregistered"));
        assert_eq!((memory.mr_count(), memory.mw_count()), (0, 0));
        assert_eq!(memory.dealloc_pd(node.pd), Ok(()));
        node.engine.step(now, &mut node.link, Default::default());
        let usage = node.engine.usage();
        assert_eq!(
            (usage.queue_pairs, usage.peers, usage.timers, usage.in_flight),
            (0, 0, 0, 0),
            "{usage:?}"
        );
        let counters = node.link.counters();
        let dropped: u64 = node.engine.drops().map(|(_, count)| count).sum();
        assert!(dropped <= counters.rx_datagrams);
    }
}
