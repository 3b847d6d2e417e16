//! UD: one packet, one message (IBTA 9.8.3).

use softrnic_wire::{Deth, Imm, Packet};

use super::{Responder, fail_receive, receive_completion};
use crate::completion::Status;
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::failure::Reason;
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
            Err(Dropped(counter)) => {
                host.count(counter);
                Outcome::Continue
            }
        }
    }
}

/// A datagram that was dropped, and why.
struct Dropped(Counter);

fn take<H: Host>(
    cx: &Context,
    packet: &Packet<'_>,
    deth: &Deth,
    imm: Option<Imm>,
    grh: &[u8; 40],
    host: &mut H,
) -> Result<Outcome, Dropped> {
    if deth.qkey != cx.attr.qkey {
        return Err(Dropped(Counter::DropQkey));
    }
    if packet.payload.len() > cx.config.ud_mtu as usize {
        return Err(Dropped(Counter::DropUdLength));
    }
    let total = GRH_LEN + packet.payload.len() as u64;
    // A message that is too long consumes no receive, as on kernel rxe and qib: otherwise any sender could consume them
    // all.
    if host.next_recv_length().is_some_and(|room| total > room.into()) {
        return Err(Dropped(Counter::DropShortRecv));
    }
    let Ok(Receive { wqe, domain }) = host.take_recv(None) else {
        return Err(Dropped(Counter::DropNoRecv));
    };
    let placed = host
        .scatter(domain, &wqe.data, 0, grh)
        .and_then(|()| host.scatter(domain, &wqe.data, GRH_LEN, packet.payload));
    let outcome = match placed {
        Ok(()) => Outcome::Continue,
        Err(LocalFault) => fail_receive(cx, Reason::ReceiveMemory, total, wqe.length, host),
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
