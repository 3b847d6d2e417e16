//! Whether the progress thread watches the link.
//!
//! A thread that is woken for every datagram which a polling caller takes anyway costs that caller 1.3 to 1.8
//! times its latency. But nobody says when an application stops polling: it may go on to spin on memory that only
//! this thread will write. So the thread judges by what it finds when the link wakes it. What peers ask for: it is
//! needed here. Nothing, or only answers that a caller polls for, a few times in a row: it looks away for a while;
//! longer and longer as long as callers keep polling.
//! Nor does the kernel let a thread return that it has woken for a datagram which is gone by then: then nothing for as
//! long as the thread looks away at most says the same.

use std::time::Duration;

use softrnic_wire::Time;

/// In vain this often in a row, and the thread looks away.
const PATIENCE: u32 = 4;
/// For how long at first, and at most.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(1);

/// The thread's judgement.
pub(super) struct Watch {
    in_vain: u32,
    away_until: Option<Time>,
    away_for: Duration,
}

impl Watch {
    pub fn new() -> Watch {
        Watch { in_vain: 0, away_until: None, away_for: FIRST }
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

    /// Callers have polled all the while and left nothing for the thread.
    pub fn look_away(&mut self, now: Time) {
        self.away_until = Some(now + self.away_for);
    }

    /// Time has passed; `last_poll` is when an application was last seen to poll. Says whether the thread looks again because
    /// nobody polls any more.
    pub fn reconsider(&mut self, now: Time, last_poll: Time) -> bool {
        let Some(until) = self.away_until.filter(|until| *until <= now) else { return false };
        let polls = last_poll + self.away_for >= until;
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
}
