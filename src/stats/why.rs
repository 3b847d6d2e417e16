//! What a program that hangs waits for, as far as statistics show it: its own, and those of its peers on this machine.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::Duration;

use super::{CqSnapshot, QpSnapshot, Snapshot, look_closely};

/// A QP with requests that are not complete, and what is known of it.
struct Waiting<'a> {
    device: &'a Snapshot,
    qp: &'a QpSnapshot,
    /// The peer's device and QP, if its process is one of this user's on this machine.
    peer: Option<(&'a Snapshot, Option<&'a QpSnapshot>)>,
}

/// What the oldest request of a QP waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// The QP is in no state in which it sends.
    State,
    /// The peer's process is stopped.
    StoppedPeer,
    /// The peer had no receive.
    Receive,
    /// The window to the peer is closed.
    Window,
    /// The peer has not answered.
    Answer,
    /// Something else holds it back: a fence, or READs and atomics up to `max_rd_atomic`.
    Order,
}

/// What a process waits for, in words; `None` if it has no device that answers.
///
/// # Errors
/// Those of [`look_closely`].
pub fn why(pid: u32) -> io::Result<Option<String>> {
    let found = look_closely()?;
    if !found.snapshots.iter().any(|device| device.pid == pid) {
        return Ok(None);
    }
    let waiting = waiting(&found.snapshots, pid);
    let unseen = unseen(&found.snapshots, pid);
    if waiting.is_empty() && unseen.is_empty() {
        return Ok(Some(
            "All that it has posted to send queues is complete: it waits for its peers.\n".into(),
        ));
    }
    Ok(Some(waiting.iter().map(ToString::to_string).chain(unseen).collect()))
}

/// Completion queues of a process with completions that nobody has polled, in words.
fn unseen(all: &[Snapshot], pid: u32) -> Vec<String> {
    let own = all.iter().filter(|device| device.pid == pid);
    let cqs = own.flat_map(|device| device.resources.iter().flat_map(|resources| &resources.cqs));
    let holds = cqs.filter(|cq| cq.waiting > 0);
    holds
        .map(|CqSnapshot { cqe, waiting, armed, .. }| {
            let whether = match armed {
                None => "it reports to no channel, so a thread has to poll it",
                Some(true) => "it is armed, and was so after they had come: no event will tell of them",
                Some(false) => "it is not armed: their event was raised, or nobody has asked for one",
            };
            format!("A completion queue of {cqe} entries holds {waiting} completions that were not polled\n  {whether}\n")
        })
        .collect()
}

/// The QPs of a process that have requests which are not complete. `all` are the devices of all processes.
fn waiting(all: &[Snapshot], pid: u32) -> Vec<Waiting<'_>> {
    let own = all.iter().filter(|device| device.pid == pid);
    let qps = own.flat_map(|device| device.qps.iter().map(move |qp| (device, qp)));
    qps.filter(|(_, qp)| qp.queued_sends > 0)
        .map(|(device, qp)| Waiting { device, qp, peer: peer_of(all, qp) })
        .collect()
}

fn peer_of<'a>(all: &'a [Snapshot], qp: &QpSnapshot) -> Option<(&'a Snapshot, Option<&'a QpSnapshot>)> {
    let at_its_address = || all.iter().filter(|device| device.gids.values().any(|gid| *gid == qp.peer));
    let has_it =
        |device: &'a Snapshot| Some((device, Some(device.qps.iter().find(|of| of.qpn == qp.peer_qpn)?)));
    // Processes that share an address are not told apart by it.
    let alone =
        || at_its_address().next().filter(|_| at_its_address().count() == 1).map(|device| (device, None));
    at_its_address().find_map(has_it).or_else(alone)
}

impl Waiting<'_> {
    /// What it waits for.
    fn wait(&self) -> Wait {
        let qp = self.qp;
        let is_unanswered = qp.una_psn != qp.send_psn;
        let window = self.device.peers.iter().find(|peer| peer.address == qp.peer);
        match qp.state.as_str() {
            "RTS" | "SQD" => {}
            _ => return Wait::State,
        }
        if qp.peer_stopped {
            Wait::StoppedPeer
        } else if qp.rnr_wait {
            Wait::Receive
        } else if is_unanswered {
            Wait::Answer
        } else if qp.state == "SQD" {
            Wait::State
        } else if window.is_some_and(|peer| peer.in_flight >= peer.window) {
            Wait::Window
        } else {
            Wait::Order
        }
    }

    fn own(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let qp = self.qp;
        match self.wait() {
            Wait::State => write!(f, "nothing is sent in state {}", qp.state),
            Wait::StoppedPeer => f.write_str("the peer's process is stopped, by a signal or a debugger"),
            Wait::Receive => {
                write!(f, "the peer has no receive: it has said so {} times (RNR NAK)", qp.rnr_received)
            }
            Wait::Window => f.write_str("what is in flight to the peer fills the window"),
            Wait::Answer => write!(
                f,
                "the peer has not answered from PSN {:#x} on; {} packets were sent again, retries left: {}",
                qp.una_psn, qp.retransmitted, qp.retries_left
            ),
            Wait::Order => f.write_str("a fence, or a READ or atomic more than max_rd_atomic allows"),
        }
    }

    fn other_side(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some((device, qp)) = self.peer else {
            return f.write_str("its process is not one of this user's on this machine");
        };
        write!(f, "{} ({}): ", device.program, device.pid)?;
        let Some(qp) = qp else { return write!(f, "it has no such QP, or has it no longer") };
        write!(f, "the QP is in {}", qp.state)?;
        let is_connected = qp.peer_qpn == self.qp.qpn && self.device.gids.values().any(|gid| *gid == qp.peer);
        if !is_connected && qp.state != "RESET" && qp.state != "INIT" {
            return write!(f, ", and connected to QP {:#x} at {} instead", qp.peer_qpn, qp.peer);
        }
        if qp.state != "RTR" && qp.state != "RTS" && qp.state != "SQD" {
            return f.write_str(", in which it takes no requests");
        }
        write!(
            f,
            ", expects PSN {:#x} and has answered {} times that it has no receive",
            qp.expected_psn, qp.rnr_sent
        )
    }
}

impl Display for Waiting<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let QpSnapshot { qpn, service, state, peer, peer_qpn, queued_sends, .. } = self.qp;
        let requests = if *queued_sends == 1 { "request is" } else { "requests are" };
        write!(f, "QP {qpn:#x} of {} ({service}, {state}", self.device.device)?;
        write!(f, ", peer {peer} QP {peer_qpn:#x}): {queued_sends} {requests} not complete")?;
        if let Some(ns) = self.qp.waits_ns {
            write!(f, ", and nothing has gone on for {}", span(ns))?;
        }
        if let Some(posted) = &self.qp.posted {
            write!(f, "\n  posted:    {posted}")?;
        }
        f.write_str("\n")?;
        f.write_str("  waits for: ")?;
        self.own(f)?;
        f.write_str("\n  the peer:  ")?;
        self.other_side(f)?;
        f.write_str("\n")
    }
}

/// A time for people.
fn span(ns: u64) -> String {
    match Duration::from_nanos(ns) {
        long if long.as_secs() > 0 => format!("{:.1} s", long.as_secs_f64()),
        short => format!("{} ms", short.as_millis()),
    }
}

#[cfg(test)]
mod tests;
