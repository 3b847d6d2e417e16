use core::time::Duration;

use super::*;

const STEP: Duration = Duration::from_micros(1);

/// A delayed ACK and the time. The peer's requests have the PSNs from 1 on.
struct Case {
    ack: DelayedAck,
    now: Time,
    psn: u32,
}

impl Case {
    fn new() -> Case {
        Case { ack: DelayedAck::default(), now: Time::from_nanos(1_000), psn: 0 }
    }

    /// A request has come. Whether its ACK waits.
    fn asked(&mut self, caller: Caller, completes: bool, has_outstanding: bool) -> bool {
        self.psn += 1;
        self.called(caller, completes, has_outstanding)
    }

    /// A call that finds nothing new for this QP.
    fn called(&mut self, caller: Caller, completes: bool, has_outstanding: bool) -> bool {
        self.now += STEP;
        self.ack.on_timeout(self.now);
        let hints = Hints { caller, completes, segments: false };
        let ack = LoneAck { psn: Psn::new(self.psn), replaces: false };
        self.ack.waits(self.now, ack, hints, has_outstanding)
    }

    fn replied(&mut self) {
        self.now += STEP;
        self.ack.sending(self.now, true);
    }

    /// An application that was seen to reply to what it finds in its memory.
    fn replying() -> Case {
        let mut case = Case::new();
        assert!(!case.asked(Caller::Thread, false, false), "nothing is known yet");
        case.replied();
        case
    }
}

#[test]
fn a_poll_that_finds_a_completion_delays_its_ack_until_the_next_call() {
    for caller in [Caller::Poll, Caller::Post, Caller::Thread, Caller::Control] {
        let mut case = Case::new();
        assert!(case.asked(Caller::Poll, true, false));
        assert_eq!(case.ack.deadline(), case.now + NEXT_CALL_WAIT);
        assert!(!case.called(caller, caller == Caller::Poll, false), "{caller:?}");
        assert_eq!(case.ack.deadline(), Time::NEVER);
    }
}

#[test]
fn an_ack_that_replaces_another_does_not_wait() {
    let mut case = Case::new();
    let hints = Hints { caller: Caller::Poll, completes: true, segments: false };
    let ack = LoneAck { psn: Psn::new(2), replaces: true };
    assert!(!case.ack.waits(case.now, ack, hints, false));
    assert_eq!(case.ack.deadline(), Time::NEVER);
    assert!(case.asked(Caller::Poll, true, false), "the next one does");
}

#[test]
fn an_ack_that_leaves_with_a_reply_does_not_wait_any_more() {
    let mut case = Case::new();
    assert!(case.asked(Caller::Poll, true, false));
    case.replied();
    assert_eq!(case.ack.deadline(), Time::NEVER);
    assert!(case.asked(Caller::Poll, true, false), "the next one waits by itself");
}

#[test]
fn completions_found_without_a_poll_are_acknowledged_at_once() {
    for caller in [Caller::Post, Caller::Thread, Caller::Control] {
        assert!(!Case::new().asked(caller, true, true), "{caller:?}");
    }
    assert!(!Case::new().asked(Caller::Poll, false, true), "a poll that finds no completion");
}

#[test]
fn the_thread_delays_an_ack_if_the_application_replies_to_its_memory() {
    let mut case = Case::replying();
    assert!(!case.asked(Caller::Thread, true, false), "what completes is found by polling");
    assert!(case.asked(Caller::Thread, false, false));
    case.replied();
    assert!(case.asked(Caller::Thread, false, false));
    assert!(!case.called(Caller::Thread, false, false), "no reply came");
    assert!(!case.asked(Caller::Thread, false, false), "nor is one expected");
}

#[test]
fn an_ack_found_by_a_poll_for_the_end_of_a_request_waits_for_the_reply() {
    let mut case = Case::replying();
    assert!(!case.asked(Caller::Poll, false, false), "nothing is polled for");
    assert!(case.asked(Caller::Poll, false, true));
    let deadline = case.now + REPLY_WAIT;
    while case.now + STEP < deadline {
        assert!(case.called(Caller::Poll, false, true), "each of its polls could be the one");
        assert_eq!(case.ack.deadline(), deadline);
    }
    assert!(!case.called(Caller::Poll, false, true));
    case.now += REPLY_TIME;
    assert!(!case.asked(Caller::Poll, false, true), "the reply was late once");
    case.replied();
    assert!(case.asked(Caller::Poll, false, true), "and is in time again");
}

#[test]
fn an_ack_does_not_wait_if_the_peer_goes_on() {
    let mut case = Case::replying();
    assert!(case.asked(Caller::Poll, false, true));
    assert!(!case.asked(Caller::Poll, false, true));
    assert!(!case.ack.replies);
}

#[test]
fn a_post_long_after_an_ack_is_not_a_reply() {
    let mut case = Case::new();
    case.asked(Caller::Thread, false, false);
    case.now += REPLY_TIME - STEP;
    case.replied();
    assert!(!case.asked(Caller::Thread, false, false));
}

#[test]
fn a_post_after_an_ack_without_data_in_memory_is_not_a_reply() {
    for caller in [Caller::Post, Caller::Control] {
        let mut case = Case::new();
        assert!(!case.asked(caller, false, false));
        case.replied();
        assert!(!case.asked(Caller::Thread, false, false), "{caller:?}");
    }
}

#[test]
fn at_its_deadline_an_ack_is_for_the_next_call() {
    let mut case = Case::new();
    assert!(case.asked(Caller::Poll, true, false));
    case.now = case.ack.deadline();
    case.ack.on_timeout(case.now);
    assert_eq!(case.ack.deadline(), Time::NEVER, "no timer fires twice");
    assert!(!case.called(Caller::Poll, true, false));
}

#[test]
fn no_ack_waits_for_a_caller_that_may_destroy_the_qp() {
    let mut case = Case::replying();
    assert!(case.asked(Caller::Poll, false, true));
    assert!(!case.called(Caller::Control, false, true));
    assert!(case.ack.replies, "which says nothing of the application");
}
