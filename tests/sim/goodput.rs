//! How much gets through: a table of goodput by loss, number of QPs and number of senders; and the streams that it
//! is measured with.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_engine::{
    EngineConfig, LocalData, QpHandle, QpInit, QpKey, ReceiveSource, RecvRequest, SendRequest,
};
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sync::queue::RecvRing;
use softrnic_transport::{QpType, SendOp, SendTail, Status};
use softrnic_wire::{Mtu, Psn};

use crate::arena::Span;
use crate::world::{Agreement, Node, World, empty_send};

/// What every link can carry, in bits per second.
const BANDWIDTH: u64 = 10_000_000_000;
/// Bytes of each message.
const MESSAGE: usize = 64 << 10;
/// Messages that each QP keeps posted.
const DEPTH: usize = 4;
/// What a socket holds on many systems, in bytes.
const RECEIVE_BUFFER: usize = 212_992;
/// How long the receiver is busy with a datagram: 4 KiB at 10 Gb/s.
const PER_DATAGRAM: Duration = Duration::from_nanos(3_370);
/// How long the messages are counted, and how long they run before that.
const MEASURED: Duration = Duration::from_millis(60);
const WARM_UP: Duration = Duration::from_millis(20);

/// The table, in gigabits per second of application bytes, all senders together.
pub fn table() -> String {
    let mut text =
        String::from("Goodput in Gb/s: RDMA WRITE of 64 KiB, MTU 4096, links of 10 Gb/s, 5 us one way,\n");
    text += "receive buffers of 212,992 bytes, a receiver that takes 3.37 us for a datagram.\n\n";
    text += "  loss   1 QP   4 QPs  16 QPs   8 senders to 1 receiver\n";
    for loss in LOSSES {
        let row = [(1, 1), (1, 4), (1, 16), (8, 1)];
        let [one, four, sixteen, eight] = row.map(|(senders, qps)| goodput(Kind::Write, loss, senders, qps));
        let _ = writeln!(text, "{:>5.1}% {one:>6.2} {four:>7.2} {sixteen:>7.2} {eight:>8.2}", loss * 100.0);
    }
    text += "\nThe same for RDMA READ, whose responses one NIC takes.\n\n";
    text += "  loss   1 QP   4 QPs  16 QPs\n";
    for loss in LOSSES {
        let [one, four, sixteen] = [1, 4, 16].map(|qps| goodput(Kind::Read, loss, 1, qps));
        let _ = writeln!(text, "{:>5.1}% {one:>6.2} {four:>7.2} {sixteen:>7.2}", loss * 100.0);
    }
    text
}

const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.05];

/// The operation of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// RDMA WRITEs.
    Write,
    /// RDMA READs.
    Read,
    /// SENDs.
    Send,
}

/// A stream of equal messages from one QP.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// What they are.
    pub kind: Kind,
    /// Bytes of each.
    pub message: usize,
    /// How many are posted at a time.
    pub depth: usize,
    /// Code of the local ACK timeout.
    pub timeout: u8,
}

/// One end that keeps requests posted.
pub struct Sender {
    /// The NIC that it is on.
    pub node: usize,
    /// Its QP.
    pub qp: QpHandle,
    /// The QP that it is connected to, on NIC 0.
    pub far: QpKey,
    request: SendRequest,
    /// For SENDs, what the other end receives into.
    receives: Option<(RecvRing<RecvRequest>, RecvRequest)>,
}

impl Sender {
    /// Posts as many requests as there is room for.
    pub fn fill(&mut self, world: &mut World) {
        if let Some((ring, receive)) = &mut self.receives {
            while ring.push(receive.clone()).is_ok() {}
        }
        while self.qp.sends.push(self.request.clone()).is_ok() {}
        world.nodes[self.node].engine.on_doorbell(world.now, self.qp.key.index());
    }
}

/// NIC 0, which takes some time for a datagram, and `senders` others on links of 10 Gb/s.
pub fn network(loss: f64, senders: usize) -> World {
    let mut world = World::new(1, Path { loss, ..Path::default() });
    let options = SimOptions {
        bandwidth: Some(BANDWIDTH),
        receive_buffer: RECEIVE_BUFFER,
        transmit_buffer: RECEIVE_BUFFER,
        ..SimOptions::default()
    };
    for index in 0..=senders {
        let address = Ipv4Addr::new(10, 0, 0, index as u8 + 1).into();
        let config = EngineConfig::with_seed(index as u64);
        let mut node = Node::new(&world.fabric, address, options, config, 1 << 20);
        node.pace = (index == 0).then_some(PER_DATAGRAM);
        world.nodes.push(node);
    }
    world
}

/// Gigabits per second that arrive from `senders` NICs with `qps` QPs each, or for READ at them.
pub fn goodput(kind: Kind, loss: f64, senders: usize, qps: usize) -> f64 {
    let mut world = network(loss, senders);
    if kind == Kind::Read {
        (world.nodes[0].pace, world.nodes[1].pace) = (None, world.nodes[0].pace);
    }
    let stream = Stream { kind, message: MESSAGE, depth: DEPTH, timeout: 14 };
    let mut ends = Vec::new();
    for node in 1..=senders {
        for _ in 0..qps {
            ends.push(connect(&mut world, node, &stream));
        }
    }
    for end in &mut ends {
        end.fill(&mut world);
    }
    let start = world.now + WARM_UP;
    let end = start + MEASURED;
    let mut bytes = 0;
    world.settle();
    while world.advance(end) {
        for sender in &mut ends {
            let mut done = 0;
            let ring = world.nodes[sender.node].cqs.values_mut().next().expect("a CQ");
            while let Some(cqe) = ring.pop() {
                assert_eq!(cqe.status, Status::Success, "{kind:?}, {qps} QPs, loss {loss}");
                done += 1;
            }
            if world.now >= start {
                bytes += done * MESSAGE;
            }
        }
        for sender in &mut ends {
            if sender.qp.sends.outstanding() < DEPTH {
                sender.fill(&mut world);
            }
        }
        world.settle();
    }
    bytes as f64 * 8.0 / MEASURED.as_nanos() as f64
}

/// Connects a QP of NIC `node` with one of NIC 0.
pub fn connect(world: &mut World, node: usize, stream: &Stream) -> Sender {
    let mut handles = [node, 0].map(|node| {
        let node = &mut world.nodes[node];
        let cq = node.cqs.keys().next().copied().unwrap_or_else(|| node.create_cq(4096));
        let init = QpInit {
            service: QpType::Rc,
            pd: node.pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: stream.depth,
            receive: ReceiveSource::Own(if stream.kind == Kind::Send { 2 * stream.depth } else { 1 }),
        };
        Some(node.engine.create_qp(init).expect("a QP"))
    });
    let agreement = Agreement {
        mtu: Mtu::B4096,
        timeout: stream.timeout,
        retry_cnt: 7,
        rnr_retry: 7,
        rnr_timer: 12,
        rd_atomic: 16,
        tos: 0,
    };
    let numbers = handles.each_ref().map(|handle| handle.as_ref().map(|handle| (handle.key, handle.qpn)));
    let [Some((near, near_qpn)), Some((far, far_qpn))] = numbers else { unreachable!("both were made") };
    let psns = (Psn::new(7), Psn::new(7));
    let there = world.attributes(node, 0, far_qpn, &agreement, psns);
    world.bring_up(node, near, QpType::Rc, &there);
    let back = world.attributes(0, node, near_qpn, &agreement, psns);
    world.bring_up(0, far, QpType::Rc, &back);
    // What the bytes are does not matter: all streams use the same ones.
    let span = Span { offset: 0, len: stream.message };
    let data = LocalData::Sges([world.nodes[node].sge(span, 0)].into_iter().collect());
    let remote = world.nodes[0].remote(span, 0);
    let request = SendRequest {
        op: match stream.kind {
            Kind::Write => SendOp::Write { remote, imm: None },
            Kind::Read => SendOp::Read { remote },
            Kind::Send => SendOp::Send(SendTail::Plain),
        },
        data,
        length: stream.message as u32,
        ..empty_send(1)
    };
    let receives = (stream.kind == Kind::Send).then(|| {
        let data = LocalData::Sges([world.nodes[0].sge(span, 0)].into_iter().collect());
        let receive = RecvRequest { wr_id: 1, data, length: stream.message as u32 };
        (handles[1].take().and_then(|handle| handle.receives).expect("its own queue"), receive)
    });
    Sender { node, qp: handles[0].take().expect("made above"), far, request, receives }
}
