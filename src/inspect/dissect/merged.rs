//! Several packets in one datagram: what a capture sees of a send that the kernel or the network card
//! has yet to cut into segments (`UDP_SEGMENT`), on loopback for instance.

use softrnic_wire::{BTH_LEN, ICRC_LEN, IpFacts, Mtu, Op, Opcode, Packet, verify_either_flush};

use super::roce::{Net, Roce};

/// A datagram that holds several packets, all of the same length except perhaps the last.
#[derive(Clone, Copy, Debug)]
pub struct Merged<'a> {
    net: Net<'a>,
    eth_captured: bool,
    bytes: &'a [u8],
    segment: usize,
}

/// The shortest packet: BTH and ICRC.
const SHORTEST: usize = BTH_LEN + ICRC_LEN;

impl<'a> Merged<'a> {
    /// Looks for packets in the whole transport bytes of a datagram that is no packet itself.
    #[cold]
    pub(super) fn find(net: Net<'a>, eth_captured: bool, bytes: &'a [u8]) -> Option<Merged<'a>> {
        let Net::V2 { header, .. } = &net else { return None };
        let facts = header.facts();
        let fits = |len: &usize| {
            let first = bytes.get(..*len).filter(|_| *len + SHORTEST <= bytes.len());
            first.is_some_and(|first| verify_either_flush(&facts, first).is_some())
        };
        let segment = lengths(bytes).find(fits)?;
        Some(Merged { net, eth_captured, bytes, segment })
    }

    /// The packets, in the order in which they will be sent.
    pub fn packets(&self) -> impl Iterator<Item = Roce<'a>> + use<'a> {
        let Merged { net, eth_captured, bytes, segment } = *self;
        bytes
            .chunks(segment)
            .enumerate()
            .map(move |(index, bytes)| Roce::read(net.with_id_after(index), eth_captured, bytes, bytes.len()))
    }
}

/// Lengths that the first packet may have, by what its headers say.
fn lengths(bytes: &[u8]) -> impl Iterator<Item = usize> + use<'_> {
    let info = bytes.first().and_then(|byte| Opcode::from_byte(*byte)).map(Opcode::info);
    let headers = info.map_or(0, |info| info.headers_len);
    // Of most opcodes the path MTU tells the length, if anything has to.
    let at = |mtu: &Mtu| info.map(|info| info.payload.lengths(mtu.bytes() as usize));
    let mut known: Vec<usize> = Mtu::ALL
        .iter()
        .filter_map(at)
        .filter(|(shortest, longest)| shortest == longest)
        .map(|(len, _)| len)
        .collect();
    known.dedup();
    if known.is_empty() {
        known.extend(announced(bytes));
    }
    let any = known.is_empty() && info.is_some();
    let known = known.into_iter().map(move |payload| headers + payload.next_multiple_of(4) + ICRC_LEN);
    // Nothing tells the length of a SEND: where one ends, another BTH begins, with transport version 0.
    let longest = Mtu::B4096.bytes() as usize + headers + ICRC_LEN;
    let tried = (headers + ICRC_LEN..=longest).step_by(4).filter(move |_| any);
    known.chain(tried.filter(|at| bytes.get(*at + 1).is_some_and(|flags| flags & 0xF == 0)))
}

/// The payload length that a WRITE Only announces.
fn announced(bytes: &[u8]) -> Option<usize> {
    match Packet::parse(bytes).ok()?.body.op()? {
        Op::WriteOnly(reth, _) => Some(reth.dma_len.min(Mtu::B4096.bytes()) as usize),
        _ => None,
    }
}

impl<'a> Net<'a> {
    /// The headers of the segment after `count` others: the IPv4 ID counts them.
    fn with_id_after(self, count: usize) -> Net<'a> {
        let Net::V2 { mut header, udp_checksum, ip_checksum_ok } = self else { return self };
        if let IpFacts::V4 { id, .. } = &mut header.ip.facts {
            *id = id.wrapping_add(count as u16);
        }
        Net::V2 { header, udp_checksum, ip_checksum_ok }
    }
}
