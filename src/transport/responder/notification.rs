//! DCQCN's notification point: tells the sender of a packet with the congestion mark (Annex A17.9).

use core::time::Duration;

use softrnic_wire::{Body, CNP_RESERVED_LEN, Headers, IcrcForm, Psn, Time};

use crate::QpType;
use crate::context::Context;
use crate::counters::Counter;
use crate::host::{Host, Payload, Transmit};
use crate::path::Path;
use crate::planted::Fault;
use crate::qp::Progress;

/// DSCP 48, ECN-capable: as hardware sends it, so that switches favour it.
const CNP_TOS: u8 = 0xC2;

/// The CNPs that one QP sends.
#[derive(Debug, Default)]
pub(super) struct NotificationPoint {
    due: bool,
    last: Option<Time>,
}

impl NotificationPoint {
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// A packet arrived with the mark. Its sender is told at most once per interval.
    pub fn note<H: Host>(&mut self, cx: &Context, now: Time, host: &mut H) {
        host.count(Counter::EcnMarked);
        let interval = Duration::from_micros(cx.config.cnp_interval_us.into());
        let is_told = cx.service != QpType::Ud && !cx.config.has(Fault::NoCnp);
        if is_told && self.last.is_none_or(|last| now.since(last) >= interval) {
            self.last = Some(now);
            self.due = true;
        }
    }

    /// Sends the CNP that is due. If the link is full, it is lost, which does not matter: congestion goes on.
    pub fn transmit<H: Host>(&mut self, cx: &Context, host: &mut H, progress: &mut Progress) {
        if !core::mem::take(&mut self.due) || !cx.takes_requests() {
            return;
        }
        let path = Path { tos: CNP_TOS, ..cx.attr.path };
        let mut bth = cx.bth(Psn::ZERO);
        bth.becn = true;
        bth.mig_req = false;
        let headers = Headers { bth, body: Body::Cnp };
        let payload = Payload::Zeros(CNP_RESERVED_LEN);
        if host
            .transmit(Transmit { path: &path, headers: &headers, payload, icrc: IcrcForm::Standard })
            .is_ok()
        {
            progress.sent += 1;
            host.count(Counter::CnpSent);
        }
    }
}
