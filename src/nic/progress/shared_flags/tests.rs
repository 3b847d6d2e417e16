//! One thread after the other; what happens at once is in `loom_tests.rs`.

use super::*;
use crate::progress::tuning::TICK;

const NOW: Time = Time::from_nanos(1_000_000_000);

fn asleep(watch_link: bool, wake_at: Time) -> SharedFlags {
    let flags = SharedFlags::new();
    flags.sleep(Plan { watch_link, wake_at, spin_until: Time::ZERO, rings_caller: false }, NOW);
    flags
}

#[test]
fn the_first_gathered_post_kicks_and_the_next_after_a_drain() {
    // Asleep, and awake.
    for flags in [asleep(true, Time::NEVER), SharedFlags::new()] {
        assert!(flags.gather());
        assert!(!flags.gather(), "somebody is coming");
        flags.before_drain();
        flags.before_drain();
        assert!(flags.gather());
    }
}

#[test]
fn gathered_posts_wait_for_a_thread_that_ticks() {
    let flags = asleep(false, NOW + TICK);
    assert!(!flags.gather());
    let flags = asleep(false, NOW + 2 * TICK);
    assert!(flags.gather());
}

#[test]
fn an_awake_thread_is_kicked_for_gathered_posts() {
    // It may be past its look at the doorbells.
    let flags = asleep(true, NOW);
    assert!(!flags.wake());
    assert!(flags.gather());
}

#[test]
fn a_link_that_the_thread_does_not_watch_is_handed_over_with_a_kick() {
    assert!(!asleep(true, NOW).hand_over());
    assert!(!asleep(true, Time::NEVER).hand_over());
    assert!(asleep(false, NOW).hand_over());
    let flags = asleep(true, NOW);
    assert!(!flags.gather());
    assert!(flags.hand_over(), "what was gathered should not wait for a tick");
}

#[test]
fn a_thread_that_peers_do_not_wake_is_kicked_when_a_caller_hands_over() {
    let flags = asleep(true, Time::NEVER);
    flags.unwatch();
    assert!(flags.hand_over(), "a caller has taken the bell meanwhile");
    let flags = SharedFlags::new();
    let plan = Plan { watch_link: true, wake_at: NOW, spin_until: Time::ZERO, rings_caller: true };
    flags.sleep(plan, NOW);
    assert!(flags.hand_over(), "a caller had it before");
}

#[test]
fn the_next_turn_hears_of_a_handed_over_link_once() {
    let flags = asleep(true, Time::NEVER);
    assert!(!flags.wake());
    let _ = flags.hand_over();
    assert!(flags.wake());
    assert!(!flags.wake());
    assert!(flags.hand_over(), "it is awake, and does not watch");
}

#[test]
fn waking_takes_nothing_else_away() {
    let flags = asleep(true, NOW);
    let _ = flags.gather();
    flags.message_came();
    flags.set_spins(true);
    flags.stop();
    let _ = flags.wake();
    assert!(!flags.gather() && flags.answers() && flags.spins() && flags.is_stopping());
}

#[test]
fn each_mark_stands_for_itself() {
    type Mark = (fn(&SharedFlags), fn(&SharedFlags) -> bool);
    let marks: [Mark; 6] = [
        (SharedFlags::stop, SharedFlags::is_stopping),
        (SharedFlags::message_came, SharedFlags::answers),
        (|flags| flags.set_spins(true), SharedFlags::spins),
        (|flags| flags.set_serves(true), SharedFlags::serves),
        (|flags| flags.set_wanted(true), SharedFlags::is_wanted),
        (|flags| _ = flags.hand_over(), SharedFlags::wake),
    ];
    for (at, (set, _)) in marks.iter().enumerate() {
        for (of, (_, is_set)) in marks.iter().enumerate() {
            let flags = SharedFlags::new();
            assert!(!is_set(&flags));
            set(&flags);
            assert_eq!(is_set(&flags), at == of, "mark {of} after mark {at}");
        }
    }
}

#[test]
fn a_drain_takes_the_mark_of_gathered_posts_alone() {
    let flags = SharedFlags::new();
    let _ = flags.hand_over();
    flags.message_came();
    flags.set_spins(true);
    flags.stop();
    flags.before_drain();
    assert!(flags.gather(), "none was there");
    flags.before_drain();
    assert!(flags.spins() && flags.is_stopping() && flags.answers() && flags.wake());
}

#[test]
fn the_first_post_after_messages_answers_them() {
    let flags = SharedFlags::new();
    flags.message_came();
    flags.message_came();
    flags.set_spins(true);
    assert!(flags.answers());
    assert!(!flags.answers());
    assert!(flags.spins());
}

#[test]
fn spinning_is_said_and_taken_back() {
    let flags = SharedFlags::new();
    flags.message_came();
    for spins in [true, true, false, false, true] {
        flags.set_spins(spins);
        assert_eq!(flags.spins(), spins);
    }
    flags.set_spins(false);
    assert!(flags.answers());
}

#[test]
fn times_and_counts_have_their_last_value() {
    let flags = SharedFlags::default();
    flags.polled(NOW);
    flags.serviced(NOW + TICK);
    flags.set_vain_since(7);
    flags.count_wakeup();
    flags.count_wakeup();
    assert_eq!((flags.last_poll(), flags.next_service()), (NOW, NOW + TICK));
    assert_eq!((flags.vain_since(), flags.wakeups()), (7, 2));
}
