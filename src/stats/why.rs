//! What a program that hangs waits for, as far as statistics show it: its own, those of its peers on this machine, and what the
//! NICs of other peers say.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::look::ask_peers;
use super::{CqSnapshot, PeerSays, QpSnapshot, Snapshot, look_closely};

/// How long the NICs of peers have to answer, and the time between two looks whether they have.
const PATIENCE: Duration = Duration::from_millis(500);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

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
    let mut found = look_closely()?;
    if !found.snapshots.iter().any(|device| device.pid == pid) {
        return Ok(None);
    }
    ask_others(&mut found.snapshots, pid);
    let waiting = waiting(&found.snapshots, pid);
    let unseen = unseen(&found.snapshots, pid);
    if waiting.is_empty() && unseen.is_empty() {
        return Ok(Some(
            "All that it has posted to send queues is complete: it waits for its peers.\n".into(),
        ));
    }
    Ok(Some(waiting.iter().map(ToString::to_string).chain(unseen).collect()))
}

/// Has the process ask the NICs of peers that cannot be looked into, and waits for what they say.
fn ask_others(all: &mut [Snapshot], pid: u32) {
    let unseen = waiting(all, pid).into_iter().filter(|of| of.peer.is_none());
    let unseen: Vec<(PathBuf, u32)> = unseen.map(|of| (of.device.socket.clone(), of.qp.qpn)).collect();
    for device in all {
        let of_device = unseen.iter().filter(|(socket, _)| *socket == device.socket);
        let qpns: Vec<u32> = of_device.map(|(_, qpn)| *qpn).collect();
        if !qpns.is_empty() {
            ask_others_of(device, &qpns);
        }
    }
}

fn ask_others_of(device: &mut Snapshot, qpns: &[u32]) {
    let begun = Instant::now();
    while let Ok(said) = ask_peers(&device.socket) {
        let since = begun.elapsed();
        let mut is_complete = true;
        for qp in device.qps.iter_mut().filter(|qp| qpns.contains(&qp.qpn)) {
            qp.peer_says =
                said.qps.iter().find(|now| now.qpn == qp.qpn).and_then(|now| now.peer_says.clone());
            let is_new = |says: &PeerSays| u128::from(says.ago_ns) < since.as_nanos();
            is_complete &= qp.peer_says.as_ref().is_some_and(is_new);
        }
        if is_complete || since > PATIENCE {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
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
            return match &self.qp.peer_says {
                Some(says) => told(says, f),
                None => f.write_str(
                    "its process is not one of this user's on this machine, and its NIC has not answered: \
                     it is no SoftRNIC, its process is stopped, or it has no such connection",
                ),
            };
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

/// What the NIC of a peer has said.
fn told(says: &PeerSays, f: &mut Formatter<'_>) -> fmt::Result {
    let PeerSays { ago_ns, state, expected_psn, rnr_sent, receives, queued_sends } = says;
    write!(f, "its NIC said {} ago: the QP is in {state}, expects PSN {expected_psn:#x}", span(*ago_ns))?;
    write!(
        f,
        ", has {receives} receives posted and {queued_sends} requests of its own that are not complete"
    )?;
    write!(f, ", and has answered {rnr_sent} times that it has no receive")
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
