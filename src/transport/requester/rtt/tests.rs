use softrnic_wire::{Psn, Time};

use super::RttEstimator;
use crate::tuning::{INITIAL_RTO, MIN_RTO};

const MILLI: u64 = 1_000_000;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Estimates from round trips that took so long.
fn after(samples: &[u64]) -> RttEstimator {
    let mut rtt = RttEstimator::default();
    let mut now = 0;
    for (psn, sample) in samples.iter().enumerate() {
        rtt.sent(Psn::new(psn as u32), at(now));
        now += sample;
        rtt.acknowledged(Psn::new(psn as u32), at(now));
    }
    rtt
}

#[test]
fn before_the_first_answer_the_timeout_has_its_initial_value() {
    assert_eq!(RttEstimator::default().rto(), INITIAL_RTO);
}

#[test]
fn the_first_sample_is_the_estimate_and_half_of_it_the_variation() {
    // RFC 6298, 2.2: SRTT = R, RTTVAR = R / 2.
    assert_eq!(after(&[3 * MILLI]).rto(), 2 * 3 * MILLI + 4 * (3 * MILLI / 2));
}

#[test]
fn a_later_sample_moves_the_estimate_by_an_eighth_and_the_variation_by_a_quarter() {
    // RFC 6298, 2.3, of 3 ms and then 7 ms: RTTVAR = 3/4 * 1.5 + 1/4 * 4, SRTT = 7/8 * 3 + 1/8 * 7.
    let (srtt, rttvar) = (3_500_000, 2_125_000);
    assert_eq!(after(&[3 * MILLI, 7 * MILLI]).rto(), 2 * srtt + 4 * rttvar);
}

#[test]
fn a_sample_below_the_estimate_lowers_it_and_counts_as_variation() {
    // Of 8 ms and then 4 ms: RTTVAR = 3/4 * 4 + 1/4 * 4, SRTT = 7/8 * 8 + 1/8 * 4.
    let (srtt, rttvar) = (7_500_000, 4_000_000);
    assert_eq!(after(&[8 * MILLI, 4 * MILLI]).rto(), 2 * srtt + 4 * rttvar);
}

#[test]
fn the_timeout_never_falls_below_its_minimum() {
    assert_eq!(after(&[10_000]).rto(), MIN_RTO);
}

#[test]
fn one_packet_is_measured_at_a_time() {
    let mut rtt = RttEstimator::default();
    rtt.sent(Psn::new(1), at(0));
    rtt.sent(Psn::new(2), at(2 * MILLI));
    rtt.acknowledged(Psn::new(2), at(3 * MILLI));
    assert_eq!(rtt.rto(), after(&[3 * MILLI]).rto(), "the first of them");
    rtt.acknowledged(Psn::new(2), at(9 * MILLI));
    assert_eq!(rtt.rto(), after(&[3 * MILLI]).rto(), "and only once");
}

#[test]
fn an_ack_before_the_measured_packet_is_not_a_sample() {
    let mut rtt = RttEstimator::default();
    rtt.sent(Psn::ZERO, at(0));
    rtt.acknowledged(Psn::ZERO - 1, at(MILLI));
    assert_eq!(rtt.rto(), INITIAL_RTO);
    rtt.acknowledged(Psn::ZERO, at(3 * MILLI));
    assert_eq!(rtt.rto(), after(&[3 * MILLI]).rto());
}

#[test]
fn retransmitted_packets_are_not_measured() {
    let mut rtt = RttEstimator::default();
    rtt.sent(Psn::new(1), at(0));
    rtt.abandon();
    rtt.acknowledged(Psn::new(1), at(9 * MILLI));
    assert_eq!(rtt.rto(), INITIAL_RTO, "the ACK may be that of either");
}
