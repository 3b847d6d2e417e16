//! Counters, as `rdma statistic` shows them.

use std::collections::BTreeMap;

use crate::device::Device;
use crate::number::attribute::*;
use crate::reply::Attributes;

/// The counters of a port, summed over all processes that have it: those that there is `room` for, in bytes. All have room in
/// a message, as a test of `rdma` says.
pub fn counters(device: &Device<'_>, room: usize) -> Attributes {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, value) in device.running().flat_map(|snapshot| &snapshot.counters) {
        let sum = sums.entry(name).or_default();
        *sum = sum.wrapping_add(*value);
    }
    let mut table = Attributes::default();
    for (name, value) in sums {
        let mut entry = Attributes::default();
        entry.text(STAT_HWCOUNTER_ENTRY_NAME, name);
        entry.u64(STAT_HWCOUNTER_ENTRY_VALUE, value);
        if table.len() + entry.len() + 4 <= room {
            table.nest(STAT_HWCOUNTER_ENTRY, &entry);
        }
    }
    table
}
