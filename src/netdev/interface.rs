//! Network interfaces and their addresses.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage, LinkXdp, VlanProtocol,
    VlanQosMapping,
};
use softrnic_wire::{EtherType, MacAddr};

use super::ethtool;

const IFF_UP: u32 = libc::IFF_UP as u32;
const IFF_LOWER_UP: u32 = 1 << 16;
const IFF_NOARP: u32 = libc::IFF_NOARP as u32;

/// A network interface as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name, such as `eth0`.
    pub name: String,
    /// Hardware address; all zero where there is none.
    pub mac: MacAddr,
    /// Whether its frames have an Ethernet header.
    pub is_ethernet: bool,
    /// IP MTU in bytes.
    pub mtu: u32,
    /// Whether datagrams can pass.
    pub state: LinkState,
    /// Whether its neighbours have no hardware addresses to resolve.
    pub no_arp: bool,
    /// Its VLAN tag, if it is a VLAN on top of another interface.
    pub vlan: Option<Vlan>,
    /// Kind of a virtual interface: `veth`, `vlan`, `bridge`.
    pub kind: Option<String>,
    /// The bridge or bond that this interface is a port of.
    pub controller: Option<u32>,
    /// Receive queues it was created with; [`Interface::queues`] counts those in use.
    pub rx_queues: u32,
    /// Identifiers of attached XDP programs.
    pub xdp_programs: Vec<u32>,
}

/// Whether an interface can move datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkState {
    /// Up, with a carrier.
    Up,
    /// Set up, but without a carrier.
    NoCarrier,
    /// Switched off.
    AdminDown,
}

/// What a VLAN interface adds to frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vlan {
    /// The interface below.
    pub lower: u32,
    /// VLAN id, below 4096.
    pub id: u16,
    /// [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tpid: EtherType,
    /// Priority code points by socket priority 0 to 7.
    pub egress: [u8; 8],
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of the subnet prefix in bits.
    pub prefix_len: u8,
    /// The interface that has it.
    pub ifindex: u32,
}

/// Receive and transmit queues in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Receive queues.
    pub rx: u32,
    /// Transmit queues.
    pub tx: u32,
}

impl Interface {
    /// The queues in use, as `ethtool -l` shows them; one if the driver does not say.
    pub fn queues(&self) -> Queues {
        ethtool::queues(&self.name).unwrap_or(Queues { rx: 1, tx: 1 })
    }

    /// The driver's name, as `ethtool -i` shows it.
    ///
    /// # Errors
    /// Those of the ioctl; some virtual interfaces have no driver.
    pub fn driver(&self) -> io::Result<String> {
        ethtool::driver(&self.name)
    }

    /// Names of the offloads that are switched on, as `ethtool -k` shows them: `tx-udp-segmentation`.
    ///
    /// # Errors
    /// Those of the ioctls.
    pub fn offloads(&self) -> io::Result<Vec<String>> {
        ethtool::offloads(&self.name)
    }

    pub(super) fn from_message(message: &LinkMessage) -> Interface {
        let flags = message.header.flags.bits();
        let mut interface = Interface {
            index: message.header.index,
            name: String::new(),
            mac: MacAddr::default(),
            is_ethernet: matches!(
                message.header.link_layer_type,
                LinkLayerType::Ether | LinkLayerType::Loopback
            ),
            mtu: 0,
            state: match (flags & IFF_UP != 0, flags & IFF_LOWER_UP != 0) {
                (true, true) => LinkState::Up,
                (true, false) => LinkState::NoCarrier,
                (false, _) => LinkState::AdminDown,
            },
            no_arp: flags & IFF_NOARP != 0,
            vlan: None,
            kind: None,
            controller: None,
            rx_queues: 1,
            xdp_programs: Vec::new(),
        };
        let mut lower = None;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Address(bytes) => {
                    interface.mac = MacAddr(bytes.as_slice().try_into().unwrap_or_default());
                }
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Link(index) => lower = Some(*index),
                LinkAttribute::Controller(index) => interface.controller = Some(*index),
                LinkAttribute::NumRxQueues(queues) => interface.rx_queues = *queues,
                LinkAttribute::Xdp(xdp) => interface.xdp_programs = xdp_programs(xdp),
                LinkAttribute::LinkInfo(info) => {
                    for info in info {
                        match info {
                            LinkInfo::Kind(kind) => interface.kind = Some(kind.to_string()),
                            LinkInfo::Data(InfoData::Vlan(data)) => interface.vlan = Some(vlan(data)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        // The data of a VLAN means nothing without the kind, and the interface below is a separate attribute.
        let is_vlan = interface.kind.as_deref() == Some(&InfoKind::Vlan.to_string());
        interface.vlan = match (is_vlan, lower, interface.vlan.take()) {
            (true, Some(lower), Some(vlan)) => Some(Vlan { lower, ..vlan }),
            _ => None,
        };
        interface
    }
}

impl Vlan {
    /// The priority code point that the kernel assigns to packets with this TOS or traffic class.
    pub fn pcp(&self, tos: u8) -> u8 {
        // rt_tos2priority() of include/net/route.h and ip_tos2prio of net/ipv4/route.c: best effort,
        // bulk, interactive, interactive bulk.
        let priority = [0, 2, 6, 4][usize::from(tos >> 3 & 3)];
        self.egress[priority]
    }
}

impl Address {
    /// `None` for an address that must not be used: a duplicate, or one not yet checked for duplicates.
    pub(super) fn from_message(message: &AddressMessage) -> Option<Address> {
        let mut own = None;
        let mut peer = None;
        let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
        if message.header.flags.intersects(unusable)
            && !message.header.flags.contains(AddressHeaderFlags::Optimistic)
        {
            return None;
        }
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => own = Some(*ip),
                AddressAttribute::Address(ip) => peer = Some(*ip),
                _ => {}
            }
        }
        let ip = own.or(peer)?;
        Some(Address { ip, prefix_len: message.header.prefix_len, ifindex: message.header.index })
    }

    /// The address of an address message, usable or not.
    pub(super) fn key(message: &AddressMessage) -> Option<(u32, IpAddr)> {
        let mut message = message.clone();
        message.header.flags = AddressHeaderFlags::empty();
        Address::from_message(&message).map(|address| (address.ifindex, address.ip))
    }
}

/// Whether an IPv6 address is in `fe80::/10`, and so is only meaningful on one interface.
pub(super) fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xFFC0 == 0xFE80
}

fn xdp_programs(attributes: &[LinkXdp]) -> Vec<u32> {
    let mut programs: Vec<u32> = attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) | LinkXdp::HwProgId(id) => {
                Some(*id)
            }
            _ => None,
        })
        .filter(|id| *id != 0)
        .collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}

fn vlan(data: &[InfoVlan]) -> Vlan {
    let mut vlan = Vlan { lower: 0, id: 0, tpid: EtherType::VLAN, egress: [0; 8] };
    for attribute in data {
        match attribute {
            InfoVlan::Id(id) => vlan.id = *id & 0xFFF,
            InfoVlan::Protocol(VlanProtocol::Ieee8021Ad) => vlan.tpid = EtherType::SERVICE_VLAN,
            InfoVlan::EgressQos(map) => {
                for mapping in map {
                    if let VlanQosMapping::Mapping(from, to) = mapping
                        && let Some(pcp) = vlan.egress.get_mut(*from as usize)
                    {
                        *pcp = (*to & 7) as u8;
                    }
                }
            }
            _ => {}
        }
    }
    vlan
}
