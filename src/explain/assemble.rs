//! Assembles request packets, in the order of their PSNs, into messages, and checks that the messages make sense.

use softrnic_wire::{Operation, Psn};

use super::finding::{Kind, rules};
use super::stream::{Context, Segment, psn_of};
use super::words;

/// A request message as the capture shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The side that asked: 0 or 1.
    pub requester: usize,
    /// What kind of message.
    pub kind: MessageKind,
    /// First PSN.
    pub first: Psn,
    /// Last PSN; that of the last response for a READ.
    pub last: Psn,
    /// Payload bytes; for a READ the bytes asked for.
    pub bytes: u64,
    /// Record numbers of the first and the last request packet.
    pub packets: (u32, u32),
    /// When its first packet was seen, nanoseconds since 1970.
    pub start_ns: u64,
    /// Record number and time of what acknowledged it.
    pub answer: Option<(u32, u64)>,
    /// Whether the answer carried a later PSN than the message's last: one for several.
    pub coalesced: bool,
    /// Request packets sent more than once.
    pub repeats: u32,
    /// Whether its first and last packet were seen.
    pub whole: bool,
}

/// Kinds of messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum MessageKind {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
}

impl MessageKind {
    fn of(operation: Operation) -> MessageKind {
        match operation {
            op if op.is_send() => MessageKind::Send,
            op if op.is_write() => MessageKind::Write,
            Operation::CompareSwap => MessageKind::CompareSwap,
            Operation::FetchAdd => MessageKind::FetchAdd,
            Operation::Flush => MessageKind::Flush,
            Operation::AtomicWrite => MessageKind::AtomicWrite,
            _ => MessageKind::Read,
        }
    }

    /// As the specification writes it.
    pub const fn name(self) -> &'static str {
        match self {
            MessageKind::Send => "SEND",
            MessageKind::Write => "RDMA WRITE",
            MessageKind::Read => "RDMA READ",
            MessageKind::CompareSwap => "CmpSwap",
            MessageKind::FetchAdd => "FetchAdd",
            MessageKind::Flush => "FLUSH",
            MessageKind::AtomicWrite => "ATOMIC WRITE",
        }
    }
}

/// Messages kept per direction; the rest is counted.
const KEPT: usize = 50_000;

/// The messages of one direction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    pub messages: Vec<Message>,
    /// All of them, kept or not.
    pub count: u64,
    open: Option<Open>,
    /// Whether the last packet was the one before the next: false at the start and after a hole.
    contiguous: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    message: Message,
    /// The length in the RETH.
    announced: Option<u32>,
}

impl Assembler {
    /// The direction's next packet: one that was acknowledged or, at the end of the capture, any.
    pub fn take(&mut self, ctx: &mut Context<'_>, requester: usize, segment: &Segment) {
        let operation = segment.operation;
        self.check_order(ctx, requester, segment);
        let event = ctx.event(segment.first_event);
        let dma_len = ctx.dma_len(&event);
        let continues = self.open.is_some() && !operation.starts_message();
        let mut open = match self.open.take() {
            Some(open) if continues => open,
            abandoned => {
                if let Some(mut open) = abandoned {
                    open.message.whole = false;
                    self.keep(open.message);
                }
                Open {
                    message: Message {
                        requester,
                        kind: MessageKind::of(operation),
                        first: psn_of(segment.first),
                        last: psn_of(segment.last()),
                        bytes: 0,
                        packets: (event.number, event.number),
                        start_ns: event.time_ns,
                        answer: None,
                        coalesced: false,
                        repeats: 0,
                        whole: operation.starts_message(),
                    },
                    announced: dma_len.filter(|_| operation.is_write()),
                }
            }
        };
        let message = &mut open.message;
        message.last = psn_of(segment.last());
        message.packets.1 = event.number;
        message.bytes += match (message.kind, dma_len) {
            (MessageKind::Read | MessageKind::Flush, Some(len)) => len.into(),
            (MessageKind::CompareSwap | MessageKind::FetchAdd, _) => 8,
            _ => event.len.into(),
        };
        message.repeats += segment.sends.saturating_sub(1);
        if operation.ends_message() {
            if let Some(by) = segment.answered_by {
                let answer = ctx.event(by);
                message.answer = Some((answer.number, answer.time_ns));
                message.coalesced = answer.psn() != message.last;
            }
            let message = *message;
            self.check_sum(ctx, requester, segment, &open);
            self.keep(message);
        } else {
            self.open = Some(open);
        }
        self.contiguous = true;
    }

    /// Packets are missing from here on.
    pub fn interrupt(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.message.whole = false;
            self.keep(open.message);
        }
        self.contiguous = false;
    }

    /// The capture is over.
    pub fn finish(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.message.whole = false;
            self.keep(open.message);
        }
    }

    fn keep(&mut self, message: Message) {
        self.count += 1;
        if self.messages.len() < KEPT {
            self.messages.push(message);
        }
    }

    fn check_order(&self, ctx: &mut Context<'_>, requester: usize, segment: &Segment) {
        let operation = segment.operation;
        let problem = match &self.open {
            Some(open) if operation.starts_message() => {
                format!(
                    "begins inside the {} that began with packet {}",
                    open.message.kind.name(),
                    open.message.packets.0
                )
            }
            Some(open) if open.message.kind != MessageKind::of(operation) => {
                format!(
                    "goes on inside the {} that began with packet {}",
                    open.message.kind.name(),
                    open.message.packets.0
                )
            }
            None if !operation.starts_message() && self.contiguous => {
                "continues a message, but none was begun".to_owned()
            }
            _ => return,
        };
        let psn = psn_of(segment.first);
        let text = format!("the {} of {} {problem}", words::operation(operation), ctx.names[requester]);
        ctx.report(Kind::OpcodeSequence, Some(rules::OPCODE_ORDER), (psn, psn), &[segment.first_event], text);
    }

    fn check_sum(&self, ctx: &mut Context<'_>, requester: usize, segment: &Segment, open: &Open) {
        let message = &open.message;
        let Some(announced) = open.announced else { return };
        if message.whole && u64::from(announced) != message.bytes {
            let text = format!(
                "the RDMA WRITE of {} announced {announced} bytes and carried {}",
                ctx.names[requester], message.bytes
            );
            let psns = (message.first, message.last);
            ctx.report(Kind::MessageLength, Some(rules::MESSAGE_LENGTH), psns, &[segment.first_event], text);
        }
    }
}
