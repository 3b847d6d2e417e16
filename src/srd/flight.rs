//! Packets that were sent and not yet acknowledged: by which numbers, when, and which of them were lost.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use softrnic_wire::{SRD_WINDOW, SrdPsn, Time};

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// The message that it is part of.
    pub id: u32,
    pub offset: u32,
    pub len: u32,
    pub sent_at: Time,
    pub sent_again: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nobody waits for it.
    Settled,
    InFlight,
    /// To be sent again.
    Lost,
}

const NONE: Flight =
    Flight { id: 0, offset: 0, len: 0, sent_at: Time::ZERO, sent_again: false, state: State::Settled };

/// The packets of one direction of a connection.
pub(crate) struct Flights {
    ring: Box<[Flight]>,
    /// The lowest that somebody waits for, and the next new one.
    una: SrdPsn,
    next: SrdPsn,
    in_flight: u32,
    lost: u32,
    /// When what was acknowledged was sent, of what was sent last, and its number.
    newest: (Time, SrdPsn),
}

impl Flights {
    pub fn new(first: SrdPsn) -> Flights {
        let ring = vec![NONE; SRD_WINDOW as usize].into_boxed_slice();
        Flights { ring, una: first, next: first, in_flight: 0, lost: 0, newest: (Time::ZERO, first) }
    }

    /// The lowest number that somebody waits for.
    pub fn una(&self) -> SrdPsn {
        self.una
    }

    /// The number of the next new packet, if the receiver would take it.
    pub fn next(&self) -> Option<SrdPsn> {
        ((self.next.distance_from(self.una) as u32) < SRD_WINDOW).then_some(self.next)
    }

    /// Packets that are under way and not known to be lost.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether nobody waits for anything.
    pub fn is_empty(&self) -> bool {
        self.in_flight + self.lost == 0
    }

    /// The next new packet has been sent.
    pub fn sent(&mut self, id: u32, offset: u32, len: u32, now: Time) {
        let psn = self.next;
        *self.at(psn) = Flight { id, offset, len, sent_at: now, sent_again: false, state: State::InFlight };
        self.next = psn.plus(1);
        self.in_flight += 1;
    }

    /// A lost packet has been sent again.
    pub fn sent_again(&mut self, psn: SrdPsn, now: Time) {
        let flight = self.at(psn);
        (flight.sent_at, flight.sent_again, flight.state) = (now, true, State::InFlight);
        self.lost -= 1;
        self.in_flight += 1;
    }

    /// A lost packet, the oldest.
    pub fn first_lost(&self) -> Option<(SrdPsn, Flight)> {
        if self.lost == 0 {
            return None;
        }
        self.all().find(|(_, flight)| flight.state == State::Lost)
    }

    /// Nobody waits for this one any more. Returns it if somebody did.
    pub fn settle(&mut self, psn: SrdPsn) -> Option<Flight> {
        if psn.distance_from(self.una) < 0 || psn.distance_from(self.next) >= 0 {
            return None;
        }
        let flight = *self.at(psn);
        match flight.state {
            State::Settled => return None,
            State::InFlight => self.in_flight -= 1,
            State::Lost => self.lost -= 1,
        }
        self.at(psn).state = State::Settled;
        while self.una != self.next && self.at(self.una).state == State::Settled {
            self.una = self.una.plus(1);
        }
        Some(flight)
    }

    /// Somebody has seen this one: what was sent clearly before it may be lost.
    pub fn seen(&mut self, psn: SrdPsn, flight: &Flight) {
        let (at, last) = self.newest;
        if flight.sent_at > at || flight.sent_at == at && psn.distance_from(last) > 0 {
            self.newest = (flight.sent_at, psn);
        }
    }

    /// Finds what is lost at `now`: what has waited for `patience`, although something sent later has come. Returns how
    /// many, and when to look again.
    pub fn find_lost(&mut self, now: Time, patience: Duration) -> (u32, Time) {
        let (mut found, mut again) = (0, Time::NEVER);
        let (newest_at, newest) = self.newest;
        let (mut psn, next) = (self.una, self.next);
        while psn != next {
            let flight = self.at(psn);
            let overtaken =
                flight.sent_at < newest_at || flight.sent_at == newest_at && psn.distance_from(newest) < 0;
            if flight.state == State::InFlight && overtaken {
                let due = flight.sent_at + patience;
                if due <= now {
                    flight.state = State::Lost;
                    self.in_flight -= 1;
                    self.lost += 1;
                    found += 1;
                } else {
                    again = again.min(due);
                }
            }
            psn = psn.plus(1);
        }
        (found, again)
    }

    /// Nobody waits for any.
    pub fn clear(&mut self) {
        self.una = self.next;
        (self.in_flight, self.lost) = (0, 0);
    }

    /// The last is to be sent again: the answer to it shows which others are lost.
    pub fn lose_last(&mut self) {
        let last = self.all().filter(|(_, flight)| flight.state == State::InFlight).last();
        if let Some((psn, _)) = last {
            self.at(psn).state = State::Lost;
            self.in_flight -= 1;
            self.lost += 1;
        }
    }

    /// All are to be sent again.
    pub fn lose_all(&mut self) {
        let (mut psn, next) = (self.una, self.next);
        while psn != next {
            let flight = self.at(psn);
            if flight.state == State::InFlight {
                flight.state = State::Lost;
                self.in_flight -= 1;
                self.lost += 1;
            }
            psn = psn.plus(1);
        }
    }

    fn all(&self) -> impl Iterator<Item = (SrdPsn, Flight)> + '_ {
        let count = self.next.distance_from(self.una) as u32;
        (0..count).map(|place| {
            let psn = self.una.plus(place);
            (psn, self.ring[(psn.0 % SRD_WINDOW) as usize])
        })
    }

    fn at(&mut self, psn: SrdPsn) -> &mut Flight {
        &mut self.ring[(psn.0 % SRD_WINDOW) as usize]
    }
}
