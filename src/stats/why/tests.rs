use std::net::IpAddr;

use super::*;
use crate::PeerSnapshot;

const OWN: [u8; 4] = [127, 0, 0, 2];
const PEER: [u8; 4] = [127, 0, 0, 3];

fn device(pid: u32, address: [u8; 4], qp: QpSnapshot) -> Snapshot {
    Snapshot {
        pid,
        program: format!("program{pid}"),
        gids: [(0, address.into())].into(),
        qps: vec![qp],
        ..Snapshot::of("softrnic0")
    }
}

fn qp(qpn: u32, peer: [u8; 4], peer_qpn: u32) -> QpSnapshot {
    QpSnapshot {
        qpn,
        service: "RC".into(),
        state: "RTS".into(),
        peer: IpAddr::from(peer),
        peer_qpn,
        send_psn: 9,
        una_psn: 9,
        expected_psn: 9,
        msn: 0,
        in_flight: 0,
        queued_sends: 0,
        retries_left: 7,
        rnr_wait: false,
        waits_ns: None,
        posted: None,
        peer_says: None,
        peer_stopped: false,
        paced_rate: None,
        packets_sent: 0,
        packets_received: 0,
        bytes_sent: 0,
        bytes_received: 0,
        retransmitted: 0,
        rnr_sent: 0,
        rnr_received: 0,
    }
}

/// Process 1 waits with QP 5 for QP 6 of process 2.
fn both(change: impl FnOnce(&mut Snapshot, &mut Snapshot)) -> [Snapshot; 2] {
    let mut own = device(1, OWN, QpSnapshot { queued_sends: 2, ..qp(5, PEER, 6) });
    let mut peer = device(2, PEER, qp(6, OWN, 5));
    change(&mut own, &mut peer);
    [own, peer]
}

fn told(all: &[Snapshot]) -> (Wait, String) {
    let waiting = waiting(all, 1);
    let [one] = waiting.as_slice() else { panic!("{} QPs wait", waiting.len()) };
    (one.wait(), one.to_string())
}

#[test]
fn a_qp_without_requests_waits_for_nothing() {
    assert!(waiting(&both(|own, _| own.qps[0].queued_sends = 0), 1).is_empty());
    assert!(waiting(&both(|_, _| {}), 2).is_empty(), "the other side has posted nothing");
}

#[test]
fn a_peer_without_a_receive_is_named_by_both_sides() {
    let (wait, text) = told(&both(|own, peer| {
        (own.qps[0].rnr_wait, own.qps[0].rnr_received) = (true, 12);
        peer.qps[0].rnr_sent = 12;
    }));
    assert_eq!(wait, Wait::Receive);
    assert_eq!(
        text,
        "QP 0x5 of softrnic0 (RC, RTS, peer 127.0.0.3 QP 0x6): 2 requests are not complete\n  \
         waits for: the peer has no receive: it has said so 12 times (RNR NAK)\n  \
         the peer:  program2 (2): the QP is in RTS, expects PSN 0x9 and has answered 12 times that it has no receive\n"
    );
}

#[test]
fn each_wait_is_told_apart() {
    let of = |change: fn(&mut Snapshot, &mut Snapshot)| told(&both(change)).0;
    assert_eq!(of(|_, _| {}), Wait::Order);
    assert_eq!(of(|own, _| own.qps[0].una_psn = 8), Wait::Answer);
    assert_eq!(of(|own, _| own.qps[0].peer_stopped = true), Wait::StoppedPeer);
    assert_eq!(of(|own, _| own.qps[0].state = "INIT".into()), Wait::State);
    let full = |own: &mut Snapshot, _: &mut Snapshot| {
        own.peers.push(PeerSnapshot { address: PEER.into(), window: 4096, in_flight: 4096 });
    };
    assert_eq!(of(full), Wait::Window);
}

#[test]
fn what_is_wrong_at_the_other_side_is_told() {
    let says = |change: fn(&mut Snapshot, &mut Snapshot), wanted: &str| {
        let (_, text) = told(&both(change));
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    };
    says(|_, peer| peer.qps[0].state = "INIT".into(), "the QP is in INIT, in which it takes no requests");
    says(|_, peer| peer.qps[0].state = "ERR".into(), "the QP is in ERR, in which it takes no requests");
    says(|_, peer| peer.qps[0].peer_qpn = 7, "connected to QP 0x7 at 127.0.0.2 instead");
    says(|_, peer| peer.qps.clear(), "program2 (2): it has no such QP");
    says(|_, peer| peer.gids.clear(), "not one of this user's on this machine");
}
