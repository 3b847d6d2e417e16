//! Strategies that make every legal value.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::strategy::Union;
use softrnic_wire::*;

pub fn headers() -> impl Strategy<Value = Headers> {
    (bth(), body()).prop_map(|(bth, body)| Headers { bth, body })
}

pub fn bth() -> impl Strategy<Value = Bth> {
    let flags = any::<(bool, bool, bool, bool, bool)>();
    (flags, 0..4u8, any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |((solicited, mig_req, fecn, becn, ack_req), pad, pkey, qpn, psn)| Bth {
            solicited,
            mig_req,
            pad: Pad::new(pad),
            pkey: Pkey(pkey),
            fecn,
            becn,
            dest_qpn: Qpn::new(qpn),
            ack_req,
            psn: Psn::new(psn),
        },
    )
}

pub fn body() -> impl Strategy<Value = Body> {
    let deth = any::<(u32, u32)>().prop_map(|(k, q)| Deth { qkey: Qkey(k), src_qpn: Qpn::new(q) });
    prop_oneof![
        8 => op().prop_map(Body::Rc),
        4 => op().prop_filter_map("UC has it", UcOp::from_op).prop_map(Body::Uc),
        8 => (any::<u32>(), op()).prop_filter_map("XRC has it", |(srqn, op)| {
            XrcBody::request(Srqn::new(srqn), op).or(XrcBody::response(op)).map(Body::Xrc)
        }),
        2 => (deth, maybe_imm()).prop_map(|(deth, imm)| Body::Ud { deth, imm }),
        1 => Just(Body::Cnp),
        1 => aeth().prop_map(Body::SelectiveAck),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    Union::new([
        Just(Op::SendFirst).boxed(),
        Just(Op::SendMiddle).boxed(),
        tail().prop_map(Op::SendLast).boxed(),
        tail().prop_map(Op::SendOnly).boxed(),
        reth().prop_map(Op::WriteFirst).boxed(),
        Just(Op::WriteMiddle).boxed(),
        maybe_imm().prop_map(Op::WriteLast).boxed(),
        (reth(), maybe_imm()).prop_map(|(r, i)| Op::WriteOnly(r, i)).boxed(),
        reth().prop_map(Op::ReadRequest).boxed(),
        aeth().prop_map(Op::ReadResponseFirst).boxed(),
        Just(Op::ReadResponseMiddle).boxed(),
        aeth().prop_map(Op::ReadResponseLast).boxed(),
        aeth().prop_map(Op::ReadResponseOnly).boxed(),
        aeth().prop_map(Op::Acknowledge).boxed(),
        (aeth(), any::<u64>()).prop_map(|(a, v)| Op::AtomicAcknowledge(a, v)).boxed(),
        atomic().prop_map(Op::CompareSwap).boxed(),
        atomic().prop_map(Op::FetchAdd).boxed(),
        (feth(), reth()).prop_map(|(f, r)| Op::Flush(f, r)).boxed(),
        reth().prop_map(Op::AtomicWrite).boxed(),
    ])
}

pub fn facts() -> impl Strategy<Value = UdpFacts> {
    (ip_facts(), any::<u16>()).prop_map(|(ip, src_port)| UdpFacts { ip, src_port, dst_port: ROCE_UDP_PORT })
}

pub fn frame_header() -> impl Strategy<Value = FrameHeader> {
    let tag = any::<(bool, u16)>().prop_map(|(service, tci)| VlanTag {
        tpid: if service { EtherType::SERVICE_VLAN } else { EtherType::VLAN },
        tci,
    });
    let tags = prop_oneof![
        Just((None, None)),
        tag.clone().prop_map(|t| (Some(t), None)),
        (tag.clone(), tag).prop_map(|(inner, outer)| (Some(inner), Some(outer))),
    ];
    let eth = (any::<([u8; 6], [u8; 6])>(), tags).prop_map(|((dst, src), (vlan, outer_vlan))| EthHeader {
        dst: MacAddr(dst),
        src: MacAddr(src),
        vlan,
        outer_vlan,
    });
    (eth, facts(), any::<(u8, u8)>(), 0..1u32 << 20).prop_map(|(eth, facts, (tos, ttl), label)| {
        let flow_label = if matches!(facts.ip, IpFacts::V6 { .. }) { label } else { 0 };
        FrameHeader {
            eth,
            ip: IpHeader { facts: facts.ip, tos, ttl, flow_label },
            src_port: facts.src_port,
            dst_port: facts.dst_port,
        }
    })
}

fn ip_facts() -> impl Strategy<Value = IpFacts> {
    prop_oneof![
        any::<(u32, u32, u16, bool)>().prop_map(|(src, dst, id, df)| IpFacts::V4 {
            src: Ipv4Addr::from_bits(src),
            dst: Ipv4Addr::from_bits(dst),
            id,
            flags_frag: if df { DF } else { 0 },
        }),
        any::<(u128, u128)>().prop_map(|(src, dst)| IpFacts::V6 {
            src: Ipv6Addr::from_bits(src),
            dst: Ipv6Addr::from_bits(dst),
        }),
    ]
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(va, rkey, dma_len)| Reth { va, rkey: Rkey(rkey), dma_len })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    any::<(u8, u32)>()
        .prop_map(|(syndrome, msn)| Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(msn) })
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(va, rkey, swap_or_add, compare)| AtomicEth {
        va,
        rkey: Rkey(rkey),
        swap_or_add,
        compare,
    })
}

fn feth() -> impl Strategy<Value = Feth> {
    use Selectivity::*;
    (any::<u8>(), prop::sample::select(vec![Range, Region, Reserved2, Reserved3]))
        .prop_map(|(placement, selectivity)| Feth { placement: Placement::from_bits(placement), selectivity })
}

fn tail() -> impl Strategy<Value = SendTail> {
    prop_oneof![
        Just(SendTail::Plain),
        any::<[u8; 4]>().prop_map(|i| SendTail::Imm(Imm(i))),
        any::<u32>().prop_map(|k| SendTail::Inv(Rkey(k))),
    ]
}

fn maybe_imm() -> impl Strategy<Value = Option<Imm>> {
    prop::option::of(any::<[u8; 4]>().prop_map(Imm))
}
