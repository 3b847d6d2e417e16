//! The first process of the bench, which measures.

use std::time::{Duration, Instant};

use super::latency::{Percentiles, Samples};
use super::target::{Mailboxes, Opened, Pings, Request, STOPPING};
use super::{DEPTH, Operation, device};
use crate::endpoint::{Endpoint, INLINE, Idle, await_completions, success};
use crate::failure::Result;
use crate::pair::Peer;
use softrnic_nic::verbs::WorkRequest;

/// Bytes that a stream keeps in the send queue, and messages at least and at most.
const STREAM_BYTES: usize = 4 << 20;
const STREAM_DEPTH: (usize, usize) = (4, 128);

/// A NIC in each process, connected.
pub struct Bench<'a> {
    pub peer: &'a mut Peer,
    endpoint: Endpoint,
    receives: usize,
    pub modes: [String; 2],
}

/// The result of a stream of messages.
#[derive(Clone, Copy)]
pub struct Stream {
    pub messages: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    /// Packets of ours that were retransmitted.
    pub retransmitted: u64,
}

impl Stream {
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }

    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }
}

impl<'a> Bench<'a> {
    /// For messages of at most `largest` bytes.
    pub fn open(peer: &'a mut Peer, devices: &[String; 2], largest: usize) -> Result<Bench<'a>> {
        let memory = Mailboxes::memory(largest);
        let mut endpoint = Endpoint::open(&device(&devices[0], "initiator")?, memory, DEPTH)?;
        let opened: Opened = peer.ask(&Request::Open { device: devices[1].clone(), memory })?;
        peer.ask::<()>(&Request::Connect(endpoint.coordinates()))?;
        endpoint.connect(&opened.coordinates)?;
        let modes = [endpoint.context.device().mode().to_owned(), opened.mode];
        Ok(Bench { peer, endpoint, receives: 0, modes })
    }

    pub fn mtu(&self) -> usize {
        self.endpoint.mtu()
    }

    /// Streams messages for about `time`.
    pub fn stream(&mut self, operation: Operation, size: usize, time: Duration) -> Result<Stream> {
        if operation != Operation::Send {
            return self.post_stream(operation, size, time);
        }
        self.peer.ask::<()>(&Request::Sink)?;
        let stream = self.post_stream(operation, size, time)?;
        self.stop()?;
        Ok(stream)
    }

    fn post_stream(&mut self, operation: Operation, size: usize, time: Duration) -> Result<Stream> {
        let request = self.request(operation, size)?;
        let (least, most) = STREAM_DEPTH;
        let depth = (STREAM_BYTES / size.max(1)).clamp(least, most) as u64;
        // A completion for each quarter of what is outstanding.
        let every = (depth / 4).max(1);
        let retransmitted = self.endpoint.retransmitted()?;
        let line = self.peer.line();
        let Endpoint { qp, send_cq, .. } = &self.endpoint;
        let (mut posted, mut completed) = (0, 0);
        let mut last = None;
        let mut idle = Idle::default();
        let start = Instant::now();
        while last.is_none_or(|last| completed < last) {
            while last.is_none() && posted - completed < depth {
                posted += 1;
                let over = start.elapsed() >= time;
                let request = request.clone().id(posted);
                qp.post(if over || posted % every == 0 { request } else { request.unsignaled() })?;
                last = over.then_some(posted);
            }
            let mut outcome = Ok(());
            let found = send_cq.poll_with(8, |cqe| {
                completed = cqe.wr_id;
                if outcome.is_ok() {
                    outcome = success(&cqe);
                }
            });
            outcome?;
            idle.after(found, line, || {
                format!("{} of {posted} messages do not complete", posted - completed)
            })?;
        }
        let elapsed = start.elapsed();
        let retransmitted = self.endpoint.retransmitted()? - retransmitted;
        Ok(Stream { messages: posted, bytes: posted * size as u64, elapsed, retransmitted })
    }

    fn request(&self, operation: Operation, size: usize) -> Result<WorkRequest> {
        let (va, rkey) = self.endpoint.remote(0)?;
        let request = match operation {
            Operation::Send => WorkRequest::send(),
            Operation::Write => WorkRequest::write(va, rkey),
            Operation::Read => WorkRequest::read(va, rkey),
        };
        Ok(if operation != Operation::Read && size <= INLINE {
            request.inline(&[0; INLINE][..size])
        } else {
            request.sge(self.endpoint.memory.sge(0, size))
        })
    }

    /// One message at a time for about `time`, both processes polling: half of a round trip for SEND and WRITE, a
    /// whole one for READ.
    pub fn latency(
        &mut self,
        operation: Operation,
        size: usize,
        time: Duration,
    ) -> Result<Option<Percentiles>> {
        let mut samples = Samples::new();
        let divisor = match operation {
            Operation::Read => {
                self.read_one_by_one(size, time, &mut samples)?;
                1.0
            }
            Operation::Send => {
                self.peer.ask::<()>(&Request::Echo { operation, size })?;
                self.ping_with_sends(size, time, &mut samples)?;
                self.stop()?;
                2.0
            }
            // Nothing shows that an empty WRITE has arrived.
            Operation::Write if size == 0 => return Ok(None),
            Operation::Write => {
                Mailboxes::new(size).reset(&self.endpoint)?;
                self.peer.ask::<()>(&Request::Echo { operation, size })?;
                self.ping_with_writes(size, time, &mut samples)?;
                self.stop()?;
                2.0
            }
        };
        Ok(samples.percentiles(divisor))
    }

    fn read_one_by_one(&mut self, size: usize, time: Duration, samples: &mut Samples) -> Result {
        let request = self.request(Operation::Read, size)?;
        let line = self.peer.line();
        let start = Instant::now();
        let mut posted = start;
        while posted - start < time {
            self.endpoint.qp.post(request.clone())?;
            await_completions(&self.endpoint.send_cq, 1, line, |_| Ok(()))?;
            let now = Instant::now();
            samples.add(now - posted);
            posted = now;
        }
        Ok(())
    }

    fn ping_with_sends(&mut self, size: usize, time: Duration, samples: &mut Samples) -> Result {
        let Endpoint { qp, memory, recv_cq, .. } = &self.endpoint;
        let line = self.peer.line();
        let mut pings = Pings::new(WorkRequest::send(), &self.endpoint, 0, size);
        let start = Instant::now();
        let mut posted = start;
        let receive = || qp.post_recv(0, &[memory.sge(0, memory.len())]);
        while self.receives < DEPTH {
            receive()?;
            self.receives += 1;
        }
        while posted - start < time {
            pings.post(&self.endpoint)?;
            if posted > start {
                // The receive for the last answer is posted again while the next one is under way.
                receive()?;
            }
            await_completions(recv_cq, 1, line, |_| Ok(()))?;
            let now = Instant::now();
            samples.add(now - posted);
            posted = now;
        }
        self.receives -= usize::from(posted > start);
        pings.drain(&self.endpoint, line)
    }

    fn ping_with_writes(&mut self, size: usize, time: Duration, samples: &mut Samples) -> Result {
        let layout = Mailboxes::new(size);
        let line = self.peer.line();
        let mut pings = layout.pings(&self.endpoint)?;
        let mut mark = Mailboxes::FIRST;
        let mut idle = Idle::default();
        let start = Instant::now();
        let mut posted = start;
        while posted - start < time {
            layout.mark(&self.endpoint, &mut pings, mark)?;
            pings.post(&self.endpoint)?;
            while layout.arrived(&self.endpoint)? != mark {
                pings.poll(&self.endpoint)?;
                idle.after(0, line, || "a WRITE does not come back".into())?;
            }
            idle = Idle::default();
            mark = Mailboxes::after(mark);
            let now = Instant::now();
            samples.add(now - posted);
            posted = now;
        }
        pings.drain(&self.endpoint, line)
    }

    fn stop(&mut self) -> Result {
        self.peer.line().send(&Request::Stop)?;
        self.peer.line().receive(STOPPING)
    }
}
