//! The side that drives traffic and checks all of it: writes are read back, sends come back as echoes, atomics
//! return what was there before.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use softrnic_link::Rng;
use softrnic_nic::verbs::{Cqe, CqeExtra, Status, WorkRequest};

use crate::Problem;
use crate::end::End;
use crate::message::{Finished, Operation, Plan};
use crate::wait::Waiting;

/// Drives until stopped or until the plan's messages are done; then waits for all that is under way.
pub fn run(end: &End, plan: &Plan, stop: &AtomicBool) -> Result<Finished, Problem> {
    if plan.operations.is_empty() {
        return Err("nothing to do".into());
    }
    let mut driver = Driver::new(end, plan);
    let mut waiting = Waiting::new([&end.send_cq, &end.recv_cq], &end.channel, plan.events);
    let mut found = Vec::new();
    for place in 0..end.layout.receives() {
        driver.post_receive(place)?;
    }
    loop {
        let ended = stop.load(Ordering::Relaxed) || plan.messages.is_some_and(|most| driver.started >= most);
        if !ended && driver.finished.error.is_none() {
            driver.start()?;
        }
        if driver.is_quiet() && ended || driver.is_dead() {
            return Ok(driver.finished);
        }
        driver.probe()?;
        waiting.take(&mut found).map_err(|problem| format!("{problem}: {}", driver.describe()))?;
        for cqe in found.drain(..) {
            if cqe.wr_id != PROBE {
                waiting.progress();
                driver.heard = Instant::now();
            }
            driver.take(&cqe)?;
        }
    }
}

/// After waiting so long for echoes alone, the peer is asked whether it is there: nothing else would tell.
const SILENCE: Duration = Duration::from_millis(100);

/// The work request that asks.
const PROBE: u64 = u64::MAX;

struct Driver<'a> {
    end: &'a End,
    operations: &'a [Operation],
    most: u64,
    rng: Rng,
    slots: Vec<Slot>,
    /// The echoes that are to come, in this order: slot, bytes, immediate data.
    echoes: VecDeque<Echo>,
    started: u64,
    /// Send work requests that have not completed.
    outstanding: u64,
    /// Receive work requests that have not completed.
    receives: u64,
    /// When something came from the peer, or it was last asked.
    heard: Instant,
    finished: Finished,
}

/// What a slot is about.
struct Slot {
    /// What the peer's target must hold.
    mirror: Vec<u8>,
    /// What the peer's word must hold.
    word: u64,
    /// Completions and echoes that are to come.
    awaited: u32,
    operation: Operation,
    at: usize,
    length: usize,
    /// What the word was before the atomic that is under way.
    before: u64,
}

struct Echo {
    slot: usize,
    length: usize,
    immediate: Option<u32>,
}

/// Bytes around a write that are read back with it.
const MARGIN: usize = 32;

impl<'a> Driver<'a> {
    fn new(end: &'a End, plan: &'a Plan) -> Driver<'a> {
        let slot = || Slot {
            mirror: vec![0; end.layout.size],
            word: 0,
            awaited: 0,
            operation: Operation::Send,
            at: 0,
            length: 0,
            before: 0,
        };
        Driver {
            end,
            operations: &plan.operations,
            most: plan.messages.unwrap_or(u64::MAX),
            rng: Rng::new(plan.seed),
            slots: (0..end.layout.slots).map(|_| slot()).collect(),
            echoes: VecDeque::new(),
            started: 0,
            outstanding: 0,
            receives: 0,
            heard: Instant::now(),
            finished: Finished::default(),
        }
    }

    /// Starts a message on each slot that has none.
    fn start(&mut self) -> Result<(), Problem> {
        for slot in 0..self.slots.len() {
            if self.slots[slot].awaited == 0 && self.started < self.most {
                let operation = self.operations[self.below(self.operations.len())];
                self.slots[slot].operation = operation;
                self.started += 1;
                match operation {
                    Operation::Send | Operation::SendImm => self.send(slot)?,
                    Operation::Write | Operation::WriteImm => self.write(slot)?,
                    Operation::Read => self.read(slot)?,
                    Operation::FetchAdd | Operation::CompareSwap => self.atomic(slot)?,
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, slot: usize) -> Result<(), Problem> {
        let length = self.length();
        let source = self.end.layout.source(slot);
        let bytes = self.bytes(length);
        self.end.memory.write(source, &bytes)?;
        let immediate = (self.slots[slot].operation == Operation::SendImm).then(|| self.rng.next() as u32);
        let mut request = match immediate {
            Some(immediate) => WorkRequest::send_imm(immediate),
            None => WorkRequest::send(),
        };
        if length <= 32 {
            request = request.inline(&bytes);
        } else {
            // In two pieces, so that lists are there as well.
            let cut = self.below(length);
            request = request
                .sge(self.end.memory.sge(source, cut))
                .sge(self.end.memory.sge(source + cut, length - cut));
        }
        (self.slots[slot].at, self.slots[slot].length) = (0, length);
        self.echoes.push_back(Echo { slot, length, immediate });
        self.slots[slot].awaited = 2;
        self.post(request, slot)
    }

    /// Writes a part of the peer's target, and reads it back with what is around it.
    fn write(&mut self, slot: usize) -> Result<(), Problem> {
        let length = self.length();
        let at = self.below(self.end.layout.size - length + 1);
        let bytes = self.bytes(length);
        let source = self.end.layout.source(slot);
        self.end.memory.write(source, &bytes)?;
        self.slots[slot].mirror[at..at + length].copy_from_slice(&bytes);
        let (va, rkey) = self.end.remote(self.end.layout.target(slot) + at)?;
        let immediate = (self.slots[slot].operation == Operation::WriteImm).then(|| self.rng.next() as u32);
        let request = match immediate {
            Some(immediate) => WorkRequest::write_imm(va, rkey, immediate),
            None => WorkRequest::write(va, rkey),
        };
        self.slots[slot].awaited = 2;
        if immediate.is_some() {
            self.echoes.push_back(Echo { slot, length: 0, immediate });
            self.slots[slot].awaited = 3;
        }
        self.post(request.sge(self.end.memory.sge(source, length)), slot)?;
        let from = at.saturating_sub(MARGIN);
        let to = (at + length + MARGIN).min(self.end.layout.size);
        self.read_range(slot, from, to - from)
    }

    fn read(&mut self, slot: usize) -> Result<(), Problem> {
        let length = self.length();
        let at = self.below(self.end.layout.size - length + 1);
        self.slots[slot].awaited = 1;
        self.read_range(slot, at, length)
    }

    fn read_range(&mut self, slot: usize, at: usize, length: usize) -> Result<(), Problem> {
        let back = self.end.layout.read_back(slot);
        // Not what was read before.
        self.end.memory.write(back, &vec![0xEE; length])?;
        (self.slots[slot].at, self.slots[slot].length) = (at, length);
        let (va, rkey) = self.end.remote(self.end.layout.target(slot) + at)?;
        self.post(WorkRequest::read(va, rkey).sge(self.end.memory.sge(back, length)), slot)
    }

    fn atomic(&mut self, slot: usize) -> Result<(), Problem> {
        let (va, rkey) = self.end.remote(self.end.layout.word(slot))?;
        let operand = self.rng.next();
        let word = self.slots[slot].word;
        self.slots[slot].before = word;
        let request = if self.slots[slot].operation == Operation::FetchAdd {
            self.slots[slot].word = word.wrapping_add(operand);
            WorkRequest::fetch_add(va, rkey, operand)
        } else if self.below(4) == 0 {
            WorkRequest::compare_swap(va, rkey, !word, operand)
        } else {
            self.slots[slot].word = operand;
            WorkRequest::compare_swap(va, rkey, word, operand)
        };
        self.slots[slot].awaited = 1;
        let back = self.end.layout.read_back(slot);
        self.end.memory.write(back, &[0xEE; 8])?;
        self.post(request.sge(self.end.memory.sge(back, 8)), slot)
    }

    fn post(&mut self, request: WorkRequest, slot: usize) -> Result<(), Problem> {
        self.end.qp.post(request.id(slot as u64))?;
        self.outstanding += 1;
        Ok(())
    }

    /// Writes nothing, which a peer that is there acknowledges; if it was silent for long.
    fn probe(&mut self) -> Result<(), Problem> {
        if self.outstanding > 0 || self.finished.error.is_some() || self.heard.elapsed() < SILENCE {
            return Ok(());
        }
        self.heard = Instant::now();
        let (va, rkey) = self.end.remote(self.end.layout.target(0))?;
        self.end.qp.post(WorkRequest::write(va, rkey).id(PROBE))?;
        self.outstanding += 1;
        Ok(())
    }

    fn post_receive(&mut self, place: usize) -> Result<(), Problem> {
        self.end.post_receive(place)?;
        self.receives += 1;
        Ok(())
    }

    fn take(&mut self, cqe: &Cqe) -> Result<(), Problem> {
        let is_receive = cqe.opcode.is_receive();
        let counted = if is_receive { &mut self.receives } else { &mut self.outstanding };
        *counted = counted.checked_sub(1).ok_or("a completion of nothing")?;
        match cqe.status {
            Status::Success => {}
            Status::Flushed => {
                self.finished.flushed += 1;
                return Ok(());
            }
            status if self.finished.error.is_none() => {
                self.finished.error = Some(format!("{status:?}"));
                return Ok(());
            }
            status => return Err(format!("a second completion in error: {status:?}").into()),
        }
        if cqe.wr_id == PROBE {
            return Ok(());
        }
        let slot = if is_receive { self.take_echo(cqe)? } else { cqe.wr_id as usize };
        self.slots[slot].awaited -= 1;
        if self.slots[slot].awaited == 0 && self.finished.error.is_none() {
            self.check(slot)?;
        }
        Ok(())
    }

    fn take_echo(&mut self, cqe: &Cqe) -> Result<usize, Problem> {
        let echo = self.echoes.pop_front().ok_or("an echo of nothing")?;
        let immediate = match cqe.extra {
            CqeExtra::Imm(imm) => Some(u32::from_be_bytes(imm.0)),
            _ => None,
        };
        let place = cqe.wr_id as usize;
        if (cqe.byte_len as usize, immediate) != (echo.length, echo.immediate) {
            let came = (cqe.byte_len, immediate);
            return Err(format!("an echo of {:?} came as {came:?}", (echo.length, echo.immediate)).into());
        }
        let mut came = vec![0; echo.length];
        let mut sent = vec![0; echo.length];
        self.end.memory.read(self.end.layout.receive(place), &mut came)?;
        self.end.memory.read(self.end.layout.source(echo.slot), &mut sent)?;
        compare(&sent, &came, "an echo")?;
        self.post_receive(place)?;
        Ok(echo.slot)
    }

    /// All of a message has arrived.
    fn check(&mut self, slot: usize) -> Result<(), Problem> {
        let back = self.end.layout.read_back(slot);
        let Slot { operation, at, length, before, ref mirror, .. } = self.slots[slot];
        match operation {
            Operation::Send | Operation::SendImm => {}
            Operation::Write | Operation::WriteImm | Operation::Read => {
                let mut found = vec![0; length];
                self.end.memory.read(back, &mut found)?;
                compare(&mirror[at..at + length], &found, "the peer's memory")?;
            }
            Operation::FetchAdd | Operation::CompareSwap => {
                let mut found = [0; 8];
                self.end.memory.read(back, &mut found)?;
                compare(&before.to_ne_bytes(), &found, "the peer's word")?;
            }
        }
        *self.finished.messages.entry(operation).or_default() += 1;
        self.finished.bytes += length as u64;
        Ok(())
    }

    /// What is under way, for people.
    fn describe(&self) -> String {
        let slots: Vec<_> =
            self.slots.iter().map(|slot| (slot.operation, slot.length, slot.awaited)).collect();
        let Driver { started, outstanding, receives, echoes, .. } = self;
        format!(
            "{started} started, {outstanding} and {receives} outstanding, {} echoes to come, {slots:?}",
            echoes.len()
        )
    }

    /// Nothing is under way.
    fn is_quiet(&self) -> bool {
        self.finished.error.is_none()
            && self.outstanding == 0
            && self.slots.iter().all(|slot| slot.awaited == 0)
    }

    /// The QP has failed, and every work request has completed.
    fn is_dead(&self) -> bool {
        self.finished.error.is_some() && self.outstanding == 0 && self.receives == 0
    }

    /// Where mistakes hide, or anything.
    fn length(&mut self) -> usize {
        let mtu = self.end.mtu();
        let edges = [0, 1, 7, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5];
        let length = match self.below(16) {
            edge @ 0..8 => edges[edge],
            8..12 => self.below(256),
            _ => self.below(self.end.layout.size + 1),
        };
        length.min(self.end.layout.size)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.rng.fill(&mut bytes);
        bytes
    }
}

fn compare(expected: &[u8], found: &[u8], what: &str) -> Result<(), Problem> {
    let length = expected.len();
    match expected.iter().zip(found).position(|(expected, found)| expected != found) {
        None => Ok(()),
        Some(at) => {
            let wrong = expected.iter().zip(found).filter(|(expected, found)| expected != found).count();
            let (expected, found) = (expected[at], found[at]);
            Err(format!(
                "{wrong} wrong bytes in {what}: byte {at} of {length} is {found:#04x}, not {expected:#04x}"
            )
            .into())
        }
    }
}
