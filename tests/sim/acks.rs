//! Which ACKs wait, and for what.

use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_engine::{
    Caller, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest,
};
use softrnic_link::Link;
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sim_tests::world::{Agreement, Node, World, empty_send};
use softrnic_transport::{QpType, RemoteBuffer, SendOp, SendTail};
use softrnic_wire::{Mtu, Psn};

const NEAR: usize = 0;
const FAR: usize = 1;

/// Two NICs, with a QP each. The test checks what the near one does with its ACKs; the far one's never wait.
struct Pair {
    world: World,
    ends: Vec<QpHandle>,
    mailbox: RemoteBuffer,
}

impl Pair {
    fn new() -> Pair {
        Pair::on(SimOptions::default())
    }

    fn on(options: SimOptions) -> Pair {
        let mut world = World::new(1, Path { delay: Duration::from_micros(1), ..Path::default() });
        let mut ends = Vec::new();
        for index in [NEAR, FAR] {
            let address = Ipv4Addr::new(10, 0, 0, index as u8 + 1).into();
            let config = EngineConfig::with_seed(index as u64);
            let mut node = Node::new(&world.fabric, address, options, config, 1 << 20);
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

    fn post(&mut self, node: usize, op: SendOp) {
        let request = SendRequest { op, signaled: false, ..empty_send(0) };
        assert!(self.ends[node].sends.push(request).is_ok(), "the send queue is full");
        self.world.nodes[node].engine.on_doorbell(self.world.now, self.ends[node].key.index());
    }

    /// The far NIC sends something, and `caller` finds it at the near one.
    fn ask(&mut self, op: SendOp, caller: Caller) {
        self.post(FAR, op);
        self.world.nodes[NEAR].caller = caller;
        self.world.settle();
        self.world.advance(self.world.now + Duration::from_micros(1));
    }

    fn post_receives(&mut self, end: usize, count: usize) {
        let receives = self.ends[end].receives.as_mut().expect("a receive queue of its own");
        for _ in 0..count {
            let receive = RecvRequest { wr_id: 0, data: LocalData::empty(), length: 0 };
            assert!(receives.push(receive).is_ok(), "the receive queue is full");
        }
    }

    fn ask_by_send(&mut self) {
        self.post_receives(NEAR, 1);
        self.post_receives(FAR, 1);
        self.ask(SendOp::Send(SendTail::Plain), Caller::Poll);
    }

    fn write(&self) -> SendOp {
        SendOp::Write { remote: self.mailbox, imm: None }
    }

    /// A WRITE of the far NIC arrives while the near application polls for the completion of a request of its own. Its
    /// ACK is on its way when this returns.
    fn ask_who_waits(&mut self) {
        self.post(FAR, self.write());
        self.world.settle();
        let found = self.world.now + Duration::from_micros(1);
        self.world.now += Duration::from_nanos(500);
        self.post(NEAR, SendOp::Send(SendTail::Plain));
        self.world.nodes[NEAR].caller = Caller::Post;
        self.world.settle();
        self.world.nodes[NEAR].caller = Caller::Poll;
        self.world.advance(found);
    }

    /// The near NIC's application answers. Returns how many packets its NIC has sent since `before`.
    fn answer(&mut self, before: u64) -> u64 {
        self.post(NEAR, SendOp::Send(SendTail::Plain));
        self.world.nodes[NEAR].caller = Caller::Post;
        self.world.settle();
        let sent = self.sent() - before;
        // The far end's ACK arrives, and nothing else happens.
        self.world.nodes[NEAR].caller = Caller::Poll;
        for _ in 0..2 {
            self.world.advance(self.world.now + Duration::from_micros(1));
        }
        sent
    }

    fn sent(&self) -> u64 {
        self.world.nodes[NEAR].link.counters().tx_datagrams
    }
}

#[test]
fn a_message_found_by_the_progress_thread_is_acknowledged_with_the_reply() {
    let mut pair = Pair::new();
    pair.post_receives(FAR, 8);
    let question = pair.write();
    pair.ask(question, Caller::Thread);
    assert_eq!(pair.sent(), 1, "nothing is known yet: the ACK leaves at once");
    assert_eq!(pair.answer(1), 1);

    pair.ask(question, Caller::Thread);
    assert_eq!(pair.sent(), 2, "the application has answered before: the ACK waits");
    assert_eq!(pair.answer(2), 2, "and leaves with the answer");

    pair.ask(question, Caller::Thread);
    assert_eq!(pair.sent(), 4);
    pair.world.nodes[NEAR].caller = Caller::Thread;
    pair.world.settle();
    assert_eq!(pair.sent(), 5, "no answer came: the ACK leaves with the next call");

    pair.ask(question, Caller::Thread);
    assert_eq!(pair.sent(), 6, "and the next one at once");
}

#[test]
fn a_message_found_by_a_poll_for_a_request_is_acknowledged_with_the_reply() {
    let mut pair = Pair::new();
    pair.post_receives(FAR, 16);
    pair.ask_who_waits();
    assert_eq!(pair.sent(), 2, "nothing is known yet: the ACK leaves at once");
    assert_eq!(pair.answer(2), 1);

    pair.ask_who_waits();
    assert_eq!(pair.sent(), 4, "the application has answered before: the ACK waits");
    assert_eq!(pair.answer(4), 2, "and leaves with the answer");
    assert_eq!(pair.ends[FAR].sends.outstanding(), 0);

    pair.ask_who_waits();
    let found = pair.world.now;
    assert_eq!(pair.sent(), 7);
    while pair.sent() == 7 {
        assert!(pair.world.advance(found + Duration::from_micros(20)), "the ACK never leaves");
    }
    assert_eq!(pair.world.now - found, Duration::from_micros(10), "no answer came");

    pair.ask_who_waits();
    assert_eq!(pair.sent(), 10, "and the next one leaves at once");
}

#[test]
fn an_ack_does_not_wait_for_an_answer_that_the_peer_does_not_wait_for() {
    let mut pair = Pair::new();
    pair.post_receives(FAR, 16);
    pair.ask_who_waits();
    pair.answer(2);
    pair.ask_who_waits();
    let before = pair.sent();
    pair.post(FAR, pair.write());
    pair.world.settle();
    let found = pair.world.now + Duration::from_micros(1);
    while pair.world.advance(found) {}
    assert_eq!(pair.sent(), before + 1, "one ACK for both");
    assert_eq!(pair.ends[FAR].sends.outstanding(), 2, "which is on its way");
}

#[test]
fn a_peer_that_polls_for_the_end_of_its_write_has_the_answer_by_then() {
    // Each packet takes a while, so the second one arrives later than the first.
    let options = SimOptions { bandwidth: Some(1_000_000_000), ..SimOptions::default() };
    let mut pair = Pair::on(options);
    let question = pair.write();
    pair.ask(question, Caller::Poll);
    pair.world.nodes[NEAR].caller = Caller::Poll;
    pair.post(NEAR, pair.write());
    let mut seen = Vec::new();
    while pair.world.nodes[FAR].link.counters().rx_datagrams < 2 {
        let before = pair.world.nodes[FAR].link.counters().rx_datagrams;
        assert!(pair.world.advance(pair.world.now + Duration::from_micros(100)));
        if pair.world.nodes[FAR].link.counters().rx_datagrams > before {
            seen.push(pair.ends[FAR].sends.outstanding());
        }
    }
    assert_eq!(seen, [1, 0], "the answer, then the end of the question");
}

/// What leaves does not depend on what happened before.
#[test]
fn every_answer_carries_its_ack() {
    let mut pair = Pair::new();
    for round in 0..600 {
        let before = pair.sent();
        pair.ask_by_send();
        assert_eq!(pair.answer(before), 2, "in round {round}");
        assert_eq!(pair.ends[FAR].sends.outstanding(), 0);
    }
}

#[test]
fn an_ack_that_waits_leaves_before_control_operations() {
    let mut pair = Pair::new();
    let before = pair.sent();
    pair.ask_by_send();
    assert_eq!(pair.sent(), before, "an answer is likely");
    assert!(pair.world.nodes[NEAR].engine.holds_acks());
    pair.world.nodes[NEAR].caller = Caller::Control;
    pair.world.settle();
    assert_eq!(pair.sent(), before + 1);
    assert!(!pair.world.nodes[NEAR].engine.holds_acks());
}
