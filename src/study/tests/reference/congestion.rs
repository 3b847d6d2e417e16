//! DCQCN and PFC of whole NICs.

use softrnic_fabric::{Picos, Topology};
use softrnic_study::{Flow, NicConfig, Report, Study};
use softrnic_transport::RateParameters;

use crate::setup::{FRAME, GIGABIT, ecn, flow, nic, parts, run, time};

const RATE: u64 = 100 * GIGABIT;

/// The timers of the reference's `dcqcn` preset, which are those of ConnectX.
fn vendor_timers() -> RateParameters {
    RateParameters {
        rpg_byte_reset: 1 << 50,
        rpg_threshold: 1,
        rpg_min_rate: GIGABIT / 8,
        dce_tcp_rtt: 1_000,
        ..RateParameters::keeping_target()
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

/// The QPs of a NIC share its link packet by packet, also while it is full.
#[test]
fn a_short_flow_does_not_wait_behind_a_long_one_of_the_same_host() {
    let network = Topology::star(3, &parts(RATE, 32 << 20, true)).expect("a star");
    let long = flow(0, 1, 20 << 20);
    let short = Flow { start: Picos::from_micros(100), sport: 0xD000, ..flow(0, 2, 64 << 10) };
    let mut study = Study::new(network, nic(), &[long, short], 3).expect("a study");
    let report = run(&mut study, Picos::from_micros(200_000));
    let alone = time((64 << 10) / 1024 * FRAME, RATE);
    let fct = report.flows[1].fct_ns.expect("it ends");
    // Half of the link, the way there and back, and what the NIC has handed over before.
    assert!(fct < 2.0 * alone + 8000.0, "{fct} ns, where the packets alone take {alone} ns");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    assert_eq!(incast(4, 200_000, true, 1 << 20), incast(4, 200_000, true, 1 << 20));
}
