//! Parameters of identifiers and of their connections.

use softrnic_cm::Ece;
use softrnic_transport::QpType;
use softrnic_wire::{Gid, Mtu, PortSpace, Qkey, Qpn};

use super::address::Address;
use super::devices::DeviceIdentity;
use softrnic_nic::verbs::AddressVector;

/// What an identifier is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdKind {
    /// Port space.
    pub space: PortSpace,
    /// Service of its QPs.
    pub service: QpType,
}

impl IdKind {
    /// Reliable connections in the port space of TCP.
    pub const CONNECTED: IdKind = IdKind { space: PortSpace::Tcp, service: QpType::Rc };

    /// Datagrams in the port space of UDP.
    pub const DATAGRAM: IdKind = IdKind { space: PortSpace::Udp, service: QpType::Ud };
}

/// What one side says about a connection. In an event the values are from the receiver's point of view:
/// `responder_resources` is the most READs that this side will execute at once, and `private` is as long as the field
/// of the message, padded with zeros.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ConnParams {
    /// The QP.
    pub qpn: Qpn,
    /// The QP's Q_Key, for datagram services; 0 stands for the identifier's.
    pub qkey: Qkey,
    /// Private data for the other application.
    pub private: Vec<u8>,
    /// The QP receives into an SRQ.
    pub srq: bool,
    /// READs and atomics of the peer that are executed at once.
    pub responder_resources: u8,
    /// READs and atomics to be outstanding.
    pub initiator_depth: u8,
    /// ACK credits are honoured.
    pub flow_control: bool,
    /// Retries, at most 7.
    pub retry_count: u8,
    /// Retries after RNR NAKs, at most 7; 7 means for ever.
    pub rnr_retry: u8,
    /// Vendor options.
    pub ece: Ece,
}

/// What an event says about a datagram service or a multicast group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdParams {
    /// The QP; 0xFFFFFF for groups.
    pub qpn: Qpn,
    /// The key that admits datagrams to it.
    pub qkey: Qkey,
    /// The path to it.
    pub address: Option<AddressVector>,
    /// Private data from the other application, as long as the field.
    pub private: Vec<u8>,
}

/// An option of an identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IdOption {
    /// TOS, or traffic class, of its packets.
    TypeOfService(u8),
    /// The port may be bound again while it has no listener.
    ReuseAddress(bool),
    /// `::` does not include IPv4.
    OneFamily(bool),
    /// Exponent of the QP's ACK timeout; RC and XRC only.
    AckTimeout(u8),
    /// Sets the path, which resolves the route.
    Path(Vec<PathRecord>),
}

/// A path, as a subnet administrator would describe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathRecord {
    /// The peer's GID.
    pub dgid: Gid,
    /// Our GID.
    pub sgid: Gid,
    /// 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Partition.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// Path MTU.
    pub mtu: Mtu,
    /// Exponent: how long packets live.
    pub packet_life: u8,
}

/// What is known about an identifier.
#[derive(Clone, PartialEq, Debug)]
pub struct Query {
    /// What it is for.
    pub kind: IdKind,
    /// The device, once there is one. Its port is then 1.
    pub device: Option<DeviceIdentity>,
    /// Its own address; `None` before it is bound.
    pub local: Option<Address>,
    /// The peer's address. After binding it is of the same family, and zero.
    pub peer: Option<Address>,
    /// The device's GID, zero without a device.
    pub local_gid: Gid,
    /// The peer's GID, zero until it is resolved.
    pub peer_gid: Gid,
    /// Partition.
    pub pkey: u16,
    /// The path, once the route is resolved.
    pub path: Option<PathRecord>,
}
