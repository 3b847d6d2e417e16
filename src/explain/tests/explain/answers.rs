//! Refusals and broken rules.

use softrnic_explain::Kind;
use softrnic_wire::*;

use super::common::{A, B, Capture, MTU};
use super::{assert_faults, assert_told, only};

fn begun() -> Capture {
    let mut c = Capture::new();
    c.long_send(A, B, 97, 3);
    c.ack(B, A, 99, 1);
    for i in 0..3 {
        c.send(A, B, 100 + i);
        c.ack(B, A, 100 + i, 2 + i);
    }
    c
}

fn write(dma_len: u32) -> Op {
    Op::WriteOnly(Reth { va: 0x7000, rkey: Rkey(0xBAD), dma_len }, None)
}

#[test]
fn wrong_rkey() {
    let mut c = begun();
    let request = c.rc(A, B, 103, write(64), true, 64);
    let nak = c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::RemoteAccess));
    let report = assert_faults(&c, &[Kind::RemoteAccess]);
    let finding = only(&report, Kind::RemoteAccess);
    assert_eq!(finding.packets, [nak, request]);
    assert!(
        finding.text.contains("rkey 0x00000bad") && finding.text.contains("REM_ACCESS_ERR"),
        "{}",
        finding.text
    );
}

#[test]
fn invalid_request() {
    let mut c = begun();
    c.read(A, B, 103, 0x1000, 64);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::InvalidRequest));
    assert_faults(&c, &[Kind::InvalidRequest]);
}

#[test]
fn remote_operational_error() {
    let mut c = begun();
    c.send(A, B, 103);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::RemoteOperational));
    assert_faults(&c, &[Kind::RemoteOperational]);
}

#[test]
fn requests_after_the_error() {
    let mut c = begun();
    c.send(A, B, 103);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::RemoteOperational));
    c.wait_us(5000);
    c.send(A, B, 104);
    assert_faults(&c, &[Kind::RemoteOperational, Kind::SentAfterError]);
}

#[test]
fn reserved_nak_code_and_syndrome() {
    let mut c = begun();
    c.send(A, B, 103);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::Reserved(9)));
    assert_faults(&c, &[Kind::ReservedSyndrome]);
    let mut c = begun();
    c.send(A, B, 103);
    c.nak(B, A, 103, 4, Syndrome::Reserved(0x45));
    c.ack(B, A, 103, 5);
    assert_faults(&c, &[Kind::ReservedSyndrome]);
}

#[test]
fn psn_jump_that_the_responder_protests() {
    let mut c = begun();
    c.counting_ids = true;
    for _ in 0..3 {
        c.send(A, B, 110);
        c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::PsnSequence));
        c.wait_us(67_000);
    }
    let report = assert_faults(&c, &[Kind::PsnJump]);
    let finding = only(&report, Kind::PsnJump);
    assert_eq!(finding.psns.map(|(a, b)| (a.get(), b.get())), Some((103, 109)));
    assert!(finding.text.contains("jumps from 102 to 110"), "{}", finding.text);
}

#[test]
fn psn_jump_into_silence() {
    let mut c = begun();
    c.send(A, B, 5000);
    let report = assert_faults(&c, &[Kind::PsnJump]);
    assert!(only(&report, Kind::PsnJump).rule.is_some());
}

#[test]
fn packets_missing_from_the_capture_alone() {
    let mut c = begun();
    c.ack(B, A, 104, 6);
    c.send(A, B, 105);
    c.ack(B, A, 105, 7);
    assert_told(&assert_faults(&c, &[]), Kind::CaptureGap);
    let mut c = begun();
    c.send(A, B, 105);
    c.ack(B, A, 105, 7);
    assert_told(&assert_faults(&c, &[]), Kind::CaptureGap);
}

#[test]
fn nak_inside_a_hole_of_the_capture() {
    let mut c = begun();
    c.send(A, B, 110);
    c.nak(B, A, 108, 9, Syndrome::Nak(NakCode::PsnSequence));
    for psn in 108..=110 {
        c.send(A, B, psn);
    }
    c.ack(B, A, 110, 12);
    assert_told(&assert_faults(&c, &[Kind::RequestLost]), Kind::CaptureGap);
}

#[test]
fn answers_missing_from_the_capture_alone() {
    let mut c = begun();
    c.read(A, B, 103, 0x1000, 64);
    for i in 0..600 {
        c.send(A, B, 104 + i);
        c.ack(B, A, 104 + i, 6 + i);
    }
    assert_told(&assert_faults(&c, &[]), Kind::CaptureGap);
}

#[test]
fn nothing_is_concluded_from_packets_that_the_capture_lacks() {
    let mut c = begun();
    c.send(A, B, 105);
    c.ack(B, A, 105, 7);
    // Each of these is a fault where the capture is whole.
    c.ack(B, A, 150, 9);
    c.ack(B, A, 105, 7);
    for psn in [106, 106, 108] {
        c.send(A, B, psn);
        c.wait_us(67_000);
    }
    let report = assert_faults(&c, &[]);
    assert_told(&report, Kind::CaptureGap);
    // What one packet shows by itself remains.
    c.nak(B, A, 108, 9, Syndrome::Nak(NakCode::RemoteAccess));
    assert_faults(&c, &[Kind::RemoteAccess]);
}

#[test]
fn ack_for_a_psn_never_sent() {
    let mut c = begun();
    c.send(A, B, 103);
    let wrong = c.ack(B, A, 150, 5);
    c.ack(B, A, 103, 5);
    let report = assert_faults(&c, &[Kind::AnswerNeverSent]);
    assert_eq!(only(&report, Kind::AnswerNeverSent).packets, [wrong]);
}

#[test]
fn mtu_mismatch_within_a_direction_and_between_them() {
    let mut c = begun();
    c.rc(A, B, 103, Op::SendFirst, false, 2048);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::InvalidRequest));
    let report = assert_faults(&c, &[Kind::InvalidRequest, Kind::MtuMismatch]);
    assert!(only(&report, Kind::MtuMismatch).text.contains("2048 bytes where the path MTU is 1024"));

    let mut c = begun();
    c.rc(B, A, 700, Op::SendFirst, false, 512);
    c.rc(B, A, 701, Op::SendLast(SendTail::Plain), true, 512);
    c.ack(A, B, 701, 1);
    assert_faults(&c, &[Kind::MtuMismatch]);
}

#[test]
fn payload_lengths_that_no_mtu_explains() {
    let mut c = begun();
    c.rc(A, B, 103, Op::SendFirst, false, 1000);
    c.rc(A, B, 104, Op::SendLast(SendTail::Plain), true, 8);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::PayloadLength]);
    let mut c = begun();
    c.rc(A, B, 103, Op::SendFirst, false, MTU);
    c.rc(A, B, 104, Op::SendLast(SendTail::Plain), true, 0);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::PayloadLength]);
}

#[test]
fn write_that_does_not_add_up() {
    let mut c = begun();
    c.rc(A, B, 103, write(100), true, 64);
    c.ack(B, A, 103, 5);
    assert_faults(&c, &[Kind::MessageLength]);
}

#[test]
fn opcodes_out_of_order() {
    let mut c = begun();
    c.rc(A, B, 103, Op::SendMiddle, false, MTU);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::InvalidRequest));
    assert_faults(&c, &[Kind::InvalidRequest, Kind::OpcodeSequence]);
    let mut c = begun();
    c.rc(A, B, 103, Op::SendFirst, false, MTU);
    c.rc(A, B, 104, Op::WriteLast(None), true, 10);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::OpcodeSequence]);
    let mut c = begun();
    c.rc(A, B, 103, Op::SendFirst, false, MTU);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    assert_faults(&c, &[Kind::OpcodeSequence]);
}

#[test]
fn plain_ack_for_a_read() {
    let mut c = begun();
    c.read(A, B, 103, 0x1000, 64);
    c.ack(B, A, 103, 5);
    assert_faults(&c, &[Kind::WrongAnswer]);
}

#[test]
fn read_response_for_a_send() {
    let mut c = begun();
    c.send(A, B, 103);
    c.response(B, A, 103, 0, 1, 5);
    c.ack(B, A, 103, 5);
    assert_faults(&c, &[Kind::WrongAnswer]);
}

#[test]
fn read_responses_in_the_wrong_places() {
    let mut c = begun();
    c.read(A, B, 103, 0x1000, 1024 + 200);
    c.rc(B, A, 103, Op::ReadResponseMiddle, false, MTU);
    c.responses(B, A, 103, 2, 5);
    assert_faults(&c, &[Kind::WrongAnswer]);
}

#[test]
fn read_answered_with_too_little() {
    let mut c = begun();
    c.read(A, B, 103, 0x1000, 300);
    c.response(B, A, 103, 0, 1, 5);
    assert_faults(&c, &[Kind::MessageLength]);
}

#[test]
fn atomic_executed_twice() {
    let mut c = begun();
    c.fetch_add(A, B, 103, 0x2000);
    c.atomic_ack(B, A, 103, 5, 41);
    c.wait_us(67_000);
    c.fetch_add(A, B, 103, 0x2000);
    c.atomic_ack(B, A, 103, 5, 42);
    c.send(A, B, 104);
    c.ack(B, A, 104, 6);
    assert_faults(&c, &[Kind::AtomicReexecuted, Kind::ResponseLost]);
}

#[test]
fn atomic_at_an_odd_address() {
    let mut c = begun();
    c.fetch_add(A, B, 103, 0x2004);
    c.nak(B, A, 103, 4, Syndrome::Nak(NakCode::InvalidRequest));
    assert_faults(&c, &[Kind::InvalidRequest, Kind::Misaligned]);
}

#[test]
fn repeat_that_is_another_request() {
    let mut c = begun();
    c.send(A, B, 103);
    c.wait_us(67_000);
    c.rc(A, B, 103, write(64), true, 64);
    c.ack(B, A, 103, 5);
    assert_faults(&c, &[Kind::ResendDiffers, Kind::Timeout]);
}

#[test]
fn read_retried_at_the_wrong_address() {
    let mut c = begun();
    c.read(A, B, 103, 0x1000, 1024 + 200);
    c.response(B, A, 103, 0, 2, 5);
    c.wait_us(67_000);
    c.read(A, B, 104, 0x1000, 200);
    c.response(B, A, 103, 1, 2, 5);
    assert_faults(&c, &[Kind::ResendDiffers, Kind::ResponseLost]);
}

#[test]
fn msn_that_does_not_count() {
    let mut c = begun();
    c.send(A, B, 103);
    let wrong = c.ack(B, A, 103, 4);
    c.send(A, B, 104);
    c.ack(B, A, 104, 5);
    let report = assert_faults(&c, &[Kind::WrongMsn]);
    assert_eq!(only(&report, Kind::WrongMsn).packets, [wrong]);
}

#[test]
fn congestion_notifications_and_marks() {
    let mut c = begun();
    c.tos = 3;
    c.send(A, B, 103);
    c.tos = 2;
    c.packet(B, A, cnp_headers(Qpn::new(A.qpn), Pkey::DEFAULT).bth, Body::Cnp, &[0; 16]);
    c.ack(B, A, 103, 5);
    let report = assert_faults(&c, &[]);
    assert_told(&report, Kind::Cnp);
    assert_told(&report, Kind::CongestionMarks);
    assert_eq!(report.pairs[0].cnps, [1, 0]);
}
