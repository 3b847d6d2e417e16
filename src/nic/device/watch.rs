//! Whether the progress thread watches the link.
//!
//! A thread that is woken for every datagram which a polling caller takes anyway costs that caller 1.3 to 1.8
//! times its latency. But nobody says when an application stops polling: it may go on to spin on memory that only
//! this thread will write. So the thread judges by what it finds when the link wakes it. What peers ask for: it is
//! needed here. Nothing, or only answers that a caller polls for, a few times in a row: it looks away for a while;
//! longer and longer as long as callers keep polling.
//!
//! Nor does the kernel let a thread return that it has woken for a datagram which is gone by then, although that
//! costs the caller as much. So the thread also looks away when nothing has come to it for as long as it looks away
//! at most, while callers polled. That a timer has woken it sooner says nothing.

use std::time::Duration;

use softrnic_wire::Time;

/// In vain this often in a row, and the thread looks away.
const PATIENCE: u32 = 4;
/// For how long at first, and at most.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(1);
/// Silence for this long, and it looks away as well.
const SILENCE: Duration = LONGEST;
/// Who has polled so recently is taken to go on. Longer, and one who has stopped and spins on memory waits for more
/// than one whole look away.
const RECENTLY: Duration = Duration::from_micros(100);

/// The thread's judgement.
pub(super) struct Watch {
    in_vain: u32,
    away_until: Option<Time>,
    away_for: Duration,
    silent_since: Option<Time>,
}

impl Watch {
    pub fn new() -> Watch {
        Watch { in_vain: 0, away_until: None, away_for: FIRST, silent_since: None }
    }

    /// Until when the thread looks away; `None` while it watches.
    pub fn away_until(&self) -> Option<Time> {
        self.away_until
    }

    /// The link woke the thread, which was needed.
    pub fn served(&mut self) {
        self.in_vain = 0;
        self.away_for = FIRST;
    }

    /// The link woke the thread in vain.
    pub fn in_vain(&mut self, now: Time) {
        self.in_vain += 1;
        if self.in_vain >= PATIENCE {
            self.look_away(now);
        }
    }

    /// The thread has watched, callers poll, and the link has not woken it.
    pub fn silent(&mut self, now: Time) {
        let since = *self.silent_since.get_or_insert(now);
        if now.since(since) >= SILENCE {
            self.look_away(now);
        }
    }

    /// The link has woken the thread, or nobody polls, or it has not watched.
    pub fn heard(&mut self) {
        self.silent_since = None;
    }

    /// Time has passed; `last_poll` is when an application was last seen to poll. Says whether the thread looks
    /// again because nobody polls any more.
    pub fn reconsider(&mut self, now: Time, last_poll: Time) -> bool {
        let Some(until) = self.away_until.filter(|until| *until <= now) else { return false };
        let polls = last_poll + RECENTLY >= until;
        if polls {
            self.away_for = (self.away_for * 2).min(LONGEST);
            self.away_until = Some(now + self.away_for);
        } else {
            self.watch();
        }
        !polls
    }

    /// The link is the thread's now.
    pub fn watch(&mut self) {
        *self = Watch::new();
    }

    fn look_away(&mut self, now: Time) {
        self.away_until = Some(now + self.away_for);
        self.silent_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn a_moment_of_silence_is_not_enough() {
        let mut watch = Watch::new();
        for micros in [50, 100, 1049] {
            watch.silent(at(micros));
            assert_eq!(watch.away_until(), None, "after {micros} us");
        }
        watch.silent(at(1050));
        assert_eq!(watch.away_until(), Some(at(1150)));
    }

    #[test]
    fn silence_begins_anew_after_the_link_has_woken_the_thread() {
        let mut watch = Watch::new();
        watch.silent(at(0));
        watch.heard();
        for micros in [1000, 1999] {
            watch.silent(at(micros));
            assert_eq!(watch.away_until(), None, "at {micros} us");
        }
        watch.silent(at(2000));
        assert_eq!(watch.away_until(), Some(at(2100)));
    }

    #[test]
    fn it_looks_away_for_longer_while_a_caller_polls_until_he_has_stopped() {
        let mut watch = Watch::new();
        (0..PATIENCE).for_each(|_| watch.in_vain(at(0)));
        let mut until = 100;
        for away in [200, 400, 800, 1000, 1000] {
            assert!(!watch.reconsider(at(until), at(until - 10)));
            until += away;
            assert_eq!(watch.away_until(), Some(at(until)));
        }
        assert!(watch.reconsider(at(until), at(until - 101)), "he has stopped");
        assert_eq!(watch.away_until(), None);
    }
}
