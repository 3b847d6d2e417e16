//! Which ACKs wait, and for what.

use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_link::Link;
use softrnic_link::sim::{Path, SimOptions};
use softrnic_nic::engine::{
    Caller, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest,
};
use softrnic_sim_tests::world::{Agreement, Node, World};
use softrnic_transport::{QpType, RemoteBuffer, SendExtra, SendOp};
use softrnic_wire::{Mtu, Psn};

const NEAR: usize = 0;
const FAR: usize = 1;

/// Two NICs, with a QP each. What the near one does with its ACKs is looked at; the far one's never wait.
struct Pair {
    world: World,
    ends: Vec<QpHandle>,
    mailbox: RemoteBuffer,
}

impl Pair {
    fn new(ack_trial: u32) -> Pair {
        let mut world = World::new(1, Path { delay: Duration::from_micros(1), ..Path::default() });
        let mut ends = Vec::new();
        for index in [NEAR, FAR] {
            let address = Ipv4Addr::new(10, 0, 0, index as u8 + 1).into();
            let config = EngineConfig { ack_trial, ..EngineConfig::with_seed(index as u64) };
            let mut node = Node::new(&world.fabric, address, SimOptions::default(), config, 1 << 20);
            let cq = node.create_cq(4096);
            let init = QpInit {
                service: QpType::Rc,
                pd: node.pd,
                send_cq: cq,
                recv_cq: cq,
                max_send_wr: 64,
                receive: ReceiveSource::Own(64),
            };
            ends.push(node.engine.create_qp(init).expect("a QP"));
            world.nodes.push(node);
        }
        let agreement = Agreement {
            mtu: Mtu::B1024,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            rd_atomic: 1,
            tos: 0,
        };
        for (own, peer) in [(NEAR, FAR), (FAR, NEAR)] {
            let attributes =
                world.attributes(own, peer, ends[peer].qpn, &agreement, (Psn::new(7), Psn::new(7)));
            world.bring_up(own, ends[own].key, QpType::Rc, &attributes);
        }
        let span = world.nodes[NEAR].arena.take(64, 8).expect("memory");
        world.nodes[NEAR].arena.expose(span);
        let mailbox = world.nodes[NEAR].remote(span, 0);
        Pair { world, ends, mailbox }
    }

    fn post(&mut self, node: usize, op: SendOp<LocalData>) {
        let request = SendRequest {
            wr_id: 0,
            op,
            data: LocalData::empty(),
            length: 0,
            signaled: false,
            solicited: false,
            fence: false,
            srqn: None,
        };
        assert!(self.ends[node].sends.push(request).is_ok(), "the send queue is full");
        self.world.nodes[node].engine.on_doorbell(self.world.now, self.ends[node].key.index());
    }

    /// The far NIC sends something, and `caller` finds it at the near one.
    fn ask(&mut self, op: SendOp<LocalData>, caller: Caller) {
        self.post(FAR, op);
        self.world.nodes[NEAR].caller = caller;
        self.world.settle();
        self.world.advance(self.world.now + Duration::from_micros(1));
    }

    fn ask_by_send(&mut self) {
        let receive = || RecvRequest { wr_id: 0, data: LocalData::empty(), length: 0 };
        for end in [NEAR, FAR] {
            let receives = self.ends[end].receives.as_mut().expect("a receive queue of its own");
            assert!(receives.push(receive()).is_ok(), "the receive queue is full");
        }
        self.ask(SendOp::Send(SendExtra::Plain), Caller::Poll);
    }

    /// The near NIC's application answers. Returns how many packets its NIC has sent since `before`.
    fn answer(&mut self, before: u64) -> u64 {
        self.post(NEAR, SendOp::Send(SendExtra::Plain));
        self.world.nodes[NEAR].caller = Caller::Post;
        self.world.settle();
        let sent = self.sent() - before;
        // The far end's ACK comes back, and nothing else happens.
        self.world.nodes[NEAR].caller = Caller::Poll;
        for _ in 0..2 {
            self.world.advance(self.world.now + Duration::from_micros(1));
        }
        sent
    }

    /// Nobody does anything for a while.
    fn wait(&mut self) {
        let end = self.world.now + Duration::from_micros(100);
        while self.world.advance(end) {}
    }

    fn sent(&self) -> u64 {
        self.world.nodes[NEAR].link.counters().tx_datagrams
    }
}

#[test]
fn what_the_progress_thread_finds_is_acknowledged_with_the_answer_where_one_has_come() {
    let mut pair = Pair::new(u32::MAX);
    let write = |pair: &Pair| SendOp::Write { remote: pair.mailbox, imm: None };
    let receive = RecvRequest { wr_id: 0, data: LocalData::empty(), length: 0 };
    for _ in 0..8 {
        let receives = pair.ends[FAR].receives.as_mut().expect("a receive queue of its own");
        assert!(receives.push(receive.clone()).is_ok());
    }
    let question = write(&pair);
    pair.ask(question.clone(), Caller::Thread);
    assert_eq!(pair.sent(), 1, "nothing is known yet: the ACK leaves at once");
    assert_eq!(pair.answer(1), 1);

    pair.ask(question.clone(), Caller::Thread);
    assert_eq!(pair.sent(), 2, "the application has answered before: the ACK waits");
    assert_eq!(pair.answer(2), 2, "and leaves with the answer");

    pair.ask(question.clone(), Caller::Thread);
    assert_eq!(pair.sent(), 4);
    pair.world.nodes[NEAR].caller = Caller::Thread;
    pair.world.settle();
    assert_eq!(pair.sent(), 5, "no answer came: the ACK leaves with the next call");

    pair.ask(question, Caller::Thread);
    assert_eq!(pair.sent(), 6, "and the next one at once");
}

#[test]
fn a_peer_that_goes_on_without_acks_gets_few() {
    const TRIAL: u32 = 3;
    let mut pair = Pair::new(TRIAL);
    // Two answers carry their ACKs; then eight do not and one does, again and again.
    let expected = [2, 2].into_iter().chain([1, 1, 1, 1, 1, 1, 1, 1, 2].into_iter().cycle());
    for (round, expected) in expected.enumerate().take(40) {
        let before = pair.sent();
        pair.ask_by_send();
        assert_eq!(pair.answer(before), expected, "in round {round}");
    }
    // The last one leaves although nothing comes.
    let before = pair.sent();
    pair.wait();
    assert_eq!(pair.sent(), before + 1);
    assert_eq!(pair.ends[FAR].sends.outstanding(), 0);
}

#[test]
fn a_peer_that_waits_for_acks_gets_them_with_the_answers() {
    let mut pair = Pair::new(1);
    let mut alone = Vec::new();
    for round in 0..100 {
        let before = pair.sent();
        pair.ask_by_send();
        if pair.answer(before) == 1 {
            alone.push(round);
            // The peer waits.
            pair.wait();
        }
        assert_eq!(pair.ends[FAR].sends.outstanding(), 0);
    }
    assert_eq!(alone, [0, 4, 12, 28, 60], "seldom, and ever more seldom");
}

#[test]
fn a_kept_ack_leaves_before_control_operations() {
    let mut pair = Pair::new(1);
    let before = pair.sent();
    pair.ask_by_send();
    assert_eq!(pair.answer(before), 1);
    assert!(pair.world.nodes[NEAR].engine.holds_acks());
    pair.world.nodes[NEAR].caller = Caller::Control;
    pair.world.settle();
    assert_eq!(pair.sent(), before + 2);
    assert!(!pair.world.nodes[NEAR].engine.holds_acks());
}
