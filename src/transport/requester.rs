//! The requester: turns work requests into request packets (IBTA 9.7.2, 9.7.3).

use softrnic_wire::{AtomicEth, Bth, Headers, Op, Pad, Psn, Reth, SendTail, Time};

use crate::completion::Status;
use crate::config::Config;
use crate::counters::Counter;
use crate::flight::Standing;
use crate::host::{Host, LocalOpFault, Payload, Transmit, TransmitError};
use crate::qp::{Progress, Qp, Stop};
use crate::segment::{self, Place};
use crate::send_queue::Entry;
use crate::wqe::{LocalOp, RemoteBuffer, SendExtra, SendOp};
use crate::{QpState, QpType};

/// A packet that carries this many packets' worth of unacknowledged data asks for an ACK.
const ACK_SPACING: u32 = 16;

/// The requester's state besides the queue.
#[derive(Debug)]
pub(crate) struct Requester {
    /// Packets sent since one asked for an ACK.
    pub since_ack_request: u32,
    /// Retries left after timeouts and sequence errors.
    pub retries_left: u8,
    /// Retries left after RNR NAKs.
    pub rnr_retries_left: u8,
    /// Waiting for the RNR timer.
    pub rnr_wait: bool,
    /// `una` when the requester last went back; a second NAK for it tells nothing new.
    pub restarted_at: Option<Psn>,
    /// Early resends since the last progress.
    pub early_resends: u32,
    /// Whether the peer answers.
    pub standing: Standing,
    /// What was sent last has not been answered, while others of the peer were.
    pub lost_alone: bool,
    /// When the retransmission timers were started.
    pub waits_since: Time,
    /// SQ_DRAINED has been raised for this stay in SQD.
    pub drained_reported: bool,
}

impl Requester {
    pub fn new() -> Requester {
        Requester {
            since_ack_request: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            rnr_wait: false,
            restarted_at: None,
            early_resends: 0,
            standing: Standing::New,
            lost_alone: false,
            waits_since: Time::ZERO,
            drained_reported: false,
        }
    }
}

impl<D> Qp<D> {
    /// Sends requests until the budget is used up or something stops it.
    pub(crate) fn transmit_requests<H: Host<Data = D>>(
        &mut self,
        now: Time,
        host: &mut H,
        budget: usize,
        progress: &mut Progress,
    ) {
        while progress.sent < budget {
            match self.transmit_request(now, host) {
                Ok(true) => progress.sent += 1,
                Ok(false) => {}
                Err(stop) => {
                    progress.stop = stop;
                    return;
                }
            }
        }
        progress.stop = Stop::Budget;
    }

    /// Sends the packet at the cursor, or runs the local operation there (which sends nothing).
    fn transmit_request<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) -> Result<bool, Stop> {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) || self.requester.rnr_wait {
            return Err(Stop::Idle);
        }
        if self.sq.at == self.sq.entries.len() {
            return Err(Stop::Idle);
        }
        if self.sq.at == self.sq.started && !self.start_entry(host)? {
            return Ok(false);
        }
        if self.sq.entries[self.sq.at].fault.is_some() {
            return Err(Stop::Idle);
        }
        self.send_at_cursor(now, host).map(|()| true)
    }

    /// Starts the next work request; `false` when it was a local operation, which is done now.
    fn start_entry<H: Host<Data = D>>(&mut self, host: &mut H) -> Result<bool, Stop> {
        if self.state == QpState::Sqd {
            return Err(Stop::Idle);
        }
        let entry = &self.sq.entries[self.sq.at];
        if entry.wqe.fence && !self.sq.awaited.is_empty() {
            return Err(Stop::Idle);
        }
        if let SendOp::Local(op) = &entry.wqe.op {
            // Earlier requests may still use the key that goes away (IBTA 10.6.5: strict ordering).
            if matches!(op, LocalOp::Invalidate(_)) && self.sq.at > 0 {
                return Err(Stop::Idle);
            }
            let fault = host.execute(op).err().map(|fault| match fault {
                LocalOpFault::Bind => Status::MwBind,
                LocalOpFault::Operation => Status::LocalQpOperation,
            });
            self.sq.entries[self.sq.at].fault = fault;
            self.sq.start(0);
            if fault.is_some() {
                self.sq.at -= 1;
            }
            self.complete_ready(host);
            return Ok(false);
        }
        let fault = self.entry_fault(entry, host);
        let packets = self.config.packets_of(entry);
        // At most half of the PSN space may be outstanding, or old and new PSNs cannot be told apart.
        if self.sq.end.distance_from(self.sq.una) as u32 + packets > (1 << 23) - 1 && self.sq.at > 0 {
            return Err(Stop::Idle);
        }
        self.sq.entries[self.sq.at].fault = fault;
        self.sq.start(packets);
        if fault.is_some() {
            self.complete_ready(host);
            return Err(Stop::Idle);
        }
        Ok(true)
    }

    /// What makes a work request fail before its first packet.
    fn entry_fault<H: Host<Data = D>>(&self, entry: &Entry<D>, host: &mut H) -> Option<Status> {
        let sink = matches!(
            entry.wqe.op,
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        );
        if entry.wants_response()
            && !matches!(entry.wqe.op, SendOp::Flush { .. })
            && self.attr.max_rd_atomic == 0
        {
            return Some(Status::LocalQpOperation);
        }
        if self.service == QpType::Ud && entry.wqe.length > self.config.ud_mtu {
            return Some(Status::LocalLength);
        }
        host.check_local(&entry.wqe.data, sink).err().map(|_| Status::LocalProtection)
    }

    fn send_at_cursor<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) -> Result<(), Stop> {
        let mtu = self.config.mtu;
        let entry = &self.sq.entries[self.sq.at];
        let from = self.sq.cursor;
        let place = (from - entry.first) as u32;
        if entry.wants_response() && self.sq.awaited.len() >= self.attr.max_rd_atomic.max(1) as usize {
            return Err(Stop::Idle);
        }
        let entry = &self.sq.entries[self.sq.at];
        let to = if entry.is_read() {
            segment::read_chunk_end(entry.first, entry.packets, place, self.config.read_chunk_packets())
        } else {
            from + 1
        };
        let cost = self.sq.cost_to(to, mtu);
        self.check_room(now, cost, host)?;

        let entry = &self.sq.entries[self.sq.at];
        let ends = to == entry.first + entry.packets;
        let (op, payload) = request_packet(entry, place, to, mtu);
        let reliable = self.service != QpType::Uc && self.service != QpType::Ud;
        let ack_req = reliable
            && (ends
                || entry.wants_response()
                || self.is_probing()
                || self.requester.since_ack_request + 1 >= ACK_SPACING
                || !host.window().stays_open_after(cost + mtu as u64));
        let mut bth = Bth::new(self.attr.dest_qpn, from);
        bth.ack_req = ack_req;
        bth.mig_req = self.config.mig_req;
        bth.pad = Pad::for_payload(payload.len());
        bth.solicited = ends && entry.wqe.solicited && segment::may_be_solicited(&op);
        let Some(body) = self.request_body(entry, op) else {
            return Err(self.fail_started(Status::LocalQpOperation, host));
        };
        let path = match &entry.wqe.op {
            SendOp::Datagram { path, dest_qpn, .. } => {
                bth.dest_qpn = *dest_qpn;
                path
            }
            _ => &self.attr.path,
        };
        let packet = Transmit { path, headers: Headers { bth, body }, payload, attempt: entry.sent };
        match host.transmit(packet) {
            Ok(()) => {}
            Err(TransmitError::Full) => return Err(Stop::LinkFull),
            Err(TransmitError::Local(_)) => return Err(self.fail_started(Status::LocalProtection, host)),
            Err(TransmitError::TooLong) => return Err(self.fail_started(Status::LocalLength, host)),
            Err(TransmitError::Remote(_)) => return Err(self.fail_started(Status::General, host)),
        }
        self.after_send(now, from, to, cost, ack_req, host);
        Ok(())
    }

    /// Whether the peer's window and the congestion control let a packet go.
    fn check_room<H: Host<Data = D>>(&mut self, now: Time, cost: u64, host: &mut H) -> Result<(), Stop> {
        if matches!(self.service, QpType::Uc | QpType::Ud) {
            return Ok(());
        }
        self.enter_window(cost, host)?;
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
        now: Time,
        from: Psn,
        to: Psn,
        cost: u64,
        ack_req: bool,
        host: &mut H,
    ) {
        let resent = from.is_before(self.sq.end);
        if resent {
            host.count(Counter::RetransmittedPacket);
            self.rtt.abandon();
        } else if ack_req {
            self.rtt.sent(to - 1, now);
        }
        self.requester.since_ack_request = if ack_req { 0 } else { self.requester.since_ack_request + 1 };
        if let Some(rate) = &mut self.rate {
            rate.sent(now, cost);
        }
        let entry = &mut self.sq.entries[self.sq.at];
        entry.sent = entry.sent.saturating_add(1);
        let entry = &*entry;
        let (awaited, ends, is_send) = (
            entry.wants_response(),
            to == entry.first + entry.packets,
            matches!(entry.wqe.op, SendOp::Send(_)),
        );
        if ends && is_send && !resent {
            host.count(Counter::RdmaSends);
        }
        if awaited {
            self.sq.awaited.push_back((from, to - 1));
        }
        if matches!(self.service, QpType::Uc | QpType::Ud) {
            self.sq.advance(to, 0);
            self.sq.acknowledge_to(to, self.config.mtu);
            if ends {
                self.complete_front(Status::Success, host);
                self.complete_ready(host);
            }
            return;
        }
        self.charge(cost, host);
        self.sq.advance(to, cost);
        self.arm_retransmission(now);
    }

    /// The started entry at the cursor cannot go on: it fails once everything before it is complete.
    fn fail_started<H: Host<Data = D>>(&mut self, status: Status, host: &mut H) -> Stop {
        self.sq.entries[self.sq.at].fault = Some(status);
        self.complete_ready(host);
        Stop::Idle
    }
}

/// The operation and payload of the packet at `place` (in packets) of a work request.
fn request_packet<D>(entry: &Entry<D>, place: u32, to: Psn, mtu: u32) -> (Op, Payload<'_, D>) {
    let length = entry.wqe.length;
    let offset = place as u64 * mtu as u64;
    let position = Place::of(place, entry.packets);
    let payload = match &entry.wqe.op {
        SendOp::Send(_) | SendOp::Write { .. } | SendOp::AtomicWrite { .. } => {
            local(entry, offset, (length as u64 - offset).min(mtu as u64) as usize)
        }
        // One packet whatever the path MTU, which UD has not got; the port's MTU was checked before.
        SendOp::Datagram { .. } => local(entry, 0, length as usize),
        _ => Payload::None,
    };
    let op = match &entry.wqe.op {
        SendOp::Send(extra) => segment::send_op(position, tail(*extra)),
        SendOp::Datagram { imm, .. } => {
            segment::send_op(Place::Only, imm.map_or(SendTail::Plain, SendTail::Imm))
        }
        SendOp::Write { remote, imm } => segment::write_op(position, reth(remote, 0, length), *imm),
        SendOp::Read { remote } => {
            let rest = (length as u64 - offset).min((to - entry.first) as u64 * mtu as u64 - offset);
            Op::ReadRequest(reth(remote, offset, rest as u32))
        }
        SendOp::CompareSwap { remote, compare, swap } => Op::CompareSwap(AtomicEth {
            va: remote.va,
            rkey: remote.rkey,
            swap_or_add: *swap,
            compare: *compare,
        }),
        SendOp::FetchAdd { remote, add } => {
            Op::FetchAdd(AtomicEth { va: remote.va, rkey: remote.rkey, swap_or_add: *add, compare: 0 })
        }
        SendOp::AtomicWrite { remote } => Op::AtomicWrite(reth(remote, 0, 8)),
        SendOp::Flush { remote, length, feth } => Op::Flush(*feth, reth(remote, 0, *length)),
        SendOp::Local(_) => unreachable!("local operations own no packets"),
    };
    (op, payload)
}

fn local<D>(entry: &Entry<D>, offset: u64, len: usize) -> Payload<'_, D> {
    if len == 0 { Payload::None } else { Payload::Local { data: &entry.wqe.data, offset, len } }
}

fn reth(remote: &RemoteBuffer, offset: u64, dma_len: u32) -> Reth {
    Reth { va: remote.va.wrapping_add(offset), rkey: remote.rkey, dma_len }
}

fn tail(extra: SendExtra) -> SendTail {
    match extra {
        SendExtra::Plain => SendTail::Plain,
        SendExtra::Imm(imm) => SendTail::Imm(imm),
        SendExtra::Invalidate(rkey) => SendTail::Inv(rkey),
    }
}

impl Config {
    fn packets_of<D>(&self, entry: &Entry<D>) -> u32 {
        match entry.wqe.op {
            SendOp::Send(_) | SendOp::Write { .. } | SendOp::Read { .. } => {
                entry.wqe.length.div_ceil(self.mtu).max(1)
            }
            SendOp::Local(_) => 0,
            _ => 1,
        }
    }
}
