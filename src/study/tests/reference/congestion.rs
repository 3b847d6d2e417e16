//! DCQCN and PFC of whole NICs.

use softrnic_fabric::{Picos, Topology};
use softrnic_study::{NicConfig, Report, Study};
use softrnic_transport::RateParameters;

use crate::setup::{GIGABIT, ecn, flow, nic, parts, run};

const RATE: u64 = 100 * GIGABIT;

/// The timers of the reference's `dcqcn` preset, which are those of ConnectX.
fn vendor_timers() -> RateParameters {
    RateParameters {
        rpg_byte_reset: 1 << 50,
        rpg_threshold: 1,
        rpg_min_rate: GIGABIT / 8,
        dce_tcp_rtt: 1_000,
        ..RateParameters::default()
    }
}

/// `senders` hosts send to one, with DCQCN or without.
fn incast(senders: u32, bytes: u64, dcqcn: bool, buffer: u64) -> Report {
    let mut parts = parts(RATE, buffer, true);
    if dcqcn {
        parts.switch.ecn[0] = ecn(100_000, 400_000, 0.2);
    }
    let network = Topology::star(senders + 1, &parts).expect("a star");
    let nic = NicConfig { dcqcn: dcqcn.then(vendor_timers), cnp_interval_us: 4, ..nic() };
    let flows: Vec<_> = (0..senders).map(|host| flow(host, senders, bytes)).collect();
    let mut study = Study::new(network, nic, &flows, 3).expect("a study");
    run(&mut study, Picos::from_micros(200_000))
}

fn pauses(report: &Report) -> u64 {
    report.ports.iter().map(|port| port.pauses_received).sum()
}

#[test]
fn an_incast_pauses_without_dcqcn_and_hardly_with_it() {
    let without = incast(8, 1 << 20, false, 2 << 20);
    let with = incast(8, 1 << 20, true, 2 << 20);
    for report in [&without, &with] {
        assert!(report.flows.iter().all(|flow| flow.fct_ns.is_some()), "{:?}", report.flows);
        assert!(report.ports.iter().all(|port| port.dropped == 0));
    }
    assert!(with.ports.iter().map(|port| port.marked).sum::<u64>() > 0);
    assert!(pauses(&with) * 2 < pauses(&without), "{} and {}", pauses(&with), pauses(&without));
}

#[test]
fn the_same_seed_gives_the_same_report() {
    assert_eq!(incast(4, 200_000, true, 1 << 20), incast(4, 200_000, true, 1 << 20));
}
