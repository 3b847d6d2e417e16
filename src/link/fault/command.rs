//! What `softrnic link` asks a running device for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use softrnic_wire::Time;

use super::port::Blackhole;
use super::port_rule::{SpelledSpeed, bits_per_second};
use super::spec::{Spelled, duration, listed};
use super::{Direction, FaultSpec, FaultSpecError, Faults, PortChange};

/// The longest time that a command may name.
const LONGEST: Duration = Duration::from_secs(3600);

/// The most times that a port flaps.
const MOST_FLAPS: u32 = 10_000;

/// A command to a port, in one line of text.
///
/// ```
/// use softrnic_link::fault::LinkCommand;
///
/// let command: LinkCommand = "flap 3 down=200ms up=1s".parse()?;
/// assert_eq!(command.to_string(), "flap 3 down=200ms up=1s");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum LinkCommand {
    /// The port goes down: until it is told to come up, or for this long.
    Down(Option<Duration>),
    /// The port comes up. Nothing passes for this long all the same.
    Up(Duration),
    /// It goes down and comes up several times.
    Flap {
        /// How often.
        times: u32,
        /// How long it is down each time.
        down: Duration,
        /// How long it is up in between.
        up: Duration,
    },
    /// It swallows packets, although it is up: until it is told otherwise, or for this long.
    Blackhole(Blackhole, Option<Duration>),
    /// It swallows nothing any more.
    NoBlackhole,
    /// It sends no more than this many bits per second; `None` is as much as it can.
    Rate(Option<u64>),
    /// Its interface gets another hardware address, as when a bond fails over.
    Readdress,
    /// The device fails, for good.
    Fatal,
    /// These faults are injected from now on, and no others.
    Faults(FaultSpec),
}

impl LinkCommand {
    /// The same for one device: without the rules for others.
    #[must_use]
    pub fn of_device(&self, name: &str) -> LinkCommand {
        match self {
            LinkCommand::Faults(spec) => LinkCommand::Faults(spec.of_device(name)),
            other => other.clone(),
        }
    }

    /// Begins to do it.
    pub fn apply(&self, now: Time, faults: &mut dyn Faults) {
        let up = PortChange::Up { deaf: Duration::ZERO };
        let port = faults.port(now);
        match *self {
            LinkCommand::Blackhole(hole, lasts) => {
                port.blackhole(now, hole, lasts.map_or(Time::NEVER, |lasts| now + lasts));
            }
            LinkCommand::NoBlackhole => port.end_blackholes(),
            LinkCommand::Rate(speed) => port.command(now, PortChange::Speed(speed)),
            LinkCommand::Readdress => port.command(now, PortChange::Readdressed),
            LinkCommand::Fatal => port.command(now, PortChange::Fatal),
            LinkCommand::Faults(ref spec) => faults.inject(now, spec),
            LinkCommand::Down(lasts) => {
                port.command(now, PortChange::Down);
                lasts.into_iter().for_each(|lasts| port.schedule(now + lasts, up));
            }
            LinkCommand::Up(deaf) => port.command(now, PortChange::Up { deaf }),
            LinkCommand::Flap { times, down, up: rest } => {
                port.command(now, PortChange::Down);
                port.schedule(now + down, up);
                for time in 1..times {
                    let begins = now + (down + rest) * time;
                    port.schedule(begins, PortChange::Down);
                    port.schedule(begins + down, up);
                }
            }
        }
    }
}

impl FromStr for LinkCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkCommand, String> {
        let mut words = text.split_whitespace();
        let action = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        match (action, &rest[..]) {
            ("down", []) => Ok(LinkCommand::Down(None)),
            ("down", [time]) => Ok(LinkCommand::Down(Some(lasting(named("for", time)?)?))),
            ("up", []) => Ok(LinkCommand::Up(Duration::ZERO)),
            ("up", [time]) => Ok(LinkCommand::Up(duration(named("deaf", time)?, LONGEST)?)),
            ("flap", [times, down, up]) => Ok(LinkCommand::Flap {
                times: flaps(times)?,
                down: lasting(named("down", down)?)?,
                up: lasting(named("up", up)?)?,
            }),
            ("blackhole", ["off"]) => Ok(LinkCommand::NoBlackhole),
            ("blackhole", conditions) => blackhole(conditions),
            ("rate", ["off"]) => Ok(LinkCommand::Rate(None)),
            ("rate", [speed]) => Ok(LinkCommand::Rate(Some(bits_per_second(speed)?))),
            ("addr-change", []) => Ok(LinkCommand::Readdress),
            ("fatal", []) => Ok(LinkCommand::Fatal),
            ("faults", ["off"]) => Ok(LinkCommand::Faults(FaultSpec::default())),
            ("faults", [spec]) => {
                spec.parse().map(LinkCommand::Faults).map_err(|error: FaultSpecError| error.to_string())
            }
            (known, _) if ACTIONS.contains(&known) => Err(format!("`{text}` is not how {known} is written")),
            _ => Err(format!("`{action}` is not an action; the actions are {}", listed(&ACTIONS))),
        }
    }
}

const ACTIONS: [&str; 8] = ["down", "up", "flap", "blackhole", "rate", "addr-change", "fatal", "faults"];

fn blackhole(conditions: &[&str]) -> Result<LinkCommand, String> {
    let mut hole = Blackhole { direction: None, peer: None };
    let mut lasts = None;
    for condition in conditions {
        match condition.split_once('=') {
            None if *condition == "in" => hole.direction = Some(Direction::Rx),
            None if *condition == "out" => hole.direction = Some(Direction::Tx),
            Some(("peer", peer)) => {
                hole.peer = Some(peer.parse().map_err(|_| format!("`{peer}` is not an address"))?);
            }
            Some(("for", time)) => lasts = Some(lasting(time)?),
            _ => return Err(format!("`{condition}` is neither in, out, peer=ADDRESS, for=TIME nor off")),
        }
    }
    Ok(LinkCommand::Blackhole(hole, lasts))
}

fn named<'a>(name: &str, word: &'a str) -> Result<&'a str, String> {
    let value = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
    value.ok_or_else(|| format!("`{word}` is not {name}=TIME"))
}

fn flaps(text: &str) -> Result<u32, String> {
    let times = text.parse().ok().filter(|times| (1..=MOST_FLAPS).contains(times));
    times.ok_or_else(|| format!("`{text}` is not a number from 1 to {MOST_FLAPS}"))
}

/// A time as commands write it.
pub fn spelled(time: Duration) -> String {
    Spelled(time).to_string()
}

/// A time that is not zero.
fn lasting(text: &str) -> Result<Duration, String> {
    let time = duration(text, LONGEST)?;
    if time.is_zero() { Err(format!("`{text}` is no time at all")) } else { Ok(time) }
}

impl fmt::Display for LinkCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkCommand::Down(None) => f.write_str("down"),
            LinkCommand::Down(Some(lasts)) => write!(f, "down for={}", Spelled(*lasts)),
            LinkCommand::Up(Duration::ZERO) => f.write_str("up"),
            LinkCommand::Up(deaf) => write!(f, "up deaf={}", Spelled(*deaf)),
            LinkCommand::Flap { times, down, up } => {
                write!(f, "flap {times} down={} up={}", Spelled(*down), Spelled(*up))
            }
            LinkCommand::Blackhole(hole, None) => hole.fmt(f),
            LinkCommand::Blackhole(hole, Some(lasts)) => write!(f, "{hole} for={}", Spelled(*lasts)),
            LinkCommand::NoBlackhole => f.write_str("blackhole off"),
            LinkCommand::Rate(None) => f.write_str("rate off"),
            LinkCommand::Rate(Some(bits)) => write!(f, "rate {}", SpelledSpeed(*bits)),
            LinkCommand::Readdress => f.write_str("addr-change"),
            LinkCommand::Fatal => f.write_str("fatal"),
            LinkCommand::Faults(spec) if spec.is_empty() => f.write_str("faults off"),
            LinkCommand::Faults(spec) => write!(f, "faults {spec}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_back_as_they_are_written() {
        for text in [
            "down",
            "down for=5s",
            "up",
            "up deaf=300ms",
            "flap 3 down=200ms up=1s",
            "blackhole",
            "blackhole in peer=10.0.0.2",
            "blackhole out peer=fe80::1 for=3s",
            "blackhole off",
            "rate 1Gbit",
            "rate 2500Mbit",
            "rate off",
            "addr-change",
            "fatal",
            "faults seed=0,drop=1%:peer=10.0.0.2,down:after=2s:for=5s:device=b",
            "faults off",
        ] {
            assert_eq!(text.parse::<LinkCommand>().map(|command| command.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        for (text, reason) in [
            (
                "",
                "is not an action; the actions are down, up, flap, blackhole, rate, addr-change, fatal and faults",
            ),
            ("rate fast", "is not a speed"),
            ("rate 0Gbit", "is not between"),
            ("blackhole sideways", "is neither in, out"),
            ("blackhole peer=b", "is not an address"),
            ("faults eat=1%", "is not a fault"),
            ("fatal now", "is not how fatal is written"),
            ("sideways", "is not an action"),
            ("down now", "is not for=TIME"),
            ("down for=0s", "no time at all"),
            ("down for=2h", "is not a time"),
            ("down for=7200s", "is not between 0 and 3600s"),
            ("up deaf=-1s", "is not between"),
            ("flap 0 down=1s up=1s", "is not a number from 1"),
            ("flap 3", "is not how flap is written"),
        ] {
            let error = text.parse::<LinkCommand>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
