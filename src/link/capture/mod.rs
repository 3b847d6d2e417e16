//! A layer that records every datagram in a pcapng file which Wireshark opens.
//!
//! It wraps any link and sits below [`crate::fault`], so it sees what is really handed to the network. Frames get
//! complete Ethernet, IP and UDP headers: the IP header as the ICRC covers it, made-up but stable MAC addresses,
//! correct checksums. The data path only copies into a queue; a thread builds and writes the frames, a few milliseconds
//! behind. While the queue is full, the link [pauses](Overrun::Paused), or what passes is lost to the file, as
//! [`WhenFull`] says. What is lost is counted in [`LinkCounters::capture_lost`], at the next packet in the file, in the
//! statistics at its end, and on standard error when the file ends.
//!
//! [Faults](crate::fault) above the capture leave a comment at each packet that they touch. A datagram that they drop is
//! recorded although it never leaves, as if it were lost behind this point.

mod exit;
mod file;
mod files;
mod frame;
mod pcapng;
mod port;
mod queue;
mod writer;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use softrnic_mapping::Thread;
use softrnic_sys::BlockedSignals;
use softrnic_wire::{IpHeader, Time, UdpFacts};

use crate::fault::FaultNotes;
use crate::{
    Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Sleeper, TxError, TxSlot,
    delegate_link,
};

pub use file::open as open_file;
use files::Files;
pub use files::{Ring, first_file};
use frame::{Given, Meta, kept_of};
pub use port::CapturePort;
use queue::{Interface, Queue};

/// How soon a paused link is to be asked again, at first. The longer the pause, the longer the interval: whoever asks
/// takes processor time, which the writer may be waiting for.
const RETRY: Duration = Duration::from_micros(200);
const LONGEST_RETRY: Duration = Duration::from_millis(5);

/// What happens while the writer cannot keep up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The link sends and receives nothing: it says that it is paused. Nothing is lost.
    Pause,
    /// The caller waits. Nothing is lost. For links without a lock above them, and without a clock of their own.
    Wait,
    /// Datagrams pass that are lost to the file.
    Lose,
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureOptions {
    /// Bytes that may wait for the writer: it is full with them.
    pub queue_bytes: usize,
    /// What happens then.
    pub when_full: WhenFull,
    /// How many bytes of a frame are kept; all of them if not given.
    pub snap_len: Option<u32>,
    /// Whether there is a new file when the last is full.
    pub ring: Option<Ring>,
    /// The wall-clock time, since 1970, at [`Time::ZERO`] of the links; if absent, the clock is read when the first
    /// datagram passes. Simulations set it, so that their files are reproducible.
    pub epoch: Option<Duration>,
    /// Whether nothing in the file may come from the machine's clock. The statistics at its end then carry the time of
    /// the last packet.
    pub repeatable: bool,
}

impl Default for CaptureOptions {
    fn default() -> CaptureOptions {
        CaptureOptions {
            queue_bytes: 16 << 20,
            when_full: WhenFull::Pause,
            snap_len: None,
            ring: None,
            epoch: None,
            repeatable: false,
        }
    }
}

/// A capture file being written, shared by all links made by [`Capture::wrap`]. It ends when the last of them and the
/// last clone of this are dropped, or when the process exits.
#[derive(Clone)]
pub struct Capture {
    file: Arc<CaptureFile>,
}

struct CaptureFile {
    path: PathBuf,
    options: CaptureOptions,
    queue: Arc<Queue>,
    writer: Option<softrnic_mapping::Thread>,
}

impl Capture {
    /// Creates the file, or empties it; `%p` in `path` becomes the process id, for programs that start others with the
    /// same environment.
    ///
    /// Only its owner can read the file (see [`open_file`]).
    ///
    /// # Errors
    /// Those of opening a file and creating a thread.
    pub fn create(path: impl AsRef<Path>, options: CaptureOptions) -> io::Result<Capture> {
        let path = expand(path.as_ref());
        let file = file::open(&first_file(&path, options.ring))?;
        Capture::to(file, path, options)
    }

    /// Writes to a file that was [opened](open_file) before, and empties it. `path` is the name of the capture, and the
    /// file is its [first](first_file).
    ///
    /// # Errors
    /// Those of emptying a file and creating a thread.
    pub fn to(file: File, path: PathBuf, options: CaptureOptions) -> io::Result<Capture> {
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let queue = Arc::new(Queue::new(options.queue_bytes, options.when_full == WhenFull::Lose));
        let signals = BlockedSignals::new();
        let writer = Thread::spawn(c"softrnic-capture", {
            let (queue, files) = (Arc::clone(&queue), Files::new(path.clone(), options.ring));
            move || writer::run(file, files, &queue, &options)
        })?;
        drop(signals);
        exit::finish_at_exit(&path, &queue);
        let file = CaptureFile { path, options, queue, writer: Some(writer) };
        Ok(Capture { file: Arc::new(file) })
    }

    /// Records what passes through `link`, as the traffic of an interface called `name`.
    pub fn wrap<L: Link>(&self, mut link: L, name: &str) -> CaptureLink<L> {
        link.show_headers();
        link.keep_icrcs();
        let mut capabilities = link.capabilities().clone();
        capabilities.mode.push_str(&format!(", captured to {}", self.file.path.display()));
        let lost = Arc::new(AtomicU64::new(0));
        let interface = self.file.queue.add_interface(Interface {
            name: name.to_owned(),
            description: link.capabilities().mode.clone(),
            lost: Arc::clone(&lost),
        });
        CaptureLink {
            inner: link,
            capture: self.clone(),
            capabilities,
            interface,
            lost,
            reported_lost: 0,
            epoch: self.file.options.epoch,
            keeps: self.file.options.snap_len.map_or(usize::MAX, |snap_len| kept_of(snap_len as usize)),
            pending: None,
            notes: None,
            pause: None,
        }
    }

    /// The file, with `%p` replaced.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Waits until everything recorded so far is in the file; false if that took longer than `timeout`, or writing has
    /// failed.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.file.queue.flush(timeout)
    }

    /// Why writing stopped, if it did. Everything since then is lost to the file, and counted.
    pub fn error(&self) -> Option<String> {
        self.file.queue.error()
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        if !self.queue.is_ours() {
            // A forked child has neither the thread nor the right to write the file.
            std::mem::forget(writer);
        } else if self.queue.finish(exit::FINISH_TIMEOUT) {
            writer.join();
        }
    }
}

/// A link whose datagrams are recorded.
pub struct CaptureLink<L> {
    inner: L,
    capture: Capture,
    capabilities: Capabilities,
    interface: u32,
    lost: Arc<AtomicU64>,
    /// How much of `lost` the packets in the file have reported.
    reported_lost: u64,
    epoch: Option<Duration>,
    /// Bytes of a datagram that are kept, at most.
    keeps: usize,
    pending: Option<(IpHeader, u16)>,
    /// What the faults above do.
    notes: Option<FaultNotes>,
    pause: Option<Pause>,
}

/// The queue was full when something was to be sent or received.
#[derive(Clone, Copy)]
struct Pause {
    since: Time,
    /// When to look again.
    until: Time,
}

impl<L: Link> CaptureLink<L> {
    /// The link below.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// The file.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// What faults above this do to a datagram becomes its comment.
    #[must_use]
    pub fn with_notes(self, notes: FaultNotes) -> CaptureLink<L> {
        CaptureLink { notes: Some(notes), ..self }
    }

    /// Whether something may pass. If not, the link pauses, or the caller waits until it may.
    #[inline]
    fn may_pass(&mut self, now: Time) -> bool {
        if self.capture.file.queue.is_full() && !self.waits() {
            let since = self.pause.map_or(now, |pause| pause.since);
            let retry = (now.since(since) / 4).clamp(RETRY, LONGEST_RETRY);
            self.pause = Some(Pause { since, until: now + retry });
            return false;
        }
        self.pause = None;
        true
    }

    /// The queue is full: waits for the writer, if that is how to deal with it.
    #[cold]
    fn waits(&self) -> bool {
        let CaptureFile { options, queue, .. } = &*self.capture.file;
        let waits = options.when_full == WhenFull::Wait;
        if waits {
            queue.wait_for_room();
        }
        waits
    }

    /// Records the datagram in the slot reserved last.
    fn record_reserved(&mut self, now: Time, (ip, sport): (IpHeader, u16), note: Option<Arc<str>>) {
        let bytes = self.inner.reserved();
        let meta = Meta {
            interface: self.interface,
            outbound: true,
            time: wall_time(&mut self.epoch, now),
            len: bytes.len(),
            given: Given::Datagram { ip, sport, id_is_known: true, has_icrc: true },
        };
        let kept = &bytes[..bytes.len().min(self.keeps)];
        record(&self.capture.file.queue, &self.lost, &mut self.reported_lost, meta, kept, note);
    }

    /// A slot that was reserved and is not committed, but has a note, was dropped by a fault.
    fn record_dropped(&mut self, now: Time) {
        if let Some(pending) = self.pending.take()
            && let Some(note) = self.notes.as_ref().and_then(FaultNotes::take)
        {
            self.record_reserved(now, pending, Some(note));
        }
    }
}

impl<L: Link> Link for CaptureLink<L> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.record_dropped(now);
        if !self.may_pass(now) {
            return Err(TxError::Full);
        }
        let slot = self.inner.reserve(now, flow, len)?;
        let ip = IpHeader { facts: slot.facts.ip, tos: flow.tos, ttl: flow.ttl, flow_label: 0 };
        self.pending = Some((ip, slot.facts.src_port));
        Ok(slot)
    }

    fn commit(&mut self, now: Time) {
        if let Some(pending) = self.pending.take() {
            let note = self.notes.as_ref().and_then(FaultNotes::take);
            self.record_reserved(now, pending, note);
        }
        self.inner.commit(now);
    }

    fn flush(&mut self, now: Time) {
        self.record_dropped(now);
        self.inner.flush(now);
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked() || self.pause.is_some()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        self.record_dropped(now);
        if !self.may_pass(now) {
            return Overrun::Paused;
        }
        let CaptureLink { inner, capture, interface, lost, reported_lost, epoch, keeps, notes, .. } = self;
        inner.receive(now, budget, &mut |datagram| {
            sink(datagram);
            // The faults above have decided by now.
            let note = notes.as_ref().and_then(FaultNotes::take);
            if let Some(UdpFacts { ip: facts, .. }) = datagram.facts() {
                let meta = Meta {
                    interface: *interface,
                    outbound: false,
                    time: wall_time(epoch, now),
                    len: datagram.bytes.len(),
                    given: Given::Datagram {
                        ip: IpHeader { facts, tos: datagram.tos, ttl: datagram.ttl, flow_label: 0 },
                        sport: datagram.sport,
                        id_is_known: !matches!(datagram.id, HeaderId::Hidden { .. }),
                        has_icrc: datagram.has_icrc,
                    },
                };
                let kept = &datagram.bytes[..datagram.bytes.len().min(*keeps)];
                record(&capture.file.queue, lost, reported_lost, meta, kept, note);
            }
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        // What is due below cannot be done any sooner.
        self.pause.map(|pause| pause.until).or_else(|| self.inner.poll_timeout())
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        if self.pause.is_some() {
            // Nobody is to wake for what cannot be received.
            self.inner.watch(Sleeper::Nobody);
            return false;
        }
        self.inner.watch(sleeper)
    }

    fn counters(&self) -> LinkCounters {
        let inner = self.inner.counters();
        LinkCounters { capture_lost: inner.capture_lost + self.lost.load(Ordering::Relaxed), ..inner }
    }

    fn stop_segmenting(&mut self) {
        self.inner.stop_segmenting();
        self.capabilities.segments = self.inner.capabilities().segments;
    }

    delegate_link!(self => self.inner;
        reserved show receives_in_memory sends_in_memory is_quiet has_room descriptor caller_wake_fd join
        leave reaches sharing carrier readdress packet_memory keep_icrcs leave_payloads show_headers
    );
}

fn record(
    queue: &Queue,
    lost: &AtomicU64,
    reported: &mut u64,
    meta: Meta,
    kept: &[u8],
    note: Option<Arc<str>>,
) {
    let lost_so_far = lost.load(Ordering::Relaxed);
    match queue.push(meta, kept, note, lost_so_far - *reported) {
        true => *reported = lost_so_far,
        false => {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Nanoseconds since 1970. After the first datagram only the links' clock counts, so that intervals are right even if
/// the machine's clock is set.
fn wall_time(epoch: &mut Option<Duration>, now: Time) -> u64 {
    let since_origin = Duration::from_nanos(now.as_nanos());
    let epoch = epoch.get_or_insert_with(|| {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        wall.saturating_sub(since_origin)
    });
    u64::try_from((*epoch + since_origin).as_nanos()).unwrap_or(u64::MAX)
}

fn expand(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &std::process::id().to_string()).into(),
        _ => path.to_owned(),
    }
}
