use alloc::vec;
use alloc::vec::Vec;

use softrnic_wire::{AtomicEth, Reth, RnrTimer, SendTail};

use super::*;
use crate::attr::QpAccess;
use crate::context::Context;
use crate::hints::Caller;
use crate::host::{LocalFault, RemoteFault, TransmitError};
use crate::qp::Stop;
use crate::testing::{MOMENT, MTU, START, World, context};

mod answers;
mod duplicates;
mod reorder;
mod stages;
mod unreliable;

/// A responder and its world. The peer's PSNs begin at 100.
struct Case {
    cx: Context,
    responder: Responder<u32>,
    world: World,
}

const CONTINUE: Outcome = Outcome::Continue;
const SEND: Op = Op::SendOnly(SendTail::Plain);

fn write(dma_len: u32) -> Op {
    Op::WriteOnly(reth(dma_len), None)
}

fn reth(dma_len: u32) -> Reth {
    Reth { va: 0x1000, rkey: Rkey(1), dma_len }
}

fn fetch_add(add: u64) -> Op {
    Op::FetchAdd(AtomicEth { va: 0x1000, rkey: Rkey(1), swap_or_add: add, compare: 0 })
}

impl Case {
    fn new() -> Case {
        let cx = context();
        let mut responder = Responder::new();
        responder.start_at(cx.attr.rq_psn);
        Case { cx, responder, world: World::new() }
    }

    fn request(&mut self, psn: u32, op: Op, payload: &[u8]) -> Outcome {
        let request =
            Request { psn: Psn::new(psn), op: &op, srqn: None, ack_req: true, solicited: false, payload };
        let mut outcome = self.responder.on_request(&self.cx, request, &mut self.world);
        // As the QP does.
        while outcome == CONTINUE
            && let Some(kept) = self.responder.next_kept(&self.cx, &mut self.world)
        {
            let packet = kept.packet(self.cx.qpn);
            let request = Request::new(&packet, &kept.op, None);
            outcome = self.responder.on_request(&self.cx, request, &mut self.world);
            self.world.return_buffer(kept.into_buffer());
        }
        outcome
    }

    /// What it answers: PSN, MSN and what the AETH or the payload says.
    fn answers(&mut self) -> Vec<(u32, Op)> {
        let (answers, outcome) = self.try_answers();
        assert_eq!(outcome, CONTINUE);
        answers
    }

    fn try_answers(&mut self) -> (Vec<(u32, Op)>, Outcome) {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        let outcome = self.responder.transmit(&self.cx, START, None, &mut self.world, 1000, &mut progress);
        (self.world.take_sent(), outcome)
    }

    /// The syndromes of what it answers.
    fn syndromes(&mut self) -> Vec<(u32, Syndrome)> {
        let aeth = |(psn, op)| match op {
            Op::Acknowledge(aeth) => (psn, aeth.syndrome),
            other => panic!("{other:?}"),
        };
        self.answers().into_iter().map(aeth).collect()
    }

    fn is_acked(&mut self, psn: u32) -> bool {
        matches!(self.syndromes()[..], [(acked, Syndrome::Ack(_))] if acked == psn)
    }
}

#[test]
fn a_send_of_several_packets_completes_one_receive() {
    let bytes = [7; MTU as usize];
    let mut case = Case::new();
    case.world.post_receive(1, 3 * MTU);
    assert_eq!(case.request(100, Op::SendFirst, &bytes), CONTINUE);
    assert_eq!(case.request(101, Op::SendMiddle, &bytes), CONTINUE);
    assert_eq!(case.world.completed, []);
    assert_eq!(case.request(102, Op::SendLast(SendTail::Plain), &[9]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
    assert_eq!(case.world.placed.len(), 2 * MTU as usize + 1);
    assert!(case.is_acked(102), "one ACK for all of it");
}

#[test]
fn a_gap_is_refused_once() {
    let mut case = Case::new();
    assert_eq!(case.request(101, write(0), &[]), CONTINUE);
    assert_eq!(case.request(102, write(0), &[]), CONTINUE);
    assert_eq!(case.syndromes(), [(100, Syndrome::Nak(NakCode::PsnSequence))]);
    assert_eq!(case.world.count_of(Counter::DropAfterNak), 1);
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    assert!(case.is_acked(100));
    assert_eq!(case.request(102, write(0), &[]), CONTINUE);
    assert_eq!(case.syndromes(), [(101, Syndrome::Nak(NakCode::PsnSequence))], "a gap of its own");
}

#[test]
fn without_a_receive_the_peer_gets_an_rnr_nak() {
    let mut case = Case::new();
    case.cx.attr.min_rnr_timer = RnrTimer::new(5);
    assert_eq!(case.request(100, SEND, &[]), CONTINUE);
    assert_eq!(case.syndromes(), [(100, Syndrome::RnrNak(RnrTimer::new(5)))]);
    case.world.post_receive(1, 0);
    assert_eq!(case.request(100, SEND, &[]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
}

#[test]
fn a_forbidden_operation_ends_the_qp() {
    let bytes = &[7; MTU as usize + 1];
    let short = &bytes[1..MTU as usize];
    let misaligned = AtomicEth { va: 0x1001, rkey: Rkey(1), swap_or_add: 1, compare: 0 };
    let cases: &[(Op, &[u8], Reason)] = &[
        (Op::SendMiddle, &bytes[1..], Reason::OpcodeSequence),
        (Op::SendLast(SendTail::Plain), &[1], Reason::OpcodeSequence),
        (Op::WriteMiddle, &bytes[1..], Reason::OpcodeSequence),
        (Op::WriteFirst(reth(2 * MTU)), short, Reason::PayloadLength),
        (Op::WriteFirst(reth(1)), &bytes[1..], Reason::WriteLength),
        (write(MTU + 1), bytes, Reason::PayloadLength),
        (write(2), &[1], Reason::WriteLength),
        (fetch_add(1), &[1], Reason::PayloadLength),
        (Op::FetchAdd(misaligned), &[], Reason::Misaligned),
        (Op::AtomicWrite(reth(4)), &[0; 4], Reason::PayloadLength),
        (Op::ReadRequest(reth(crate::MAX_MESSAGE + 1)), &[], Reason::MessageTooLong),
    ];
    for (op, payload, reason) in cases {
        let mut case = Case::new();
        let outcome = case.request(100, *op, payload);
        assert_eq!(outcome, Outcome::Fatal(*reason), "{op:?}");
        assert_eq!(reason.status(), Status::RemoteInvalidRequest);
        assert_eq!(case.syndromes(), [(100, Syndrome::Nak(NakCode::InvalidRequest))], "{op:?}");
        assert_eq!(case.world.events, [QpEvent::RequestError]);
        assert_eq!(case.world.placed, []);
        assert_eq!(case.world.failures.iter().map(|failure| failure.reason).collect::<Vec<_>>(), [*reason]);
    }
}

#[test]
fn each_right_of_the_qp_is_asked_for() {
    for op in [write(0), Op::AtomicWrite(reth(8)), Op::ReadRequest(reth(8)), fetch_add(1)] {
        let mut case = Case::new();
        case.cx.attr.access = Default::default();
        let payload = if matches!(op, Op::AtomicWrite(_)) { &[0; 8][..] } else { &[] };
        let outcome = case.request(100, op, payload);
        assert_eq!(outcome, Outcome::Fatal(Reason::QpAccess), "{op:?}");
    }
}

#[test]
fn a_key_that_does_not_allow_it_is_an_access_error() {
    for (op, payload) in [
        (write(1), &[1][..]),
        (Op::WriteFirst(reth(2 * MTU)), &[0; MTU as usize]),
        (Op::ReadRequest(reth(1)), &[]),
        (fetch_add(1), &[]),
        (Op::AtomicWrite(reth(8)), &[0; 8]),
    ] {
        let mut case = Case::new();
        case.world.remote = Err(RemoteFault::Access);
        assert_eq!(case.request(100, op, payload), Outcome::Fatal(Reason::RemoteMemory), "{op:?}");
        assert_eq!(case.syndromes(), [(100, Syndrome::Nak(NakCode::RemoteAccess))]);
        assert_eq!(case.world.events, [QpEvent::AccessError]);
    }
    let mut case = Case::new();
    case.world.remote = Err(RemoteFault::Access);
    assert_eq!(case.request(100, write(0), &[]), CONTINUE, "no bytes, no key");
    assert_eq!(case.request(101, Op::ReadRequest(reth(0)), &[]), CONTINUE);
}

#[test]
fn a_message_that_is_refused_ends_with_its_status() {
    let bytes = [7; MTU as usize];
    let mut case = Case::new();
    case.world.post_receive(1, MTU);
    assert_eq!(case.request(100, Op::SendFirst, &bytes), CONTINUE);
    let outcome = case.request(101, Op::SendLast(SendTail::Plain), &[1]);
    assert_eq!(outcome, Outcome::Fatal(Reason::ReceiveTooShort));
    let attempt = Attempt {
        opcode: WcOpcode::Send,
        wr_id: Some(1),
        length: MTU as u64 + 1,
        remote: None,
        room: Some(MTU),
    };
    assert_eq!(case.world.failures, [Failure::new(&case.cx, Reason::ReceiveTooShort, Some(attempt))]);
    case.responder.fail_message(&case.cx, Status::LocalLength, &mut case.world);
    case.responder.flush(&case.cx, &mut case.world);
    assert_eq!(case.world.completed, [(1, Status::LocalLength)], "once");
}

#[test]
fn a_bad_receive_is_a_local_protection_error() {
    let mut case = Case::new();
    case.world.post_receive(1, MTU);
    case.world.memory = Err(LocalFault);
    assert_eq!(case.request(100, SEND, &[1]), Outcome::Fatal(Reason::ReceiveMemory));
    assert_eq!(case.syndromes(), [(100, Syndrome::Nak(NakCode::RemoteOperational))]);
}

#[test]
fn a_repeated_atomic_is_answered_again_and_not_executed_again() {
    let mut case = Case::new();
    case.world.word = 40;
    assert_eq!(case.request(100, fetch_add(2), &[]), CONTINUE);
    let first = case.answers();
    assert_eq!(case.request(100, fetch_add(2), &[]), CONTINUE);
    assert_eq!(case.answers(), first);
    assert_eq!(case.world.word, 42);
    assert_eq!(case.request(99, fetch_add(2), &[]), CONTINUE);
    assert_eq!(case.answers(), [], "nothing is saved of that");
    assert_eq!(case.world.count_of(Counter::DropDuplicateUnmatched), 1);
}

#[test]
fn a_repeated_write_is_acknowledged_up_to_the_newest() {
    let mut case = Case::new();
    for psn in 100..103 {
        assert_eq!(case.request(psn, write(1), &[psn as u8]), CONTINUE);
    }
    case.answers();
    assert_eq!(case.request(100, write(1), &[0]), CONTINUE);
    assert!(case.is_acked(102));
    assert_eq!(case.world.placed, [100, 101, 102], "it is not written again");
}

#[test]
fn a_repeated_write_is_not_acknowledged_over_a_read_that_may_be_missing() {
    let mut case = Case::new();
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    assert_eq!(case.request(101, Op::ReadRequest(reth(1)), &[]), CONTINUE);
    case.answers();
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    assert!(case.is_acked(100));
}

#[test]
fn a_read_is_answered_in_packets_that_own_their_psns() {
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::ReadRequest(reth(2 * MTU + 1)), &[]), CONTINUE);
    assert_eq!(case.request(103, write(0), &[]), CONTINUE, "the next PSN is behind them");
    let answers = case.answers();
    let psns: Vec<_> = answers.iter().map(|(psn, _)| *psn).collect();
    assert_eq!(psns, [100, 101, 102, 103]);
    assert!(matches!(answers[0].1, Op::ReadResponseFirst(_)));
    assert!(matches!(answers[1].1, Op::ReadResponseMiddle));
    assert!(matches!(answers[2].1, Op::ReadResponseLast(_)));
}

#[test]
fn a_read_whose_memory_goes_away_is_refused_at_that_packet() {
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::ReadRequest(reth(3 * MTU)), &[]), CONTINUE);
    case.world.refuses = [TransmitError::Remote(RemoteFault::Unmapped)].into();
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    let outcome = case.responder.transmit(&case.cx, START, None, &mut case.world, 1, &mut progress);
    assert_eq!(outcome, Outcome::Fatal(Reason::RemoteMemory));
    assert_eq!(case.syndromes(), [(100, Syndrome::Nak(NakCode::RemoteAccess))]);
}

#[test]
fn no_more_reads_are_taken_than_were_agreed_on() {
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::ReadRequest(reth(1)), &[]), CONTINUE);
    assert_eq!(case.request(101, Op::ReadRequest(reth(1)), &[]), CONTINUE);
    let outcome = case.request(102, Op::ReadRequest(reth(1)), &[]);
    assert_eq!(outcome, Outcome::Fatal(Reason::TooManyReads));
}

#[test]
fn a_full_link_loses_no_answer() {
    let mut case = Case::new();
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    case.world.refuses = [TransmitError::Full].into();
    assert_eq!(case.answers(), []);
    assert!(case.is_acked(100));
}

#[test]
fn comm_est_is_raised_once_and_only_in_rtr() {
    let mut case = Case::new();
    case.cx.state = QpState::Rtr;
    for psn in [100, 101] {
        assert_eq!(case.request(psn, write(0), &[]), CONTINUE);
    }
    assert_eq!(case.world.events, [QpEvent::CommunicationEstablished]);
    let mut case = Case::new();
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    assert_eq!(case.world.events, []);
}

#[test]
fn a_delayed_ack_is_its_timer_until_it_leaves() {
    let mut case = Case::new();
    let poll = Hints { caller: Caller::Poll, completes: true, segments: true };
    case.world.post_receive(1, 0);
    assert_eq!(case.request(100, SEND, &[]), CONTINUE);
    let ack = case.responder.lone_ack().expect("an ACK and nothing else");
    assert!(case.responder.delays_ack(START, ack, poll, false));
    assert!(case.responder.deadline() > START);
    case.responder.note_sending(START + MOMENT, true);
    assert_eq!(case.responder.deadline(), Time::NEVER);
    assert!(case.is_acked(100));
}

#[test]
fn at_its_deadline_a_delayed_ack_runs_no_timer_any_more() {
    let mut case = Case::new();
    let poll = Hints { caller: Caller::Poll, completes: true, segments: true };
    let found = Hints { caller: Caller::Thread, ..poll };
    assert_eq!(case.responder.lone_ack(), None);
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    let ack = case.responder.lone_ack().expect("an ACK and nothing else");
    assert!(!case.responder.delays_ack(START, ack, found, false), "nobody will poll");
    assert!(case.responder.delays_ack(START, ack, poll, false));
    case.responder.on_timeout(case.responder.deadline());
    assert_eq!(case.responder.deadline(), Time::NEVER);
    assert!(!case.responder.delays_ack(START + MOMENT, ack, poll, false), "it leaves now");
}

#[test]
fn forgotten_responses_are_not_sent_and_run_no_timer() {
    let mut case = Case::new();
    let poll = Hints { caller: Caller::Poll, completes: true, segments: true };
    assert!(!case.responder.wants_transmit());
    assert_eq!(case.request(100, write(0), &[]), CONTINUE);
    assert!(case.responder.wants_transmit());
    let ack = case.responder.lone_ack().expect("an ACK and nothing else");
    assert!(case.responder.delays_ack(START, ack, poll, false));
    case.responder.forget_responses();
    assert!(!case.responder.wants_transmit());
    assert_eq!(case.responder.deadline(), Time::NEVER);
}

#[test]
fn a_congestion_notification_is_something_to_send() {
    let mut case = Case::new();
    case.responder.note_congestion(&case.cx, START, 0xC000, &mut case.world);
    assert!(case.responder.wants_transmit());
}

#[test]
fn a_send_that_has_begun_is_flushed_with_its_receive() {
    let mut case = Case::new();
    case.world.post_receive(1, 2 * MTU);
    assert_eq!(case.request(100, Op::SendFirst, &[7; MTU as usize]), CONTINUE);
    case.responder.flush(&case.cx, &mut case.world);
    assert_eq!(case.world.completed, [(1, Status::Flushed)]);
}

#[test]
fn marks_of_congestion_are_answered_once_per_interval() {
    let mut case = Case::new();
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    let mut sent = vec![];
    for micros in [0, 10, 49, 50, 60] {
        let now = START + MOMENT * micros;
        case.responder.note_congestion(&case.cx, now, 0xC000, &mut case.world);
        case.responder.transmit_cnp(&case.cx, &mut case.world, &mut progress);
        sent.push(progress.sent);
    }
    assert_eq!(sent, [1, 1, 1, 2, 2]);
}
