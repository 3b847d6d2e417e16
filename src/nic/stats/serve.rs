//! Gives each of a crowd of clients one answer.
//!
//! Work is done in rounds. Each is bounded in clients and in bytes, none waits for anybody, and they keep a distance:
//! so however many come, and whatever they do, serving them takes a bounded share of the processor and of memory.
//! Who makes no progress gives way to those who come.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use softrnic_wire::Time;

/// What a client can have.
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
    /// How long a client may take to ask, and again to take its answer.
    pub timeout: Duration,
    /// The time from one round to the next.
    pub pace: Duration,
}

/// What comes of what a client has said so far.
#[derive(Clone, Debug)]
pub enum Heard {
    /// It has not finished.
    More,
    /// The answer is not there yet.
    Later,
    /// Its answer.
    Say(Arc<[u8]>),
    /// It gets none.
    Leave,
}

/// What a round did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Round {
    /// Clients that came.
    pub accepted: usize,
    /// Clients that have their whole answer.
    pub answered: usize,
    /// Clients that went without one, or were sent away.
    pub dropped: usize,
    /// Bytes written.
    pub written: usize,
}

/// A listening socket and its clients. `admits` says who is served at all, `hear` what comes of a request.
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
    /// Has asked, and waits for the answer.
    waits: bool,
    deadline: Time,
    /// When it last made progress.
    moved: Time,
}

/// How one goes on.
enum Next {
    Stays,
    Answered,
    Gone,
}

/// Requests are read in pieces of this size, a few for each client and round.
const PIECE: usize = 1024;
const PIECES: usize = 4;

/// How long to leave a listener alone that refuses for want of descriptors or memory.
const REFUSED: Duration = Duration::from_millis(100);

impl<L: AsFd, H: FnMut(&[u8], Time) -> Heard> Server<L, H> {
    /// Nobody has come yet. The listener is non-blocking.
    pub fn new(listener: L, limits: Limits, admits: fn(BorrowedFd<'_>) -> bool, hear: H) -> Server<L, H> {
        Server { listener, admits, clients: VecDeque::new(), limits, hear, next_round: Time::ZERO }
    }

    /// How many clients are there.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Waits until the next round may have something to do, or `timeout` is over, or `other` is readable or closed;
    /// the last is what it returns.
    pub fn wait(&self, now: Time, timeout: Duration, other: BorrowedFd<'_>) -> bool {
        std::thread::sleep(self.next_round.since(now));
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

    /// Does what can be done now, within the limits; nothing before the time of the next round.
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
                // It went away before it was its turn.
                Err(Errno::CONNABORTED | Errno::INTR) => round.accepted += 1,
                Err(_) => {
                    self.next_round = now + REFUSED;
                    break;
                }
            }
        }
        round
    }

    /// Sends away who has made no progress for longest, if there are as many as there may be.
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

    /// Reads on until the request is whole.
    fn listen_to(&mut self, client: &mut Client, now: Time) -> Next {
        let mut ended = false;
        for _ in 0..PIECES {
            if client.answer.is_some() {
                return Next::Stays;
            }
            match (self.hear)(&client.request, now) {
                Heard::Say(answer) => {
                    client.answer = Some((answer, 0));
                    (client.deadline, client.moved) = (now + self.limits.timeout, now);
                    return Next::Stays;
                }
                Heard::Leave => return Next::Gone,
                Heard::Later => {
                    client.waits = true;
                    return Next::Stays;
                }
                Heard::More if ended => return Next::Gone,
                Heard::More => {}
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

    /// Writes on.
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

/// Waits for any of `fds`; whether it is the first.
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
