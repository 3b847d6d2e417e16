//! Which packets to show.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use softrnic_wire::{Opcode, Qpn};

use super::names::{nak_name, syndrome_kind};
use super::peers::Peers;
use crate::dissect::Roce;
use softrnic_wire::{Body, Syndrome};

/// Packets that match at least one condition of each kind given; a kind without conditions matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Packets to or from these QPs.
    pub qps: Vec<Qpn>,
    /// Packets whose opcode one of these names.
    pub opcodes: Vec<OpcodePattern>,
    /// Packets to or from these addresses.
    pub addresses: Vec<AddressPattern>,
}

/// An opcode by number, or by name with `*` and `?` as wildcards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpcodePattern {
    /// The byte on the wire.
    Number(u8),
    /// Compared, ignoring case, with the opcode's name, with that name without its transport, and with what the packet
    /// is beyond its opcode: `NAK remote access error`, `CM REQ`.
    Name(String),
}

/// An address or a prefix of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressPattern {
    address: IpAddr,
    prefix: u8,
}

/// Invalid text of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FilterError {
    /// No opcode has this number or name, or matches the pattern.
    NoSuchOpcode(String),
    /// Neither an address nor address/length.
    NotAnAddress(String),
    /// Neither decimal nor 0x and hexadecimal, or more than 24 bits.
    NotAQpn(String),
}

impl Filter {
    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.qps.is_empty() && self.opcodes.is_empty() && self.addresses.is_empty()
    }

    /// Whether the packet matches. `peers` names the sender to a QP when the packet does not.
    pub fn matches(&self, roce: &Roce<'_>, peers: &Peers) -> bool {
        self.address_matches(roce) && self.opcode_matches(roce) && self.qp_matches(roce, peers)
    }

    fn address_matches(&self, roce: &Roce<'_>) -> bool {
        self.addresses.is_empty()
            || self.addresses.iter().any(|a| a.contains(roce.net.src()) || a.contains(roce.net.dst()))
    }

    fn opcode_matches(&self, roce: &Roce<'_>) -> bool {
        self.opcodes.is_empty() || self.opcodes.iter().any(|pattern| pattern.matches(roce))
    }

    fn qp_matches(&self, roce: &Roce<'_>, peers: &Peers) -> bool {
        if self.qps.is_empty() {
            return true;
        }
        let Some(bth) = roce.bth() else { return false };
        let src = match roce.packet().map(|p| &p.body) {
            Some(Body::Ud { deth, .. }) => Some(deth.src_qpn),
            _ => peers.sender_of(roce.net.src(), roce.net.dst(), bth.dest_qpn()),
        };
        self.qps.iter().any(|qp| *qp == bth.dest_qpn() || Some(*qp) == src)
    }
}

impl OpcodePattern {
    fn matches(&self, roce: &Roce<'_>) -> bool {
        match self {
            OpcodePattern::Number(byte) => roce.bytes.first() == Some(byte),
            OpcodePattern::Name(pattern) => {
                let Some(opcode) = roce.opcode() else { return false };
                name_matches(pattern, opcode.name()) || detail_matches(pattern, roce)
            }
        }
    }
}

fn name_matches(pattern: &str, name: &str) -> bool {
    let bare = name.split_once(' ').map_or(name, |(_, rest)| rest);
    glob(pattern.as_bytes(), name.as_bytes()) || glob(pattern.as_bytes(), bare.as_bytes())
}

/// Names beyond the opcode.
fn detail_matches(pattern: &str, roce: &Roce<'_>) -> bool {
    let Some(packet) = roce.packet() else { return false };
    let pattern = pattern.as_bytes();
    if let Some(aeth) = packet.body.op().and_then(|op| op.aeth()) {
        let kind = syndrome_kind(aeth.syndrome);
        return match aeth.syndrome {
            Syndrome::Nak(code) => {
                glob(pattern, kind.as_bytes()) || glob(pattern, format!("NAK {}", nak_name(code)).as_bytes())
            }
            _ => glob(pattern, kind.as_bytes()),
        };
    }
    roce.mad().is_some_and(|mad| glob(pattern, format!("CM {}", mad.message_name()).as_bytes()))
}

const DETAILS: [&str; 19] = [
    "ACK",
    "RNR NAK",
    "NAK",
    "NAK PSN sequence error",
    "NAK invalid request",
    "NAK remote access error",
    "NAK remote operational error",
    "reserved syndrome",
    "CM REQ",
    "CM MRA",
    "CM REJ",
    "CM REP",
    "CM RTU",
    "CM DREQ",
    "CM DREP",
    "CM SIDR_REQ",
    "CM SIDR_REP",
    "CM LAP",
    "CM APR",
];

/// Whether `pattern` matches `text`, with `*` (anything) and `?` (one character), ignoring case.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || c.eq_ignore_ascii_case(&text[t]) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

impl FromStr for OpcodePattern {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<OpcodePattern, FilterError> {
        if let Some(number) = number(text) {
            let byte = u8::try_from(number).map_err(|_| FilterError::NoSuchOpcode(text.to_owned()))?;
            return Ok(OpcodePattern::Number(byte));
        }
        let known = (0..=u8::MAX).filter_map(Opcode::from_byte).any(|op| name_matches(text, op.name()));
        if known || DETAILS.iter().any(|name| glob(text.as_bytes(), name.as_bytes())) {
            Ok(OpcodePattern::Name(text.to_owned()))
        } else {
            Err(FilterError::NoSuchOpcode(text.to_owned()))
        }
    }
}

impl AddressPattern {
    fn contains(&self, ip: IpAddr) -> bool {
        let differing = match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        differing >= u32::from(self.prefix)
    }
}

impl FromStr for AddressPattern {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<AddressPattern, FilterError> {
        let error = || FilterError::NotAnAddress(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|p| *p <= bits).ok_or_else(error)?,
            None => bits,
        };
        Ok(AddressPattern { address, prefix })
    }
}

/// Parses a QPN, decimal or hexadecimal after `0x`.
///
/// # Errors
/// [`FilterError::NotAQpn`].
pub fn parse_qpn(text: &str) -> Result<Qpn, FilterError> {
    match number(text) {
        Some(value) if value < 1 << 24 => Ok(Qpn::new(value)),
        _ => Err(FilterError::NotAQpn(text.to_owned())),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::NoSuchOpcode(text) => write!(
                f,
                "no opcode is called {text:?}: give a number such as 0x11, a name such as \"RDMA READ Request\", \
                 \"NAK\" or \"CM REQ\", or part of one with *"
            ),
            FilterError::NotAnAddress(text) => {
                write!(f, "{text:?} is neither an IP address nor an address with a prefix length")
            }
            FilterError::NotAQpn(text) => {
                write!(f, "{text:?} is not a QP number: give up to 24 bits, decimal or as 0x and hexadecimal")
            }
        }
    }
}

impl std::error::Error for FilterError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_ignore_case_and_backtrack() {
        assert!(glob(b"rc send*", b"RC SEND First"));
        assert!(glob(b"*read*only", b"RC RDMA READ Response Only"));
        assert!(glob(b"send ?nly", b"SEND Only"));
        assert!(glob(b"*a*b*c", b"aabbcc"));
        assert!(!glob(b"*a*b*d", b"aabbcc"));
        assert!(!glob(b"send", b"SEND Only"));
        assert!(glob(b"", b"") && glob(b"*", b"") && !glob(b"?", b""));
    }

    #[test]
    fn patterns_that_match_nothing_are_refused() {
        assert_eq!("0x11".parse(), Ok(OpcodePattern::Number(0x11)));
        assert!("RDMA WRITE*".parse::<OpcodePattern>().is_ok());
        assert!("cm req".parse::<OpcodePattern>().is_ok());
        assert!("nak*".parse::<OpcodePattern>().is_ok());
        let error = "SEMD*".parse::<OpcodePattern>().unwrap_err();
        assert!(error.to_string().contains("no opcode is called \"SEMD*\""), "{error}");
        assert!("300".parse::<OpcodePattern>().is_err());
    }

    #[test]
    fn addresses_and_prefixes() {
        let net: AddressPattern = "10.1.0.0/16".parse().unwrap();
        assert!(net.contains("10.1.2.3".parse().unwrap()) && !net.contains("10.2.2.3".parse().unwrap()));
        let one: AddressPattern = "fe80::1".parse().unwrap();
        assert!(one.contains("fe80::1".parse().unwrap()) && !one.contains("fe80::2".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<AddressPattern>().unwrap().contains("1.2.3.4".parse().unwrap()));
        for bad in ["10.1", "10.0.0.0/33", "x/8", "10.0.0.0/"] {
            assert!(bad.parse::<AddressPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn qpns() {
        assert_eq!(parse_qpn("0x11"), Ok(Qpn::new(17)));
        assert_eq!(parse_qpn("17"), Ok(Qpn::new(17)));
        for bad in ["", "0x", "16777216", "qp"] {
            assert!(parse_qpn(bad).is_err(), "{bad}");
        }
    }
}
