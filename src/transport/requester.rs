//! The requester: turns work requests into request packets (IBTA 9.7.2, 9.7.3), and responses into completions
//! (`requester/completer.rs`). It owns the send queue and everything that decides when it sends.

mod completer;
mod flight;
mod paths;
mod request;
mod rtt;
mod selective;
mod send_queue;
mod timers;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use softrnic_wire::{Body, Headers, IcrcForm, Op, Psn, Time};

use crate::completion::QpEvent;
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::dcqcn::{RateControl, RateParameters};
use crate::failure::{Attempt, Failure, Reason};
use crate::host::{Host, LocalOpFault, Transmit, TransmitError};
use crate::paths::Paths;
use crate::planted::Fault;
use crate::qp::{Progress, QpStatus, Stop};
use crate::segment;
use crate::tuning::ACK_SPACING;
use crate::wqe::{LocalOp, SendOp, SendWqe};
use crate::{QpState, QpType, Status};

pub(crate) use completer::Answer;
use flight::{Need, Standing};
use rtt::RttEstimator;
use selective::Scoreboard;
use send_queue::{Entry, SendQueue};
use timers::{Timers, take_due};

/// The sending half of a QP.
pub(crate) struct Requester<D> {
    queue: SendQueue<D>,
    timers: Timers,
    rtt: RttEstimator,
    rate_parameters: RateParameters,
    /// Paces the QP once a CNP has arrived.
    rate: Option<RateControl>,
    /// Packets sent since the last one that asked for an ACK.
    since_ack_request: u32,
    /// Retries left after timeouts and sequence errors.
    retries_left: u8,
    /// Retries left after RNR NAKs.
    rnr_retries_left: u8,
    /// Waiting for the RNR timer.
    rnr_wait: bool,
    /// The peer has had no receive since the oldest request became the oldest.
    rnr_waiting: Option<RnrWaiting>,
    /// `una` when the requester last went back; a second NAK for it says nothing new.
    restarted_at: Option<Psn>,
    /// Early resends since the last progress.
    early_resends: u32,
    /// Whether the peer answers this QP.
    standing: Standing,
    /// What was sent last has not been answered, while other QPs of the peer have been.
    lost_alone: bool,
    /// When the timers were started whose end was the first that brought no answer.
    silent_since: Option<Time>,
    /// When the retransmission timers were started.
    waits_since: Time,
    /// When the host was last asked about the peer's process, since the peer has last answered.
    asked_at: Option<Time>,
    /// All retries are used up, and the answer decides what follows.
    awaits_answer: bool,
    /// An RNR NAK has come although no retry is left. If the peer's process is stopped, it is waited for until then.
    given_up_unless_stopped: Option<Time>,
    /// SQ_DRAINED has been raised for this stay in SQD.
    drained_reported: bool,
    /// What is known of packets behind the oldest that is missing.
    board: Option<Box<Scoreboard>>,
    /// How long what is missing is waited for before it is sent again, in nanoseconds: longer than packets are late.
    lateness: u32,
    /// A packet is to be sent again, to hear what the peer has.
    loss_probe: bool,
    /// Round trips with much under way, as far as they were counted.
    busy_round_trips: u16,
    /// Many paths to the peer, if it agrees to that.
    pub paths: Option<Box<Paths>>,
}

/// How long the peer has had no receive.
#[derive(Clone, Copy)]
struct RnrWaiting {
    /// The oldest PSN that is not acknowledged.
    at: Psn,
    since: Time,
    /// The host knows.
    is_told: bool,
}

/// Why no further request is sent now.
enum Halt {
    Stop(Stop),
    Fatal(Reason),
}

/// A packet that has been sent.
struct Sent {
    from: Psn,
    /// One past the last PSN that it uses.
    to: Psn,
    /// Its cost in the window.
    cost: u64,
    ack_req: bool,
    path: u8,
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt::Stop(stop)
    }
}

impl<D> Requester<D> {
    pub fn new(rate_parameters: RateParameters) -> Requester<D> {
        Requester {
            queue: SendQueue::new(Psn::ZERO),
            timers: Timers::STOPPED,
            rtt: RttEstimator::default(),
            rate_parameters,
            rate: None,
            since_ack_request: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            rnr_wait: false,
            rnr_waiting: None,
            restarted_at: None,
            early_resends: 0,
            standing: Standing::New,
            lost_alone: false,
            silent_since: None,
            waits_since: Time::ZERO,
            asked_at: None,
            awaits_answer: false,
            given_up_unless_stopped: None,
            drained_reported: false,
            board: None,
            lateness: 0,
            loss_probe: false,
            busy_round_trips: 0,
            paths: None,
        }
    }

    /// Adds its part to a snapshot.
    pub fn describe(&self, status: &mut QpStatus) {
        status.send_psn = self.queue.cursor;
        status.una = self.queue.una;
        status.in_flight = self.queue.in_flight;
        status.charged = self.charged();
        status.queued_sends = self.queue.entries.len();
        status.doubts_peer = self.asked_at.is_some();
        status.retries_left = self.retries_left;
        status.rnr_wait = self.rnr_wait;
        let in_flight = self.queue.in_flight > 0 || self.rnr_wait;
        let without_receive = self.rnr_waiting.as_ref().map(|waiting| waiting.since);
        status.waits_since = without_receive.or(self.silent_since).or(in_flight.then_some(self.waits_since));
        status.paced_rate = self.rate.as_ref().map(RateControl::current);
    }

    /// Whether [`post`](Self::post) accepts another work request.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.queue.has_room()
    }

    #[inline]
    pub fn post(&mut self, wqe: SendWqe<D>) {
        self.queue.push(wqe);
    }

    /// The QP has entered RTS; `first` if it comes from RTR.
    pub fn start(&mut self, cx: &Context, first: bool) {
        if first {
            self.queue.restart_at(cx.attr.sq_psn);
        }
        self.retries_left = cx.attr.retry_cnt;
        self.rnr_retries_left = cx.attr.rnr_retry;
    }

    /// The QP has entered SQD; `again` if it was there before.
    pub fn drain<H: Host<Data = D>>(&mut self, cx: &Context, again: bool, host: &mut H) {
        self.drained_reported &= again;
        self.report_drained(cx, host);
    }

    /// SQ_DRAINED: everything that was started before SQD is complete.
    pub fn report_drained<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) {
        if cx.state == QpState::Sqd && !self.drained_reported && self.queue.is_drained() {
            self.drained_reported = true;
            if cx.attr.sqd_notify {
                host.event(QpEvent::SendQueueDrained);
            }
        }
    }

    /// Whether there are work requests to be sent.
    pub fn has_requests(&self) -> bool {
        (self.queue.at < self.queue.entries.len() || self.may_have_lost()) && !self.rnr_wait
    }

    /// Whether something that was sent is not acknowledged.
    pub fn has_outstanding(&self) -> bool {
        self.queue.is_outstanding()
    }

    /// Whether the next request is a single packet that the peer's application finds only in its memory.
    pub fn next_is_short_write(&self, cx: &Context) -> bool {
        self.queue.entries.get(self.queue.at).is_some_and(|entry| {
            matches!(entry.wqe.op, SendOp::Write { imm: None, .. }) && entry.wqe.length <= cx.config.mtu
        })
    }

    /// When [`on_timeout`](Self::on_timeout) is due; never, if no timer runs.
    pub fn deadline(&self) -> Time {
        self.timers.next()
    }

    /// Runs every timer that is due.
    pub fn on_timeout<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, host: &mut H) -> Outcome {
        if take_due(&mut self.timers.rnr, now) {
            let outcome = self.on_rnr_timeout(cx, now, host);
            if outcome != Outcome::Continue {
                return outcome;
            }
        }
        take_due(&mut self.timers.pace, now);
        if take_due(&mut self.timers.rate, now)
            && let Some(rate) = &mut self.rate
        {
            if rate.on_timer(now) {
                self.timers.rate = rate.next_timer();
            } else {
                self.rate = None;
            }
        }
        if take_due(&mut self.timers.ack, now) {
            return self.on_ack_timeout(cx, now, host);
        }
        if take_due(&mut self.timers.early, now) {
            self.on_early_timeout(cx, now, host);
        }
        Outcome::Continue
    }

    /// A CNP has arrived: sends more slowly. From a peer that knows of paths, it names the source port that was marked.
    pub fn on_cnp<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, port: u16, host: &mut H) {
        if !cx.config.congestion_control || !matches!(cx.service, QpType::Rc | QpType::XrcInitiator) {
            return host.count(Counter::CnpIgnored);
        }
        host.count(Counter::CnpHandled);
        if let Some(paths) = &mut self.paths
            && !paths.note_marked(cx.attr.path.sport, port)
        {
            return;
        }
        match &mut self.rate {
            Some(rate) => rate.on_cnp(now),
            None => self.rate = Some(RateControl::new(self.rate_parameters, now)),
        }
        self.timers.rate = self.rate.as_ref().map_or(Time::NEVER, RateControl::next_timer);
    }

    /// The work request at the front fails for this reason.
    #[cold]
    pub fn fail_front<H: Host<Data = D>>(&mut self, cx: &Context, reason: Reason, host: &mut H) {
        let attempt = self.queue.entries.front().map(|front| Attempt::of(&front.wqe));
        let since = match reason {
            Reason::NoAnswer => self.silent_since,
            Reason::ReceiverNotReady => self.rnr_waiting.map(|waiting| waiting.since),
            _ => None,
        };
        host.failed(Failure { since, ..Failure::new(cx, reason, attempt) });
        self.complete_front(cx, reason.status(), host);
    }

    /// Stops sending for good.
    pub fn stop<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.timers = Timers::STOPPED;
        self.rate = None;
        self.rnr_wait = false;
        self.drop_flight(host);
    }

    /// Completes every work request as flushed.
    pub fn flush<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) {
        while !self.queue.entries.is_empty() {
            self.complete_front(cx, Status::Flushed, host);
        }
    }

    /// Returns to the initial state, without completions.
    pub fn reset<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.drop_flight(host);
        host.retire_sends(self.queue.entries.len() as u32);
        *self = Requester::new(self.rate_parameters);
    }

    /// Sends requests until the budget is used up or something stops it.
    pub fn transmit<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        host: &mut H,
        budget: usize,
        progress: &mut Progress,
    ) -> Outcome {
        while progress.sent < budget {
            match self.transmit_next(cx, now, host, progress) {
                Ok(()) => {}
                Err(Halt::Stop(stop)) => {
                    progress.stop = stop;
                    return Outcome::Continue;
                }
                Err(Halt::Fatal(reason)) => {
                    progress.stop = Stop::Idle;
                    return Outcome::Fatal(reason);
                }
            }
        }
        progress.stop = Stop::Budget;
        Outcome::Continue
    }

    /// Sends the packet at the cursor, or runs the local operation there (which sends nothing).
    fn transmit_next<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        host: &mut H,
        progress: &mut Progress,
    ) -> Result<(), Halt> {
        if !cx.sends_requests() || self.rnr_wait {
            return Err(Stop::Idle.into());
        }
        if self.may_have_lost() && self.transmit_lost(cx, now, host, progress)? {
            return Ok(());
        }
        if self.queue.at == self.queue.entries.len() {
            return Err(Stop::Idle.into());
        }
        if self.queue.at == self.queue.started && !self.start_entry(cx, host)? {
            return Ok(());
        }
        if self.queue.entries[self.queue.at].fault.is_some() {
            return Err(Stop::Idle.into());
        }
        self.send_at_cursor(cx, now, host, progress)
    }

    /// Starts the next work request; `false` if it was a local operation, which is complete.
    fn start_entry<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) -> Result<bool, Halt> {
        if cx.state == QpState::Sqd {
            return Err(Stop::Idle.into());
        }
        let queue = &mut self.queue;
        let entry = &queue.entries[queue.at];
        if entry.wqe.fence && !queue.awaited.is_empty() && !cx.config.has(Fault::NoFence) {
            return Err(Stop::Idle.into());
        }
        let possible = entry.wqe.op.is_of(cx.service);
        if possible && let SendOp::Local(op) = entry.wqe.op {
            // Earlier requests may still use the key that is invalidated (IBTA 10.6.5: strict ordering).
            if matches!(op, LocalOp::Invalidate(_)) && queue.at > 0 {
                return Err(Stop::Idle.into());
            }
            // Memory management operation error, as verbs call it (IBTA 11.6.2).
            let fault = host.execute(op, &entry.wqe.data).err().map(|LocalOpFault| Reason::LocalOperation);
            queue.entries[queue.at].fault = fault;
            queue.start(0);
            if fault.is_some() {
                queue.at -= 1;
            }
            return self.complete_ready(cx, host).map(|()| false).map_err(Halt::Fatal);
        }
        let fault = if possible { entry_fault(cx, entry, host) } else { Some(Reason::WrongService) };
        let packets = cx.config.packets_of(entry);
        // At most half of the PSN space may be outstanding, or old and new PSNs cannot be told apart.
        if queue.end.distance_from(queue.una) as u32 + packets > (1 << 23) - 1 && queue.at > 0 {
            return Err(Stop::Idle.into());
        }
        queue.entries[queue.at].fault = fault;
        queue.start(packets);
        if fault.is_some() {
            return Err(self.halt_at_fault(cx, host));
        }
        Ok(true)
    }

    fn send_at_cursor<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        host: &mut H,
        progress: &mut Progress,
    ) -> Result<(), Halt> {
        let mtu = cx.config.mtu;
        let entry = &self.queue.entries[self.queue.at];
        let from = self.queue.cursor;
        let index = (from - entry.first) as u32;
        if entry.wants_response() && self.queue.awaited.len() >= cx.attr.max_rd_atomic.max(1) as usize {
            return Err(Stop::Idle.into());
        }
        let to = if entry.is_read() {
            segment::read_chunk_end(entry.first, entry.packets, index, cx.config.read_chunk_packets())
        } else {
            from + 1
        };
        if !self.fits_reorder_window(cx, to) {
            return Err(Stop::Idle.into());
        }
        let cost = self.queue.cost_to(to, mtu);
        self.check_room(cx, now, Need { to, cost }, host)?;

        let entry = &self.queue.entries[self.queue.at];
        let ends = to == entry.first + entry.packets;
        let ack_req = cx.is_reliable()
            && (ends
                || entry.wants_response()
                || self.is_probing()
                || self.since_ack_request + 1 >= ACK_SPACING
                || !host.peer().window.stays_open_after(cost + mtu as u64));
        let packet = request::Packet { index, to, ack_req, ends };
        let path = self.emit(cx, now, self.queue.at, from, &packet, host)?;
        progress.sent += 1;
        self.after_send(cx, now, Sent { from, to, cost, ack_req, path }, host).map_err(Halt::Fatal)
    }

    /// Sends a packet of the entry at `at`, whose PSN is `from`. Returns the path that it takes.
    #[inline(always)]
    fn emit<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        at: usize,
        from: Psn,
        packet: &request::Packet,
        host: &mut H,
    ) -> Result<u8, Halt> {
        let number = if self.paths.is_some() { self.choose_path(now, at, from) } else { 0 };
        let entry = &self.queue.entries[at];
        let payload = request::payload(entry, packet.index, cx.config.mtu);
        let mut headers = Headers { bth: cx.bth(from), body: Body::Rc(Op::SendMiddle) };
        if request::complete(&mut headers, cx, entry, packet, payload.length()).is_none() {
            return Err(self.fail_started(cx, at, Reason::NoForm, host));
        }
        let chosen;
        let path = match &entry.wqe.op {
            SendOp::Datagram { path, .. } => path,
            _ => match &self.paths {
                None => &cx.attr.path,
                Some(paths) => {
                    chosen = paths.of(&cx.attr.path, number);
                    &chosen
                }
            },
        };
        let icrc = match entry.wqe.op {
            SendOp::Flush { .. } => host.peer().flush.form(entry.sent),
            _ => IcrcForm::Standard,
        };
        match host.transmit(Transmit { path, headers: &headers, payload, icrc }) {
            Ok(()) => Ok(number),
            Err(TransmitError::Full) => {
                if from.is_before(self.queue.end) {
                    self.go_on_waiting(cx, now);
                }
                Err(Stop::LinkFull.into())
            }
            Err(TransmitError::Local(_)) => Err(self.fail_started(cx, at, Reason::LocalMemory, host)),
            Err(TransmitError::TooLong) => Err(self.fail_started(cx, at, Reason::PacketTooLong, host)),
            Err(TransmitError::Remote(_)) => Err(self.fail_started(cx, at, Reason::Internal, host)),
        }
    }

    /// Whether the peer's window and the congestion control admit a packet.
    fn check_room<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        need: Need,
        host: &mut H,
    ) -> Result<(), Stop> {
        if !cx.is_reliable() {
            return Ok(());
        }
        self.enter_window(cx, need, host)?;
        self.check_pace(now)
    }

    /// Whether congestion control admits a packet now.
    fn check_pace(&mut self, now: Time) -> Result<(), Stop> {
        match self.rate.as_ref().and_then(|rate| rate.hold(now)) {
            Some(until) => {
                self.timers.pace = until;
                Err(Stop::Idle)
            }
            None => Ok(()),
        }
    }

    fn after_send<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        sent: Sent,
        host: &mut H,
    ) -> Result<(), Reason> {
        let Sent { from, to, cost, ack_req, path } = sent;
        let resent = from.is_before(self.queue.end);
        if resent {
            host.count(Counter::RetransmittedPacket);
            self.rtt.abandon();
        } else if ack_req {
            self.rtt.sent(to - 1, now);
        }
        self.since_ack_request = if ack_req { 0 } else { self.since_ack_request + 1 };
        if let Some(rate) = &mut self.rate {
            rate.sent(now, cost);
        }
        let entry = &mut self.queue.entries[self.queue.at];
        entry.sent = entry.sent.saturating_add(1);
        let ends = to == entry.first + entry.packets;
        if ends && !resent && matches!(entry.wqe.op, SendOp::Send(_)) {
            host.count(Counter::RdmaSends);
        }
        if entry.wants_response() {
            self.queue.awaited.push_back((from, to - 1));
        }
        if !cx.is_reliable() {
            self.queue.advance(to, 0);
            self.queue.acknowledge_to(to, cx.config.mtu, 0);
            if ends {
                self.complete_front(cx, Status::Success, host);
                return self.complete_ready(cx, host);
            }
            return Ok(());
        }
        self.charge(cost, host);
        self.note_first_sent(now, (from, to), path);
        self.queue.advance(to, cost);
        self.arm_retransmission(cx, now);
        Ok(())
    }

    /// A started entry cannot continue: it fails once everything before it is complete.
    fn fail_started<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        at: usize,
        reason: Reason,
        host: &mut H,
    ) -> Halt {
        self.queue.entries[at].fault = Some(reason);
        self.halt_at_fault(cx, host)
    }

    fn halt_at_fault<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) -> Halt {
        match self.complete_ready(cx, host) {
            Ok(()) => Halt::Stop(Stop::Idle),
            Err(reason) => Halt::Fatal(reason),
        }
    }
}

/// What makes a work request fail before its first packet.
fn entry_fault<H: Host>(cx: &Context, entry: &Entry<H::Data>, host: &mut H) -> Option<Reason> {
    let sink =
        matches!(entry.wqe.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    if entry.wants_response() && !matches!(entry.wqe.op, SendOp::Flush { .. }) && cx.attr.max_rd_atomic == 0 {
        return Some(Reason::NoReadsAllowed);
    }
    if cx.service == QpType::Ud && entry.wqe.length > cx.config.ud_mtu {
        return Some(Reason::DatagramTooLong);
    }
    host.check_local(&entry.wqe.data, sink).err().map(|_| Reason::LocalMemory)
}
