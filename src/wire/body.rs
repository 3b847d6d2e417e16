//! What a packet says beyond its BTH: the opcode and its extended headers as one value. A header set that no opcode has
//! cannot be expressed.

use crate::bytes::{Reader, Writer};
use crate::headers::{Aeth, AtomicEth, Deth, Feth, Reth};
use crate::ids::{Imm, Rkey, Srqn};
use crate::opcode::{Opcode, OpcodeInfo, Operation, Transport};

/// Transport, operation and extended headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Reliable connection.
    Rc(Op),
    /// Extended reliable connection.
    Xrc(XrcBody),
    /// Unreliable connection.
    Uc(UcOp),
    /// Unreliable datagram: always a SEND Only.
    Ud {
        /// Sender and key.
        deth: Deth,
        /// Immediate data.
        imm: Option<Imm>,
    },
    /// Congestion notification; its sixteen reserved bytes travel as payload.
    Cnp,
    /// Between SoftRNICs: everything before the PSN of the BTH has come, and so have the packets whose bits are set in the
    /// payload. The lowest bit of the first byte is that of the PSN itself.
    SelectiveAck(Aeth),
}

/// An operation of the reliable transports with its extended headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// First packet of a long SEND.
    SendFirst,
    /// Packet in the middle of a SEND.
    SendMiddle,
    /// Last packet of a long SEND.
    SendLast(SendTail),
    /// A whole SEND.
    SendOnly(SendTail),
    /// First packet of a long WRITE.
    WriteFirst(Reth),
    /// Packet in the middle of a WRITE.
    WriteMiddle,
    /// Last packet of a long WRITE.
    WriteLast(Option<Imm>),
    /// A whole WRITE.
    WriteOnly(Reth, Option<Imm>),
    /// Asks for remote memory.
    ReadRequest(Reth),
    /// First packet of a long READ response.
    ReadResponseFirst(Aeth),
    /// Packet in the middle of a READ response.
    ReadResponseMiddle,
    /// Last packet of a long READ response.
    ReadResponseLast(Aeth),
    /// A whole READ response; also answers FLUSH and ATOMIC WRITE.
    ReadResponseOnly(Aeth),
    /// ACK, RNR NAK or NAK.
    Acknowledge(Aeth),
    /// Answers an atomic with the value found, in host order.
    AtomicAcknowledge(Aeth, u64),
    /// Compare and swap, eight bytes.
    CompareSwap(AtomicEth),
    /// Fetch and add, eight bytes.
    FetchAdd(AtomicEth),
    /// Makes earlier writes visible or durable.
    Flush(Feth, Reth),
    /// Writes eight bytes, all at once.
    AtomicWrite(Reth),
}

/// What may come with the end of a SEND.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendTail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Imm(Imm),
    /// A key for the responder to invalidate.
    Inv(Rkey),
}

/// An operation of the unreliable connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UcOp {
    /// First packet of a long SEND.
    SendFirst,
    /// Packet in the middle of a SEND.
    SendMiddle,
    /// Last packet of a long SEND.
    SendLast(Option<Imm>),
    /// A whole SEND.
    SendOnly(Option<Imm>),
    /// First packet of a long WRITE.
    WriteFirst(Reth),
    /// Packet in the middle of a WRITE.
    WriteMiddle,
    /// Last packet of a long WRITE.
    WriteLast(Option<Imm>),
    /// A whole WRITE.
    WriteOnly(Reth, Option<Imm>),
}

/// An XRC operation: a request together with its shared receive queue, or a response without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcBody {
    srqn: Option<Srqn>,
    op: Op,
}

impl Body {
    /// The opcode this is sent with.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        match self {
            Body::Rc(op) => Opcode::compose(Transport::Rc, op.operation()),
            Body::Xrc(xrc) => Opcode::compose(Transport::Xrc, xrc.op.operation()),
            Body::Uc(op) => Opcode::compose(Transport::Uc, Op::from(*op).operation()),
            Body::Ud { imm: None, .. } => Opcode::compose(Transport::Ud, Operation::SendOnly),
            Body::Ud { imm: Some(_), .. } => Opcode::compose(Transport::Ud, Operation::SendOnlyImm),
            Body::Cnp => Opcode::CNP,
            Body::SelectiveAck(_) => Opcode::compose(Transport::SoftRnic, Operation::SelectiveAcknowledge),
        }
    }

    /// Bytes of BTH and extended headers.
    #[inline]
    pub fn headers_len(&self) -> usize {
        self.opcode().headers_len()
    }

    /// The operation, for the transports that share [`Op`].
    #[inline]
    pub fn op(&self) -> Option<Op> {
        match *self {
            Body::Rc(op) => Some(op),
            Body::Xrc(xrc) => Some(xrc.op),
            Body::Uc(op) => Some(op.into()),
            Body::Ud { .. } | Body::Cnp | Body::SelectiveAck(_) => None,
        }
    }

    /// Reads the extended headers of `info`'s opcode.
    #[inline]
    pub(crate) fn read(info: &OpcodeInfo, r: &mut Reader<'_>) -> Option<Body> {
        let srqn = match info.transport {
            Transport::Xrc if info.is_request => Some(Srqn::new(r.u32()?)),
            Transport::Ud => {
                let deth = Deth::read(r)?;
                let imm = if info.operation.has_imm() { Some(read_imm(r)?) } else { None };
                return Some(Body::Ud { deth, imm });
            }
            Transport::Cnp => return Some(Body::Cnp),
            Transport::SoftRnic => return Aeth::read(r).map(Body::SelectiveAck),
            _ => None,
        };
        let op = Op::read(info.operation, r)?;
        match info.transport {
            Transport::Rc => Some(Body::Rc(op)),
            Transport::Xrc => Some(Body::Xrc(XrcBody { srqn, op })),
            Transport::Uc => UcOp::from_op(op).map(Body::Uc),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        match self {
            Body::Rc(op) => op.write(w),
            Body::Xrc(xrc) => {
                if let Some(srqn) = xrc.srqn {
                    w.u32(srqn.get());
                }
                xrc.op.write(w);
            }
            Body::Uc(op) => Op::from(*op).write(w),
            Body::Ud { deth, imm } => {
                deth.write(w);
                write_imm(*imm, w);
            }
            Body::Cnp => {}
            Body::SelectiveAck(aeth) => aeth.write(w),
        }
    }
}

impl Op {
    /// Which operation this is.
    #[inline]
    pub const fn operation(&self) -> Operation {
        match self {
            Op::SendFirst => Operation::SendFirst,
            Op::SendMiddle => Operation::SendMiddle,
            Op::SendLast(SendTail::Plain) => Operation::SendLast,
            Op::SendLast(SendTail::Imm(_)) => Operation::SendLastImm,
            Op::SendLast(SendTail::Inv(_)) => Operation::SendLastInv,
            Op::SendOnly(SendTail::Plain) => Operation::SendOnly,
            Op::SendOnly(SendTail::Imm(_)) => Operation::SendOnlyImm,
            Op::SendOnly(SendTail::Inv(_)) => Operation::SendOnlyInv,
            Op::WriteFirst(_) => Operation::WriteFirst,
            Op::WriteMiddle => Operation::WriteMiddle,
            Op::WriteLast(None) => Operation::WriteLast,
            Op::WriteLast(Some(_)) => Operation::WriteLastImm,
            Op::WriteOnly(_, None) => Operation::WriteOnly,
            Op::WriteOnly(_, Some(_)) => Operation::WriteOnlyImm,
            Op::ReadRequest(_) => Operation::ReadRequest,
            Op::ReadResponseFirst(_) => Operation::ReadResponseFirst,
            Op::ReadResponseMiddle => Operation::ReadResponseMiddle,
            Op::ReadResponseLast(_) => Operation::ReadResponseLast,
            Op::ReadResponseOnly(_) => Operation::ReadResponseOnly,
            Op::Acknowledge(_) => Operation::Acknowledge,
            Op::AtomicAcknowledge(..) => Operation::AtomicAcknowledge,
            Op::CompareSwap(_) => Operation::CompareSwap,
            Op::FetchAdd(_) => Operation::FetchAdd,
            Op::Flush(..) => Operation::Flush,
            Op::AtomicWrite(_) => Operation::AtomicWrite,
        }
    }

    /// The RETH, where the operation has one.
    #[inline]
    pub const fn reth(&self) -> Option<Reth> {
        match *self {
            Op::WriteFirst(reth)
            | Op::WriteOnly(reth, _)
            | Op::ReadRequest(reth)
            | Op::Flush(_, reth)
            | Op::AtomicWrite(reth) => Some(reth),
            _ => None,
        }
    }

    /// The AETH, where the operation has one.
    #[inline]
    pub const fn aeth(&self) -> Option<Aeth> {
        match *self {
            Op::ReadResponseFirst(aeth)
            | Op::ReadResponseLast(aeth)
            | Op::ReadResponseOnly(aeth)
            | Op::Acknowledge(aeth)
            | Op::AtomicAcknowledge(aeth, _) => Some(aeth),
            _ => None,
        }
    }

    /// The immediate data, where the operation has any.
    #[inline]
    pub const fn imm(&self) -> Option<Imm> {
        match *self {
            Op::SendLast(SendTail::Imm(imm)) | Op::SendOnly(SendTail::Imm(imm)) => Some(imm),
            Op::WriteLast(imm) | Op::WriteOnly(_, imm) => imm,
            _ => None,
        }
    }

    // Inlined, so that the operation is built in place: a copy of what was just stored in pieces is slow to load.
    #[inline(always)]
    fn read(operation: Operation, r: &mut Reader<'_>) -> Option<Op> {
        Some(match operation {
            Operation::SendFirst => Op::SendFirst,
            Operation::SendMiddle => Op::SendMiddle,
            Operation::SendLast => Op::SendLast(SendTail::Plain),
            Operation::SendLastImm => Op::SendLast(SendTail::Imm(read_imm(r)?)),
            Operation::SendLastInv => Op::SendLast(SendTail::Inv(Rkey(r.u32()?))),
            Operation::SendOnly => Op::SendOnly(SendTail::Plain),
            Operation::SendOnlyImm => Op::SendOnly(SendTail::Imm(read_imm(r)?)),
            Operation::SendOnlyInv => Op::SendOnly(SendTail::Inv(Rkey(r.u32()?))),
            Operation::WriteFirst => Op::WriteFirst(Reth::read(r)?),
            Operation::WriteMiddle => Op::WriteMiddle,
            Operation::WriteLast => Op::WriteLast(None),
            Operation::WriteLastImm => Op::WriteLast(Some(read_imm(r)?)),
            Operation::WriteOnly => Op::WriteOnly(Reth::read(r)?, None),
            Operation::WriteOnlyImm => Op::WriteOnly(Reth::read(r)?, Some(read_imm(r)?)),
            Operation::ReadRequest => Op::ReadRequest(Reth::read(r)?),
            Operation::ReadResponseFirst => Op::ReadResponseFirst(Aeth::read(r)?),
            Operation::ReadResponseMiddle => Op::ReadResponseMiddle,
            Operation::ReadResponseLast => Op::ReadResponseLast(Aeth::read(r)?),
            Operation::ReadResponseOnly => Op::ReadResponseOnly(Aeth::read(r)?),
            Operation::Acknowledge => Op::Acknowledge(Aeth::read(r)?),
            Operation::AtomicAcknowledge => Op::AtomicAcknowledge(Aeth::read(r)?, r.u64()?),
            Operation::CompareSwap => Op::CompareSwap(AtomicEth::read(r)?),
            Operation::FetchAdd => Op::FetchAdd(AtomicEth::read(r)?),
            Operation::Flush => Op::Flush(Feth::read(r)?, Reth::read(r)?),
            Operation::AtomicWrite => Op::AtomicWrite(Reth::read(r)?),
            Operation::Cnp | Operation::SelectiveAcknowledge => return None,
        })
    }

    #[inline]
    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Op::SendFirst | Op::SendMiddle | Op::WriteMiddle | Op::ReadResponseMiddle => {}
            Op::SendLast(tail) | Op::SendOnly(tail) => match tail {
                SendTail::Plain => {}
                SendTail::Imm(imm) => w.put(imm.0),
                SendTail::Inv(rkey) => w.u32(rkey.0),
            },
            Op::WriteFirst(reth) | Op::ReadRequest(reth) | Op::AtomicWrite(reth) => reth.write(w),
            Op::WriteLast(imm) => write_imm(*imm, w),
            Op::WriteOnly(reth, imm) => {
                reth.write(w);
                write_imm(*imm, w);
            }
            Op::ReadResponseFirst(aeth)
            | Op::ReadResponseLast(aeth)
            | Op::ReadResponseOnly(aeth)
            | Op::Acknowledge(aeth) => aeth.write(w),
            Op::AtomicAcknowledge(aeth, original) => {
                aeth.write(w);
                w.u64(*original);
            }
            Op::CompareSwap(atomic) | Op::FetchAdd(atomic) => atomic.write(w),
            Op::Flush(feth, reth) => {
                feth.write(w);
                reth.write(w);
            }
        }
    }
}

impl SendTail {
    /// A tail with or without immediate data.
    pub const fn from_imm(imm: Option<Imm>) -> SendTail {
        match imm {
            Some(imm) => SendTail::Imm(imm),
            None => SendTail::Plain,
        }
    }
}

impl UcOp {
    /// The same operation, if the unreliable connection has it: no READ, atomic, FLUSH, invalidate
    /// or response.
    #[inline]
    pub const fn from_op(op: Op) -> Option<UcOp> {
        Some(match op {
            Op::SendFirst => UcOp::SendFirst,
            Op::SendMiddle => UcOp::SendMiddle,
            Op::SendLast(SendTail::Plain) => UcOp::SendLast(None),
            Op::SendLast(SendTail::Imm(imm)) => UcOp::SendLast(Some(imm)),
            Op::SendOnly(SendTail::Plain) => UcOp::SendOnly(None),
            Op::SendOnly(SendTail::Imm(imm)) => UcOp::SendOnly(Some(imm)),
            Op::WriteFirst(reth) => UcOp::WriteFirst(reth),
            Op::WriteMiddle => UcOp::WriteMiddle,
            Op::WriteLast(imm) => UcOp::WriteLast(imm),
            Op::WriteOnly(reth, imm) => UcOp::WriteOnly(reth, imm),
            _ => return None,
        })
    }
}

impl From<UcOp> for Op {
    #[inline]
    fn from(op: UcOp) -> Op {
        match op {
            UcOp::SendFirst => Op::SendFirst,
            UcOp::SendMiddle => Op::SendMiddle,
            UcOp::SendLast(imm) => Op::SendLast(SendTail::from_imm(imm)),
            UcOp::SendOnly(imm) => Op::SendOnly(SendTail::from_imm(imm)),
            UcOp::WriteFirst(reth) => Op::WriteFirst(reth),
            UcOp::WriteMiddle => Op::WriteMiddle,
            UcOp::WriteLast(imm) => Op::WriteLast(imm),
            UcOp::WriteOnly(reth, imm) => Op::WriteOnly(reth, imm),
        }
    }
}

impl XrcBody {
    /// A request for the shared receive queue `srqn`. `None` when `op` is a response or one of the
    /// later extensions (FLUSH, ATOMIC WRITE), which XRC does not have.
    pub const fn request(srqn: Srqn, op: Op) -> Option<XrcBody> {
        match Opcode::new(Transport::Xrc, op.operation()) {
            Some(opcode) if opcode.info().is_request => Some(XrcBody { srqn: Some(srqn), op }),
            _ => None,
        }
    }

    /// A response. `None` when `op` is a request.
    pub const fn response(op: Op) -> Option<XrcBody> {
        if op.operation().is_response() { Some(XrcBody { srqn: None, op }) } else { None }
    }

    /// The shared receive queue: there for every request, for no response.
    pub const fn srqn(&self) -> Option<Srqn> {
        self.srqn
    }

    /// The operation.
    pub const fn op(&self) -> Op {
        self.op
    }
}

#[inline]
fn read_imm(r: &mut Reader<'_>) -> Option<Imm> {
    r.take().map(|bytes| Imm(*bytes))
}

#[inline]
fn write_imm(imm: Option<Imm>, w: &mut Writer<'_>) {
    if let Some(imm) = imm {
        w.put(imm.0);
    }
}
