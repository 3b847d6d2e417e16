//! What a peer that repeats its requests can make a NIC send.

use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_engine::{EngineConfig, QpHandle, QpInit, ReceiveSource};
use softrnic_link::sim::{Path, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_sim_tests::arena::Span;
use softrnic_sim_tests::world::{Agreement, Node, World};
use softrnic_transport::{QpType, RemoteBuffer};
use softrnic_wire::{AtomicEth, Body, Bth, Headers, ICRC_LEN, Mtu, Op, Psn, Qpn, Reth, SendTail, seal};

const NIC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const MEMORY: usize = 8 << 20;
const MTU: usize = 1024;
const FIRST: u32 = 100;

/// A NIC on a link of 10 Gb/s, and a peer that sends whatever it likes.
struct Scene {
    world: World,
    peer: SimLink,
    qp: QpHandle,
    memory: RemoteBuffer,
    /// Bytes of transport packets from the peer, and to it.
    said: usize,
    heard: usize,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new(1, Path::default());
        let options = SimOptions { bandwidth: Some(10_000_000_000), ..SimOptions::default() };
        let node = Node::new(&world.fabric, NIC.into(), options, EngineConfig::with_seed(1), MEMORY);
        world.nodes.push(node);
        let options = SimOptions { receive_buffer: usize::MAX, ..SimOptions::default() };
        let peer = world.fabric.attach(PEER.into(), options).expect("a free address");
        let node = &mut world.nodes[0];
        let cq = node.create_cq(64);
        let receive = ReceiveSource::Own(1);
        let init =
            QpInit { service: QpType::Rc, pd: node.pd, send_cq: cq, recv_cq: cq, max_send_wr: 1, receive };
        let qp = node.engine.create_qp(init).expect("a QP");
        let memory = node.remote(Span { offset: 0, len: MEMORY }, 0);
        let agreement = Agreement {
            mtu: Mtu::B1024,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            rd_atomic: 16,
            tos: 0,
        };
        let psns = (Psn::new(FIRST), Psn::new(FIRST));
        let mut attr = world.attributes(0, 0, Qpn::new(0xA00), &agreement, psns);
        attr.path.dst = PEER.into();
        world.bring_up(0, qp.key, QpType::Rc, &attr);
        world.settle();
        Scene { world, peer, qp, memory, said: 0, heard: 0 }
    }

    fn say(&mut self, psn: u32, op: Op) {
        let mut bth = Bth::new(self.qp.qpn, Psn::new(psn));
        bth.ack_req = true;
        let headers = Headers { bth, body: Body::Rc(op) };
        let flow = Flow { src: PEER.into(), dst: NIC.into(), sport: 0xC123, slot: None, tos: 0, ttl: 64 };
        let len = headers.transport_len(0);
        let slot = self.peer.reserve(self.world.now, &flow, len).expect("room");
        let at = headers.emit(slot.bytes);
        assert_eq!(at + ICRC_LEN, len);
        seal(&slot.facts, slot.bytes);
        self.peer.commit(self.world.now);
        self.peer.flush(self.world.now);
        self.said += len;
    }

    fn listen(&mut self, duration: Duration) {
        let end = self.world.now + duration;
        self.world.settle();
        while self.world.advance(end) {}
        self.world.now = end;
        let heard = &mut self.heard;
        self.peer.receive(end, usize::MAX, &mut |datagram| *heard += datagram.bytes.len());
    }

    /// A READ of `packets` packets that begins with packet `from` of the memory.
    fn read(&self, from: usize, packets: usize) -> Op {
        let va = self.memory.va + (from * MTU) as u64;
        Op::ReadRequest(Reth { va, rkey: self.memory.rkey, dma_len: (packets * MTU) as u32 })
    }
}

/// The most that a packet of a READ response takes, with headers.
const RESPONSE: usize = MTU + 20;

/// A READ of all the memory, and then only repeats of it, each a little further on: what they draw is bounded by the
/// READ's own length; beyond that, each draws one packet.
#[test]
fn repeats_of_a_read_draw_a_bounded_number_of_bytes() {
    for (gap, advance) in [(10, 1), (10, 0), (500, 1), (7_000, 1), (7_000, 0), (7_000, 8), (500, 8)] {
        let mut scene = Scene::new();
        let packets = MEMORY / MTU;
        scene.say(FIRST, scene.read(0, packets));
        let repeats = 1_000;
        for repeat in 0..repeats {
            scene.listen(Duration::from_micros(gap));
            let place = repeat * advance;
            scene.say(FIRST + place as u32, scene.read(place, packets - place));
        }
        scene.listen(Duration::from_secs(2));
        let moved = repeats * advance;
        let bound = (packets + 7 * moved + 4096 + repeats) * RESPONSE;
        println!("gap {gap} us, advance {advance}: {} bytes drew {} bytes", scene.said, scene.heard);
        assert!(
            scene.heard <= bound,
            "{} bytes drew {} bytes, more than {bound}: repeated every {gap} us, {advance} further on each time",
            scene.said,
            scene.heard
        );
    }
}

/// Each repeat of another request draws one short packet.
#[test]
fn repeats_of_other_requests_draw_a_short_packet_each() {
    const ANSWER: usize = 28;
    let mut scene = Scene::new();
    let (rkey, va) = (scene.memory.rkey, scene.memory.va);
    let atomic = Op::FetchAdd(AtomicEth { va, rkey, swap_or_add: 1, compare: 0 });
    let write = Op::WriteOnly(Reth { va, rkey, dma_len: 0 }, None);
    // The last of these finds no receive: an RNR NAK for each.
    let send = Op::SendOnly(SendTail::Plain);
    for (psn, op) in (FIRST..).zip([write, atomic, send]) {
        for _ in 0..1_000 {
            scene.say(psn, op);
            scene.listen(Duration::from_micros(2));
        }
    }
    // Ahead of the expected PSN: one NAK for all of them.
    for ahead in 10..1_000 {
        scene.say(FIRST + ahead, write);
        scene.listen(Duration::from_micros(2));
    }
    scene.listen(Duration::from_millis(1));
    assert!(scene.heard <= (3 * 1_000 + 1) * ANSWER, "{} bytes drew {}", scene.said, scene.heard);
}
