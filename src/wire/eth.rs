//! Ethernet II headers with up to two VLAN tags.

use core::fmt;

use crate::bytes::{Reader, Writer};

/// A 48-bit hardware address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones.
    pub const BROADCAST: MacAddr = MacAddr([0xFF; 6]);

    /// Whether the group bit is set; true of the broadcast address too.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What follows an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Internet protocol, version 4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Internet protocol, version 6.
    pub const IPV6: EtherType = EtherType(0x86DD);
    /// A customer VLAN tag (802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// A service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: EtherType = EtherType(0x88A8);
    /// RoCE version 1.
    pub const ROCE_V1: EtherType = EtherType(0x8915);

    const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN)
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanTag {
    /// Kind of tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tpid: EtherType,
    /// Priority (3 bits), drop eligibility (1 bit) and VLAN id (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// An 802.1Q tag with priority `pcp` (low three bits) for VLAN `id` (low twelve bits).
    pub const fn new(id: u16, pcp: u8) -> VlanTag {
        VlanTag { tpid: EtherType::VLAN, tci: ((pcp & 7) as u16) << 13 | (id & 0xFFF) }
    }

    /// VLAN id, below 4096.
    pub const fn id(self) -> u16 {
        self.tci & 0xFFF
    }

    /// Priority, below 8.
    pub const fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }
}

/// Addresses and VLAN tags of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct EthHeader {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// The tag nearest the payload, the only one in a frame that has one.
    pub vlan: Option<VlanTag>,
    /// The tag before `vlan` in a doubly tagged frame; ignored when `vlan` is `None`.
    pub outer_vlan: Option<VlanTag>,
}

impl EthHeader {
    /// An untagged header.
    pub const fn untagged(dst: MacAddr, src: MacAddr) -> EthHeader {
        EthHeader { dst, src, vlan: None, outer_vlan: None }
    }

    /// Bytes on the wire: 14, 18 or 22.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        match (self.vlan, self.outer_vlan) {
            (None, _) => 14,
            (Some(_), None) => 18,
            (Some(_), Some(_)) => 22,
        }
    }

    /// Reads addresses, up to two tags and the type of what follows. `None` when too short.
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<(EthHeader, EtherType)> {
        let mut eth = EthHeader::untagged(MacAddr(*r.take()?), MacAddr(*r.take()?));
        let mut ether_type = EtherType(r.u16()?);
        for _ in 0..2 {
            if !ether_type.is_vlan() {
                break;
            }
            eth.outer_vlan = eth.vlan;
            eth.vlan = Some(VlanTag { tpid: ether_type, tci: r.u16()? });
            ether_type = EtherType(r.u16()?);
        }
        Some((eth, ether_type))
    }

    #[inline]
    pub(crate) fn write(&self, ether_type: EtherType, w: &mut Writer<'_>) {
        w.put(self.dst.0);
        w.put(self.src.0);
        if let Some(inner) = self.vlan {
            for tag in [self.outer_vlan, Some(inner)].into_iter().flatten() {
                w.u16(tag.tpid.0);
                w.u16(tag.tci);
            }
        }
        w.u16(ether_type.0);
    }
}
