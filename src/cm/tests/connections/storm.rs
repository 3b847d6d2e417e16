//! A storm: many connections at once over a bad network, with ends that restart. In the end both ends agree on how each
//! connection ended, or know that they do not, and nothing is left. It is let loose on connection managers alone
//! (`managers.rs`), and on whole NICs (`tests/sim/connections.rs`).

use std::time::Duration;

use softrnic_cm::{Cm, CommId, Event, Request, State};
use softrnic_link::Rng;
use softrnic_wire::{Qpn, RejReason, Time};

use super::ledger::{ACTIVE, Fate, Ledger, PASSIVE};

/// What is between two ends: probabilities of the network, and the longest that a packet is late.
pub const LOSS: f64 = 0.15;
pub const DOUBLE: f64 = 0.1;
pub const REORDER: f64 = 0.2;
pub const LATE: Duration = Duration::from_millis(30);
pub const DELAY: Duration = Duration::from_micros(100);
/// How many requests the passive end holds.
pub const BACKLOG: usize = 16;

/// What happens at one of the ends.
pub enum Happening {
    /// The connection manager says something.
    Event(Event),
    /// A connection has done what it was for.
    Used(CommId),
}

/// Two ends with such a network between them.
pub trait Ends {
    fn now(&self) -> Time;
    /// Goes on until something happens, but not beyond `until`. False if nothing is due before that.
    fn step(&mut self, until: Time) -> bool;
    /// What has happened at an end.
    fn take(&mut self, end: usize) -> Vec<Happening>;
    fn cm(&mut self, end: usize) -> &mut Cm;
    /// The active end asks for a connection, for this QP.
    fn connect(&mut self) -> (CommId, Qpn);
    /// The passive end accepts a request.
    fn accept(&mut self, request: &Request);
    /// The active end is ready to use a connection that was accepted.
    fn prepare(&mut self, _id: CommId) {}
    /// An end uses a connection from now on.
    fn established(&mut self, end: usize, id: CommId);
    /// A connection is over.
    fn ended(&mut self, _end: usize, _id: CommId) {}
    /// The end's process is killed, and another one takes its place.
    fn restart(&mut self, end: usize);
    /// Nothing is left of any connection.
    fn check_empty(&mut self, end: usize);
}

pub struct Storm<E> {
    pub ends: E,
    rng: Rng,
    ledger: Ledger,
}

impl<E: Ends> Storm<E> {
    pub fn new(ends: E, seed: u64) -> Storm<E> {
        Storm { ends, rng: Rng::new(seed), ledger: Ledger::default() }
    }

    /// Forty connections at once. Returns how often one ended well, counted at each end.
    pub fn blow(&mut self) -> usize {
        for _ in 0..40 {
            self.connect();
            self.run(Duration::from_micros(100));
        }
        self.run(Duration::from_secs(5));
        self.finish();
        self.ledger.count_ended()
    }

    /// Eight connections at a time, and then one end or the other restarts.
    pub fn blow_with_restarts(&mut self) {
        for round in 0..6 {
            for _ in 0..8 {
                self.connect();
                self.run(Duration::from_millis(20));
            }
            self.run(Duration::from_secs(1));
            self.ends.restart(round % 2);
            self.ledger.restarted(round % 2);
        }
        self.finish();
    }

    fn connect(&mut self) {
        let (id, qpn) = self.ends.connect();
        self.ledger.asked(ACTIVE, id, qpn);
    }

    fn run(&mut self, time: Duration) {
        let until = self.ends.now() + time;
        loop {
            let next_plan = self.ledger.next_plan().map_or(until, |at| at.min(until));
            let more = self.ends.step(next_plan);
            let happened = self.react();
            self.disconnect_due();
            if !more && !happened && self.ends.now() >= until {
                return;
            }
        }
    }

    /// Returns whether anything has happened.
    fn react(&mut self) -> bool {
        let mut any = false;
        for end in [ACTIVE, PASSIVE] {
            for happening in self.ends.take(end) {
                any = true;
                match happening {
                    Happening::Event(event) => self.handle(end, event),
                    Happening::Used(id) => self.plan_end(end, id),
                }
            }
        }
        any
    }

    fn handle(&mut self, end: usize, event: Event) {
        let now = self.ends.now();
        match event {
            Event::Request(request) => {
                self.ledger.asked(end, request.id, request.qpn);
                if self.rng.chance(0.2) {
                    let reason = RejReason::CONSUMER_DEFINED;
                    self.ends.cm(end).reject(request.id, reason, &[], b"no").expect("rejects");
                    self.ended(end, request.id, Fate::Refused);
                } else {
                    self.ends.accept(&request);
                }
            }
            Event::Reply(reply) => {
                self.ends.prepare(reply.id);
                self.ends.cm(end).establish(reply.id, &[]).expect("confirms");
                self.established(end, reply.id);
            }
            Event::Established(id, _) => self.established(end, id),
            Event::Rejected { id, .. } => self.ended(end, id, Fate::Refused),
            Event::Unreachable(id) => self.ended(end, id, Fate::Unreachable),
            Event::Disconnected { id, timed_out, .. } => {
                if !timed_out && self.ends.cm(end).state(id) == Some(State::DreqRcvd) {
                    self.ends.cm(end).disconnect(now, id, &[]).expect("agrees");
                }
                self.ended(end, id, Fate::Ended);
            }
            Event::TimewaitExit(id) => self.ledger.timewait_is_over(end, id),
            Event::SidrRequest { .. } | Event::SidrReply(_) => unreachable!("nobody asks"),
        }
    }

    fn established(&mut self, end: usize, id: CommId) {
        self.ledger.established(end, id);
        self.ends.established(end, id);
    }

    fn ended(&mut self, end: usize, id: CommId, fate: Fate) {
        self.ledger.ended(end, id, fate);
        self.ends.ended(end, id);
    }

    /// Either side ends it in a while, or both at once, or neither.
    fn plan_end(&mut self, end: usize, id: CommId) {
        if self.rng.chance(0.6) {
            let at = self.ends.now() + Duration::from_micros(self.rng.below(2_000_000));
            self.ledger.plan_end(at, end, id);
        }
    }

    fn disconnect_due(&mut self) {
        let now = self.ends.now();
        while let Some((end, id)) = self.ledger.take_due(now) {
            if self.ends.cm(end).state(id) == Some(State::Established) {
                self.ends.cm(end).disconnect(now, id, &[]).expect("disconnects");
            }
        }
    }

    /// Ends all connections still in use, lets all timers run out, and checks that nothing is left.
    fn finish(&mut self) {
        // What is asked for late comes about after the first time.
        for _ in 0..2 {
            let now = self.ends.now();
            for (end, number) in self.ledger.in_use() {
                let cm = self.ends.cm(end);
                if let Some(id) = cm.id_of(number) {
                    // The other side may be ending it.
                    let _ending = cm.disconnect(now, id, &[]);
                }
            }
            self.run(Duration::from_secs(400));
        }
        self.ledger.check();
        for end in [ACTIVE, PASSIVE] {
            self.ends.check_empty(end);
        }
    }
}
