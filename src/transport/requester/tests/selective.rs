//! What is sent again to a peer that says what has come.

use softrnic_wire::REORDER_WINDOW;

use super::*;
use crate::window_bits::WindowBits;

fn selective() -> Case {
    let mut case = Case::new();
    case.cx.selective = true;
    case
}

impl Case {
    /// The peer expects `expected`, and these have come besides.
    fn report(&mut self, expected: u32, arrived: &[u32]) -> Outcome {
        self.now += MOMENT;
        let mut bits = WindowBits::default();
        for psn in arrived {
            bits.set(psn - expected);
        }
        let (bytes, len) = bits.to_bytes();
        let expected = Psn::new(expected);
        self.requester.on_selective_ack(&self.cx, self.now, expected, &bytes[..len], &mut self.world)
    }

    fn in_flight(&self) -> u64 {
        self.world.peer.window.in_flight()
    }
}

#[test]
fn only_what_is_missing_is_sent_again() {
    let mut case = selective();
    case.post_send(1, 6);
    case.post_send(2, 2);
    case.transmit();
    let before = case.in_flight();
    assert_eq!(case.report(101, &[102, 104, 105]), DONE);
    assert!(case.in_flight() < before, "what has come is not in flight");
    assert_eq!(case.transmit().0, [101, 103]);
    assert_eq!(case.report(101, &[102, 104, 105]), DONE);
    assert_eq!(case.transmit().0, [], "that is under way");
    assert_eq!(case.ack(105), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
    assert_eq!(case.ack(107), DONE);
    assert_eq!((case.in_flight(), case.completed()), (0, [(2, Status::Success)].into()));
    assert!(case.requester.board.is_none());
}

#[test]
fn what_is_lost_twice_is_sent_a_third_time() {
    let mut case = selective();
    case.post_send(1, 8);
    case.transmit();
    assert_eq!(case.report(100, &[101, 103]), DONE);
    assert_eq!(case.transmit().0, [100, 102]);
    assert_eq!(case.report(100, &[101, 102, 103]), DONE);
    assert_eq!(case.transmit().0, [100], "the packet behind it was sent again later, and has come");
}

#[test]
fn later_packets_show_that_what_was_sent_again_was_lost() {
    let mut case = selective();
    case.post_send(1, 3);
    case.transmit();
    assert_eq!(case.report(100, &[101]), DONE);
    assert_eq!(case.transmit().0, [100]);
    case.post_send(2, 1);
    assert_eq!(case.transmit().0, [103]);
    assert_eq!(case.report(100, &[101, 102]), DONE);
    assert_eq!(case.transmit().0, [], "102 was sent before");
    assert_eq!(case.report(100, &[101, 102, 103]), DONE);
    assert_eq!(case.transmit().0, [100]);
}

#[test]
fn responses_out_of_order_are_placed_and_the_rest_is_asked_for() {
    let bytes = [7; MTU as usize];
    let mut case = selective();
    case.post_read(1, 4);
    assert_eq!(case.transmit().0, [100]);
    assert_eq!(case.answer(100, Answer::ReadMore(&bytes)), DONE);
    assert_eq!(case.answer(103, Answer::ReadEnd(&bytes)), DONE);
    assert_eq!(case.world.placed.len(), 2 * MTU as usize);
    assert_eq!(case.completed(), []);
    assert_eq!(case.transmit().0, [101]);
    assert_eq!(case.answer(101, Answer::ReadMore(&bytes)), DONE);
    assert_eq!(case.answer(102, Answer::ReadEnd(&bytes)), DONE, "it ends what was asked for again");
    assert_eq!(case.completed(), [(1, Status::Success)]);
    assert_eq!((case.in_flight(), case.world.placed.len()), (0, 4 * MTU as usize));
}

#[test]
fn a_response_that_does_not_fit_is_judged_in_its_turn() {
    let bytes = [7; MTU as usize];
    let mut case = selective();
    case.post_read(1, 2);
    case.post(2, SendOp::FetchAdd { remote: REMOTE, add: 1 }, 8);
    case.transmit();
    assert_eq!(case.answer(101, Answer::ReadEnd(&bytes[1..])), DONE);
    assert_eq!(case.answer(102, Answer::ReadEnd(&bytes)), DONE);
    assert_eq!(case.world.count_of(Counter::DropGhostResponse), 2);
    assert_eq!(case.answer(100, Answer::ReadMore(&bytes)), DONE);
    assert_eq!(case.answer(101, Answer::ReadEnd(&bytes[1..])), Outcome::Fatal(Reason::AnswerLength));
}

#[test]
fn a_read_that_the_peer_keeps_is_not_asked_for_again() {
    let mut case = selective();
    case.post_send(1, 1);
    case.post_read(2, 2);
    case.transmit();
    assert_eq!(case.report(100, &[101, 102]), DONE);
    assert_eq!(case.transmit().0, [100]);
}

#[test]
fn a_read_request_that_is_lost_twice_is_noticed_by_one_that_the_peer_keeps() {
    let mut case = selective();
    case.post_read(1, 2);
    case.post_send(2, 1);
    case.transmit();
    assert_eq!(case.report(100, &[102]), DONE);
    assert_eq!(case.transmit().0, [100]);
    case.post_read(3, 2);
    assert_eq!(case.transmit().0, [103]);
    assert_eq!(case.report(100, &[102]), DONE);
    assert_eq!(case.transmit().0, [], "nothing has come that was sent later");
    assert_eq!(case.report(100, &[102, 103, 104]), DONE);
    assert_eq!(case.transmit().0, [100]);
}

#[test]
fn completions_stay_in_order() {
    let mut case = selective();
    case.post_read(1, 1);
    case.post(2, SendOp::FetchAdd { remote: REMOTE, add: 1 }, 8);
    case.transmit();
    assert_eq!(case.answer(101, Answer::Atomic(5)), DONE);
    assert_eq!(case.completed(), []);
    assert_eq!(case.answer(100, Answer::ReadEnd(&[1; MTU as usize])), DONE);
    assert_eq!(case.completed(), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn silence_is_probed_by_one_packet_before_everything_is_sent_again() {
    let mut case = selective();
    case.cx.attr.timeout = 14;
    case.post_send(1, 8);
    case.transmit();
    // The last one, and when that is not answered the oldest.
    for probe in 0..crate::tuning::MAX_LOSS_PROBES {
        assert_eq!(case.time_out(), DONE);
        assert_eq!(case.transmit().0, [if probe == 0 { 107 } else { 100 }]);
    }
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.transmit().0, [100, 101], "it goes back");
}

#[test]
fn what_is_missing_behind_progress_is_not_probed_for_at_once() {
    let mut case = selective();
    case.post_send(1, 8);
    case.transmit();
    assert_eq!(case.report(101, &[103]), DONE);
    assert_eq!(case.transmit().0, [101, 102]);
    let wait = case.requester.rtt.loss_probe();
    assert_eq!(
        case.requester.timers.early,
        case.now.after_nanos(wait),
        "both are under way, and nothing is late"
    );
}

#[test]
fn an_rnr_nak_forgets_what_has_come() {
    let mut case = selective();
    case.post_send(1, 1);
    case.post_send(2, 1);
    case.post_send(3, 1);
    case.transmit();
    assert_eq!(case.report(100, &[102]), DONE);
    assert_eq!(case.rnr_nak(100), DONE);
    assert_eq!(case.transmit().0, []);
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.transmit().0, [100, 101]);
    assert_eq!(case.ack(100), DONE);
    case.transmit();
    assert_eq!(case.ack(102), DONE);
    assert_eq!(case.in_flight(), 0);
}

#[test]
fn no_more_is_under_way_than_the_peer_can_keep() {
    let mut case = selective();
    case.world.peer = crate::Peer::new(crate::WindowConfig { initial: 1 << 30, min: 1, max: 1 << 30 });
    case.post_send(1, 2 * REORDER_WINDOW as u32);
    assert_eq!(case.transmit().0.len(), REORDER_WINDOW);
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.transmit().0.len(), 1);
}

#[test]
fn reports_of_another_time_change_nothing() {
    let mut case = selective();
    case.post_send(1, 4);
    case.transmit();
    assert_eq!(case.report(99, &[101]), DONE);
    assert_eq!(case.report(105, &[]), DONE);
    assert_eq!(case.world.count_of(Counter::DropGhostResponse), 2);
    assert_eq!(case.report(100, &[104, 105, 106]), DONE, "what was never sent has not come");
    assert_eq!(case.transmit().0, []);
    assert_eq!(case.report(104, &[]), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
}
