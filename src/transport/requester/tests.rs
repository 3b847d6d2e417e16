//! One requester, and a peer that a test plays.
//!
//! Over 600 lines: all tests use the same requester and what it sees.

use alloc::vec::Vec;
use core::time::Duration;

use softrnic_wire::{NakCode, Op, Rkey, RnrTimer, SendTail};

use super::*;
use crate::completion::{Status, WcOpcode};
use crate::context::Context;
use crate::failure::Concern;
use crate::host::PeerProcess;
use crate::testing::{MOMENT, MTU, START, World, context, send_wqe};
use crate::wqe::{LocalOp, RemoteBuffer, SendOp};

mod completer;
mod flight;
mod order;
mod paths;
mod selective;

/// A requester and its world.
struct Case {
    cx: Context,
    requester: Requester<u32>,
    world: World,
    now: Time,
}

const REMOTE: RemoteBuffer = RemoteBuffer { va: 0x1000, rkey: Rkey(1) };

impl Case {
    fn new() -> Case {
        let cx = context();
        let mut requester = Requester::new(RateParameters::default());
        requester.start(&cx, true);
        Case { cx, requester, world: World::new(), now: START }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, length: u32) {
        assert!(self.requester.has_room());
        self.requester.post(send_wqe(wr_id, op, length));
    }

    fn post_send(&mut self, wr_id: u64, packets: u32) {
        self.post(wr_id, SendOp::Send(SendTail::Plain), packets * MTU);
    }

    fn post_read(&mut self, wr_id: u64, packets: u32) {
        self.post(wr_id, SendOp::Read { remote: REMOTE }, packets * MTU);
    }

    /// Lets it send, and returns the PSNs of what it sent.
    fn transmit(&mut self) -> (Vec<u32>, Stop) {
        let (sent, stop, outcome) = self.try_transmit();
        assert_eq!(outcome, Outcome::Continue);
        (sent, stop)
    }

    fn try_transmit(&mut self) -> (Vec<u32>, Stop, Outcome) {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        let outcome = self.requester.transmit(&self.cx, self.now, &mut self.world, 1000, &mut progress);
        let sent: Vec<_> = self.world.take_sent().into_iter().map(|(psn, _)| psn).collect();
        assert_eq!(sent.len(), progress.sent);
        (sent, progress.stop, outcome)
    }

    fn ack(&mut self, psn: u32) -> Outcome {
        self.now += MOMENT;
        self.requester.on_ack(&self.cx, self.now, Psn::new(psn), &mut self.world)
    }

    fn nak(&mut self, psn: u32, code: NakCode) -> Outcome {
        self.now += MOMENT;
        self.requester.on_nak(&self.cx, self.now, Psn::new(psn), code, &mut self.world)
    }

    fn rnr_nak(&mut self, psn: u32) -> Outcome {
        self.now += MOMENT;
        self.requester.on_rnr_nak(&self.cx, self.now, Psn::new(psn), RnrTimer::new(1), &mut self.world)
    }

    fn answer(&mut self, psn: u32, answer: Answer<'_>) -> Outcome {
        self.now += MOMENT;
        self.requester.on_answer(&self.cx, self.now, Psn::new(psn), answer, &mut self.world)
    }

    /// Time passes until the next timer, which runs.
    fn time_out(&mut self) -> Outcome {
        self.now = self.requester.deadline();
        assert_ne!(self.now, Time::NEVER, "no timer runs");
        self.requester.on_timeout(&self.cx, self.now, &mut self.world)
    }

    fn completed(&mut self) -> Vec<(u64, Status)> {
        core::mem::take(&mut self.world.completed)
    }
}

const DONE: Outcome = Outcome::Continue;

#[test]
fn a_message_is_cut_into_packets_and_completes_with_the_ack_of_its_last() {
    let mut case = Case::new();
    case.post_send(1, 3);
    assert_eq!(case.transmit(), ([100, 101, 102].into(), Stop::Idle));
    assert_eq!(case.ack(101), DONE);
    assert_eq!(case.completed(), []);
    assert!(case.requester.has_outstanding());
    assert_eq!(case.ack(102), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
    assert!(!case.requester.has_outstanding());
    assert_eq!(case.requester.deadline(), Time::NEVER);
    assert_eq!(case.world.peer.window.in_flight(), 0);
}

#[test]
fn one_ack_completes_everything_before_it() {
    let mut case = Case::new();
    for wr_id in 0..4 {
        case.post_send(wr_id, 1);
    }
    case.transmit();
    assert_eq!(case.ack(102), DONE);
    assert_eq!(case.completed(), [0, 1, 2].map(|wr_id| (wr_id, Status::Success)));
    assert_eq!(case.world.retired, 3);
}

#[test]
fn the_budget_and_a_full_link_stop_it_where_it_is() {
    let mut case = Case::new();
    case.post_send(1, 4);
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    let outcome = case.requester.transmit(&case.cx, case.now, &mut case.world, 2, &mut progress);
    assert_eq!((outcome, progress.sent, progress.stop), (DONE, 2, Stop::Budget));
    case.world.take_sent();
    case.world.refuses.push_back(TransmitError::Full);
    assert_eq!(case.transmit(), ([].into(), Stop::LinkFull));
    assert_eq!(case.transmit(), ([102, 103].into(), Stop::Idle));
}

#[test]
fn a_closed_window_stops_it_until_an_ack_comes() {
    let mut case = Case::new();
    case.post_send(1, 4000);
    let (sent, stop) = case.transmit();
    assert_eq!(stop, Stop::Window);
    assert!(!case.world.peer.window.is_open());
    let last = 99 + sent.len() as u32;
    assert_eq!(case.ack(last), DONE);
    assert!(!case.transmit().0.is_empty());
}

#[test]
fn the_last_packet_and_one_in_sixteen_ask_for_an_ack() {
    let mut case = Case::new();
    case.post_send(1, 20);
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    let _ = case.requester.transmit(&case.cx, case.now, &mut case.world, 1000, &mut progress);
    let asks = case.world.sent.iter().map(|headers| headers.bth.ack_req);
    let asking: Vec<_> = asks.enumerate().filter_map(|(at, asks)| asks.then_some(at)).collect();
    assert_eq!(asking, [15, 19]);
}

#[test]
fn a_long_read_is_asked_for_in_chunks() {
    let mut case = Case::new();
    case.post_read(1, 10);
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    let _ = case.requester.transmit(&case.cx, case.now, &mut case.world, 1000, &mut progress);
    let chunk = |(psn, op)| match op {
        Op::ReadRequest(reth) => (psn, reth.va, reth.dma_len),
        other => panic!("{other:?}"),
    };
    let chunks: Vec<_> = case.world.take_sent().into_iter().map(chunk).collect();
    assert_eq!(chunks, [(100, 0x1000, 4 * MTU), (104, 0x1000 + 4 * u64::from(MTU), 4 * MTU)]);
    assert_eq!(progress.stop, Stop::Idle, "two are outstanding, as many as may be");
}

#[test]
fn a_sequence_nak_goes_back_once() {
    let mut case = Case::new();
    for wr_id in 0..3 {
        case.post_send(wr_id, 1);
    }
    case.transmit();
    assert_eq!(case.nak(101, NakCode::PsnSequence), DONE);
    assert_eq!(case.completed(), [(0, Status::Success)], "what is before it is acknowledged");
    assert_eq!(case.nak(101, NakCode::PsnSequence), DONE);
    assert_eq!(case.world.count_of(Counter::CompleterRetryErr), 1);
    assert_eq!(case.transmit().0, [101, 102]);
    assert_eq!(case.world.count_of(Counter::RetransmittedPacket), 2);
}

#[test]
fn every_refusal_fails_the_request_that_it_names() {
    for (code, reason) in [
        (NakCode::InvalidRequest, Reason::NakInvalidRequest),
        (NakCode::RemoteAccess, Reason::NakRemoteAccess),
        (NakCode::RemoteOperational, Reason::NakRemoteOperation),
    ] {
        let mut case = Case::new();
        case.post_send(1, 1);
        case.post_send(2, 1);
        case.transmit();
        assert_eq!(case.nak(101, code), Outcome::Fatal(reason));
        assert_eq!(case.completed(), [(1, Status::Success)], "the QP reports the second");
    }
}

#[test]
fn responses_without_an_outstanding_request_are_ghosts() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.transmit();
    assert_eq!(case.ack(99), DONE);
    assert_eq!(case.ack(101), DONE);
    assert_eq!(case.nak(101, NakCode::RemoteAccess), DONE);
    assert_eq!(case.rnr_nak(99), DONE);
    assert_eq!(case.answer(101, Answer::Atomic(1)), DONE);
    assert_eq!(case.world.count_of(Counter::DropGhostResponse), 5);
    assert!(case.requester.has_outstanding());
}

#[test]
fn an_ack_over_a_read_asks_for_it_again() {
    let mut case = Case::new();
    case.post_read(1, 1);
    case.post_send(2, 1);
    case.transmit();
    assert_eq!(case.ack(101), DONE);
    assert_eq!(case.completed(), []);
    assert_eq!(case.world.count_of(Counter::ImpliedNakSeqErr), 1);
    assert_eq!(case.transmit().0, [100, 101]);
}

#[test]
fn a_read_response_must_have_the_requested_length() {
    let bytes = [7; MTU as usize];
    let mut case = Case::new();
    case.post_read(1, 2);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadMore(&bytes)), DONE);
    assert_eq!(case.answer(101, Answer::ReadEnd(&bytes)), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
    assert_eq!(case.world.placed, [7; 2 * MTU as usize]);

    case.post_read(2, 1);
    case.transmit();
    assert_eq!(case.answer(102, Answer::ReadEnd(&bytes[1..])), Outcome::Fatal(Reason::AnswerLength));
}

#[test]
fn an_answer_of_another_kind_is_a_bad_response() {
    let mut case = Case::new();
    case.post_read(1, 1);
    case.transmit();
    assert_eq!(case.answer(100, Answer::Atomic(1)), Outcome::Fatal(Reason::AnswerKind));
    let mut case = Case::new();
    case.post(1, SendOp::FetchAdd { remote: REMOTE, add: 1 }, 8);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadEnd(&[0; 8])), Outcome::Fatal(Reason::AnswerKind));
}

#[test]
fn an_atomic_returns_the_former_value() {
    let mut case = Case::new();
    case.post(1, SendOp::FetchAdd { remote: REMOTE, add: 1 }, 8);
    case.transmit();
    assert_eq!(case.answer(100, Answer::Atomic(0x0102)), DONE);
    assert_eq!(case.world.placed, 0x0102_u64.to_ne_bytes());
    assert_eq!(case.completed(), [(1, Status::Success)]);
}

#[test]
fn an_rnr_nak_stops_it_for_as_long_as_the_peer_asks() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.transmit();
    assert_eq!(case.rnr_nak(100), DONE);
    assert!(!case.requester.has_requests());
    assert_eq!(case.transmit().0, []);
    let told = case.now;
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.now, told + RnrTimer::new(1).delay());
    assert_eq!(case.transmit().0, [100]);
    assert_eq!(case.rnr_nak(100), DONE);
    let _ = case.time_out();
    case.transmit();
    assert_eq!(case.rnr_nak(100), Outcome::Fatal(Reason::ReceiverNotReady), "the third, and two retries");
}

#[test]
fn the_host_is_told_once_that_the_peer_has_had_no_receive_for_a_second() {
    let mut case = Case::new();
    case.cx.attr.rnr_retry = 7;
    case.requester.start(&case.cx, false);
    case.post_send(1, 1);
    case.transmit();
    let since = case.now;
    for (later, told) in [(0, 0), (999, 0), (1000, 1), (3000, 1)] {
        case.now = since + Duration::from_millis(later);
        case.requester.rnr_wait = false;
        case.transmit();
        assert_eq!(case.rnr_nak(100), DONE);
        assert_eq!(case.world.concerns.len(), told, "after {later} ms");
    }
    let Concern::NoReceiveAtPeer { since: first, attempt, .. } = case.world.concerns[0] else {
        panic!("{:?}", case.world.concerns)
    };
    assert_eq!((first, attempt.opcode, attempt.wr_id), (since + MOMENT, WcOpcode::Send, Some(1)));
}

#[test]
fn seven_rnr_retries_never_end() {
    let mut case = Case::new();
    case.cx.attr.rnr_retry = 7;
    case.requester.start(&case.cx, false);
    case.post_send(1, 1);
    for _ in 0..100 {
        assert_eq!(case.transmit().0, [100]);
        assert_eq!(case.rnr_nak(100), DONE);
        assert_eq!(case.time_out(), DONE);
    }
}

/// Sends a request, and again at each timeout if the link takes it, until there are no retries left.
fn run_out_of_retries(link_takes: bool) -> Case {
    let mut case = Case::new();
    case.cx.config.early_retransmission = false;
    case.post_send(1, 1);
    case.transmit();
    let timeout = Duration::from_nanos(4096 << case.cx.attr.timeout);
    for _ in 0..case.cx.attr.retry_cnt {
        let waits = case.now;
        assert_eq!(case.time_out(), DONE);
        assert_eq!(case.now, waits + timeout);
        if link_takes {
            assert_eq!(case.transmit().0, [100]);
        } else {
            case.world.refuses.push_back(TransmitError::Full);
            assert_eq!(case.transmit(), ([].into(), Stop::LinkFull));
        }
    }
    assert_eq!(case.time_out(), Outcome::Fatal(Reason::NoAnswer));
    case
}

#[test]
fn the_local_ack_timeout_retransmits_up_to_the_retry_count() {
    assert_eq!(run_out_of_retries(true).world.count_of(Counter::Timeout), 3);
}

#[test]
fn retries_run_out_although_the_link_takes_nothing() {
    run_out_of_retries(false);
}

#[test]
fn early_resends_double_their_wait_and_take_no_retries() {
    let mut case = Case::new();
    case.cx.attr.timeout = 0;
    case.post_send(1, 1);
    case.transmit();
    let mut waits = Vec::new();
    while case.requester.deadline() != Time::NEVER {
        let sent = case.now;
        assert_eq!(case.time_out(), DONE);
        waits.push(case.now.nanos_since(sent));
        assert_eq!(case.transmit().0, [100]);
    }
    assert_eq!(waits, (0..8).map(|n| 4_000_000 << n).collect::<Vec<_>>());
    assert_eq!(case.requester.retries_left, case.cx.attr.retry_cnt);
}

/// Both processes share a processor with others, and the peer has not had it for a while.
#[test]
fn where_nothing_is_lost_a_silent_peer_is_waited_for_until_the_local_ack_timeout() {
    for loses_nothing in [true, false] {
        let mut case = Case::new();
        case.world.loses_nothing = loses_nothing;
        case.cx.attr.timeout = 14;
        case.post_send(1, 1);
        assert_eq!(case.transmit().0, [100]);
        // Before the first answer it may not have been ready.
        assert_eq!(case.time_out(), DONE);
        assert_eq!(case.transmit().0, [100]);
        assert_eq!(case.world.count_of(Counter::EarlyRetransmit), 1);
        assert_eq!(case.ack(100), DONE);
        // Measured without a resend.
        case.post_send(2, 1);
        assert_eq!(case.transmit().0, [101]);
        assert_eq!(case.ack(101), DONE);
        case.post_send(3, 4);
        assert_eq!(case.transmit().0.len(), 4);
        assert_eq!(case.time_out(), DONE);
        let resent = case.transmit().0.len();
        assert_eq!(resent, if loses_nothing { 0 } else { 2 });
        assert_eq!(case.world.count_of(Counter::EarlyRetransmit), if loses_nothing { 1 } else { 2 });
        if loses_nothing {
            let waits = case.now;
            assert_eq!(case.time_out(), DONE);
            assert!(case.now.nanos_since(waits) > 50_000_000, "the local ACK timeout");
            assert_eq!(case.world.count_of(Counter::Timeout), 1);
            assert!(!case.transmit().0.is_empty());
        }
    }
}

#[test]
fn a_peer_that_is_silent_is_probed_with_two_packets() {
    let mut case = Case::new();
    case.post_send(1, 10);
    assert_eq!(case.transmit().0.len(), 10);
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.world.peer.window.in_flight(), 0, "nothing of it counts");
    assert_eq!(case.transmit().0, [100, 101]);
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.transmit().0.len(), 8, "it answers");
}

#[test]
fn a_local_operation_that_fails_ends_the_qp_after_what_is_before_it() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.post(2, SendOp::Local(LocalOp::BindWindow), 0);
    case.post_send(3, 1);
    case.world.local = Err(LocalOpFault);
    let (sent, _, outcome) = case.try_transmit();
    assert_eq!((sent, outcome), ([100].into(), DONE), "nothing behind it is sent");
    assert_eq!(case.ack(100), Outcome::Fatal(Reason::LocalOperation));
    assert_eq!(case.completed(), [(1, Status::Success)]);
}

#[test]
fn an_unreadable_local_buffer_fails_at_once() {
    let mut case = Case::new();
    case.world.memory = Err(crate::host::LocalFault);
    case.post_send(1, 1);
    let (sent, stop, outcome) = case.try_transmit();
    assert_eq!((sent, stop, outcome), ([].into(), Stop::Idle, Outcome::Fatal(Reason::LocalMemory)));
}

fn flush() -> SendOp {
    let feth = softrnic_wire::Feth {
        placement: softrnic_wire::Placement::GLOBAL_VISIBILITY,
        selectivity: softrnic_wire::Selectivity::Range,
    };
    SendOp::Flush { remote: REMOTE, length: 8, feth }
}

#[test]
fn a_flush_that_is_not_answered_is_sent_in_the_other_form() {
    let mut case = Case::new();
    case.post(1, flush(), 0);
    case.transmit();
    assert_eq!(case.time_out(), DONE);
    case.transmit();
    assert_eq!(case.answer(100, Answer::ReadEnd(&[])), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
    assert_eq!(case.world.peer.flush.form(0), IcrcForm::RxeFlush, "which is what the peer wants");
    assert_eq!(case.world.forms, [IcrcForm::Standard, IcrcForm::RxeFlush]);
}

#[test]
fn xrc_has_no_flush() {
    let mut case = Case::new();
    case.cx.service = crate::QpType::XrcInitiator;
    let wqe = send_wqe(1, flush(), 0);
    case.requester.post(crate::SendWqe { srqn: Some(softrnic_wire::Srqn::new(3)), ..wqe });
    assert_eq!(case.try_transmit(), ([].into(), Stop::Idle, Outcome::Fatal(Reason::NoForm)));
}

#[test]
fn draining_starts_nothing_new_and_reports_once() {
    let mut case = Case::new();
    case.cx.attr.sqd_notify = true;
    case.post_send(1, 1);
    case.transmit();
    case.post_send(2, 1);
    case.cx.state = QpState::Sqd;
    case.requester.drain(&case.cx, false, &mut case.world);
    assert_eq!(case.transmit().0, []);
    assert_eq!(case.world.events, []);
    assert_eq!(case.ack(100), DONE);
    for _ in 0..2 {
        case.requester.report_drained(&case.cx, &mut case.world);
    }
    assert_eq!(case.world.events, [QpEvent::SendQueueDrained]);
}

#[test]
fn a_stopped_requester_returns_its_window() {
    let mut case = Case::new();
    case.post_send(1, 3);
    case.post_send(2, 1);
    case.transmit();
    assert!(case.world.peer.window.in_flight() > 0);
    case.requester.stop(&mut case.world);
    case.requester.flush(&case.cx, &mut case.world);
    assert_eq!(case.world.peer.window.in_flight(), 0);
    assert_eq!(case.completed(), [(1, Status::Flushed), (2, Status::Flushed)]);
    assert_eq!(case.requester.deadline(), Time::NEVER);
}

/// Has something outstanding, and the last retry used up.
fn without_retries() -> Case {
    let mut case = Case::new();
    case.cx.config.early_retransmission = false;
    case.post_send(1, 1);
    case.transmit();
    case.requester.retries_left = 0;
    case
}

#[test]
fn no_retry_counts_while_the_peers_process_is_stopped() {
    let mut case = without_retries();
    case.world.process = PeerProcess::Stopped;
    for _ in 0..100 {
        assert_eq!(case.time_out(), DONE);
        assert_eq!(case.transmit().0, [100]);
    }
    case.world.process = PeerProcess::NotStopped;
    assert_eq!(case.time_out(), Outcome::Fatal(Reason::NoAnswer), "all before count as they did");
    assert_eq!(case.world.count_of(Counter::Timeout), 101);
}

#[test]
fn without_retries_the_verdict_waits_for_the_state_of_the_peers_process() {
    for stopped in [false, true] {
        let mut case = without_retries();
        case.world.process = PeerProcess::Awaited;
        assert_eq!(case.time_out(), DONE);
        let timed_out = case.now;
        for _ in 0..3 {
            assert_eq!(case.transmit().0, [0; 0], "nothing is sent meanwhile");
            assert_eq!(case.time_out(), DONE);
            assert_eq!(case.world.asked_since, timed_out, "what was seen since then counts");
        }
        let answer = if stopped { PeerProcess::Stopped } else { PeerProcess::NotStopped };
        case.world.process = answer;
        let outcome = if stopped { DONE } else { Outcome::Fatal(Reason::NoAnswer) };
        assert_eq!(case.time_out(), outcome);
        assert_eq!(case.world.count_of(Counter::Timeout), 1);
    }
}

#[test]
fn an_answer_outweighs_the_state_of_the_peers_process() {
    let mut case = without_retries();
    case.world.process = PeerProcess::Awaited;
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
    assert_eq!(case.requester.deadline(), Time::NEVER);
}

#[test]
fn no_rnr_retry_counts_while_the_peers_process_is_stopped() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.world.process = PeerProcess::Stopped;
    for _ in 0..100 {
        case.transmit();
        assert_eq!(case.rnr_nak(100), DONE);
        assert_eq!(case.time_out(), DONE);
    }
    case.world.process = PeerProcess::NotStopped;
    // The first one has had the host look, and counted.
    for _ in 1..case.cx.attr.rnr_retry {
        case.transmit();
        assert_eq!(case.rnr_nak(100), DONE);
        assert_eq!(case.time_out(), DONE);
    }
    case.transmit();
    assert_eq!(case.rnr_nak(100), Outcome::Fatal(Reason::ReceiverNotReady));
}

#[test]
fn an_rnr_nak_without_retries_gives_up_when_it_knows_of_the_peers_process() {
    for stopped in [false, true] {
        let mut case = Case::new();
        case.cx.attr.rnr_retry = 0;
        case.requester.start(&case.cx, true);
        case.post_send(1, 1);
        case.transmit();
        case.world.process = PeerProcess::Awaited;
        assert_eq!(case.rnr_nak(100), DONE);
        let refused = case.now;
        for _ in 0..3 {
            assert_eq!(case.rnr_nak(100), DONE, "one that is late says nothing new");
            assert_eq!(case.transmit().0, [0; 0], "nothing is sent meanwhile");
            assert_eq!(case.time_out(), DONE);
            assert_eq!(case.world.asked_since, refused, "what was seen since then counts");
        }
        if stopped {
            case.world.process = PeerProcess::Stopped;
            assert_eq!(case.time_out(), DONE);
            assert_eq!(case.transmit().0, [100], "the NAK's own delay was shorter");
            assert_eq!(case.rnr_nak(100), DONE, "it is still stopped");
        } else {
            case.world.process = PeerProcess::NotStopped;
            assert_eq!(case.time_out(), Outcome::Fatal(Reason::ReceiverNotReady));
            assert_eq!(case.world.count_of(Counter::RetryRnrExceededErr), 1);
        }
    }
}

#[test]
fn a_receive_in_time_comes_before_what_is_known_of_the_peers_process() {
    let mut case = Case::new();
    case.cx.attr.rnr_retry = 0;
    case.requester.start(&case.cx, true);
    case.post_send(1, 2);
    case.transmit();
    case.world.process = PeerProcess::Awaited;
    assert_eq!(case.rnr_nak(100), DONE);
    assert_eq!(case.ack(100), DONE);
    case.world.process = PeerProcess::NotStopped;
    assert_eq!(case.time_out(), DONE);
    assert_eq!(case.transmit().0, [101]);
}
