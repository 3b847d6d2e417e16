//! Builds captures: frames by `softrnic-wire`'s emitters, in pcap records.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::{IpAddr, Ipv4Addr};

use softrnic_wire::*;

pub const MTU: usize = 1024;

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub ip: IpAddr,
    pub qpn: u32,
}

pub const A: Side = Side { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), qpn: 0x11 };
pub const B: Side = Side { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), qpn: 0x22 };

/// A capture being made. Packets are ten microseconds apart unless told otherwise.
#[derive(Clone)]
pub struct Capture {
    pub now_ns: u64,
    pub frames: Vec<(u64, Vec<u8>)>,
    /// Whether every packet takes another IP ID, as those of Linux rxe do.
    pub counting_ids: bool,
    pub next_id: u16,
    pub tos: u8,
    /// In which bits the UDP source port differs from that of the connection.
    pub path: u16,
}

impl Capture {
    pub fn new() -> Capture {
        Capture {
            now_ns: 1_700_000_000_000_000_000,
            frames: Vec::new(),
            counting_ids: false,
            next_id: 1,
            tos: 2,
            path: 0,
        }
    }

    pub fn wait_us(&mut self, us: u64) -> &mut Capture {
        self.now_ns += us * 1000;
        self
    }

    /// Sends one packet of any kind and lets ten microseconds pass. Returns its record number.
    pub fn packet(&mut self, from: Side, to: Side, bth: Bth, body: Body, payload: &[u8]) -> u32 {
        let id = if self.counting_ids { self.next_id } else { 0 };
        self.next_id = self.next_id.wrapping_add(1);
        let frame = frame(from, to, bth, body, payload, id, self.tos, self.path);
        self.frame(frame)
    }

    pub fn frame(&mut self, frame: Vec<u8>) -> u32 {
        self.frames.push((self.now_ns, frame));
        self.now_ns += 10_000;
        self.frames.len() as u32
    }

    /// An RC packet; asks for an ACK when `ack`.
    pub fn rc(&mut self, from: Side, to: Side, psn: u32, op: Op, ack: bool, len: usize) -> u32 {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let bth =
            Bth { pad: Pad::for_payload(len), ack_req: ack, ..Bth::new(Qpn::new(to.qpn), Psn::new(psn)) };
        self.packet(from, to, bth, Body::Rc(op), &payload)
    }

    /// A SEND Only of 100 bytes.
    pub fn send(&mut self, from: Side, to: Side, psn: u32) -> u32 {
        self.rc(from, to, psn, Op::SendOnly(SendTail::Plain), true, 100)
    }

    /// A SEND of several packets; returns the PSN after it.
    pub fn long_send(&mut self, from: Side, to: Side, psn: u32, packets: u32) -> u32 {
        for i in 0..packets {
            match i {
                0 => self.rc(from, to, psn, Op::SendFirst, false, MTU),
                i if i + 1 == packets => self.rc(from, to, psn + i, Op::SendLast(SendTail::Plain), true, 200),
                i => self.rc(from, to, psn + i, Op::SendMiddle, false, MTU),
            };
        }
        psn + packets
    }

    pub fn ack(&mut self, from: Side, to: Side, psn: u32, msn: u32) -> u32 {
        self.rc(from, to, psn, Op::Acknowledge(Aeth::ack(Msn::new(msn))), false, 0)
    }

    pub fn nak(&mut self, from: Side, to: Side, psn: u32, msn: u32, syndrome: Syndrome) -> u32 {
        self.rc(from, to, psn, Op::Acknowledge(Aeth { syndrome, msn: Msn::new(msn) }), false, 0)
    }

    /// A question or an answer about what a SoftRNIC can do.
    pub fn capabilities(&mut self, from: Side, to: Side, answers: bool) -> u32 {
        let capabilities =
            Capabilities { version: 1, selective_recovery: true, paths: false, reorder_window: 512 };
        let attribute = VendorAttribute::Capabilities(capabilities);
        let vendor = VendorMad { answers, to: Qpn::new(to.qpn), from: Qpn::new(from.qpn), attribute };
        let mut mad = [0; MAD_LEN];
        vendor.emit_mad(7, &mut mad);
        let body = Body::Ud { deth: Deth { qkey: Qkey(0x8001_0000), src_qpn: Qpn::GSI }, imm: None };
        self.packet(from, to, Bth::new(Qpn::GSI, Psn::new(0)), body, &mad)
    }

    /// Everything before `psn` has come, and of what is behind it what has its bit.
    pub fn selective_ack(&mut self, from: Side, to: Side, psn: u32, msn: u32, bits: &[u8]) -> u32 {
        let body = Body::SelectiveAck(Aeth::ack(Msn::new(msn)));
        self.packet(from, to, Bth::new(Qpn::new(to.qpn), Psn::new(psn)), body, bits)
    }

    pub fn read(&mut self, from: Side, to: Side, psn: u32, va: u64, len: u32) -> u32 {
        self.rc(from, to, psn, Op::ReadRequest(Reth { va, rkey: Rkey(0x1234), dma_len: len }), true, 0)
    }

    /// Response number `i` of `n` to a READ that began at `psn`, the last one 200 bytes long.
    pub fn response(&mut self, from: Side, to: Side, psn: u32, i: u32, n: u32, msn: u32) -> u32 {
        let aeth = Aeth::ack(Msn::new(msn));
        let (op, len) = match i {
            _ if n == 1 => (Op::ReadResponseOnly(aeth), 200),
            0 => (Op::ReadResponseFirst(aeth), MTU),
            i if i + 1 == n => (Op::ReadResponseLast(aeth), 200),
            _ => (Op::ReadResponseMiddle, MTU),
        };
        self.rc(from, to, psn + i, op, false, len)
    }

    pub fn responses(&mut self, from: Side, to: Side, psn: u32, n: u32, msn: u32) {
        for i in 0..n {
            self.response(from, to, psn, i, n, msn);
        }
    }

    pub fn fetch_add(&mut self, from: Side, to: Side, psn: u32, va: u64) -> u32 {
        let atomic = AtomicEth { va, rkey: Rkey(0x1234), swap_or_add: 1, compare: 0 };
        self.rc(from, to, psn, Op::FetchAdd(atomic), true, 0)
    }

    pub fn atomic_ack(&mut self, from: Side, to: Side, psn: u32, msn: u32, original: u64) -> u32 {
        self.rc(from, to, psn, Op::AtomicAcknowledge(Aeth::ack(Msn::new(msn)), original), false, 0)
    }

    /// Repeats the frame with this record number, bit for bit.
    pub fn repeat(&mut self, number: u32) -> u32 {
        let frame = self.frames[number as usize - 1].1.clone();
        self.frame(frame)
    }

    /// Flips a bit in the payload or ICRC of the last frame.
    pub fn corrupt_last(&mut self) {
        let frame = &mut self.frames.last_mut().unwrap().1;
        let at = frame.len() - 6;
        frame[at] ^= 0x10;
    }

    /// A management datagram.
    pub fn mad(&mut self, from: Side, to: Side, attribute: u16, tid: u64, body: &[u8]) -> u32 {
        let mut mad = vec![0; 256];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[8..16].copy_from_slice(&tid.to_be_bytes());
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[24..24 + body.len()].copy_from_slice(body);
        let (from, to) = (Side { qpn: 1, ..from }, Side { qpn: 1, ..to });
        let deth = Deth { qkey: Qkey(0x8001_0000), src_qpn: Qpn::GSI };
        let bth = Bth::new(Qpn::GSI, Psn::new(self.frames.len() as u32));
        self.packet(from, to, bth, Body::Ud { deth, imm: None }, &mad)
    }

    /// The capture as a pcap file with nanosecond time stamps.
    pub fn pcap(&self) -> Vec<u8> {
        let mut file = pcap_header(0xA1B2_3C4D, 1);
        for (time_ns, frame) in &self.frames {
            pcap_record(&mut file, *time_ns, frame, frame.len());
        }
        file
    }
}

/// Connections that each lose a packet in every round, which a NAK mends, and one packet somewhere in the middle that
/// breaks a rule: its PSN is one that nobody may use yet.
pub fn losses_and_an_error(pairs: u32, rounds: u32) -> Capture {
    let mut c = Capture::new();
    let sides = |i: u32| (Side { qpn: 0x100 + i, ..A }, Side { qpn: 0x10_0000 + i, ..B });
    for round in 0..rounds {
        for i in 0..pairs {
            let (a, b) = sides(i);
            let (psn, msn) = (3 * round + 1, 3 * round);
            c.send(a, b, psn - 1);
            c.send(a, b, psn + 1);
            c.nak(b, a, psn, msn + 1, Syndrome::Nak(NakCode::PsnSequence));
            c.send(a, b, psn);
            c.send(a, b, psn + 1);
            c.ack(b, a, psn + 1, msn + 3);
        }
        if round == rounds / 2 {
            let (a, b) = sides(pairs / 2);
            c.nak(b, a, 3 * round + 2000, 0, Syndrome::Nak(NakCode::RemoteAccess));
        }
    }
    c
}

/// A pcapng file as a NIC writes it that records what it sends and what it receives: for each packet its time,
/// whether it left, and its frame.
pub fn pcapng(packets: &[(u64, bool, &[u8])]) -> Vec<u8> {
    let commented: Vec<_> =
        packets.iter().map(|(time_ns, leaves, frame)| (*time_ns, *leaves, *frame, "hi")).collect();
    pcapng_with_comments(&commented)
}

/// Likewise, with a comment for each packet.
pub fn pcapng_with_comments(packets: &[(u64, bool, &[u8], &str)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let len = (body.len() as u32 + 12).to_le_bytes();
        file.extend([&kind.to_le_bytes()[..], &len, body, &len].concat());
    };
    block(0x0A0D_0D0A, &[&[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0][..], &[0xFF; 8]].concat());
    // Ethernet, no limit, nanoseconds.
    block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    for (time_ns, leaves, frame, comment) in packets {
        let len = frame.len() as u32;
        let mut body = Vec::new();
        for word in [0, (time_ns >> 32) as u32, *time_ns as u32, len, len] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        // epb_flags, behind a comment.
        body.extend_from_slice(&[1, 0, comment.len() as u8, 0]);
        body.extend_from_slice(comment.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend_from_slice(&[2, 0, 4, 0, 1 + u8::from(*leaves), 0, 0, 0]);
        body.extend_from_slice(&[0; 4]);
        block(6, &body);
    }
    file
}

pub fn pcap_header(magic: u32, link: u32) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(&magic.to_le_bytes());
    file.extend_from_slice(&[2, 0, 4, 0]);
    file.extend_from_slice(&[0; 8]);
    file.extend_from_slice(&262_144u32.to_le_bytes());
    file.extend_from_slice(&link.to_le_bytes());
    file
}

pub fn pcap_record(file: &mut Vec<u8>, time_ns: u64, data: &[u8], wire_len: usize) {
    for word in [
        (time_ns / 1_000_000_000) as u32,
        (time_ns % 1_000_000_000) as u32,
        data.len() as u32,
        wire_len as u32,
    ] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(data);
}

/// A whole Ethernet frame.
#[allow(clippy::too_many_arguments, reason = "headers have many fields")]
pub fn frame(
    from: Side,
    to: Side,
    bth: Bth,
    body: Body,
    payload: &[u8],
    id: u16,
    tos: u8,
    path: u16,
) -> Vec<u8> {
    let facts = match (from.ip, to.ip) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id, flags_frag: DF },
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
        _ => panic!("addresses of two families"),
    };
    let header = FrameHeader {
        eth: EthHeader::untagged(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1])),
        ip: IpHeader { facts, tos, ttl: 64, flow_label: 0 },
        src_port: path ^ flow_label_to_sport(default_flow_label(Qpn::new(from.qpn), Qpn::new(to.qpn))),
        dst_port: ROCE_UDP_PORT,
    };
    let headers = Headers { bth, body };
    let transport_len = headers.transport_len(payload.len());
    let mut bytes = vec![0; header.wire_len() + transport_len];
    let at = header.emit(&mut bytes, transport_len);
    let transport = &mut bytes[at..];
    let n = headers.emit(transport);
    transport[n..n + payload.len()].copy_from_slice(payload);
    seal(&header.facts(), transport);
    bytes
}

/// The body of a REQ.
pub fn req(id: u32, qpn: u32, psn: u32) -> Vec<u8> {
    let mut body = vec![0; 232];
    body[..4].copy_from_slice(&id.to_be_bytes());
    body[8..16].copy_from_slice(&0x0000_0000_0106_1C06u64.to_be_bytes());
    body[32..35].copy_from_slice(&qpn.to_be_bytes()[1..]);
    body[43] = 20 << 3;
    body[44..47].copy_from_slice(&psn.to_be_bytes()[1..]);
    body[47] = 20 << 3 | 7;
    body[48..50].copy_from_slice(&[0xFF; 2]);
    body[50] = 3 << 4 | 7;
    body[51] = 15 << 4;
    body[95] = 14 << 3;
    body[141] = 0x40;
    body
}

/// The body of a REP.
pub fn rep(id: u32, remote: u32, qpn: u32, psn: u32) -> Vec<u8> {
    let mut body = vec![0; 232];
    body[..4].copy_from_slice(&id.to_be_bytes());
    body[4..8].copy_from_slice(&remote.to_be_bytes());
    body[12..15].copy_from_slice(&qpn.to_be_bytes()[1..]);
    body[20..23].copy_from_slice(&psn.to_be_bytes()[1..]);
    body
}

/// The body of an RTU or DREP.
pub fn ids(id: u32, remote: u32) -> Vec<u8> {
    let mut body = vec![0; 232];
    body[..4].copy_from_slice(&id.to_be_bytes());
    body[4..8].copy_from_slice(&remote.to_be_bytes());
    body
}

/// The body of a REJ.
pub fn rej(id: u32, remote: u32, reason: u16) -> Vec<u8> {
    let mut body = ids(id, remote);
    body[10..12].copy_from_slice(&reason.to_be_bytes());
    body
}

impl Capture {
    /// An RC packet of any opcode, if the number is one, with `word` all over its headers.
    pub fn any_rc(&mut self, from: Side, to: Side, psn: u32, opcode: u8, word: u32) {
        let Some(opcode) = Opcode::from_byte(opcode) else { return };
        let info = opcode.info();
        let mut bytes = vec![0; info.headers_len];
        for place in bytes.chunks_mut(4) {
            place.copy_from_slice(&word.to_be_bytes()[..place.len()]);
        }
        bytes[..2].copy_from_slice(&[opcode.byte(), 0]);
        bytes.resize(info.headers_len + ICRC_LEN, 0);
        let body = Packet::parse(&bytes).unwrap().body;
        let payload = vec![1; (word % 1200) as usize];
        let bth = Bth {
            pad: Pad::for_payload(payload.len()),
            ack_req: word & 1 == 1,
            ..Bth::new(Qpn::new(to.qpn), Psn::new(psn))
        };
        self.packet(from, to, bth, body, &payload);
    }
}

/// Gives a frame the ICRC that its content asks for.
pub fn reseal(frame: &mut [u8]) {
    if let Ok(facts) = Frame::parse(frame).map(|f| f.facts()) {
        seal(&facts, &mut frame[42..]);
    }
}

/// An Ethernet frame without its Ethernet header.
pub fn raw_ip(frame: &[u8]) -> Vec<u8> {
    frame[14..].to_vec()
}

/// An Ethernet frame with one of the headers that Linux writes when capturing on all interfaces.
pub fn cooked(frame: &[u8], version_2: bool) -> Vec<u8> {
    let ether_type = &frame[12..14];
    let header = match version_2 {
        false => [&[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], ether_type].concat(),
        true => [ether_type, &[0, 0, 0, 0, 0, 2, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0]].concat(),
    };
    [&header, &frame[14..]].concat()
}

/// What is tried with a program that is not there cannot pass: said on standard error, which the test harness does
/// not hide, and in the summary of `make test`; in continuous integration it fails.
pub fn skip(program: &str, error: &std::io::Error) {
    use std::io::Write;
    assert!(std::env::var_os("CI").is_none(), "no {program}: {error}");
    let line = format!("decode and explain were not tried with {program}: {error} (tools/setup inspect)\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(path) = std::env::var_os("SOFTRNIC_TEST_SKIPS") {
        let mut summary = std::fs::File::options().append(true).open(path).unwrap();
        summary.write_all(line.as_bytes()).unwrap();
    }
}
