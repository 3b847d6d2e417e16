//! The side that answers: what it receives goes back as it came, and immediate data with it.

use std::sync::atomic::{AtomicBool, Ordering};

use softrnic_nic::verbs::{Cqe, CqeExtra, QpState, Status, WcOpcode, WorkRequest};

use crate::Problem;
use crate::end::End;
use crate::message::Finished;
use crate::wait::Waiting;

/// Posts all receives, before the other side may send.
pub fn prepare(end: &End) -> Result<(), Problem> {
    (0..end.layout.receives()).try_for_each(|place| end.post_receive(place))
}

/// Echoes until stopped, or until the QP fails.
pub fn run(end: &End, stop: &AtomicBool) -> Result<Finished, Problem> {
    let mut finished = Finished::default();
    let mut waiting = Waiting::new([&end.send_cq, &end.recv_cq], &end.channel, true);
    let mut found = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        waiting.take(&mut found)?;
        waiting.progress();
        for cqe in found.drain(..) {
            match cqe.status {
                Status::Success => answer(end, &cqe, &mut finished)?,
                Status::Flushed => finished.flushed += 1,
                status => finished.error = finished.error.or(Some(format!("{status:?}"))),
            }
        }
        if end.qp.state() == QpState::Err && finished.flushed as usize >= end.layout.receives() {
            break;
        }
    }
    Ok(finished)
}

fn answer(end: &End, cqe: &Cqe, finished: &mut Finished) -> Result<(), Problem> {
    let place = cqe.wr_id as usize;
    if !cqe.opcode.is_receive() {
        // The echo has left; its place can receive again.
        return end.post_receive(place);
    }
    // A write has left its bytes elsewhere.
    let length = if cqe.opcode == WcOpcode::RecvRdmaWithImm { 0 } else { cqe.byte_len as usize };
    let request = match cqe.extra {
        CqeExtra::Imm(imm) => WorkRequest::send_imm(u32::from_be_bytes(imm.0)),
        _ => WorkRequest::send(),
    };
    let request = request.sge(end.memory.sge(end.layout.receive(place), length)).id(place as u64);
    finished.bytes += length as u64;
    end.qp.post(request)?;
    Ok(())
}
