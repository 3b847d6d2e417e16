//! Which work request is started when, and which never.

use core::net::{IpAddr, Ipv4Addr};

use softrnic_wire::{Feth, Imm, Placement, Qkey, Qpn, Rkey, Selectivity, SendTail};

use super::*;
use crate::path::Path;

impl Case {
    /// The last one posted waits for READs and atomics before it.
    fn fence(&mut self) {
        self.requester.queue.entries.back_mut().expect("it was posted").wqe.fence = true;
    }

    fn post_invalidate(&mut self, wr_id: u64) {
        self.post(wr_id, SendOp::Local(LocalOp::Invalidate(Rkey(1))), 0);
    }
}

#[test]
fn at_most_half_of_the_psn_space_is_outstanding() {
    // With more, a PSN could be that of an old packet as well as of a new one (IBTA 9.7.2).
    let half = 1 << 23;
    for (packets, sent) in [(half - 2, &[100, 101, 105][..]), (half - 1, &[100])] {
        let mut case = Case::new();
        case.post_send(1, 1);
        case.post_read(2, packets);
        assert_eq!(case.transmit().0, sent);
        assert_eq!(case.ack(100), DONE);
        case.transmit();
        assert!(case.requester.has_outstanding(), "behind nothing else it may go");
    }
}

#[test]
fn the_longest_read_goes_alone() {
    let mut case = Case::new();
    case.post_read(1, 1 << 23);
    assert_eq!(case.transmit().0, [100, 104]);
}

#[test]
fn a_fence_waits_for_the_reads_before_it() {
    // IBTA 10.8.3.
    let mut case = Case::new();
    case.post_read(1, 1);
    case.post_send(2, 1);
    case.fence();
    assert_eq!(case.transmit().0, [100]);
    assert_eq!(case.answer(100, Answer::ReadEnd(&[7; MTU as usize])), DONE);
    assert_eq!(case.transmit().0, [101]);
}

#[test]
fn a_fence_waits_for_no_sends() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.post_send(2, 1);
    case.fence();
    assert_eq!(case.transmit().0, [100, 101]);
}

#[test]
fn a_key_is_invalidated_after_the_requests_that_may_use_it() {
    // IBTA 10.6.5.
    let mut case = Case::new();
    case.post_send(1, 1);
    case.post_invalidate(2);
    case.post_send(3, 1);
    assert_eq!(case.transmit().0, [100]);
    assert_eq!(case.ack(100), DONE);
    assert_eq!(case.completed(), [(1, Status::Success)]);
    assert_eq!(case.transmit().0, [101], "and what is behind it goes when that is done");
    assert_eq!(case.completed(), [(2, Status::Success)]);
}

#[test]
fn nothing_behind_a_failed_local_operation_is_sent() {
    let mut case = Case::new();
    case.world.local = Err(LocalOpFault);
    case.post_send(1, 1);
    case.post(2, SendOp::Local(LocalOp::BindWindow), 0);
    for wr_id in 3..6 {
        case.post_send(wr_id, 1);
    }
    assert_eq!(case.transmit().0, [100]);
    assert_eq!(case.transmit().0, []);
    assert_eq!(case.ack(100), Outcome::Fatal(Reason::LocalOperation));
}

#[test]
fn an_operation_that_the_service_lacks_is_a_local_error() {
    let read = SendOp::Read { remote: REMOTE };
    let invalidating = SendOp::Send(SendTail::Inv(Rkey(1)));
    let bind = SendOp::Local(LocalOp::BindWindow);
    for (service, op) in [
        (QpType::Ud, SendOp::Write { remote: REMOTE, imm: None }),
        (QpType::Ud, SendOp::Send(SendTail::Plain)),
        (QpType::Ud, bind),
        (QpType::Uc, read),
        (QpType::Uc, SendOp::FetchAdd { remote: REMOTE, add: 1 }),
        (QpType::Uc, invalidating),
    ] {
        let mut case = Case::new();
        case.cx.service = service;
        case.post(1, op, 8);
        let fatal = Outcome::Fatal(Reason::WrongService);
        assert_eq!(case.try_transmit(), ([].into(), Stop::Idle, fatal), "{service:?}");
    }
}

#[test]
fn without_initiator_depth_reads_fail_and_a_flush_does_not() {
    let feth = Feth { placement: Placement::GLOBAL_VISIBILITY, selectivity: Selectivity::Range };
    let flush = SendOp::Flush { remote: REMOTE, length: 8, feth };
    let fatal = Outcome::Fatal(Reason::NoReadsAllowed);
    for (op, outcome) in [(SendOp::Read { remote: REMOTE }, fatal), (flush, DONE)] {
        let mut case = Case::new();
        case.cx.attr.max_rd_atomic = 0;
        case.post(1, op, 8);
        assert_eq!(case.try_transmit().2, outcome);
    }
}

#[test]
fn a_datagram_is_no_longer_than_the_ports_mtu() {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let path = Path { src: here, dst: here, sport: 0, tos: 0, ttl: 1 };
    let datagram = || SendOp::Datagram { path, dest_qpn: Qpn::new(9), qkey: Qkey(1), imm: None::<Imm> };
    for (length, outcome, sent) in [(4096, DONE, 1), (4097, Outcome::Fatal(Reason::DatagramTooLong), 0)] {
        let mut case = Case::new();
        case.cx.service = QpType::Ud;
        case.post(1, datagram(), length);
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        let did = case.requester.transmit(&case.cx, case.now, &mut case.world, 1000, &mut progress);
        assert_eq!((did, progress.sent), (outcome, sent), "{length} bytes");
    }
}

#[test]
fn an_unreliable_message_completes_when_its_last_packet_has_left() {
    let mut case = Case::new();
    case.cx.service = QpType::Uc;
    case.post_send(1, 2);
    for completed in [&[][..], &[(1, Status::Success)]] {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        let outcome = case.requester.transmit(&case.cx, case.now, &mut case.world, 1, &mut progress);
        assert_eq!((outcome, progress.sent), (DONE, 1));
        assert_eq!(case.world.completed, completed);
    }
    assert_eq!(case.requester.deadline(), Time::NEVER, "nothing is waited for");
}

#[test]
fn a_send_counts_once_however_often_its_packets_leave() {
    let mut case = Case::new();
    case.post_send(1, 2);
    case.post(2, SendOp::Write { remote: REMOTE, imm: None }, 1);
    case.transmit();
    assert_eq!(case.world.count_of(Counter::RdmaSends), 1);
    assert_eq!(case.nak(100, NakCode::PsnSequence), DONE);
    assert_eq!(case.transmit().0, [100, 101, 102]);
    assert_eq!(case.world.count_of(Counter::RdmaSends), 1);
}

#[test]
fn there_are_requests_from_the_post_until_the_last_packet() {
    let mut case = Case::new();
    assert!(!case.requester.has_requests());
    case.post_send(1, 1);
    assert!(case.requester.has_requests());
    case.post_send(2, 1);
    assert!(case.requester.has_requests());
    case.transmit();
    assert!(!case.requester.has_requests());
}

#[test]
fn it_takes_a_bounded_number_of_requests() {
    let mut case = Case::new();
    let taken = (0..1 << 12).take_while(|&wr_id| {
        let room = case.requester.has_room();
        if room {
            case.post_send(wr_id, 1);
        }
        room
    });
    assert!(taken.count() < 1 << 12);
}

#[test]
fn a_short_write_is_one_packet_that_only_memory_shows() {
    let write = |imm| SendOp::Write { remote: REMOTE, imm };
    let imm = Some(Imm([0; 4]));
    for (op, length, is_short) in [
        (write(None), MTU, true),
        (write(None), MTU + 1, false),
        (write(imm), 1, false),
        (SendOp::Send(SendTail::Plain), 1, false),
    ] {
        let mut case = Case::new();
        assert!(!case.requester.next_is_short_write(&case.cx), "there is nothing");
        case.post(1, op, length);
        assert_eq!(case.requester.next_is_short_write(&case.cx), is_short);
    }
}

#[test]
fn each_time_it_drains_it_reports_once() {
    let mut case = Case::new();
    case.cx.attr.sqd_notify = true;
    case.cx.state = QpState::Sqd;
    for (again, events) in [(false, 1), (true, 1), (false, 2)] {
        case.requester.drain(&case.cx, again, &mut case.world);
        assert_eq!(case.world.events.len(), events);
    }
}

#[test]
fn asking_again_for_an_event_while_it_drains_loses_none() {
    let mut case = Case::new();
    case.cx.attr.sqd_notify = true;
    case.post_send(1, 1);
    case.transmit();
    case.cx.state = QpState::Sqd;
    for again in [false, true] {
        case.requester.drain(&case.cx, again, &mut case.world);
    }
    assert_eq!(case.ack(100), DONE);
    case.requester.report_drained(&case.cx, &mut case.world);
    assert_eq!(case.world.events, [QpEvent::SendQueueDrained]);
}

#[test]
fn congestion_slows_down_only_participating_reliable_connections() {
    for (service, takes_part, handled) in [
        (QpType::Rc, true, true),
        (QpType::XrcInitiator, true, true),
        (QpType::Rc, false, false),
        (QpType::Uc, true, false),
    ] {
        let mut case = Case::new();
        case.cx.service = service;
        case.cx.config.congestion_control = takes_part;
        case.requester.on_cnp(&case.cx, case.now, 0, &mut case.world);
        assert_eq!(case.world.count_of(Counter::CnpHandled), usize::from(handled));
        assert_eq!(case.world.count_of(Counter::CnpIgnored), usize::from(!handled));
        assert_eq!(case.requester.deadline() != Time::NEVER, handled, "the timer of its recovery");
    }
}

#[test]
fn a_reset_forgets_everything_without_a_completion() {
    let mut case = Case::new();
    case.post_send(1, 1);
    case.post_send(2, 1);
    case.transmit();
    case.requester.reset(&mut case.world);
    assert_eq!(case.completed(), []);
    assert_eq!((case.world.retired, case.world.peer.window.in_flight()), (2, 0));
    assert!(!case.requester.has_outstanding() && !case.requester.has_requests());
    assert_eq!(case.requester.deadline(), Time::NEVER);
}
