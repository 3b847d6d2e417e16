//! Bytes: ICRC, parsing, emitting.

use std::hint::black_box;
use std::net::Ipv4Addr;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use softrnic_wire::{
    Aeth, Body, Bth, Headers, ICRC_LEN, IpFacts, Msn, Op, Packet, Psn, Qpn, Reth, Rkey, UdpFacts, icrc, seal,
    verify_unknown_id,
};

fn facts() -> UdpFacts {
    let ip = IpFacts::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    UdpFacts { ip, src_port: 49_152, dst_port: 4791 }
}

fn headers(body: Body) -> Headers {
    Headers { bth: Bth::new(Qpn::new(0x1234), Psn::new(77)), body }
}

/// A sealed packet.
fn packet(body: Body, payload: usize) -> Vec<u8> {
    let headers = headers(body);
    let mut bytes = vec![0x5A; headers.transport_len(payload)];
    headers.emit(&mut bytes);
    seal(&facts(), &mut bytes);
    bytes
}

fn bodies() -> [(&'static str, Body, usize); 4] {
    let reth = Reth { va: 0x7000_0000, rkey: Rkey(0x1234), dma_len: 65_536 };
    [
        ("write middle 4096", Body::Rc(Op::WriteMiddle), 4096),
        ("write first 4096", Body::Rc(Op::WriteFirst(reth)), 4096),
        ("send only 64", Body::Rc(Op::SendOnly(softrnic_wire::SendTail::Plain)), 64),
        ("acknowledge", Body::Rc(Op::Acknowledge(Aeth::ack(Msn::new(5)))), 0),
    ]
}

fn checksums(c: &mut Criterion) {
    let mut group = c.benchmark_group("icrc");
    for len in [16, 64, 256, 1024, 4096] {
        let bytes = packet(Body::Rc(Op::WriteMiddle), len);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let covered = bytes.len() - ICRC_LEN;
        group.bench_function(format!("compute {len}"), |b| {
            b.iter(|| icrc(black_box(&facts()), black_box(&bytes[..covered])));
        });
        group.bench_function(format!("verify {len}, ID unknown"), |b| {
            b.iter(|| verify_unknown_id(black_box(&facts()), black_box(&bytes)));
        });
    }
    group.finish();
}

fn parsing(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    for (name, body, payload) in bodies() {
        let bytes = packet(body, payload);
        group.bench_function(name, |b| b.iter(|| Packet::parse(black_box(&bytes)).map(|packet| packet.bth)));
    }
    group.finish();
}

fn emitting(c: &mut Criterion) {
    let mut group = c.benchmark_group("emit");
    for (name, body, _) in bodies() {
        let headers = headers(body);
        group.bench_function(name, |b| {
            b.iter_batched_ref(|| [0; 64], |room| black_box(&headers).emit(room), BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, checksums, parsing, emitting);
criterion_main!(benches);
