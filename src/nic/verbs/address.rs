//! Address vectors.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use softrnic_memory::PdId;
use softrnic_transport::{Path, QpType};
use softrnic_wire::{Gid, Qpn, default_flow_label, flow_label_to_sport, rxe_qpn_to_sport};

use super::context::Context;
use super::error::Error;
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
    /// Its number, on a device with SRD.
    numbered: Option<Numbered>,
}

/// The number of a handle, until it is dropped.
struct Numbered {
    number: u16,
    context: Context,
}

impl std::fmt::Debug for Numbered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.number.fmt(f)
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        // A device that has failed counts none.
        let _ = self.context.nic().control(|core, _| core.engine.remove_handle(self.number));
    }
}

impl AddressHandle {
    pub(crate) fn new(
        address: &AddressVector,
        gids: &GidTable,
        counted: Counted,
    ) -> Result<AddressHandle, ControlError> {
        let path = address.resolve(gids, QpType::Ud, Qpn::new(0), Qpn::new(0))?;
        Ok(AddressHandle { path, by_qpn: address.flow_label == 0, _counted: counted, numbered: None })
    }

    /// Gives it a number, the same as others to the same address.
    pub(crate) fn number(&mut self, context: &Context, pd: PdId) -> Result<(), Error> {
        let Path { src, dst, .. } = self.path;
        let number = context.nic().control(|core, _| core.engine.add_handle(pd, src, dst))??;
        self.numbered = Some(Numbered { number, context: context.clone() });
        Ok(())
    }

    /// Its number; none, if the device has no SRD.
    pub fn ahn(&self) -> Option<u16> {
        self.numbered.as_ref().map(|numbered| numbered.number)
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
