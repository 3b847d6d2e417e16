//! What is done to a port on command: it goes down and comes up again, swallows packets, or becomes slower.
//!
//! A [`PortGate`] knows what was commanded and what is still to come, and says whether a datagram passes. Whoever reports
//! the state of the port takes the changes from it, one at a time ([`PortGate::take_change`]). Time is an argument.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softrnic_wire::Time;

use super::Direction;
use super::port_rule::{PortRule, SpelledSpeed};

/// How much of a second a slow port may send at once.
const BURST: Duration = Duration::from_micros(500);

/// A change of a port, on command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortChange {
    /// Nothing passes any more, in either direction.
    Down,
    /// Everything passes again: at once, or after this time, in which the port is up all the same.
    Up {
        /// How long nothing passes yet.
        deaf: Duration,
    },
    /// It sends no more than this many bits per second; `None` is as much as it can.
    Speed(Option<u64>),
    /// The device fails, for good.
    Fatal,
    /// Its interface has another hardware address, as when a bond fails over.
    Readdressed,
}

impl PortChange {
    /// What undoes it, if anything does.
    pub fn reverse(self) -> Option<PortChange> {
        match self {
            PortChange::Down => Some(PortChange::Up { deaf: Duration::ZERO }),
            PortChange::Speed(Some(_)) => Some(PortChange::Speed(None)),
            PortChange::Up { .. } | PortChange::Speed(None) | PortChange::Fatal | PortChange::Readdressed => {
                None
            }
        }
    }
}

/// Packets that a port swallows, although it is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blackhole {
    /// Those of one direction; `None` is both.
    pub direction: Option<Direction>,
    /// Those to and from one peer; `None` is all.
    pub peer: Option<IpAddr>,
}

impl Blackhole {
    fn swallows(&self, direction: Direction, peer: IpAddr) -> bool {
        self.direction.is_none_or(|known| known == direction) && self.peer.is_none_or(|known| known == peer)
    }
}

impl fmt::Display for Blackhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blackhole")?;
        match self.direction {
            Some(Direction::Tx) => f.write_str(" out")?,
            Some(Direction::Rx) => f.write_str(" in")?,
            None => {}
        }
        self.peer.map_or(Ok(()), |peer| write!(f, " peer={peer}"))
    }
}

/// Why a datagram does not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocked {
    Down,
    Blackhole,
}

impl Blocked {
    /// The comment that it gets in a capture.
    pub(super) fn note(self) -> &'static str {
        match self {
            Blocked::Down => "link: dropped, the port is down",
            Blocked::Blackhole => "link: dropped in a blackhole",
        }
    }
}

/// A change that is to come.
#[derive(Clone, Copy, Debug)]
struct Scheduled {
    at: Time,
    change: PortChange,
    /// Whether a rule says so, and not a command.
    is_of_rules: bool,
}

/// What was commanded of a port.
#[derive(Debug, Default)]
pub struct PortGate {
    down_since: Option<Time>,
    deaf_until: Time,
    failed: bool,
    speed: Option<u64>,
    /// When what was sent so far has left at this speed.
    sent_at: Time,
    /// What it swallows, and until when.
    blackholes: Vec<(Blackhole, Time)>,
    /// What is to come, by time.
    schedule: VecDeque<Scheduled>,
    /// What rules have changed and not undone yet.
    by_rules: Vec<PortChange>,
    /// What has come about, and was not taken.
    changes: VecDeque<PortChange>,
    dropped: [u64; 2],
}

impl PortGate {
    /// Since when it is down on command, if it is.
    pub fn down_since(&self) -> Option<Time> {
        self.down_since
    }

    /// What holds besides, as commands say it.
    pub fn in_force(&self, now: Time) -> Vec<String> {
        let limit = self.speed.map(|bits| format!("rate {}", SpelledSpeed(bits)));
        self.blackholes(now).map(|hole| hole.to_string()).chain(limit).collect()
    }

    /// Bits per second that it may send, if that was limited.
    pub fn speed(&self) -> Option<u64> {
        self.speed
    }

    /// What it swallows at this time.
    pub fn blackholes(&self, now: Time) -> impl Iterator<Item = Blackhole> {
        self.blackholes.iter().filter(move |(_, until)| now < *until).map(|(hole, _)| *hole)
    }

    /// It swallows these from now on, until some time.
    pub fn blackhole(&mut self, now: Time, hole: Blackhole, until: Time) {
        self.blackholes.retain(|(known, until)| *known != hole && now < *until);
        self.blackholes.push((hole, until));
    }

    /// It swallows nothing any more.
    pub fn end_blackholes(&mut self) {
        self.blackholes.clear();
    }

    /// Datagrams that did not pass: sent, and received.
    pub fn dropped(&self) -> [u64; 2] {
        self.dropped
    }

    /// When the next change comes about.
    pub fn next_change(&self) -> Option<Time> {
        self.schedule.front().map(|next| next.at)
    }

    /// Makes a change now, and forgets those of its kind that are to come.
    pub fn command(&mut self, now: Time, change: PortChange) {
        let kind = |change: &PortChange| match change {
            PortChange::Speed(_) => 0,
            PortChange::Readdressed => 1,
            PortChange::Down | PortChange::Up { .. } | PortChange::Fatal => 2,
        };
        self.schedule.retain(|known| kind(&known.change) != kind(&change));
        self.by_rules.retain(|known| kind(known) != kind(&change));
        self.make(now, change);
    }

    /// A change is to come about later. Of two at the same time, the one that was scheduled first is the first.
    pub fn schedule(&mut self, at: Time, change: PortChange) {
        self.insert(Scheduled { at, change, is_of_rules: false });
    }

    fn insert(&mut self, new: Scheduled) {
        let place = self.schedule.partition_point(|known| known.at <= new.at);
        self.schedule.insert(place, new);
    }

    /// Makes the changes that are due; returns whether there were any.
    pub fn advance(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(due) = self.schedule.pop_front_if(|next| next.at <= now) {
            let Scheduled { at, change, is_of_rules } = due;
            if is_of_rules {
                self.by_rules.retain(|known| known.reverse() != Some(change));
                self.by_rules.extend(change.reverse().map(|_| change));
            }
            self.make(at, change);
            any = true;
        }
        any
    }

    /// The first change that has come about and was not taken.
    pub fn take_change(&mut self) -> Option<PortChange> {
        self.changes.pop_front()
    }

    fn make(&mut self, now: Time, change: PortChange) {
        let is_news = match change {
            _ if self.failed => false,
            PortChange::Down => {
                let was_up = self.down_since.is_none();
                self.down_since = self.down_since.or(Some(now));
                was_up
            }
            PortChange::Up { deaf } => {
                self.deaf_until = now + deaf;
                self.down_since.take().is_some()
            }
            PortChange::Speed(speed) => {
                self.sent_at = now;
                std::mem::replace(&mut self.speed, speed) != speed
            }
            PortChange::Readdressed => true,
            PortChange::Fatal => {
                self.failed = true;
                self.down_since = self.down_since.or(Some(now));
                true
            }
        };
        if is_news {
            self.changes.push_back(change);
        }
    }

    /// Schedules what the rules of a specification say, from `now` on.
    pub(super) fn follow(&mut self, now: Time, rules: &[PortRule]) {
        for rule in rules {
            let at = now + rule.after;
            self.insert(Scheduled { at, change: rule.change, is_of_rules: true });
            if let Some((lasts, back)) = rule.lasts.zip(rule.change.reverse()) {
                self.insert(Scheduled { at: at + lasts, change: back, is_of_rules: true });
            }
        }
    }

    /// Forgets what rules have scheduled, and undoes what they have changed.
    pub(super) fn end_rules(&mut self, now: Time) {
        self.schedule.retain(|known| !known.is_of_rules);
        for change in std::mem::take(&mut self.by_rules) {
            change.reverse().into_iter().for_each(|back| self.make(now, back));
        }
    }

    /// Why nothing at all passes, if it is so.
    pub(super) fn is_shut(&self, now: Time) -> Option<Blocked> {
        (self.down_since.is_some() || now < self.deaf_until).then_some(Blocked::Down)
    }

    /// Why a datagram to or from a peer does not pass, if it is so.
    pub(super) fn blocks(&self, now: Time, direction: Direction, peer: IpAddr) -> Option<Blocked> {
        let swallowed = || {
            let found = self.blackholes(now).any(|hole| hole.swallows(direction, peer));
            found.then_some(Blocked::Blackhole)
        };
        self.is_shut(now).or_else(swallowed)
    }

    /// Whether every datagram passes.
    pub(super) fn is_open(&self, now: Time) -> bool {
        self.is_shut(now).is_none() && self.blackholes.is_empty()
    }

    /// From when on it may send, if not now.
    pub(super) fn busy_until(&self, now: Time) -> Option<Time> {
        let ahead = self.sent_at.since(now);
        (self.speed.is_some() && ahead > BURST).then(|| now + (ahead - BURST))
    }

    /// So many bytes were sent.
    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        if let Some(speed) = self.speed {
            let takes = Duration::from_nanos((bytes as u64 * 8).saturating_mul(1_000_000_000) / speed.max(1));
            self.sent_at = self.sent_at.max(now) + takes;
        }
    }

    /// A datagram was to be sent, and did not pass.
    pub(super) fn drop_sent(&mut self) {
        self.dropped[0] += 1;
    }

    /// A datagram came, and did not pass.
    pub(super) fn drop_received(&mut self) {
        self.dropped[1] += 1;
    }
}
