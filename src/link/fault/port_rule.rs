//! Rules about the port in fault specifications, and how speeds are written.

use std::fmt;
use std::time::Duration;

use super::PortChange;
use super::spec::{LONGEST_AGE, duration, listed, set_once, write_when};

/// The actions of rules about the port, and the conditions that they may have.
pub(super) const PORT_ACTIONS: [&str; 4] = ["down", "speed", "addr-change", "fatal"];
const PORT_CONDITIONS: [&str; 3] = ["after", "for", "device"];

/// A change of the port that is to come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRule {
    /// The change.
    pub change: PortChange,
    /// How long after the device was opened.
    pub after: Duration,
    /// How long until it is undone.
    pub lasts: Option<Duration>,
    /// Only for the device of this name.
    pub device: Option<String>,
}

impl fmt::Display for PortRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            PortChange::Down => f.write_str("down")?,
            PortChange::Speed(Some(bits)) => write!(f, "speed={}", SpelledSpeed(bits))?,
            PortChange::Readdressed => f.write_str("addr-change")?,
            PortChange::Fatal => f.write_str("fatal")?,
            // No rule says these.
            PortChange::Up { .. } | PortChange::Speed(None) => f.write_str("up")?,
        }
        write_when(f, self.after, self.lasts, self.device.as_deref())
    }
}

/// A rule about the port, if it is one.
pub(super) fn parse_port_rule(item: &str) -> Option<Result<PortRule, String>> {
    let mut parts = item.split(':').map(str::trim);
    let (name, value) = match parts.next()?.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (item.split(':').next()?.trim(), None),
    };
    let change = match (name, value) {
        ("down", None) => Ok(PortChange::Down),
        ("addr-change", None) => Ok(PortChange::Readdressed),
        ("fatal", None) => Ok(PortChange::Fatal),
        ("speed", Some(value)) => bits_per_second(value).map(|bits| PortChange::Speed(Some(bits))),
        ("speed", None) => Err("say how fast, as in speed=1Gbit".to_owned()),
        (name, Some(_)) if PORT_ACTIONS.contains(&name) => Err(format!("`{name}` takes no value")),
        _ => return None,
    };
    Some(change.and_then(|change| with_times(name, change, parts)))
}

fn with_times<'a>(
    name: &str,
    change: PortChange,
    conditions: impl Iterator<Item = &'a str>,
) -> Result<PortRule, String> {
    let (mut after, mut lasts, mut device) = (None, None, None);
    for part in conditions {
        match part.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some((key @ "after", value)) => set_once(&mut after, key, duration(value, LONGEST_AGE)?)?,
            Some((key @ "for", value)) if change.reverse().is_some() => {
                set_once(&mut lasts, key, duration(value, LONGEST_AGE)?)?;
            }
            Some((key @ "device", value)) => set_once(&mut device, key, value.to_owned())?,
            _ => {
                return Err(format!(
                    "`{part}` is not a condition of {name}; its conditions are {}",
                    listed(if change.reverse().is_some() { &PORT_CONDITIONS } else { &["after", "device"] })
                ));
            }
        }
    }
    Ok(PortRule { change, after: after.unwrap_or_default(), lasts, device })
}

/// Bits per second, as in `1Gbit`.
///
/// # Errors
/// It is no such number.
pub fn bits_per_second(text: &str) -> Result<u64, String> {
    let units = [("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)];
    let number = units.iter().find_map(|(unit, bits)| {
        let digits = text.strip_suffix(unit)?.trim_end();
        digits.parse::<f64>().ok().map(|number| number * bits)
    });
    match number {
        // The least is a short packet in a second.
        Some(bits) if (1e3..=1e13).contains(&bits) => Ok(bits.round() as u64),
        Some(_) => Err(format!("the speed `{text}` is not between 1kbit and 10000Gbit")),
        None => Err(format!("`{text}` is not a speed; write 1Gbit, 100Mbit or 500kbit")),
    }
}

/// A speed as it is written.
pub(super) struct SpelledSpeed(pub u64);

impl fmt::Display for SpelledSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits.is_multiple_of(1_000_000_000) => write!(f, "{}Gbit", bits / 1_000_000_000),
            bits if bits.is_multiple_of(1_000_000) => write!(f, "{}Mbit", bits / 1_000_000),
            bits => write!(f, "{}kbit", bits as f64 / 1e3),
        }
    }
}
