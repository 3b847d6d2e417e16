//! Connection management, and captures that are unusual themselves.

use softrnic_explain::{CmState, Kind, Limits, explain};
use softrnic_inspect::capture::Reader;
use softrnic_wire::*;

use super::common::{
    A, B, Capture, Side, ids, losses_and_an_error, pcap_header, pcap_record, pcapng, pcapng_with_comments,
    rej, rep, req,
};
use super::{assert_faults, assert_told, only, report, report_of, text};

fn handshake(c: &mut Capture, psn: u32) {
    c.mad(A, B, 0x10, 1, &req(0x100, A.qpn, 9000));
    c.mad(B, A, 0x13, 1, &rep(0x200, 0x100, B.qpn, psn));
    c.mad(A, B, 0x14, 1, &ids(0x100, 0x200));
}

#[test]
fn connection_refused_by_the_application() {
    let mut c = Capture::new();
    c.mad(A, B, 0x10, 1, &req(0x100, A.qpn, 9000));
    c.mad(B, A, 0x12, 1, &rej(0, 0x100, 28));
    let report = assert_faults(&c, &[Kind::ConnectionRefused]);
    assert!(only(&report, Kind::ConnectionRefused).text.contains("consumer reject (reason 28)"));
    assert_eq!(report.connections[0].state, CmState::Rejected("consumer reject"));
}

#[test]
fn request_for_a_connection_repeated_and_never_answered() {
    let mut c = Capture::new();
    let first = c.mad(A, B, 0x10, 1, &req(0x100, A.qpn, 9000));
    c.wait_us(4_608_000);
    c.repeat(first);
    let report = assert_faults(&c, &[Kind::CmRepeated, Kind::CmUnanswered]);
    assert!(only(&report, Kind::CmRepeated).text.contains("4608 ms"));
}

#[test]
fn first_psn_not_the_one_agreed_on() {
    let mut c = Capture::new();
    handshake(&mut c, 100);
    c.send(A, B, 101);
    c.ack(B, A, 101, 1);
    assert_faults(&c, &[Kind::StartingPsn]);
}

#[test]
fn disconnect_not_answered() {
    let mut c = Capture::new();
    handshake(&mut c, 100);
    c.send(A, B, 100);
    c.ack(B, A, 100, 1);
    c.mad(A, B, 0x15, 1, &ids(0x100, 0x200));
    // The program that asked may have ended, and its capture with it.
    assert_faults(&c, &[]);
    c.wait_us(4_000_000);
    c.mad(A, B, 0x10, 1, &req(0x101, A.qpn + 1, 9000));
    let report = assert_faults(&c, &[Kind::CmUnanswered]);
    assert!(only(&report, Kind::CmUnanswered).text.contains("no DREP came"));
}

#[test]
fn malformed_packets_are_reported() {
    let mut c = Capture::new();
    c.send(A, B, 100);
    c.ack(B, A, 100, 1);
    c.send(A, B, 101);
    // Transport version 3 in the BTH.
    c.frames.last_mut().unwrap().1[42 + 1] |= 3;
    let report = assert_faults(&c, &[Kind::Malformed]);
    assert!(only(&report, Kind::Malformed).text.contains("transport version 3"));
}

#[test]
fn packets_of_srd_are_counted() {
    let mut c = Capture::new();
    let bth = Bth::new(Qpn::new(B.qpn), Psn::new(1));
    c.packet(A, B, bth, Body::Rc(Op::SendOnly(SendTail::Plain)), &[0; 64]);
    c.frames.last_mut().unwrap().1[42] = SrdOpcode::Hello as u8;
    let report = assert_faults(&c, &[]);
    assert!(only(&report, Kind::SrdNotFollowed).text.starts_with("1 packet of SRD is not followed"));
}

#[test]
fn packets_of_partition_0_are_reported() {
    let mut c = Capture::new();
    let bth = Bth { pkey: Pkey(0x8000), ..Bth::new(Qpn::new(B.qpn), Psn::new(1)) };
    c.packet(A, B, bth, Body::Rc(Op::SendOnly(SendTail::Plain)), &[]);
    assert_faults(&c, &[Kind::BadPkey]);
}

#[test]
fn every_icrc_wrong() {
    let mut c = Capture::new();
    for i in 0..10 {
        c.send(A, B, 100 + i);
        c.corrupt_last();
        c.ack(B, A, 100 + i, i + 1);
    }
    let report = assert_faults(&c, &[Kind::IcrcDistrusted]);
    assert_eq!(report.pairs[0].message_counts[0], 10);
}

#[test]
fn packets_captured_at_two_interfaces() {
    let mut c = Capture::new();
    for i in 0..10 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, i + 1);
    }
    let mut file = pcap_header(0xA1B2_3C4D, 113);
    for (time, frame) in &c.frames {
        for (direction, delay) in [(4, 0), (0, 2000)] {
            let mut cooked = vec![0, direction, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0];
            cooked.extend_from_slice(&frame[14..]);
            pcap_record(&mut file, time + delay, &cooked, cooked.len());
        }
    }
    let report = report_of(&file);
    assert_eq!(report.faults().count(), 0, "\n{}", text(&report));
    assert_told(&report, Kind::CapturedTwice);
    assert_eq!(report.pairs[0].packets(), 20);
}

/// The receiver's capture says what a rule of its did; the sender's has the same packet without a comment.
#[test]
fn a_fault_at_the_receiver_is_named_beside_the_capture_of_the_sender() {
    const DROPPED: &str = "fault: dropped by rule 1, drop:op=rc_send_only:nth=1:dir=rx";
    let mut c = Capture::new();
    c.send(A, B, 100);
    c.ack(B, A, 100, 1);
    let packets: Vec<_> = (c.frames.iter().enumerate())
        .flat_map(|(at, (time, frame))| {
            let comment = if at == 0 { DROPPED } else { "" };
            [(*time, true, frame.as_slice(), ""), (time + 100, false, frame.as_slice(), comment)]
        })
        .collect();
    let report = report_of(&pcapng_with_comments(&packets));
    assert_told(&report, Kind::CapturedTwice);
    assert_told(&report, Kind::FaultInjected);
    assert!(text(&report).contains("packet 2 was dropped on purpose, by your rule 1"), "{}", text(&report));
}

/// A device that talks to itself: what it sends it also receives, `burst` packets later.
fn talking_to_itself(c: &Capture, burst: usize) -> Vec<u8> {
    let mut packets = Vec::new();
    for frames in c.frames.chunks(burst) {
        for (leaves, delay) in [(true, 0), (false, 1000)] {
            packets.extend(frames.iter().map(|(time, frame)| (time + delay, leaves, frame.as_slice())));
        }
    }
    pcapng(&packets)
}

#[test]
fn device_that_talks_to_itself_has_no_network_that_duplicates() {
    let own = Side { ip: A.ip, qpn: 0x33 };
    let mut c = Capture::new();
    for i in 0..200 {
        c.long_send(A, own, 100 + 10 * i, 10);
        c.ack(own, A, 109 + 10 * i, i + 1);
    }
    for burst in [1, 11, 1100] {
        let report = report_of(&talking_to_itself(&c, burst));
        assert_eq!(report.faults().count(), 0, "\n{}", text(&report));
        assert_eq!(report.pairs[0].packets(), 2200);
    }
}

#[test]
fn duplicates_of_a_device_that_talks_to_itself_are_found() {
    let own = Side { ip: A.ip, qpn: 0x33 };
    let mut c = Capture::new();
    let first = c.send(A, own, 100);
    c.ack(own, A, 100, 1);
    c.send(A, own, 101);
    c.ack(own, A, 101, 2);
    // By the device, which sends it twice and receives it twice.
    c.repeat(first);
    let file = talking_to_itself(&c, 1);
    let report = report_of(&file);
    assert_eq!(report.faults().map(|f| f.kind).collect::<Vec<_>>(), [Kind::Duplicate], "\n{}", text(&report));
    // By the network, which delivers twice what was sent once.
    let frames: Vec<_> = c.frames[..4].iter().map(|(time, frame)| (*time, frame.as_slice())).collect();
    let mut packets: Vec<_> = frames
        .iter()
        .flat_map(|(time, frame)| [(*time, true, *frame), (time + 1000, false, *frame)])
        .collect();
    packets.insert(2, (frames[0].0 + 3000, false, frames[0].1));
    let report = report_of(&pcapng(&packets));
    assert_eq!(report.faults().map(|f| f.kind).collect::<Vec<_>>(), [Kind::Duplicate], "\n{}", text(&report));
    assert_eq!(report.pairs[0].packets(), 5);
}

#[test]
fn damage_between_a_device_and_itself_is_found() {
    let own = Side { ip: A.ip, qpn: 0x33 };
    let mut c = Capture::new();
    for i in 0..20 {
        c.send(A, own, 100 + i);
        c.ack(own, A, 100 + i, i + 1);
    }
    let mut damaged = c.frames[4].1.clone();
    let at = damaged.len() - 6;
    damaged[at] ^= 0x10;
    let mut packets = Vec::new();
    for (place, (time, frame)) in c.frames.iter().enumerate() {
        packets.push((*time, true, frame.as_slice()));
        let arrives = if place == 4 { &damaged } else { frame };
        packets.push((time + 1000, false, arrives.as_slice()));
    }
    let report = report_of(&pcapng(&packets));
    assert_eq!(report.faults().map(|f| f.kind).collect::<Vec<_>>(), [Kind::BadIcrc], "\n{}", text(&report));
}

#[test]
fn shuffled_capture_is_put_in_order_by_its_times() {
    let mut c = Capture::new();
    for i in 0..50 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, i + 1);
    }
    let n = c.frames.len();
    for i in 0..n {
        c.frames.swap(i, (i * 37 + 11) % n);
    }
    let report = assert_faults(&c, &[]);
    assert_told(&report, Kind::ClockBackwards);
}

#[test]
fn capture_cut_short() {
    let mut c = Capture::new();
    c.send(A, B, 100);
    c.ack(B, A, 100, 1);
    c.send(A, B, 101);
    let file = c.pcap();
    let report = report_of(&file[..file.len() - 5]);
    let finding = only(&report, Kind::Damaged);
    assert!(finding.text.contains("cut short") && finding.text.contains("byte"), "{}", finding.text);
    assert_eq!(report.pairs[0].packets(), 2);
}

#[test]
fn more_packets_than_are_followed() {
    let mut c = Capture::new();
    for i in 0..10 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, i + 1);
    }
    let file = c.pcap();
    let mut reader = Reader::new(&file[..]).unwrap();
    let report = explain(&mut reader, Limits { packets: 10, ..Limits::default() }, |_| {});
    assert_eq!(report.pairs[0].packets(), 10);
    assert!(only(&report, Kind::NotFollowed).text.contains("the last 10 packets"));
}

#[test]
fn a_broken_rule_is_listed_forty_times_and_counted() {
    let mut c = Capture::new();
    for i in 0..100 {
        c.fetch_add(A, B, 100 + i, 1);
        c.atomic_ack(B, A, 100 + i, i + 1, 0);
    }
    let report = report(&c);
    assert_eq!(report.findings.iter().filter(|f| f.kind == Kind::Misaligned).count(), 40);
    assert_eq!(report.more_findings, [(Some(0), Kind::Misaligned, 60)]);
    assert!(text(&report).contains("and 60 more of misaligned-atomic"));
}

#[test]
fn capture_with_nothing_in_it() {
    let report = report_of(&pcap_header(0xA1B2_C3D4, 1));
    assert!(report.findings.is_empty() && report.pairs.is_empty());
    assert!(text(&report).contains("0 records: 0 RoCE"));
}

#[test]
fn many_findings_are_counted_by_kind_before_they_are_listed() {
    let few = text(&report(&losses_and_an_error(1, 1)));
    assert!(!few.contains("findings by kind"), "{few}");
    let many = text(&report(&losses_and_an_error(1, 100)));
    let table: Vec<&str> = many.lines().skip_while(|line| !line.starts_with("findings by kind")).collect();
    assert!(table[1].starts_with("  error     1 "), "{many}");
    let losses = table.iter().find(|line| line.contains("request-lost")).unwrap_or_else(|| panic!("{many}"));
    assert!(losses.starts_with("  warning 100 request-lost"), "{losses}");
    let time_line: Vec<char> = losses.split('|').nth(1).unwrap().chars().collect();
    assert!(time_line.len() == 30 && time_line.iter().all(|c| ('▁'..='█').contains(c)), "{losses}");
    let error: Vec<char> = table[1].split('|').nth(1).unwrap().chars().collect();
    assert_eq!(error.iter().filter(|c| **c != ' ').count(), 1, "{}", table[1]);
    assert!((14..=16).contains(&error.iter().position(|c| *c != ' ').unwrap()), "{}", table[1]);
    let verdict = many.lines().find(|line| line.starts_with("1 error, ")).unwrap_or_else(|| panic!("{many}"));
    assert!(verdict.ends_with(" of them are not listed"), "{verdict}");
}
