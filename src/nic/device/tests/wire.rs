//! A link between two devices of the same process, which records what each did on it.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use softrnic_link::{
    Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Sleeper, TxError, TxSlot,
};
use softrnic_wire::{IpFacts, Packet, Psn, Time, UdpFacts};

/// How long a paused link wants to be left alone.
pub const PAUSE: Duration = Duration::from_micros(200);

/// One direction: datagrams in flight, and what happened.
#[derive(Default)]
struct Pipe {
    datagrams: VecDeque<(Flow, Vec<u8>)>,
    /// Datagrams that ever entered.
    sent: usize,
    /// Their opcodes and PSNs, in order.
    packets: Vec<(u8, Psn)>,
    /// Flushes that sent something.
    flushes: usize,
    /// Calls of receive.
    receives: usize,
    /// Everything is lost from now on.
    cut: bool,
    /// How many datagrams there is no room for.
    refusals: usize,
    /// They come through memory.
    in_memory: bool,
    /// They can be shown to the receiver without waking it.
    shows: bool,
    /// Called before datagrams leave.
    leaving: Option<Box<dyn FnMut() + Send>>,
    says_quiet: bool,
    /// Its end lets nothing pass.
    paused: bool,
    /// A caller sleeps at the end of it, and is rung for.
    rings_caller: bool,
    /// The clock, and the nanoseconds by which each received datagram advances it.
    slow: Option<(&'static AtomicU64, u64)>,
}

/// A direction with its descriptor.
pub struct Direction {
    pipe: Mutex<Pipe>,
    changed: Condvar,
    ready: OwnedFd,
    bell: OwnedFd,
}

impl Direction {
    fn new() -> Arc<Direction> {
        // SAFETY: a new descriptor, owned from here on.
        let ready = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)) };
        // SAFETY: likewise.
        let bell = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        Arc::new(Direction { pipe: Mutex::new(Pipe::default()), changed: Condvar::new(), ready, bell })
    }

    fn lock(&self) -> MutexGuard<'_, Pipe> {
        self.pipe.lock().expect("no test panics with it held")
    }

    pub fn sent(&self) -> usize {
        self.lock().sent
    }

    pub fn packets(&self) -> Vec<(u8, Psn)> {
        self.lock().packets.clone()
    }

    pub fn flushes(&self) -> usize {
        self.lock().flushes
    }

    pub fn receives(&self) -> usize {
        self.lock().receives
    }

    /// Readable when datagrams have come.
    pub fn descriptor(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Nothing passes at its end, as at a capture whose file cannot keep up.
    pub fn pause(&self, paused: bool) {
        self.lock().paused = paused;
    }

    /// Loses everything from now on.
    pub fn cut(&self) {
        self.lock().cut = true;
    }

    /// Receiving takes no system call from now on.
    pub fn is_in_memory(&self) {
        self.lock().in_memory = true;
    }

    /// Datagrams can be shown without waking the receiver, from now on.
    pub fn shows(&self) {
        self.lock().shows = true;
    }

    /// Calls `leaving` before datagrams leave, from now on.
    pub fn before_leaving(&self, leaving: impl FnMut() + Send + 'static) {
        self.lock().leaving = Some(Box::new(leaving));
    }

    /// The link says when it is quiet, from now on.
    pub fn says_quiet(&self) {
        self.lock().says_quiet = true;
    }

    /// Has no room for the next `count` datagrams.
    pub fn refuse(&self, count: usize) {
        self.lock().refusals = count;
    }

    /// Receiving a datagram takes this long from now on.
    pub fn slow_down(&self, clock: &'static AtomicU64, takes: Duration) {
        self.lock().slow = Some((clock, takes.as_nanos() as u64));
    }

    /// Waits until at least this many datagrams were sent; the bound is only for a test that has failed.
    pub fn wait_sent(&self, count: usize) {
        let pipe = self.lock();
        let (pipe, timeout) = self
            .changed
            .wait_timeout_while(pipe, Duration::from_secs(20), |pipe| pipe.sent < count)
            .expect("no test panics with it held");
        assert!(!timeout.timed_out(), "{} of {count} datagrams were sent", pipe.sent);
    }
}

/// One end.
pub struct WireLink {
    out: Arc<Direction>,
    inward: Arc<Direction>,
    queued: Vec<(Flow, Vec<u8>)>,
    /// Something was shown for which the receiver has not been woken.
    shown: bool,
    slot: Option<(Flow, Vec<u8>)>,
    capabilities: Capabilities,
    counters: LinkCounters,
    paused_until: Option<Time>,
}

/// Two ends, and the directions: from the first to the second, and back. Up to `segments` datagrams leave in one send.
pub fn wire(segments: usize) -> (WireLink, WireLink, Arc<Direction>, Arc<Direction>) {
    let (there, back) = (Direction::new(), Direction::new());
    let end = |out: &Arc<Direction>, inward: &Arc<Direction>| WireLink {
        out: out.clone(),
        inward: inward.clone(),
        queued: Vec::new(),
        shown: false,
        slot: None,
        paused_until: None,
        capabilities: Capabilities {
            mode: "test".into(),
            max_datagram: 8192,
            ip_mtu: 8220,
            sees_ip_header: false,
            segments,
            receive_buffer: 1 << 20,
            zero_copy: false,
            shared_memory: true,
            slot: None,
        },
        counters: LinkCounters::default(),
    };
    (end(&there, &back), end(&back, &there), there, back)
}

impl WireLink {
    /// What is queued arrives, or is lost.
    fn let_go(&mut self) {
        let leaving = self.out.lock().leaving.take();
        if let Some(mut leaving) = leaving {
            leaving();
            self.out.lock().leaving = Some(leaving);
        }
        let mut pipe = self.out.lock();
        pipe.sent += self.queued.len();
        pipe.packets.extend(
            self.queued.iter().map(|(_, bytes)| (bytes[0], Packet::parse(bytes).expect("ours").bth.psn)),
        );
        let queued = self.queued.drain(..);
        if !pipe.cut {
            pipe.datagrams.extend(queued);
        }
    }
}

impl Link for WireLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receives_in_memory(&self, _now: Time) -> bool {
        self.inward.lock().in_memory
    }

    fn is_quiet(&mut self, _now: Time) -> bool {
        let pipe = self.inward.lock();
        pipe.says_quiet && pipe.datagrams.is_empty() && self.queued.is_empty() && !self.shown
    }

    fn sends_in_memory(&mut self, _now: Time, _flow: &Flow) -> bool {
        self.out.lock().shows
    }

    fn reserve(&mut self, _now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        let refusals = &mut self.out.lock().refusals;
        if *refusals > 0 {
            *refusals -= 1;
            return Err(TxError::Full);
        }
        let (_, bytes) = self.slot.insert((*flow, vec![0; len]));
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else {
            return Err(TxError::Unreachable);
        };
        Ok(TxSlot { bytes, facts: UdpFacts::roce(IpFacts::v4(src, dst), flow.sport), wants_icrc: true })
    }

    fn reserved(&self) -> &[u8] {
        self.slot.as_ref().map_or(&[], |(_, bytes)| bytes)
    }

    fn commit(&mut self, _now: Time) {
        self.queued.extend(self.slot.take());
    }

    fn show(&mut self) {
        if self.out.lock().shows {
            self.let_go();
            self.shown = true;
        }
    }

    fn flush(&mut self, _now: Time) {
        if self.queued.is_empty() && !std::mem::take(&mut self.shown) {
            return;
        }
        self.let_go();
        let mut pipe = self.out.lock();
        pipe.flushes += 1;
        if !pipe.cut {
            let one = 1u64.to_ne_bytes();
            let woken = if pipe.rings_caller { &self.out.bell } else { &self.out.ready };
            // SAFETY: eight bytes of ours to an open descriptor.
            unsafe { libc::write(woken.as_raw_fd(), one.as_ptr().cast(), 8) };
        }
        self.out.changed.notify_all();
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        let mut pipe = self.inward.lock();
        pipe.receives += 1;
        self.paused_until = pipe.paused.then_some(now + PAUSE);
        if pipe.paused {
            return Overrun::Paused;
        }
        let count = budget.min(pipe.datagrams.len());
        let taken: Vec<_> = pipe.datagrams.drain(..count).collect();
        let overrun = if pipe.datagrams.is_empty() { Overrun::Drained } else { Overrun::Budget };
        if overrun == Overrun::Drained {
            let mut count = [0; 8];
            // SAFETY: eight bytes of ours from an open descriptor.
            unsafe { libc::read(self.inward.ready.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        }
        if let Some((clock, takes)) = pipe.slow {
            clock.fetch_add(takes * count as u64, Ordering::SeqCst);
        }
        drop(pipe);
        for (flow, bytes) in &taken {
            sink(Datagram {
                src: flow.src,
                dst: flow.dst,
                sport: flow.sport,
                tos: flow.tos,
                ttl: flow.ttl,
                id: HeaderId::Hidden { place: 0 },
                ip_header: None,
                bytes,
                has_icrc: true,
                record: None,
            });
        }
        overrun
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.paused_until
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.inward.ready.as_raw_fd())
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        let mut pipe = self.inward.lock();
        pipe.rings_caller = sleeper == Sleeper::Caller;
        sleeper != Sleeper::Nobody && !pipe.datagrams.is_empty()
    }

    fn caller_wake_fd(&self) -> Option<RawFd> {
        Some(self.inward.bell.as_raw_fd())
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}
