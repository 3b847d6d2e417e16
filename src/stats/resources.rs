//! The objects that programs have created on a NIC, as the kernel lists them (`rdma resource`).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Objects of a device at one moment, and what identifies the device.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Resources {
    /// The GUID of the device, in host order.
    pub node_guid: u64,
    /// The index of its network interface.
    pub interface_index: u32,
    /// The name of its network interface.
    pub interface: String,
    /// How often it is open.
    pub contexts: usize,
    /// Protection domains.
    pub pds: Vec<PdSnapshot>,
    /// Completion queues.
    pub cqs: Vec<CqSnapshot>,
    /// Memory regions; no more than [`MOST_REGIONS`].
    pub mrs: Vec<MrSnapshot>,
    /// Shared receive queues.
    pub srqs: Vec<SrqSnapshot>,
    /// The owners of the queue pairs, by number.
    pub qps: Vec<QpOwnersSnapshot>,
    /// Identifiers of rdma_cm.
    pub cm_ids: Vec<CmIdSnapshot>,
}

/// Memory regions that are listed.
pub const MOST_REGIONS: usize = 1 << 17;

/// A protection domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PdSnapshot {
    pub pdn: u32,
    pub users: u64,
}

/// A completion queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CqSnapshot {
    pub cqn: u32,
    /// Its entries.
    pub cqe: u32,
    pub users: u64,
    /// Completions that nobody has polled.
    #[serde(default)]
    pub waiting: u64,
    /// Whether the next one raises an event, if it reports to a channel.
    #[serde(default)]
    pub armed: Option<bool>,
}

/// A memory region.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MrSnapshot {
    pub mrn: u32,
    pub lkey: u32,
    pub rkey: u32,
    pub iova: u64,
    pub length: u64,
    pub pdn: u32,
}

/// A shared receive queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SrqSnapshot {
    pub srqn: u32,
    pub pdn: u32,
    /// The completion queue of an XRC one.
    pub xrc_cqn: Option<u32>,
}

/// What a queue pair belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct QpOwnersSnapshot {
    pub qpn: u32,
    pub pdn: u32,
    pub srqn: Option<u32>,
}

/// An identifier of rdma_cm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CmIdSnapshot {
    /// Its number.
    pub number: u32,
    /// Its state, as the kernel names it.
    pub state: String,
    /// Its port space.
    pub space: String,
    /// Service of its queue pair.
    pub service: String,
    /// Its queue pair, 0 until it has said which.
    pub qpn: u32,
    /// Where it is bound.
    pub local: Option<SocketAddr>,
    /// Where its peer is.
    pub peer: Option<SocketAddr>,
}

impl Resources {
    /// In an order of their own, each once, and nothing that is more than a line of text.
    pub(super) fn tame(&mut self, plain: impl Fn(&mut String)) {
        plain(&mut self.interface);
        for id in &mut self.cm_ids {
            [&mut id.state, &mut id.space, &mut id.service].into_iter().for_each(&plain);
        }
        sort_by(&mut self.pds, |pd| pd.pdn);
        sort_by(&mut self.cqs, |cq| cq.cqn);
        sort_by(&mut self.mrs, |mr| mr.mrn);
        sort_by(&mut self.srqs, |srq| srq.srqn);
        sort_by(&mut self.qps, |qp| qp.qpn);
        sort_by(&mut self.cm_ids, |id| id.number);
    }
}

fn sort_by<T>(objects: &mut Vec<T>, number: impl Fn(&T) -> u32) {
    objects.sort_by_key(&number);
    objects.dedup_by_key(|object| number(object));
}
