//! Attributes of a queue pair, and which of them each state transition needs and allows.

use softrnic_wire::{Mtu, Psn, Qkey, Qpn, RnrTimer};

use crate::mask::AttrMask;
use crate::path::Path;

/// The transport service of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum QpType {
    Rc,
    Uc,
    Ud,
    XrcInitiator,
    XrcTarget,
    /// Scalable reliable datagrams: of the QP there are only state and attributes here, and `softrnic-srd` does the rest.
    Srd,
}

/// QP states, with the numbers of verbs (IBTA 10.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum QpState {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl QpState {
    /// All of them, each at the place of its number (`enum ibv_qp_state`).
    pub const ALL: [QpState; 7] = {
        use QpState::*;
        [Reset, Init, Rtr, Rts, Sqd, Sqe, Err]
    };

    /// As `enum ibv_qp_state` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        }
    }
}

/// What a peer may do through a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct QpAccess {
    pub remote_write: bool,
    pub remote_read: bool,
    pub remote_atomic: bool,
    pub flush_global: bool,
    pub flush_persistent: bool,
}

/// The attributes that the transport works with. A mask says which of them count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QpAttr {
    /// The state to go to.
    pub state: QpState,
    /// The state that the caller believes the QP is in.
    pub cur_state: QpState,
    /// Whether SQ_DRAINED is wanted on entering SQD.
    pub sqd_notify: bool,
    /// What the peer may do.
    pub access: QpAccess,
    /// The Q_Key that UD packets must carry.
    pub qkey: Qkey,
    /// The path to the peer.
    pub path: Path,
    /// The path MTU.
    pub mtu: Mtu,
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// The PSN expected of the first request.
    pub rq_psn: Psn,
    /// The PSN of the first request sent.
    pub sq_psn: Psn,
    /// READs and atomics that we may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// The delay that our RNR NAKs ask for.
    pub min_rnr_timer: RnrTimer,
    /// Local ACK timeout: 4.096 µs × 2^timeout, 0 for none (5 bits).
    pub timeout: u8,
    /// Retries after timeouts and sequence errors (3 bits).
    pub retry_cnt: u8,
    /// Retries after RNR NAKs (3 bits); 7 means for ever.
    pub rnr_retry: u8,
}

/// Why attributes were refused. All are EINVAL in verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AttrError {
    /// No such transition from the current state.
    Transition {
        /// Where the QP is.
        from: QpState,
        /// Where it was to go.
        to: QpState,
    },
    /// Attributes that the transition needs were not given.
    Missing(AttrMask),
    /// Attributes that the transition does not allow were given.
    Excess(AttrMask),
    /// A value out of range.
    Value(AttrMask),
    /// The QP is not in the state that the caller names.
    CurState,
}

impl core::fmt::Display for AttrError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            AttrError::Transition { from, to } => write!(f, "a QP cannot go from {from:?} to {to:?}"),
            AttrError::Missing(mask) => {
                write!(f, "attributes {:#x} are required for this transition", mask.bits())
            }
            AttrError::Excess(mask) => {
                write!(f, "attributes {:#x} are not allowed in this transition", mask.bits())
            }
            AttrError::Value(mask) => write!(f, "the value of attribute {:#x} is out of range", mask.bits()),
            AttrError::CurState => f.write_str("the QP is not in the state that cur_qp_state claims"),
        }
    }
}

impl core::error::Error for AttrError {}

impl Default for QpAttr {
    fn default() -> Self {
        use core::net::{IpAddr, Ipv4Addr};
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        QpAttr {
            state: QpState::Reset,
            cur_state: QpState::Reset,
            sqd_notify: false,
            access: QpAccess::default(),
            qkey: Qkey(0),
            path: Path { src: nowhere, dst: nowhere, sport: 0, tos: 0, ttl: 64 },
            mtu: Mtu::B1024,
            dest_qpn: Qpn::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: RnrTimer::new(0),
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
        }
    }
}

impl QpAttr {
    /// Takes the attributes in `mask` from `from`.
    pub(crate) fn apply(&mut self, mask: AttrMask, from: &QpAttr) {
        macro_rules! take {
            ($($bit:ident => $field:ident),* $(,)?) => {
                $(if mask.contains(AttrMask::$bit) { self.$field = from.$field; })*
            };
        }
        take!(
            EN_SQD_ASYNC_NOTIFY => sqd_notify, ACCESS_FLAGS => access, QKEY => qkey, AV => path,
            PATH_MTU => mtu, DEST_QPN => dest_qpn, RQ_PSN => rq_psn, SQ_PSN => sq_psn,
            MAX_QP_RD_ATOMIC => max_rd_atomic, MAX_DEST_RD_ATOMIC => max_dest_rd_atomic,
            MIN_RNR_TIMER => min_rnr_timer, TIMEOUT => timeout, RETRY_CNT => retry_cnt, RNR_RETRY => rnr_retry,
        );
    }

    /// Checks the ranges of the attributes in `mask`.
    pub(crate) fn check(&self, mask: AttrMask) -> Result<(), AttrError> {
        let limits = [
            (AttrMask::TIMEOUT, self.timeout <= 31),
            (AttrMask::RETRY_CNT, self.retry_cnt <= 7),
            (AttrMask::RNR_RETRY, self.rnr_retry <= 7),
            (AttrMask::MAX_QP_RD_ATOMIC, self.max_rd_atomic <= crate::MAX_RD_ATOMIC),
            (AttrMask::MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic <= crate::MAX_RD_ATOMIC),
        ];
        match limits.into_iter().find(|&(bit, valid)| mask.contains(bit) && !valid) {
            Some((bit, _)) => Err(AttrError::Value(bit)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
