//! How answers leave.

use super::*;

impl Case {
    /// Lets it answer with at most `budget` packets.
    fn transmit(&mut self, budget: usize) -> (usize, Stop, Outcome) {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        let outcome = self.responder.transmit(&self.cx, START, None, &mut self.world, budget, &mut progress);
        (progress.sent, progress.stop, outcome)
    }
}

#[test]
fn the_budget_is_used_up_and_not_exceeded() {
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::ReadRequest(reth(3 * MTU)), &[]), CONTINUE);
    assert_eq!(case.transmit(0), (0, Stop::Budget, CONTINUE));
    assert_eq!(case.transmit(2), (2, Stop::Budget, CONTINUE));
    assert_eq!(case.transmit(2), (1, Stop::Idle, CONTINUE));
    assert_eq!(case.transmit(2), (0, Stop::Idle, CONTINUE));
}

#[test]
fn a_read_is_answered_with_the_bytes_that_it_names() {
    let mtu = MTU as usize;
    for (length, ranges) in [
        (0, vec![]),
        (1, vec![(0x1000, 1)]),
        (MTU, vec![(0x1000, mtu)]),
        (2 * MTU + 3, vec![(0x1000, mtu), (0x1000 + 256, mtu), (0x1000 + 512, 3)]),
    ] {
        let mut case = Case::new();
        assert_eq!(case.request(100, Op::ReadRequest(reth(length)), &[]), CONTINUE);
        let answers = case.answers();
        assert_eq!(answers.len(), ranges.len().max(1), "{length} bytes");
        assert_eq!(case.world.read, ranges);
    }
}

#[test]
fn an_answer_is_padded_to_whole_words() {
    for (length, pad) in [(4, 0), (5, 3), (6, 2), (7, 1)] {
        let mut case = Case::new();
        assert_eq!(case.request(100, Op::ReadRequest(reth(length)), &[]), CONTINUE);
        let _ = case.transmit(1);
        assert_eq!(case.world.sent[0].bth.pad.len(), pad, "{length} bytes");
    }
}

#[test]
fn a_read_whose_memory_goes_away_midway_is_refused_there() {
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::ReadRequest(reth(3 * MTU)), &[]), CONTINUE);
    assert_eq!(case.request(103, write(0), &[]), CONTINUE);
    assert_eq!(case.transmit(2).0, 2);
    case.world.take_sent();
    case.world.refuses = [TransmitError::Remote(RemoteFault::Unmapped)].into();
    assert_eq!(case.transmit(9).2, Outcome::Fatal(Reason::RemoteMemory));
    assert_eq!(case.syndromes(), [(102, Syndrome::Nak(NakCode::RemoteAccess))], "and nothing behind it");
}

#[test]
fn a_repeated_read_that_cannot_be_answered_any_more_is_dropped() {
    // Error class D, IBTA 9.9.3.
    let mut case = Case::new();
    assert_eq!(case.request(100, Op::ReadRequest(reth(1)), &[]), CONTINUE);
    case.answers();
    assert_eq!(case.request(100, Op::ReadRequest(reth(1)), &[]), CONTINUE);
    case.world.refuses = [TransmitError::Remote(RemoteFault::Access)].into();
    assert_eq!(case.transmit(9), (0, Stop::Idle, CONTINUE));
    assert_eq!(case.world.count_of(Counter::DropDuplicateUnmatched), 1);
}

#[test]
fn an_answer_that_can_never_leave_holds_up_no_other() {
    for error in [TransmitError::TooLong, TransmitError::Local(LocalFault)] {
        let mut case = Case::new();
        assert_eq!(case.request(100, Op::ReadRequest(reth(1)), &[]), CONTINUE);
        assert_eq!(case.request(101, write(0), &[]), CONTINUE);
        case.world.refuses = [error].into();
        assert!(case.is_acked(101));
    }
}

#[test]
fn a_request_that_finds_too_many_answers_waiting_is_dropped() {
    let mut case = Case::new();
    let mut psn = 100;
    while case.world.count_of(Counter::DropBusy) == 0 {
        let atomic_write = Op::AtomicWrite(reth(8));
        assert_eq!(case.request(psn, atomic_write, &[0; 8]), CONTINUE);
        psn += 1;
        assert!(psn < 100 + 2048);
    }
    assert_eq!(case.responder.epsn, Psn::new(psn - 1), "it is not executed, and the peer will ask again");
}

#[test]
fn a_cnp_leaves_first_and_with_its_own_marks() {
    let mut case = Case::new();
    let mut progress = Progress { sent: 0, stop: Stop::Idle };
    case.responder.note_congestion(&case.cx, START, 0xC000, &mut case.world);
    case.responder.transmit_cnp(&case.cx, &mut case.world, &mut progress);
    let bth = case.world.sent[0].bth;
    assert_eq!((bth.becn, bth.mig_req, bth.dest_qpn), (true, false, case.cx.attr.dest_qpn));
    assert_eq!(case.world.tos >> 2, 48);
    assert_eq!(case.world.count_of(Counter::CnpSent), 1);
}

#[test]
fn no_cnp_leaves_for_a_datagram_or_from_a_qp_that_receives_nothing() {
    for (service, state) in [(QpType::Ud, QpState::Rts), (QpType::Rc, QpState::Err)] {
        let mut case = Case::new();
        (case.cx.service, case.cx.state) = (service, state);
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        case.responder.note_congestion(&case.cx, START, 0xC000, &mut case.world);
        case.responder.transmit_cnp(&case.cx, &mut case.world, &mut progress);
        assert_eq!((progress.sent, case.world.sent.len()), (0, 0));
        assert_eq!(case.world.count_of(Counter::EcnMarked), 1);
        assert!(!case.responder.wants_transmit());
    }
}
