//! UC: whole messages or nothing (IBTA 9.8.2). UD: one packet, one message (IBTA 9.8.3).

use softrnic_wire::{Body, Bth, Deth, Imm, Packet, Qkey, UcOp};

use super::*;
use crate::completion::WcOpcode;

const FULL: [u8; MTU as usize] = [7; MTU as usize];
const IMM: Imm = Imm([1, 2, 3, 4]);
const LAST: Op = Op::SendLast(SendTail::Plain);

impl Case {
    fn of(service: QpType) -> Case {
        let mut case = Case::new();
        case.cx.service = service;
        case
    }

    /// A packet comes to a QP of UC.
    fn comes(&mut self, psn: u32, op: Op, payload: &[u8]) -> Outcome {
        self.comes_with(false, psn, op, payload)
    }

    fn comes_with(&mut self, solicited: bool, psn: u32, op: Op, payload: &[u8]) -> Outcome {
        let body = Body::Uc(UcOp::from_op(op).expect("UC has it"));
        let bth = Bth { solicited, ..Bth::new(self.cx.qpn, Psn::new(psn)) };
        let packet = Packet { bth, body, payload, icrc: 0 };
        self.responder.on_unreliable(&self.cx, &Request::new(&packet, &op, None), &mut self.world)
    }

    /// A datagram comes to a QP of UD.
    fn datagram(&mut self, qkey: Qkey, imm: Option<Imm>, payload: &[u8]) -> Outcome {
        let deth = Deth { qkey, src_qpn: Qpn::new(9) };
        let bth = Bth::new(self.cx.qpn, Psn::new(3));
        let packet = Packet { bth, body: Body::Ud { deth, imm }, payload, icrc: 0 };
        self.responder.on_datagram(&self.cx, &packet, &deth, imm, &[5; 40], &mut self.world)
    }

    fn dropped(&self, counter: Counter) -> usize {
        self.world.count_of(counter)
    }

    /// What the last completion says: status, bytes, immediate data, solicited.
    fn says(&self) -> (Status, u32, Option<Imm>, bool) {
        let last = self.world.last_completion.expect("something completes");
        (last.status, last.byte_len, last.imm, last.solicited)
    }
}

#[test]
fn a_message_of_several_packets_completes_one_receive() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, 2 * MTU + 1);
    assert_eq!(case.comes(100, Op::SendFirst, &FULL), CONTINUE);
    assert_eq!(case.comes(101, Op::SendMiddle, &FULL), CONTINUE);
    assert_eq!(case.world.completed, []);
    assert_eq!(case.comes(102, Op::SendLast(SendTail::Imm(IMM)), &[7]), CONTINUE);
    assert_eq!(case.says(), (Status::Success, 2 * MTU + 1, Some(IMM), false));
    assert_eq!(case.world.placed, [7; 2 * MTU as usize + 1]);
    assert_eq!(case.dropped(Counter::RdmaRecvs), 1);
    assert!(!case.responder.wants_transmit(), "nothing is answered");
}

#[test]
fn a_gap_drops_the_message_and_keeps_its_receive() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, 2 * MTU);
    assert_eq!(case.comes(100, Op::SendFirst, &FULL), CONTINUE);
    assert_eq!(case.comes(102, LAST, &[7]), CONTINUE);
    assert_eq!((case.world.completed.len(), case.dropped(Counter::DropUcSequence)), (0, 2));
    assert_eq!(case.comes(103, SEND, &[7]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
    assert_eq!(case.dropped(Counter::DropUcSequence), 2);
}

#[test]
fn an_unfinished_message_gives_way_to_the_next() {
    for next in [101, 102] {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, 2 * MTU);
        assert_eq!(case.comes(100, Op::SendFirst, &FULL), CONTINUE);
        assert_eq!(case.comes(next, Op::SendFirst, &FULL), CONTINUE);
        assert_eq!(case.dropped(Counter::DropUcSequence), 1, "the one before");
        assert_eq!(case.comes(next + 1, LAST, &[7]), CONTINUE);
        assert_eq!(case.says(), (Status::Success, MTU + 1, None, false));
    }
}

#[test]
fn the_first_message_may_begin_anywhere() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, 2 * MTU);
    assert_eq!(case.comes(500, Op::SendFirst, &FULL), CONTINUE);
    assert_eq!(case.comes(501, LAST, &[7]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
    assert_eq!(case.dropped(Counter::DropUcSequence), 0);
}

#[test]
fn a_continuation_without_a_message_is_dropped() {
    for (op, payload) in [(Op::SendMiddle, &FULL[..]), (Op::WriteMiddle, &FULL), (LAST, &[])] {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, MTU);
        assert_eq!(case.comes(100, op, payload), CONTINUE);
        assert_eq!(case.dropped(Counter::DropUcSequence), 1, "{op:?}");
    }
    for (first, other) in [(Op::SendFirst, Op::WriteMiddle), (Op::WriteFirst(reth(3 * MTU)), Op::SendMiddle)]
    {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, 3 * MTU);
        assert_eq!(case.comes(100, first, &FULL), CONTINUE);
        assert_eq!(case.comes(101, other, &FULL), CONTINUE);
        assert_eq!(case.dropped(Counter::DropUcSequence), 1, "{other:?} after {first:?}");
    }
}

#[test]
fn each_uc_packet_has_the_length_that_its_position_requires() {
    let mtu = MTU as usize;
    let bytes = [7; MTU as usize + 1];
    for (op, len, taken) in [
        (Op::SendFirst, mtu, true),
        (Op::SendFirst, mtu - 1, false),
        (Op::SendFirst, mtu + 1, false),
        (Op::WriteFirst(reth(3 * MTU)), mtu, true),
        (Op::WriteFirst(reth(3 * MTU)), mtu - 1, false),
        (SEND, 0, true),
        (SEND, mtu, true),
        (SEND, mtu + 1, false),
    ] {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, 2 * MTU);
        assert_eq!(case.comes(100, op, &bytes[..len]), CONTINUE);
        assert_eq!(case.dropped(Counter::DropUcRequest), usize::from(!taken), "{op:?} of {len} bytes");
    }
    for (op, len, taken) in [
        (Op::SendMiddle, mtu, true),
        (Op::SendMiddle, mtu - 1, false),
        (LAST, 1, true),
        (LAST, 0, false),
        (LAST, mtu, true),
        (LAST, mtu + 1, false),
    ] {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, 3 * MTU);
        assert_eq!(case.comes(100, Op::SendFirst, &FULL), CONTINUE);
        assert_eq!(case.comes(101, op, &bytes[..len]), CONTINUE);
        assert_eq!(case.dropped(Counter::DropUcRequest), usize::from(!taken), "{op:?} of {len} bytes");
    }
}

#[test]
fn a_receive_that_is_too_short_is_an_error_of_its_queue() {
    // IBTA 9.9.3, class A.
    for (first, room) in [(SEND, MTU - 1), (Op::SendFirst, MTU - 1)] {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, room);
        assert_eq!(case.comes(100, first, &FULL), Outcome::Fatal(Reason::ReceiveTooShort));
        assert_eq!(case.says(), (Status::LocalLength, 0, None, true));
        assert_eq!((case.world.placed.len(), case.dropped(Counter::RdmaRecvs)), (0, 0));
    }
}

#[test]
fn a_receive_that_cannot_be_written_is_an_error_of_its_queue() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, MTU);
    case.world.memory = Err(LocalFault);
    let op = Op::SendOnly(SendTail::Imm(IMM));
    assert_eq!(case.comes(100, op, &FULL), Outcome::Fatal(Reason::ReceiveMemory));
    assert_eq!(case.says(), (Status::LocalProtection, 0, None, true));
}

#[test]
fn an_unreliable_message_may_be_as_long_as_a_message_can_be() {
    for (before, outcome) in
        [(crate::MAX_MESSAGE - 1, CONTINUE), (crate::MAX_MESSAGE, Outcome::Fatal(Reason::ReceiveTooShort))]
    {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, u32::MAX);
        assert_eq!(case.comes(100, Op::SendFirst, &FULL), CONTINUE);
        let Some(PartialMessage::Send { received, .. }) = &mut case.responder.message else {
            panic!("no message");
        };
        *received = u64::from(before);
        assert_eq!(case.comes(101, LAST, &[1]), outcome, "{before} bytes before");
    }
}

#[test]
fn the_sender_says_whether_a_completion_is_solicited() {
    for solicited in [false, true] {
        for op in [SEND, Op::WriteOnly(reth(1), Some(IMM))] {
            let mut case = Case::of(QpType::Uc);
            case.world.post_receive(1, 1);
            assert_eq!(case.comes_with(solicited, 100, op, &[7]), CONTINUE);
            assert_eq!(case.says().3, solicited, "{op:?}");
        }
    }
}

#[test]
fn a_write_of_uc_ends_with_the_length_that_it_announced() {
    for (last, taken) in [(1, false), (2, true), (3, false)] {
        let mut case = Case::of(QpType::Uc);
        case.world.post_receive(1, 0);
        assert_eq!(case.comes(100, Op::WriteFirst(reth(2 * MTU + 2)), &FULL), CONTINUE);
        assert_eq!(case.comes(101, Op::WriteMiddle, &FULL), CONTINUE);
        assert_eq!(case.world.completed, []);
        assert_eq!(case.comes(102, Op::WriteLast(Some(IMM)), &FULL[..last]), CONTINUE);
        assert_eq!(case.dropped(Counter::DropUcRequest), usize::from(!taken), "{last} bytes");
        let placed = 2 * MTU as usize + if taken { last } else { 0 };
        assert_eq!(case.world.placed, vec![7; placed]);
        assert_eq!(case.world.completed.len(), usize::from(taken));
        assert_eq!(case.dropped(Counter::RdmaRecvs), usize::from(taken));
    }
    for (announced, taken) in [(MTU, false), (MTU + 1, true)] {
        let mut case = Case::of(QpType::Uc);
        assert_eq!(case.comes(100, Op::WriteFirst(reth(announced)), &FULL), CONTINUE);
        assert_eq!(case.world.placed.len(), if taken { FULL.len() } else { 0 }, "something is to follow");
    }
}

#[test]
fn the_receive_of_a_write_of_uc_tells_its_length_and_its_immediate_data() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, 0);
    assert_eq!(case.comes(100, Op::WriteOnly(reth(2), Some(IMM)), &[7; 2]), CONTINUE);
    assert_eq!(case.says(), (Status::Success, 2, Some(IMM), false));
    let opcode = case.world.last_completion.map(|completion| completion.opcode);
    assert_eq!(opcode, Some(WcOpcode::RecvRdmaWithImm));
    assert_eq!(case.comes(101, Op::WriteOnly(reth(2), Some(IMM)), &[7; 2]), CONTINUE);
    assert_eq!(case.dropped(Counter::DropNoRecv), 1, "there is no other receive");
    assert_eq!(case.world.placed.len(), 2, "and without one it is not written");
}

#[test]
fn a_write_of_uc_needs_the_right_of_the_qp_and_of_the_key() {
    let mut case = Case::of(QpType::Uc);
    case.cx.attr.access.remote_write = false;
    assert_eq!(case.comes(100, write(1), &[7]), CONTINUE);
    let mut other = Case::of(QpType::Uc);
    other.world.remote = Err(RemoteFault::Access);
    assert_eq!(other.comes(100, write(1), &[7]), CONTINUE);
    assert_eq!(other.comes(101, Op::WriteFirst(reth(2 * MTU)), &FULL), CONTINUE);
    let mut long = Case::of(QpType::Uc);
    assert_eq!(long.comes(100, Op::WriteFirst(reth(crate::MAX_MESSAGE + 1)), &FULL), CONTINUE);
    for (case, dropped) in [(&case, 1), (&other, 2), (&long, 1)] {
        assert_eq!(case.dropped(Counter::DropUcRequest), dropped);
        assert_eq!(case.world.placed, []);
    }
    let mut longest = Case::of(QpType::Uc);
    assert_eq!(longest.comes(100, Op::WriteFirst(reth(crate::MAX_MESSAGE)), &FULL), CONTINUE);
    assert_eq!(longest.world.placed.len(), FULL.len());
}

#[test]
fn a_write_of_nothing_needs_no_key() {
    let mut case = Case::of(QpType::Uc);
    case.world.remote = Err(RemoteFault::Access);
    assert_eq!(case.comes(100, write(0), &[]), CONTINUE);
    assert_eq!(case.dropped(Counter::DropUcRequest), 0);
}

#[test]
fn a_uc_write_without_immediate_leaves_a_kept_receive() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, 2 * MTU);
    assert_eq!(case.comes(100, Op::SendFirst, &FULL), CONTINUE);
    assert_eq!(case.comes(105, write(1), &[7]), CONTINUE, "that takes no receive");
    case.world.remote = Err(RemoteFault::Access);
    let with_imm = |dma_len| Op::WriteOnly(reth(dma_len), Some(IMM));
    assert_eq!(case.comes(106, with_imm(1), &[7]), CONTINUE, "refused");
    case.world.remote = Ok(());
    assert_eq!(case.comes(107, with_imm(1), &[7]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
}

#[test]
fn memory_that_goes_away_under_a_write_of_uc_costs_no_receive() {
    let mut case = Case::of(QpType::Uc);
    case.world.post_receive(1, 0);
    assert_eq!(case.comes(100, Op::WriteFirst(reth(MTU + 1)), &FULL), CONTINUE);
    case.world.remote = Err(RemoteFault::Unmapped);
    assert_eq!(case.comes(101, Op::WriteLast(Some(IMM)), &[7]), CONTINUE);
    assert_eq!((case.dropped(Counter::DropUcRequest), case.world.completed.len()), (1, 0));
    case.world.remote = Ok(());
    assert_eq!(case.comes(102, Op::WriteOnly(reth(1), Some(IMM)), &[7]), CONTINUE);
    assert_eq!(case.world.completed, [(1, Status::Success)]);
}

#[test]
fn a_datagram_fills_a_receive_behind_its_network_header() {
    let mut case = Case::of(QpType::Ud);
    case.world.post_receive(1, 44);
    assert_eq!(case.datagram(Qkey(0), Some(IMM), &[7; 4]), CONTINUE);
    assert_eq!(case.says(), (Status::Success, 44, Some(IMM), false));
    let last = case.world.last_completion.expect("it completes");
    assert_eq!((last.src_qpn, last.grh), (Qpn::new(9), true));
    assert_eq!(case.world.placed[..40], [5; 40]);
    assert_eq!(case.world.placed[40..], [7; 4]);
    assert_eq!(case.dropped(Counter::RdmaRecvs), 1);
}

#[test]
fn a_datagram_that_cannot_be_taken_costs_no_receive() {
    let long = [7; 4097];
    for (qkey, payload, room, counter, told) in [
        (Qkey(1), &long[..4], 44, Counter::DropQkey, 1),
        (Qkey(0), &long[..], 8000, Counter::DropUdLength, 0),
        (Qkey(0), &long[..4], 43, Counter::DropShortRecv, 1),
    ] {
        let mut case = Case::of(QpType::Ud);
        case.world.post_receive(1, room);
        assert_eq!(case.datagram(qkey, None, payload), CONTINUE);
        assert_eq!(case.dropped(counter), 1, "{counter:?}");
        assert_eq!((case.world.receives.len(), case.world.completed.len()), (1, 0));
        assert_eq!(case.world.concerns.len(), told, "{counter:?}");
    }
    let mut case = Case::of(QpType::Ud);
    assert_eq!(case.datagram(Qkey(0), None, &[]), CONTINUE);
    assert_eq!(case.dropped(Counter::DropNoRecv), 1);
    case.world.post_receive(1, 5000);
    assert_eq!(case.datagram(Qkey(0), None, &long[..4096]), CONTINUE);
    assert_eq!(case.world.completed.len(), 1, "as long as the port's MTU");
}

#[test]
fn a_datagram_whose_receive_cannot_be_written_ends_the_qp() {
    let mut case = Case::of(QpType::Ud);
    case.world.post_receive(1, 100);
    case.world.memory = Err(LocalFault);
    let outcome = case.datagram(Qkey(0), Some(IMM), &[7; 4]);
    assert_eq!(outcome, Outcome::Fatal(Reason::ReceiveMemory));
    assert_eq!(case.says(), (Status::LocalProtection, 0, None, true));
    assert_eq!(case.dropped(Counter::RdmaRecvs), 0);
}
