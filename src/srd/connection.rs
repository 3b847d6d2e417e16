//! One connection: all that goes on between this NIC and one peer, for all queue pairs of both.

use alloc::vec::Vec;
use core::time::Duration;

use softrnic_wire::{SrdBody, SrdMessage, SrdPacket, SrdPart, SrdPsn, SrdRemote, Time};

use crate::code::{BUSY, Code};
use crate::counters::Counter;
use crate::endpoint::{Config, Peer};
use crate::flight::Flights;
use crate::host::{Host, Post};
use crate::message::{Message, Messages, Request, Work, request};
use crate::receiving::{Ends, Novelty, Receiving};
use crate::tuning::*;

mod answers;
mod transmit;

/// A connection with a peer.
pub(crate) struct Connection<Q, D> {
    pub peer: Peer,
    /// Our name of it, and the peer's, 0 until it is known.
    pub tag: u32,
    pub peer_tag: u32,
    messages: Messages<Q, D>,
    flights: Flights,
    receiving: Receiving<Q, D>,
    /// Messages that wait for a receive of the peer, or for it to be less busy.
    waiting: Vec<u32>,
    /// Messages that have ended early: their numbers, until the peer is told.
    dead: Vec<u32>,
    /// Answers to READs of the peer.
    answers: usize,
    /// Say hello to somebody with this tag, who may not know this connection.
    pub hello: Option<(Ends, u32)>,
    /// READs of this side that are not complete.
    reads: usize,
    /// The smoothed round-trip time, and its variation.
    rtt: Option<(Duration, Duration)>,
    /// Timeouts in a row.
    backoff: u32,
    /// When the oldest packet began to wait for an answer, as far as the timeout is concerned.
    armed: Time,
    /// When the peer was heard last, or when there was first something to hear.
    pub heard: Time,
    ever_heard: bool,
    window: u32,
    /// Packets acknowledged since the window grew last.
    grown: u32,
    no_cut_before: Time,
    /// When packets that were overtaken count as lost.
    reordering: Time,
    /// Whether it is in the endpoint's list of those that have something to send.
    pub active: bool,
    /// Its entry among the endpoint's timers.
    pub timer: Time,
}

impl<Q: Copy + Eq, D> Connection<Q, D> {
    pub fn new<H: Host<Qp = Q, Data = D>>(peer: Peer, now: Time, host: &mut H) -> Connection<Q, D> {
        Connection {
            peer,
            tag: tag(host),
            peer_tag: 0,
            messages: Messages::new(),
            flights: Flights::new(SrdPsn(host.random())),
            receiving: Receiving::new(),
            waiting: Vec::new(),
            dead: Vec::new(),
            answers: 0,
            hello: None,
            reads: 0,
            rtt: None,
            backoff: 0,
            armed: now,
            heard: now,
            ever_heard: false,
            window: INITIAL_WINDOW,
            grown: 0,
            no_cut_before: Time::ZERO,
            reordering: Time::NEVER,
            active: false,
            timer: Time::NEVER,
        }
    }

    /// Whether nothing is under way in either direction.
    pub fn is_idle(&self) -> bool {
        self.messages.is_empty() && self.flights.is_empty() && self.receiving.is_idle()
    }

    /// The next PSN that is expected of the peer.
    #[cfg(test)]
    pub fn expected(&self) -> SrdPsn {
        self.receiving.acknowledgement().0
    }

    /// Adds a message.
    pub fn post<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, post: Post<Q, D>, host: &mut H) {
        if now.since(self.heard) > IDLE && self.is_idle() {
            // The peer may have forgotten it by now, and would let messages of an unknown connection fail.
            (self.tag, self.peer_tag) = (tag(host), 0);
            self.flights = Flights::new(SrdPsn(host.random()));
            self.heard = now;
        }
        let is_read = matches!(request(&post.wqe), Some(Request::Read(_)));
        match self.messages.post(post) {
            Ok(_) => self.reads += usize::from(is_read),
            Err(post) => host.complete_send(post.qp, post.wqe, Code::QpInternal),
        }
    }

    /// A packet of the peer, whose tags are those of this connection.
    pub fn on_packet<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        packet: &SrdPacket<'_>,
        config: &Config,
        host: &mut H,
    ) {
        (self.heard, self.ever_heard) = (now, true);
        match packet.headers.body {
            SrdBody::Acknowledge { latest, bits } => {
                self.on_ack(now, packet.headers.psn, latest, &bits, host);
            }
            SrdBody::Refuse { id, code } => self.on_refusal(now, packet.headers.psn, id, code, config, host),
            SrdBody::Hello => self.receiving.ack = Some(Ends::of_answer(packet)),
            SrdBody::Reset => {}
            body => {
                let Some(message) = body.message() else { return };
                if self.receiving.note(packet, &message, host) == Novelty::New {
                    self.on_new(packet, config, host);
                }
            }
        }
    }

    /// A numbered packet that has not come before.
    fn on_new<H: Host<Qp = Q, Data = D>>(&mut self, packet: &SrdPacket<'_>, config: &Config, host: &mut H) {
        let body = packet.headers.body;
        let Some(SrdMessage { id, .. }) = body.message() else { return };
        let taken = match body {
            SrdBody::Send(message, part, imm) => {
                self.receiving.send(&self.peer, packet, (message, part, imm), host)
            }
            SrdBody::Write(message, part, remote, imm) => {
                self.receiving.write(&self.peer, packet, (message, part, remote, imm), host)
            }
            SrdBody::ReadRequest(message, part, remote) => self.on_read(packet, message, part, remote, host),
            SrdBody::ReadResponse(_, offset) => {
                self.on_answer(id, offset, packet.payload, config, host);
                Ok(())
            }
            SrdBody::ReadFailure(_, code) => {
                if self.messages.get(id).is_some_and(|message| message.is_read()) {
                    self.fail(id, Code::of_peer(code), config, host);
                }
                Ok(())
            }
            SrdBody::Cancel(_) => {
                self.receiving.cancel(id, host);
                self.cancel_answer(id);
                Ok(())
            }
            _ => Ok(()),
        };
        match taken {
            Ok(()) => self.receiving.take(packet),
            Err(code) => {
                host.count(Counter::Refusals);
                self.receiving.refuse(packet, id, code);
            }
        }
    }

    fn on_read<H: Host<Qp = Q, Data = D>>(
        &mut self,
        packet: &SrdPacket<'_>,
        SrdMessage { id, .. }: SrdMessage,
        SrdPart { qkey, length, .. }: SrdPart,
        SrdRemote { va, rkey }: SrdRemote,
        host: &mut H,
    ) -> Result<(), u8> {
        let headers = &packet.headers;
        let qp = host.target(headers.bth.dest_qpn, qkey).ok_or(Code::BadDestination as u8)?;
        if length > 0 {
            host.check_read(qp, rkey, va, length.into()).map_err(|_| Code::BadAddress as u8)?;
        }
        if self.answers >= MAX_READS {
            return Err(BUSY);
        }
        let work = Work::Answer { to: id, rkey, va };
        self.messages.answer(qp, headers.bth.dest_qpn, headers.src_qpn, length, work).ok_or(BUSY)?;
        self.answers += 1;
        Ok(())
    }

    /// Bytes that a READ of ours asked for.
    fn on_answer<H: Host<Qp = Q, Data = D>>(
        &mut self,
        id: u32,
        offset: u32,
        bytes: &[u8],
        config: &Config,
        host: &mut H,
    ) {
        let Some(message) = self.messages.get(id) else { return };
        let Work::Request(wqe) = &message.work else { return };
        if !matches!(request(wqe), Some(Request::Read(_))) {
            return;
        }
        if u64::from(offset) + bytes.len() as u64 > wqe.length.into() {
            host.count(Counter::Malformed);
            return;
        }
        if !bytes.is_empty() && host.scatter(message.qp, &wqe.data, offset.into(), bytes).is_err() {
            return self.fail(id, Code::InvalidLkey, config, host);
        }
        message.got = message.got.saturating_add(bytes.len() as u32);
        if message.got >= wqe.length {
            self.finish(id, Code::Ok, host);
        }
    }

    fn cancel_answer(&mut self, id: u32) {
        let ours = |message: &&mut Message<Q, D>| matches!(message.work, Work::Answer { to, .. } | Work::Failure { to, .. } if to == id);
        let found = self.messages.iter_mut().find(ours).map(|message| message.id);
        if found.and_then(|id| self.messages.remove(id)).is_some() {
            self.answers -= 1;
        }
    }

    /// The peer is told that a message has ended once none of its packets can come after that.
    fn wake_dead(&mut self) {
        let Connection { dead, messages, flights, .. } = self;
        let una = flights.una();
        dead.retain(|&id| {
            let Some(message) = messages.get(id) else { return false };
            let waits = una.distance_from(message.last) <= 0;
            if !waits {
                message.held = false;
                messages.queue(id);
            }
            waits
        });
    }

    /// Lets a message of the peer's READ fail.
    fn fail_answer(&mut self, id: u32, code: Code) {
        let Some(message) = self.messages.get(id) else { return };
        let Work::Answer { to, .. } = message.work else { return };
        // What was sent of it has no message any more, and is not sent again.
        let (qp, qpn, dest) = (message.qp, message.qpn, message.dest_qpn);
        let work = Work::Failure { to, code: code as u8 };
        self.messages.remove(id);
        if self.messages.answer(qp, qpn, dest, 0, work).is_none() {
            self.answers -= 1;
        }
    }

    /// Whether the peer owes something.
    fn waits(&self) -> bool {
        !self.flights.is_empty() || self.reads > 0
    }

    /// The peer has taken all requests, and owes answers to READs. It is asked whether it is still there.
    fn ask_for_answers(&mut self, now: Time) {
        let is_silent = now.since(self.heard) >= self.timeout();
        let read = self.messages.iter_mut().find(|message| message.is_read() && message.began);
        if let Some(read) = read.filter(|_| is_silent) {
            self.hello = Some((Ends { from: read.qpn, to: read.dest_qpn }, self.peer_tag));
        }
    }

    /// When it is due next.
    pub fn deadline(&mut self) -> Time {
        let mut next = self.reordering;
        if self.waits() {
            next = next.min(self.armed + self.timeout());
        }
        let Connection { waiting, messages, .. } = self;
        for &id in waiting.iter() {
            next = next.min(messages.get(id).map_or(Time::ZERO, |message| message.waits_until));
        }
        next
    }

    /// Does what is due. Returns whether the peer must be given up.
    pub fn on_timeout<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, host: &mut H) -> Option<Code> {
        let Connection { waiting, messages, .. } = self;
        waiting.retain(|&id| {
            let Some(message) = messages.get(id) else { return false };
            let waits = message.waits_until > now;
            if !waits {
                message.waits_until = Time::NEVER;
                messages.queue(id);
            }
            waits
        });
        if self.reordering <= now {
            self.look_for_losses(now);
        }
        if !self.waits() || self.armed + self.timeout() > now {
            return None;
        }
        if now.since(self.heard) >= SILENCE {
            host.count(Counter::Silent);
            return Some(if self.ever_heard { Code::Unresponsive } else { Code::Unreachable });
        }
        self.armed = now;
        if self.flights.is_empty() {
            self.ask_for_answers(now);
        } else if self.backoff == 0 {
            self.flights.lose_last();
        } else {
            self.flights.lose_all();
            self.window = MIN_WINDOW;
        }
        self.backoff += 1;
        None
    }

    /// The peer does not answer. If it is there all the same, it learns by another tag that nothing goes on.
    pub fn give_up<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, code: Code, host: &mut H) {
        self.break_off(now, code, true, host);
        (self.tag, self.peer_tag) = (tag(host), 0);
    }

    /// The peer has forgotten the connection.
    pub fn on_reset<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, host: &mut H) {
        host.count(Counter::Restarts);
        self.break_off(now, Code::Aborted, false, host);
    }

    /// Neither direction goes on. Messages of which nothing was sent stay, unless they are to fail as well. Our numbers go
    /// on, so that packets from before are old ones, whenever they come.
    fn break_off<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, code: Code, all: bool, host: &mut H) {
        self.receiving.clear_all(host);
        let ended =
            |message: &&mut Message<Q, D>| all || message.began || !matches!(message.work, Work::Request(_));
        let ids: Vec<u32> = self.messages.iter_mut().filter(ended).map(|message| message.id).collect();
        ids.into_iter().for_each(|id| self.finish(id, code, host));
        self.flights.clear();
        (self.peer_tag, self.hello) = (0, None);
        (self.backoff, self.armed, self.heard, self.ever_heard) = (0, now, now, false);
        (self.window, self.grown, self.reordering) = (INITIAL_WINDOW, 0, Time::NEVER);
        self.reads = self.messages.iter_mut().filter(|message| message.is_read()).count();
        self.waiting.clear();
        self.dead.clear();
    }

    /// The peer has begun anew, with another tag: what it had of us is gone, and what we had of it. Our tag stays, by which
    /// it has shown that it is at this address.
    pub fn on_new_peer<H: Host<Qp = Q, Data = D>>(&mut self, now: Time, peer_tag: u32, host: &mut H) {
        host.count(Counter::Restarts);
        self.break_off(now, Code::Aborted, false, host);
        self.peer_tag = peer_tag;
    }

    /// The peer knows another connection of ours, from before: what we sent was dropped.
    pub fn on_hello(&mut self) {
        self.flights.lose_all();
    }

    /// A queue pair leaves RTS: its messages end.
    pub fn flush<H: Host<Qp = Q, Data = D>>(&mut self, qp: Q, config: &Config, host: &mut H) {
        self.receiving.forget_qp(qp, host);
        let of_qp = |message: &&mut Message<Q, D>| message.qp == qp;
        let ids: Vec<u32> = self.messages.iter_mut().filter(of_qp).map(|message| message.id).collect();
        for id in ids {
            match self.messages.get(id).map(|message| &message.work) {
                Some(Work::Request(_)) => self.fail(id, Code::Flushed, config, host),
                Some(Work::Answer { .. }) => self.fail_answer(id, Code::BadDestination),
                _ => {}
            }
        }
        self.wake_dead();
    }
}

/// A tag, which is never 0.
fn tag<H: Host>(host: &mut H) -> u32 {
    loop {
        let tag = host.random();
        if tag != 0 {
            return tag;
        }
    }
}
