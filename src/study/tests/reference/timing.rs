//! A NIC alone on a path takes its bits, the way, and the way of the ACK.

use softrnic_fabric::{Picos, Topology};
use softrnic_study::Study;

use crate::setup::{ACK, FRAME, GIGABIT, flow, nic, parts, run, time};

#[test]
fn an_uncontended_flow_takes_what_arithmetic_gives() {
    for rate in [25 * GIGABIT, 100 * GIGABIT, 400 * GIGABIT] {
        for bytes in [1, 1000, 1024, 1025, 64 << 10, 10_000_000] {
            let network = Topology::star(2, &parts(rate, 32 << 20, true)).expect("a star");
            let mut study = Study::new(network, nic(), &[flow(0, 1, bytes)], 1).expect("a study");
            let report = run(&mut study, Picos::NEVER);
            let packets = bytes.div_ceil(1024);
            let last = bytes - (packets - 1) * 1024;
            // Padding to four bytes.
            let last = last.next_multiple_of(4) + FRAME - 1024;
            // The last frame is stored by the switch; it cannot begin there before the one before it has left.
            let stored = if packets > 1 { time(FRAME, rate).max(time(last, rate)) } else { time(last, rate) };
            let there = (packets - 1) as f64 * time(FRAME, rate) + stored + time(last, rate) + 2000.0;
            let back = 2.0 * time(ACK, rate) + 2000.0;
            let fct = report.flows[0].fct_ns.expect("it ends");
            // The NIC's clock counts whole nanoseconds: up to one each for receiver and sender.
            assert!(
                (fct - there - back).abs() <= 2.0,
                "{bytes} B at {rate} bit/s: {fct} instead of {}",
                there + back
            );
        }
    }
}

#[test]
fn two_flows_share_a_port_without_loss_under_pfc() {
    let rate = 100 * GIGABIT;
    let network = Topology::star(3, &parts(rate, 32 << 20, true)).expect("a star");
    let flows = [flow(0, 2, 10_000_000), flow(1, 2, 10_000_000)];
    let mut study = Study::new(network, nic(), &flows, 1).expect("a study");
    let report = run(&mut study, Picos::NEVER);
    // Pure serialisation: the port is never idle.
    let packets = 2 * 10_000_000_u64.div_ceil(1024);
    let expected = packets as f64 * time(FRAME, rate) + 4000.0;
    let last = report.flows.iter().map(|flow| flow.fct_ns.expect("it ends")).fold(0.0, f64::max);
    assert!((last - expected).abs() < 3.0 * time(FRAME, rate), "{last} instead of {expected}");
    assert!(report.ports.iter().all(|port| port.dropped == 0));
    assert!(!report.counters.contains_key("retransmitted_pkts"), "{:?}", report.counters);
}
