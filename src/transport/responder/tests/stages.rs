//! What a request with the expected PSN must be to be executed (IBTA 9.7.4, 9.7.5.1).

use softrnic_wire::{Feth, Imm, Placement, Selectivity, Srqn};

use super::*;

const OUT_OF_ORDER: Outcome = Outcome::Fatal(Reason::OpcodeSequence);

fn flush(placement: Placement) -> Op {
    Op::Flush(Feth { placement, selectivity: Selectivity::Range }, reth(8))
}

#[test]
fn an_open_message_must_end_before_another_begins() {
    // C9-82 to C9-87.
    let full = [7; MTU as usize];
    let firsts = [Op::SendFirst, Op::WriteFirst(reth(3 * MTU))];
    let others: [(Op, &[u8]); 6] = [
        (Op::SendFirst, &full),
        (SEND, &[]),
        (Op::WriteFirst(reth(3 * MTU)), &full),
        (write(1), &[1]),
        (Op::ReadRequest(reth(1)), &[]),
        (fetch_add(1), &[]),
    ];
    for first in firsts {
        for (other, payload) in others {
            let mut case = Case::new();
            case.world.post_receive(1, 3 * MTU);
            case.world.post_receive(2, 3 * MTU);
            assert_eq!(case.request(100, first, &full), CONTINUE);
            assert_eq!(case.request(101, other, payload), OUT_OF_ORDER, "{other:?} after {first:?}");
            assert_eq!(case.world.placed.len(), MTU as usize, "the second is not executed");
        }
    }
}

#[test]
fn a_message_goes_on_with_packets_of_its_own_kind() {
    let full = [7; MTU as usize];
    for (first, other) in [(Op::SendFirst, Op::WriteMiddle), (Op::WriteFirst(reth(3 * MTU)), Op::SendMiddle)]
    {
        let mut case = Case::new();
        case.world.post_receive(1, 3 * MTU);
        assert_eq!(case.request(100, first, &full), CONTINUE);
        assert_eq!(case.request(101, other, &full), OUT_OF_ORDER);
    }
}

#[test]
fn all_packets_of_an_xrc_message_name_the_same_srq() {
    let mut case = Case::new();
    let srqn = Some(Srqn::new(3));
    case.responder.message = Some(PartialMessage::Write { reth: reth(2 * MTU), srqn, done: 0 });
    assert_eq!(case.request(100, Op::WriteMiddle, &[7; MTU as usize]), OUT_OF_ORDER);
}

#[test]
fn a_write_of_several_packets_ends_with_the_length_that_it_announced() {
    // C9-96.
    let full = [7; MTU as usize];
    let wrong = Outcome::Fatal(Reason::WriteLength);
    for (last, outcome) in [(1, wrong), (2, CONTINUE), (3, wrong)] {
        let mut case = Case::new();
        assert_eq!(case.request(100, Op::WriteFirst(reth(3 * MTU + 2)), &full), CONTINUE);
        assert_eq!(case.request(101, Op::WriteMiddle, &full), CONTINUE);
        assert_eq!(case.request(102, Op::WriteMiddle, &full), CONTINUE);
        assert_eq!(case.request(103, Op::WriteLast(None), &full[..last]), outcome, "{last} bytes");
    }
}

#[test]
fn the_immediate_data_of_a_write_comes_with_its_last_packet() {
    let mut case = Case::new();
    case.world.post_receive(1, 0);
    assert_eq!(case.request(100, Op::WriteFirst(reth(MTU + 1)), &[7; MTU as usize]), CONTINUE);
    assert_eq!(case.world.completed, []);
    assert_eq!(case.request(101, Op::WriteLast(Some(Imm([1, 2, 3, 4]))), &[7]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
}

#[test]
fn a_write_whose_key_is_refused_ends_the_receive_that_its_immediate_data_would_take() {
    // IBTA 11.6.2.
    let imm = Some(Imm([1, 2, 3, 4]));
    for (receives, op, completed) in [
        (1, Op::WriteOnly(reth(1), imm), vec![(1, Status::LocalAccess)]),
        (0, Op::WriteOnly(reth(1), imm), vec![]),
        (1, Op::WriteOnly(reth(1), None), vec![]),
    ] {
        let mut case = Case::new();
        (0..receives).for_each(|_| case.world.post_receive(1, 0));
        case.world.remote = Err(RemoteFault::Access);
        assert_eq!(case.request(100, op, &[7]), Outcome::Fatal(Reason::RemoteMemory));
        assert_eq!(case.world.completed, completed);
    }
}

#[test]
fn compare_and_swap_stores_if_the_word_matches() {
    let swap = |compare| Op::CompareSwap(AtomicEth { va: 0x1000, rkey: Rkey(1), swap_or_add: 9, compare });
    let mut case = Case::new();
    case.world.word = 5;
    assert_eq!(case.request(100, swap(4), &[]), CONTINUE);
    assert_eq!(case.world.word, 5);
    assert_eq!(case.request(101, swap(5), &[]), CONTINUE);
    assert_eq!(case.world.word, 9);
    let answers = case.answers();
    let originals = answers.iter().map(|(_, op)| match op {
        Op::AtomicAcknowledge(_, original) => *original,
        other => panic!("{other:?}"),
    });
    assert_eq!(originals.collect::<Vec<_>>(), [5, 5], "the former value each time");
}

#[test]
fn a_flush_needs_the_right_of_each_placement_that_it_asks_for() {
    let both = Placement::BOTH;
    for (global, persistent, placement, allowed) in [
        (true, false, Placement::GLOBAL_VISIBILITY, true),
        (true, false, Placement::PERSISTENCE, false),
        (true, false, both, false),
        (false, true, Placement::GLOBAL_VISIBILITY, false),
        (false, true, Placement::PERSISTENCE, true),
        (false, true, both, false),
        (true, true, both, true),
        (true, true, Placement::from_bits(0), false),
    ] {
        let mut case = Case::new();
        case.cx.attr.access.flush_global = global;
        case.cx.attr.access.flush_persistent = persistent;
        let outcome = if allowed { CONTINUE } else { Outcome::Fatal(Reason::QpAccess) };
        assert_eq!(case.request(100, flush(placement), &[]), outcome, "{placement:?}");
    }
}

#[test]
fn a_flush_is_answered_like_a_read_of_nothing() {
    let mut case = Case::new();
    case.cx.attr.access.flush_global = true;
    assert_eq!(case.request(100, flush(Placement::GLOBAL_VISIBILITY), &[]), CONTINUE);
    assert!(matches!(case.answers()[..], [(100, Op::ReadResponseOnly(_))]));
    case.world.remote = Err(RemoteFault::Access);
    let outcome = case.request(101, flush(Placement::GLOBAL_VISIBILITY), &[]);
    assert_eq!(outcome, Outcome::Fatal(Reason::RemoteMemory));
}

#[test]
fn an_atomic_write_announces_the_eight_bytes_that_it_carries() {
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::AtomicWrite(reth(8)), &[1; 8]), CONTINUE);
    let mut case = Case::new();
    let wrong = Outcome::Fatal(Reason::PayloadLength);
    assert_eq!(case.request(100, Op::AtomicWrite(reth(4)), &[1; 8]), wrong);
}

#[test]
fn without_responder_resources_reads_are_refused_and_writes_are_not() {
    let mut case = Case::new();
    case.cx.attr.max_dest_rd_atomic = 0;
    assert_eq!(case.request(100, write(1), &[1]), CONTINUE);
    let refused = Outcome::Fatal(Reason::TooManyReads);
    assert_eq!(case.request(101, Op::ReadRequest(reth(1)), &[]), refused);
}

#[test]
fn a_key_that_cannot_be_invalidated_ends_the_qp() {
    for op in [Op::SendOnly(SendTail::Inv(Rkey(1))), Op::SendLast(SendTail::Inv(Rkey(1)))] {
        let mut case = Case::new();
        let mut psn = 100;
        case.world.post_receive(1, 2 * MTU);
        if matches!(op, Op::SendLast(_)) {
            assert_eq!(case.request(psn, Op::SendFirst, &[7; MTU as usize]), CONTINUE);
            psn += 1;
        }
        case.world.remote = Err(RemoteFault::Access);
        assert!(matches!(case.request(psn, op, &[7]), Outcome::Fatal(_)), "{op:?}");
        assert_eq!(case.world.completed, []);
    }
}

#[test]
fn a_message_may_be_as_long_as_a_message_can_be() {
    for (before, outcome) in
        [(crate::MAX_MESSAGE - 1, CONTINUE), (crate::MAX_MESSAGE, Outcome::Fatal(Reason::ReceiveTooShort))]
    {
        let mut case = Case::new();
        case.world.post_receive(1, u32::MAX);
        assert_eq!(case.request(100, Op::SendFirst, &[7; MTU as usize]), CONTINUE);
        let Some(PartialMessage::Send { received, .. }) = &mut case.responder.message else {
            panic!("no message");
        };
        *received = u64::from(before);
        assert_eq!(case.request(101, Op::SendLast(SendTail::Plain), &[1]), outcome, "{before} bytes before");
    }
}
