//! Requests that are sent again before the local ACK timeout, as the NIC at either end captures them.

use softrnic_explain::{Kind, PairedBy, Report};
use softrnic_wire::{NakCode, Syndrome};

use super::common::{A, B, Capture, Side, pcapng, req};
use super::{assert_faults, assert_told, only, report_of, text};

/// The local ACK timeout, 67 ms.
const TIMER_US: u64 = 67_109;

/// The capture as A's NIC makes it, or B's: each packet leaves one and comes in at the other.
fn at(of: Side, c: &Capture) -> Report {
    let IpSource(here) = IpSource::of(of);
    let packets: Vec<(u64, bool, &[u8])> =
        c.frames.iter().map(|(time, frame)| (*time, frame[26..30] == here, &frame[..])).collect();
    report_of(&pcapng(&packets))
}

/// The source address in an IPv4 header.
struct IpSource([u8; 4]);

impl IpSource {
    fn of(side: Side) -> IpSource {
        match side.ip {
            std::net::IpAddr::V4(ip) => IpSource(ip.octets()),
            std::net::IpAddr::V6(_) => panic!("the sides have IPv4 addresses"),
        }
    }
}

#[track_caller]
fn assert_found(report: &Report, expected: &[Kind]) {
    let found: Vec<Kind> = report.faults().map(|f| f.kind).collect();
    assert_eq!(found, expected, "\n{}", text(report));
}

/// Messages 100 to 103, answered at once.
fn begun() -> Capture {
    let mut c = Capture::new();
    for i in 0..4 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, 1 + i);
    }
    c
}

#[test]
fn what_leaves_twice_at_once_was_sent_twice() {
    let mut c = begun();
    for psn in 104..106 {
        c.send(A, B, psn);
    }
    // As when the NIC did not run between its two timers: 87 us apart, and bit for bit the same.
    c.wait_us(87);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_found(&at(A, &c), &[]);
}

/// The peer does not run for a while, and answers then.
fn stalled(answers: u32) -> Capture {
    let mut c = begun();
    for psn in 104..110 {
        c.send(A, B, psn);
    }
    for wait_us in [800, 1600, 3200] {
        c.wait_us(wait_us);
        c.send(A, B, 104);
        c.send(A, B, 105);
    }
    for _ in 0..answers {
        c.ack(B, A, 109, 10);
    }
    c.send(A, B, 110);
    c.ack(B, A, 110, 11);
    c
}

#[test]
fn early_resends_to_a_peer_that_does_not_run_are_no_fault() {
    for answers in [1, 2, 7] {
        let report = at(A, &stalled(answers));
        assert_found(&report, &[]);
        assert_told(&report, Kind::EarlyResend);
    }
}

/// The silence is 4.096 us × 2^12 long.
fn stalled_for_16_8_ms(c: &mut Capture, psn: u32) {
    c.send(A, B, psn);
    c.wait_us(16_775);
    c.send(A, B, psn);
    c.ack(B, A, psn, psn - 99);
    c.ack(B, A, psn, psn - 99);
}

#[test]
fn a_silence_as_long_as_a_timer_is_none_of_a_requester_that_repeats_early() {
    let mut c = begun();
    stalled_for_16_8_ms(&mut c, 104);
    assert_found(&at(A, &c), &[Kind::AckDelayed]);

    let mut c = stalled(2);
    stalled_for_16_8_ms(&mut c, 111);
    assert_found(&at(A, &c), &[]);
}

#[test]
fn the_rest_follows_the_probe_when_the_answer_comes() {
    let mut c = begun();
    for psn in 104..120 {
        c.send(A, B, psn);
    }
    c.wait_us(900);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 107, 8);
    // From the first that is not acknowledged, as all that was in flight is taken for lost.
    for psn in 108..120 {
        c.send(A, B, psn);
    }
    c.ack(B, A, 119, 20);
    let report = at(A, &c);
    assert_found(&report, &[]);
    assert_eq!(only(&report, Kind::EarlyResend).psns.map(|(a, _)| a.get()), Some(104));
}

#[test]
fn resends_that_are_read_together_with_their_originals_are_no_fault() {
    let mut c = begun();
    // B reads what came while it did not run, all at once.
    for psn in [104, 105, 106, 104, 105, 104, 105] {
        c.send(A, B, psn);
        c.now_ns -= 10_000;
    }
    c.ack(B, A, 106, 7);
    let report = at(B, &c);
    assert_found(&report, &[]);
    // A single one, bit for bit.
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.send(A, B, 104);
    c.wait_us(10_000);
    c.send(A, B, 104);
    assert_found(&at(B, &c), &[]);
}

#[test]
fn a_repeat_of_what_its_own_side_has_an_answer_to_is_a_fault() {
    let mut c = begun();
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.wait_us(900);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    assert_found(&at(A, &c), &[Kind::AckLost]);
    // The answer that B gave may not have been there yet.
    assert_found(&at(B, &c), &[]);
}

#[test]
fn the_local_ack_timeout_is_no_early_resend() {
    let mut c = begun();
    c.send(A, B, 104);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    assert_found(&at(A, &c), &[Kind::Timeout]);
    // It may have come long before B read it.
    assert_found(&at(B, &c), &[]);
}

#[test]
fn the_handshake_tells_the_local_ack_timeout() {
    let mut c = Capture::new();
    c.mad(A, B, 0x10, 1, &req(7, A.qpn, 9000));
    let timeout_us = 4096 * (1 << 15) / 1000;
    for (waits_us, fault) in [(40_000, false), (timeout_us, true)] {
        let mut c = c.clone();
        let mut body = super::common::rep(8, 7, B.qpn, 100);
        body.truncate(232);
        c.mad(B, A, 0x13, 1, &body);
        c.mad(A, B, 0x14, 1, &super::common::ids(7, 8));
        c.send(A, B, 100);
        c.ack(B, A, 100, 1);
        c.send(A, B, 101);
        c.wait_us(waits_us);
        c.send(A, B, 101);
        c.ack(B, A, 101, 2);
        let report = at(A, &c);
        assert_eq!(report.faults().count() == 1, fault, "{waits_us}\n{}", text(&report));
    }
}

#[test]
fn a_peer_that_has_been_slower_before_is_waited_for_longer() {
    let mut c = Capture::new();
    c.send(A, B, 100);
    c.wait_us(10_000);
    c.ack(B, A, 100, 1);
    c.send(A, B, 101);
    c.wait_us(30_000);
    c.send(A, B, 101);
    c.ack(B, A, 101, 2);
    assert_found(&at(A, &c), &[]);
}

#[test]
fn an_early_resend_without_an_answer_does_not_exhaust_the_retries() {
    let mut c = begun();
    c.send(A, B, 104);
    c.wait_us(900);
    c.send(A, B, 104);
    assert_told(&assert_faults(&c, &[]), Kind::Unanswered);
    for _ in 0..7 {
        c.wait_us(TIMER_US);
        c.send(A, B, 104);
    }
    assert_faults(&c, &[Kind::RetryExhausted]);
}

/// QPs of one device: only the PSNs in the answers tell that they do not agree on where to begin.
#[test]
fn mismatched_starting_psns_are_reported_as_such() {
    let there = Side { ip: A.ip, ..B };
    // The responder expects a later PSN, and takes the request for a repeat.
    let mut c = Capture::new();
    for i in 0..5 {
        c.send(A, there, 100);
        c.ack(there, A, 4999, 0);
        c.wait_us(TIMER_US << i.min(1));
    }
    // It expects an earlier one, and asks for that.
    let mut d = Capture::new();
    for _ in 0..5 {
        d.send(A, there, 5000);
        d.nak(there, A, 100, 0, Syndrome::Nak(NakCode::PsnSequence));
        d.wait_us(TIMER_US);
    }
    for c in [c, d] {
        let report = assert_faults(&c, &[Kind::StartingPsn]);
        let finding = only(&report, Kind::StartingPsn);
        assert!(finding.text.contains("rq_psn"), "{}", finding.text);
        assert_eq!(report.pairs.len(), 1);
    }
}

/// A NIC writes packets in the order in which it handles them; its clock may be asked in another.
#[test]
fn a_capture_of_a_nic_is_followed_in_the_order_of_the_file() {
    let mut c = begun();
    for psn in 104..108 {
        c.send(A, B, psn);
    }
    for psn in 104..108 {
        c.ack(B, A, psn, psn - 99);
    }
    let acks = c.frames.len() - 4;
    c.frames[acks].0 += 600_000;
    c.frames[acks + 1].0 += 600_000;
    c.now_ns += 600_000;
    c.send(A, B, 108);
    c.ack(B, A, 108, 9);
    let report = at(A, &c);
    assert!(report.findings.is_empty(), "{}", text(&report));
}

/// The NIC captures each packet as it leaves and as it comes.
#[test]
fn a_qp_connected_to_itself_is_followed() {
    let mut c = Capture::new();
    for i in 0..3 {
        c.read(A, A, 100 + i, 0x1000, 200);
        c.response(A, A, 100 + i, 0, 1, 1 + i);
    }
    let packets: Vec<(u64, bool, &[u8])> = c
        .frames
        .iter()
        .flat_map(|(time, frame)| [(*time, true, &frame[..]), (*time + 1000, false, &frame[..])])
        .collect();
    let report = report_of(&pcapng(&packets));
    assert_found(&report, &[]);
    assert_eq!((report.pairs.len(), report.pairs[0].paired_by), (1, PairedBy::Itself));
    assert!(report.pairs[0].messages.iter().all(|m| m.answer.is_some()), "{}", text(&report));
    assert!(report.findings.iter().all(|f| f.kind == Kind::CapturedTwice), "{}", text(&report));
}

#[test]
fn a_capture_that_lost_packets_blames_no_peer() {
    let mut c = begun();
    c.send(A, B, 106);
    c.ack(B, A, 150, 9);
    c.send(A, B, 106);
    c.wait_us(TIMER_US);
    c.send(A, B, 106);
    let packets: Vec<_> = c.frames.iter().map(|(time, frame)| (*time, frame[29] == 1, &frame[..])).collect();
    let mut file = pcapng(&packets);
    assert!(report_of(&file).faults().count() > 0);
    // An interface statistics block with isb_ifdrop.
    let mut block = Vec::new();
    for word in [5u32, 44, 0, 0, 0, 8 << 16 | 5, 7, 0, 0, 0, 44] {
        block.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&block);
    let report = report_of(&file);
    assert_found(&report, &[]);
    assert_told(&report, Kind::CaptureDropped);
    assert!(text(&report).contains("no fault found in what was captured"));
}

/// Over sockets every ACK has the IPv4 ID 0, so that two of them may be the same bit for bit.
#[test]
fn acks_that_answer_repeats_of_earlier_requests_are_not_doubled_by_the_network() {
    let mut c = begun();
    for psn in 104..110 {
        c.send(A, B, psn);
    }
    c.wait_us(900);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.send(A, B, 105);
    c.send(A, B, 106);
    let ack = c.ack(B, A, 109, 10);
    for psn in 110..114 {
        c.send(A, B, psn);
    }
    c.wait_us(900);
    c.send(A, B, 110);
    c.send(A, B, 111);
    // What was sent again before that had already come.
    c.repeat(ack);
    c.ack(B, A, 113, 14);
    let answered = c.send(A, B, 114);
    let ack = c.ack(B, A, 114, 15);
    assert_found(&at(A, &c), &[]);
    // Since then nothing was sent again.
    assert!(answered < ack);
    c.repeat(ack);
    assert_found(&at(A, &c), &[Kind::Duplicate]);
}

#[test]
fn a_nak_is_not_lost_because_what_it_asked_for_is_read_late() {
    for wait_us in [10, 900, TIMER_US, 4 * TIMER_US] {
        let mut c = begun();
        c.send(A, B, 105);
        c.nak(B, A, 104, 4, Syndrome::Nak(NakCode::PsnSequence));
        c.wait_us(wait_us);
        c.send(A, B, 104);
        c.send(A, B, 105);
        c.ack(B, A, 105, 6);
        let report = at(B, &c);
        assert_found(&report, &[Kind::RequestLost]);
        assert!(only(&report, Kind::RequestLost).text.contains("asked for it with a sequence NAK"));
        // Who had received it resends at once.
        let expected = if wait_us > 500 { Kind::NakLost } else { Kind::RequestLost };
        assert_found(&at(A, &c), &[expected]);
    }
}

#[test]
fn requests_that_are_read_after_an_error_nak_were_under_way() {
    let mut c = begun();
    c.send(A, B, 104);
    c.nak(B, A, 104, 4, Syndrome::Nak(NakCode::RemoteAccess));
    c.wait_us(900);
    c.send(A, B, 105);
    assert!(at(B, &c).findings.iter().all(|f| f.kind != Kind::SentAfterError));
    assert!(at(A, &c).findings.iter().any(|f| f.kind == Kind::SentAfterError));
    // Not all the time.
    c.wait_us(2_000_000);
    c.send(A, B, 106);
    assert!(at(B, &c).findings.iter().any(|f| f.kind == Kind::SentAfterError));
}
