//! Which half of a queue pair an event goes to, and what its state makes of it.
//!
//! Over 600 lines: one test for each state and each half, on the same pair.

use alloc::vec;
use alloc::vec::Vec;

use softrnic_wire::{Aeth, Bth, Deth, NakCode, Qkey, Reth, Rkey, RnrTimer, SendTail, UcOp, XrcBody};

use super::*;
use crate::TRANSITIONS;
use crate::testing::{MOMENT, START, World, context, send_wqe};
use crate::wqe::{RemoteBuffer, SendOp};
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

const ALONE: Hints = Hints { caller: Caller::Control, completes: false, segments: false };
const POST: Hints = Hints { caller: Caller::Post, ..ALONE };
const POLL: Hints = Hints { caller: Caller::Poll, completes: true, segments: false };
const THREAD: Hints = Hints { caller: Caller::Thread, ..ALONE };
const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

struct Case {
    qp: Qp<u32>,
    world: World,
    now: Time,
}

impl Case {
    /// A QP that has gone through `states` from RESET on.
    fn through(service: QpType, states: &[QpState]) -> Case {
        let qp = Qp::new(Qpn::new(5), service, Config::default(), RateParameters::default());
        let mut case = Case { qp, world: World::new(), now: START };
        for &state in states {
            case.go(state);
        }
        case
    }

    fn of(service: QpType) -> Case {
        Case::through(service, &[Init, Rtr, Rts])
    }

    /// To another state, with the attributes that the way there needs.
    fn go(&mut self, to: QpState) {
        self.go_with(to, AttrMask::empty());
    }

    fn go_with(&mut self, to: QpState, mask: AttrMask) {
        let (from, service) = (self.qp.state(), self.qp.service());
        let fits = |row: &&transitions::Transition| {
            row.from == from && row.to == to && row.services.contains(&service)
        };
        let required = TRANSITIONS.iter().find(fits).map_or(AttrMask::empty(), |row| row.required);
        let attr = QpAttr { state: to, sqd_notify: true, ..context().attr };
        let mask = mask.union(required).union(AttrMask::STATE);
        assert_eq!(self.qp.modify(mask, &attr, &mut self.world), Ok(()));
    }

    /// A QP of RC in this state.
    fn in_state(state: QpState) -> Case {
        let mut case = Case::through(QpType::Rc, &[]);
        match state {
            Reset => {}
            Err => [Init, Err].into_iter().for_each(|state| case.go(state)),
            // A reliable service never gets to SQE by itself.
            Sqe => case.qp.context.state = Sqe,
            _ => {
                for on_the_way in [Init, Rtr, Rts, Sqd] {
                    case.go(on_the_way);
                    if on_the_way == state {
                        break;
                    }
                }
            }
        }
        assert_eq!(case.qp.state(), state);
        case
    }

    fn post(&mut self, wr_id: u64, op: SendOp, length: u32) {
        let wqe = SendWqe { srqn: Some(Srqn::new(3)), ..send_wqe(wr_id, op, length) };
        assert!(self.qp.has_room());
        self.qp.post_send(wqe, &mut self.world);
    }

    fn post_send(&mut self, wr_id: u64) {
        self.post(wr_id, SendOp::Send(SendTail::Plain), 1);
    }

    fn comes(&mut self, psn: u32, body: Body, payload: &[u8]) {
        self.comes_with(false, psn, body, payload);
    }

    fn comes_with(&mut self, ce: bool, psn: u32, body: Body, payload: &[u8]) {
        let bth = Bth { ack_req: true, ..Bth::new(self.qp.qpn(), Psn::new(psn)) };
        let packet = Packet { bth, body, payload, icrc: 0 };
        self.now += MOMENT;
        self.qp.on_packet(self.now, &packet, Received { ce, sport: 0xC000, grh: &[0; 40] }, &mut self.world);
    }

    /// A WRITE of nothing.
    fn asked(&mut self, psn: u32) {
        self.comes(psn, Body::Rc(Op::WriteOnly(NOWHERE, None)), &[]);
    }

    fn acked(&mut self, psn: u32) {
        self.comes(psn, Body::Rc(ack()), &[]);
    }

    /// Lets it send `budget` packets: what they are, and why it stopped.
    fn transmit(&mut self, hints: Hints, budget: usize) -> (Vec<Body>, Stop) {
        self.now += MOMENT;
        let progress = self.qp.poll_transmit(self.now, &mut self.world, hints, budget);
        let sent: Vec<_> = self.world.sent.drain(..).map(|headers| headers.body).collect();
        assert_eq!(sent.len(), progress.sent);
        (sent, progress.stop)
    }

    /// Which of what it sends are answers.
    fn answers(&mut self, hints: Hints, budget: usize) -> (Vec<bool>, Stop) {
        let (sent, stop) = self.transmit(hints, budget);
        (sent.iter().map(|body| matches!(body, Body::Rc(Op::Acknowledge(_)))).collect(), stop)
    }

    fn dropped(&self, counter: Counter) -> usize {
        self.world.count_of(counter)
    }
}

const NOWHERE: Reth = Reth { va: 0, rkey: Rkey(0), dma_len: 0 };
const REMOTE: RemoteBuffer = RemoteBuffer { va: 0x1000, rkey: Rkey(1) };

fn ack() -> Op {
    Op::Acknowledge(Aeth::ack(Msn::ZERO))
}

fn aeth(syndrome: Syndrome) -> Body {
    Body::Rc(Op::Acknowledge(Aeth { syndrome, msn: Msn::ZERO }))
}

#[test]
fn requests_go_to_the_responder_and_answers_to_the_requester() {
    let mut case = Case::of(QpType::Rc);
    case.asked(100);
    case.post_send(1);
    assert_eq!(case.answers(POST, 9), (vec![true, false], Stop::Idle));
    case.acked(100);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
    let status = case.qp.status();
    assert_eq!((status.expected_psn, status.una), (Psn::new(101), Psn::new(101)));
    assert_eq!((status.state, status.msn.get(), status.queued_sends), (Rts, 1, 0));
}

#[test]
fn each_response_completes_its_request() {
    let mut case = Case::of(QpType::Rc);
    let word = SendOp::FetchAdd { remote: REMOTE, add: 1 };
    case.post(1, SendOp::Read { remote: REMOTE }, 1025);
    case.post(2, word, 8);
    case.post_send(3);
    case.post(4, SendOp::Read { remote: REMOTE }, 1);
    for psn in 100..104 {
        case.transmit(ALONE, 9);
        let answer = match psn {
            100 => (Op::ReadResponseFirst(Aeth::ack(Msn::ZERO)), 1024),
            101 => (Op::ReadResponseLast(Aeth::ack(Msn::ZERO)), 1),
            102 => (Op::AtomicAcknowledge(Aeth::ack(Msn::ZERO), 7), 0),
            _ => (ack(), 0),
        };
        case.comes(psn, Body::Rc(answer.0), &[7; 1024][..answer.1]);
    }
    case.transmit(ALONE, 9);
    case.comes(104, Body::Rc(Op::ReadResponseOnly(Aeth::ack(Msn::ZERO))), &[7]);
    assert_eq!(case.world.completed, [1, 2, 3, 4].map(|wr_id| (wr_id, Status::Success)));
    assert_eq!(case.world.placed.len(), 1025 + 8 + 1);
}

#[test]
fn each_syndrome_has_its_effect() {
    let mut case = Case::of(QpType::Rc);
    case.post_send(1);
    case.transmit(ALONE, 9);
    case.comes(100, aeth(Syndrome::Reserved(1)), &[]);
    assert_eq!(case.dropped(Counter::DropReservedSyndrome), 1);
    case.comes(100, aeth(Syndrome::RnrNak(RnrTimer::new(1))), &[]);
    assert_eq!(case.dropped(Counter::RcvdRnrErr), 1);
    assert!(case.qp.status().rnr_wait);
    case.comes(100, aeth(Syndrome::Nak(NakCode::RemoteAccess)), &[]);
    assert_eq!((case.qp.state(), &case.world.completed[..]), (Err, &[(1, Status::RemoteAccess)][..]));
}

#[test]
fn packets_of_another_service_are_dropped() {
    let write = Op::WriteOnly(NOWHERE, None);
    let xrc = XrcBody::request(Srqn::new(3), write).map(Body::Xrc).expect("XRC has it");
    let datagram = Body::Ud { deth: Deth { qkey: Qkey(0), src_qpn: Qpn::new(9) }, imm: None };
    let unreliable = Body::Uc(UcOp::WriteOnly(NOWHERE, None));
    let of = [
        (QpType::Rc, Body::Rc(write)),
        (QpType::XrcTarget, xrc),
        (QpType::Uc, unreliable),
        (QpType::Ud, datagram),
    ];
    for (service, _) in of {
        for (other, body) in of {
            let mut case = Case::through(service, &[Init, Rtr]);
            case.comes(100, body, &[]);
            let foreign = usize::from(service != other);
            assert_eq!(case.dropped(Counter::DropOpcode), foreign, "{body:?} to {service:?}");
        }
    }
}

#[test]
fn requests_are_taken_from_rtr_on_and_answers_from_rts_on() {
    for state in STATES {
        let mut case = Case::in_state(state);
        case.asked(100);
        let takes = matches!(state, Rtr | Rts | Sqd | Sqe);
        assert_eq!(case.dropped(Counter::DropState), usize::from(!takes), "a request in {state:?}");
        let mut case = Case::in_state(state);
        case.acked(100);
        let takes = matches!(state, Rts | Sqd);
        assert_eq!(case.dropped(Counter::DropState), usize::from(!takes), "an answer in {state:?}");
    }
}

#[test]
fn unreliable_packets_are_taken_from_rtr_on() {
    let datagram = Body::Ud { deth: Deth { qkey: Qkey(0), src_qpn: Qpn::new(9) }, imm: None };
    let unreliable = Body::Uc(UcOp::SendOnly(None));
    for (service, body) in [(QpType::Uc, unreliable), (QpType::Ud, datagram)] {
        for (states, taken) in [(&[Init][..], false), (&[Init, Rtr], true)] {
            let mut case = Case::through(service, states);
            case.world.post_receive(1, 40);
            case.comes(100, body, &[]);
            assert_eq!(case.world.completed.len(), usize::from(taken), "{service:?}");
            assert_eq!(case.dropped(Counter::DropState), usize::from(!taken));
        }
    }
}

#[test]
fn an_initiator_takes_no_requests() {
    let request = XrcBody::request(Srqn::new(3), Op::WriteOnly(NOWHERE, None)).map(Body::Xrc);
    let mut case = Case::of(QpType::XrcInitiator);
    case.comes(100, request.expect("XRC has it"), &[]);
    assert_eq!(case.dropped(Counter::DropState), 1);
    case.post_send(1);
    case.transmit(ALONE, 9);
    case.comes(100, XrcBody::response(ack()).map(Body::Xrc).expect("XRC has it"), &[]);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
}

#[test]
fn a_target_answers_with_the_opcodes_of_xrc() {
    let request = XrcBody::request(Srqn::new(3), Op::WriteOnly(NOWHERE, None)).map(Body::Xrc);
    let mut case = Case::of(QpType::XrcTarget);
    case.comes(100, request.expect("XRC has it"), &[]);
    let (sent, _) = case.transmit(ALONE, 9);
    assert!(matches!(sent[..], [Body::Xrc(answer)] if matches!(answer.op(), Op::Acknowledge(_))), "{sent:?}");
}

#[test]
fn work_is_posted_in_the_states_that_take_it() {
    // IBTA 10.3.1.
    for state in STATES {
        let case = Case::in_state(state);
        assert_eq!(case.qp.accepts_sends(), matches!(state, Rts | Sqd | Sqe | Err), "{state:?}");
        assert_eq!(case.qp.accepts_receives(), state != Reset, "{state:?}");
    }
}

#[test]
fn what_is_posted_after_an_error_is_flushed() {
    for (state, flushed) in [(Rts, false), (Sqd, false), (Sqe, true), (Err, true)] {
        let mut case = Case::in_state(state);
        case.post_send(1);
        let completed: &[_] = if flushed { &[(1, Status::Flushed)] } else { &[] };
        assert_eq!(case.world.completed, completed, "{state:?}");
        let mut case = Case::in_state(state);
        case.world.post_receive(1, 1);
        case.qp.on_recv_posted(&mut case.world);
        assert_eq!(case.world.completed.len(), usize::from(state == Err), "{state:?}");
    }
}

#[test]
fn work_is_posted_until_there_is_no_room_for_more() {
    let mut case = Case::in_state(Rts);
    let mut posted = 0;
    while case.qp.has_room() {
        case.post_send(posted);
        posted += 1;
        assert!(posted < 100_000, "there is always room");
    }
    assert_eq!(case.qp.status().queued_sends as u64, posted);
}

#[test]
fn a_new_qp_has_its_number_and_service_and_is_in_reset() {
    let qp = Case::through(QpType::Uc, &[]).qp;
    assert_eq!((qp.qpn(), qp.service(), qp.state()), (Qpn::new(5), QpType::Uc, Reset));
}

#[test]
fn attributes_apply_from_the_transition_that_sets_them() {
    let mut case = Case::through(QpType::Rc, &[Init, Rtr]);
    assert_eq!(case.qp.status().expected_psn, Psn::new(100));
    assert_eq!(case.qp.attr().dest_qpn, Qpn::new(7));
    case.go(Rts);
    assert_eq!((case.qp.status().una, case.qp.status().retries_left), (Psn::new(100), 2));
    case.asked(100);
    case.post_send(1);
    case.transmit(ALONE, 9);
    case.go_with(Rts, AttrMask::MIN_RNR_TIMER);
    let status = case.qp.status();
    assert_eq!((status.send_psn, status.expected_psn), (Psn::new(101), Psn::new(101)), "they go on");
}

#[test]
fn the_state_changes_only_if_the_mask_names_it() {
    let mut case = Case::in_state(Rts);
    let attr = QpAttr { state: Err, min_rnr_timer: RnrTimer::new(9), ..QpAttr::default() };
    assert_eq!(case.qp.modify(AttrMask::MIN_RNR_TIMER, &attr, &mut case.world), Ok(()));
    assert_eq!((case.qp.state(), case.qp.attr().min_rnr_timer), (Rts, RnrTimer::new(9)));
}

#[test]
fn the_current_state_is_checked_if_the_caller_names_it() {
    for (mask, cur_state, result) in [
        (AttrMask::CUR_STATE, Rts, Ok(())),
        (AttrMask::CUR_STATE, Sqd, Result::Err(AttrError::CurState)),
        (AttrMask::empty(), Sqd, Ok(())),
    ] {
        let mut case = Case::in_state(Rts);
        let attr = QpAttr { state: Rts, cur_state, ..QpAttr::default() };
        assert_eq!(case.qp.modify(mask.union(AttrMask::STATE), &attr, &mut case.world), result);
    }
}

#[test]
fn draining_again_reports_only_what_was_not_reported() {
    let notify = AttrMask::EN_SQD_ASYNC_NOTIFY;
    let mut case = Case::in_state(Rts);
    case.go_with(Sqd, notify);
    assert_eq!(case.world.events, [QpEvent::SendQueueDrained]);
    case.go(Sqd);
    assert_eq!(case.world.events.len(), 1);
    case.go(Rts);
    case.go_with(Sqd, notify);
    assert_eq!(case.world.events.len(), 2);
}

#[test]
fn the_answer_to_the_last_request_drains_the_queue() {
    let mut case = Case::in_state(Rts);
    case.post_send(1);
    case.transmit(ALONE, 9);
    case.go_with(Sqd, AttrMask::EN_SQD_ASYNC_NOTIFY);
    assert_eq!(case.world.events, []);
    case.acked(100);
    assert_eq!(case.world.events, [QpEvent::SendQueueDrained]);
}

#[test]
fn an_error_flushes_both_queues_and_gives_up_what_is_in_flight() {
    let mut case = Case::in_state(Rts);
    case.world.post_receive(7, 1);
    case.post_send(1);
    case.transmit(POST, 9);
    case.asked(100);
    assert!(case.world.peer.window.in_flight() > 0 && case.qp.wants_transmit());
    case.go(Err);
    assert_eq!(case.world.completed, [(1, Status::Flushed), (7, Status::Flushed)]);
    assert_eq!(case.world.peer.window.in_flight(), 0);
    assert_eq!(case.transmit(ALONE, 9), (vec![], Stop::Idle), "nothing is answered any more");
    assert_eq!(case.qp.poll_timeout(), None);
    assert_eq!(case.world.events, [], "its receives are its own");
}

#[test]
fn a_qp_with_a_shared_queue_says_when_it_needs_no_more_of_it() {
    for (service, says) in [(QpType::Rc, true), (QpType::XrcTarget, true), (QpType::XrcInitiator, false)] {
        let mut case = Case::of(service);
        case.world.has_srq = true;
        case.world.post_receive(7, 1);
        case.go(Err);
        assert_eq!(case.world.events, if says { vec![QpEvent::LastWqeReached] } else { vec![] });
        case.go(Err);
        assert_eq!(case.world.events.len(), usize::from(says), "once");
        case.qp.on_recv_posted(&mut case.world);
        assert_eq!((case.world.completed.len(), case.world.receives.len()), (0, 1), "others may take it");
        case.go(Reset);
        assert_eq!(case.world.receives.len(), 1);
    }
}

#[test]
fn a_reset_forgets_all_without_a_completion() {
    let mut case = Case::in_state(Rts);
    case.asked(100);
    case.world.post_receive(7, 1);
    case.post_send(1);
    case.transmit(POST, 1);
    case.go(Reset);
    assert_eq!((case.world.completed.len(), case.world.receives.len()), (0, 0));
    assert_eq!((case.qp.state(), case.qp.attr()), (Reset, &QpAttr::default()));
    assert!(!case.qp.wants_transmit());
    assert_eq!((case.qp.status().expected_psn, case.world.retired), (Psn::ZERO, 1));
}

#[test]
fn a_closed_qp_completes_nothing_and_returns_its_window() {
    let mut case = Case::in_state(Rts);
    case.post_send(1);
    case.transmit(POST, 9);
    case.qp.close(&mut case.world);
    assert_eq!((case.qp.state(), case.qp.poll_timeout()), (Reset, None));
    assert_eq!((case.world.completed.len(), case.world.peer.window.in_flight()), (0, 0));
}

#[test]
fn a_qp_whose_queue_has_failed_is_in_error() {
    let mut case = Case::in_state(Rts);
    case.post_send(1);
    case.qp.abort(&mut case.world);
    assert_eq!((case.qp.state(), &case.world.completed[..]), (Err, &[(1, Status::Flushed)][..]));
    let mut case = Case::in_state(Reset);
    case.qp.abort(&mut case.world);
    assert_eq!(case.qp.state(), Reset);
}

#[test]
fn a_request_that_fails_ends_a_reliable_qp_and_the_send_queue_of_another() {
    for (service, state) in [(QpType::Rc, Err), (QpType::Uc, Sqe)] {
        let mut case = Case::of(service);
        case.world.memory = Result::Err(crate::LocalFault);
        case.world.post_receive(7, 1);
        case.post_send(1);
        case.post_send(2);
        case.transmit(POST, 9);
        assert_eq!(case.qp.state(), state);
        let sends = [(1, Status::LocalProtection), (2, Status::Flushed)];
        assert_eq!(case.world.completed[..2], sends);
        assert_eq!(case.world.receives.len(), usize::from(state == Sqe), "receives go on");
    }
}

#[test]
fn a_message_that_cannot_be_taken_ends_the_qp_after_its_nak() {
    let mut case = Case::in_state(Rts);
    case.world.post_receive(7, 1);
    case.comes(100, Body::Rc(Op::SendOnly(SendTail::Plain)), &[1, 2]);
    assert_eq!((case.qp.state(), &case.world.completed[..]), (Err, &[(7, Status::LocalLength)][..]));
    let (sent, _) = case.transmit(ALONE, 9);
    assert_eq!(sent.len(), 1, "which is sent in ERR");
}

#[test]
fn memory_that_goes_away_under_an_answer_ends_the_qp() {
    let mut case = Case::in_state(Rts);
    let read = Reth { va: 0x1000, rkey: Rkey(1), dma_len: 1 };
    case.comes(100, Body::Rc(Op::ReadRequest(read)), &[]);
    case.world.refuses = [crate::TransmitError::Remote(crate::RemoteFault::Access)].into();
    let (sent, stop) = case.transmit(ALONE, 9);
    assert_eq!((sent.len(), stop, case.qp.state()), (1, Stop::Idle, Err), "the NAK leaves at once");
}

#[test]
fn there_is_something_to_send_while_there_is_a_request_or_an_answer() {
    let mut case = Case::in_state(Rts);
    assert!(!case.qp.wants_transmit());
    case.post_send(1);
    assert!(case.qp.wants_transmit());
    case.transmit(ALONE, 9);
    assert!(!case.qp.wants_transmit());
    case.asked(100);
    assert!(case.qp.wants_transmit());
}

#[test]
fn the_next_timer_is_that_of_either_half() {
    let mut case = Case::in_state(Rts);
    assert_eq!(case.qp.poll_timeout(), None);
    case.post_send(1);
    case.transmit(ALONE, 9);
    let resend = case.qp.poll_timeout().expect("it waits for an ACK");
    case.asked(100);
    assert_eq!(case.transmit(POLL, 9), (vec![], Stop::DelayedAck));
    let delayed = case.qp.poll_timeout().expect("an ACK waits");
    assert!(delayed < resend);
    case.qp.on_timeout(delayed, &mut case.world);
    assert_eq!(case.qp.poll_timeout(), Some(resend));
    case.qp.on_timeout(resend, &mut case.world);
    assert_eq!(case.dropped(Counter::Timeout), 1);
}

#[test]
fn a_delayed_ack_leaves_with_a_request() {
    let mut case = Case::in_state(Rts);
    case.asked(100);
    assert_eq!(case.transmit(POLL, 9), (vec![], Stop::DelayedAck));
    case.post_send(1);
    assert_eq!(case.answers(POST, 9), (vec![true, false], Stop::Idle));
    assert!(case.qp.poll_timeout().expect("for the request") > case.now + MOMENT * 200);
}

#[test]
fn only_a_post_counts_as_a_reply_to_data_in_memory() {
    for (sender, replies) in [(POST, true), (THREAD, false)] {
        let mut case = Case::in_state(Rts);
        case.asked(100);
        assert_eq!(case.answers(THREAD, 9), (vec![true], Stop::Idle), "nothing is known yet");
        case.post_send(1);
        assert_eq!(case.answers(sender, 9).0, [false]);
        case.acked(100);
        case.asked(101);
        assert_eq!(case.answers(THREAD, 9).1 == Stop::DelayedAck, replies, "{sender:?}");
    }
}

#[test]
fn a_call_without_a_post_is_not_a_reply() {
    let mut case = Case::in_state(Rts);
    case.asked(100);
    assert_eq!(case.answers(THREAD, 9).0, [true]);
    assert_eq!(case.transmit(POST, 9), (vec![], Stop::Idle));
    case.asked(101);
    assert_eq!(case.answers(THREAD, 9), (vec![true], Stop::Idle));
}

#[test]
fn an_ack_that_leaves_with_a_notification_of_congestion_does_not_wait() {
    let mut case = Case::in_state(Rts);
    case.comes_with(true, 100, Body::Rc(Op::WriteOnly(NOWHERE, None)), &[]);
    let (sent, stop) = case.transmit(POLL, 9);
    assert_eq!((sent.len(), stop), (2, Stop::Idle));
    case.comes_with(true, 0, Body::Cnp, &[0; 16]);
    assert_eq!(case.dropped(Counter::EcnMarked), 1, "no notification of a notification");
    assert_eq!(case.dropped(Counter::CnpIgnored), 1);
}

#[test]
fn an_ack_shares_a_segmented_send_behind_the_requests() {
    let segments = Hints { segments: true, ..POST };
    for (hints, order) in [(segments, [false, true]), (POST, [true, false])] {
        let mut case = Case::in_state(Rts);
        case.asked(100);
        case.post_send(1);
        assert_eq!(case.answers(hints, 9), (order.into(), Stop::Idle));
    }
}

#[test]
fn a_send_is_published_before_the_ack_behind_it_but_a_write_is_not() {
    let segments = Hints { segments: true, ..POST };
    let send = SendOp::Send(SendTail::Plain);
    for (op, shown) in [(send, 1), (SendOp::Write { remote: REMOTE, imm: None }, 0)] {
        let mut case = Case::in_state(Rts);
        case.asked(100);
        case.post(1, op, 1);
        assert_eq!(case.answers(segments, 9), (vec![false, true], Stop::Idle));
        assert_eq!(case.world.shown, shown);
    }
}

#[test]
fn an_ack_follows_a_short_write_that_the_peer_polls_memory_for() {
    let mut case = Case::in_state(Rts);
    case.asked(100);
    case.post(1, SendOp::Write { remote: REMOTE, imm: None }, 1);
    assert_eq!(case.answers(POST, 9), (vec![false, true], Stop::Idle));
}

#[test]
fn an_ack_behind_the_requests_leaves_whatever_their_budget() {
    let segments = Hints { segments: true, ..POST };
    let mut case = Case::in_state(Rts);
    case.asked(100);
    case.post(1, SendOp::Send(SendTail::Plain), 5 * 1024);
    assert_eq!(case.answers(segments, 2), (vec![false, false, true], Stop::Budget));
    assert_eq!(case.answers(segments, 2), (vec![false, false], Stop::Budget));
}

#[test]
fn a_full_link_keeps_the_ack_behind_the_requests_for_later() {
    let segments = Hints { segments: true, ..POST };
    let full = crate::TransmitError::Full;
    let mut case = Case::in_state(Rts);
    case.asked(100);
    case.post_send(1);
    case.world.refuses = [full].into();
    assert_eq!(case.answers(segments, 9), (vec![], Stop::LinkFull), "nor does the ACK pass them");
    assert_eq!(case.answers(segments, 9).0, [false, true]);
    case.asked(101);
    case.post(2, SendOp::Send(SendTail::Plain), 2 * 1024);
    let progress = case.qp.poll_transmit(case.now, &mut case.world, segments, 1);
    assert_eq!((progress.sent, progress.stop), (2, Stop::Budget));
    let mut case = Case::in_state(Rts);
    case.asked(100);
    case.world.refuses = [full].into();
    assert_eq!(case.answers(segments, 9), (vec![], Stop::LinkFull), "with no request before it as well");
    assert_eq!(case.answers(segments, 9), (vec![true], Stop::Idle));
}

#[test]
fn a_link_that_takes_no_answer_gets_no_request_either() {
    let mut case = Case::in_state(Rts);
    case.asked(100);
    case.post_send(1);
    case.world.refuses = [crate::TransmitError::Full].into();
    assert_eq!(case.answers(POST, 9), (vec![], Stop::LinkFull));
    assert_eq!(case.answers(POST, 1), (vec![true], Stop::Budget));
    assert_eq!(case.answers(POST, 1), (vec![false], Stop::Budget));
}

#[test]
fn a_datagram_takes_its_own_path() {
    let mut case = Case::of(QpType::Ud);
    let path = crate::Path { tos: 9, ..case.qp.attr().path };
    let datagram = SendOp::Datagram { path, dest_qpn: Qpn::new(9), qkey: Qkey(1), imm: None };
    case.post(1, datagram, 1);
    case.transmit(ALONE, 9);
    assert_eq!(case.world.tos, 9);
}

#[test]
fn a_datagram_follows_the_mtu_of_the_port() {
    let mut case = Case::of(QpType::Ud);
    case.qp.set_ud_mtu(16);
    case.world.post_receive(1, 100);
    let datagram = Body::Ud { deth: Deth { qkey: Qkey(0), src_qpn: Qpn::new(9) }, imm: None };
    case.comes(0, datagram, &[7; 17]);
    assert_eq!(case.dropped(Counter::DropUdLength), 1);
}
