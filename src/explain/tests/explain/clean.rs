//! Captures without a fault.

use softrnic_explain::{Kind, MessageKind, PairedBy};
use softrnic_wire::*;

use super::common::{A, B, Capture, MTU, Side, ids, rep, req};
use super::{assert_faults, assert_told, report_of, text};

#[test]
fn traffic_between_two_linux_devices() {
    let report = report_of(include_bytes!("../../../inspect/tests/data/rxe-rxe.pcap"));
    let faults: Vec<_> = report.faults().map(|f| f.kind).collect();
    // One of the tools asks for a service without a listener.
    assert_eq!(faults, [Kind::ConnectionRefused], "\n{}", text(&report));
    assert_eq!(report.pairs.len(), 10);
    assert_eq!(report.connections.len(), 3);
    let by = |by| report.pairs.iter().filter(|p| p.paired_by == by).count();
    assert_eq!(by(PairedBy::Handshake), 2);
    assert_eq!(by(PairedBy::Answers), 3);
    assert_eq!(by(PairedBy::SourcePort), 1);
    assert_eq!(by(PairedBy::Datagrams), 4);
}

#[test]
fn every_kind_of_message() {
    let mut c = Capture::new();
    let reth = |len| Reth { va: 0x1000, rkey: Rkey(7), dma_len: len };
    let next = c.long_send(A, B, 0xFF_FFFE, 4) & 0xFF_FFFF;
    c.ack(B, A, next - 1, 1);
    c.rc(A, B, next, Op::WriteFirst(reth(2 * 1024)), false, MTU);
    c.rc(A, B, next + 1, Op::WriteLast(Some(Imm([1; 4]))), true, MTU);
    c.ack(B, A, next + 1, 2);
    c.read(A, B, next + 2, 0x1000, 2 * 1024 + 200);
    c.send(A, B, next + 5);
    c.responses(B, A, next + 2, 3, 3);
    c.ack(B, A, next + 5, 4);
    c.fetch_add(A, B, next + 6, 0x2000);
    c.atomic_ack(B, A, next + 6, 5, 1);
    c.rc(A, B, next + 7, Op::AtomicWrite(reth(8)), true, 8);
    c.rc(B, A, next + 7, Op::ReadResponseOnly(Aeth::ack(Msn::new(6))), false, 0);
    let feth = Feth { placement: Placement::PERSISTENCE, selectivity: Selectivity::Range };
    c.rc(A, B, next + 8, Op::Flush(feth, reth(64)), true, 0);
    c.rc(B, A, next + 8, Op::ReadResponseOnly(Aeth::ack(Msn::new(7))), false, 0);
    c.rc(A, B, next + 9, Op::SendOnly(SendTail::Inv(Rkey(9))), true, 0);
    c.ack(B, A, next + 9, 8);
    let report = assert_faults(&c, &[]);
    assert!(report.findings.is_empty(), "\n{}", text(&report));
    let kinds: Vec<_> = report.pairs[0].messages.iter().map(|m| m.kind).collect();
    use MessageKind::*;
    assert_eq!(kinds, [Send, Write, Read, Send, FetchAdd, AtomicWrite, Flush, Send]);
    assert!(report.pairs[0].messages.iter().all(|m| m.whole && m.answer.is_some()));
}

#[test]
fn coalesced_acks_and_both_directions_at_once() {
    let mut c = Capture::new();
    for round in 0..50 {
        for i in 0..4 {
            c.send(A, B, 100 + 4 * round + i);
            c.send(B, A, 9000 + 4 * round + i);
        }
        c.ack(B, A, 103 + 4 * round, 4 * (round + 1));
        c.ack(A, B, 9003 + 4 * round, 4 * (round + 1));
    }
    let report = assert_faults(&c, &[]);
    assert_eq!(report.pairs[0].message_counts, [200, 200]);
    let coalesced = report.pairs[0].messages.iter().filter(|m| m.coalesced).count();
    assert_eq!(coalesced, 300);
}

#[test]
fn ack_of_an_earlier_message_that_counts_a_later_read() {
    let mut c = Capture::new();
    for round in 0..5 {
        let psn = 100 + 2 * round;
        c.send(A, B, psn);
        c.read(A, B, psn + 1, 0x1000, 200);
        // The READ was validated, and so counted, before this ACK left.
        c.ack(B, A, psn, 2 * round + 2);
        c.response(B, A, psn + 1, 0, 1, 2 * round + 2);
    }
    assert_faults(&c, &[]);
}

#[test]
fn capture_that_begins_and_ends_in_the_middle() {
    let mut c = Capture::new();
    c.ack(B, A, 90, 40);
    c.rc(A, B, 100, Op::SendMiddle, false, MTU);
    c.rc(A, B, 101, Op::SendLast(SendTail::Plain), true, 7);
    c.ack(B, A, 101, 41);
    c.send(A, B, 102);
    let report = assert_faults(&c, &[]);
    assert_told(&report, Kind::Unanswered);
}

#[test]
fn only_one_direction_captured() {
    let mut c = Capture::new();
    for i in 0..10 {
        c.send(A, B, 100 + i);
        c.wait_us(100_000);
    }
    let report = assert_faults(&c, &[]);
    assert_told(&report, Kind::OneSided);
    let mut c = Capture::new();
    for i in 0..10 {
        c.ack(B, A, 100 + i, i);
    }
    assert_told(&assert_faults(&c, &[]), Kind::OneSided);
}

#[test]
fn many_pairs_between_two_hosts_with_the_same_psns() {
    let mut c = Capture::new();
    let sides = |i: u32| (Side { qpn: 0x100 + i, ..A }, Side { qpn: 0x900 - 3 * i, ..B });
    for psn in 0..20 {
        for i in 0..30 {
            let (a, b) = sides(i);
            c.send(a, b, psn);
            c.ack(b, a, psn, psn + 1);
        }
    }
    let report = assert_faults(&c, &[]);
    assert_eq!(report.pairs.len(), 30);
    for (i, pair) in report.pairs.iter().enumerate() {
        let (a, b) = sides(i as u32);
        assert_eq!(pair.ends.map(|e| e.qpn.unwrap().get()), [a.qpn, b.qpn]);
    }
}

#[test]
fn connection_set_up_used_and_ended_twice_with_the_same_qps() {
    let mut c = Capture::new();
    for round in 0..2 {
        let (ours, theirs) = (0x100 + round, 0x200 + round);
        c.mad(A, B, 0x10, 1, &req(ours, A.qpn, 9000));
        c.mad(B, A, 0x13, 1, &rep(theirs, ours, B.qpn, 100 + 5000 * round));
        c.mad(A, B, 0x14, 1, &ids(ours, theirs));
        for i in 0..3 {
            c.send(A, B, 100 + 5000 * round + i);
            c.ack(B, A, 100 + 5000 * round + i, i + 1);
        }
        c.mad(A, B, 0x15, 1, &ids(ours, theirs));
        c.mad(B, A, 0x16, 1, &ids(theirs, ours));
        c.wait_us(1_000_000);
    }
    let report = assert_faults(&c, &[]);
    assert_eq!(report.connections.len(), 2);
    assert_eq!(report.pairs.iter().filter(|p| p.paired_by == PairedBy::Handshake).count(), 2);
}

#[test]
fn answers_captured_a_little_before_their_requests() {
    let mut c = Capture::new();
    for i in 0..10 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, i + 1);
    }
    for i in (4..20).step_by(4) {
        c.frames.swap(i, i + 1);
    }
    let times: Vec<_> = (0..c.frames.len() as u64).map(|i| 1_000_000 + 10_000 * i).collect();
    for (frame, time) in c.frames.iter_mut().zip(times) {
        frame.0 = time;
    }
    assert_faults(&c, &[]);
}
