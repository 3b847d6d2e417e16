//! The packets of a stream of RDMA WRITEs, without a transport behind them.

use std::net::Ipv4Addr;

use crc32fast::Hasher;
use softrnic_wire::{
    Aeth, BTH_LEN, Body, Bth, Headers, ICRC_LEN, IPV4_LEN, IpFacts, Msn, Op, Psn, Qpn, Reth, Rkey, SendTail,
    UDP_LEN, UdpFacts, seal, verify,
};

/// Payload of a packet, as with path MTU 4096.
pub const MTU: usize = 4096;

/// Bytes of an acknowledgement.
pub const ACK_LEN: usize = BTH_LEN + 4 + ICRC_LEN;

/// From this size on each message is acknowledged; of shorter ones, what was sent together.
const ACK_EACH: usize = 32 << 10;

const QPN: Qpn = Qpn::new(0x42);

/// A packet to be sent.
#[derive(Clone, Copy)]
pub struct Piece {
    psn: Psn,
    offset: usize,
    len: usize,
    total: usize,
}

impl Piece {
    fn is_first(&self) -> bool {
        self.offset == 0
    }

    pub fn is_last(&self) -> bool {
        self.offset + self.len == self.total
    }

    fn body(&self) -> Body {
        let reth = Reth { va: 0, rkey: Rkey(7), dma_len: self.total as u32 };
        Body::Rc(match (self.is_first(), self.is_last()) {
            (true, true) => Op::WriteOnly(reth, None),
            (true, false) => Op::WriteFirst(reth),
            (false, true) => Op::WriteLast(None),
            (false, false) => Op::WriteMiddle,
        })
    }

    /// BTH to ICRC.
    pub fn transport_len(&self) -> usize {
        self.body().headers_len() + self.len.next_multiple_of(4) + ICRC_LEN
    }

    /// Writes the packet into `out`, which is as long as it: the one copy of this side, and the ICRC, which needs `facts`.
    /// Returns whether the packet asks for an acknowledgement; one that ends a burst does.
    pub fn emit(&self, facts: Option<&UdpFacts>, memory: &[u8], ends_burst: bool, out: &mut [u8]) -> bool {
        let ack = ends_burst || self.is_last() && self.total >= ACK_EACH;
        let mut bth = Bth::new(QPN, self.psn);
        bth.ack_req = ack;
        bth.pad = softrnic_wire::Pad::for_payload(self.len);
        let at = Headers { bth, body: self.body() }.emit(out);
        out[at..at + self.len].copy_from_slice(&memory[self.offset..self.offset + self.len]);
        out[at + self.len..].fill(0);
        seal_for(facts, out);
        ack
    }

    pub fn psn(&self) -> Psn {
        self.psn
    }
}

/// Cuts messages into packets.
pub struct Cutter {
    size: usize,
    offset: usize,
    psn: Psn,
}

impl Cutter {
    pub fn new(size: usize) -> Cutter {
        Cutter { size, offset: 0, psn: Psn::ZERO }
    }

    /// The next packet, which stays next until [`Cutter::advance`].
    pub fn peek(&self) -> Piece {
        let len = (self.size - self.offset).min(MTU);
        Piece { psn: self.psn, offset: self.offset, len, total: self.size }
    }

    pub fn advance(&mut self) {
        let piece = self.peek();
        self.offset = if piece.is_last() { 0 } else { self.offset + piece.len };
        self.psn = self.psn.next();
    }

    pub fn at_message_start(&self) -> bool {
        self.offset == 0
    }
}

/// What a request packet says, read with no more care than a benchmark needs.
pub struct Arrival {
    pub psn: Psn,
    pub ack_req: bool,
    /// Bytes before the payload.
    pub headers: usize,
    pub pad: usize,
    /// The message begins here.
    pub begins: bool,
    pub ends: bool,
}

impl Arrival {
    /// From at least the headers of a packet.
    pub fn read(transport: &[u8]) -> Option<Arrival> {
        const FIRST: u8 = 0x06;
        const MIDDLE: u8 = 0x07;
        const LAST: u8 = 0x08;
        const ONLY: u8 = 0x0A;
        let bth: &[u8; BTH_LEN] = transport.first_chunk()?;
        let (begins, ends) = match bth[0] {
            FIRST => (true, false),
            MIDDLE => (false, false),
            LAST => (false, true),
            ONLY => (true, true),
            _ => return None,
        };
        Some(Arrival {
            psn: Psn::new(u32::from_be_bytes([0, bth[9], bth[10], bth[11]])),
            ack_req: bth[8] & 0x80 != 0,
            headers: if begins { BTH_LEN + 16 } else { BTH_LEN },
            pad: usize::from(bth[1] >> 4 & 3),
            begins,
            ends,
        })
    }
}

/// Where the payload of a message goes: the one copy of this side.
pub struct Target {
    memory: Vec<u8>,
    offset: usize,
    expected: Psn,
    pub messages: u64,
    pub bytes: u64,
}

impl Target {
    pub fn new(size: usize) -> Target {
        Target { memory: vec![0; size], offset: 0, expected: Psn::ZERO, messages: 0, bytes: 0 }
    }

    /// Starts a packet.
    pub fn begin(&mut self, arrival: &Arrival) -> Result<(), String> {
        if arrival.psn != self.expected {
            return Err(format!("PSN {} came instead of {}: packets were lost", arrival.psn, self.expected));
        }
        self.expected = self.expected.next();
        if arrival.begins {
            self.offset = 0;
        }
        Ok(())
    }

    /// Takes payload of the packet.
    pub fn place(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        let room = self.memory.get_mut(self.offset..self.offset + payload.len());
        room.ok_or("a message is longer than it should be")?.copy_from_slice(payload);
        self.offset += payload.len();
        self.bytes += payload.len() as u64;
        Ok(())
    }

    /// Ends a packet.
    pub fn end(&mut self, arrival: &Arrival) {
        self.messages += u64::from(arrival.ends);
    }
}

/// Writes an acknowledgement of everything up to `psn`.
pub fn emit_ack(facts: &UdpFacts, psn: Psn, out: &mut [u8; ACK_LEN]) {
    let body = Body::Rc(Op::Acknowledge(Aeth::ack(Msn::new(0))));
    Headers { bth: Bth::new(QPN, psn), body }.emit(out);
    seal(facts, out);
}

/// Writes the ICRC, where somebody looks at it.
fn seal_for(facts: Option<&UdpFacts>, packet: &mut [u8]) {
    if let Some(facts) = facts {
        seal(facts, packet);
    }
}

/// Bytes of a SEND's packet besides its payload.
pub const SEND_HEADERS: usize = BTH_LEN + ICRC_LEN;

/// Writes a SEND of one packet that asks for an acknowledgement; `out` is as long as it, and the payload a multiple
/// of four bytes. Without facts it has no ICRC.
pub fn emit_send(facts: Option<&UdpFacts>, psn: Psn, payload: &[u8], out: &mut [u8]) {
    let mut bth = Bth::new(QPN, psn);
    bth.ack_req = true;
    Headers { bth, body: Body::Rc(Op::SendOnly(SendTail::Plain)) }.emit(out);
    out[BTH_LEN..BTH_LEN + payload.len()].copy_from_slice(payload);
    seal_for(facts, out);
}

/// The PSN and payload of a SEND of one packet, which has an ICRC if there are facts.
pub fn read_send<'a>(facts: Option<&UdpFacts>, transport: &'a [u8]) -> Option<(Psn, &'a [u8])> {
    const SEND_ONLY: u8 = 0x04;
    let [opcode, .., a, b, c] = *transport.first_chunk::<BTH_LEN>()?;
    let payload = transport.get(BTH_LEN..transport.len() - ICRC_LEN)?;
    let good = opcode == SEND_ONLY && facts.is_none_or(|facts| verify(facts, transport));
    good.then(|| (Psn::new(u32::from_be_bytes([0, a, b, c])), payload))
}

/// The PSN that an acknowledgement is of.
pub fn read_ack(facts: &UdpFacts, transport: &[u8]) -> Option<Psn> {
    const ACKNOWLEDGE: u8 = 0x11;
    let [opcode, .., a, b, c] = *transport.first_chunk::<BTH_LEN>()?;
    let good = opcode == ACKNOWLEDGE && verify(facts, transport);
    good.then(|| Psn::new(u32::from_be_bytes([0, a, b, c])))
}

/// What the ICRC covers of the headers between two addresses.
pub fn facts(src: Ipv4Addr, src_port: u16, dst: Ipv4Addr, dst_port: u16) -> UdpFacts {
    UdpFacts { ip: IpFacts::v4(src, dst), src_port, dst_port }
}

/// The same for the datagram at place `id` of a segmented send.
pub fn with_id(facts: &UdpFacts, place: usize) -> UdpFacts {
    let mut facts = *facts;
    if let IpFacts::V4 { id, .. } = &mut facts.ip {
        *id = place as u16;
    }
    facts
}

/// Whether the ICRC at the end of a packet that lies in pieces is right. The first piece begins with the IPv4
/// header and holds all headers.
pub fn verify_pieces(pieces: &[&[u8]]) -> bool {
    const PREFIX: usize = IPV4_LEN + UDP_LEN + BTH_LEN;
    let [first, rest @ ..] = pieces else { return false };
    let Some((prefix, first)) = first.split_first_chunk::<PREFIX>() else { return false };
    let mut prefix = *prefix;
    // What routers change: TOS, TTL, both checksums and the congestion bits.
    for byte in [1, 8, 10, 11, IPV4_LEN + 6, IPV4_LEN + 7, IPV4_LEN + UDP_LEN + 4] {
        prefix[byte] = 0xFF;
    }
    let mut hasher = Hasher::new();
    hasher.update(&[0xFF; 8]);
    hasher.update(&prefix);
    let mut icrc = [0; ICRC_LEN];
    let mut left = ICRC_LEN;
    let mut covered = [first, &[], &[]];
    for (place, piece) in covered[1..].iter_mut().zip(rest) {
        *place = piece;
    }
    // The ICRC may itself be cut in two.
    for piece in covered.iter_mut().rev() {
        let (body, tail) = piece.split_at(piece.len() - left.min(piece.len()));
        icrc[left - tail.len()..left].copy_from_slice(tail);
        left -= tail.len();
        *piece = body;
    }
    covered.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize() == u32::from_le_bytes(icrc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_add_up_to_messages() {
        let memory: Vec<u8> = (0..10_001u32).map(|i| i as u8).collect();
        let facts = facts(Ipv4Addr::LOCALHOST, 1, Ipv4Addr::LOCALHOST, 2);
        let mut cutter = Cutter::new(memory.len());
        let mut target = Target::new(memory.len());
        for packet in 0..6 {
            let piece = cutter.peek();
            cutter.advance();
            let mut out = vec![0xEE; piece.transport_len()];
            let asks = piece.emit(Some(&facts), &memory, false, &mut out);
            assert!(!asks && verify(&facts, &out));
            let arrival = Arrival::read(&out).expect("a WRITE");
            assert_eq!((arrival.begins, arrival.ends), (packet % 3 == 0, packet % 3 == 2));
            target.begin(&arrival).expect("in order");
            target.place(&out[arrival.headers..out.len() - ICRC_LEN - arrival.pad]).expect("room");
            target.end(&arrival);
            assert!(target.begin(&arrival).is_err());
        }
        assert_eq!((target.messages, target.bytes), (2, 20_002));
        assert_eq!(target.memory, memory);
    }

    #[test]
    fn an_acknowledgement_is_read_back() {
        let facts = facts(Ipv4Addr::LOCALHOST, 1, Ipv4Addr::LOCALHOST, 2);
        let mut ack = [0; ACK_LEN];
        emit_ack(&facts, Psn::new(77), &mut ack);
        assert_eq!(read_ack(&facts, &ack), Some(Psn::new(77)));
        ack[9] ^= 1;
        assert_eq!(read_ack(&facts, &ack), None);
    }
}
