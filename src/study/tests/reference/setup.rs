//! Networks and flows of the tests.

use softrnic_fabric::{Ecn, Headroom, Host, Parts, Pfc, Picos};
use softrnic_study::{Flow, NicConfig, Report, Study};
use softrnic_wire::Mtu;

pub const GIGABIT: u64 = 1_000_000_000;
/// Packets of a kibibyte: BTH 12 and ICRC 4, and what is below.
pub const FRAME: u64 = 1024 + 16 + 66;
/// An ACK: BTH 12, AETH 4, ICRC 4, and what is below.
pub const ACK: u64 = 20 + 66;
pub const MICROSECOND: Picos = Picos::from_micros(1);

/// Everyone linked at one rate, a microsecond apart; priority 0 loses nothing.
pub fn parts(rate: u64, buffer: u64, lossless: bool) -> Parts {
    let mut parts = Parts::default();
    let pfc = Pfc { lossless: u8::from(lossless), headroom: Headroom::Auto, ..Pfc::default() };
    parts.switch.pfc = pfc;
    parts.switch.buffer = buffer;
    parts.host.pfc = pfc;
    for link in [&mut parts.edge, &mut parts.core] {
        link.rate = rate;
        link.delay = MICROSECOND;
        link.mtu_bytes = FRAME as u32;
    }
    parts
}

pub fn ecn(kmin: u64, kmax: u64, pmax: f64) -> Option<Ecn> {
    Some(Ecn { kmin, kmax, pmax })
}

pub fn flow(src: u32, dst: u32, bytes: u64) -> Flow {
    let sport = 0xC000 + src as u16;
    Flow { src: Host(src), dst: Host(dst), bytes, start: Picos::ZERO, dscp: 0, sport }
}

pub fn nic() -> NicConfig {
    NicConfig { mtu: Mtu::B1024, ..NicConfig::default() }
}

pub fn run(study: &mut Study, until: Picos) -> Report {
    study.run(until).expect("a run");
    study.report()
}

/// How long `bytes` on the wire take.
pub fn time(bytes: u64, rate: u64) -> f64 {
    bytes as f64 * 8e9 / rate as f64
}
