//! A NIC that uses every freedom of the specification: what it may do is seen, and what it must keep is kept.

use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_engine::{
    CqKey, Cqe, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest,
};
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sim_tests::arena::Span;
use softrnic_sim_tests::rng::pattern;
use softrnic_sim_tests::world::{Agreement, Node, World, empty_send};
use softrnic_transport::{QpState, QpType, SendOp, Status};
use softrnic_wire::{Imm, Mtu, Psn};

const NEAR: usize = 0;
const FAR: usize = 1;
const SIZE: usize = 8192;
const SEEDS: std::ops::Range<u64> = 0..60;

/// Two adversarial NICs, with two QPs each, whose completions go to one queue.
struct Pair {
    world: World,
    cqs: [CqKey; 2],
    /// By NIC, then by connection.
    ends: [Vec<QpHandle>; 2],
    source: Span,
    target: Span,
}

/// What has been seen at one time.
struct Seen {
    /// Bytes of the message that are in memory.
    there: Vec<bool>,
    sends: Vec<Cqe>,
    receives: Vec<Cqe>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut world = World::new(1, Path { delay: Duration::from_micros(1), ..Path::default() });
        let mut ends = [Vec::new(), Vec::new()];
        let mut cqs = Vec::new();
        for (index, ends) in ends.iter_mut().enumerate() {
            let address = Ipv4Addr::new(10, 0, 0, index as u8 + 1).into();
            let config = EngineConfig { adversary: Some(seed), ..EngineConfig::with_seed(index as u64) };
            let mut node = Node::new(&world.fabric, address, SimOptions::default(), config, 1 << 20);
            let cq = node.create_cq(4096);
            let receive = ReceiveSource::Own(64);
            let init = QpInit {
                service: QpType::Rc,
                pd: node.pd,
                send_cq: cq,
                recv_cq: cq,
                max_send_wr: 8,
                receive,
            };
            for _ in 0..2 {
                ends.push(node.engine.create_qp(init).expect("a QP"));
            }
            cqs.push(cq);
            world.nodes.push(node);
        }
        let agreement = Agreement {
            mtu: Mtu::B1024,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 1,
            rd_atomic: 1,
            tos: 0,
        };
        let psns = (Psn::new(7), Psn::new(7));
        for (own, peer) in [(NEAR, FAR), (FAR, NEAR)] {
            for (end, other) in ends[own].iter().zip(&ends[peer]) {
                let attributes = world.attributes(own, peer, other.qpn, &agreement, psns);
                world.bring_up(own, end.key, QpType::Rc, &attributes);
            }
        }
        let source = world.nodes[NEAR].arena.take(SIZE, 8).expect("memory");
        let target = world.nodes[FAR].arena.take(SIZE, 8).expect("memory");
        world.nodes[NEAR].arena.write(source, &pattern(1, SIZE));
        world.nodes[FAR].arena.expose(target);
        Pair { world, cqs: [cqs[0], cqs[1]], ends, source, target }
    }

    fn post(&mut self, connection: usize, request: SendRequest) {
        let end = &mut self.ends[NEAR][connection];
        assert!(end.sends.push(request).is_ok(), "the send queue is full");
        self.world.nodes[NEAR].engine.on_doorbell(self.world.now, end.key.index());
    }

    fn post_receive(&mut self, connection: usize, wr_id: u64) {
        let receives = self.ends[FAR][connection].receives.as_mut().expect("a receive queue of its own");
        let receive = RecvRequest { wr_id, data: LocalData::empty(), length: 0 };
        assert!(receives.push(receive).is_ok(), "the receive queue is full");
    }

    /// A WRITE of all bytes, with immediate data.
    fn write(&self, wr_id: u64) -> SendRequest {
        let remote = self.world.nodes[FAR].remote(self.target, 0);
        let local = self.world.nodes[NEAR].sge(self.source, 0);
        SendRequest {
            op: SendOp::Write { remote, imm: Some(Imm([0; 4])) },
            data: LocalData::Sges([local].into_iter().collect()),
            length: SIZE as u32,
            ..empty_send(wr_id)
        }
    }

    fn completions(&mut self, node: usize) -> Vec<Cqe> {
        let ring = self.world.nodes[node].cqs.get_mut(&self.cqs[node]).expect("a CQ");
        std::iter::from_fn(|| ring.pop()).collect()
    }

    /// Lets time pass, and says what was seen each time that something happened.
    fn watch(&mut self) -> Vec<Seen> {
        let until = self.world.now + Duration::from_millis(50);
        let mut seen = Vec::new();
        self.world.settle();
        loop {
            let bytes = self.world.nodes[FAR].arena.read(self.target);
            let there = bytes.iter().zip(pattern(1, SIZE)).map(|(&found, wanted)| found == wanted).collect();
            let (sends, receives) = (self.completions(NEAR), self.completions(FAR));
            seen.push(Seen { there, sends, receives });
            if !self.world.advance(until) {
                return seen;
            }
        }
    }
}

fn wr_ids<'a>(seen: impl Iterator<Item = &'a Cqe>) -> Vec<u64> {
    seen.map(|cqe| cqe.wr_id).collect()
}

#[test]
fn a_queue_of_requests_without_completions_is_empty_after_a_reset() {
    let mut pair = Pair::new(1);
    let key = pair.ends[NEAR][0].key;
    for _ in 0..2 {
        for wr_id in 0..8 {
            pair.post(0, pair.write(wr_id));
        }
        // The receiver has no room, so none of them completes.
        pair.world.settle();
        pair.world.go(NEAR, key, QpState::Reset);
    }
}

#[test]
fn the_end_of_a_message_may_be_there_before_its_beginning_and_all_of_it_is_at_its_completion() {
    let mut out_of_order = 0;
    for seed in SEEDS {
        let mut pair = Pair::new(seed);
        pair.post_receive(0, 9);
        pair.post(0, pair.write(7));
        let seen = pair.watch();
        let is_early = |seen: &Seen| {
            seen.there[SIZE - 64..].iter().all(|&is| is) && seen.there.iter().filter(|&&is| !is).count() > 64
        };
        out_of_order += u32::from(seen.iter().any(is_early));
        for seen in seen.iter().filter(|seen| !seen.sends.is_empty() || !seen.receives.is_empty()) {
            assert!(seen.there.iter().all(|&is| is), "seed {seed}: completed before all bytes were there");
        }
        let all = |which: fn(&Seen) -> &Vec<Cqe>| wr_ids(seen.iter().flat_map(which));
        assert_eq!((all(|seen| &seen.sends), all(|seen| &seen.receives)), (vec![7], vec![9]), "seed {seed}");
    }
    assert!(out_of_order >= 5, "only {out_of_order} seeds have shown the end first");
}

#[test]
fn the_sender_may_have_its_completion_before_the_receiver() {
    let is_first = |seed| {
        let mut pair = Pair::new(seed);
        pair.post_receive(0, 9);
        pair.post(0, pair.write(7));
        let seen = pair.watch();
        let when = |done: fn(&Seen) -> bool| seen.iter().position(done).expect("a completion");
        when(|seen| !seen.sends.is_empty()) < when(|seen| !seen.receives.is_empty())
    };
    let count = SEEDS.filter(|&seed| is_first(seed)).count();
    assert!((1..60).contains(&count), "{count} of 60");
}

#[test]
fn completions_keep_the_order_of_their_queue_and_no_other() {
    let mut mixed = 0;
    for seed in SEEDS {
        let mut pair = Pair::new(seed);
        for number in 0..4 {
            for connection in 0..2 {
                pair.post_receive(connection, 0);
                pair.post(connection, empty_send(10 * connection as u64 + number));
            }
        }
        let seen = pair.watch();
        let sends = wr_ids(seen.iter().flat_map(|seen| &seen.sends));
        let of = |first: u64| sends.iter().copied().filter(|id| id / 10 == first).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec![0, 1, 2, 3], vec![10, 11, 12, 13]), "seed {seed}");
        mixed += u32::from(sends[0] == 10);
        let succeeded = seen.iter().flat_map(|seen| &seen.sends).all(|cqe| cqe.status == Status::Success);
        assert!(succeeded, "seed {seed}");
    }
    assert!((5..55).contains(&mixed), "the second connection was first {mixed} times of 60");
}

#[test]
fn slots_of_unsignaled_requests_are_free_with_the_next_completion() {
    for seed in SEEDS {
        let mut pair = Pair::new(seed);
        for number in 0..3 {
            pair.post_receive(0, number);
            pair.post(0, SendRequest { signaled: false, ..empty_send(number) });
        }
        pair.watch();
        assert_eq!(
            pair.ends[NEAR][0].sends.outstanding(),
            3,
            "seed {seed}: nothing has said that they are complete"
        );
        pair.post_receive(0, 3);
        pair.post(0, empty_send(3));
        pair.watch();
        assert_eq!(pair.ends[NEAR][0].sends.outstanding(), 0, "seed {seed}");
    }
}

#[test]
fn the_same_seed_decides_the_same() {
    let run = |seed| {
        let mut pair = Pair::new(seed);
        for number in 0..6 {
            pair.post_receive(0, number);
            pair.post(0, pair.write(number));
        }
        let seen = pair.watch();
        let times = |which: fn(&Seen) -> &Vec<Cqe>| {
            seen.iter().map(|seen| wr_ids(which(seen).iter())).collect::<Vec<_>>()
        };
        (times(|seen| &seen.sends), times(|seen| &seen.receives))
    };
    assert!(SEEDS.take(10).all(|seed| run(seed) == run(seed)));
    assert!(SEEDS.take(10).any(|seed| run(seed) != run(seed + 100)));
}
