//! What the NIC tells of failures, by the thread that drives it.

use softrnic_diagnosis::{Diagnosis, Warning};
use softrnic_nic::device::{Act, CqKey, Watch};
use softrnic_nic::verbs::Qpn;

use super::{address_of, is_on, oldest, saw, with};
use crate::context::for_each_open;

use crate::report;

/// Tells the checker, and the report.
pub(crate) struct Watcher;

impl Watch for Watcher {
    fn failed(&self, diagnosis: &Diagnosis) {
        if is_on() {
            with(|state| state.checker.failed(diagnosis));
        }
        if report::is_on() {
            report::failed(diagnosis);
        }
    }

    fn posted(&self, qpn: Qpn) -> Option<String> {
        if is_on() { oldest(qpn.get()) } else { None }
    }

    fn sees_memory(&self) -> bool {
        is_on()
    }

    fn saw(&self, act: &Act<'_>) {
        saw(act);
    }

    fn warned(&self, warning: &Warning, cq: Option<(u64, CqKey)>) {
        if is_on() {
            let cq = cq.and_then(address_of);
            with(|state| state.checker.warned(warning, cq));
        }
    }
}

/// Requests for connections that found no room, on all devices.
pub(crate) fn dropped_requests() -> u64 {
    let mut dropped = 0;
    for_each_open(|context| {
        let count = context.nic().control(|core, _| {
            core.engine.management().map_or(0, |management| management.cm().counters().drop_backlog)
        });
        // Contexts of one device have the same counter.
        dropped = dropped.max(count.unwrap_or(0));
    });
    dropped
}
