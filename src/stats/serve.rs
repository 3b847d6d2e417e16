//! Gives each of many clients one answer.
//!
//! Work is done in rounds. Each is limited in clients and in bytes, never waits for a client, and starts some time
//! after the one before. So however many clients come, and whatever they do, serving them takes a bounded share of the
//! processor and of memory. A client that makes no progress gives way to new ones.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use softrnic_wire::Time;

/// Limits of clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at the same time.
    pub clients: usize,
    /// Clients accepted in a round.
    pub accepted: usize,
    /// Bytes written in a round.
    pub bytes: usize,
    /// The longest request.
    pub request: usize,
    /// How long a client may take to send its request, and again to receive its answer.
    pub timeout: Duration,
    /// The time from one round to the next.
    pub pace: Duration,
}

/// The result of what a client has sent so far.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The request is incomplete.
    More,
    /// The answer is not ready yet.
    Later,
    /// Its answer.
    Say(Arc<[u8]>),
    /// The client gets no answer.
    Leave,
}

/// What a round did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Round {
    /// Clients accepted.
    pub accepted: usize,
    /// Clients that have received their whole answer.
    pub answered: usize,
    /// Clients that left without one, or were dropped.
    pub dropped: usize,
    /// Bytes written.
    pub written: usize,
}

/// A listening socket and its clients. `admits` says which clients are served at all, `hear` what the answer to a
/// request is.
pub struct Server<L, H> {
    listener: L,
    admits: fn(BorrowedFd<'_>) -> bool,
    clients: VecDeque<Client>,
    limits: Limits,
    hear: H,
    next_round: Time,
}

struct Client {
    socket: OwnedFd,
    request: Vec<u8>,
    /// What is left of the answer.
    answer: Option<(Arc<[u8]>, usize)>,
    /// It has sent its request, and waits for the answer.
    waits: bool,
    deadline: Time,
    /// When it last made progress.
    moved: Time,
}

/// What happens to a client next.
enum Next {
    Stays,
    Answered,
    Gone,
}

/// Requests are read in pieces of this size, a few per client and round.
const PIECE: usize = 1024;
const PIECES: usize = 4;

/// How long to leave a listener alone that fails for lack of descriptors or memory.
const REFUSED: Duration = Duration::from_millis(100);

impl<L: AsFd, H: FnMut(&[u8], Time) -> Answer> Server<L, H> {
    /// No client has come yet. The listener is non-blocking.
    pub fn new(listener: L, limits: Limits, admits: fn(BorrowedFd<'_>) -> bool, hear: H) -> Server<L, H> {
        Server { listener, admits, clients: VecDeque::new(), limits, hear, next_round: Time::ZERO }
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Waits until the next round may have something to do, `timeout` has passed, or `other` is readable or closed;
    /// returns whether it is the last.
    pub fn wait(&self, now: Time, timeout: Duration, other: BorrowedFd<'_>) -> bool {
        // Not by `sleep`, which a preloaded library may slow down.
        wait_for(&mut Vec::new(), self.next_round.since(now));
        let due = self.clients.iter().map(|client| client.deadline.since(now)).min();
        let mut fds = vec![PollFd::new(&other, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        for client in &self.clients {
            match (&client.answer, client.waits) {
                (Some(_), _) => fds.push(PollFd::new(&client.socket, PollFlags::OUT)),
                (None, false) => fds.push(PollFd::new(&client.socket, PollFlags::IN)),
                (None, true) => {}
            }
        }
        wait_for(&mut fds, due.unwrap_or(timeout).min(timeout))
    }

    /// Does what can be done now, within the limits; nothing before the next round is due.
    pub fn round(&mut self, now: Time) -> Round {
        let mut round = Round::default();
        if now < self.next_round {
            return round;
        }
        self.next_round = now + self.limits.pace;
        for _ in 0..self.clients.len() {
            let Some(client) = self.clients.pop_front() else { break };
            self.serve(client, now, &mut round);
        }
        while round.accepted < self.limits.accepted {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) if !(self.admits)(socket.as_fd()) => {
                    round.accepted += 1;
                    round.dropped += 1;
                }
                Ok(socket) => {
                    round.accepted += 1;
                    self.make_room(&mut round);
                    let deadline = now + self.limits.timeout;
                    let client = Client {
                        socket,
                        request: Vec::new(),
                        answer: None,
                        waits: false,
                        deadline,
                        moved: now,
                    };
                    self.serve(client, now, &mut round);
                }
                Err(Errno::AGAIN) => break,
                // The client left before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR) => round.accepted += 1,
                Err(_) => {
                    self.next_round = now + REFUSED;
                    break;
                }
            }
        }
        round
    }

    /// If there are as many clients as allowed, drops the one that has made no progress for longest.
    fn make_room(&mut self, round: &mut Round) {
        if self.clients.len() < self.limits.clients {
            return;
        }
        let idlest = self.clients.iter().enumerate().min_by_key(|(_, client)| client.moved);
        if let Some((place, _)) = idlest {
            self.clients.remove(place);
            round.dropped += 1;
        }
    }

    fn serve(&mut self, mut client: Client, now: Time, round: &mut Round) {
        if client.deadline <= now {
            round.dropped += 1;
            return;
        }
        let next = match self.listen_to(&mut client, now) {
            Next::Stays => self.tell(&mut client, now, round),
            gone => gone,
        };
        match next {
            Next::Stays => self.clients.push_back(client),
            Next::Answered => round.answered += 1,
            Next::Gone => round.dropped += 1,
        }
    }

    /// Reads until the request is complete.
    fn listen_to(&mut self, client: &mut Client, now: Time) -> Next {
        let mut ended = false;
        for _ in 0..PIECES {
            if client.answer.is_some() {
                return Next::Stays;
            }
            match (self.hear)(&client.request, now) {
                Answer::Say(answer) => {
                    client.answer = Some((answer, 0));
                    (client.deadline, client.moved) = (now + self.limits.timeout, now);
                    return Next::Stays;
                }
                Answer::Leave => return Next::Gone,
                Answer::Later => {
                    client.waits = true;
                    return Next::Stays;
                }
                Answer::More if ended => return Next::Gone,
                Answer::More => {}
            }
            let mut piece = [0; PIECE];
            let room = PIECE.min(self.limits.request.saturating_sub(client.request.len()));
            match recv(&client.socket, &mut piece[..room.max(1)], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => ended = true,
                Ok((_, len)) if len > room => return Next::Gone,
                Ok((_, len)) => {
                    client.request.extend_from_slice(&piece[..len]);
                    client.moved = now;
                }
                Err(Errno::AGAIN | Errno::INTR) => return Next::Stays,
                Err(_) => return Next::Gone,
            }
        }
        Next::Stays
    }

    /// Writes more of the answer.
    fn tell(&self, client: &mut Client, now: Time, round: &mut Round) -> Next {
        let Some((answer, done)) = &mut client.answer else { return Next::Stays };
        while *done < answer.len() {
            let part = &answer[*done..];
            let part = &part[..part.len().min(self.limits.bytes - round.written)];
            if part.is_empty() {
                return Next::Stays;
            }
            match send(&client.socket, part, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) => {
                    *done += len;
                    round.written += len;
                    client.moved = now;
                }
                Err(Errno::AGAIN | Errno::INTR) => return Next::Stays,
                Err(_) => return Next::Gone,
            }
        }
        Next::Answered
    }
}

/// Waits for any of `fds`; returns whether it is the first.
fn wait_for(fds: &mut [PollFd<'_>], timeout: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let ready = poll(fds, Some(&timeout));
    ready.is_ok_and(|ready| ready > 0) && fds.first().is_some_and(|fd| !fd.revents().is_empty())
}

#[cfg(test)]
mod tests;
