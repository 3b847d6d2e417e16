use softrnic_wire::{Imm, Qkey, Qpn, Rkey, SendTail};

use super::*;
use crate::testing::context;
use crate::wqe::{LocalOp, RemoteBuffer};

#[test]
fn a_message_that_completes_a_receive_may_ask_for_an_event() {
    // IBTA 9.2.3.
    let imm = Some(Imm([0; 4]));
    let remote = RemoteBuffer { va: 0, rkey: Rkey(1) };
    let path = context().attr.path;
    for (op, may) in [
        (SendOp::Send(SendTail::Plain), true),
        (SendOp::Send(SendTail::Imm(Imm([0; 4]))), true),
        (SendOp::Datagram { path, dest_qpn: Qpn::new(7), qkey: Qkey(1), imm: None }, true),
        (SendOp::Write { remote, imm: None }, false),
        (SendOp::Write { remote, imm }, true),
        (SendOp::Read { remote }, false),
        (SendOp::FetchAdd { remote, add: 1 }, false),
        (SendOp::AtomicWrite { remote }, false),
        (SendOp::Local(LocalOp::BindWindow), false),
    ] {
        assert_eq!(may_be_solicited(&op), may, "{op:?}");
    }
}
