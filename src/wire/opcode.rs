//! Opcodes as data: what each says about its packet.

use crate::opcode_table::{HEADERS_LEN, INDEX, OPCODES};

/// The transport service in the top three bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Reliable datagram; obsolete, recognised so that it can be named, never parsed.
    Rd = 0x40,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Congestion notification.
    Cnp = 0x80,
    /// Extended reliable connection.
    Xrc = 0xA0,
    /// Of the manufacturer's range: what SoftRNICs send to each other (docs/wire-extensions.md).
    SoftRnic = 0xE0,
}

impl Transport {
    /// The transport an opcode byte names, `None` for the rest of the manufacturer's range.
    pub const fn of_byte(byte: u8) -> Option<Transport> {
        match byte >> 5 {
            0 => Some(Transport::Rc),
            1 => Some(Transport::Uc),
            2 => Some(Transport::Rd),
            3 => Some(Transport::Ud),
            4 => Some(Transport::Cnp),
            5 => Some(Transport::Xrc),
            7 => Some(Transport::SoftRnic),
            _ => None,
        }
    }
}

/// What a packet does. Except for `Cnp`, the value is the low five bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0A,
    WriteOnlyImm = 0x0B,
    ReadRequest = 0x0C,
    ReadResponseFirst = 0x0D,
    ReadResponseMiddle = 0x0E,
    ReadResponseLast = 0x0F,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInv = 0x16,
    SendOnlyInv = 0x17,
    Flush = 0x1C,
    AtomicWrite = 0x1D,
    SelectiveAcknowledge = 0x1F,
    Cnp = 0xFF,
}

impl Operation {
    /// Whether a requester sends it.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self, Operation::Cnp)
    }

    /// Which payload lengths its packets may have, whatever the transport service. Nothing else decides that.
    #[inline]
    pub const fn payload(self) -> PayloadRule {
        use Operation::*;
        match self {
            SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle => {
                PayloadRule::FullMtu
            }
            SendLast | SendLastImm | SendLastInv | WriteLast | WriteLastImm | ReadResponseLast => {
                PayloadRule::NonEmptyUpToMtu
            }
            SendOnly | SendOnlyImm | SendOnlyInv | WriteOnly | WriteOnlyImm | ReadResponseOnly => {
                PayloadRule::UpToMtu
            }
            AtomicWrite => PayloadRule::Eight,
            Cnp => PayloadRule::Zeros16,
            SelectiveAcknowledge => PayloadRule::Bitmap,
            ReadRequest | Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd | Flush => {
                PayloadRule::None
            }
        }
    }

    /// Whether a responder sends it.
    #[inline]
    pub const fn is_response(self) -> bool {
        use Operation::*;
        matches!(
            self,
            ReadResponseFirst
                | ReadResponseMiddle
                | ReadResponseLast
                | ReadResponseOnly
                | Acknowledge
                | AtomicAcknowledge
                | SelectiveAcknowledge
        )
    }

    /// Whether it is the first packet of a request message.
    #[inline]
    pub const fn starts_message(self) -> bool {
        use Operation::*;
        self.is_request()
            && !matches!(
                self,
                SendMiddle | SendLast | SendLastImm | SendLastInv | WriteMiddle | WriteLast | WriteLastImm
            )
    }

    /// Whether it is the last packet of a request message.
    #[inline]
    pub const fn ends_message(self) -> bool {
        use Operation::*;
        self.is_request() && !matches!(self, SendFirst | SendMiddle | WriteFirst | WriteMiddle)
    }

    /// Whether it is part of a SEND.
    #[inline]
    pub const fn is_send(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendLastInv
                | SendOnly
                | SendOnlyImm
                | SendOnlyInv
        )
    }

    /// Whether it is part of an RDMA WRITE.
    #[inline]
    pub const fn is_write(self) -> bool {
        use Operation::*;
        matches!(self, WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm)
    }

    /// Whether it is part of the response to an RDMA READ (or answers FLUSH or ATOMIC WRITE).
    #[inline]
    pub const fn is_read_response(self) -> bool {
        use Operation::*;
        matches!(self, ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly)
    }

    /// Whether it is an atomic that returns the old value.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap | Operation::FetchAdd)
    }

    /// Whether it carries immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        use Operation::*;
        matches!(self, SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm)
    }

    /// Bytes of BTH and extended headers when sent over `transport`, `None` when that transport
    /// has no such operation.
    pub const fn headers_len(self, transport: Transport) -> Option<usize> {
        match Opcode::new(transport, self) {
            Some(opcode) => Some(opcode.info().headers_len),
            None => None,
        }
    }
}

/// A header that can follow the Ethernet, IP and UDP headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Header {
    /// Base transport header; always first, so the table does not list it.
    Bth,
    /// XRC extended header: the shared receive queue.
    XrcEth,
    /// Datagram extended header.
    Deth,
    /// RDMA extended header.
    Reth,
    /// ACK extended header.
    Aeth,
    /// Atomic extended header.
    AtomicEth,
    /// Atomic ACK extended header: the old value.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// Invalidate extended header.
    Ieth,
    /// Flush extended header.
    Feth,
}

impl Header {
    /// Size in bytes.
    pub const fn size(self) -> usize {
        match self {
            Header::Bth => 12,
            Header::XrcEth | Header::Aeth | Header::ImmDt | Header::Ieth | Header::Feth => 4,
            Header::Deth | Header::AtomicAckEth => 8,
            Header::Reth => 16,
            Header::AtomicEth => 28,
        }
    }
}

/// Which payload lengths an opcode allows (IBTA 9.7.4.1.6 and the opcode tables of chapter 9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PayloadRule {
    /// No payload.
    None,
    /// Exactly the path MTU.
    FullMtu,
    /// From nothing to the path MTU.
    UpToMtu,
    /// From one byte to the path MTU.
    NonEmptyUpToMtu,
    /// Exactly eight bytes (ATOMIC WRITE).
    Eight,
    /// Sixteen reserved bytes (CNP).
    Zeros16,
    /// One bit for each packet of a reorder window, from none to all of them.
    Bitmap,
}

impl PayloadRule {
    /// The shortest and the longest payload in bytes, pad not counted, at a path MTU of `mtu` bytes.
    #[inline]
    pub const fn lengths(self, mtu: usize) -> (usize, usize) {
        match self {
            PayloadRule::None => (0, 0),
            PayloadRule::FullMtu => (mtu, mtu),
            PayloadRule::UpToMtu => (0, mtu),
            PayloadRule::NonEmptyUpToMtu => (1, mtu),
            PayloadRule::Eight => (8, 8),
            PayloadRule::Zeros16 => (16, 16),
            PayloadRule::Bitmap => (0, crate::REORDER_WINDOW / 8),
        }
    }

    /// Whether a payload of `len` bytes, pad not counted, is legal at a path MTU of `mtu` bytes.
    #[inline]
    pub const fn allows(self, len: usize, mtu: usize) -> bool {
        let (shortest, longest) = self.lengths(mtu);
        shortest <= len && len <= longest
    }
}

/// One row of [`OPCODES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeInfo {
    /// The opcode.
    pub opcode: Opcode,
    /// Transport and operation as the specification writes them.
    pub name: &'static str,
    /// Transport service.
    pub transport: Transport,
    /// What the packet does.
    pub operation: Operation,
    /// Extended headers after the BTH, in wire order.
    pub headers: &'static [Header],
    /// Bytes of BTH and extended headers.
    pub headers_len: usize,
    /// Legal payload lengths.
    pub payload: PayloadRule,
    /// First packet of a request message.
    pub starts: bool,
    /// Last packet of a request message.
    pub ends: bool,
    /// Sent by a requester.
    pub is_request: bool,
    /// Uses up a receive work request at the responder: on the first packet of a SEND, on the last
    /// packet of a WRITE with immediate.
    pub consumes_rq_wqe: bool,
}

/// A defined opcode. Bytes that none of these transports defines have no value of this type.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

impl Opcode {
    /// The RoCEv2 congestion notification (IBTA A17.9.3).
    pub const CNP: Opcode = Opcode(0x81);

    /// The opcode `byte` stands for, `None` when reserved, RD or manufacturer specific.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Opcode> {
        if (INDEX[byte as usize] as usize) < OPCODES.len() { Some(Opcode(byte)) } else { None }
    }

    /// The opcode of `operation` over `transport`, `None` when that combination does not exist.
    #[inline]
    pub const fn new(transport: Transport, operation: Operation) -> Option<Opcode> {
        match (transport, operation) {
            (Transport::Cnp, Operation::Cnp) => Some(Opcode::CNP),
            (Transport::Cnp, _) | (_, Operation::Cnp) => None,
            _ => Opcode::from_byte(transport as u8 | operation as u8),
        }
    }

    /// For callers that know the combination to exist: table rows and [`crate::Body`].
    #[inline]
    pub(crate) const fn compose(transport: Transport, operation: Operation) -> Opcode {
        match operation {
            Operation::Cnp => Opcode::CNP,
            _ => Opcode(transport as u8 | operation as u8),
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The table row.
    #[inline]
    pub const fn info(self) -> &'static OpcodeInfo {
        &OPCODES[INDEX[self.0 as usize] as usize]
    }

    /// Bytes of BTH and extended headers.
    #[inline]
    pub const fn headers_len(self) -> usize {
        HEADERS_LEN[self.0 as usize] as usize
    }

    /// Transport service.
    #[inline]
    pub const fn transport(self) -> Transport {
        self.info().transport
    }

    /// What the packet does.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.info().operation
    }

    /// The specification's name, such as `RC SEND First`.
    #[inline]
    pub const fn name(self) -> &'static str {
        self.info().name
    }
}

impl core::fmt::Debug for Opcode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#04x} {}", self.0, self.name())
    }
}

impl core::fmt::Display for Opcode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}
