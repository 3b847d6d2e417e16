//! The language of fault specifications.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use softrnic_wire::{CmMessage, Opcode, Psn, Qpn};

use super::port_rule::{PORT_ACTIONS, PortRule, parse_port_rule};

/// What can be written in a [`FaultSpec`], for people.
pub const GRAMMAR: &str = include_str!("grammar.txt");

/// The actions of rules.
const ACTIONS: [&str; 5] = ["drop", "duplicate", "corrupt", "reorder", "delay"];
/// The conditions that rules of every action may have, and those of one action.
const CONDITIONS: [&str; 10] = ["op", "qpn", "psn", "nth", "rate", "dir", "peer", "after", "for", "device"];
const OWN_CONDITIONS: [(&str, &str); 2] = [("delay", "by"), ("reorder", "depth")];

/// Faults to inject, as [`GRAMMAR`] says how to write them.
///
/// ```
/// use softrnic_link::fault::FaultSpec;
///
/// let spec: FaultSpec = "seed=7,drop=1%,delay=200us:5%,drop:op=ack:nth=3".parse()?;
/// assert_eq!(spec.to_string(), "seed=7,drop=1%,delay=200us:5%,drop:op=rc_acknowledge:nth=3");
/// # Ok::<(), softrnic_link::fault::FaultSpecError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FaultSpec {
    /// Seed of the random numbers.
    pub seed: u64,
    /// What to do to which datagrams; the first that applies decides.
    pub rules: Vec<Rule>,
    /// What happens to the port, and when.
    pub port: Vec<PortRule>,
}

impl FaultSpec {
    /// What of this is for the device of a name.
    #[must_use]
    pub fn of_device(&self, name: &str) -> FaultSpec {
        let is_for = |device: &Option<String>| device.as_ref().is_none_or(|known| known == name);
        FaultSpec {
            seed: self.seed,
            rules: self.rules.iter().filter(|rule| is_for(&rule.device)).cloned().collect(),
            port: self.port.iter().filter(|rule| is_for(&rule.device)).cloned().collect(),
        }
    }

    /// Whether nothing is injected.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.port.is_empty()
    }
}

/// One item of a [`FaultSpec`].
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// What to do.
    pub action: Action,
    /// The direction of the datagrams; `None` is both.
    pub direction: Option<Direction>,
    /// Only from this long after the device was opened on.
    pub after: Duration,
    /// Only for this long.
    pub lasts: Option<Duration>,
    /// Only to and from this address.
    pub peer: Option<IpAddr>,
    /// Only for the device of this name.
    pub device: Option<String>,
    /// Only for these opcodes.
    pub opcodes: Option<OpcodeSet>,
    /// Only for this destination QP.
    pub qpn: Option<Qpn>,
    /// Only for these PSNs; the range may wrap.
    pub psn: Option<(Psn, Psn)>,
    /// Only with this probability, 0 to 1.
    pub rate: Option<f64>,
    /// Only for these of the datagrams that all conditions but `rate` select, counted from 1.
    pub nth: Option<RangeInclusive<u64>>,
}

impl Rule {
    /// Whether it is about what passes at this time after the device was opened, to or from `peer`.
    pub(super) fn is_about(&self, age: Duration, peer: IpAddr) -> bool {
        self.after <= age
            && self.lasts.is_none_or(|lasts| age < self.after + lasts)
            && self.peer.is_none_or(|known| known == peer)
    }
}

/// What can be done to a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Lose it.
    Drop,
    /// Deliver it twice.
    Duplicate,
    /// Change one of its bytes, but not the ICRC.
    Corrupt,
    /// Deliver it after this many later ones, or a millisecond later if there are fewer.
    Reorder(u32),
    /// Deliver it this much later.
    Delay(Duration),
}

/// Direction of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Sent by us.
    Tx,
    /// Received by us.
    Rx,
}

/// A set of opcodes and connection management messages, with the pattern that selects them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpcodeSet {
    pattern: String,
    members: [bool; 256],
    /// Attribute ids of messages.
    messages: Vec<u16>,
}

impl OpcodeSet {
    /// Whether the opcode byte is one of them.
    pub fn contains(&self, opcode: u8) -> bool {
        self.members[usize::from(opcode)]
    }

    /// Whether one of the messages has this attribute id.
    pub fn contains_message(&self, attribute_id: u16) -> bool {
        self.messages.contains(&attribute_id)
    }

    /// Whether any message is one of them.
    pub fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }
}

/// What is wrong with a [`FaultSpec`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultSpecError {
    item: String,
    problem: String,
}

impl fmt::Display for FaultSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in the fault `{}`: {}", self.item, self.problem)
    }
}

impl std::error::Error for FaultSpecError {}

/// Far longer than any transport waits.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// The longest that a rule waits, or lasts.
pub(super) const LONGEST_AGE: Duration = Duration::from_secs(24 * 3600);

/// How many datagrams overtake a reordered one by default.
const DEFAULT_DEPTH: u32 = 2;

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<FaultSpec, FaultSpecError> {
        let mut spec = FaultSpec::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = |problem| FaultSpecError { item: item.to_owned(), problem };
            match item.split_once('=') {
                Some((name, seed)) if name.trim() == "seed" => spec.seed = parse_seed(seed).map_err(wrong)?,
                _ => match parse_port_rule(item) {
                    Some(rule) => spec.port.push(rule.map_err(wrong)?),
                    None => spec.rules.push(parse_rule(item).map_err(wrong)?),
                },
            }
        }
        Ok(spec)
    }
}

fn parse_seed(text: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| format!("the seed `{text}` is not a whole number"))
}

fn parse_rule(item: &str) -> Result<Rule, String> {
    // Those of an IPv6 address are in brackets.
    let mut depth = 0_i32;
    let is_colon = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ':' && depth == 0
    };
    let mut parts = item.split(is_colon).map(str::trim);
    let head = parts.next().unwrap_or_default();
    let (name, value) = match head.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (head, None),
    };
    let name = if name == "dup" { "duplicate" } else { name };
    let mut rule = Rule {
        action: Action::Drop,
        direction: Some(Direction::Tx),
        after: Duration::ZERO,
        lasts: None,
        peer: None,
        device: None,
        opcodes: None,
        qpn: None,
        psn: None,
        rate: None,
        nth: None,
    };
    let (mut by, mut depth, mut after) = (None, None, None);
    match (name, value) {
        ("delay", Some(value)) => by = Some(duration(value, LONGEST_DELAY)?),
        (name, value) if ACTIONS.contains(&name) => {
            rule.rate = value.map(self::rate).transpose()?;
        }
        _ => {
            let all: Vec<&str> = ACTIONS.into_iter().chain(PORT_ACTIONS).collect();
            return Err(format!("`{name}` is not a fault; the faults are {}, and seed=N", listed(&all)));
        }
    }
    let mut conditions = 0;
    for part in parts {
        let Some((key, value)) = part.split_once('=').map(|(k, v)| (k.trim(), v.trim())) else {
            set_once(&mut rule.rate, "rate", rate(part)?)?;
            continue;
        };
        conditions += 1;
        match key {
            "op" => set_once(&mut rule.opcodes, key, opcodes(value)?)?,
            "qpn" => set_once(&mut rule.qpn, key, Qpn::new(bits24(value, "QPN")?))?,
            "psn" => set_once(&mut rule.psn, key, psns(value)?)?,
            "nth" => set_once(&mut rule.nth, key, occurrences(value)?)?,
            "rate" => set_once(&mut rule.rate, key, rate(value)?)?,
            "by" if name == "delay" => set_once(&mut by, key, duration(value, LONGEST_DELAY)?)?,
            "depth" if name == "reorder" => set_once(&mut depth, key, overtaking(value)?)?,
            "dir" => rule.direction = direction(value)?,
            "peer" => set_once(&mut rule.peer, key, address(value)?)?,
            "device" => set_once(&mut rule.device, key, value.to_owned())?,
            "after" => set_once(&mut after, key, duration(value, LONGEST_AGE)?)?,
            "for" => set_once(&mut rule.lasts, key, duration(value, LONGEST_AGE)?)?,
            _ => {
                let own = OWN_CONDITIONS.iter().filter(|(action, _)| *action == name).map(|(_, key)| *key);
                let all: Vec<&str> = own.chain(CONDITIONS).collect();
                return Err(format!(
                    "`{key}` is not a condition of {name}; its conditions are {}",
                    listed(&all)
                ));
            }
        }
    }
    if conditions == 0 && rule.rate.is_none() {
        return Err(match name {
            "delay" => "say how many packets to delay, as in delay=200us:5%, or which ones".to_owned(),
            _ => format!(
                "say how many packets, as in {name}=1%, or which ones, as in {name}:op=rc_send_only:nth=1"
            ),
        });
    }
    rule.after = after.unwrap_or_default();
    rule.action = match name {
        "drop" => Action::Drop,
        "duplicate" => Action::Duplicate,
        "corrupt" => Action::Corrupt,
        "reorder" => Action::Reorder(depth.unwrap_or(DEFAULT_DEPTH)),
        _ => Action::Delay(by.ok_or("say how long to delay, as in delay:by=200us")?),
    };
    Ok(rule)
}

/// `a, b and c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [some @ .., last] if !some.is_empty() => format!("{} and {last}", some.join(", ")),
        words => words.concat(),
    }
}

pub(super) fn set_once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}` is given twice")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    match digits.parse::<f64>() {
        Ok(value) if (0.0..=unit).contains(&value) => Ok(value / unit),
        Ok(_) => Err(format!("the rate `{text}` is not between 0 and 100%")),
        Err(_) => Err(format!("the rate `{text}` is not a number; write 1% or 0.01")),
    }
}

/// A time, no longer than `longest`.
pub(super) fn duration(text: &str, longest: Duration) -> Result<Duration, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    for (unit, nanos) in units {
        let Some(value) = text.strip_suffix(unit).and_then(|digits| digits.trim_end().parse::<f64>().ok())
        else {
            continue;
        };
        let nanos = value * nanos;
        if (0.0..=longest.as_nanos() as f64).contains(&nanos) {
            return Ok(Duration::from_nanos(nanos.round() as u64));
        }
        return Err(format!("the time `{text}` is not between 0 and {}s", longest.as_secs()));
    }
    Err(format!("`{text}` is not a time; write 500ns, 200us, 1.5ms or 1s"))
}

fn psns(text: &str) -> Result<(Psn, Psn), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok((Psn::new(bits24(first, "PSN")?), Psn::new(bits24(last, "PSN")?)))
}

fn occurrences(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(format!("`{text}` is not a count; write nth=1 for the first, or nth=2-4")),
    }
}

fn overtaking(text: &str) -> Result<u32, String> {
    match number(text).and_then(|depth| u32::try_from(depth).ok()) {
        Some(depth @ 1..=1000) => Ok(depth),
        _ => Err(format!("the depth `{text}` is not a whole number from 1 to 1000")),
    }
}

fn direction(text: &str) -> Result<Option<Direction>, String> {
    match text {
        "tx" => Ok(Some(Direction::Tx)),
        "rx" => Ok(Some(Direction::Rx)),
        "both" => Ok(None),
        _ => Err(format!("`{text}` is not a direction; write tx (sent), rx (received) or both")),
    }
}

/// Those of IPv6 are in brackets, as colons separate conditions.
fn address(text: &str) -> Result<IpAddr, String> {
    let v6 = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let parsed = match v6 {
        Some(text) => text.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    };
    parsed.ok_or_else(|| format!("`{text}` is not an address; write 10.0.0.2 or [fe80::1]"))
}

fn bits24(text: &str, what: &str) -> Result<u32, String> {
    match number(text) {
        Some(value) if value < 1 << 24 => Ok(value as u32),
        _ => Err(format!("`{text}` is no {what}; those are whole numbers below 2^24")),
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn opcodes(text: &str) -> Result<OpcodeSet, String> {
    let mut members = [false; 256];
    if let Some(byte) = number(text) {
        let byte = u8::try_from(byte).map_err(|_| format!("the opcode `{text}` is not less than 256"))?;
        members[usize::from(byte)] = true;
        return Ok(OpcodeSet { pattern: format!("{byte:#04x}"), members, messages: Vec::new() });
    }
    let pattern = match text.to_ascii_lowercase() {
        short if short == "ack" => "rc_acknowledge".to_owned(),
        short if short == "cm" => "cm_*".to_owned(),
        long => long,
    };
    for byte in 0..=255 {
        if let Some(opcode) = Opcode::from_byte(byte) {
            let name = opcode_name(opcode);
            let short = name.replace("rdma_", "");
            members[usize::from(byte)] = [name, short].iter().any(|name| matches(&pattern, name));
        }
    }
    let messages: Vec<u16> =
        CmMessage::ATTRIBUTE_IDS.filter(|id| matches(&pattern, &message_name(*id))).collect();
    match members.contains(&true) || !messages.is_empty() {
        true => Ok(OpcodeSet { pattern, members, messages }),
        false => Err(format!(
            "no opcode is called `{text}`; names are like rc_send_only, rc_rdma_write_first or ud_send_only, \
             rc_rdma_read_response* selects several, ack is short for rc_acknowledge; connection management \
             messages are cm_req, cm_rep, cm_rtu and so on, and cm is all of them"
        )),
    }
}

/// The specification's name in lower case, words joined by underscores.
fn opcode_name(opcode: Opcode) -> String {
    opcode.name().to_ascii_lowercase().replace(' ', "_")
}

/// The name of a message as rules write it.
fn message_name(attribute_id: u16) -> String {
    format!("cm_{}", CmMessage::name_of(attribute_id).to_ascii_lowercase())
}

/// Whether `name` matches `pattern`, in which each `*` stands for any number of characters. Text between two stars is
/// matched where it first occurs: that leaves most for the rest, so there is no backtracking.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name.strip_prefix(start).and_then(|name| name.strip_suffix(end));
    let rest = inner
        .and_then(|inner| middle.split('*').try_fold(inner, |left, part| Some(left.split_once(part)?.1)));
    rest.is_some()
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        self.rules.iter().try_for_each(|rule| write!(f, ",{rule}"))?;
        self.port.iter().try_for_each(|rule| write!(f, ",{rule}"))
    }
}

pub(super) fn write_when(
    f: &mut fmt::Formatter<'_>,
    after: Duration,
    lasts: Option<Duration>,
    device: Option<&str>,
) -> fmt::Result {
    if !after.is_zero() {
        write!(f, ":after={}", Spelled(after))?;
    }
    if let Some(lasts) = lasts {
        write!(f, ":for={}", Spelled(lasts))?;
    }
    device.map_or(Ok(()), |device| write!(f, ":device={device}"))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rate = self.rate.map(Percent);
        let name = match self.action {
            Action::Drop => "drop",
            Action::Duplicate => "duplicate",
            Action::Corrupt => "corrupt",
            Action::Reorder(_) => "reorder",
            Action::Delay(_) => "delay",
        };
        f.write_str(name)?;
        match self.action {
            Action::Delay(by) => {
                write!(f, "={}", Spelled(by))?;
                if let Some(rate) = rate.take() {
                    write!(f, ":{rate}")?;
                }
            }
            _ => {
                if let Some(rate) = rate.take() {
                    write!(f, "={rate}")?;
                }
            }
        }
        if let Action::Reorder(depth) = self.action
            && depth != DEFAULT_DEPTH
        {
            write!(f, ":depth={depth}")?;
        }
        match self.direction {
            Some(Direction::Tx) => {}
            Some(Direction::Rx) => f.write_str(":dir=rx")?,
            None => f.write_str(":dir=both")?,
        }
        match self.peer {
            Some(IpAddr::V4(peer)) => write!(f, ":peer={peer}")?,
            Some(IpAddr::V6(peer)) => write!(f, ":peer=[{peer}]")?,
            None => {}
        }
        if let Some(opcodes) = &self.opcodes {
            write!(f, ":op={}", opcodes.pattern)?;
        }
        if let Some(qpn) = self.qpn {
            write!(f, ":qpn={:#x}", qpn.get())?;
        }
        match self.psn {
            Some((first, last)) if first == last => write!(f, ":psn={}", first.get())?,
            Some((first, last)) => write!(f, ":psn={}-{}", first.get(), last.get())?,
            None => {}
        }
        match &self.nth {
            Some(nth) if nth.start() == nth.end() => write!(f, ":nth={}", nth.start())?,
            Some(nth) => write!(f, ":nth={}-{}", nth.start(), nth.end())?,
            None => {}
        }
        write_when(f, self.after, self.lasts, self.device.as_deref())
    }
}

struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        // The shortest form that reads back as the same rate.
        for digits in 0..17 {
            let text = format!("{percent:.digits$}%");
            if rate(&text) == Ok(self.0) {
                return f.write_str(&text);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A time as rules write it.
pub(super) struct Spelled(pub Duration);

impl fmt::Display for Spelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_nanos() {
            n if n.is_multiple_of(1_000_000_000) => write!(f, "{}s", n / 1_000_000_000),
            n if n.is_multiple_of(1_000_000) => write!(f, "{}ms", n / 1_000_000),
            n if n.is_multiple_of(1_000) => write!(f, "{}us", n / 1_000),
            n => write!(f, "{n}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that begin the lines of a part of the grammar, up to `=`.
    fn described(part: &str) -> Vec<&'static str> {
        let part = GRAMMAR.split(part).nth(1).and_then(|rest| rest.split("\n\n").next()).expect("there");
        let lines =
            part.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
        lines.filter_map(|line| line.split([' ', '=']).next()).collect()
    }

    #[test]
    fn the_grammar_lists_exactly_the_actions_and_conditions() {
        assert_eq!(described("Actions:\n"), ACTIONS);
        assert_eq!(described("Actions on the port:\n"), PORT_ACTIONS);
        let mut conditions = described("Conditions:\n");
        let mut known: Vec<&str> =
            CONDITIONS.into_iter().chain(OWN_CONDITIONS.into_iter().map(|(_, key)| key)).collect();
        conditions.sort();
        known.sort();
        assert_eq!(conditions, known);
    }

    #[test]
    fn every_action_and_condition_is_understood() {
        for action in ACTIONS {
            let by = if action == "delay" { ":by=1us" } else { "" };
            for key in CONDITIONS {
                let value = match key {
                    "op" => "ack",
                    "rate" => "1%",
                    "dir" => "both",
                    "peer" => "10.0.0.2",
                    "after" | "for" => "3s",
                    _ => "3",
                };
                let text = format!("{action}{by}:{key}={value}");
                text.parse::<FaultSpec>().unwrap_or_else(|error| panic!("{text}: {error}"));
            }
        }
        for (action, key) in OWN_CONDITIONS {
            let value = if key == "by" { "1us" } else { "3" };
            let text = format!("{action}:{key}={value}:nth=1");
            text.parse::<FaultSpec>().unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn examples_of_the_grammar_can_be_parsed() {
        for text in ["drop=1%", "drop:rate=1%", "delay=200us:5%", "delay:by=200us:rate=5%", "dup=1%"] {
            assert!(text.starts_with("dup") || GRAMMAR.contains(text), "{text}");
            text.parse::<FaultSpec>().unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}
