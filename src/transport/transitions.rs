//! The table of state transitions: IBTA 10.3.1 and 11.2.4.2, as the Linux core enforces it.

use crate::attr::{AttrError, QpState, QpType};
use crate::mask::AttrMask;
use QpState::*;
use QpType::*;

type M = AttrMask;

/// One row: a transition, the services it applies to, the attributes it needs, and those it also allows.
pub struct Transition {
    /// From this state,
    pub from: QpState,
    /// to this one,
    pub to: QpState,
    /// for these services.
    pub services: &'static [QpType],
    /// Attributes that must be given.
    pub required: AttrMask,
    /// Attributes that may be given.
    pub optional: AttrMask,
}

const fn any(masks: &[AttrMask]) -> AttrMask {
    let mut all = AttrMask::empty();
    let mut i = 0;
    while i < masks.len() {
        all = all.union(masks[i]);
        i += 1;
    }
    all
}

const fn row(
    from: QpState,
    to: QpState,
    services: &'static [QpType],
    required: &[AttrMask],
    optional: &[AttrMask],
) -> Transition {
    Transition { from, to, services, required: any(required), optional: any(optional) }
}

const CONNECTED: &[QpType] = &[Rc, Uc, XrcInitiator, XrcTarget];

/// Every transition that needs attributes or allows them. Going to RESET or ERR needs none.
pub const TRANSITIONS: &[Transition] = &[
    row(Reset, Init, CONNECTED, &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS], &[]),
    row(Reset, Init, &[Ud, Srd], &[M::PKEY_INDEX, M::PORT, M::QKEY], &[]),
    row(Init, Init, CONNECTED, &[], &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
    row(Init, Init, &[Ud, Srd], &[], &[M::PKEY_INDEX, M::PORT, M::QKEY]),
    row(
        Init,
        Rtr,
        &[Rc, XrcTarget],
        &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN, M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER],
        &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX],
    ),
    row(
        Init,
        Rtr,
        &[Uc, XrcInitiator],
        &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN],
        &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX],
    ),
    row(Init, Rtr, &[Ud, Srd], &[], &[M::PKEY_INDEX, M::QKEY]),
    row(
        Rtr,
        Rts,
        &[Rc, XrcInitiator],
        &[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC],
        &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::MIN_RNR_TIMER, M::PATH_MIG_STATE],
    ),
    row(
        Rtr,
        Rts,
        &[XrcTarget],
        &[M::TIMEOUT, M::SQ_PSN],
        &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::MIN_RNR_TIMER, M::PATH_MIG_STATE],
    ),
    row(Rtr, Rts, &[Uc], &[M::SQ_PSN], &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE]),
    row(Rtr, Rts, &[Ud], &[M::SQ_PSN], &[M::CUR_STATE, M::QKEY]),
    // `srd_qp_state_table` of Linux (efa_verbs.c).
    row(Rtr, Rts, &[Srd], &[M::SQ_PSN], &[M::CUR_STATE, M::QKEY, M::RNR_RETRY]),
    row(
        Rts,
        Rts,
        &[Rc, XrcInitiator, XrcTarget],
        &[],
        &[M::CUR_STATE, M::ACCESS_FLAGS, M::ALT_PATH, M::PATH_MIG_STATE, M::MIN_RNR_TIMER],
    ),
    row(Rts, Rts, &[Uc], &[], &[M::CUR_STATE, M::ACCESS_FLAGS, M::ALT_PATH, M::PATH_MIG_STATE]),
    row(Rts, Rts, &[Ud, Srd], &[], &[M::CUR_STATE, M::QKEY]),
    row(Rts, Sqd, &[Rc, Uc, Ud, Srd, XrcInitiator, XrcTarget], &[], &[M::EN_SQD_ASYNC_NOTIFY]),
    row(
        Sqd,
        Rts,
        &[Rc, XrcInitiator, XrcTarget],
        &[],
        &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::MIN_RNR_TIMER, M::PATH_MIG_STATE],
    ),
    row(Sqd, Rts, &[Uc], &[], &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE]),
    row(Sqd, Rts, &[Ud, Srd], &[], &[M::CUR_STATE, M::QKEY]),
    row(
        Sqd,
        Sqd,
        &[Rc, XrcInitiator],
        &[],
        &[
            M::PORT,
            M::AV,
            M::TIMEOUT,
            M::RETRY_CNT,
            M::RNR_RETRY,
            M::MAX_QP_RD_ATOMIC,
            M::MAX_DEST_RD_ATOMIC,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PKEY_INDEX,
            M::MIN_RNR_TIMER,
            M::PATH_MIG_STATE,
        ],
    ),
    row(
        Sqd,
        Sqd,
        &[XrcTarget],
        &[],
        &[
            M::PORT,
            M::AV,
            M::TIMEOUT,
            M::MAX_DEST_RD_ATOMIC,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PKEY_INDEX,
            M::MIN_RNR_TIMER,
            M::PATH_MIG_STATE,
        ],
    ),
    row(Sqd, Sqd, &[Uc], &[], &[M::AV, M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX, M::PATH_MIG_STATE]),
    row(Sqd, Sqd, &[Ud, Srd], &[], &[M::PKEY_INDEX, M::QKEY]),
    // In the table for completeness; a reliable service never reaches SQE.
    row(Sqe, Rts, &[Rc, XrcInitiator, XrcTarget], &[], &[]),
    row(Sqe, Rts, &[Uc], &[], &[M::CUR_STATE, M::ACCESS_FLAGS]),
    row(Sqe, Rts, &[Ud, Srd], &[], &[M::CUR_STATE, M::QKEY]),
];

/// Checks a `modify_qp` against the table.
pub fn check(service: QpType, from: QpState, to: QpState, mask: AttrMask) -> Result<(), AttrError> {
    let (required, optional) = match (from, to) {
        (_, Reset) => (M::empty(), M::empty()),
        (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (M::empty(), M::empty()),
        _ => TRANSITIONS
            .iter()
            .find(|t| t.from == from && t.to == to && t.services.contains(&service))
            .map(|t| (t.required, t.optional))
            .ok_or(AttrError::Transition { from, to })?,
    };
    let missing = required.difference(mask);
    if !missing.is_empty() {
        return Result::Err(AttrError::Missing(missing));
    }
    let allowed = required.union(optional).union(M::STATE);
    // RoCE ports have no alternate path: the attribute is legal in the table and refused all the same.
    let excess = mask.difference(allowed) | mask & M::ALT_PATH;
    if !excess.is_empty() {
        return Result::Err(AttrError::Excess(excess));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
