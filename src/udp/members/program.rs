//! The program by which the kernel chooses the socket of a packet: classic BPF, which needs no privilege
//! (`SO_ATTACH_REUSEPORT_CBPF`, socket(7)). It sees the UDP payload and returns the number of the socket.
//!
//! A packet to a queue pair is for the slot in the number of the queue pair. One to QP 1 is a message of the connection
//! manager: an answer names our communication id, which has the slot too, and a request names a service, of which there is
//! a list. A datagram between SoftRNICs names a queue pair of ours. Messages about unknown connections or services go to the first process, which knows what to answer.

use softrnic_wire::ServiceId;

use softrnic_link::ProcessSlot;

/// One instruction: its code, where to go on if it is true or not, and its number (`struct sock_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    number: u32,
}

/// `BPF_LD | BPF_ABS` of four and of two bytes.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
/// What was loaded or computed last.
const RETURN_IT: u16 = 0x16;

/// Where the fields are. BTH has 12 bytes, DETH 8, the header of a MAD 24.
const DEST_QPN: u32 = 4;
const ATTRIBUTE: u32 = 12 + 8 + 16;
const BODY: u32 = 12 + 8 + 24;
/// In REQ and SIDR_REQ.
const SERVICE: u32 = BODY + 8;
/// In SIDR_REP.
const REQUEST_ID: u32 = BODY;
/// In all others.
const REMOTE_COMM_ID: u32 = BODY + 4;

/// In datagrams between SoftRNICs: the receiver's queue pair, in the upper 24 bits.
const VENDOR_QPN: u32 = BODY + 16;

/// The first attribute of those.
const VENDOR: u32 = 0xFF00;
const REQ: u32 = 0x10;
const SIDR_REQ: u32 = 0x17;
const SIDR_REP: u32 = 0x18;

fn load(code: u16, at: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, number: at }
}

fn compute(code: u16, number: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, number }
}

/// Skips `if_true` instructions if what was loaded is `number`, and otherwise `if_false`.
fn compare(number: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code: JUMP_IF_EQUAL, if_true, if_false, number }
}

fn to(slot: ProcessSlot) -> Instruction {
    compute(RETURN, slot.number() as u32)
}

/// The socket's filter (`SO_ATTACH_FILTER`) that lets in only datagrams that have `secret` after their first eight bytes. A
/// filter sees the UDP header as well.
pub fn letting_in(secret: [u8; 8]) -> Vec<Instruction> {
    let [upper, lower] = [0, 4].map(|at| u32::from_be_bytes(std::array::from_fn(|byte| secret[at + byte])));
    const SECRET: u32 = 8 + 8;
    vec![
        load(LOAD_WORD, SECRET),
        compare(upper, 0, 3),
        load(LOAD_WORD, SECRET + 4),
        compare(lower, 0, 1),
        compute(RETURN, u32::MAX),
        compute(RETURN, 0),
    ]
}

/// The program for these services, and processes that have these slots. What is for nobody among them goes to the first.
pub fn choosing(
    services: impl Iterator<Item = (ServiceId, ProcessSlot)>,
    taken: &[ProcessSlot],
) -> Vec<Instruction> {
    let first = taken.first().copied().unwrap_or_default();
    let mut services: Vec<(ServiceId, ProcessSlot)> = services.collect();
    services.sort_unstable();
    // Behind what finds the process of a communication id: one comparison for each, and two instructions that return.
    let to_services = 10 + taken.len() as u8 + 1;
    let mut program = vec![
        load(LOAD_WORD, DEST_QPN),
        compute(AND, 0xFF_FFFF),
        compare(1, 2, 0),
        compute(SHIFT_RIGHT, 24 - ProcessSlot::COUNT.ilog2()),
        compute(RETURN_IT, 0),
        load(LOAD_HALF, ATTRIBUTE),
        compare(REQ, to_services, 0),
        compare(SIDR_REQ, to_services - 1, 0),
        compare(SIDR_REP, 3, 0),
        Instruction { code: JUMP_IF_AT_LEAST, if_true: 4, if_false: 0, number: VENDOR },
        load(LOAD_WORD, REMOTE_COMM_ID),
        compute(JUMP, 3),
        load(LOAD_WORD, REQUEST_ID),
        compute(JUMP, 1),
        load(LOAD_WORD, VENDOR_QPN),
        compute(SHIFT_RIGHT, 32 - ProcessSlot::COUNT.ilog2()),
    ];
    for (place, slot) in taken.iter().enumerate() {
        program.push(compare(slot.number() as u32, (taken.len() - place) as u8, 0));
    }
    program.push(to(first));
    program.push(compute(RETURN_IT, 0));
    // By their upper halves, which are the same for nearly all.
    let upper_half = |service: &ServiceId| (service.0 >> 32) as u32;
    for same in services.chunk_by(|(one, _), (other, _)| upper_half(one) == upper_half(other)) {
        program.push(load(LOAD_WORD, SERVICE));
        program.push(compare(upper_half(&same[0].0), 1, 0));
        program.push(compute(JUMP, 1 + 2 * same.len() as u32));
        program.push(load(LOAD_WORD, SERVICE + 4));
        for (service, slot) in same {
            program.push(compare(service.0 as u32, 0, 1));
            program.push(to(*slot));
        }
    }
    program.push(to(first));
    program
}
