//! The link itself.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use softrnic_af_xdp::{Queue, Slot};
use softrnic_sys::Uncancelled;
use softrnic_wire::{Frame, FrameHeader, IpFacts, Time, UdpFacts};

use softrnic_link::{Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, TxError, TxSlot};
use softrnic_netdev::{Host, HostEvent};

use super::audit::AddQueue;
use super::grant::Grant;
use super::identity::Identity;
use super::membership::Membership;
use super::open;
use super::options::{XdpError, XdpMode, XdpOptions};
use super::paths::{Paths, Target};
use super::program::{Verdicts, XdpVerdicts};
use super::readiness::Readiness;
use super::steering::Steering;
use softrnic_link::FrameAudit;

/// How often the host's changes are read while datagrams flow, and while none do.
const HOST_INTERVAL_BUSY: Duration = Duration::from_millis(10);
const HOST_INTERVAL_IDLE: Duration = Duration::from_millis(1);
/// The same while a datagram waits for a neighbour.
const HOST_INTERVAL_PENDING: Duration = Duration::from_micros(100);

/// How soon to try again to send what the interface had no room for.
const RETRY: Duration = Duration::from_micros(100);

/// The shortest Ethernet frame, without its checksum.
const MIN_FRAME: usize = 60;

/// RoCEv2 over AF_XDP on one interface.
///
/// As with hardware, datagrams that the device sends to itself never reach the interface. The UDP checksum is sent as 0
/// and ignored on receive: the ICRC protects better, and virtual interfaces leave it unfilled. IPv4 identification is
/// 0, with DF set.
pub struct XdpLink {
    pub(super) capabilities: Capabilities,
    pub(super) mode: XdpMode,
    pub(super) identity: Identity,
    pub(super) host: Host,
    pub(super) host_checked: Time,
    /// The first is the only one that transmits.
    pub(super) queues: Vec<Queue>,
    pub(super) steering: Steering,
    pub(super) verdicts: Verdicts,
    pub(super) membership: Membership,
    pub(super) paths: Paths,
    pub(super) reserved: Option<Reserved>,
    /// Slots being sent to ourselves.
    pub(super) own: VecDeque<OwnFrame>,
    pub(super) own_since: Time,
    /// When to try again to send what the interface had no room for.
    pub(super) retry_at: Option<Time>,
    /// The queue to read first next time.
    pub(super) first_queue: usize,
    pub(super) readiness: Readiness,
    pub(super) counters: LinkCounters,
    /// Keeps the program attached.
    pub(super) _program: OwnedFd,
}

/// A slot being filled.
pub(super) struct Reserved {
    slot: Slot,
    header_len: usize,
    /// Bytes after the headers.
    len: usize,
    target: Target,
}

/// A slot to be received by ourselves.
pub(super) struct OwnFrame {
    slot: Slot,
    len: usize,
}

impl XdpLink {
    /// Opens a link on `interface`, which takes the privileges listed at [`Grant`].
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(interface: &str, options: &XdpOptions) -> Result<XdpLink, XdpError> {
        XdpLink::with_grant(Grant::acquire(interface, options)?, options)
    }

    /// Opens a link with what a privileged process prepared. The grant has determined the attachment and the queues.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn with_grant(grant: Grant, options: &XdpOptions) -> Result<XdpLink, XdpError> {
        open::open(grant, options)
    }

    /// What was obtained, and what was refused and why.
    pub fn mode(&self) -> &XdpMode {
        &self.mode
    }

    /// The interface's index.
    pub fn ifindex(&self) -> u32 {
        self.identity.ifindex
    }

    /// What the XDP program has done so far.
    ///
    /// # Errors
    /// Those of reading its map.
    pub fn verdicts(&self) -> io::Result<XdpVerdicts> {
        self.verdicts.read()
    }

    /// Where all packet memory is.
    pub fn audit(&self) -> FrameAudit {
        let mut audit = FrameAudit {
            tx_reserved: u64::from(self.reserved.is_some()),
            tx_own: self.own.len() as u64,
            ..FrameAudit::default()
        };
        for queue in &self.queues {
            audit.add_receive(queue.receive_count());
        }
        if let Some(count) = self.queues[0].transmit_count() {
            audit.add_transmit(count);
        }
        audit
    }

    /// Reads the host's changes, unless that was done within `interval`.
    fn check_host(&mut self, now: Time, interval: Duration) {
        if now.since(self.host_checked) < interval {
            return;
        }
        self.host_checked = now;
        // The libraries for netlink and BPF call the C library, which has cancellation points.
        let _uncancelled = Uncancelled::new();
        let mut changed = false;
        let result = self.host.poll(&mut |event| {
            changed |= !matches!(event, HostEvent::NeighbourChanged { .. } | HostEvent::RoutesChanged);
        });
        if changed || result.is_err() {
            self.identity.update(&self.host, &mut self.steering);
            self.paths.clear();
            self.set_blocked(now, self.is_blocked());
        }
    }

    /// A link blocked because its interface is down needs no driving: it is unblocked when the interface comes up.
    fn set_blocked(&mut self, now: Time, blocked: bool) {
        self.retry_at = (blocked && self.identity.is_up).then_some(now + RETRY);
    }

    /// The target and headers of `flow`. Reads the host's changes if its neighbour is not known.
    fn path(&mut self, now: Time, flow: &Flow) -> (Target, FrameHeader, usize) {
        let path = self.paths.get(now, flow, &self.identity, &mut self.host);
        if path.target != Target::Pending {
            return (path.target, path.header(flow), path.max_datagram);
        }
        self.check_host(now, HOST_INTERVAL_PENDING);
        let path = self.paths.get(now, flow, &self.identity, &mut self.host);
        (path.target, path.header(flow), path.max_datagram)
    }

    /// Makes the kernel send what is queued; returns whether the interface is down.
    fn kick(&mut self) -> bool {
        let kicked = self.queues[0].kick();
        self.counters.tx_calls += kicked.calls;
        self.counters.tx_errors += kicked.dropped;
        kicked.down
    }

    fn receive_own(&mut self, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> usize {
        // What the sink makes the link send to itself is left for the next call.
        let count = self.own.len().min(budget);
        for _ in 0..count {
            let Some(OwnFrame { slot, len }) = self.own.pop_front() else {
                break;
            };
            deliver(self.queues[0].bytes(&slot, 0..len), &mut self.counters, sink);
            self.queues[0].give_back(slot);
        }
        count
    }

    fn receive_queue(&mut self, queue: usize, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> usize {
        let queue = &mut self.queues[queue];
        if self.mode.busy_poll {
            queue.wake_receive();
        }
        let counters = &mut self.counters;
        let received = queue.receive(budget, &mut |frame| deliver(frame, counters, sink));
        if queue.needs_wakeup() {
            queue.wake_receive();
        }
        self.counters.rx_malformed += received.malformed;
        self.counters.rx_calls += u64::from(received.frames > 0);
        received.frames
    }
}

impl Link for XdpLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        if let Some(abandoned) = self.reserved.take() {
            self.queues[0].give_back(abandoned.slot);
        }
        if len == 0 || len > self.identity.max_datagram {
            return Err(TxError::TooLong);
        }
        let (target, header, max_datagram) = self.path(now, flow);
        let usable = match target {
            Target::Own => true,
            Target::Network | Target::Both => self.identity.is_up,
            Target::Pending | Target::Unreachable => false,
        };
        if !usable {
            return Err(TxError::Unreachable);
        }
        if len > max_datagram {
            // The MTU of the interface or the route is smaller than what the link was opened for. It may grow again;
            // until then it is as if a switch on the way dropped the frame.
            self.counters.tx_errors += 1;
            return Err(TxError::Unreachable);
        }
        let slot = self.queues[0].take().ok_or(TxError::Full)?;
        let header_len = header.wire_len();
        let reserved = self.reserved.insert(Reserved { slot, header_len, len, target });
        let frame = self.queues[0].bytes_mut(&reserved.slot, 0..header_len + len);
        header.emit(frame, len);
        Ok(TxSlot {
            bytes: &mut frame[header_len..],
            facts: UdpFacts::roce(header.ip.facts, header.src_port),
            wants_icrc: true,
        })
    }

    fn reserved(&self) -> &[u8] {
        let Some(Reserved { slot, header_len, len, .. }) = &self.reserved else {
            return &[];
        };
        self.queues[0].bytes(slot, *header_len..header_len + len)
    }

    fn commit(&mut self, now: Time) {
        let Some(Reserved { slot, header_len, len, target }) = self.reserved.take() else {
            return;
        };
        self.counters.tx_datagrams += 1;
        self.counters.tx_bytes += len as u64;
        let len = header_len + len;
        if target == Target::Own {
            self.own_since = now;
            self.own.push_back(OwnFrame { slot, len });
            return;
        }
        if target == Target::Both
            && let Some(copy) = self.queues[0].take()
        {
            self.queues[0].copy(&slot, &copy, len);
            self.own_since = now;
            self.own.push_back(OwnFrame { slot: copy, len });
        }
        let padded = len.max(MIN_FRAME);
        self.queues[0].bytes_mut(&slot, len..padded).fill(0);
        self.queues[0].queue(slot, padded);
        // Sending batches early: frames are still in the cache when the kernel copies them, and the peer can start
        // earlier.
        if self.queues[0].has_batch() {
            self.kick();
        }
    }

    fn flush(&mut self, now: Time) {
        let down = self.kick();
        self.set_blocked(now, !down && self.queues[0].is_blocked());
        self.check_host(now, HOST_INTERVAL_BUSY);
    }

    fn is_blocked(&self) -> bool {
        self.retry_at.is_some()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        let mut left = budget;
        left -= self.receive_own(left, sink);
        let queues = self.queues.len();
        for turn in 0..queues {
            left -= self.receive_queue((self.first_queue + turn) % queues, left, sink);
        }
        self.first_queue = (self.first_queue + 1) % queues;
        self.check_host(now, if left == budget { HOST_INTERVAL_IDLE } else { HOST_INTERVAL_BUSY });
        if left == 0 { Overrun::Budget } else { Overrun::Drained }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = (!self.own.is_empty()).then_some(self.own_since);
        [own, self.retry_at].into_iter().flatten().min()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.readiness.descriptor())
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if !group.is_multicast() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.identity.groups.contains(&group) {
            return Ok(());
        }
        self.membership.join(group, self.identity.ifindex, &self.host)?;
        self.steering.join(group)?;
        self.identity.groups.insert(group);
        self.paths.clear();
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.membership.leave(group);
        if !self.identity.groups.remove(&group) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        self.steering.leave(group)?;
        self.paths.clear();
        Ok(())
    }

    fn counters(&self) -> LinkCounters {
        let mut counters = self.counters;
        for queue in &self.queues {
            if let Ok(statistics) = queue.socket().statistics() {
                counters.rx_overruns += statistics.overruns;
                counters.tx_errors += statistics.invalid;
            }
        }
        counters
    }

    fn packet_memory(&self) -> Option<FrameAudit> {
        Some(self.audit())
    }
}

fn deliver(frame: &[u8], counters: &mut LinkCounters, sink: &mut dyn FnMut(Datagram<'_>)) {
    let frame = match Frame::parse(frame) {
        Ok(frame) if frame.ip_checksum_ok() => frame,
        _ => {
            counters.rx_malformed += 1;
            return;
        }
    };
    let ip = frame.header.ip;
    let (src, dst, id) = match ip.facts {
        IpFacts::V4 { src, dst, id, flags_frag } => {
            (src.into(), dst.into(), HeaderId::Seen { id, flags: flags_frag })
        }
        IpFacts::V6 { src, dst } => (src.into(), dst.into(), HeaderId::None),
    };
    counters.rx_datagrams += 1;
    counters.rx_bytes += frame.transport.len() as u64;
    sink(Datagram {
        src,
        dst,
        sport: frame.header.src_port,
        tos: ip.tos,
        ttl: ip.ttl,
        id,
        ip_header: frame.ip_bytes().get(..ip.wire_len()),
        bytes: frame.transport,
        has_icrc: true,
        record: None,
    });
}
