//! What the window to the peer lets a QP have in flight.

use super::*;
use crate::requester::send_queue::PACKET_OVERHEAD;
use crate::window::Window;

/// What a full packet costs the window.
const FULL: u64 = MTU as u64 + PACKET_OVERHEAD;

impl Case {
    /// A QP that the peer has answered, with nothing in flight. The next PSN is 101.
    fn answered() -> Case {
        let mut case = Case::new();
        case.post_send(1, 1);
        case.transmit();
        assert_eq!(case.ack(100), DONE);
        case.completed();
        case
    }

    fn window(&mut self) -> &mut Window {
        &mut self.world.peer.window
    }

    /// Other QPs fill the window to that peer, `times` over.
    fn others_fill_window(&mut self, times: u64) -> u64 {
        let bytes = times * self.window().limit();
        self.window().charge(bytes);
        bytes
    }

    /// Lets it send. Which of its packets ask for an ACK.
    fn asking(&mut self) -> Vec<bool> {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        let outcome = self.requester.transmit(&self.cx, self.now, &mut self.world, 1000, &mut progress);
        assert_eq!(outcome, DONE);
        self.world.sent.drain(..).map(|headers| headers.bth.ack_req).collect()
    }
}

#[test]
fn a_qp_that_was_never_answered_probes_through_a_full_window() {
    let mut case = Case::new();
    let others = case.others_fill_window(1);
    case.post_send(1, 10);
    assert_eq!(case.transmit(), ([100, 101].into(), Stop::Idle));
    assert_eq!(case.window().in_flight(), others, "the probe does not count");
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.window().in_flight(), others + FULL, "what is answered does");
}

#[test]
fn a_qp_that_needs_little_is_not_held_up_by_those_that_fill_the_window() {
    let mut case = Case::answered();
    case.others_fill_window(1);
    case.post_send(2, 1);
    case.post_send(3, 1);
    assert_eq!(case.transmit(), ([101].into(), Stop::Window), "one packet at a time");
    assert_eq!(case.ack(101), DONE);
    assert_eq!(case.transmit().0, [102]);
}

/// With a thousand such QPs each message would leave in two runs, and most runs would be of one packet.
#[test]
fn a_long_message_waits_for_the_window_and_leaves_in_one_run() {
    let mut case = Case::answered();
    let others = case.others_fill_window(1);
    case.post_send(2, 4);
    assert_eq!(case.transmit(), ([].into(), Stop::Window));
    case.window().release(others);
    assert_eq!(case.transmit().0, [101, 102, 103, 104]);
}

#[test]
fn the_reserve_is_for_one_packet_and_not_for_a_long_read() {
    let mut case = Case::answered();
    case.others_fill_window(1);
    case.post_read(2, 4);
    assert_eq!(case.transmit(), ([].into(), Stop::Window));
}

#[test]
fn an_exhausted_reserve_lets_nothing_leave() {
    let mut case = Case::answered();
    case.others_fill_window(2);
    case.post_send(2, 1);
    assert_eq!(case.transmit(), ([].into(), Stop::Window));
}

#[test]
fn each_packet_of_a_probe_asks_for_an_ack() {
    let mut case = Case::new();
    case.post_send(1, 10);
    case.transmit();
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.asking(), [true, true]);
}

#[test]
fn the_last_packet_that_fits_the_window_asks_for_an_ack() {
    let mut case = Case::new();
    let others = case.window().limit() - 900;
    case.window().charge(others);
    case.post_send(1, 10);
    assert_eq!(case.asking(), [false, false, true], "of 900 bytes each takes 320");
}

#[test]
fn while_others_are_answered_silence_is_a_loss_only_if_an_answer_comes_after_all() {
    let mut case = Case::new();
    case.cx.attr.timeout = 0;
    case.post_send(1, 1);
    case.transmit();
    let limit = case.window().limit();
    assert_eq!(case.time_out(), DONE);
    case.transmit();
    let others_progress = case.now + MOMENT;
    case.window().on_progress(others_progress, 0);
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.window().limit(), limit, "the peer's QP may be gone");
    case.transmit();
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.window().limit(), limit * 7 / 10, "it was the way that lost it");
}
