//! Packets lost, damaged, delayed, duplicated and reordered.

use softrnic_explain::Kind;
use softrnic_wire::{NakCode, RnrTimer, Syndrome};

use super::common::{A, B, Capture};
use super::{assert_faults, assert_told, only, report_of, text};

const SEQ: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
/// A retransmission timer of 67 ms.
const TIMER_US: u64 = 67_109;

/// A capture in which some traffic went well, up to PSN 104 and MSN 4.
fn begun() -> Capture {
    let mut c = Capture::new();
    for i in 0..4 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, 1 + i);
        c.wait_us(50);
    }
    c
}

#[test]
fn request_lost_before_the_capture_and_asked_for() {
    let mut c = begun();
    let shown = c.send(A, B, 105);
    let nak = c.nak(B, A, 104, 4, SEQ);
    let resent = c.send(A, B, 104);
    c.send(A, B, 105);
    let ack = c.ack(B, A, 104, 5);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::RequestLost]);
    let finding = only(&report, Kind::RequestLost);
    assert_eq!(finding.psns.map(|(a, b)| (a.get(), b.get())), Some((104, 104)));
    assert_eq!(finding.packets, [nak, resent, ack]);
    assert!(finding.text.contains("lost before it came to this capture"), "{}", finding.text);
    assert_eq!(report.lost.len(), 1);
    let _ = shown;
}

#[test]
fn request_lost_after_the_capture_and_asked_for() {
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.send(A, B, 106);
    c.nak(B, A, 104, 4, SEQ);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.send(A, B, 106);
    c.ack(B, A, 106, 7);
    let report = assert_faults(&c, &[Kind::RequestLost]);
    let text = &only(&report, Kind::RequestLost).text;
    assert!(text.contains("lost after this capture saw it") && text.contains("3 packets in all"), "{text}");
}

#[test]
fn what_a_softrnic_reports_missing_is_sent_again_alone() {
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.send(A, B, 106);
    c.send(A, B, 107);
    let report = c.selective_ack(B, A, 104, 4, &[0b1010, 0, 0, 0]);
    let first = c.send(A, B, 104);
    let second = c.send(A, B, 106);
    c.ack(B, A, 107, 8);
    let told = assert_faults(&c, &[Kind::RequestLost, Kind::RequestLost]);
    let lost: Vec<_> = told.findings.iter().filter(|finding| finding.kind == Kind::RequestLost).collect();
    assert_eq!(lost.iter().map(|f| f.psns.map(|(a, _)| a.get())).collect::<Vec<_>>(), [Some(104), Some(106)]);
    assert_eq!([&lost[0].packets[..], &lost[1].packets[..]], [&[report, first], &[report, second]]);
    assert!(lost[0].text.contains("sent only what was missing again"), "{}", lost[0].text);
}

#[test]
fn a_path_that_goes_on_from_another_port_was_left() {
    let mut c = begun();
    c.capabilities(A, B, false);
    c.capabilities(B, A, true);
    let send = |c: &mut Capture, psn: u32, path: u16| {
        c.path = path;
        let number = c.send(A, B, psn);
        c.path = path % 16;
        c.ack(B, A, psn, psn - 100 + 1);
        number
    };
    for psn in 104..112 {
        send(&mut c, psn, (psn % 4) as u16);
    }
    let last = send(&mut c, 112, 3);
    send(&mut c, 113, 0);
    let first = send(&mut c, 114, 16 + 3);
    let told = assert_faults(&c, &[]);
    let left = only(&told, Kind::PathLeft);
    assert_eq!(left.packets, [last, first]);
    assert!(left.text.contains(" 40 µs later"), "{}", left.text);
    // One that was under way on the old port, and one whose port was damaged.
    send(&mut c, 115, 3);
    send(&mut c, 116, 16 + 3);
    c.path = 32 + 3;
    c.send(A, B, 117);
    c.corrupt_last();
    send(&mut c, 117, 16 + 3);
    let told = report_of(&c.pcap());
    assert_eq!(only(&told, Kind::PathLeft).packets, [last, first]);
    // Other NICs choose ports as they like, and so does a SoftRNIC with one path.
    for begin in [104, 112] {
        let mut c = begun();
        if begin == 112 {
            c.capabilities(A, B, false);
        }
        for psn in 104..112 {
            send(&mut c, psn, if psn < 108 { 0 } else { 16 });
        }
        let told = assert_faults(&c, &[]);
        assert!(told.findings.iter().all(|finding| finding.kind != Kind::PathLeft), "{}", text(&told));
    }
}

#[test]
fn request_damaged_on_the_way() {
    let mut c = begun();
    c.send(A, B, 104);
    c.corrupt_last();
    c.send(A, B, 105);
    c.nak(B, A, 104, 4, SEQ);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::BadIcrc, Kind::RequestCorrupted]);
    assert!(only(&report, Kind::RequestCorrupted).text.contains("packet 9"));
}

#[test]
fn last_request_damaged_and_sent_again_by_the_timer() {
    let mut c = begun();
    c.send(A, B, 104);
    c.corrupt_last();
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    let report = assert_faults(&c, &[Kind::BadIcrc, Kind::RequestCorrupted]);
    let text = &only(&report, Kind::RequestCorrupted).text;
    assert!(text.contains("as with timeout 14"), "{text}");
}

#[test]
fn read_response_damaged() {
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 2 * 1024 + 200);
    c.response(B, A, 104, 0, 3, 5);
    c.response(B, A, 104, 1, 3, 5);
    c.corrupt_last();
    c.response(B, A, 104, 2, 3, 5);
    c.read(A, B, 105, 0x1000 + 1024, 1024 + 200);
    c.response(B, A, 104, 1, 3, 5);
    c.response(B, A, 104, 2, 3, 5);
    let report = assert_faults(&c, &[Kind::BadIcrc, Kind::ResponseLost]);
    assert!(only(&report, Kind::ResponseLost).text.contains("packet 11 arrived damaged"));
}

#[test]
fn tail_lost_and_sent_again_by_the_timer() {
    let mut c = begun();
    c.send(A, B, 104);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    let report = assert_faults(&c, &[Kind::Timeout]);
    let text = &only(&report, Kind::Timeout).text;
    assert!(text.contains("as with timeout 14"), "{text}");
}

#[test]
fn ack_lost_behind_the_capture() {
    let mut c = begun();
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::AckLost]);
}

#[test]
fn ack_lost_behind_the_capture_at_its_very_end() {
    let mut c = begun();
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::AckLost]);
}

#[test]
fn ack_delayed_beyond_the_timer() {
    let mut c = begun();
    c.send(A, B, 104);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::AckDelayed]);
}

#[test]
fn nak_lost_behind_the_capture() {
    let mut c = begun();
    c.send(A, B, 105);
    c.nak(B, A, 104, 4, SEQ);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::NakLost]);
    assert!(only(&report, Kind::NakLost).text.contains("did not make"));
}

#[test]
fn request_and_the_nak_for_it_lost() {
    let mut c = begun();
    c.send(A, B, 105);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::NakLost, Kind::RequestLost]);
}

#[test]
fn responder_repeats_its_nak() {
    let mut c = begun();
    c.counting_ids = true;
    c.send(A, B, 105);
    c.nak(B, A, 104, 4, SEQ);
    c.send(A, B, 106);
    c.nak(B, A, 104, 4, SEQ);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.send(A, B, 106);
    c.ack(B, A, 106, 7);
    assert_faults(&c, &[Kind::NakRepeated, Kind::RequestLost]);
}

#[test]
fn resend_lost_too() {
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.nak(B, A, 104, 4, SEQ);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.wait_us(TIMER_US);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::RequestLost]);
    assert!(only(&report, Kind::RequestLost).text.contains("4 packets in all"));
}

#[test]
fn retries_exhausted() {
    let mut c = begun();
    for _ in 0..8 {
        c.send(A, B, 104);
        c.wait_us(TIMER_US);
    }
    let report = assert_faults(&c, &[Kind::RetryExhausted]);
    assert!(only(&report, Kind::RetryExhausted).text.contains("8 times"));
}

#[test]
fn network_duplicates_a_request() {
    let mut c = begun();
    let original = c.send(A, B, 104);
    let copy = c.repeat(original);
    c.ack(B, A, 104, 5);
    c.ack(B, A, 104, 5);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::Duplicate]);
    assert_eq!(only(&report, Kind::Duplicate).packets, [copy, original]);
}

#[test]
fn network_duplicates_an_ack() {
    let mut c = begun();
    c.send(A, B, 104);
    let ack = c.ack(B, A, 104, 5);
    c.repeat(ack);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::Duplicate]);
}

#[test]
fn network_duplicates_naks() {
    let mut c = begun();
    c.send(A, B, 105);
    let nak = c.nak(B, A, 104, 4, SEQ);
    c.repeat(nak);
    c.send(A, B, 104);
    c.send(A, B, 105);
    let rnr = c.nak(B, A, 104, 4, Syndrome::RnrNak(RnrTimer::new(12)));
    c.repeat(rnr);
    c.wait_us(700);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::Duplicate, Kind::Duplicate, Kind::RequestLost, Kind::RnrNak]);
}

#[test]
fn network_reorders_requests() {
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 106);
    c.send(A, B, 105);
    c.send(A, B, 107);
    c.ack(B, A, 107, 8);
    let report = assert_faults(&c, &[Kind::Reordered]);
    assert!(report.lost.is_empty());
}

#[test]
fn reordering_that_makes_the_responder_ask() {
    let mut c = begun();
    c.send(A, B, 105);
    c.nak(B, A, 104, 4, SEQ);
    c.counting_ids = true;
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::RequestLost]);
}

#[test]
fn network_reorders_acks() {
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::Reordered]);
}

#[test]
fn middle_of_a_long_message_lost() {
    let mut c = begun();
    c.long_send(A, B, 104, 6);
    c.frames.remove(8 + 3);
    c.nak(B, A, 107, 4, SEQ);
    let again = c.clone().frames[8 + 3..8 + 5].to_vec();
    use softrnic_wire::{Op, SendTail};
    c.rc(A, B, 107, Op::SendMiddle, false, 1024);
    for (_, frame) in again {
        c.frame(frame);
    }
    c.ack(B, A, 109, 5);
    let report = assert_faults(&c, &[Kind::RequestLost]);
    let message = report.pairs[0].messages.last().unwrap();
    assert!(message.whole && message.bytes == 5 * 1024 + 200 && message.repeats == 2, "{message:?}");
    let _ = SendTail::Plain;
}

#[test]
fn unprovoked_repeat() {
    let mut c = begun();
    c.counting_ids = true;
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::Unprovoked]);
}

#[test]
fn receiver_not_ready() {
    let mut c = begun();
    let rnr = Syndrome::RnrNak(RnrTimer::new(12));
    c.send(A, B, 104);
    c.nak(B, A, 104, 4, rnr);
    c.wait_us(700);
    c.send(A, B, 104);
    c.nak(B, A, 104, 4, rnr);
    c.wait_us(700);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::RnrNak]);
    let text = &only(&report, Kind::RnrNak).text;
    assert!(text.contains("2 RNR NAKs") && text.contains("640 µs"), "{text}");
}

#[test]
fn receiver_never_ready() {
    let mut c = begun();
    for _ in 0..4 {
        c.send(A, B, 104);
        c.nak(B, A, 104, 4, Syndrome::RnrNak(RnrTimer::new(12)));
        c.wait_us(700);
    }
    assert_faults(&c, &[Kind::RnrRetryExhausted]);
}

#[test]
fn requester_does_not_wait_for_the_receiver() {
    let mut c = begun();
    c.send(A, B, 104);
    c.nak(B, A, 104, 4, Syndrome::RnrNak(RnrTimer::new(14)));
    c.wait_us(100);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    let report = assert_faults(&c, &[Kind::RnrNak, Kind::RnrTooSoon]);
    assert!(only(&report, Kind::RnrTooSoon).rule.is_some());
}

#[test]
fn rxe_sends_a_sequence_nak_after_an_rnr_nak() {
    let mut c = begun();
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.nak(B, A, 104, 4, Syndrome::RnrNak(RnrTimer::new(12)));
    c.nak(B, A, 104, 4, SEQ);
    c.wait_us(700);
    c.send(A, B, 104);
    c.send(A, B, 105);
    c.ack(B, A, 104, 5);
    c.ack(B, A, 105, 6);
    let report = assert_faults(&c, &[Kind::RnrNak]);
    assert_told(&report, Kind::NakAfterRnr);
}

#[test]
fn read_response_lost_before_the_capture() {
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 2 * 1024 + 200);
    c.response(B, A, 104, 0, 3, 5);
    c.response(B, A, 104, 2, 3, 5);
    c.wait_us(TIMER_US);
    c.read(A, B, 105, 0x1000 + 1024, 1024 + 200);
    c.response(B, A, 104, 1, 3, 5);
    c.response(B, A, 104, 2, 3, 5);
    c.send(A, B, 107);
    c.ack(B, A, 107, 6);
    let report = assert_faults(&c, &[Kind::ResponseLost]);
    assert_eq!(only(&report, Kind::ResponseLost).psns.unwrap().0.get(), 105);
}

#[test]
fn read_response_lost_and_answered_from_the_restart_on() {
    use softrnic_wire::{Aeth, Msn, Op};
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 2 * 1024 + 200);
    c.response(B, A, 104, 0, 3, 5);
    c.response(B, A, 104, 2, 3, 5);
    c.read(A, B, 105, 0x1000 + 1024, 1024 + 200);
    c.rc(B, A, 105, Op::ReadResponseFirst(Aeth::ack(Msn::new(5))), false, 1024);
    c.response(B, A, 104, 2, 3, 5);
    assert_faults(&c, &[Kind::ResponseLost]);
}

#[test]
fn read_request_or_its_only_response_lost() {
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 200);
    c.wait_us(TIMER_US);
    c.read(A, B, 104, 0x1000, 200);
    c.response(B, A, 104, 0, 1, 5);
    assert_faults(&c, &[Kind::Timeout]);
}

#[test]
fn ack_passes_over_a_read() {
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 200);
    c.send(A, B, 105);
    c.ack(B, A, 105, 6);
    c.read(A, B, 104, 0x1000, 200);
    c.send(A, B, 105);
    c.response(B, A, 104, 0, 1, 6);
    c.ack(B, A, 105, 6);
    assert_faults(&c, &[Kind::ResponseLost]);
}

#[test]
fn read_responses_reordered() {
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 3 * 1024 + 200);
    for i in [0, 2, 1, 3] {
        c.response(B, A, 104, i, 4, 5);
    }
    c.send(A, B, 108);
    c.ack(B, A, 108, 6);
    assert_faults(&c, &[Kind::Reordered]);
}

#[test]
fn atomic_answer_lost_and_replayed() {
    let mut c = begun();
    c.fetch_add(A, B, 104, 0x2000);
    c.atomic_ack(B, A, 104, 5, 41);
    c.wait_us(TIMER_US);
    c.fetch_add(A, B, 104, 0x2000);
    c.atomic_ack(B, A, 104, 5, 41);
    let report = assert_faults(&c, &[Kind::ResponseLost]);
    assert_told(&report, Kind::AtomicReplay);
}

#[test]
fn network_duplicates_a_read_request() {
    let mut c = begun();
    let read = c.read(A, B, 104, 0x1000, 1024 + 200);
    c.repeat(read);
    c.responses(B, A, 104, 2, 5);
    c.responses(B, A, 104, 2, 5);
    c.send(A, B, 106);
    c.ack(B, A, 106, 6);
    let report = assert_faults(&c, &[Kind::Duplicate]);
    assert_told(&report, Kind::ReadReplay);
}

#[test]
fn read_repeated_by_the_timer_and_answered_twice() {
    let mut c = begun();
    c.read(A, B, 104, 0x1000, 1024 + 200);
    c.wait_us(TIMER_US);
    c.read(A, B, 104, 0x1000, 1024 + 200);
    c.responses(B, A, 104, 2, 5);
    c.responses(B, A, 104, 2, 5);
    let report = assert_faults(&c, &[Kind::AckDelayed]);
    assert_told(&report, Kind::ReadReplay);
}

#[test]
fn unreliable_packets_lost() {
    use softrnic_wire::{Body, Bth, Psn, Qpn, UcOp};
    let mut c = Capture::new();
    for psn in [5, 6, 8, 9] {
        let bth = Bth::new(Qpn::new(B.qpn), Psn::new(psn));
        c.packet(A, B, bth, Body::Uc(UcOp::SendOnly(None)), &[0; 64]);
    }
    let report = assert_faults(&c, &[Kind::UnreliableLoss]);
    assert_eq!(report.pairs[0].message_counts, [4, 0]);
}
