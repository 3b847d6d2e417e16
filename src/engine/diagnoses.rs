//! What an engine knows of failures: a QP's, for its completions, and the last ones, for whoever asks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use softrnic_diagnosis::{Code, Denied, Diagnosis, KeyDenied, Warning};
use softrnic_memory::{Access, Denial, LocalFault, RemoteFault};
use softrnic_transport::{Concern, Failure, QpType, Reason};
use softrnic_wire::{Qpn, Rkey, Time};

use super::Engine;
use super::attention::Act;
use super::completion::CqeExtra;
use super::data::SgeList;
use super::host::{HostView, pd};
use super::objects::CqKey;

/// Failures that are kept.
const MOST: usize = 64;

/// What went wrong on a QP since it left RESET.
#[derive(Default)]
pub struct Trouble {
    /// What the memory refused last to requests of this side, and to those of the peer.
    local: Option<Denied>,
    remote: Option<Denied>,
    /// Why the QP failed.
    pub code: Option<Code>,
    /// It was told that a datagram does not fit.
    told_unfit: bool,
    /// How often it was told that a message of SRD was refused.
    pub refusals: u8,
}

/// The last failures of an engine.
#[derive(Default)]
pub struct Diagnoses {
    last: VecDeque<Diagnosis>,
    /// Those of all engines of the process, whose QPs may be connected to each other.
    process: Option<Arc<ProcessDiagnoses>>,
    /// The engine's number in the process.
    engine: u64,
}

/// What the engines of a process tell each other, and whoever watches them.
#[derive(Default)]
pub struct ProcessDiagnoses {
    /// The requests that they have refused: the peer's engine knows why, and may be among them.
    refused: Mutex<VecDeque<Diagnosis>>,
    watch: OnceLock<Box<dyn Watch>>,
    /// Engines so far.
    engines: AtomicU64,
}

/// Who is told what goes wrong as it happens, by the thread that drives the engine. It must not call the engine, or wait.
pub trait Watch: Send + Sync {
    /// A QP has failed, or has refused what its peer asked for.
    fn failed(&self, diagnosis: &Diagnosis);

    /// Something will probably not go on by itself. `cq` is the queue that has overrun, of the engine with that number.
    fn warned(&self, warning: &Warning, cq: Option<(u64, CqKey)>);

    /// Whether it is told what the engine does to memory as well.
    fn sees_memory(&self) -> bool {
        false
    }

    /// What the engine is about to do to memory, or has done.
    fn saw(&self, act: &Act<'_>) {
        let _ = act;
    }

    /// Where the oldest request of a QP was posted, in words, if that is known. Asked by a thread that holds no engine.
    fn posted(&self, qpn: Qpn) -> Option<String> {
        let _ = qpn;
        None
    }
}

impl ProcessDiagnoses {
    /// Where the oldest request of a QP was posted, if somebody knows.
    pub fn posted(&self, qpn: Qpn) -> Option<String> {
        self.watch.get()?.posted(qpn)
    }

    /// Has every failure told to `watch`; only the first one is.
    pub fn watch(&self, watch: Box<dyn Watch>) {
        let _ = self.watch.set(watch);
    }
}

impl Diagnoses {
    /// The last failures, oldest first.
    pub fn last(&self) -> impl Iterator<Item = &Diagnosis> {
        self.last.iter()
    }

    pub(super) fn watch(&self) -> Option<&dyn Watch> {
        self.process.as_ref()?.watch.get().map(Box::as_ref)
    }

    /// Tells what will probably not go on by itself: the first of each kind even where nothing is logged.
    pub(super) fn warn(&self, warning: &Warning, cq: Option<CqKey>) {
        let kind = match warning {
            Warning::Qp { concern: Concern::NoReceiveAtPeer { .. }, .. } => 4,
            Warning::Qp { concern: Concern::UnfitDatagram { .. }, .. } => 0,
            Warning::CqOverrun { .. } => 8,
        };
        if let Some(watch) = self.watch() {
            watch.warned(warning, cq.map(|cq| (self.engine, cq)));
        }
        say(kind, warning);
    }

    /// Something has failed for good: asks what the peer says, and tells.
    pub(super) fn conclude(
        &mut self,
        failure: Failure,
        denied: Option<Denied>,
        heard: u64,
        now: Time,
    ) -> Code {
        let peer = self.peer_of(&failure);
        let diagnosis = Diagnosis { failure, denied, peer, heard, now };
        let code = diagnosis.code();
        tell(&diagnosis);
        self.keep(diagnosis);
        code
    }

    fn keep(&mut self, diagnosis: Diagnosis) {
        if let Some(watch) = self.watch() {
            watch.failed(&diagnosis);
        }
        if diagnosis.is_refusal()
            && let Some(process) = &self.process
            // Another thread may have held it at a fork.
            && let Ok(mut process) = process.refused.try_lock()
        {
            push(&mut process, diagnosis.clone());
        }
        push(&mut self.last, diagnosis);
    }

    /// What the peer of a refused request says.
    fn peer_of(&self, failure: &Failure) -> Option<Box<Diagnosis>> {
        if !matches!(
            failure.reason,
            Reason::NakInvalidRequest
                | Reason::NakRemoteAccess
                | Reason::NakRemoteOperation
                | Reason::NakDestination
        ) {
            return None;
        }
        let qp = &failure.qp;
        let known = self.process.as_ref()?.refused.try_lock().ok()?;
        let is_peer = |other: &&Diagnosis| {
            let theirs = &other.failure.qp;
            theirs.qpn == qp.peer.1 && theirs.peer.1 == qp.qpn && theirs.own == qp.peer.0
        };
        known.iter().rev().find(is_peer).cloned().map(Box::new)
    }
}

fn push(list: &mut VecDeque<Diagnosis>, diagnosis: Diagnosis) {
    if list.len() == MOST {
        list.pop_front();
    }
    list.push_back(diagnosis);
}

impl HostView<'_, '_> {
    fn trouble(&mut self) -> &mut Trouble {
        self.io.trouble.get_or_insert_default()
    }

    /// Remembers why a local request may not use its bytes; `length` of them from `offset` on.
    #[cold]
    pub(super) fn note_local(
        &mut self,
        domain: softrnic_memory::PdId,
        sges: &SgeList,
        (offset, length): (u64, u64),
        write: bool,
        fault: LocalFault,
    ) {
        let (mut skip, mut left) = (offset, length);
        let mut denied = None;
        for sge in sges {
            let here = u64::from(sge.length).saturating_sub(skip).min(left);
            let addr = sge.addr.wrapping_add(skip);
            skip = skip.saturating_sub(u64::from(sge.length));
            left -= here;
            if here == 0 {
                continue;
            }
            let found = self.memory.explain_local(domain, sge.lkey, addr, here, write);
            let denial = found.or((fault == LocalFault::Unmapped).then_some(Denial::Unmapped));
            if let Some(denial) = denial {
                denied = Some(Denied::Key(KeyDenied {
                    key: sge.lkey.0,
                    remote: false,
                    addr,
                    length: here,
                    denial,
                }));
                break;
            }
        }
        self.trouble().local = denied;
    }

    /// Remembers why a local operation was not executed.
    #[cold]
    pub(super) fn note_operation(&mut self, denied: Denied) {
        self.trouble().local = Some(denied);
    }

    /// Remembers why a peer may not use a key.
    #[cold]
    pub(super) fn note_remote(
        &mut self,
        domain: softrnic_transport::Domain,
        rkey: Rkey,
        (addr, length): (u64, u64),
        needed: Access,
        fault: RemoteFault,
    ) -> softrnic_transport::RemoteFault {
        let denial = match fault {
            RemoteFault::Unmapped => Some(Denial::Unmapped),
            RemoteFault::Misaligned => Some(Denial::Misaligned),
            _ => self.memory.explain_remote(pd(domain), self.io.qpn, rkey, addr, length, needed),
        };
        let denied = |denial| Denied::Key(KeyDenied { key: rkey.0, remote: true, addr, length, denial });
        self.trouble().remote = denial.map(denied);
        match fault {
            RemoteFault::Unmapped => softrnic_transport::RemoteFault::Unmapped,
            _ => softrnic_transport::RemoteFault::Access,
        }
    }

    /// Remembers why a peer may not invalidate a key.
    #[cold]
    pub(super) fn note_invalidate(&mut self, denied: Denied) {
        self.trouble().remote = Some(denied);
    }

    /// Something has failed for good.
    #[cold]
    pub(super) fn diagnose(&mut self, failure: Failure) {
        let (heard, now) = (self.io.counts.packets_received, self.now);
        let trouble = self.trouble();
        let denied = match failure.reason {
            Reason::LocalMemory | Reason::ReceiveMemory | Reason::LocalOperation => trouble.local.take(),
            Reason::RemoteMemory | Reason::RemoteInvalidate => trouble.remote.take(),
            _ => None,
        };
        let code = self.shared.diagnoses.conclude(failure, denied, heard, now);
        self.trouble().code.get_or_insert(code);
    }

    /// What a failed completion says besides its status.
    #[cold]
    pub(super) fn why(&self) -> CqeExtra {
        if self.io.service == QpType::Srd {
            // What the transport completes of it is flushed.
            return CqeExtra::Failed(Code::of_srd(softrnic_srd::Code::Flushed as u8));
        }
        let code = self.io.trouble.as_ref().and_then(|trouble| trouble.code);
        code.map_or(CqeExtra::None, CqeExtra::Failed)
    }

    #[cold]
    pub(super) fn warn(&mut self, concern: Concern) {
        // Anybody may send datagrams, and as many as they like.
        if matches!(concern, Concern::UnfitDatagram { .. })
            && std::mem::replace(&mut self.trouble().told_unfit, true)
        {
            return;
        }
        self.shared.diagnoses.warn(&Warning::Qp { concern, now: self.now }, None);
    }
}

impl Engine {
    /// Shares what is refused with the other engines of the process. Returns the number of this one.
    pub fn share_diagnoses(&mut self, process: Arc<ProcessDiagnoses>) -> u64 {
        let engine = process.engines.fetch_add(1, Ordering::Relaxed);
        self.shared.comes_in_any_order = self.config.srd.is_some();
        self.shared.is_attended |= process.watch.get().is_some_and(|watch| watch.sees_memory());
        let diagnoses = &mut self.shared.diagnoses;
        (diagnoses.process, diagnoses.engine) = (Some(process), engine);
        engine
    }
}

/// The kinds that were told in this process, a bit each.
static TOLD: AtomicU8 = AtomicU8::new(0);

fn is_first(kind: u8) -> bool {
    TOLD.fetch_or(kind, Ordering::Relaxed) & kind == 0
}

/// Says why a QP has failed: the first one of which the peer was silent even where nothing is logged.
fn tell(diagnosis: &Diagnosis) {
    let kind = match diagnosis.failure.reason {
        Reason::NoAnswer | Reason::SequenceNaks => 1,
        Reason::ReceiverNotReady => 2,
        _ => 0,
    };
    say(kind, diagnosis);
}

#[cfg(not(target_family = "wasm"))]
fn say(kind: u8, what: &dyn std::fmt::Display) {
    if kind != 0 && is_first(kind) {
        tracing::warn!(target: softrnic_diagnosis::ALWAYS, "{what}");
    } else {
        tracing::warn!(target: "softrnic::qp", "{what}");
    }
}

#[cfg(target_family = "wasm")]
fn say(kind: u8, _: &dyn std::fmt::Display) {
    is_first(kind);
}
