//! Receives that are posted after the messages that they are for.

use super::with;
use crate::qp::QpObject;

/// Whether the QP has posted no receive so far.
pub(super) fn is_first(qp: &QpObject) -> bool {
    with(|state| state.checker.is_first_receive(qp.nic.qpn().get())) == Some(true)
}

/// How often it has answered that it has no receive.
pub(super) fn refused(qp: &QpObject) -> u64 {
    qp.nic.counts().map_or(0, |counts| counts.rnr_sent)
}

/// Its first receive was posted, after it has answered so often that there is none.
pub(super) fn found(qp: &QpObject, times: u64) {
    with(|state| state.checker.late(qp.nic.qpn().get(), times));
    super::write();
}
