//! Address vectors.

use std::net::IpAddr;

use softrnic_transport::{Path, QpType};
use softrnic_wire::{Gid, Qpn, default_flow_label, flow_label_to_sport, rxe_qpn_to_sport};

use crate::engine::{ControlError, GidTable};

/// The way to a peer, as verbs describe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// The peer's GID.
    pub dgid: Gid,
    /// The place of our own in the GID table.
    pub sgid_index: usize,
    /// Flow label; 0 leaves the choice to us. It decides the UDP source port.
    pub flow_label: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL of multicast; unicast packets have the system's.
    pub hop_limit: u8,
}

/// TTL of unicast packets: the kernel replaces what the application says by the route's, and so do we.
const UNICAST_TTL: u8 = 64;

impl AddressVector {
    /// To a peer's address, from place 0 of our GID table.
    pub fn to(address: IpAddr) -> AddressVector {
        AddressVector {
            dgid: Gid::from(address),
            sgid_index: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: UNICAST_TTL,
        }
    }

    /// What goes on the wire.
    pub(crate) fn resolve(
        &self,
        gids: &GidTable,
        service: QpType,
        local: Qpn,
        remote: Qpn,
    ) -> Result<Path, ControlError> {
        let src = gids.get(self.sgid_index).ok_or(ControlError::Invalid("sgid_index names no address"))?;
        let dst = self.dgid.to_ip();
        if src.is_ipv4() != dst.is_ipv4() || dst.is_unspecified() {
            return Err(ControlError::Invalid("the destination GID is not of our address family"));
        }
        let sport = match (service, self.flow_label) {
            (QpType::Ud, 0) => rxe_qpn_to_sport(local),
            (_, 0) => flow_label_to_sport(default_flow_label(local, remote)),
            (_, label) => flow_label_to_sport(label),
        };
        let ttl = if dst.is_multicast() { self.hop_limit } else { UNICAST_TTL };
        Ok(Path { src, dst, sport, tos: self.traffic_class, ttl })
    }
}

/// A resolved address vector, for datagrams to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressHandle {
    path: Path,
    /// The source port follows the sending QP, because the address vector has no flow label.
    by_qpn: bool,
}

impl AddressHandle {
    pub(crate) fn new(address: &AddressVector, gids: &GidTable) -> Result<AddressHandle, ControlError> {
        let path = address.resolve(gids, QpType::Ud, Qpn::new(0), Qpn::new(0))?;
        Ok(AddressHandle { path, by_qpn: address.flow_label == 0 })
    }

    /// The way that datagrams of a QP take.
    pub fn path(&self, local: Qpn) -> Path {
        match self.by_qpn {
            true => Path { sport: rxe_qpn_to_sport(local), ..self.path },
            false => self.path,
        }
    }
}
