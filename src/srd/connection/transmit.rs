//! Sending: answers to the peer first, then what was lost, then what is new, as far as the window allows.

use softrnic_transport::{SendWqe, TransmitError};
use softrnic_wire::{Bth, Pad, Psn, SrdBody, SrdHeaders, SrdMessage, SrdPart, SrdPsn, Time};

use super::Connection;
use crate::code::Code;
use crate::counters::Counter;
use crate::endpoint::Config;
use crate::host::{Host, Payload};
use crate::message::{Message, Request, Work, request};
use crate::receiving::Ends;
use crate::tuning::QUANTUM;

/// What became of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Sent,
    Full,
    /// The message has failed.
    Failed,
}

impl<Q: Copy + Eq, D> Connection<Q, D> {
    /// Sends what is due, at most `budget` packets. Returns how many, and whether the link is full.
    pub fn poll_transmit<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        budget: usize,
        config: &Config,
        host: &mut H,
    ) -> (usize, bool) {
        let mut sent = 0;
        while sent < budget {
            match self.transmit_one(now, config, host) {
                None => return (sent, false),
                Some(Attempt::Sent) => sent += 1,
                Some(Attempt::Failed) => {}
                Some(Attempt::Full) => return (sent, true),
            }
        }
        (sent, false)
    }

    /// Whether something could be sent now.
    pub fn wants_transmit(&self) -> bool {
        self.hello.is_some()
            || self.receiving.ack.is_some()
            || !self.receiving.untold.is_empty()
            || self.flights.in_flight() < self.window && self.flights.first_lost().is_some()
            || self.messages.has_ready() && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.flights.in_flight() < self.window && self.flights.next().is_some()
    }

    fn transmit_one<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        config: &Config,
        host: &mut H,
    ) -> Option<Attempt> {
        if let Some((ends, tag)) = self.hello {
            let attempt = self.control(ends, SrdPsn(0), SrdBody::Hello, Some(tag), host);
            if attempt == Attempt::Sent {
                self.hello = None;
            }
            return Some(attempt);
        }
        if let Some(refusal) = self.receiving.untold.front().copied() {
            let body = SrdBody::Refuse { id: refusal.id, code: refusal.code };
            let attempt = self.control(refusal.ends, refusal.psn, body, None, host);
            if attempt == Attempt::Sent {
                self.receiving.untold.pop_front();
            }
            return Some(attempt);
        }
        if let Some(ends) = self.receiving.ack {
            let (base, latest, bits) = self.receiving.acknowledgement();
            let body = SrdBody::Acknowledge { latest, bits };
            let attempt = self.control(ends, base, body, None, host);
            if attempt == Attempt::Sent {
                self.receiving.ack = None;
            }
            return Some(attempt);
        }
        if self.flights.in_flight() < self.window
            && let Some((psn, flight)) = self.flights.first_lost()
        {
            let attempt = self.part(flight.id, psn, flight.offset, flight.len, config, host);
            match attempt {
                Attempt::Sent => {
                    self.flights.sent_again(psn, now);
                    host.count(Counter::SentAgain);
                }
                Attempt::Failed => {
                    self.flights.settle(psn);
                    self.answered(flight.id, host);
                    self.wake_dead();
                }
                Attempt::Full => {}
            }
            return Some(attempt);
        }
        self.next_part(now, config, host)
    }

    /// Sends a part of the message whose turn it is.
    fn next_part<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        config: &Config,
        host: &mut H,
    ) -> Option<Attempt> {
        if !self.has_room() {
            return None;
        }
        let psn = self.flights.next()?;
        let id = self.messages.front()?;
        let message = self.messages.get(id)?;
        let part = message.next_part(config.payload).filter(|_| message.waits_until == Time::NEVER);
        let Some((offset, len)) = part else {
            self.messages.next_turn(false);
            return Some(Attempt::Failed);
        };
        if !message.began
            && let Work::Request(wqe) = &message.work
            && let Some(code) = unfit(message.qp, wqe, config, host)
        {
            self.fail(id, code, config, host);
            return Some(Attempt::Failed);
        }
        let attempt = self.part(id, psn, offset, len, config, host);
        if attempt != Attempt::Sent {
            return Some(attempt);
        }
        if self.flights.is_empty() {
            self.armed = now;
            self.heard = self.heard.max(now);
        }
        self.flights.sent(id, offset, len, now);
        let message = self.messages.get(id)?;
        let is_new = message.again.is_empty();
        message.part_sent(psn);
        if is_new {
            message.sent = offset + len;
        }
        let more = message.next_part(config.payload).is_some();
        if !more || psn.0.is_multiple_of(QUANTUM) {
            self.messages.next_turn(more);
        }
        Some(Attempt::Sent)
    }

    /// Sends one part of a message under a number.
    fn part<H: Host<Qp = Q, Data = D>>(
        &mut self,
        id: u32,
        psn: SrdPsn,
        offset: u32,
        len: u32,
        config: &Config,
        host: &mut H,
    ) -> Attempt {
        let una = self.flights.una();
        let (src_tag, dst_tag) = (self.tag, self.peer_tag);
        let Some(message) = self.messages.get(id) else { return Attempt::Failed };
        let (body, payload) = message.packet(una, offset, len);
        let bth =
            Bth { pad: Pad::for_payload(payload.length()), ..Bth::new(message.dest_qpn, Psn::new(psn.0)) };
        let headers = SrdHeaders { bth, src_qpn: message.qpn, src_tag, dst_tag, psn, body };
        let result = host.transmit(&self.peer, &headers, payload);
        let code = match result {
            Ok(()) => {
                host.count(Counter::Sent);
                return Attempt::Sent;
            }
            Err(TransmitError::Full) => return Attempt::Full,
            Err(TransmitError::Local(_)) => Code::InvalidLkey,
            Err(TransmitError::TooLong) => Code::BadLength,
            Err(TransmitError::Remote(_)) => Code::BadAddress,
        };
        match message.work {
            Work::Answer { .. } => self.fail_answer(id, code),
            _ => self.fail(id, code, config, host),
        }
        Attempt::Failed
    }

    /// Sends a packet that is not part of a message.
    fn control<H: Host<Qp = Q, Data = D>>(
        &mut self,
        ends: Ends,
        psn: SrdPsn,
        body: SrdBody,
        tag: Option<u32>,
        host: &mut H,
    ) -> Attempt {
        let bth = Bth::new(ends.to, Psn::new(psn.0));
        let dst_tag = tag.unwrap_or(self.peer_tag);
        let headers = SrdHeaders { bth, src_qpn: ends.from, src_tag: self.tag, dst_tag, psn, body };
        match host.transmit(&self.peer, &headers, Payload::None) {
            Err(TransmitError::Full) => Attempt::Full,
            _ => {
                host.count(Counter::Sent);
                Attempt::Sent
            }
        }
    }
}

impl<Q: Copy + Eq, D> Message<Q, D> {
    /// What a packet of it says, and its bytes.
    fn packet(&self, una: SrdPsn, offset: u32, len: u32) -> (SrdBody, Payload<'_, Q, D>) {
        let message = SrdMessage { una, id: self.id };
        let local = |data| match len {
            0 => Payload::None,
            len => Payload::Local { qp: self.qp, data, offset: offset.into(), len: len as usize },
        };
        match &self.work {
            Work::Request(wqe) => {
                let part = SrdPart { qkey: self.qkey, length: wqe.length, offset };
                match request(wqe) {
                    Some(Request::Send(imm)) => (SrdBody::Send(message, part, imm), local(&wqe.data)),
                    Some(Request::Write(remote, imm)) => {
                        (SrdBody::Write(message, part, remote, imm), local(&wqe.data))
                    }
                    Some(Request::Read(remote)) => {
                        (SrdBody::ReadRequest(message, part, remote), Payload::None)
                    }
                    None => (SrdBody::Cancel(message), Payload::None),
                }
            }
            Work::Answer { to, rkey, va } => {
                let va = va.wrapping_add(offset.into());
                let payload = match len {
                    0 => Payload::None,
                    len => Payload::Remote { qp: self.qp, rkey: *rkey, va, len: len as usize },
                };
                (SrdBody::ReadResponse(SrdMessage { una, id: *to }, offset), payload)
            }
            Work::Failure { to, code } => {
                (SrdBody::ReadFailure(SrdMessage { una, id: *to }, *code), Payload::None)
            }
            Work::Cancel => (SrdBody::Cancel(message), Payload::None),
        }
    }
}

/// Why a request cannot be sent at all.
fn unfit<H: Host>(qp: H::Qp, wqe: &SendWqe<H::Data>, config: &Config, host: &mut H) -> Option<Code> {
    let request = request(wqe)?;
    let most = if matches!(request, Request::Send(_)) { config.max_message } else { config.max_rdma };
    if wqe.length > most {
        return Some(Code::BadLength);
    }
    let sink = matches!(request, Request::Read(_));
    host.check_local(qp, &wqe.data, sink).err().map(|_| Code::InvalidLkey)
}
