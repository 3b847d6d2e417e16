//! Questions between two engines about their queue pairs.

use std::net::IpAddr;

use softrnic_link::sim::{Fabric, SimLink, SimOptions};
use softrnic_transport::{AttrMask, Counter, Path, QpAttr};

use super::*;
use crate::{Budget, EngineConfig, GsiCounter, QpHandle, QpInit, ReceiveSource, Seed};

struct End {
    engine: Engine,
    link: SimLink,
}

struct World {
    fabric: Fabric,
    ends: [End; 2],
    now: Time,
}

fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + end as u8])
}

impl World {
    fn new() -> World {
        World::with_paths([1, 1])
    }

    fn with_paths(paths: [u8; 2]) -> World {
        let fabric = Fabric::new(1);
        let ends = [0, 1].map(|end| {
            let mut config = EngineConfig::with_seed(Seed::from(end as u64));
            config.transport.selective_recovery = true;
            config.transport.paths = paths[end];
            let mut engine = Engine::new(config);
            engine.gids().set_only(Some(address(end)));
            engine.serve_management(end as u64 + 1);
            End { engine, link: fabric.attach(address(end), SimOptions::default()).expect("free") }
        });
        World { fabric, ends, now: Time::from_nanos(1) }
    }

    fn qp(&mut self, end: usize) -> QpHandle {
        let engine = &mut self.ends[end].engine;
        let pd = engine.memory().alloc_pd().expect("a PD");
        let (cq, ..) = engine.create_cq(8, None).expect("a CQ");
        let init = QpInit {
            service: QpType::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: 8,
            receive: ReceiveSource::Own(8),
        };
        engine.create_qp(init).expect("a QP")
    }

    /// Connects a QP with one that has this number.
    fn connect(&mut self, end: usize, key: QpKey, to: Qpn) {
        let path = Path { src: address(end), dst: address(1 - end), sport: 0xC000, tos: 0, ttl: 64 };
        let masks = [
            AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
            AttrMask::AV
                | AttrMask::PATH_MTU
                | AttrMask::DEST_QPN
                | AttrMask::RQ_PSN
                | AttrMask::MAX_DEST_RD_ATOMIC
                | AttrMask::MIN_RNR_TIMER,
            AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::SQ_PSN
                | AttrMask::MAX_QP_RD_ATOMIC,
        ];
        for (state, mask) in [QpState::Init, QpState::Rtr, QpState::Rts].into_iter().zip(masks) {
            let attr = QpAttr { state, path, dest_qpn: to, timeout: 14, ..QpAttr::default() };
            let engine = &mut self.ends[end].engine;
            engine.modify_qp(self.now, key, mask | AttrMask::STATE, &attr).expect("legal");
        }
    }

    /// Two that are connected with each other.
    fn pair(&mut self) -> [QpHandle; 2] {
        let qps = [self.qp(0), self.qp(1)];
        self.connect(0, qps[0].key, qps[1].qpn);
        self.connect(1, qps[1].key, qps[0].qpn);
        qps
    }

    /// Lets 100 µs pass.
    fn run(&mut self) {
        for _ in 0..10 {
            for End { engine, link } in &mut self.ends {
                engine.step(self.now, link, Budget::default());
            }
            self.now += Duration::from_micros(10);
        }
    }

    fn counter(&self, end: usize, counter: GsiCounter) -> u64 {
        self.ends[end].engine.management_counters().find(|(known, _)| *known == counter).expect("known").1
    }

    fn knows(&self, end: usize, qp: &QpHandle) -> bool {
        self.ends[end].engine.qps[qp.key].qp.recovers_selectively()
    }

    fn ask(&mut self, qp: &QpHandle) -> bool {
        self.ask_from(0, qp)
    }

    fn ask_from(&mut self, end: usize, qp: &QpHandle) -> bool {
        let now = self.now;
        self.ends[end].engine.ask_peer(now, qp.key)
    }

    /// How many QPs of each end have begun to spread their packets.
    fn spreading(&self) -> [u64; 2] {
        [0, 1].map(|end| {
            let mut counters = self.ends[end].engine.counters();
            counters.find(|(counter, _)| *counter == Counter::PathsAgreed).expect("known").1
        })
    }
}

#[test]
fn both_ends_know_each_other_after_one_question() {
    let mut world = World::new();
    let qps = world.pair();
    assert!(world.ask(&qps[0]));
    assert!(!world.ask(&qps[0]), "it was asked just now");
    world.run();
    for (end, qp) in qps.iter().enumerate() {
        assert!(world.knows(end, qp), "{end}");
        assert_eq!(world.counter(end, GsiCounter::PeerReceived), 1);
        assert_eq!(world.counter(end, GsiCounter::PeerSent), 1);
        assert_eq!(world.counter(end, GsiCounter::PeerUnrelated), 0);
        assert_eq!(world.counter(end, GsiCounter::Malformed), 0);
    }
}

#[test]
fn a_qp_that_is_reset_knows_nothing_of_its_next_peer() {
    let mut world = World::new();
    let qps = world.pair();
    world.ask(&qps[0]);
    world.run();
    let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
    let (now, engine) = (world.now, &mut world.ends[0].engine);
    engine.modify_qp(now, qps[0].key, AttrMask::STATE, &reset).expect("legal");
    assert!(!world.knows(0, &qps[0]));
}

#[test]
fn a_qp_that_is_not_connected_so_is_none_of_the_askers_business() {
    let mut world = World::new();
    let [asker, other] = world.pair();
    let third = world.qp(1);
    for (to, what) in [(third.qpn, "not connected"), (Qpn::new(0xFF_0000), "no such QP")] {
        world.connect_again(&asker, to);
        assert!(world.ask(&asker), "{what}");
        world.run();
        assert!(!world.knows(0, &asker), "{what}");
        assert!(!world.knows(1, &other), "{what}");
    }
    assert_eq!(world.counter(1, GsiCounter::PeerUnrelated), 2);
    assert_eq!(world.counter(1, GsiCounter::PeerSent), 0);
}

impl World {
    fn connect_again(&mut self, qp: &QpHandle, to: Qpn) {
        let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
        self.ends[0].engine.modify_qp(self.now, qp.key, AttrMask::STATE, &reset).expect("legal");
        self.connect(0, qp.key, to);
    }

    /// A datagram to end 1, from the address of end 0.
    fn forge(&mut self, vendor: &VendorMad, transaction_id: u64) {
        let mut peer = PeerDatagrams::default();
        peer.push(Route { local: address(0), remote: address(1) }, vendor, transaction_id);
        let now = self.now;
        let End { engine, link } = &mut self.ends[0];
        engine.management().expect("served").peer.waiting.append(&mut peer.waiting);
        engine.step(now, link, Budget::default());
        self.run();
    }
}

#[test]
fn an_answer_to_no_question_is_not_believed() {
    let mut world = World::new();
    let qps = world.pair();
    let attribute =
        VendorAttribute::Capabilities(Capabilities { selective_recovery: true, ..Default::default() });
    let answer = VendorMad { answers: true, to: qps[1].qpn, from: qps[0].qpn, attribute };
    for transaction_id in [0, 1] {
        world.forge(&answer, transaction_id);
    }
    assert!(!world.knows(1, &qps[1]));
    assert_eq!(world.counter(1, GsiCounter::PeerUnrelated), 2);
}

#[test]
fn who_was_only_asked_spreads_nothing_until_it_knows_that_the_other_end_knows() {
    let mut world = World::with_paths([8, 2]);
    let qps = world.pair();
    assert!(world.ask(&qps[0]));
    world.run();
    assert_eq!(world.spreading(), [1, 0]);
    world.now += BETWEEN_QUESTIONS;
    assert!(world.ask_from(1, &qps[1]));
    world.run();
    assert_eq!(world.spreading(), [1, 1]);
}

#[test]
fn nothing_is_spread_unless_both_ends_have_many_paths() {
    for paths in [[8, 1], [1, 8]] {
        let mut world = World::with_paths(paths);
        let qps = world.pair();
        assert!(world.ask(&qps[0]));
        world.run();
        world.now += BETWEEN_QUESTIONS;
        assert!(world.ask_from(1, &qps[1]));
        world.run();
        assert_eq!(world.spreading(), [0, 0]);
        assert!(world.knows(0, &qps[0]) && world.knows(1, &qps[1]));
    }
}

#[test]
fn who_has_asked_may_be_asked_whatever_its_number() {
    let mut world = World::new();
    let (asked, low) = (world.qp(1), Qpn::LAST_OF_RXE);
    world.connect(1, asked.key, low);
    assert!(!world.ask_from(1, &asked));
    let attribute =
        VendorAttribute::Capabilities(Capabilities { selective_recovery: true, ..Default::default() });
    world.forge(&VendorMad { answers: false, to: asked.qpn, from: low, attribute }, 5);
    assert!(world.ask_from(1, &asked));
}

#[test]
fn numbers_of_a_softrnic_are_none_of_rxe() {
    let mut world = World::new();
    for _ in 0..200 {
        let qpn = world.qp(1).qpn;
        assert!(qpn > Qpn::LAST_OF_RXE, "{qpn:?}");
    }
}

#[test]
fn who_numbers_from_the_bottom_is_not_asked() {
    let mut world = World::new();
    let asker = world.qp(0);
    world.connect(0, asker.key, Qpn::new(0x11));
    assert!(!world.ask(&asker));
    world.connect_again(&asker, Qpn::LAST_OF_RXE);
    assert!(!world.ask(&asker));
    world.connect_again(&asker, Qpn::new(Qpn::LAST_OF_RXE.get() + 1));
    assert!(world.ask(&asker));
}

#[test]
fn who_does_not_answer_is_asked_four_times_whatever_asks() {
    let mut world = World::new();
    let qps: Vec<QpHandle> = (0..3).map(|_| world.qp(0)).collect();
    let mut asked = 0;
    for qp in &qps {
        world.connect(0, qp.key, Qpn::new(0xABCDEF));
    }
    for _ in 0..100 {
        for qp in &qps {
            asked += usize::from(world.ask(qp));
            world.run();
        }
    }
    assert_eq!(asked, usize::from(MAX_UNANSWERED));
}

#[test]
fn an_answer_lost_is_asked_for_again_when_there_is_a_reason() {
    let mut world = World::new();
    let qps = world.pair();
    let lossy = softrnic_link::sim::Path { loss: 1.0, ..Default::default() };
    world.fabric.set_path(address(1), address(0), lossy);
    assert!(world.ask(&qps[0]));
    world.run();
    assert!(!world.knows(0, &qps[0]) && world.knows(1, &qps[1]));
    world.fabric.set_path(address(1), address(0), Default::default());
    world.now += BETWEEN_QUESTIONS;
    assert!(world.ask(&qps[0]));
    world.run();
    assert!(world.knows(0, &qps[0]));
}

#[test]
fn a_flood_of_questions_is_answered_at_a_bounded_rate() {
    let mut world = World::new();
    let qps = world.pair();
    let attribute = VendorAttribute::Capabilities(Capabilities::default());
    let question = VendorMad { answers: false, to: qps[1].qpn, from: qps[0].qpn, attribute };
    let begin = world.now;
    for transaction_id in 0..10_000 {
        let route = Route { local: address(1), remote: address(0) };
        world.ends[1].engine.on_vendor(world.now, route, &question, transaction_id).expect("heard");
        world.now += Duration::from_micros(1);
        if transaction_id % 50 == 0 {
            world.run();
        }
        assert!(world.ends[1].engine.management().expect("served").peer.waiting.len() <= MAX_WAITING);
    }
    let elapsed = world.now.since(begin);
    let most = u64::from(ANSWERS_AT_A_TIME) + (elapsed.as_nanos() / BETWEEN_ANSWERS.as_nanos()) as u64;
    assert!(world.counter(1, GsiCounter::PeerSent) <= most + 1);
    assert!(world.counter(1, GsiCounter::PeerSent) >= most / 2);
}

#[test]
fn a_peer_says_how_its_end_is_even_when_that_has_failed() {
    let mut world = World::new();
    let qps = world.pair();
    let ask = |world: &mut World| {
        world.now += BETWEEN_QUESTIONS;
        let now = world.now;
        let asked = world.ends[0].engine.ask_status(now, qps[0].qpn);
        world.run();
        (asked, world.ends[0].engine.peer_status(qps[0].qpn).map(|(at, status)| (at >= now, status)))
    };
    let expected = PeerStatus { version: 1, state: QpState::Rts as u8, ..PeerStatus::default() };
    for _ in 0..10 {
        assert_eq!(ask(&mut world), (true, Some((true, expected))));
    }
    let failed = QpAttr { state: QpState::Err, ..QpAttr::default() };
    let (now, engine) = (world.now, &mut world.ends[1].engine);
    engine.modify_qp(now, qps[1].key, AttrMask::STATE, &failed).expect("legal");
    let expected = PeerStatus { state: QpState::Err as u8, ..expected };
    assert_eq!(ask(&mut world), (true, Some((true, expected))));
    let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
    let (now, engine) = (world.now, &mut world.ends[1].engine);
    engine.modify_qp(now, qps[1].key, AttrMask::STATE, &reset).expect("legal");
    assert_eq!(ask(&mut world), (true, Some((false, expected))), "it is connected no more");
}
