//! How much gets through: a table of goodput by loss, number of QPs and number of senders.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_link::sim::{Path, SimOptions};
use softrnic_nic::engine::{EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, SendRequest};
use softrnic_transport::{QpType, SendOp};
use softrnic_wire::{Mtu, Psn};

use crate::world::{Agreement, Node, World};

/// What every link can carry, in bits per second.
const BANDWIDTH: u64 = 10_000_000_000;
/// Bytes of each WRITE.
const MESSAGE: usize = 64 << 10;
/// WRITEs that each QP keeps posted.
const DEPTH: usize = 4;
/// What a socket holds on many systems, in bytes.
const RECEIVE_BUFFER: usize = 212_992;
/// How long the receiver is busy with a datagram: 4 KiB at 10 Gb/s.
const PER_DATAGRAM: Duration = Duration::from_nanos(3_370);
/// How long the WRITEs are counted, and how long they run before that.
const MEASURED: Duration = Duration::from_millis(60);
const WARM_UP: Duration = Duration::from_millis(20);

/// The table, in gigabits per second of application bytes, all senders together.
pub fn table() -> String {
    let mut text =
        String::from("Goodput in Gb/s: RDMA WRITE of 64 KiB, MTU 4096, links of 10 Gb/s, 5 us one way,\n");
    text += "receive buffers of 212,992 bytes, a receiver that takes 3.37 us for a datagram.\n\n";
    text += "  loss   1 QP   4 QPs  16 QPs   8 senders to 1 receiver\n";
    for loss in [0.0, 0.001, 0.01, 0.05] {
        let row = [(1, 1), (1, 4), (1, 16), (8, 1)].map(|(senders, qps)| goodput(loss, senders, qps));
        let [one, four, sixteen, eight] = row;
        let _ = writeln!(text, "{:>5.1}% {one:>6.2} {four:>7.2} {sixteen:>7.2} {eight:>8.2}", loss * 100.0);
    }
    text
}

/// One end that keeps WRITEs posted.
struct Sender {
    node: usize,
    qp: QpHandle,
    request: SendRequest,
}

impl Sender {
    fn fill(&mut self, world: &mut World) {
        while self.qp.sends.push(self.request.clone()).is_ok() {}
        world.nodes[self.node].engine.on_doorbell(world.now, self.qp.key.index());
    }
}

/// Gigabits per second that arrive from `senders` NICs with `qps` QPs each.
pub fn goodput(loss: f64, senders: usize, qps: usize) -> f64 {
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
    let mut ends = Vec::new();
    for node in 1..=senders {
        for _ in 0..qps {
            ends.push(connect(&mut world, node));
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
            while ring.pop().is_some() {
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

fn connect(world: &mut World, node: usize) -> Sender {
    let mut handles = [node, 0].map(|node| {
        let node = &mut world.nodes[node];
        let cq = node.cqs.keys().next().copied().unwrap_or_else(|| node.create_cq(4096));
        let init = QpInit {
            service: QpType::Rc,
            pd: node.pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: DEPTH,
            receive: ReceiveSource::Own(1),
        };
        Some(node.engine.create_qp(init).expect("a QP"))
    });
    let agreement = Agreement {
        mtu: Mtu::B4096,
        timeout: 14,
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
    let source = world.nodes[node].arena.take(MESSAGE, 8).expect("memory");
    let target = world.nodes[0].arena.take(MESSAGE, 8);
    let target = target.unwrap_or(source);
    world.nodes[0].arena.expose(target);
    let data = LocalData::Sges([world.nodes[node].sge(source, 0)].into_iter().collect());
    let remote = world.nodes[0].remote(target, 0);
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::Write { remote, imm: None },
        data,
        length: MESSAGE as u32,
        signaled: true,
        solicited: false,
        fence: false,
        srqn: None,
    };
    Sender { node, qp: handles[0].take().expect("made above"), request }
}
