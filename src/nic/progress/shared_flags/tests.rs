//! One thread after the other; what happens at once is in `loom_tests.rs`.

use super::*;
use crate::progress::tuning::TICK;

const NOW: Time = Time::from_nanos(1_000_000_000);

fn asleep(watch_link: bool, wake_at: Time) -> Words {
    let words = Words::new();
    words.sleep(Plan { watch_link, wake_at, spin_until: Time::ZERO, rings_caller: false }, NOW);
    words
}

#[test]
fn the_first_gathered_post_kicks_and_the_next_after_a_drain() {
    // Asleep, and awake.
    for words in [asleep(true, Time::NEVER), Words::new()] {
        assert!(words.gather());
        assert!(!words.gather(), "somebody is coming");
        words.before_drain();
        words.before_drain();
        assert!(words.gather());
    }
}

#[test]
fn gathered_posts_wait_for_a_thread_that_ticks() {
    let words = asleep(false, NOW + TICK);
    assert!(!words.gather());
    let words = asleep(false, NOW + 2 * TICK);
    assert!(words.gather());
}

#[test]
fn an_awake_thread_is_kicked_for_gathered_posts() {
    // It may be past its look at the doorbells.
    let words = asleep(true, NOW);
    assert!(!words.wake());
    assert!(words.gather());
}

#[test]
fn a_link_that_the_thread_does_not_watch_is_handed_over_with_a_kick() {
    assert!(!asleep(true, NOW).hand_over());
    assert!(!asleep(true, Time::NEVER).hand_over());
    assert!(asleep(false, NOW).hand_over());
    let words = asleep(true, NOW);
    assert!(!words.gather());
    assert!(words.hand_over(), "what was gathered should not wait for a tick");
}

#[test]
fn a_thread_that_peers_do_not_wake_is_kicked_when_a_caller_hands_over() {
    let words = asleep(true, Time::NEVER);
    words.unwatch();
    assert!(words.hand_over(), "a caller has taken the bell meanwhile");
    let words = Words::new();
    let plan = Plan { watch_link: true, wake_at: NOW, spin_until: Time::ZERO, rings_caller: true };
    words.sleep(plan, NOW);
    assert!(words.hand_over(), "a caller had it before");
}

#[test]
fn the_next_turn_hears_of_a_handed_over_link_once() {
    let words = asleep(true, Time::NEVER);
    assert!(!words.wake());
    let _ = words.hand_over();
    assert!(words.wake());
    assert!(!words.wake());
    assert!(words.hand_over(), "it is awake, and does not watch");
}

#[test]
fn waking_takes_nothing_else_away() {
    let words = asleep(true, NOW);
    let _ = words.gather();
    words.message_came();
    words.set_spins(true);
    words.stop();
    let _ = words.wake();
    assert!(!words.gather() && words.answers() && words.spins() && words.is_stopping());
}

#[test]
fn each_mark_stands_for_itself() {
    type Mark = (fn(&Words), fn(&Words) -> bool);
    let marks: [Mark; 6] = [
        (Words::stop, Words::is_stopping),
        (Words::message_came, Words::answers),
        (|words| words.set_spins(true), Words::spins),
        (|words| words.set_serves(true), Words::serves),
        (|words| words.set_wanted(true), Words::is_wanted),
        (|words| _ = words.hand_over(), Words::wake),
    ];
    for (at, (set, _)) in marks.iter().enumerate() {
        for (of, (_, is_set)) in marks.iter().enumerate() {
            let words = Words::new();
            assert!(!is_set(&words));
            set(&words);
            assert_eq!(is_set(&words), at == of, "mark {of} after mark {at}");
        }
    }
}

#[test]
fn a_drain_takes_the_mark_of_gathered_posts_alone() {
    let words = Words::new();
    let _ = words.hand_over();
    words.message_came();
    words.set_spins(true);
    words.stop();
    words.before_drain();
    assert!(words.gather(), "none was there");
    words.before_drain();
    assert!(words.spins() && words.is_stopping() && words.answers() && words.wake());
}

#[test]
fn the_first_post_after_messages_answers_them() {
    let words = Words::new();
    words.message_came();
    words.message_came();
    words.set_spins(true);
    assert!(words.answers());
    assert!(!words.answers());
    assert!(words.spins());
}

#[test]
fn spinning_is_said_and_taken_back() {
    let words = Words::new();
    words.message_came();
    for spins in [true, true, false, false, true] {
        words.set_spins(spins);
        assert_eq!(words.spins(), spins);
    }
    words.set_spins(false);
    assert!(words.answers());
}

#[test]
fn times_and_counts_have_their_last_value() {
    let words = Words::default();
    words.polled(NOW);
    words.serviced(NOW + TICK);
    words.set_vain_since(7);
    words.count_wakeup();
    words.count_wakeup();
    assert_eq!((words.last_poll(), words.next_service()), (NOW, NOW + TICK));
    assert_eq!((words.vain_since(), words.wakeups()), (7, 2));
}
