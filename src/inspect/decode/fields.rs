//! Passes every field of a packet to a sink in wire order: the one description behind `-v`, JSON and the HTML page.

use std::net::IpAddr;

use softrnic_wire::{
    AtomicEth, Body, Deth, EthHeader, Feth, FrameHeader, Gid, Imm, IpFacts, MacAddr, Op, ROCE_UDP_PORT, Reth,
    SendTail, SrdBody, SrdPacket, Syndrome, VlanTag,
};

use super::cm_fields;
use super::names::{nak_name, placement_name, selectivity_name, syndrome_kind};
use crate::capture::{FabricNote, InjectedFault, Record};
use crate::dissect::{Icrc, Net, Roce, Transport};

/// Receives the fields of a packet.
pub trait FieldSink {
    /// A header begins; fields that follow belong to it.
    fn layer(&mut self, name: &'static str);
    /// A field and its value.
    fn field(&mut self, name: &'static str, value: Value<'_>);
    /// The meaning of the previous field.
    fn meaning(&mut self, meaning: Meaning<'_>);
}

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "named after what they hold")]
pub enum Value<'a> {
    Dec(u64),
    /// Shown with this many hexadecimal digits.
    Hex(u64, usize),
    Flag(bool),
    Text(&'a str),
    Mac(MacAddr),
    Ip(IpAddr),
    Gid(Gid),
    Bytes(&'a [u8]),
}

/// The meaning of a coded value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Meaning<'a> {
    /// A name.
    Name(&'a str),
    /// A time in microseconds.
    Micros(u64),
    /// A number of something.
    Count(u64, &'static str),
}

/// The most payload bytes shown.
const SHOWN_PAYLOAD: usize = 64;

/// Passes every field of a packet, and of the record that held it, to `sink`.
pub fn describe(record: &Record<'_>, roce: &Roce<'_>, sink: &mut dyn FieldSink) {
    sink.layer("frame");
    sink.field("number", Value::Dec(record.number));
    sink.field("length", Value::Dec(record.wire_len.into()));
    sink.field("captured", Value::Dec(record.data.len() as u64));
    if let Some(InjectedFault { done, rule, text }) = InjectedFault::parse(record.comment) {
        sink.field("fault", Value::Text(&format!("{done} by rule {rule}, {text}")));
    }
    if let Some(FabricNote { done, port, why }) = FabricNote::parse(record.comment) {
        let why = why.map(|why| format!(", {why}")).unwrap_or_default();
        sink.field("fabric", Value::Text(&format!("{done} at {port}{why}")));
    }
    if roce.eth_captured {
        ethernet(roce.net.eth(), sink);
    } else {
        sink.field("link", Value::Text(if record.data.is_empty() { "" } else { "not Ethernet" }));
    }
    match &roce.net {
        Net::V2 { header, udp_checksum, ip_checksum_ok } => {
            ip(header, roce.wire_len, *ip_checksum_ok, sink);
            udp(header, *udp_checksum, roce.wire_len, sink);
        }
        Net::V1 { src, dst, tclass, hop_limit, .. } => {
            sink.layer("grh");
            sink.field("traffic_class", Value::Hex((*tclass).into(), 2));
            sink.field("hop_limit", Value::Dec((*hop_limit).into()));
            sink.field("src_gid", Value::Gid(*src));
            sink.field("dst_gid", Value::Gid(*dst));
        }
    }
    bth(roce, sink);
    match &roce.transport {
        Transport::Packet(packet) => {
            body(&packet.body, sink);
            match roce.mad() {
                Some(mad) => cm_fields::mad(&mad, sink),
                None => payload(roce, packet.payload.len(), sink),
            }
        }
        Transport::Malformed(error) => {
            if let Some(packet) = roce.srd() {
                srd(&packet, sink);
                bytes(packet.payload, packet.payload.len(), sink);
                return icrc(roce, sink);
            }
            sink.layer("malformed");
            sink.field("reason", Value::Text(&error.to_string()));
        }
        Transport::HeadersCut => {
            sink.layer("cut");
            sink.field("reason", Value::Text("the capture ends inside the headers"));
        }
    }
    icrc(roce, sink);
}

/// The headers of a packet of SRD, with the names that `docs/wire-extensions.md` has.
fn srd(packet: &SrdPacket<'_>, sink: &mut dyn FieldSink) {
    let headers = &packet.headers;
    sink.layer("srd");
    sink.field("packet", Value::Text(headers.body.opcode().name()));
    sink.field("src_qp", Value::Hex(headers.src_qpn.get().into(), 6));
    sink.field("src_tag", Value::Hex(headers.src_tag.into(), 8));
    sink.field("dst_tag", Value::Hex(headers.dst_tag.into(), 8));
    sink.field("psn", Value::Dec(headers.psn.0.into()));
    if let Some(message) = headers.body.message() {
        sink.field("una", Value::Dec(message.una.0.into()));
        sink.field("message", Value::Hex(message.id.into(), 8));
    }
    match headers.body {
        SrdBody::Send(_, part, _) | SrdBody::Write(_, part, ..) | SrdBody::ReadRequest(_, part, _) => {
            sink.field("qkey", Value::Hex(part.qkey.0.into(), 8));
            sink.field("length", Value::Dec(part.length.into()));
            sink.field("offset", Value::Dec(part.offset.into()));
        }
        SrdBody::ReadResponse(_, offset) => sink.field("offset", Value::Dec(offset.into())),
        SrdBody::ReadFailure(_, code) => sink.field("reason", Value::Dec(code.into())),
        SrdBody::Refuse { id, code } => {
            sink.field("message", Value::Hex(id.into(), 8));
            sink.field("reason", Value::Dec(code.into()));
        }
        SrdBody::Acknowledge { latest, bits } => {
            sink.field("latest", Value::Dec(latest.0.into()));
            sink.field("taken", Value::Dec(bits.iter().map(|word| u64::from(word.count_ones())).sum()));
        }
        _ => {}
    }
    if let SrdBody::Write(_, _, remote, _) | SrdBody::ReadRequest(_, _, remote) = headers.body {
        sink.field("va", Value::Hex(remote.va, 16));
        sink.field("rkey", Value::Hex(remote.rkey.0.into(), 8));
    }
    if let Some(imm) = headers.body.imm() {
        sink.field("imm", Value::Hex(u32::from_be_bytes(imm.0).into(), 8));
    }
}

fn ethernet(eth: &EthHeader, sink: &mut dyn FieldSink) {
    sink.layer("ethernet");
    sink.field("dst", Value::Mac(eth.dst));
    sink.field("src", Value::Mac(eth.src));
    if let Some(inner) = eth.vlan {
        if let Some(outer) = eth.outer_vlan {
            vlan("outer_vlan", "outer_priority", outer, sink);
        }
        vlan("vlan", "priority", inner, sink);
    }
}

fn vlan(id: &'static str, priority: &'static str, tag: VlanTag, sink: &mut dyn FieldSink) {
    sink.field(id, Value::Dec(tag.id().into()));
    sink.field(priority, Value::Dec(tag.pcp().into()));
}

fn ip(header: &FrameHeader, transport_len: usize, checksum_ok: bool, sink: &mut dyn FieldSink) {
    let ip = &header.ip;
    let after_ip = (softrnic_wire::UDP_LEN + transport_len) as u64;
    match ip.facts {
        IpFacts::V4 { src, dst, id, flags_frag } => {
            sink.layer("ipv4");
            traffic_class(ip.tos, sink);
            sink.field("length", Value::Dec(after_ip + softrnic_wire::IPV4_LEN as u64));
            sink.field("id", Value::Hex(id.into(), 4));
            sink.field("dont_fragment", Value::Flag(flags_frag & softrnic_wire::DF != 0));
            sink.field("ttl", Value::Dec(ip.ttl.into()));
            sink.field("checksum", Value::Text(if checksum_ok { "good" } else { "bad" }));
            sink.field("src", Value::Ip(src.into()));
            sink.field("dst", Value::Ip(dst.into()));
        }
        IpFacts::V6 { src, dst } => {
            sink.layer("ipv6");
            traffic_class(ip.tos, sink);
            sink.field("flow_label", Value::Hex(ip.flow_label.into(), 5));
            sink.field("payload_length", Value::Dec(after_ip));
            sink.field("hop_limit", Value::Dec(ip.ttl.into()));
            sink.field("src", Value::Ip(src.into()));
            sink.field("dst", Value::Ip(dst.into()));
        }
    }
}

fn traffic_class(tos: u8, sink: &mut dyn FieldSink) {
    sink.field("dscp", Value::Dec((tos >> 2).into()));
    sink.field("ecn", Value::Dec((tos & 3).into()));
    sink.meaning(Meaning::Name(
        ["not ECT", "ECT(1)", "ECT(0)", "congestion experienced"][usize::from(tos & 3)],
    ));
}

fn udp(header: &FrameHeader, checksum: u16, transport_len: usize, sink: &mut dyn FieldSink) {
    debug_assert_eq!(header.dst_port, ROCE_UDP_PORT);
    sink.layer("udp");
    sink.field("src_port", Value::Dec(header.src_port.into()));
    sink.field("dst_port", Value::Dec(header.dst_port.into()));
    sink.field("length", Value::Dec((softrnic_wire::UDP_LEN + transport_len) as u64));
    sink.field("checksum", Value::Hex(checksum.into(), 4));
    if checksum == 0 {
        sink.meaning(Meaning::Name("none"));
    }
}

fn bth(roce: &Roce<'_>, sink: &mut dyn FieldSink) {
    let Some(bth) = roce.bth() else { return };
    sink.layer("bth");
    sink.field("opcode", Value::Hex(bth.opcode().into(), 2));
    sink.meaning(Meaning::Name(opcode_name(roce)));
    sink.field("solicited", Value::Flag(bth.solicited()));
    sink.field("mig_req", Value::Flag(bth.mig_req()));
    sink.field("pad", Value::Dec(bth.pad().into()));
    sink.field("tver", Value::Dec(bth.tver().into()));
    sink.field("pkey", Value::Hex(bth.pkey().0.into(), 4));
    sink.field("fecn", Value::Flag(bth.fecn()));
    sink.field("becn", Value::Flag(bth.becn()));
    sink.field("reserved_6", Value::Hex(bth.reserved_variant().into(), 2));
    sink.field("dest_qp", Value::Hex(bth.dest_qpn().get().into(), 6));
    sink.field("ack_req", Value::Flag(bth.ack_req()));
    sink.field("reserved_7", Value::Hex(bth.reserved().into(), 2));
    sink.field("psn", Value::Dec(bth.psn().get().into()));
}

fn opcode_name(roce: &Roce<'_>) -> &'static str {
    let srd = || roce.srd().map_or("not defined", |packet| packet.headers.body.opcode().name());
    roce.opcode().map_or_else(srd, |opcode| opcode.name())
}

fn body(body: &Body, sink: &mut dyn FieldSink) {
    match body {
        Body::Rc(op) => operation(op, sink),
        Body::Xrc(xrc) => {
            if let Some(srqn) = xrc.srqn() {
                sink.layer("xrceth");
                sink.field("srq", Value::Hex(srqn.get().into(), 6));
            }
            operation(&xrc.op(), sink);
        }
        Body::Uc(op) => operation(&Op::from(*op), sink),
        Body::Ud { deth, imm } => {
            datagram(deth, sink);
            immediate(*imm, sink);
        }
        Body::Cnp => {}
        Body::SelectiveAck(aeth) => operation(&Op::Acknowledge(*aeth), sink),
    }
}

fn operation(op: &Op, sink: &mut dyn FieldSink) {
    if let Op::Flush(feth, _) = op {
        flush(feth, sink);
    }
    if let Some(reth) = op.reth() {
        rdma(&reth, sink);
    }
    if let Some(aeth) = op.aeth() {
        sink.layer("aeth");
        syndrome(aeth.syndrome, sink);
        sink.field("msn", Value::Dec(aeth.msn.get().into()));
    }
    match op {
        Op::AtomicAcknowledge(_, original) => {
            sink.layer("atomicacketh");
            sink.field("original", Value::Hex(*original, 16));
        }
        Op::CompareSwap(atomic) => atomic_eth(atomic, true, sink),
        Op::FetchAdd(atomic) => atomic_eth(atomic, false, sink),
        Op::SendLast(SendTail::Inv(rkey)) | Op::SendOnly(SendTail::Inv(rkey)) => {
            sink.layer("ieth");
            sink.field("rkey", Value::Hex(rkey.0.into(), 8));
        }
        _ => {}
    }
    immediate(op.imm(), sink);
}

fn rdma(reth: &Reth, sink: &mut dyn FieldSink) {
    sink.layer("reth");
    sink.field("va", Value::Hex(reth.va, 16));
    sink.field("rkey", Value::Hex(reth.rkey.0.into(), 8));
    sink.field("dma_length", Value::Dec(reth.dma_len.into()));
}

fn syndrome(syndrome: Syndrome, sink: &mut dyn FieldSink) {
    sink.field("syndrome", Value::Hex(syndrome.byte().into(), 2));
    sink.meaning(Meaning::Name(syndrome_kind(syndrome)));
    match syndrome {
        Syndrome::Ack(credits) => {
            sink.field("credits", Value::Dec(credits.code().into()));
            sink.meaning(match credits.count() {
                Some(count) => Meaning::Count(count.into(), "credits"),
                None => Meaning::Name("no limit"),
            });
        }
        Syndrome::RnrNak(timer) => {
            sink.field("rnr_timer", Value::Dec(timer.code().into()));
            sink.meaning(Meaning::Micros(timer.delay_us().into()));
        }
        Syndrome::Nak(code) => {
            sink.field("nak_code", Value::Dec(code.code().into()));
            sink.meaning(Meaning::Name(nak_name(code)));
        }
        Syndrome::Reserved(_) => {}
    }
}

fn atomic_eth(atomic: &AtomicEth, swap: bool, sink: &mut dyn FieldSink) {
    sink.layer("atomiceth");
    sink.field("va", Value::Hex(atomic.va, 16));
    sink.field("rkey", Value::Hex(atomic.rkey.0.into(), 8));
    sink.field(if swap { "swap" } else { "add" }, Value::Hex(atomic.swap_or_add, 16));
    sink.field(if swap { "compare" } else { "unused" }, Value::Hex(atomic.compare, 16));
}

fn flush(feth: &Feth, sink: &mut dyn FieldSink) {
    sink.layer("feth");
    sink.field("placement", Value::Dec(feth.placement.bits().into()));
    sink.meaning(Meaning::Name(placement_name(feth.placement)));
    sink.field("selectivity", Value::Text(selectivity_name(feth.selectivity)));
}

fn datagram(deth: &Deth, sink: &mut dyn FieldSink) {
    sink.layer("deth");
    sink.field("qkey", Value::Hex(deth.qkey.0.into(), 8));
    sink.field("src_qp", Value::Hex(deth.src_qpn.get().into(), 6));
}

fn immediate(imm: Option<Imm>, sink: &mut dyn FieldSink) {
    if let Some(imm) = imm {
        sink.layer("immdt");
        sink.field("imm", Value::Hex(u32::from_be_bytes(imm.0).into(), 8));
    }
}

fn payload(roce: &Roce<'_>, len: usize, sink: &mut dyn FieldSink) {
    bytes(roce.payload(), len, sink);
}

fn bytes(captured: &[u8], len: usize, sink: &mut dyn FieldSink) {
    if len > 0 {
        sink.layer("payload");
        sink.field("length", Value::Dec(len as u64));
        let shown = captured.len().min(SHOWN_PAYLOAD);
        if shown > 0 {
            sink.field(if shown == len { "data" } else { "first_bytes" }, Value::Bytes(&captured[..shown]));
        }
    }
}

fn icrc(roce: &Roce<'_>, sink: &mut dyn FieldSink) {
    sink.layer("icrc");
    if let Some(received) = roce.icrc_received() {
        // In the order of the bytes in the frame.
        sink.field("value", Value::Hex(received.swap_bytes().into(), 8));
    }
    sink.field("state", Value::Text(icrc_name(roce.icrc)));
    if let Icrc::Bad { computed, .. } = roce.icrc {
        sink.field("expected", Value::Hex(computed.swap_bytes().into(), 8));
    }
}

/// The state of an ICRC in a word or two.
pub const fn icrc_name(icrc: Icrc) -> &'static str {
    match icrc {
        Icrc::Good => "good",
        Icrc::RxeFlush => "rxe FLUSH form",
        Icrc::Bad { .. } => "bad",
        Icrc::NotCaptured => "not captured",
    }
}
