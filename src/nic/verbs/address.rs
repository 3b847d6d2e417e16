//! Address vectors.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use softrnic_transport::{Path, QpType};
use softrnic_wire::{Gid, Qpn, default_flow_label, flow_label_to_sport, rxe_qpn_to_sport};

use softrnic_engine::{ControlError, GidTable};

/// The path to a peer, as verbs describe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// The peer's GID.
    pub dgid: Gid,
    /// The index of our own GID in the GID table.
    pub sgid_index: usize,
    /// Flow label; if 0, we choose one. It determines the UDP source port.
    pub flow_label: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL of multicast packets; unicast packets have the system's.
    pub hop_limit: u8,
}

/// TTL of unicast packets: like the kernel, we replace the application's value by the route's.
const UNICAST_TTL: u8 = 64;

impl AddressVector {
    /// To a peer's address, from index 0 of our GID table.
    pub fn to(address: IpAddr) -> AddressVector {
        AddressVector {
            dgid: Gid::from(address),
            sgid_index: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: UNICAST_TTL,
        }
    }

    /// The resulting header fields.
    pub(crate) fn resolve(
        &self,
        gids: &GidTable,
        service: QpType,
        local: Qpn,
        remote: Qpn,
    ) -> Result<Path, ControlError> {
        if gids.is_v1(self.sgid_index) {
            return Err(ControlError::Invalid(
                "sgid_index is that of a GID for RoCE v1, which SoftRNIC does not speak",
            ));
        }
        let src = gids
            .meant(self.sgid_index)
            .ok_or(ControlError::Invalid("sgid_index is empty in the GID table"))?;
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

/// Counts the address handles of a device.
pub(crate) struct HandleCount {
    live: Arc<AtomicUsize>,
    most: usize,
}

/// One counted address handle.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl HandleCount {
    pub(crate) fn new(most: usize) -> HandleCount {
        HandleCount { live: Arc::default(), most }
    }

    /// Counts one more, until it is dropped, unless the limit is reached.
    pub(crate) fn take(&self) -> Result<Counted, ControlError> {
        let more = |live| (live < self.most).then_some(live + 1);
        match self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Counted(self.live.clone())),
            Err(_) => Err(ControlError::NoMemory),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A resolved address vector, for datagrams to one peer.
#[derive(Debug)]
pub struct AddressHandle {
    path: Path,
    /// Whether the source port follows the sending QP, because the address vector has no flow label.
    by_qpn: bool,
    _counted: Counted,
}

impl AddressHandle {
    pub(crate) fn new(
        address: &AddressVector,
        gids: &GidTable,
        counted: Counted,
    ) -> Result<AddressHandle, ControlError> {
        let path = address.resolve(gids, QpType::Ud, Qpn::new(0), Qpn::new(0))?;
        Ok(AddressHandle { path, by_qpn: address.flow_label == 0, _counted: counted })
    }

    /// The path of datagrams from a QP.
    pub fn path(&self, local: Qpn) -> Path {
        match self.by_qpn {
            true => Path { sport: rxe_qpn_to_sport(local), ..self.path },
            false => self.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_handle_beyond_the_limit_is_refused_until_another_is_destroyed() {
        let count = HandleCount::new(2);
        let (first, _second) = (count.take().expect("the first"), count.take().expect("the second"));
        assert!(matches!(count.take(), Err(ControlError::NoMemory)));
        drop(first);
        let _third = count.take().expect("a place is free");
        assert!(matches!(count.take(), Err(ControlError::NoMemory)));
    }
}
