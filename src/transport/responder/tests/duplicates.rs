//! What a peer repeats is answered again, and not executed again (IBTA 9.7.5.1.1 to .4).

use super::*;

impl Case {
    /// The PSNs of the next `budget` packets that it answers with.
    fn answered(&mut self, budget: usize) -> Vec<u32> {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        assert_eq!(
            self.responder.transmit(&self.cx, START, None, &mut self.world, budget, &mut progress),
            CONTINUE
        );
        self.world.take_sent().into_iter().map(|(psn, _)| psn).collect()
    }

    /// READ requests that are new or repeated, of so many packets from 100 on.
    fn read(&mut self, packets: u32) {
        assert_eq!(self.request(100, Op::ReadRequest(reth(packets * MTU)), &[]), CONTINUE);
    }
}

#[test]
fn a_repeated_read_is_answered_with_data_and_not_with_an_ack() {
    let mut case = Case::new();
    case.read(2);
    let first = case.answers();
    case.read(2);
    assert_eq!(case.answers(), first);
    assert_eq!(case.world.count_of(Counter::DuplicateRequest), 1);
    assert_eq!(case.world.count_of(Counter::DuplicateReadCut), 0);
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 0);
}

#[test]
fn a_part_of_a_read_is_answered_from_there_on() {
    let mut case = Case::new();
    case.read(3);
    case.answers();
    let rest = Reth { va: 0x1000 + u64::from(MTU), ..reth(2 * MTU) };
    assert_eq!(case.request(101, Op::ReadRequest(rest), &[]), CONTINUE);
    assert_eq!(case.answered(9), [101, 102]);
}

#[test]
fn a_read_that_waits_for_its_answer_is_answered_once() {
    let mut case = Case::new();
    case.read(3);
    case.read(3);
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 1);
    assert_eq!(case.answered(9), [100, 101, 102]);
}

#[test]
fn an_answer_that_is_being_sent_begins_again_where_the_peer_asks() {
    let mut case = Case::new();
    case.read(3);
    assert_eq!(case.answered(2), [100, 101]);
    case.read(3);
    assert_eq!(case.answered(9), [100, 101, 102], "and there is no second one");
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 0);
}

#[test]
fn an_answer_does_not_restart_for_a_peer_without_progress() {
    let mut case = Case::new();
    case.read(3);
    for _ in 0..10 {
        assert_eq!(case.answered(2), [100, 101]);
        case.read(3);
    }
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 0);
    assert_eq!(case.answered(2), [100, 101]);
    case.read(3);
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 1, "of 21 packets of credit 20 are taken");
    assert_eq!(case.answered(9), [102], "it goes on where it is");
}

#[test]
fn a_read_that_is_repeated_without_end_is_cut_to_one_packet() {
    let mut case = Case::new();
    case.read(3);
    for _ in 0..8 {
        assert_eq!(case.answered(9), [100, 101, 102]);
        assert_eq!(case.world.count_of(Counter::DuplicateReadCut), 0);
        case.read(3);
    }
    assert_eq!(case.world.count_of(Counter::DuplicateReadCut), 1);
    assert_eq!(case.answered(9), [100]);
}

#[test]
fn a_repeated_atomic_waits_once() {
    let mut case = Case::new();
    assert_eq!(case.request(100, fetch_add(2), &[]), CONTINUE);
    case.answers();
    assert_eq!(case.request(100, fetch_add(2), &[]), CONTINUE);
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 0);
    assert_eq!(case.request(100, fetch_add(2), &[]), CONTINUE);
    assert_eq!(case.world.count_of(Counter::DropDuplicateWaiting), 1);
    assert_eq!(case.answered(9), [100]);
}
