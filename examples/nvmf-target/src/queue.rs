//! A queue of a controller: a connection, and a slot of memory for each command under way.

use std::error::Error;
use std::sync::Arc;

use softrnic_cma::{ConnParams, Id};
use softrnic_nic::verbs::{
    Access, CompletionChannel, Cq, Cqe, Mr, Pd, Qp, QpOptions, QpState, Rkey, Status as WcStatus, WcOpcode,
    WorkRequest,
};

use crate::command::{Command, Data, ENTRY, Outcome, RESPONSE, Status};
use crate::identify::{self, IDENTIFY, IN_CAPSULE, MOST_DATA, MOST_ENTRIES, VERSION};
use crate::subsystem::{Controller, Subsystem};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of a slot: a capsule, data, and a response.
const CAPSULE: usize = ENTRY + IN_CAPSULE;
const SLOT: usize = CAPSULE + MOST_DATA + RESPONSE;
/// Bytes of the data of Connect.
const CONNECT: usize = 1024;
/// Completions that are taken at once.
const BATCH: usize = 16;

// Offsets of properties (Base 2.0, 3.1.3).
const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1C;

pub struct Queue {
    pub id: Id,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    memory: Mr,
    slots: Vec<Slot>,
    subsystem: Arc<Subsystem>,
    /// 0 is the admin queue.
    number: u16,
    /// Set by Connect.
    controller: Option<Arc<Controller>>,
    /// Entries of the host's submission queue, and how many of them were read, modulo their number.
    entries: u16,
    head: u16,
}

/// What is known of a command until its response has left.
#[derive(Clone, Copy, Default)]
struct Slot {
    identifier: u16,
    /// The key that the response invalidates.
    invalidate: Option<Rkey>,
    /// What is to be done with the data that is being fetched.
    purpose: Purpose,
}

#[derive(Clone, Copy, Default)]
enum Purpose {
    #[default]
    Connect,
    Write {
        offset: u64,
    },
}

/// How a command goes on.
enum Step {
    Respond(Outcome),
    /// These bytes go to the host before the response.
    Return(Vec<u8>),
    /// So many bytes come from the host first.
    Fetch(usize, Purpose),
    /// The command stays open: it asks for an event, and there is none.
    Keep,
}

impl From<Status> for Step {
    fn from(status: Status) -> Step {
        Step::Respond(status.into())
    }
}

impl Queue {
    /// The queue that a host asks for, ready to receive before the request is accepted. `reads` is how many READs the host
    /// executes at once.
    pub fn new(
        id: Id,
        pd: &Arc<Pd>,
        channel: &Arc<CompletionChannel>,
        subsystem: &Arc<Subsystem>,
        request: Request,
        reads: u8,
    ) -> Result<Queue> {
        // A host sends the next command when it has the response, before we know that it has it.
        let slots = 2 * usize::from(request.entries);
        let cq = pd.context().create_cq(4 * slots, Some(channel))?;
        let options = QpOptions {
            // A READ or WRITE, and the response.
            max_send_wr: 2 * slots,
            max_recv_wr: slots,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            ..QpOptions::default()
        };
        let qp = pd.create_rc_qp(&cq, &cq, options)?;
        let memory = pd.register(vec![0; slots * SLOT], Access::LOCAL_WRITE)?;
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let (mut attributes, mask) = id.qp_attributes(state)?;
            attributes.transport.max_rd_atomic = reads;
            qp.modify(mask, &attributes)?;
        }
        let queue = Queue {
            id,
            qp,
            cq,
            memory,
            slots: vec![Slot::default(); slots],
            subsystem: subsystem.clone(),
            number: request.number,
            controller: None,
            entries: request.entries,
            head: 0,
        };
        queue.cq.arm(false);
        (0..slots).try_for_each(|slot| queue.receive(slot))?;
        Ok(queue)
    }

    /// What its completion events name.
    pub fn token(&self) -> u64 {
        self.cq.token()
    }

    pub fn accept(&self, reads: u8) -> Result<()> {
        let private = [&[0, 0][..], &self.entries.to_le_bytes(), &[0; 28]].concat();
        let params = ConnParams {
            qpn: self.qp.qpn(),
            private,
            initiator_depth: reads,
            rnr_retry: 7,
            flow_control: true,
            ..ConnParams::default()
        };
        Ok(self.id.accept(0, &params)?)
    }

    /// Does what has come since the last event.
    pub fn work(&mut self) -> Result<()> {
        self.cq.arm(false);
        let mut found = Vec::with_capacity(BATCH);
        while self.cq.poll_with(BATCH, |cqe| found.push(cqe)) > 0 {
            for cqe in found.drain(..) {
                self.complete(&cqe)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, cqe: &Cqe) -> Result<()> {
        let slot = cqe.wr_id as usize;
        match (cqe.status, cqe.opcode) {
            (WcStatus::Success, WcOpcode::Recv) => self.begin(slot, cqe.byte_len as usize),
            (WcStatus::Success, WcOpcode::RdmaRead) => {
                let mut bytes = vec![0; cqe.byte_len as usize];
                self.memory.read(data(slot), &mut bytes)?;
                self.finish(slot, &bytes)
            }
            // Not before: until then the response may have to be sent again.
            (WcStatus::Success, _) => self.receive(slot),
            (WcStatus::Flushed, _) => Ok(()),
            (status, _) => Err(format!("a request failed: {status:?}").into()),
        }
    }

    fn receive(&self, slot: usize) -> Result<()> {
        Ok(self.qp.post_recv(slot as u64, &[self.memory.sge(slot * SLOT, CAPSULE)])?)
    }

    fn begin(&mut self, slot: usize, length: usize) -> Result<()> {
        if length < ENTRY {
            return Err(format!("a capsule of {length} bytes is too short for a command").into());
        }
        let mut entry = [0; ENTRY];
        self.memory.read(slot * SLOT, &mut entry)?;
        let command = Command::new(entry);
        self.head = (self.head + 1) % self.entries;
        self.slots[slot] = Slot { identifier: command.identifier(), ..Slot::default() };
        match self.execute(&command) {
            Step::Respond(outcome) => self.respond(slot, outcome),
            Step::Keep => Ok(()),
            Step::Return(bytes) => match command.data() {
                Some(Data::Keyed { address, length, key, invalidate }) if length >= bytes.len() => {
                    self.invalidate(slot, key, invalidate);
                    self.memory.write(data(slot), &bytes)?;
                    let request =
                        WorkRequest::write(address, Rkey(key)).sge(self.memory.sge(data(slot), bytes.len()));
                    self.qp.post(request.id(slot as u64).unsignaled())?;
                    self.respond(slot, Outcome::SUCCESS)
                }
                _ => self.respond(slot, Status::INVALID_FIELD.into()),
            },
            Step::Fetch(wanted, purpose) => self.fetch(slot, command.data(), length - ENTRY, wanted, purpose),
        }
    }

    /// Gets the data of a command: out of its capsule, which has so many bytes behind the entry, or by an RDMA READ.
    fn fetch(
        &mut self,
        slot: usize,
        from: Option<Data>,
        room: usize,
        wanted: usize,
        purpose: Purpose,
    ) -> Result<()> {
        self.slots[slot].purpose = purpose;
        match from {
            Some(Data::InCapsule { offset, length })
                if length >= wanted && offset.checked_add(wanted).is_some_and(|end| end <= room) =>
            {
                let mut bytes = vec![0; wanted];
                self.memory.read(slot * SLOT + ENTRY + offset, &mut bytes)?;
                self.finish(slot, &bytes)
            }
            Some(Data::Keyed { address, length, key, invalidate }) if length >= wanted => {
                self.invalidate(slot, key, invalidate);
                let request = WorkRequest::read(address, Rkey(key)).sge(self.memory.sge(data(slot), wanted));
                Ok(self.qp.post(request.id(slot as u64))?)
            }
            _ => self.respond(slot, Status::INVALID_FIELD.into()),
        }
    }

    fn invalidate(&mut self, slot: usize, key: u32, wanted: bool) {
        self.slots[slot].invalidate = wanted.then_some(Rkey(key));
    }

    /// The data of a command is there.
    fn finish(&mut self, slot: usize, bytes: &[u8]) -> Result<()> {
        let outcome = match self.slots[slot].purpose {
            Purpose::Connect => self.connect(bytes),
            Purpose::Write { offset } => done(self.subsystem.disk.write(bytes, offset)),
        };
        self.respond(slot, outcome)
    }

    fn respond(&self, slot: usize, outcome: Outcome) -> Result<()> {
        let Slot { identifier, invalidate, .. } = self.slots[slot];
        let at = data(slot) + MOST_DATA;
        self.memory.write(at, &outcome.response(self.head, identifier))?;
        let request = invalidate.map_or_else(WorkRequest::send, WorkRequest::send_invalidate);
        Ok(self.qp.post(request.sge(self.memory.sge(at, RESPONSE)).id(slot as u64))?)
    }

    fn execute(&mut self, command: &Command) -> Step {
        match (command.opcode(), command.fabrics_type(), &self.controller) {
            (0x7F, 0x01, None) => Step::Fetch(CONNECT, Purpose::Connect),
            (_, _, None) => Status::COMMAND_SEQUENCE.into(),
            (0x7F, kind, Some(controller)) => property(controller, kind, command),
            (opcode, _, Some(controller)) if self.number == 0 => self.administer(controller, opcode, command),
            (opcode, ..) => self.transfer(opcode, command),
        }
    }

    /// Commands of the admin queue (Base 2.0, 5).
    fn administer(&self, controller: &Controller, opcode: u8, command: &Command) -> Step {
        match opcode {
            // Identify.
            0x06 => Step::Return(match command.dword(10) & 0xFF {
                0x00 => identify::namespace(command.namespace(), self.subsystem.disk.blocks()).to_vec(),
                0x01 => identify::controller(controller.number, &self.subsystem.nqn).to_vec(),
                0x02 => identify::namespaces(command.namespace()).to_vec(),
                _ => return Status::INVALID_FIELD.into(),
            }),
            // Get Log Page: nothing has gone wrong.
            0x02 => {
                let dwords = (command.dword(10) >> 16) as usize + 1;
                Step::Return(vec![0; (dwords * 4).min(IDENTIFY)])
            }
            // Keep Alive. That a host is silent is not noticed.
            0x18 => Step::Respond(Outcome::SUCCESS),
            // Set Features: as many queues as are asked for, up to 64. The answer counts from 0, as the question does.
            0x09 if command.dword(10) & 0xFF == 0x07 => {
                let queues = (command.dword(11) & 0xFFFF).min(63);
                Step::Respond(Outcome::value((queues << 16 | queues).into()))
            }
            0x09 => Step::Respond(Outcome::SUCCESS),
            // Abort: the command was not aborted.
            0x08 => Step::Respond(Outcome::value(1)),
            // Asynchronous Event Request.
            0x0C => Step::Keep,
            _ => Status::INVALID_OPCODE.into(),
        }
    }

    /// Commands for the disk (NVM Command Set 1.0, 3.2).
    fn transfer(&self, opcode: u8, command: &Command) -> Step {
        let disk = &self.subsystem.disk;
        if command.namespace() != identify::NAMESPACE {
            return Status::INVALID_NAMESPACE.into();
        }
        let (blocks, length) = (command.blocks(), (command.blocks() * crate::disk::BLOCK) as usize);
        let range = || disk.offset(command.first_block(), blocks).ok_or(Status::OUT_OF_RANGE);
        let within = || if length <= MOST_DATA { range() } else { Err(Status::INVALID_FIELD) };
        let step = match opcode {
            0x00 => Ok(Step::Respond(done(disk.flush()))),
            0x01 => within().map(|offset| Step::Fetch(length, Purpose::Write { offset })),
            0x02 => within().map(|offset| {
                let mut bytes = vec![0; length];
                match disk.read(&mut bytes, offset) {
                    Ok(()) => Step::Return(bytes),
                    Err(error) => Step::Respond(done(Err(error))),
                }
            }),
            0x08 => range().map(|offset| Step::Respond(done(disk.write_zeroes(offset, blocks)))),
            _ => Err(Status::INVALID_OPCODE),
        };
        step.unwrap_or_else(Step::from)
    }

    /// Connect (NVMe over Fabrics 1.1, 3.3): who connects, and to what.
    fn connect(&mut self, bytes: &[u8]) -> Outcome {
        let text = |at: usize| {
            let field = &bytes[at..at + 256];
            String::from_utf8_lossy(field.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        };
        let (subsystem, host) = (text(256), text(512));
        let wanted = u16::from_le_bytes([bytes[16], bytes[17]]);
        let controller = match self.number {
            _ if subsystem != self.subsystem.nqn => None,
            0 => Some(self.subsystem.new_controller(&host)),
            _ => self.subsystem.controller(wanted, &host),
        };
        let Some(controller) = controller else {
            eprintln!("{host} asks for {subsystem}, controller {wanted}, which is not here");
            return Status::CONNECT_INVALID_PARAMETERS.into();
        };
        eprintln!("{host} has connected queue {} of controller {}", self.number, controller.number);
        let number = controller.number;
        self.controller = Some(controller);
        Outcome::value(number.into())
    }

    /// After an error, or because the host has gone: what is under way ends, and nothing more comes.
    pub fn close(self) {
        // The identifier may have been disconnected by the other side, and is destroyed all the same.
        let _disconnected = self.id.disconnect();
        drop(self.qp);
        let _destroyed = self.id.destroy();
    }
}

/// Property Get and Set.
fn property(controller: &Controller, kind: u8, command: &Command) -> Step {
    let property = command.dword(11);
    let value = match (kind, property) {
        (0x00, CC) => {
            controller.configure(command.dword(12));
            0
        }
        (0x00, _) => return Status::INVALID_FIELD.into(),
        // MQES counts from 0; CQR; TO in half seconds; the NVM command set.
        (0x04, CAP) => u64::from(MOST_ENTRIES - 1) | 1 << 16 | 15 << 24 | 1 << 37,
        (0x04, VS) => VERSION.into(),
        (0x04, CC) => controller.configuration().into(),
        (0x04, CSTS) => controller.state().into(),
        (0x04, _) => return Status::INVALID_FIELD.into(),
        _ => return Status::INVALID_OPCODE.into(),
    };
    Step::Respond(Outcome::value(value))
}

fn done(result: std::io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::SUCCESS,
        Err(error) => {
            eprintln!("the file: {error}");
            Status::DATA_TRANSFER_ERROR.into()
        }
    }
}

/// Where the data of a slot begins.
fn data(slot: usize) -> usize {
    slot * SLOT + CAPSULE
}

/// The private data of a connection request (NVMe over RDMA 1.0, 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub number: u16,
    pub entries: u16,
}

impl Request {
    /// # Errors
    /// The status of the rejection.
    pub fn parse(private: &[u8]) -> std::result::Result<Request, u16> {
        let field = |at: usize| u16::from_le_bytes([private[at], private[at + 1]]);
        if private.len() < 32 {
            return Err(1);
        }
        // HRQSIZE counts from 1, HSQSIZE from 0.
        let (format, number, receives, sends) = (field(0), field(2), field(4), field(6));
        match (format, receives, sends) {
            (1.., ..) => Err(2),
            (_, 0 | 1, _) => Err(5),
            (_, _, 0) => Err(4),
            _ => Ok(Request { number, entries: sends.saturating_add(1).min(MOST_ENTRIES) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_refused_by_what_is_wrong_with_it() {
        let private = |format: u8, receives: u8, sends: u8| {
            let mut bytes = [0; 56];
            (bytes[0], bytes[2], bytes[4], bytes[6]) = (format, 3, receives, sends);
            Request::parse(&bytes)
        };
        assert_eq!(private(0, 32, 31), Ok(Request { number: 3, entries: 32 }));
        assert_eq!(private(0, 255, 254), Ok(Request { number: 3, entries: MOST_ENTRIES }));
        assert_eq!((private(1, 32, 31), private(0, 1, 31), private(0, 32, 0)), (Err(2), Err(5), Err(4)));
        assert_eq!(Request::parse(&[0; 31]), Err(1));
    }
}
