use alloc::vec::Vec;

use softrnic_wire::{Rkey, SendTail};

use super::*;
use crate::wqe::{LocalOp, RemoteBuffer};

const MTU: u32 = 256;
const FULL: u64 = MTU as u64 + PACKET_OVERHEAD;
const REMOTE: RemoteBuffer = RemoteBuffer { va: 0, rkey: Rkey(1) };
const SEND: SendOp = SendOp::Send(SendTail::Plain);

fn psn(value: u32) -> Psn {
    Psn::new(value)
}

fn wqe(op: SendOp, length: u32) -> SendWqe<()> {
    SendWqe { wr_id: 0, op, data: (), length, signaled: true, solicited: false, fence: false, srqn: None }
}

/// A request whose PSNs begin at 100.
fn entry(op: SendOp, length: u32, packets: u32) -> Entry<()> {
    Entry { wqe: wqe(op, length), first: psn(100), packets, sent: 0, fault: None }
}

fn cost(entry: &Entry<()>, from: u32, to: u32) -> u64 {
    entry.cost(psn(from), psn(to), MTU)
}

/// A queue of such requests that begins at PSN 100.
fn queue(ops: impl IntoIterator<Item = SendOp>) -> SendQueue<()> {
    let mut queue = SendQueue::new(psn(100));
    for op in ops {
        assert!(queue.has_room());
        queue.push(wqe(op, MTU));
    }
    queue
}

/// Sends the packet at the cursor.
fn send(queue: &mut SendQueue<()>) {
    let to = queue.cursor + 1;
    let cost = queue.cost_to(to, MTU);
    queue.advance(to, cost);
}

fn local() -> SendOp {
    SendOp::Local(LocalOp::Invalidate(Rkey(1)))
}

#[test]
fn a_request_owns_the_psns_of_its_packets_and_no_more() {
    let three = entry(SEND, 3 * MTU, 3);
    let owned: Vec<_> = (98..105).filter(|&value| three.owns(psn(value))).collect();
    assert_eq!(owned, [100, 101, 102]);
    assert!(!entry(local(), 0, 0).owns(psn(100)), "a local operation owns none");
    let wraps = Entry { first: Psn::ZERO - 1, ..entry(SEND, 2 * MTU, 2) };
    assert!(wraps.owns(Psn::ZERO - 1) && wraps.owns(Psn::ZERO) && !wraps.owns(psn(1)));
}

#[test]
fn packets_are_charged_to_the_window_with_their_payload() {
    for op in [SEND, SendOp::Write { remote: REMOTE, imm: None }, SendOp::Read { remote: REMOTE }] {
        let whole = entry(op, 2 * MTU + 10, 3);
        assert_eq!(cost(&whole, 100, 101), FULL);
        assert_eq!(cost(&whole, 100, 102), 2 * FULL);
        assert_eq!(cost(&whole, 102, 103), 10 + PACKET_OVERHEAD, "the last is short");
        assert_eq!(cost(&whole, 100, 103), 2 * FULL + 10 + PACKET_OVERHEAD);
        assert_eq!(cost(&whole, 101, 101), 0);
        assert_eq!(cost(&whole, 103, 103), 0, "nothing, at the end too");
        assert_eq!(cost(&whole, 102, 101), 0, "a cursor that went back owes nothing");
    }
}

#[test]
fn requests_without_data_cost_a_packet_each() {
    let atomic = entry(SendOp::FetchAdd { remote: REMOTE, add: 1 }, 8, 1);
    assert_eq!(cost(&atomic, 100, 101), PACKET_OVERHEAD);
    assert_eq!(cost(&entry(SEND, 0, 1), 100, 101), PACKET_OVERHEAD, "a SEND of nothing as well");
}

#[test]
fn it_takes_a_bounded_number_of_requests_and_has_room_again_when_one_is_done() {
    let mut queue = queue([]);
    while queue.has_room() {
        queue.push(wqe(SEND, 0));
        assert!(queue.entries.len() < 2 * MOST, "it grows by doubling, and only below the bound");
    }
    assert!(queue.entries.len() >= MOST);
    queue.pop();
    assert!(queue.has_room());
}

#[test]
fn the_cursor_passes_local_operations_that_are_done() {
    let mut queue = queue([SEND, local(), local(), SEND]);
    queue.start(1);
    send(&mut queue);
    queue.start(0);
    queue.start(0);
    queue.start(1);
    send(&mut queue);
    queue.rewind();
    assert_eq!((queue.at, queue.cursor), (0, psn(100)));
    send(&mut queue);
    assert_eq!(queue.at, 3, "what is sent again is the next SEND");
}

#[test]
fn the_cursor_stays_at_a_local_operation_that_failed() {
    let mut queue = queue([SEND, local(), SEND]);
    queue.start(1);
    send(&mut queue);
    queue.start(0);
    queue.entries[1].fault = Some(Reason::LocalOperation);
    queue.rewind();
    send(&mut queue);
    assert_eq!(queue.at, 1, "nothing behind it may be sent");
}

#[test]
fn acknowledged_packets_are_no_longer_in_flight() {
    let mut queue = queue([SEND, SEND]);
    for _ in 0..2 {
        queue.start(1);
        send(&mut queue);
    }
    assert_eq!(queue.in_flight, 2 * FULL);
    assert_eq!(queue.acknowledge_to(psn(101), MTU, 0), FULL);
    assert_eq!(queue.in_flight, FULL);
}

#[test]
fn a_late_ack_after_going_back_frees_nothing() {
    let mut queue = queue([SEND]);
    queue.start(1);
    send(&mut queue);
    queue.rewind();
    assert_eq!(queue.acknowledge_to(psn(101), MTU, 0), 0);
    assert_eq!((queue.una, queue.cursor, queue.in_flight), (psn(101), psn(101), 0));
}
