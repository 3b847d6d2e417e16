//! UD: one packet, one message (IBTA 9.8.3).

use softrnic_wire::{Body, Deth, Imm, Packet, Qkey};

use crate::completion::Status;
use crate::counters::Counter;
use crate::host::Host;
use crate::qp::Qp;
use crate::wqe::Receive;

/// Every UD receive buffer begins with room for the network header (IBTA 11.4.1.2).
const GRH_LEN: u64 = 40;

impl<D> Qp<D> {
    /// A datagram for this QP.
    pub(crate) fn on_datagram<H: Host<Data = D>>(
        &mut self,
        packet: &Packet<'_>,
        deth: &Deth,
        imm: Option<Imm>,
        grh: &[u8; 40],
        host: &mut H,
    ) {
        if deth.qkey != self.attr.qkey {
            return host.count(Counter::DropQkey);
        }
        if packet.payload.len() > self.config.ud_mtu as usize {
            return host.count(Counter::DropUdLength);
        }
        let total = GRH_LEN + packet.payload.len() as u64;
        // A message that is too long costs no receive, as on kernel rxe and qib: whoever may send could take them all.
        if host.next_recv_length().is_some_and(|room| total > room.into()) {
            return host.count(Counter::DropShortRecv);
        }
        let Ok(Receive { wqe, domain }) = host.take_recv(None) else {
            return host.count(Counter::DropNoRecv);
        };
        let status = if host
            .place(domain, &wqe.data, 0, grh)
            .and_then(|()| host.place(domain, &wqe.data, GRH_LEN, packet.payload))
            .is_err()
        {
            Status::LocalProtection
        } else {
            Status::Success
        };
        let mut completion =
            self.receive_completion(&wqe, status, packet.bth.solicited || status != Status::Success);
        if status == Status::Success {
            completion.byte_len = total as u32;
            completion.imm = imm;
            completion.src_qpn = deth.src_qpn;
            completion.grh = true;
            host.count(Counter::RdmaRecvs);
        }
        host.complete(completion, None);
        if status != Status::Success {
            self.enter_error(host);
        }
    }

    /// DETH of an outgoing datagram: a privileged Q_Key in the work request stands for the QP's own (C10-15).
    pub(crate) fn datagram_body(&self, qkey: Qkey, imm: Option<Imm>) -> Body {
        let qkey = if qkey.is_privileged() { self.attr.qkey } else { qkey };
        Body::Ud { deth: Deth { qkey, src_qpn: self.qpn }, imm }
    }
}
