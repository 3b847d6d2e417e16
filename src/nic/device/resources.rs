//! The objects of a NIC, for those who ask closely.

use std::net::IpAddr;

use softrnic_engine::{CqStatus, QpOwners, SrqStatus};
use softrnic_memory::RegionInfo;
use softrnic_netdev::Host;
use softrnic_stats::{
    CqSnapshot, MOST_REGIONS, MrSnapshot, PdSnapshot, QpOwnersSnapshot, Resources, SrqSnapshot,
};

use super::{Core, Nic};

/// Objects that are read during one hold of the NIC.
const PART: usize = 1024;

/// The interface of all addresses that belong to no other, in every network namespace.
const LOOPBACK: (u32, &str) = (1, "lo");

/// All objects; none if the device has failed. Each is shown as it was at one moment, but not all at the same moment.
pub(super) fn take(nic: &Nic) -> Option<Resources> {
    let mut resources = Resources::default();
    let (addresses, identifiers) = {
        let mut guard = nic.core.lock().ok()?;
        identify(&mut resources, &mut guard);
        let addresses: Vec<IpAddr> = guard.engine.gids().addresses().collect();
        (addresses, guard.connections.clone())
    };
    (resources.interface_index, resources.interface) = interface_of(&addresses);
    resources.cqs = list(nic, |core, done| core.engine.cqs().skip(done).take(PART).map(cq).collect())?;
    resources.srqs = list(nic, |core, done| core.engine.srqs().skip(done).take(PART).map(srq).collect())?;
    resources.qps = list(nic, |core, done| core.engine.qp_owners().skip(done).take(PART).map(qp).collect())?;
    resources.mrs = list(nic, |core, done| {
        let part = PART.min(MOST_REGIONS.saturating_sub(done));
        core.engine.memory().regions().skip(done).take(part).map(mr).collect()
    })?;
    resources.cm_ids = identifiers.map(|sink| sink.identifiers()).unwrap_or_default();
    Some(resources)
}

/// Holds the NIC again for each part, so that other threads do not wait long.
fn list<T>(nic: &Nic, mut part: impl FnMut(&mut Core, usize) -> Vec<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    loop {
        let some = part(&mut *nic.core.lock().ok()?, all.len());
        let is_last = some.len() < PART;
        all.extend(some);
        if is_last {
            return Some(all);
        }
    }
}

fn interface_of(addresses: &[IpAddr]) -> (u32, String) {
    let host = Host::open().ok();
    let owner = host.as_ref().and_then(|host| {
        let index = addresses.iter().find_map(|address| host.owner(*address))?;
        Some((index, host.interface(index)?.name.clone()))
    });
    owner.unwrap_or((LOOPBACK.0, LOOPBACK.1.to_owned()))
}

fn identify(resources: &mut Resources, core: &mut Core) {
    resources.node_guid = core.engine.management().map_or(0, |management| management.ca_guid());
    resources.contexts = core.routes.everyone().len();
    let pds = core.engine.memory().pds();
    resources.pds = pds.map(|(pd, users)| PdSnapshot { pdn: pd.get(), users }).collect();
}

fn cq(cq: CqStatus) -> CqSnapshot {
    CqSnapshot {
        cqn: cq.number,
        cqe: cq.capacity.try_into().unwrap_or(u32::MAX),
        users: cq.users as u64,
        waiting: cq.waiting as u64,
        armed: cq.armed,
    }
}

fn srq(srq: SrqStatus) -> SrqSnapshot {
    SrqSnapshot { srqn: srq.srqn.get(), pdn: srq.pd.get(), xrc_cqn: srq.xrc_cq }
}

fn qp(qp: QpOwners) -> QpOwnersSnapshot {
    let srqn = qp.srqn.map(|srqn| srqn.get());
    QpOwnersSnapshot { qpn: qp.qpn.get(), pdn: qp.pd.get(), srqn }
}

fn mr(region: RegionInfo) -> MrSnapshot {
    MrSnapshot {
        // What stays the same while the application changes the tag of a key.
        mrn: region.keys.lkey.0 >> 8,
        lkey: region.keys.lkey.0,
        rkey: region.keys.rkey.0,
        iova: region.iova,
        length: region.length,
        pdn: region.pd.get(),
    }
}
