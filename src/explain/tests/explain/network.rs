//! Two sides that follow the specification, over a network that does not deliver every packet: whatever
//! it loses, duplicates, delays or damages, the report must not say that either side broke a rule.

use std::collections::VecDeque;

use proptest::prelude::*;
use softrnic_explain::{Kind, Limits, Severity, explain};
use softrnic_wire::*;

use super::common::{A, B, Capture, MTU};
use super::text;

/// An operation of the requester.
#[derive(Clone, Copy, Debug)]
enum Want {
    Send(usize),
    Read(u32),
    Add,
}

/// One request packet, by its PSN's distance from the first.
#[derive(Clone, Copy, Debug)]
struct Request {
    psn: u32,
    /// Number of PSNs.
    span: u32,
    op: Op,
    len: usize,
    ends: bool,
}

const FIRST: u32 = 0xFF_FF00;
const TIMER_US: u64 = 8_000;

fn requests(wants: &[Want]) -> Vec<Request> {
    let mut list = Vec::new();
    let mut psn = 0;
    for want in wants {
        match *want {
            Want::Send(len) => {
                let packets = len.div_ceil(MTU).max(1);
                for i in 0..packets {
                    let op = match (i, i + 1 == packets) {
                        (0, true) => Op::SendOnly(SendTail::Plain),
                        (0, false) => Op::SendFirst,
                        (_, false) => Op::SendMiddle,
                        (_, true) => Op::SendLast(SendTail::Plain),
                    };
                    let len = (len - i * MTU).min(MTU);
                    list.push(Request { psn, span: 1, op, len, ends: i + 1 == packets });
                    psn += 1;
                }
            }
            Want::Read(len) => {
                let span = len.div_ceil(MTU as u32).max(1);
                let reth = Reth { va: 0x1000, rkey: Rkey(7), dma_len: len };
                list.push(Request { psn, span, op: Op::ReadRequest(reth), len: 0, ends: true });
                psn += span;
            }
            Want::Add => {
                let atomic = AtomicEth { va: 0x2000, rkey: Rkey(7), swap_or_add: 1, compare: 0 };
                list.push(Request { psn, span: 1, op: Op::FetchAdd(atomic), len: 0, ends: true });
                psn += 1;
            }
        }
    }
    list
}

/// The fate of a packet, between the side that sends it, the capture, and the other side.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    LostBefore,
    LostBehind,
    Damaged,
    Doubled,
}

struct World {
    capture: Capture,
    fates: VecDeque<Fate>,
    requests: Vec<Request>,
    /// Next request to send, and how far answers have come.
    next: usize,
    acked: u32,
    /// READ responses that the oldest READ has received.
    expected: u32,
    msn: u32,
    nak_out: bool,
    counter: u64,
    replies: Vec<(u32, u64)>,
    silence: u32,
}

enum Answer {
    Ack(u32),
    Nak(u32),
    Response { read: Request, i: u32, n: u32, first: u32 },
    Original(u32, u64),
}

impl World {
    fn fate(&mut self) -> Fate {
        self.fates.pop_front().unwrap_or(Fate::Arrives)
    }

    /// Puts a packet on the wire; true when it arrives, 2 when twice.
    fn carry(&mut self, from_a: bool, psn: u32, op: Op, ack: bool, len: usize) -> u32 {
        let (from, to) = if from_a { (A, B) } else { (B, A) };
        let fate = self.fate();
        if let Fate::LostBefore = fate {
            self.capture.wait_us(10);
            return 0;
        }
        let number = self.capture.rc(from, to, (FIRST + psn) & 0xFF_FFFF, op, ack, len);
        match fate {
            Fate::LostBehind => 0,
            Fate::Damaged => {
                self.capture.corrupt_last();
                0
            }
            Fate::Doubled => {
                self.capture.repeat(number);
                2
            }
            _ => 1,
        }
    }

    fn run(&mut self) {
        let end = self.requests.last().map_or(0, |r| r.psn + r.span);
        while self.acked < end && self.silence < 40 {
            let before = self.acked;
            let mut answers = Vec::new();
            for _ in 0..4 {
                let Some(request) = self.requests.get(self.next).copied() else { break };
                self.next += 1;
                // A repeated READ starts where its responses stopped.
                let (psn, op) = match request.op {
                    Op::ReadRequest(reth) if self.acked > request.psn => {
                        let skipped = (self.acked - request.psn) * MTU as u32;
                        let rest = Reth {
                            va: reth.va + u64::from(skipped),
                            dma_len: reth.dma_len - skipped,
                            ..reth
                        };
                        (self.acked, Op::ReadRequest(rest))
                    }
                    op => (request.psn, op),
                };
                for _ in 0..self.carry(true, psn, op, request.ends, request.len) {
                    self.respond(request, psn, &mut answers);
                }
            }
            for answer in answers {
                self.answer(answer);
            }
            if self.acked == before {
                self.silence += 1;
                self.capture.wait_us(TIMER_US);
                self.go_back();
            } else {
                self.silence = 0;
            }
        }
    }

    fn go_back(&mut self) {
        self.next =
            self.requests.iter().position(|r| r.psn + r.span > self.acked).unwrap_or(self.requests.len());
    }

    /// The responder receives a request.
    fn respond(&mut self, request: Request, psn: u32, answers: &mut Vec<Answer>) {
        if psn > self.expected {
            if !self.nak_out {
                self.nak_out = true;
                answers.push(Answer::Nak(self.expected));
            }
            return;
        }
        let new = psn == self.expected;
        if new {
            self.nak_out = false;
            self.expected = request.psn + request.span;
            self.msn += u32::from(request.ends);
        }
        match request.op {
            Op::ReadRequest(_) => {
                for i in psn - request.psn..request.span {
                    answers.push(Answer::Response { read: request, i, n: request.span, first: psn });
                }
            }
            Op::FetchAdd(_) if new => {
                self.counter += 1;
                self.replies.push((psn, self.counter));
                answers.push(Answer::Original(psn, self.counter));
            }
            Op::FetchAdd(_) => {
                let reply = self.replies.iter().find(|(at, _)| *at == psn).unwrap().1;
                answers.push(Answer::Original(psn, reply));
            }
            _ if request.ends && new => answers.push(Answer::Ack(psn)),
            // A duplicate SEND is acknowledged with the newest PSN that a plain ACK can carry.
            _ if request.ends => answers.push(Answer::Ack(psn)),
            _ => {}
        }
    }

    /// The responder sends an answer, and the requester receives it if it arrives.
    fn answer(&mut self, answer: Answer) {
        let aeth = Aeth::ack(Msn::new(self.msn));
        match answer {
            Answer::Ack(psn) => {
                if self.carry(false, psn, Op::Acknowledge(aeth), false, 0) > 0 {
                    self.accept_up_to(psn + 1);
                }
            }
            Answer::Nak(psn) => {
                let nak = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), ..aeth };
                if self.carry(false, psn, Op::Acknowledge(nak), false, 0) > 0 && psn >= self.acked {
                    self.accept_up_to(psn);
                    self.go_back();
                }
            }
            Answer::Original(psn, value) => {
                if self.carry(false, psn, Op::AtomicAcknowledge(aeth, value), false, 0) > 0 {
                    self.accept_up_to(psn);
                    if self.acked == psn {
                        self.acked = psn + 1;
                    }
                }
            }
            Answer::Response { read, i, n, first } => {
                let Op::ReadRequest(reth) = read.op else { return };
                let psn = read.psn + i;
                let len = (reth.dma_len as usize - i as usize * MTU).min(MTU);
                let op = match (psn == first, i + 1 == n) {
                    (true, true) => Op::ReadResponseOnly(aeth),
                    (true, false) => Op::ReadResponseFirst(aeth),
                    (false, true) => Op::ReadResponseLast(aeth),
                    (false, false) => Op::ReadResponseMiddle,
                };
                if self.carry(false, psn, op, false, len) > 0 {
                    self.accept_up_to(read.psn);
                    if self.acked == psn {
                        self.acked = psn + 1;
                    }
                }
            }
        }
    }

    /// Everything before `end` is done, except READs and atomics, which need their own answers.
    fn accept_up_to(&mut self, end: u32) {
        while self.acked < end {
            let Some(request) = self.requests.iter().find(|r| r.psn + r.span > self.acked) else { return };
            if matches!(request.op, Op::ReadRequest(_) | Op::FetchAdd(_)) {
                return;
            }
            self.acked = request.psn + request.span;
        }
    }
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        4 => (0usize..4000).prop_map(Want::Send),
        2 => (1u32..5000).prop_map(Want::Read),
        1 => Just(Want::Add),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        20 => Just(Fate::Arrives),
        1 => Just(Fate::LostBefore),
        1 => Just(Fate::LostBehind),
        1 => Just(Fate::Damaged),
        1 => Just(Fate::Doubled),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn peers_are_not_blamed_for_network_faults(
        wants in proptest::collection::vec(want(), 1..40),
        fates in proptest::collection::vec(fate(), 0..200),
        counting_ids in any::<bool>(),
        history in prop_oneof![Just(2usize), Just(8192)],
    ) {
        let clean = fates.iter().all(|f| matches!(f, Fate::Arrives));
        let mut world = World {
            capture: Capture { counting_ids, ..Capture::new() },
            fates: fates.into(),
            requests: requests(&wants),
            next: 0,
            acked: 0,
            expected: 0,
            msn: 0,
            nak_out: false,
            counter: 0,
            replies: Vec::new(),
            silence: 0,
        };
        world.run();
        let file = world.capture.pcap();
        let mut reader = softrnic_inspect::capture::Reader::new(&file[..]).unwrap();
        let report = explain(&mut reader, Limits { history, ..Limits::default() }, |_| {});
        let blamed = report.findings.iter().find(|f| f.severity() == Severity::Error && f.kind != Kind::RetryExhausted);
        prop_assert!(blamed.is_none(), "{:?}\n{}", blamed, text(&report));
        if clean {
            prop_assert_eq!(report.faults().count(), 0, "{}", text(&report));
        }
    }
}
