//! Multicast: a datagram to a group reaches every QP that is attached to it, and no other (IBTA 10.5.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softrnic_engine::{
    Cqe, EngineConfig, InlineBytes, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest, SendRequest,
};
use softrnic_link::Link;
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sim_tests::world::{Agreement, Node, QKEY, World, empty_send};
use softrnic_transport::{Path as QpPath, QpType, SendOp, Status};
use softrnic_wire::{Gid, Mtu, Psn, Qkey, Qpn, Time};

const GRH_LEN: usize = 40;

fn node_at(v6: bool, index: u8) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, index.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, index).into()
    }
}

fn world(v6: bool, sees_ip_header: bool) -> World {
    let mut world = World::new(1, Path { delay: Duration::from_micros(1), ..Path::default() });
    for index in 1..=3 {
        let options = SimOptions { sees_ip_header, counts_ids: true, ..SimOptions::default() };
        let config = EngineConfig::with_seed(u64::from(index));
        let node = Node::new(&world.fabric, node_at(v6, index), options, config, 64 << 10);
        world.nodes.push(node);
        world.nodes.last_mut().expect("just made").create_cq(16);
    }
    world
}

/// A UD QP in RTS, with a receive of 200 bytes at `offset` of the arena.
fn datagram_qp(world: &mut World, node: usize, qkey: Qkey) -> QpHandle {
    let site = &mut world.nodes[node];
    let cq = *site.cqs.keys().next().expect("a CQ");
    let receive = ReceiveSource::Own(4);
    let init = QpInit { service: QpType::Ud, pd: site.pd, send_cq: cq, recv_cq: cq, max_send_wr: 4, receive };
    let mut qp = site.engine.create_qp(init).expect("a QP");
    let agreement = Agreement {
        mtu: Mtu::B1024,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        rnr_timer: 0,
        rd_atomic: 0,
        tos: 0,
    };
    let span = site.arena.take(200, 8).expect("memory");
    site.arena.expose(span);
    let data = LocalData::Sges([site.sge(span, 0)].into_iter().collect());
    let request = RecvRequest { wr_id: span.offset as u64, data, length: 200 };
    assert!(qp.receives.as_mut().is_some_and(|ring| ring.push(request).is_ok()));
    let mut attr = world.attributes(node, node, Qpn::new(0), &agreement, (Psn::ZERO, Psn::ZERO));
    attr.qkey = qkey;
    world.bring_up(node, qp.key, QpType::Ud, &attr);
    qp
}

fn send(world: &mut World, node: usize, qp: &mut QpHandle, dst: IpAddr, dest_qpn: Qpn) {
    let path = QpPath { src: world.nodes[node].address, dst, sport: 0xC000, tos: 0, ttl: 5 };
    let request = SendRequest {
        op: SendOp::Datagram { path, dest_qpn, qkey: QKEY, imm: None },
        data: LocalData::Inline(InlineBytes::from_slice(b"to all of you")),
        length: 13,
        signaled: false,
        ..empty_send(0)
    };
    assert!(qp.sends.push(request).is_ok());
    let now = world.now;
    world.nodes[node].engine.on_doorbell(now, qp.key.index());
    world.settle();
    while world.advance(Time::NEVER) {}
}

fn received(world: &mut World, node: usize) -> Vec<Cqe> {
    let ring = world.nodes[node].cqs.values_mut().next().expect("a CQ");
    std::iter::from_fn(|| ring.pop()).collect()
}

fn attach(world: &mut World, node: usize, qp: &QpHandle, group: IpAddr) {
    let node = &mut world.nodes[node];
    if node.engine.attach_multicast(qp.key, Gid::from(group)).expect("attached") {
        node.link.join(group).expect("joined");
    }
}

#[test]
fn every_attached_qp_gets_one_copy() {
    for (v6, sees_ip_header) in [(false, false), (false, true), (true, false), (true, true)] {
        let group: IpAddr = if v6 {
            Ipv6Addr::new(0xFF0E, 0, 0, 0, 0, 0, 0, 9).into()
        } else {
            Ipv4Addr::new(239, 1, 2, 3).into()
        };
        let mut world = world(v6, sees_ip_header);
        let mut sender = datagram_qp(&mut world, 0, QKEY);
        let [one, two, _unattached] = [(); 3].map(|()| datagram_qp(&mut world, 1, QKEY));
        let [three, stranger] = [QKEY, Qkey(5)].map(|qkey| datagram_qp(&mut world, 2, qkey));
        for (node, qp) in [(1, &one), (1, &two), (2, &three), (2, &stranger)] {
            attach(&mut world, node, qp, group);
        }
        send(&mut world, 0, &mut sender, group, Qpn::MULTICAST);

        let mut at_one: Vec<_> = received(&mut world, 1).iter().map(|cqe| (cqe.qpn, cqe.status)).collect();
        at_one.sort_by_key(|(qpn, _)| *qpn);
        let mut expected = vec![(one.qpn, Status::Success), (two.qpn, Status::Success)];
        expected.sort_by_key(|(qpn, _)| *qpn);
        assert_eq!(at_one, expected);
        let at_two = received(&mut world, 2);
        assert_eq!(at_two.iter().map(|cqe| cqe.qpn).collect::<Vec<_>>(), [three.qpn]);
        assert_eq!((at_two[0].byte_len as usize, at_two[0].src_qpn), (GRH_LEN + 13, sender.qpn));
        let place = softrnic_sim_tests::arena::Span { offset: at_two[0].wr_id as usize, len: GRH_LEN + 13 };
        let bytes = world.nodes[2].arena.read(place);
        assert_eq!(&bytes[GRH_LEN..], b"to all of you");
        let address = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        assert!(bytes[..GRH_LEN].ends_with(&address(group)), "{bytes:x?}");
        // The one that is not attached still can be reached by its number.
        assert_eq!(received(&mut world, 0), []);
    }
}

#[test]
fn a_detached_qp_receives_nothing_sent_to_its_group() {
    let group = IpAddr::from(Ipv4Addr::new(239, 1, 2, 3));
    let mut world = world(false, true);
    let mut sender = datagram_qp(&mut world, 0, QKEY);
    let qp = datagram_qp(&mut world, 1, QKEY);
    attach(&mut world, 1, &qp, group);
    let now = world.now;
    assert!(world.nodes[1].engine.destroy_qp(now, qp.key).is_err(), "it is attached");
    assert_eq!(world.nodes[1].engine.detach_multicast(qp.key, Gid::from(group)), Ok(true));
    send(&mut world, 0, &mut sender, group, Qpn::MULTICAST);
    assert_eq!(received(&mut world, 1), []);
    let drops = world.nodes[1].engine.drops().find(|(reason, _)| reason.name() == "drop_multicast");
    assert_eq!(drops.map(|(_, count)| count), Some(1));
    world.nodes[1].link.leave(group).expect("left");
    assert!(world.nodes[1].engine.destroy_qp(now, qp.key).is_ok());
}
