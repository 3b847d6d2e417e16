//! What both halves of a queue pair know about it, and the outcome that they return.

use softrnic_wire::{Bth, Psn, Qpn};

use crate::attr::{QpAttr, QpState, QpType};
use crate::completion::Status;
use crate::config::Config;
use crate::failure::Reason;

/// What the requester and the responder know about their QP. Only the QP itself changes it.
pub(crate) struct Context {
    pub qpn: Qpn,
    pub service: QpType,
    pub state: QpState,
    pub attr: QpAttr,
    pub config: Config,
    /// Both ends recover from losses selectively.
    pub selective: bool,
    /// The peer knows of paths: what it sends may come from many ports, and it wants to know which were marked.
    pub spreads: bool,
}

/// What happens to the QP after one of its halves has acted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Outcome {
    /// The QP goes on.
    Continue,
    /// The current work request or message fails for this reason, and the QP with it.
    Fatal(Reason),
}

impl Outcome {
    /// How what was being received completes.
    pub fn status(self) -> Status {
        match self {
            Outcome::Continue => Status::Success,
            Outcome::Fatal(reason) => reason.status(),
        }
    }
}

impl Context {
    /// Whether requests of the peer are accepted.
    pub fn takes_requests(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Whether requests are sent, and responses to them accepted.
    pub fn sends_requests(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
    }

    /// Whether the service acknowledges what it receives.
    pub fn is_reliable(&self) -> bool {
        !matches!(self.service, QpType::Uc | QpType::Ud)
    }

    /// The BTH of a packet to the peer.
    pub fn bth(&self, psn: Psn) -> Bth {
        let mut bth = Bth::new(self.attr.dest_qpn, psn);
        bth.mig_req = self.config.mig_req;
        bth
    }
}
