//! A link that prints what passes, in readable lines, when `SOFTRNIC_TRACE` is set. It can also hide IPv4 IDs.

use std::collections::HashSet;
use std::net::IpAddr;

use softrnic_link::{Capabilities, Datagram, Flow, HeaderId, Link, Overrun, TxError, TxSlot, delegate_link};
use softrnic_script::describe;
use softrnic_wire::{IpFacts, ROCE_UDP_PORT, Time, UdpFacts, verify, verify_unknown_id};

/// See the [module](self).
pub struct Tap {
    link: Box<dyn Link>,
    address: IpAddr,
    on: bool,
    to: Option<IpAddr>,
    hiding: Option<Hiding>,
}

/// Hides the IP headers of a link that sees them, as a socket does.
struct Hiding {
    capabilities: Capabilities,
    /// Senders of which a sound packet has come.
    known: HashSet<(IpAddr, u16)>,
    damage: Damage,
}

/// Damaged packets that came without their ID.
#[derive(Clone, Copy, Default, Debug)]
pub struct Damage {
    /// Packets.
    pub packets: u64,
    /// Those of senders that the NIC did not know yet.
    pub of_strangers: u64,
    /// Those of them that some ID explains. A NIC takes them for sound (docs/decisions/0001-hidden-ids.md), but no model
    /// of the traffic could know what they do. So the tap drops them.
    pub explained: u64,
}

impl Damage {
    /// Adds those of another link.
    pub fn add(&mut self, other: Damage) {
        self.packets += other.packets;
        self.of_strangers += other.of_strangers;
        self.explained += other.explained;
    }
}

impl Tap {
    /// Wraps the link of the NIC at `address`.
    pub fn new(link: Box<dyn Link>, address: IpAddr) -> Tap {
        Tap { link, address, on: std::env::var_os("SOFTRNIC_TRACE").is_some(), to: None, hiding: None }
    }

    /// Hides IP headers from now on. The link below must see them.
    pub fn hide_headers(&mut self) {
        let below = self.link.capabilities();
        assert!(below.sees_ip_header, "the tap cannot tell what is damaged");
        let capabilities = Capabilities { sees_ip_header: false, ..below.clone() };
        self.hiding = Some(Hiding { capabilities, known: HashSet::new(), damage: Damage::default() });
    }

    /// What came damaged while headers were hidden.
    pub fn damage(&self) -> Damage {
        self.hiding.as_ref().map_or(Damage::default(), |hiding| hiding.damage)
    }
}

impl Hiding {
    /// The datagram without its header; `None` for a damaged one that the NIC would accept.
    fn hide<'a>(&mut self, datagram: Datagram<'a>) -> Option<Datagram<'a>> {
        let Datagram { src, dst, sport, bytes, .. } = datagram;
        let (HeaderId::Seen { id, flags }, IpAddr::V4(from), IpAddr::V4(to)) = (datagram.id, src, dst) else {
            return Some(Datagram { ip_header: None, ..datagram });
        };
        let ip = IpFacts::V4 { src: from, dst: to, id, flags_frag: flags };
        let facts = UdpFacts { ip, src_port: sport, dst_port: ROCE_UDP_PORT };
        if verify(&facts, bytes) {
            self.known.insert((src, sport));
        } else {
            let is_stranger = !self.known.contains(&(src, sport));
            let is_explained = is_stranger && verify_unknown_id(&facts, bytes).is_some();
            let (of_strangers, explained) = (is_stranger.into(), is_explained.into());
            self.damage.add(Damage { packets: 1, of_strangers, explained });
            if is_explained {
                return None;
            }
        }
        Some(Datagram { id: HeaderId::Hidden { place: 0 }, ip_header: None, ..datagram })
    }
}

impl Link for Tap {
    fn capabilities(&self) -> &Capabilities {
        self.hiding.as_ref().map_or(self.link.capabilities(), |hiding| &hiding.capabilities)
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.to = Some(flow.dst);
        self.link.reserve(now, flow, len)
    }

    fn commit(&mut self, now: Time) {
        if let (true, Some(to)) = (self.on, self.to) {
            let line = describe(self.link.reserved());
            eprintln!("{:>12} {} -> {to}: {line}", now.as_nanos(), self.address);
        }
        self.link.commit(now);
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        let Tap { link, address: to, on, hiding, .. } = self;
        link.receive(now, budget, &mut |datagram| {
            if *on {
                let (from, line) = (datagram.src, describe(datagram.bytes));
                eprintln!("{:>12} {to} <- {from}: {line}", now.as_nanos());
            }
            match hiding {
                Some(hiding) => hiding.hide(datagram).into_iter().for_each(&mut *sink),
                None => sink(datagram),
            }
        })
    }

    delegate_link!(self => self.link;
        reserved flush is_blocked poll_timeout descriptor join leave counters
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use softrnic_wire::{BTH_LEN, DF, ICRC_LEN, seal};

    /// All changes of one byte, the fifth of the BTH excepted: the ICRC does not cover that one.
    #[test]
    fn an_id_explains_at_most_one_in_1600_changes_of_a_byte() {
        let facts = UdpFacts {
            ip: IpFacts::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), id: 7, flags_frag: DF },
            src_port: 0xC000,
            dst_port: ROCE_UDP_PORT,
        };
        for len in (BTH_LEN + ICRC_LEN..=160).step_by(4).chain([272, 1040]) {
            let mut packet = vec![0x5A; len];
            seal(&facts, &mut packet);
            let places = (0..len).filter(|&at| at != 4);
            let mut explains = |at: usize, change| {
                packet[at] ^= change;
                let is_explained = verify_unknown_id(&facts, &packet).is_some();
                packet[at] ^= change;
                is_explained
            };
            let explained: usize =
                places.map(|at| (1..=255).filter(|&change| explains(at, change)).count()).sum();
            let changes = (len - 1) * 255;
            assert!(1600 * explained <= changes, "{explained} of {changes}, {len} bytes");
            assert_eq!(explained > 0, len >= 96, "the ICRC detects two short bursts in a short packet");
        }
    }
}
