//! The second process of the demo: prepares memory, receives, and checks every byte.

use serde::{Deserialize, Serialize};

use super::step::{Operation, Side, Step, When};
use super::{DEPTH, device};
use crate::endpoint::{Coordinates, Endpoint, await_completions};
use crate::failure::{Failure, Result};
use crate::pair::Line;
use softrnic_nic::verbs::{Cqe, CqeExtra, WcOpcode};

/// Requests of the client. Each has one answer.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Open a NIC: [`Opened`].
    Open { device: String, fault: Option<String>, memory: usize },
    /// Connect the QP: nothing.
    Connect(Coordinates),
    /// Prepare for the messages of a step: nothing.
    Prepare(Step),
    /// Check memory after it: the packets retransmitted so far.
    Verify,
    /// Close the NIC: nothing.
    Close,
    /// End: no answer.
    Finish,
}

/// The server's NIC.
#[derive(Serialize, Deserialize)]
pub struct Opened {
    pub coordinates: Coordinates,
    /// The mode that the link obtained.
    pub mode: String,
}

/// Serves until told to end.
pub fn run(line: &mut Line) -> Result {
    let mut server: Option<Server> = None;
    loop {
        let request = line.wait::<Request>()?;
        let open = || Failure::new("no NIC is open");
        match request {
            Request::Open { device: text, fault, memory } => {
                let endpoint =
                    Endpoint::open(&device(&text, "server", fault.as_deref(), None)?, memory, DEPTH)?;
                let mode = endpoint.context.device().mode().to_owned();
                line.send(&Opened { coordinates: endpoint.coordinates(), mode })?;
                server = Some(Server { endpoint, step: None });
            }
            Request::Connect(peer) => {
                server.as_mut().ok_or_else(open)?.endpoint.connect(&peer)?;
                line.send(&())?;
            }
            Request::Prepare(step) => {
                let server = server.as_mut().ok_or_else(open)?;
                server.prepare(step)?;
                line.send(&())?;
                server.take_messages(line)?;
            }
            Request::Verify => {
                let server = server.as_ref().ok_or_else(open)?;
                server.verify()?;
                line.send(&server.endpoint.retransmitted()?)?;
            }
            Request::Close => {
                server = None;
                line.send(&())?;
            }
            Request::Finish => return Ok(()),
        }
    }
}

struct Server {
    endpoint: Endpoint,
    step: Option<Step>,
}

impl Server {
    fn prepare(&mut self, step: Step) -> Result {
        let Endpoint { memory, qp, .. } = &self.endpoint;
        memory.write(0, &step.image(Side::Server, When::Before))?;
        if step.operation.consumes_receive() {
            for message in 0..step.count {
                let sges: Vec<_> = match step.operation {
                    // It consumes a receive, but none of its memory.
                    Operation::WriteImm => Vec::new(),
                    _ => {
                        let pieces = step.pieces(Side::Server, message);
                        pieces.into_iter().map(|(at, length)| memory.sge(at, length)).collect()
                    }
                };
                qp.post_recv(message as u64, &sges)?;
            }
        }
        self.step = Some(step);
        Ok(())
    }

    fn take_messages(&self, line: &Line) -> Result {
        let Some(step) = self.step.filter(|step| step.operation.consumes_receive()) else { return Ok(()) };
        let mut message = 0;
        await_completions(&self.endpoint.recv_cq, step.count, line, |cqe| {
            check_receive(&step, message, &cqe)?;
            message += 1;
            Ok(())
        })
    }

    fn verify(&self) -> Result {
        let step = self.step.ok_or_else(|| Failure::new("nothing was prepared"))?;
        let mut found = vec![0; step.region()];
        self.endpoint.memory.read(0, &mut found)?;
        step.check(Side::Server, &found).map_err(Failure::new)
    }
}

/// Receives complete in order, each with its message's length and immediate data.
fn check_receive(step: &Step, message: usize, cqe: &Cqe) -> Result {
    let wrong = |what: String| {
        Err(Failure::new(format!("{}: the receive of message {message} {what}", step.describe())))
    };
    if cqe.wr_id != message as u64 {
        return wrong(format!("was that of message {}", cqe.wr_id));
    }
    if cqe.byte_len as usize != step.size {
        return wrong(format!("says {} bytes", cqe.byte_len));
    }
    let opcode = match step.operation {
        Operation::WriteImm => WcOpcode::RecvRdmaWithImm,
        _ => WcOpcode::Recv,
    };
    if cqe.opcode != opcode {
        return wrong(format!("says {:?}", cqe.opcode));
    }
    let immediate = match cqe.extra {
        CqeExtra::Imm(immediate) => Some(u32::from_be_bytes(immediate.0)),
        _ => None,
    };
    let expected = step.operation.carries_immediate().then(|| step.immediate(message));
    if immediate != expected {
        return wrong(format!("has immediate data {immediate:x?}, not {expected:x?}"));
    }
    Ok(())
}
