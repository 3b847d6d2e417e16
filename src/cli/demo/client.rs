//! The first process of the demo: posts the work, measures it, and checks its own memory.

use std::time::{Duration, Instant};

use super::server::{Opened, Request};
use super::step::{Atomic, Operation, Side, Step, WORD, When};
use super::{DEPTH, device};
use crate::endpoint::{Endpoint, await_completions};
use crate::failure::{Failure, Result};
use crate::pair::Peer;
use softrnic_nic::verbs::WorkRequest;

/// How the messages of a step follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// All are posted, then all completions are awaited.
    Together,
    /// Each is awaited before the next is posted.
    OneByOne,
}

/// The result of running a step.
#[derive(Default)]
pub struct Taken {
    /// From the first post to the last completion.
    pub elapsed: Duration,
    /// Of each message, if they were sent one by one.
    pub latencies: Vec<Duration>,
    /// Packets of both sides that were sent more than once.
    pub retransmitted: u64,
}

/// A NIC in each process, and a connection.
pub struct Connection<'a> {
    peer: &'a mut Peer,
    endpoint: Endpoint,
    pub server_mode: String,
    retransmitted: u64,
}

impl<'a> Connection<'a> {
    /// Opens a NIC in both processes, with the same faults, and connects them. `pcap` records ours.
    pub fn open(
        peer: &'a mut Peer,
        devices: &[String; 2],
        fault: Option<&str>,
        pcap: Option<&str>,
        memory: usize,
    ) -> Result<Connection<'a>> {
        let spec = device(&devices[0], "client", fault, pcap)?;
        let mut endpoint = Endpoint::open(&spec, memory, DEPTH)?;
        let fault = fault.map(str::to_owned);
        let opened: Opened = peer.ask(&Request::Open { device: devices[1].clone(), fault, memory })?;
        peer.ask::<()>(&Request::Connect(endpoint.coordinates()))?;
        endpoint.connect(&opened.coordinates)?;
        Ok(Connection { peer, endpoint, server_mode: opened.mode, retransmitted: 0 })
    }

    /// The mode that our link obtained.
    pub fn mode(&self) -> &str {
        self.endpoint.context.device().mode()
    }

    /// Path MTU in bytes.
    pub fn mtu(&self) -> usize {
        self.endpoint.mtu()
    }

    /// Sends the messages of a step, and has both sides check their memory.
    pub fn run(&mut self, step: &Step, pace: Pace) -> Result<Taken> {
        self.transfer(step, pace).map_err(|failure| {
            let already = failure.message.starts_with(step.operation.name());
            if already { failure } else { Failure::new(format!("{}: {failure}", step.describe())) }
        })
    }

    fn transfer(&mut self, step: &Step, pace: Pace) -> Result<Taken> {
        let memory = &self.endpoint.memory;
        memory.write(0, &step.image(Side::Client, When::Before))?;
        self.peer.ask::<()>(&Request::Prepare(*step))?;

        let requests = self.requests(step)?;
        let line = self.peer.line();
        let Endpoint { qp, send_cq, .. } = &self.endpoint;
        let mut taken = Taken::default();
        let mut expected = 0;
        let mut in_order = |cqe: softrnic_nic::verbs::Cqe| {
            let found = cqe.wr_id;
            expected += 1;
            if found + 1 == expected {
                return Ok(());
            }
            Err(Failure::new(format!("completion {found} came in place of {}", expected - 1)))
        };
        let start = Instant::now();
        match pace {
            Pace::Together => {
                requests.into_iter().try_for_each(|request| qp.post(request))?;
                await_completions(send_cq, step.count, line, in_order)?;
                taken.elapsed = start.elapsed();
            }
            Pace::OneByOne => {
                for request in requests {
                    let posted = Instant::now();
                    qp.post(request)?;
                    await_completions(send_cq, 1, line, &mut in_order)?;
                    taken.latencies.push(posted.elapsed());
                }
                taken.elapsed = start.elapsed();
            }
        }

        let server_retransmitted: u64 = self.peer.ask(&Request::Verify)?;
        self.verify(step)?;
        let retransmitted = self.endpoint.retransmitted()? + server_retransmitted;
        taken.retransmitted = retransmitted - self.retransmitted;
        self.retransmitted = retransmitted;
        Ok(taken)
    }

    fn requests(&self, step: &Step) -> Result<Vec<WorkRequest>> {
        let atomics = if step.operation.is_atomic() { step.atomics().0 } else { Vec::new() };
        (0..step.count).map(|message| self.request(step, message, atomics.get(message).copied())).collect()
    }

    fn request(&self, step: &Step, message: usize, atomic: Option<Atomic>) -> Result<WorkRequest> {
        let far = step.pieces(Side::Server, message)[0].0;
        let (va, rkey) = self.endpoint.remote(far)?;
        let (word, _) = self.endpoint.remote(WORD)?;
        let Atomic { compare, operand, .. } = atomic.unwrap_or_default();
        let request = match step.operation {
            Operation::Send => WorkRequest::send(),
            Operation::SendImm => WorkRequest::send_imm(step.immediate(message)),
            Operation::Write => WorkRequest::write(va, rkey),
            Operation::WriteImm => WorkRequest::write_imm(va, rkey, step.immediate(message)),
            Operation::Read => WorkRequest::read(va, rkey),
            Operation::CompareSwap => WorkRequest::compare_swap(word, rkey, compare, operand),
            Operation::FetchAdd => WorkRequest::fetch_add(word, rkey, operand),
        };
        let sge = |(at, length)| self.endpoint.memory.sge(at, length);
        let places = step.pieces(Side::Client, message).into_iter().map(sge);
        Ok(places.fold(request, WorkRequest::sge).id(message as u64))
    }

    fn verify(&self, step: &Step) -> Result {
        let mut found = vec![0; step.region()];
        self.endpoint.memory.read(0, &mut found)?;
        step.check(Side::Client, &found).map_err(Failure::new)
    }

    /// Closes both NICs.
    pub fn close(self) -> Result {
        drop(self.endpoint);
        self.peer.ask::<()>(&Request::Close)
    }
}
