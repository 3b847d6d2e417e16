//! What the QPs of an engine have in common while they are driven.

use rustc_hash::FxHashMap;
use softrnic_transport::Counter;
use softrnic_wire::Srqn;

use super::host::Staged;
use super::objects::{Event, SrqKey, XrcdKey};

/// Outputs that wait for the end of the step, counters, and the directory of XRC receive queues.
pub struct Shared {
    pub staged: Vec<Staged>,
    pub events: Vec<Event>,
    pub counters: [u64; Counter::ALL.len()],
    pub xrc_srqs: FxHashMap<Srqn, (SrqKey, XrcdKey)>,
}

impl Shared {
    pub fn new() -> Shared {
        Shared {
            staged: Vec::new(),
            events: Vec::new(),
            counters: [0; Counter::ALL.len()],
            xrc_srqs: FxHashMap::default(),
        }
    }

    /// The XRC SRQ with this number, if it is of the QP's domain.
    pub fn xrc_srq(&self, srqn: Srqn, xrcd: Option<XrcdKey>) -> Option<SrqKey> {
        let &(key, domain) = self.xrc_srqs.get(&srqn)?;
        (Some(domain) == xrcd).then_some(key)
    }
}
