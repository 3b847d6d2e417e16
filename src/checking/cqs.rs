//! The completion queues that are alive.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use softrnic_nic::device::CqKey;
use softrnic_nic::verbs::Cq;

/// What the NICs call them: a number of a NIC, and a key there.
type Identity = (u64, CqKey);

static CQS: LazyLock<Mutex<HashMap<Identity, Known>>> = LazyLock::new(Mutex::default);

/// A queue: the address by which the program names it, and the NIC's. Weak: the program destroys it.
type Known = (usize, Weak<Cq>);

fn known() -> MutexGuard<'static, HashMap<Identity, Known>> {
    CQS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue was made.
pub fn know_cq(address: usize, cq: &Arc<Cq>) {
    known().insert(cq.identity(), (address, Arc::downgrade(cq)));
}

/// An object was destroyed, which may be a queue.
pub fn forget_cq(address: usize) {
    known().retain(|_, (its, _)| *its != address);
}

/// The address of a queue.
pub fn address_of(identity: (u64, CqKey)) -> Option<usize> {
    known().get(&identity).map(|(address, _)| *address)
}

/// All of them.
pub(crate) fn all() -> Vec<(usize, Arc<Cq>)> {
    known().values().filter_map(|(address, cq)| Some((*address, cq.upgrade()?))).collect()
}
