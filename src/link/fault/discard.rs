//! Memory for datagrams that are never sent.

use std::net::IpAddr;

use softrnic_wire::{DF, IpFacts, ROCE_UDP_PORT, UdpFacts};

use crate::{Flow, TxError, TxSlot};

/// The slot of one datagram that is discarded.
#[derive(Default)]
pub(super) struct DiscardBuffer {
    bytes: Vec<u8>,
    is_reserved: bool,
}

impl DiscardBuffer {
    pub(super) fn reserve(&mut self, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        let ip = match (flow.src, flow.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id: 0, flags_frag: DF },
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
            _ => return Err(TxError::Unreachable),
        };
        self.bytes.resize(len, 0);
        self.is_reserved = true;
        let facts = UdpFacts { ip, src_port: flow.sport, dst_port: ROCE_UDP_PORT };
        Ok(TxSlot { bytes: &mut self.bytes, facts, wants_icrc: true })
    }

    /// What was reserved last, if that was here.
    pub(super) fn reserved(&self) -> Option<&[u8]> {
        self.is_reserved.then_some(&self.bytes)
    }

    /// Gives the slot up; returns whether there was one.
    pub(super) fn clear(&mut self) -> bool {
        std::mem::take(&mut self.is_reserved)
    }
}
