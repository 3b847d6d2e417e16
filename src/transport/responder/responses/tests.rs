use alloc::vec::Vec;

use softrnic_wire::{Reth, Rkey};

use super::*;
use crate::host::Domain;

fn psn(value: u32) -> Psn {
    Psn::new(value)
}

fn ack(value: u32) -> Response {
    Response::ack(psn(value), Msn::ZERO)
}

fn empty(value: u32) -> Response {
    Response::Empty { psn: psn(value), msn: Msn::ZERO }
}

fn saved(first: u32, packets: u32, kind: SavedKind) -> Saved {
    Saved { first: psn(first), packets, msn: Msn::ZERO, kind }
}

fn atomic(first: u32, repeated: bool) -> Response {
    Response::saved(saved(first, 1, SavedKind::Atomic(0)), repeated)
}

fn read(first: u32, packets: u32) -> Saved {
    let reth = Reth { va: 0, rkey: Rkey(1), dma_len: packets };
    saved(first, packets, SavedKind::Read(Domain(0), reth))
}

fn queue(responses: impl IntoIterator<Item = Response>) -> Responses {
    Responses { queue: responses.into_iter().collect() }
}

fn psns(responses: &Responses) -> Vec<u32> {
    responses.queue.iter().map(|response| response.psn().get()).collect()
}

#[test]
fn repeated_answers_are_not_owed() {
    // An atomic whose answer was lost is answered again while new ones come; it takes none of their places.
    let mut responses = Responses::new();
    responses.repeat(atomic(1, true));
    responses.push(atomic(2, false));
    assert_eq!((responses.len(), responses.owed()), (2, 1));
}

#[test]
fn reads_and_atomics_are_owed_and_acks_are_not() {
    let responses = queue([ack(1), atomic(2, false), Response::read(read(3, 2)), ack(5), empty(6)]);
    assert_eq!(responses.owed(), 2);
    for (limit, fewer) in [(1, false), (2, false), (3, true), (5, true), (6, true)] {
        assert_eq!(responses.owes_fewer_than(limit), fewer, "{limit}");
    }
    assert!(!queue([atomic(1, false)]).owes_fewer_than(1));
}

#[test]
fn an_ack_swallows_the_one_before_it_and_no_other() {
    let mut responses = queue([ack(1)]);
    responses.push(ack(2));
    assert_eq!(psns(&responses), [2]);
    responses.push(ack(1));
    assert_eq!(psns(&responses), [2], "it never goes back");
    responses.push(empty(3));
    responses.push(ack(4));
    assert_eq!(psns(&responses), [2, 3, 4], "nor over another answer");
}

#[test]
fn only_a_lone_ack_can_be_delayed() {
    assert_eq!(queue([]).lone_ack(), None);
    assert_eq!(queue([ack(7)]).lone_ack(), Some(LoneAck { psn: psn(7), replaces: false }));
    let mut replaced = queue([ack(7)]);
    replaced.push(ack(8));
    assert_eq!(replaced.lone_ack(), Some(LoneAck { psn: psn(8), replaces: true }));
    assert_eq!(queue([empty(7)]).lone_ack(), None);
    assert_eq!(queue([ack(7), empty(8)]).lone_ack(), None);
}

#[test]
fn repeated_answers_go_before_those_to_later_requests() {
    let mut responses = queue([empty(1), empty(5)]);
    assert!(responses.repeat(atomic(3, true)));
    assert_eq!(psns(&responses), [1, 3, 5]);
    assert!(responses.repeat(atomic(9, true)));
    assert_eq!(psns(&responses), [1, 3, 5, 9]);
}

#[test]
fn the_same_answer_waits_once() {
    let mut responses = queue([atomic(3, false), empty(4)]);
    assert!(!responses.repeat(atomic(3, true)));
    assert!(responses.repeat(atomic(4, true)), "of another kind at that PSN");
    assert!(responses.repeat(atomic(5, true)), "of that kind at another PSN");
    assert_eq!(psns(&responses), [3, 4, 4, 5]);
}

#[test]
fn a_repeated_ack_joins_the_one_that_waits() {
    let mut responses = queue([ack(3)]);
    assert!(responses.repeat(ack(4)));
    assert_eq!(psns(&responses), [4]);
}

#[test]
fn a_peer_that_repeats_without_end_fills_half_of_the_queue() {
    let mut responses = Responses::new();
    let taken = (0..).take_while(|&at| responses.repeat(atomic(at, true))).count();
    assert_eq!(taken, MAX_REPEATED);
    assert!(!responses.is_full());
}

#[test]
fn a_full_queue_takes_no_more_requests() {
    let mut responses = queue((0..FULL as u32 - 1).map(empty));
    assert!(!responses.is_full());
    responses.push(empty(FULL as u32));
    assert!(responses.is_full());
}

#[test]
fn a_read_answer_begins_again_at_any_of_its_packets() {
    let mut responses = queue([Response::read(read(2, 1)), Response::read(read(10, 4))]);
    let Some(Response::Read { sent, .. }) = responses.queue.back_mut() else { unreachable!() };
    *sent = 2;
    let sent_from = |at| responses.sent_from(psn(at));
    assert_eq!([9, 10, 11, 12, 13, 14].map(sent_from), [None, Some(2), Some(1), Some(0), Some(0), None]);
    responses.send_again(read(11, 3));
    assert_eq!(psns(&responses), [2, 11], "that one, and no other");
    assert_eq!(responses.sent_from(psn(11)), Some(0));
    assert_eq!(responses.sent_from(psn(14)), None);
}

#[test]
fn only_read_answers_restart() {
    let mut responses = queue([empty(10), ack(11)]);
    assert_eq!(responses.sent_from(psn(10)), None);
    responses.send_again(read(10, 1));
    assert_eq!(psns(&responses), [10, 11]);
}

#[test]
fn a_read_is_answered_up_to_its_end() {
    let mut responses = Responses::new();
    assert!(responses.is_empty());
    responses.repeat(Response::Read { saved: read(10, 4), sent: 0, end: 2, repeated: true });
    assert!(!responses.is_empty());
    assert_eq!(responses.sent_from(psn(11)), Some(0));
    assert_eq!(responses.sent_from(psn(12)), None, "of a repeat that is cut no more will come");
}
