//! UD: one packet, one message (IBTA 9.8.3).

use softrnic_wire::{Deth, Imm, Packet};

use super::{Responder, fail_receive, receive_completion};
use crate::completion::Status;
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::failure::{Concern, QpFacts, Reason, Unfit};
use crate::host::{Host, LocalFault};
use crate::wqe::Receive;

/// Every UD receive buffer begins with room for the network header (IBTA 11.4.1.2).
const GRH_LEN: u64 = 40;

impl<D> Responder<D> {
    /// Handles a datagram for this QP.
    pub fn on_datagram<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        packet: &Packet<'_>,
        deth: &Deth,
        imm: Option<Imm>,
        grh: &[u8; 40],
        host: &mut H,
    ) -> Outcome {
        match take(cx, packet, deth, imm, grh, host) {
            Ok(outcome) => outcome,
            Err(Dropped(counter, unfit)) => {
                host.count(counter);
                if let Some(unfit) = unfit {
                    host.concern(Concern::UnfitDatagram { from: deth.src_qpn, unfit, qp: QpFacts::of(cx) });
                }
                Outcome::Continue
            }
        }
    }
}

/// A datagram that was dropped, and why; more of that where it will not get better.
struct Dropped(Counter, Option<Unfit>);

fn take<H: Host>(
    cx: &Context,
    packet: &Packet<'_>,
    deth: &Deth,
    imm: Option<Imm>,
    grh: &[u8; 40],
    host: &mut H,
) -> Result<Outcome, Dropped> {
    if deth.qkey != cx.attr.qkey {
        let unfit = Unfit::Qkey { came: deth.qkey, expected: cx.attr.qkey };
        return Err(Dropped(Counter::DropQkey, Some(unfit)));
    }
    if packet.payload.len() > cx.config.ud_mtu as usize {
        return Err(Dropped(Counter::DropUdLength, None));
    }
    let total = GRH_LEN + packet.payload.len() as u64;
    // A message that is too long consumes no receive, as on kernel rxe and qib: otherwise any sender could consume them
    // all.
    if let Some(room) = host.next_recv_length().filter(|room| total > u64::from(*room)) {
        return Err(Dropped(Counter::DropShortRecv, Some(Unfit::Length { length: total, room })));
    }
    let Ok(Receive { wqe, domain }) = host.take_recv(None) else {
        return Err(Dropped(Counter::DropNoRecv, None));
    };
    let placed = host
        .scatter(domain, &wqe.data, 0, grh)
        .and_then(|()| host.scatter(domain, &wqe.data, GRH_LEN, packet.payload));
    let outcome = match placed {
        Ok(()) => Outcome::Continue,
        Err(LocalFault) => fail_receive(cx, Reason::ReceiveMemory, total, &wqe, host),
    };
    let status = outcome.status();
    let mut completion =
        receive_completion(cx, &wqe, status, packet.bth.solicited || status != Status::Success);
    if status == Status::Success {
        completion.byte_len = total as u32;
        completion.imm = imm;
        completion.src_qpn = deth.src_qpn;
        completion.grh = true;
        host.count(Counter::RdmaRecvs);
    }
    host.complete(completion, None);
    Ok(outcome)
}
