//! Finds a RoCE packet inside what overlays and mirrors put around it: VXLAN, Geneve, GRE, ERSPAN, MPLS, IP in IP, more
//! tags than two, and IPv6 extension headers.
//!
//! This is the crate's own: of the parsers that are well kept, etherparse knows none of the tunnels, and pnet_packet no
//! Geneve, ERSPAN or MPLS.

use softrnic_wire::{EtherType, ROCE_UDP_PORT};

/// Where a packet is in the bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inner {
    /// Where its Ethernet frame begins, if `softrnic-wire` can read that as it is.
    pub frame: Option<usize>,
    /// Where its IP header begins.
    pub ip: usize,
    /// Bytes of IPv6 extension headers, which the ICRC does not cover.
    pub extensions: usize,
}

/// The header that comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Ethernet,
    Typed(u16),
    Ip(Protocol),
}

/// What an IP packet carries; the number of IANA's registry.
type Protocol = u8;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const BRIDGED: u16 = 0x6558;
const ERSPAN_1_2: u16 = 0x88BE;
const ERSPAN_3: u16 = 0x22EB;
const GRE: Protocol = 47;
const UDP: Protocol = 17;

/// Headers looked at; nobody nests more.
const DEEPEST: usize = 32;
/// VLAN tags that `softrnic-wire` reads.
const TAGS: usize = 2;

/// Looks for a packet in `bytes`, which begin with an Ethernet header.
pub(super) fn find(bytes: &[u8]) -> Option<Inner> {
    let mut walk = Walk { bytes, at: 0, frame: None, tags: 0, ip: 0, extensions: 0 };
    let mut next = Next::Ethernet;
    for _ in 0..DEEPEST {
        next = match next {
            Next::Ethernet => walk.ethernet()?,
            Next::Typed(ether_type) => walk.typed(ether_type)?,
            Next::Ip(UDP) => match walk.udp()? {
                Some(next) => next,
                None => return Some(walk.found()),
            },
            Next::Ip(protocol) => walk.protocol(protocol)?,
        };
    }
    None
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The Ethernet header that is next around the IP header.
    frame: Option<usize>,
    tags: usize,
    ip: usize,
    extensions: usize,
}

impl Walk<'_> {
    fn found(&self) -> Inner {
        let frame = self.frame.filter(|_| self.tags <= TAGS && self.extensions == 0);
        Inner { frame, ip: self.ip, extensions: self.extensions }
    }

    /// The next `N` bytes.
    fn peek<const N: usize>(&self) -> Option<&[u8; N]> {
        self.bytes.get(self.at..)?.first_chunk()
    }

    fn word(&self, after: usize) -> Option<u16> {
        let bytes = self.bytes.get(self.at + after..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }

    fn ethernet(&mut self) -> Option<Next> {
        let ether_type = self.word(12)?;
        (self.frame, self.tags) = (Some(self.at), 0);
        self.at += 14;
        Some(Next::Typed(ether_type))
    }

    fn typed(&mut self, ether_type: u16) -> Option<Next> {
        match ether_type {
            0x8100 | 0x88A8 | 0x9100 | 0x9200 => {
                let next = self.word(2)?;
                // Those with other numbers than the standard's are beyond what is read.
                self.tags += if matches!(ether_type, 0x8100 | 0x88A8) { 1 } else { TAGS + 1 };
                self.at += 4;
                Some(Next::Typed(next))
            }
            IPV4 => self.ipv4(),
            IPV6 => self.ipv6(),
            0x8847 | 0x8848 => self.mpls(),
            BRIDGED => Some(Next::Ethernet),
            _ => None,
        }
    }

    fn ipv4(&mut self) -> Option<Next> {
        let header = self.peek::<20>()?;
        let (len, fragment) = (usize::from(header[0] & 0xF) * 4, self.word(6)? & 0x3FFF);
        let protocol = header[9];
        if header[0] >> 4 != 4 || len < 20 || fragment != 0 {
            return None;
        }
        (self.ip, self.extensions) = (self.at, 0);
        self.at += len;
        Some(Next::Ip(protocol))
    }

    fn ipv6(&mut self) -> Option<Next> {
        let header = self.peek::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut protocol = header[6];
        (self.ip, self.extensions) = (self.at, 0);
        self.at += 40;
        // Hop-by-hop options, routing, destination options; each names the next and its own length.
        while matches!(protocol, 0 | 43 | 60) {
            let [next, len] = *self.peek::<2>()?;
            let len = (usize::from(len) + 1) * 8;
            protocol = next;
            self.at += len;
            self.extensions += len;
        }
        Some(Next::Ip(protocol))
    }

    /// What the IP packet carries that is not UDP.
    fn protocol(&mut self, protocol: Protocol) -> Option<Next> {
        self.frame = None;
        match protocol {
            4 => Some(Next::Typed(IPV4)),
            41 => Some(Next::Typed(IPV6)),
            137 => self.mpls(),
            GRE => self.gre(),
            _ => None,
        }
    }

    /// What the datagram carries; `Some(None)` for RoCE.
    #[allow(clippy::option_option, reason = "found, something else, or nothing that is known")]
    fn udp(&mut self) -> Option<Option<Next>> {
        let port = self.word(2)?;
        if port == ROCE_UDP_PORT {
            return Some(None);
        }
        self.at += 8;
        self.frame = None;
        let header = *self.peek::<8>()?;
        match port {
            // VXLAN, and the port that Linux took before there was one.
            4789 | 8472 if header[0] & 8 != 0 => {
                self.at += 8;
                Some(Some(Next::Ethernet))
            }
            // Geneve.
            6081 if header[0] >> 6 == 0 => {
                self.at += 8 + usize::from(header[0] & 0x3F) * 4;
                Some(Some(Next::Typed(u16::from_be_bytes([header[2], header[3]]))))
            }
            6635 => self.mpls().map(Some),
            _ => None,
        }
    }

    fn gre(&mut self) -> Option<Next> {
        let (flags, carries) = (self.word(0)?, self.word(2)?);
        // Source routes, and the versions that are not GRE.
        if flags & 0x4007 != 0 {
            return None;
        }
        // Checksum, key and sequence number, four bytes each.
        self.at += 4 + 4 * (flags & 0xB000).count_ones() as usize;
        let is_numbered = flags & 0x1000 != 0;
        match carries {
            ERSPAN_1_2 => {
                // Type I has no header, and no sequence number.
                self.at += if is_numbered { 8 } else { 0 };
                Some(Next::Ethernet)
            }
            ERSPAN_3 => {
                let has_more = self.peek::<12>()?[11] & 1 != 0;
                self.at += if has_more { 20 } else { 12 };
                Some(Next::Ethernet)
            }
            carries => Some(Next::Typed(carries)),
        }
    }

    fn mpls(&mut self) -> Option<Next> {
        loop {
            let label = *self.peek::<4>()?;
            self.at += 4;
            if label[2] & 1 != 0 {
                break;
            }
        }
        // No label says what it carries.
        self.frame = None;
        match self.peek::<1>()?[0] >> 4 {
            4 => Some(Next::Typed(IPV4)),
            6 => Some(Next::Typed(IPV6)),
            0 => {
                // The control word of a pseudowire (RFC 4385).
                self.at += 4;
                Some(Next::Ethernet)
            }
            _ => Some(Next::Ethernet),
        }
    }
}

impl Inner {
    /// Lays the packet out behind an Ethernet header that is made up, without its extension headers. Returns how many of
    /// the bytes up to `captured` are in there.
    pub fn lay_out(&self, bytes: &[u8], captured: usize, into: &mut Vec<u8>) -> usize {
        let ip = &bytes[self.ip..];
        let is_v6 = ip[0] >> 4 == 6;
        let (ether_type, header) = if is_v6 { (EtherType::IPV6, 40) } else { (EtherType::IPV4, ip.len()) };
        into.clear();
        into.resize(12, 0);
        into.extend_from_slice(&ether_type.0.to_be_bytes());
        into.extend_from_slice(&ip[..header]);
        if is_v6 {
            let shorter = u16::from_be_bytes([ip[4], ip[5]]).saturating_sub(self.extensions as u16);
            into[14 + 4..14 + 6].copy_from_slice(&shorter.to_be_bytes());
            into[14 + 6] = UDP;
            into.extend_from_slice(&ip[header + self.extensions..]);
        }
        (captured + 14).saturating_sub(self.ip + self.extensions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_bytes_end_the_search() {
        for fill in 0..=255u8 {
            for len in 0..200 {
                let mut bytes = vec![fill; len];
                find(&bytes);
                // Each kind of header, and then the same byte for ever.
                for ether_type in [IPV4, IPV6, 0x8847, 0x9100, BRIDGED] {
                    if let Some(place) = bytes.get_mut(12..14) {
                        place.copy_from_slice(&ether_type.to_be_bytes());
                    }
                    find(&bytes);
                }
            }
        }
    }
}
