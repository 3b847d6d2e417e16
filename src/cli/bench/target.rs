//! The second process of the bench: receives, echoes, or does nothing and is read and written.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sockets;
use super::{DEPTH, Operation, device};
use crate::endpoint::{Coordinates, Endpoint, INLINE, Lull, success};
use crate::failure::{Failure, Result};
use crate::pair::Line;
use softrnic_nic::verbs::WorkRequest;

/// Requests of the first process, and their answers.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Close the NIC, if one is open, and open another. Answers with [`Opened`].
    Open { device: String, memory: usize },
    /// Connect the QP. Answers with nothing.
    Connect(Coordinates),
    /// Receive messages until told to stop. Answers with nothing when ready, and again when done.
    Sink,
    /// Echo messages of a size until told to stop. Answers with nothing when ready, and again when done.
    Echo { operation: Operation, size: usize },
    /// Receive a byte stream. Answers with the port when ready, and with the number of bytes at the end.
    TcpSink,
    /// Echo datagrams until told to stop. Answers with the port when ready, and with nothing when done.
    UdpEcho,
    /// Stop the current task.
    Stop,
    /// End the process. No answer.
    Finish,
}

/// The second NIC.
#[derive(Serialize, Deserialize)]
pub struct Opened {
    pub coordinates: Coordinates,
    pub mode: String,
}

/// Serves until told to end.
pub fn run(line: &mut Line) -> Result {
    let mut target: Option<Target> = None;
    loop {
        let request = line.wait::<Request>()?;
        let open = || Failure::new("no NIC is open");
        match request {
            Request::Open { device: text, memory } => {
                // Of the same name: it would be the same device.
                drop(target.take());
                let endpoint = Endpoint::open(&device(&text, "target")?, memory, DEPTH)?;
                let mode = endpoint.context.device().mode().to_owned();
                line.send(&Opened { coordinates: endpoint.coordinates(), mode })?;
                target = Some(Target { endpoint, receives: 0 });
            }
            Request::Connect(peer) => {
                target.as_mut().ok_or_else(open)?.endpoint.connect(&peer)?;
                line.send(&())?;
            }
            Request::Sink => target.as_mut().ok_or_else(open)?.sink(line)?,
            Request::Echo { operation, size } => {
                let target = target.as_mut().ok_or_else(open)?;
                match operation {
                    Operation::Send => target.echo_sends(line, size)?,
                    Operation::Write => target.echo_writes(line, size)?,
                    Operation::Read => return Err(Failure::new("a READ needs no echo")),
                }
            }
            Request::TcpSink => sockets::tcp_sink(line)?,
            Request::UdpEcho => sockets::udp_echo(line)?,
            Request::Stop => return Err(Failure::new("there is nothing to stop")),
            Request::Finish => return Ok(()),
        }
    }
}

/// Whether the first process wants the current task to end.
pub fn stopped(line: &Line) -> Result<bool> {
    match line.poll::<Request>()? {
        None => Ok(false),
        Some(Request::Stop) => Ok(true),
        Some(_) => Err(Failure::new("only a stop was expected")),
    }
}

struct Target {
    endpoint: Endpoint,
    /// Receives that are posted. All have the whole buffer, so they serve every size.
    receives: usize,
}

impl Target {
    fn fill_receives(&mut self) -> Result {
        let Endpoint { qp, memory, .. } = &self.endpoint;
        while self.receives < DEPTH {
            qp.post_recv(0, &[memory.sge(0, memory.len())])?;
            self.receives += 1;
        }
        Ok(())
    }

    fn sink(&mut self, line: &mut Line) -> Result {
        self.fill_receives()?;
        line.send(&())?;
        let mut lull = Lull::default();
        loop {
            if self.take_receives()? > 0 {
                lull.end();
                self.fill_receives()?;
            } else if lull.empty() && stopped(line)? {
                return line.send(&());
            }
        }
    }

    fn take_receives(&mut self) -> Result<usize> {
        let mut outcome = Ok(());
        let taken = self.endpoint.recv_cq.poll_with(32, |cqe| {
            if outcome.is_ok() {
                outcome = success(&cqe);
            }
        });
        self.receives -= taken;
        outcome.map(|()| taken)
    }

    fn echo_sends(&mut self, line: &mut Line, size: usize) -> Result {
        self.fill_receives()?;
        let mut echo = Pings::new(WorkRequest::send(), &self.endpoint, 0, size);
        line.send(&())?;
        let mut lull = Lull::default();
        loop {
            if self.take_receives()? > 0 {
                lull.end();
                echo.post(&self.endpoint)?;
                self.fill_receives()?;
                continue;
            }
            if lull.empty() && stopped(line)? {
                echo.drain(&self.endpoint, line)?;
                return line.send(&());
            }
        }
    }

    fn echo_writes(&mut self, line: &mut Line, size: usize) -> Result {
        let layout = Mailboxes::new(size);
        let mut echo = layout.pings(&self.endpoint)?;
        layout.reset(&self.endpoint)?;
        line.send(&())?;
        let mut lull = Lull::default();
        let mut expected = Mailboxes::FIRST;
        loop {
            if layout.arrived(&self.endpoint)? == expected {
                lull.end();
                layout.mark(&self.endpoint, &mut echo, expected)?;
                echo.post(&self.endpoint)?;
                expected = Mailboxes::after(expected);
                continue;
            }
            echo.poll(&self.endpoint)?;
            if lull.empty() && stopped(line)? {
                echo.drain(&self.endpoint, line)?;
                return line.send(&());
            }
        }
    }
}

/// The messages of a ping-pong, one for each call of [`Pings::post`].
pub struct Pings {
    template: WorkRequest,
    inline: Option<Vec<u8>>,
    outstanding: usize,
}

impl Pings {
    /// `request` with `size` bytes from `offset` of the region, inline if they are few.
    pub fn new(request: WorkRequest, endpoint: &Endpoint, offset: usize, size: usize) -> Pings {
        let inline = (size <= INLINE).then(|| vec![0; size]);
        let template = match &inline {
            Some(_) => request,
            None => request.sge(endpoint.memory.sge(offset, size)),
        };
        Pings { template, inline, outstanding: 0 }
    }

    pub fn post(&mut self, endpoint: &Endpoint) -> Result {
        let request = match &self.inline {
            Some(bytes) => self.template.clone().inline(bytes),
            None => self.template.clone(),
        };
        while self.outstanding == DEPTH {
            self.poll(endpoint)?;
        }
        endpoint.qp.post(request)?;
        self.outstanding += 1;
        // Completions are polled in bulk, outside the part that is timed.
        if self.outstanding >= DEPTH / 2 {
            self.poll(endpoint)?;
        }
        Ok(())
    }

    /// Takes completions.
    pub fn poll(&mut self, endpoint: &Endpoint) -> Result {
        let mut outcome = Ok(());
        let taken = endpoint.send_cq.poll_with(DEPTH, |cqe| {
            if outcome.is_ok() {
                outcome = success(&cqe);
            }
        });
        self.outstanding -= taken;
        outcome
    }

    /// Waits for all completions.
    pub fn drain(&mut self, endpoint: &Endpoint, line: &Line) -> Result {
        let left = std::mem::take(&mut self.outstanding);
        crate::endpoint::await_completions(&endpoint.send_cq, left, line, |_| Ok(()))
    }
}

/// Where a ping-pong of WRITEs has its bytes: incoming ones at the start of the region, outgoing ones behind. The last
/// byte counts the rounds, and is written last.
pub struct Mailboxes {
    size: usize,
}

impl Mailboxes {
    /// The last byte in the first round; it starts as 0.
    pub const FIRST: u8 = 1;

    pub fn new(size: usize) -> Mailboxes {
        Mailboxes { size: size.max(1) }
    }

    pub fn after(mark: u8) -> u8 {
        mark.wrapping_add(1)
    }

    fn outgoing(&self) -> usize {
        self.size.next_multiple_of(64)
    }

    /// The memory that the largest of `sizes` needs.
    pub fn memory(largest: usize) -> usize {
        2 * largest.max(1).next_multiple_of(64)
    }

    pub fn pings(&self, endpoint: &Endpoint) -> Result<Pings> {
        let (va, rkey) = endpoint.remote(0)?;
        Ok(Pings::new(WorkRequest::write(va, rkey), endpoint, self.outgoing(), self.size))
    }

    pub fn reset(&self, endpoint: &Endpoint) -> Result {
        Ok(endpoint.memory.write(self.size - 1, &[0])?)
    }

    /// The mark received last.
    #[inline]
    pub fn arrived(&self, endpoint: &Endpoint) -> Result<u8> {
        let mut last = [0];
        endpoint.memory.read(self.size - 1, &mut last)?;
        Ok(last[0])
    }

    /// Puts a mark into the next outgoing message.
    pub fn mark(&self, endpoint: &Endpoint, pings: &mut Pings, mark: u8) -> Result {
        match &mut pings.inline {
            Some(bytes) => bytes[self.size - 1] = mark,
            None => endpoint.memory.write(self.outgoing() + self.size - 1, &[mark])?,
        }
        Ok(())
    }
}

/// How long the other process may need to stop.
pub const STOPPING: Duration = Duration::from_secs(20);
