//! The opcode table (IBTA 9.2.1, Annexes A14, A17 and A19), read by everything else in the crate.

use crate::opcode::Header::{self, *};
use crate::opcode::Operation::{self, *};
use crate::opcode::Transport::{self, Rc, SoftRnic, Uc, Ud, Xrc};
use crate::opcode::{Opcode, OpcodeInfo};

/// Every opcode this crate parses and emits. XRC requests name their shared receive queue right
/// after the BTH, the later packets of a message included; XRC responses do not.
#[rustfmt::skip]
pub const OPCODES: [OpcodeInfo; 64] = [
    row("RC SEND First", Rc, SendFirst, &[], FIRST.takes_wqe()),
    row("RC SEND Middle", Rc, SendMiddle, &[], PART),
    row("RC SEND Last", Rc, SendLast, &[], LAST),
    row("RC SEND Last with Immediate", Rc, SendLastImm, &[ImmDt], LAST),
    row("RC SEND Only", Rc, SendOnly, &[], ONLY.takes_wqe()),
    row("RC SEND Only with Immediate", Rc, SendOnlyImm, &[ImmDt], ONLY.takes_wqe()),
    row("RC RDMA WRITE First", Rc, WriteFirst, &[Reth], FIRST),
    row("RC RDMA WRITE Middle", Rc, WriteMiddle, &[], PART),
    row("RC RDMA WRITE Last", Rc, WriteLast, &[], LAST),
    row("RC RDMA WRITE Last with Immediate", Rc, WriteLastImm, &[ImmDt], LAST.takes_wqe()),
    row("RC RDMA WRITE Only", Rc, WriteOnly, &[Reth], ONLY),
    row("RC RDMA WRITE Only with Immediate", Rc, WriteOnlyImm, &[Reth, ImmDt], ONLY.takes_wqe()),
    row("RC RDMA READ Request", Rc, ReadRequest, &[Reth], ONLY),
    row("RC RDMA READ Response First", Rc, ReadResponseFirst, &[Aeth], RESPONSE),
    row("RC RDMA READ Response Middle", Rc, ReadResponseMiddle, &[], RESPONSE),
    row("RC RDMA READ Response Last", Rc, ReadResponseLast, &[Aeth], RESPONSE),
    row("RC RDMA READ Response Only", Rc, ReadResponseOnly, &[Aeth], RESPONSE),
    row("RC Acknowledge", Rc, Acknowledge, &[Aeth], RESPONSE),
    row("RC ATOMIC Acknowledge", Rc, AtomicAcknowledge, &[Aeth, AtomicAckEth], RESPONSE),
    row("RC CmpSwap", Rc, CompareSwap, &[AtomicEth], ONLY),
    row("RC FetchAdd", Rc, FetchAdd, &[AtomicEth], ONLY),
    row("RC SEND Last with Invalidate", Rc, SendLastInv, &[Ieth], LAST),
    row("RC SEND Only with Invalidate", Rc, SendOnlyInv, &[Ieth], ONLY.takes_wqe()),
    row("RC FLUSH", Rc, Flush, &[Feth, Reth], ONLY),
    row("RC ATOMIC WRITE", Rc, AtomicWrite, &[Reth], ONLY),
    row("UC SEND First", Uc, SendFirst, &[], FIRST.takes_wqe()),
    row("UC SEND Middle", Uc, SendMiddle, &[], PART),
    row("UC SEND Last", Uc, SendLast, &[], LAST),
    row("UC SEND Last with Immediate", Uc, SendLastImm, &[ImmDt], LAST),
    row("UC SEND Only", Uc, SendOnly, &[], ONLY.takes_wqe()),
    row("UC SEND Only with Immediate", Uc, SendOnlyImm, &[ImmDt], ONLY.takes_wqe()),
    row("UC RDMA WRITE First", Uc, WriteFirst, &[Reth], FIRST),
    row("UC RDMA WRITE Middle", Uc, WriteMiddle, &[], PART),
    row("UC RDMA WRITE Last", Uc, WriteLast, &[], LAST),
    row("UC RDMA WRITE Last with Immediate", Uc, WriteLastImm, &[ImmDt], LAST.takes_wqe()),
    row("UC RDMA WRITE Only", Uc, WriteOnly, &[Reth], ONLY),
    row("UC RDMA WRITE Only with Immediate", Uc, WriteOnlyImm, &[Reth, ImmDt], ONLY.takes_wqe()),
    row("UD SEND Only", Ud, SendOnly, &[Deth], ONLY.takes_wqe()),
    row("UD SEND Only with Immediate", Ud, SendOnlyImm, &[Deth, ImmDt], ONLY.takes_wqe()),
    row("CNP", Transport::Cnp, Operation::Cnp, &[], NOTICE),
    row("XRC SEND First", Xrc, SendFirst, &[XrcEth], FIRST.takes_wqe()),
    row("XRC SEND Middle", Xrc, SendMiddle, &[XrcEth], PART),
    row("XRC SEND Last", Xrc, SendLast, &[XrcEth], LAST),
    row("XRC SEND Last with Immediate", Xrc, SendLastImm, &[XrcEth, ImmDt], LAST),
    row("XRC SEND Only", Xrc, SendOnly, &[XrcEth], ONLY.takes_wqe()),
    row("XRC SEND Only with Immediate", Xrc, SendOnlyImm, &[XrcEth, ImmDt], ONLY.takes_wqe()),
    row("XRC RDMA WRITE First", Xrc, WriteFirst, &[XrcEth, Reth], FIRST),
    row("XRC RDMA WRITE Middle", Xrc, WriteMiddle, &[XrcEth], PART),
    row("XRC RDMA WRITE Last", Xrc, WriteLast, &[XrcEth], LAST),
    row("XRC RDMA WRITE Last with Immediate", Xrc, WriteLastImm, &[XrcEth, ImmDt], LAST.takes_wqe()),
    row("XRC RDMA WRITE Only", Xrc, WriteOnly, &[XrcEth, Reth], ONLY),
    row("XRC RDMA WRITE Only with Immediate", Xrc, WriteOnlyImm, &[XrcEth, Reth, ImmDt], ONLY.takes_wqe()),
    row("XRC RDMA READ Request", Xrc, ReadRequest, &[XrcEth, Reth], ONLY),
    row("XRC RDMA READ Response First", Xrc, ReadResponseFirst, &[Aeth], RESPONSE),
    row("XRC RDMA READ Response Middle", Xrc, ReadResponseMiddle, &[], RESPONSE),
    row("XRC RDMA READ Response Last", Xrc, ReadResponseLast, &[Aeth], RESPONSE),
    row("XRC RDMA READ Response Only", Xrc, ReadResponseOnly, &[Aeth], RESPONSE),
    row("XRC Acknowledge", Xrc, Acknowledge, &[Aeth], RESPONSE),
    row("XRC ATOMIC Acknowledge", Xrc, AtomicAcknowledge, &[Aeth, AtomicAckEth], RESPONSE),
    row("XRC CmpSwap", Xrc, CompareSwap, &[XrcEth, AtomicEth], ONLY),
    row("XRC FetchAdd", Xrc, FetchAdd, &[XrcEth, AtomicEth], ONLY),
    row("XRC SEND Last with Invalidate", Xrc, SendLastInv, &[XrcEth, Ieth], LAST),
    row("XRC SEND Only with Invalidate", Xrc, SendOnlyInv, &[XrcEth, Ieth], ONLY.takes_wqe()),
    row("SoftRNIC Selective Acknowledge", SoftRnic, SelectiveAcknowledge, &[Aeth], RESPONSE),
];

/// Row of each opcode byte in [`OPCODES`]; [`NO_ROW`] where there is none.
pub(crate) const INDEX: [u8; 256] = {
    let mut index = [NO_ROW; 256];
    let mut row = 0;
    while row < OPCODES.len() {
        let byte = OPCODES[row].opcode.byte() as usize;
        assert!(index[byte] == NO_ROW, "two rows for one opcode");
        index[byte] = row as u8;
        row += 1;
    }
    index
};

/// Bytes of BTH and extended headers of each opcode byte; 0 where there is no such opcode.
pub(crate) const HEADERS_LEN: [u8; 256] = {
    let mut lens = [0; 256];
    let mut row = 0;
    while row < OPCODES.len() {
        lens[OPCODES[row].opcode.byte() as usize] = OPCODES[row].headers_len as u8;
        row += 1;
    }
    lens
};

const NO_ROW: u8 = u8::MAX;

/// Position of a packet in its message.
#[derive(Clone, Copy)]
struct Role {
    starts: bool,
    ends: bool,
    is_request: bool,
    consumes_rq_wqe: bool,
}

impl Role {
    const fn takes_wqe(self) -> Role {
        Role { consumes_rq_wqe: true, ..self }
    }
}

const PART: Role = Role { starts: false, ends: false, is_request: true, consumes_rq_wqe: false };
const FIRST: Role = Role { starts: true, ..PART };
const LAST: Role = Role { ends: true, ..PART };
const ONLY: Role = Role { starts: true, ends: true, ..PART };
const RESPONSE: Role = Role { is_request: false, ..PART };
const NOTICE: Role = RESPONSE;

const fn row(
    name: &'static str,
    transport: Transport,
    operation: Operation,
    headers: &'static [Header],
    role: Role,
) -> OpcodeInfo {
    let mut headers_len = Header::Bth.size();
    let mut i = 0;
    while i < headers.len() {
        headers_len += headers[i].size();
        i += 1;
    }
    OpcodeInfo {
        opcode: Opcode::compose(transport, operation),
        name,
        transport,
        operation,
        headers,
        headers_len,
        payload: operation.payload(),
        starts: role.starts,
        ends: role.ends,
        is_request: role.is_request,
        consumes_rq_wqe: role.consumes_rq_wqe,
    }
}
