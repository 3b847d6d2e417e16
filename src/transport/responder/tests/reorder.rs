//! Requests that come before their turn, from a peer that recovers selectively.

use super::*;

fn selective() -> Case {
    let mut case = Case::new();
    case.cx.selective = true;
    case
}

impl Case {
    /// The PSN of the one report that it sends, and the bytes that say what has come.
    fn report(&mut self) -> (u32, Vec<u8>) {
        self.world.bytes.clear();
        let answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        (answers[0].0, core::mem::take(&mut self.world.bytes))
    }
}

#[test]
fn requests_before_their_turn_are_executed_when_it_comes() {
    let mut case = selective();
    for psn in [102, 101, 104] {
        assert_eq!(case.request(psn, write(1), &[psn as u8]), CONTINUE);
    }
    assert_eq!(case.world.placed, [], "nothing is seen before its turn");
    assert_eq!(case.report(), (100, vec![0b10110, 0, 0, 0]));
    assert_eq!(case.request(100, write(1), &[100]), CONTINUE);
    assert_eq!(case.world.placed, [100, 101, 102]);
    assert_eq!(case.report(), (103, vec![0b10, 0, 0, 0]));
    assert_eq!(case.request(103, write(1), &[103]), CONTINUE);
    assert_eq!(case.world.placed, [100, 101, 102, 103, 104]);
    assert!(case.is_acked(104));
    assert_eq!((case.world.held, case.world.buffers_out), (0, 0));
    assert_eq!(case.world.losses, 0, "nothing to ask about");
}

#[test]
fn a_peer_that_does_not_recover_selectively_gets_a_nak_and_is_asked() {
    let mut case = Case::new();
    assert_eq!(case.request(101, write(1), &[1]), CONTINUE);
    assert_eq!(case.syndromes(), [(100, Syndrome::Nak(NakCode::PsnSequence))]);
    assert_eq!((case.world.held, case.world.losses), (0, 1));
}

#[test]
fn a_send_before_its_turn_takes_its_receive_when_the_turn_comes() {
    let mut case = selective();
    case.world.post_receive(1, 8);
    case.world.post_receive(2, 8);
    assert_eq!(case.request(101, SEND, &[2]), CONTINUE);
    assert_eq!(case.world.completed, []);
    assert_eq!(case.request(100, SEND, &[1]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(case.world.placed, [1, 2]);
}

#[test]
fn what_is_kept_and_finds_no_receive_is_not_ready() {
    let mut case = selective();
    case.world.post_receive(1, 8);
    for psn in [101, 102, 100] {
        assert_eq!(case.request(psn, SEND, &[psn as u8]), CONTINUE);
    }
    assert_eq!(case.world.completed, [(1, Status::Success)]);
    let last = case.syndromes().pop();
    assert!(matches!(last, Some((101, Syndrome::RnrNak(_)))), "{last:?}");
    case.world.post_receive(2, 8);
    case.world.post_receive(3, 8);
    assert_eq!(case.request(101, SEND, &[101]), CONTINUE);
    assert_eq!(case.world.placed, [100, 101, 102], "the last one was kept");
}

#[test]
fn an_atomic_before_its_turn_is_executed_once() {
    let mut case = selective();
    for psn in [101, 101, 100, 101] {
        let op = if psn == 100 { write(0) } else { fetch_add(2) };
        assert_eq!(case.request(psn, op, &[]), CONTINUE);
    }
    assert_eq!(case.world.word, 2);
}

#[test]
fn a_kept_read_reports_all_of_its_psns_and_is_answered_in_turn() {
    let mut case = selective();
    assert_eq!(case.request(101, Op::ReadRequest(reth(3 * MTU)), &[]), CONTINUE);
    assert_eq!(case.report(), (100, vec![0b1110, 0, 0, 0]));
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    let psns: Vec<_> = case.answers().into_iter().map(|(psn, _)| psn).collect();
    assert_eq!(psns, [100, 101, 102, 103]);
}

#[test]
fn a_kept_request_that_is_refused_ends_the_qp_in_its_turn() {
    let mut case = selective();
    case.cx.attr.access = QpAccess { remote_write: false, ..case.cx.attr.access };
    assert_eq!(case.request(101, write(1), &[1]), CONTINUE);
    case.world.post_receive(1, 0);
    assert_eq!(case.request(100, SEND, &[]), Outcome::Fatal(Reason::QpAccess));
    assert_eq!(case.syndromes().pop(), Some((101, Syndrome::Nak(NakCode::InvalidRequest))));
}

#[test]
fn what_is_beyond_the_window_is_dropped() {
    let mut case = selective();
    let window = softrnic_wire::REORDER_WINDOW as u32;
    assert_eq!(case.request(100 + window, write(1), &[1]), CONTINUE);
    assert_eq!(case.answers(), []);
    assert_eq!(case.world.count_of(Counter::DropReorderWindow), 1);
    assert_eq!(case.request(100 + window - 1, write(1), &[1]), CONTINUE);
    assert_eq!(case.world.count_of(Counter::KeptForLater), 1);
}

#[test]
fn without_room_for_it_everything_is_asked_for_again() {
    let mut case = selective();
    case.world.holds_at_most = 500;
    for psn in 101..110 {
        assert_eq!(case.request(psn, write(100), &[1; 100]), CONTINUE);
        assert!(case.world.held <= 500);
    }
    assert!(case.world.count_of(Counter::DropReorderMemory) > 0);
    let last = case.syndromes().pop();
    assert_eq!(last, Some((100, Syndrome::Nak(NakCode::PsnSequence))));
}

#[test]
fn what_is_kept_is_given_back_when_the_qp_fails() {
    let mut case = selective();
    assert_eq!(case.request(105, write(1), &[1]), CONTINUE);
    assert!(case.world.held > 0 && case.world.buffers_out == 1);
    case.responder.flush(&case.cx, &mut case.world);
    assert_eq!((case.world.held, case.world.buffers_out), (0, 0));
}

#[test]
fn a_repeated_request_is_answered_by_what_has_come() {
    let mut case = selective();
    assert_eq!(case.request(100, write(1), &[1]), CONTINUE);
    assert_eq!(case.request(102, write(1), &[1]), CONTINUE);
    case.answers();
    assert_eq!(case.request(100, write(1), &[1]), CONTINUE);
    assert_eq!(case.report(), (101, vec![0b10, 0, 0, 0]));
    assert_eq!(case.world.placed, [1], "it is not written again");
}

#[test]
fn a_part_of_a_read_is_sent_again_without_the_rest() {
    let mut case = selective();
    assert_eq!(case.request(100, Op::ReadRequest(reth(4 * MTU)), &[]), CONTINUE);
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    let outcome = case.responder.transmit(&case.cx, START, None, &mut case.world, 3, &mut progress);
    assert_eq!(outcome, CONTINUE);
    case.world.take_sent();
    let again = Op::ReadRequest(Reth { va: 0x1000 + u64::from(MTU), ..reth(MTU) });
    assert_eq!(case.request(101, again, &[]), CONTINUE);
    let psns: Vec<_> = case.answers().into_iter().map(|(psn, _)| psn).collect();
    assert_eq!(psns, [103, 101], "what was under way goes on");
}
