//! What was seen of the processes of peers that do not answer. The engine only asks: looking takes system calls, so
//! whoever drives it takes the [questions](Processes::take_questions) and answers them without the NIC lock.

use std::net::IpAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;
use softrnic_link::ProcessSlot;
use softrnic_transport::PeerProcess;
use softrnic_wire::Time;

/// Where a peer's process is: an address, and the slot of it that is its own.
pub type ProcessAt = (IpAddr, ProcessSlot);

/// A question that has not been answered for this long counts as answered: nothing can be known.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Processes that are remembered.
const MOST: usize = 4096;

/// What was seen of the processes of peers, and what is asked about them.
#[derive(Default)]
pub struct Processes {
    /// Whether anybody answers.
    answered: bool,
    seen: FxHashMap<ProcessAt, Seen>,
    questions: Vec<ProcessAt>,
}

#[derive(Clone, Copy)]
struct Seen {
    stopped: bool,
    at: Time,
    /// When a look was asked for that has not been taken.
    asked: Option<Time>,
}

impl Processes {
    /// Questions are answered from now on.
    pub fn begin(&mut self) {
        self.answered = true;
    }

    /// What was seen of a process at `since` or later; asks if it was not looked at since.
    pub fn state(&mut self, now: Time, process: ProcessAt, since: Time) -> PeerProcess {
        if !self.answered {
            return PeerProcess::NotStopped;
        }
        let known = self.seen.get(&process).copied();
        match known {
            Some(Seen { asked: None, stopped, at }) if at >= since => {
                if stopped {
                    PeerProcess::Stopped
                } else {
                    PeerProcess::NotStopped
                }
            }
            Some(Seen { asked: Some(asked), .. }) if now.since(asked) < ANSWER_TIMEOUT => {
                PeerProcess::Awaited
            }
            Some(Seen { asked: Some(_), .. }) => PeerProcess::NotStopped,
            _ => self.ask(now, process, known),
        }
    }

    #[cold]
    fn ask(&mut self, now: Time, process: ProcessAt, known: Option<Seen>) -> PeerProcess {
        if self.seen.len() >= MOST {
            self.seen.retain(|_, seen| seen.stopped || seen.asked.is_some());
        }
        let no_room = self.seen.len() >= MOST || self.seen.try_reserve(1).is_err();
        if no_room || self.questions.try_reserve(1).is_err() {
            return PeerProcess::NotStopped;
        }
        let stopped = known.is_some_and(|seen| seen.stopped);
        self.seen.insert(process, Seen { stopped, at: Time::ZERO, asked: Some(now) });
        self.questions.push(process);
        PeerProcess::Awaited
    }

    /// Whether there is anything to look at.
    #[inline]
    pub fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// The processes to look at.
    pub fn take_questions(&mut self) -> Vec<ProcessAt> {
        std::mem::take(&mut self.questions)
    }

    /// A process was looked at.
    pub fn answer(&mut self, now: Time, process: ProcessAt, stopped: bool) {
        self.seen.insert(process, Seen { stopped, at: now, asked: None });
    }

    /// Whether a process was stopped when it was last looked at.
    pub fn is_stopped(&self, process: ProcessAt) -> bool {
        self.seen.get(&process).is_some_and(|seen| seen.stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PROCESS: ProcessAt = (IpAddr::V4(Ipv4Addr::LOCALHOST), ProcessSlot::of(softrnic_wire::Qpn::new(7)));
    const START: Time = Time::from_nanos(1_000_000_000);

    fn processes() -> Processes {
        let mut processes = Processes::default();
        processes.begin();
        processes
    }

    #[test]
    fn without_a_way_to_look_no_process_counts_as_stopped() {
        let mut processes = Processes::default();
        assert_eq!(processes.state(START, PROCESS, START), PeerProcess::NotStopped);
        assert!(!processes.has_questions());
    }

    #[test]
    fn a_process_is_asked_about_once_and_again_when_the_answer_is_old() {
        let mut processes = processes();
        for _ in 0..2 {
            assert_eq!(processes.state(START, PROCESS, START), PeerProcess::Awaited);
        }
        assert_eq!(processes.take_questions(), [PROCESS]);
        let seen = START + Duration::from_millis(1);
        processes.answer(seen, PROCESS, true);
        assert_eq!(processes.state(seen, PROCESS, START), PeerProcess::Stopped);
        assert!(!processes.has_questions(), "it is known");
        let later = seen + Duration::from_millis(1);
        assert_eq!(processes.state(later, PROCESS, later), PeerProcess::Awaited);
        assert!(processes.is_stopped(PROCESS), "as far as is known");
        processes.answer(later, PROCESS, false);
        assert_eq!(processes.state(later, PROCESS, later), PeerProcess::NotStopped);
    }

    #[test]
    fn a_missing_answer_is_not_awaited_forever() {
        let mut processes = processes();
        processes.state(START, PROCESS, START);
        let later = START + ANSWER_TIMEOUT;
        assert_eq!(processes.state(later, PROCESS, later), PeerProcess::NotStopped);
    }
}
