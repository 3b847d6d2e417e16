use softrnic_wire::Rkey;

use super::*;

#[test]
fn a_message_asks_for_an_event_with_the_packet_that_completes_a_receive() {
    // IBTA 9.2.3.
    let imm = Some(Imm([0; 4]));
    let reth = Reth { va: 0, rkey: Rkey(1), dma_len: 1 };
    for (op, may) in [
        (Op::SendFirst, false),
        (Op::SendMiddle, false),
        (Op::SendLast(SendTail::Plain), true),
        (Op::SendOnly(SendTail::Plain), true),
        (Op::WriteFirst(reth), false),
        (Op::WriteMiddle, false),
        (Op::WriteLast(None), false),
        (Op::WriteLast(imm), true),
        (Op::WriteOnly(reth, None), false),
        (Op::WriteOnly(reth, imm), true),
        (Op::ReadRequest(reth), false),
    ] {
        assert_eq!(may_be_solicited(&op), may, "{op:?}");
    }
}
