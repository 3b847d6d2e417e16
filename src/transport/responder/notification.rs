//! DCQCN's notification point: tells the sender of a packet with the congestion mark (Annex A17.9).

use alloc::boxed::Box;
use core::time::Duration;

use softrnic_wire::{Body, CNP_RESERVED_LEN, Headers, IcrcForm, MAX_PATHS, Psn, Time};

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
    /// The source ports whose packets were marked, by their lowest four bits; only the first, if the peer does not spread.
    due: u16,
    /// The highest bits of those ports.
    ports: u16,
    last: Option<Time>,
    /// When the peer was told last of each port.
    last_of: Option<Box<[Option<Time>; MAX_PATHS as usize]>>,
}

impl NotificationPoint {
    pub fn is_due(&self) -> bool {
        self.due != 0
    }

    /// A packet arrived with the mark. Its sender is told at most once per interval; for each port, if it spreads.
    pub fn note<H: Host>(&mut self, cx: &Context, now: Time, sport: u16, host: &mut H) {
        host.count(Counter::EcnMarked);
        let interval = Duration::from_micros(cx.config.cnp_interval_us.into());
        let is_told = cx.service != QpType::Ud && !cx.config.has(Fault::NoCnp);
        let (last, bit) = match cx.spreads {
            false => (&mut self.last, 1),
            true => {
                let low = sport % u16::from(MAX_PATHS);
                self.ports = sport - low;
                (&mut self.last_of.get_or_insert_default()[usize::from(low)], 1 << low)
            }
        };
        if is_told && last.is_none_or(|last| now.since(last) >= interval) {
            *last = Some(now);
            self.due |= bit;
        }
    }

    /// Sends the CNPs that are due. If the link is full, they are lost, which does not matter: congestion goes on.
    pub fn transmit<H: Host>(&mut self, cx: &Context, host: &mut H, progress: &mut Progress) {
        let mut due = core::mem::take(&mut self.due);
        while due != 0 && cx.takes_requests() {
            let low = due.trailing_zeros() as u16;
            due &= due - 1;
            let path = Path { tos: CNP_TOS, ..cx.attr.path };
            let mut bth = cx.bth(Psn::ZERO);
            bth.becn = true;
            bth.mig_req = false;
            let headers = Headers { bth, body: Body::Cnp };
            let mut named = [0; CNP_RESERVED_LEN];
            if cx.spreads
                && let Some(place) = named.first_chunk_mut()
            {
                *place = (self.ports | low).to_be_bytes();
            }
            let payload = Payload::Bytes(&named);
            let packet = Transmit { path: &path, headers: &headers, payload, icrc: IcrcForm::Standard };
            if host.transmit(packet).is_ok() {
                progress.sent += 1;
                host.count(Counter::CnpSent);
            }
        }
    }
}
