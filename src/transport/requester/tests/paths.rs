//! Which path a packet takes, and when the peer is asked whether it takes packets from many.

use super::*;
use crate::tuning::{BUSY_BYTES, LOSSES_TO_LEAVE};

fn spreading() -> Case {
    let mut case = Case::new();
    case.cx.selective = true;
    case.cx.config.paths = 4;
    case
}

impl Case {
    fn spread(&mut self) -> bool {
        self.requester.spread(&self.cx, self.now)
    }

    /// The paths of what it sends now.
    fn paths(&mut self) -> Vec<u16> {
        self.world.ports.clear();
        self.transmit();
        let base = self.cx.attr.path.sport;
        self.world.ports.drain(..).map(|port| port ^ base).collect()
    }
}

#[test]
fn packets_take_turns_when_the_peer_has_agreed() {
    let mut case = spreading();
    case.post_send(1, 2);
    assert_eq!(case.paths(), [0, 0]);
    assert!(case.spread());
    assert!(!case.spread(), "it has been said");
    case.post_send(2, 5);
    assert_eq!(case.paths(), [1, 2, 3, 1, 2], "two are under way on the first");
}

#[test]
fn requests_with_responses_take_the_next_path_in_turn_whatever_is_under_way() {
    let mut case = spreading();
    case.spread();
    case.post_send(1, 5);
    assert_eq!(case.paths(), [0, 1, 2, 3, 0]);
    case.post_send(2, 3);
    assert_eq!(case.paths(), [1, 2, 3]);
    assert_eq!(case.ack(104), DONE);
    // Nothing is under way on the first.
    for (id, path) in [(3, 0), (4, 1)] {
        case.post_read(id, 1);
        assert_eq!(case.paths(), [path]);
    }
}

#[test]
fn what_was_under_way_before_the_peer_agreed_tells_of_silence_too() {
    let mut case = spreading();
    case.post_send(1, 2);
    assert_eq!(case.paths(), [0, 0]);
    case.spread();
    case.post_send(2, 1);
    assert_eq!(case.paths(), [1]);
    let later = case.now + MOMENT;
    case.requester.note_arrived_by(later, Psn::new(101), 0, &mut case.world);
    let paths = case.requester.paths.as_mut().expect("it spreads");
    assert_eq!(paths.take_silent(later, 0).collect::<Vec<_>>(), [1]);
}

/// What asks whether anything comes at all must not wait for what is under way.
#[test]
fn questions_take_the_next_path_in_turn() {
    let mut case = spreading();
    case.spread();
    case.post_send(1, 8);
    assert_eq!(case.paths(), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(case.ack(104), DONE);
    case.post_read(2, 1);
    assert_eq!(case.paths(), [0]);
    // One packet is under way on each path but the first, whose turn has just been.
    case.post_send(3, 1);
    let chosen = |case: &mut Case| {
        let Requester { queue, .. } = &case.requester;
        let (at, from) = (queue.at, queue.end);
        case.requester.choose_path(case.now, at, from)
    };
    assert_eq!(chosen(&mut case), 0);
    case.requester.loss_probe = true;
    assert_eq!(chosen(&mut case), 1);
    case.requester.loss_probe = false;
    case.requester.standing = Standing::Silent;
    assert_eq!(chosen(&mut case), 1);
}

#[test]
fn a_path_is_left_for_what_is_lost_and_not_for_questions() {
    for (is_probe, left) in [(true, 0), (false, 1)] {
        let mut case = spreading();
        case.spread();
        case.post_send(1, 4);
        assert_eq!(case.paths(), [0, 1, 2, 3]);
        for _ in 0..LOSSES_TO_LEAVE {
            let first = Psn::new(100);
            case.requester.note_sent_again(&case.cx, case.now, first, is_probe, &mut case.world);
        }
        assert_eq!(case.world.count_of(Counter::PathLeft), left);
    }
}

/// How often the peer was to be asked after so many round trips with so much under way behind them.
fn asked(mut case: Case, packets: u32, round_trips: u32) -> usize {
    for number in 0..round_trips {
        case.post_send(u64::from(2 * number), 1);
        case.post_send(u64::from(2 * number + 1), packets);
        case.transmit();
        let first = 100 + number * (packets + 1);
        case.now += MOMENT;
        assert_eq!(case.ack(first), DONE);
        assert_eq!(case.ack(first + packets), DONE);
        case.completed();
    }
    case.world.asked_for_paths
}

#[test]
fn the_peer_is_asked_when_much_is_under_way_and_less_and_less_often() {
    let busy = BUSY_BYTES as u32 / MTU;
    assert_eq!(
        [1, 2, 3, 4, 7, 8].map(|round_trips| asked(spreading(), busy, round_trips)),
        [1, 2, 2, 3, 3, 4]
    );
    assert_eq!(asked(spreading(), busy / 2, 8), 0, "too little");
    let mut case = spreading();
    case.cx.config.paths = 1;
    assert_eq!(asked(case, busy, 8), 0, "it has one path");
    let mut case = spreading();
    case.spread();
    assert_eq!(asked(case, busy, 8), 0, "the peer has agreed");
}

#[test]
fn a_count_of_busy_round_trips_ends() {
    let mut case = spreading();
    case.requester.busy_round_trips = u16::MAX - 1;
    assert_eq!(asked(case, BUSY_BYTES as u32 / MTU, 3), 0, "65,535 is no power of two");
}

/// While other paths are tried, the next question comes as soon as the one before.
#[test]
fn questions_about_silence_become_rare_only_after_many_where_there_are_many_paths() {
    let doublings = |mut case: Case| {
        [0, 1, 127, 128, 129, 130, 135, 136, 200].map(|asked| {
            case.requester.early_resends = asked;
            case.requester.doublings()
        })
    };
    let mut many = spreading();
    many.spread();
    assert_eq!(doublings(many), [0, 0, 0, 0, 1, 2, 7, 7, 7]);
    assert_eq!(doublings(spreading()), [0, 1, 127, 128, 129, 130, 135, 136, 200]);
}
