//! The senders to each QP: a connected packet names only its receiver, so the sender is learned.

use std::net::IpAddr;

use rustc_hash::FxHashMap;
use softrnic_wire::{Body, CmBody, Psn, Qpn};

use crate::dissect::Roce;

/// The QPs that talk to each other, as far as the packets seen so far tell: from connection requests
/// and replies, and from answers whose PSN is that of a recent request.
#[derive(Debug, Default)]
pub struct Peers {
    /// Receiver and its QPN, and where packets come from, to the sender's QPN.
    senders: FxHashMap<(IpAddr, IpAddr, Qpn), Qpn>,
    /// Recent requests by direction and PSN, to the QPN they went to.
    requests: FxHashMap<(IpAddr, IpAddr, Psn), Qpn>,
    /// QPNs that open connection requests offer, by communication id.
    offers: FxHashMap<(IpAddr, u32), Qpn>,
}

/// Beyond this many, what is remembered of requests and offers starts anew.
const REMEMBERED: usize = 1 << 16;

impl Peers {
    /// None known.
    pub fn new() -> Peers {
        Peers::default()
    }

    /// The QP at `src` that sends to QP `dest` at `dst`, if known.
    pub fn sender_of(&self, src: IpAddr, dst: IpAddr, dest: Qpn) -> Option<Qpn> {
        self.senders.get(&(src, dst, dest)).copied()
    }

    /// Learns what a packet tells.
    pub fn learn(&mut self, roce: &Roce<'_>) {
        let Some(packet) = roce.packet() else { return };
        if !roce.icrc.acceptable() {
            return;
        }
        let (src, dst) = (roce.net.src(), roce.net.dst());
        match &packet.body {
            Body::Ud { .. } => self.learn_cm(roce, src, dst),
            Body::Cnp | Body::Uc(_) | Body::SelectiveAck(_) => {}
            Body::Rc(_) | Body::Xrc(_) => {
                let dest = packet.bth.dest_qpn;
                if self.senders.contains_key(&(src, dst, dest)) {
                    return;
                }
                if packet.body.opcode().info().is_request {
                    if self.requests.len() >= REMEMBERED {
                        self.requests.clear();
                    }
                    self.requests.insert((src, dst, packet.bth.psn), dest);
                } else if let Some(sender) = self.requests.get(&(dst, src, packet.bth.psn)).copied() {
                    self.pair((src, sender), (dst, dest));
                }
            }
        }
    }

    fn learn_cm(&mut self, roce: &Roce<'_>, src: IpAddr, dst: IpAddr) {
        let Some(cm) = roce.mad().and_then(|mad| mad.cm()) else { return };
        match cm.body() {
            CmBody::Req(req) => {
                if self.offers.len() >= REMEMBERED {
                    self.offers.clear();
                }
                self.offers.insert((src, req.local_id), req.qpn);
            }
            CmBody::Rep(rep) => {
                if let Some(offered) = self.offers.get(&(dst, rep.ids.remote)).copied() {
                    self.pair((src, rep.qpn), (dst, offered));
                }
            }
            _ => {}
        }
    }

    fn pair(&mut self, a: (IpAddr, Qpn), b: (IpAddr, Qpn)) {
        if self.senders.len() >= REMEMBERED * 16 {
            self.senders.clear();
        }
        self.senders.insert((a.0, b.0, b.1), a.1);
        self.senders.insert((b.0, a.0, a.1), b.1);
    }
}
