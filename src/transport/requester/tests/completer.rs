//! What responses, and their absence, mean for outstanding requests (IBTA 9.7.5.2, 9.7.6).

use softrnic_wire::{Imm, SendTail};

use super::*;

const MILLI: u64 = 1_000_000;

impl Case {
    /// The window's limit.
    fn limit(&self) -> u64 {
        self.world.peer.window.limit()
    }

    fn implied_naks(&self) -> usize {
        self.world.count_of(Counter::ImpliedNakSeqErr)
    }
}

#[test]
fn a_sequence_nak_takes_a_retry_and_a_refusal_is_counted_apart() {
    let mut case = Case::new();
    case.post_send(1, 2);
    case.transmit();
    assert_eq!(case.nak(100, NakCode::PsnSequence), DONE);
    assert_eq!(case.requester.retries_left, case.cx.attr.retry_cnt - 1);
    assert_eq!((case.world.count_of(Counter::RcvdSeqErr), case.world.count_of(Counter::RcvdNak)), (1, 0));
    assert_eq!(case.nak(101, NakCode::RemoteAccess), Outcome::Fatal(Reason::NakRemoteAccess));
    assert_eq!((case.world.count_of(Counter::RcvdSeqErr), case.world.count_of(Counter::RcvdNak)), (1, 1));
}

#[test]
fn a_refused_read_fails_even_if_earlier_responses_were_lost() {
    let mut case = Case::new();
    case.post_read(1, 4);
    case.transmit();
    assert_eq!(case.nak(102, NakCode::RemoteAccess), Outcome::Fatal(Reason::NakRemoteAccess));
}

#[test]
fn a_refusal_behind_an_unanswered_read_asks_for_the_read_first() {
    for code in [NakCode::RemoteAccess, NakCode::PsnSequence] {
        let mut case = Case::new();
        case.post_read(1, 1);
        case.post_send(2, 1);
        case.transmit();
        assert_eq!(case.nak(101, code), DONE, "the answer to the READ may only be lost");
        assert_eq!(case.implied_naks(), 1);
        assert_eq!(case.requester.retries_left, case.cx.attr.retry_cnt, "an implied NAK takes no retry");
        assert_eq!(case.transmit().0, [100, 101]);
    }
}

#[test]
fn an_implied_nak_goes_back_once() {
    let mut case = Case::new();
    case.post_read(1, 1);
    case.post_send(2, 2);
    case.transmit();
    assert_eq!(case.ack(101), DONE);
    assert_eq!(case.ack(102), DONE);
    assert_eq!(case.implied_naks(), 1);
}

#[test]
fn rnr_naks_to_one_burst_count_once() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.transmit();
    assert_eq!(case.rnr_nak(100), DONE);
    let until = case.requester.deadline();
    for _ in 0..3 {
        assert_eq!(case.rnr_nak(100), DONE, "it waits already");
    }
    assert_eq!(case.requester.deadline(), until);
}

#[test]
fn an_rnr_retry_count_set_while_draining_ends_infinite_retries() {
    let mut case = Case::new();
    case.cx.attr.rnr_retry = 7;
    case.requester.start(&case.cx, false);
    case.post_send(1, 1);
    case.transmit();
    case.cx.state = QpState::Sqd;
    case.cx.attr.rnr_retry = 2;
    for _ in 0..7 {
        assert_eq!(case.rnr_nak(100), DONE);
        assert_eq!(case.time_out(), DONE);
        case.transmit();
    }
    assert_eq!(case.rnr_nak(100), Outcome::Fatal(Reason::ReceiverNotReady));
}

#[test]
fn the_last_packet_of_a_read_has_the_remaining_bytes() {
    let bytes = [7; MTU as usize];
    let mut case = Case::new();
    case.post(1, SendOp::Read { remote: REMOTE }, 2 * MTU + 1);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadMore(&bytes)), DONE);
    assert_eq!(case.answer(101, Answer::ReadMore(&bytes)), DONE);
    assert_eq!(case.answer(102, Answer::ReadEnd(&[7])), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
}

#[test]
fn a_read_ends_with_its_last_packet_and_not_before() {
    let bytes = [7; MTU as usize];
    let mut case = Case::new();
    case.post_read(1, 2);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadEnd(&bytes)), Outcome::Fatal(Reason::AnswerEnd));
    let mut case = Case::new();
    case.post_read(1, 1);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadMore(&bytes)), Outcome::Fatal(Reason::AnswerEnd));
}

#[test]
fn an_atomic_write_completes_with_the_answer_to_a_read_of_nothing() {
    let mut case = Case::new();
    case.post(1, SendOp::AtomicWrite { remote: REMOTE }, 8);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadEnd(&[])), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
}

#[test]
fn only_the_ack_of_the_packet_that_asked_for_it_is_a_round_trip() {
    let mut case = Case::new();
    case.cx.attr.timeout = 0;
    case.post_send(1, 2);
    case.transmit();
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.requester.deadline(), case.now.after_nanos(4 * MILLI), "no round trip is known");
    assert_eq!(case.ack(101), DONE);
    case.post_send(2, 1);
    case.transmit();
    assert_eq!(case.requester.deadline(), case.now.after_nanos(800_000), "it was short");
}

#[test]
fn unsignaled_requests_complete_only_if_they_fail() {
    let mut case = Case::new();
    for wr_id in [1, 2] {
        case.post_send(wr_id, 1);
        let entry = case.requester.queue.entries.back_mut().expect("it was posted");
        entry.wqe.signaled = false;
    }
    case.transmit();
    assert_eq!(case.ack(100), DONE);
    assert_eq!((case.completed(), case.world.retired), ([].into(), 1));
    case.requester.flush(&case.cx, &mut case.world);
    assert_eq!(case.completed(), [(2, Status::Flushed)]);
}

#[test]
fn the_second_silence_is_a_loss_and_the_first_is_not() {
    let mut case = Case::new();
    case.cx.attr.timeout = 0;
    case.post_send(1, 1);
    case.transmit();
    let before = case.limit();
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.limit(), before, "the peer may only wait for a processor");
    case.transmit();
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.limit(), before * 7 / 10);
}

#[test]
fn a_completion_names_its_operation_and_a_failure_wakes_waiters() {
    let imm = Imm([1, 2, 3, 4]);
    let mut case = Case::new();
    for wr_id in [1, 2] {
        case.post(wr_id, SendOp::Send(SendTail::Imm(imm)), MTU);
    }
    case.transmit();
    let says = |case: &Case| {
        let last = case.world.last_completion.expect("one completes");
        (last.byte_len, last.imm, last.solicited)
    };
    assert_eq!(case.ack(100), DONE);
    assert_eq!(says(&case), (MTU, Some(imm), false));
    case.requester.flush(&case.cx, &mut case.world);
    assert_eq!(says(&case), (0, None, true));
}
