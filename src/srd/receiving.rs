//! The receiving direction of a connection: which packets have come, and what is kept of messages until they are complete.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use softrnic_transport::RecvWqe;
use softrnic_wire::{Imm, Qpn, SRD_WINDOW, SrdMessage, SrdPacket, SrdPart, SrdPsn, SrdRemote};

use crate::code::Code;
use crate::counters::Counter;
use crate::endpoint::Peer;
use crate::host::{Arrival, Host};
use crate::tuning::MAX_PARTIAL;

pub(crate) const WORDS: usize = SRD_WINDOW as usize / 64;

/// What came of the peer's packets.
pub(crate) struct Receiving<Q, D> {
    /// The lowest that has not come; none, before any has.
    base: Option<SrdPsn>,
    /// From `base` on: what came, whether it was taken or refused, and what was taken.
    seen: [u64; WORDS],
    taken: [u64; WORDS],
    /// What was refused, until the peer knows.
    refused: Vec<Refusal>,
    /// Messages of which a part has come.
    partial: BTreeMap<u32, Partial<Q, D>>,
    /// The last that came, and between which queue pairs an ACK is due, if one is.
    latest: SrdPsn,
    pub ack: Option<Ends>,
    /// Refusals to tell the peer.
    pub untold: VecDeque<Refusal>,
}

/// A packet that was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub psn: SrdPsn,
    pub id: u32,
    pub code: u8,
    pub ends: Ends,
}

/// The queue pairs that a packet names. For one that is part of no message they only say which NIC of an address it is
/// from, and which it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub from: Qpn,
    pub to: Qpn,
}

impl Ends {
    /// Of an answer to a packet.
    pub fn of_answer(packet: &SrdPacket<'_>) -> Ends {
        Ends { from: packet.headers.bth.dest_qpn, to: packet.headers.src_qpn }
    }
}

/// A message of which a part has come.
struct Partial<Q, D> {
    qp: Q,
    wqe: Option<RecvWqe<D>>,
    length: u32,
    got: u32,
    /// Its queue pair has stopped receiving since. The rest is refused until the peer cancels the message, even if the queue
    /// pair receives again: the parts that were taken will not come again.
    is_void: bool,
}

/// Whether a packet is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Novelty {
    New,
    Old,
}

impl<Q: Copy + Eq, D> Receiving<Q, D> {
    pub fn new() -> Receiving<Q, D> {
        Receiving {
            base: None,
            seen: [0; WORDS],
            taken: [0; WORDS],
            refused: Vec::new(),
            partial: BTreeMap::new(),
            latest: SrdPsn(0),
            ack: None,
            untold: VecDeque::new(),
        }
    }

    /// Whether nothing is kept that the peer could still need.
    pub fn is_idle(&self) -> bool {
        self.partial.is_empty() && self.ack.is_none() && self.untold.is_empty()
    }

    /// A numbered packet has come. What is old is answered again.
    pub fn note<H: Host<Qp = Q, Data = D>>(
        &mut self,
        packet: &SrdPacket<'_>,
        message: &SrdMessage,
        host: &mut H,
    ) -> Novelty {
        let psn = packet.headers.psn;
        if psn.distance_from(message.una) < 0 {
            // It was sent when the peer waited for it; by now it does not, or this is damage.
            host.count(Counter::Malformed);
            return Novelty::Old;
        }
        self.forget_before(message.una);
        let base = self.base.unwrap_or(message.una);
        let ahead = psn.distance_from(base);
        if ahead >= SRD_WINDOW as i32 {
            host.count(Counter::BeyondWindow);
            return Novelty::Old;
        }
        if ahead >= 0 && !get(&self.seen, psn) {
            return Novelty::New;
        }
        host.count(Counter::Duplicates);
        match self.refused.iter().find(|refusal| refusal.psn == psn) {
            Some(&refusal) if ahead >= 0 => self.tell(refusal),
            _ => {
                self.latest = psn;
                self.ack = Some(Ends::of_answer(packet));
            }
        }
        Novelty::Old
    }

    /// A new packet was taken.
    pub fn take(&mut self, packet: &SrdPacket<'_>) {
        let psn = packet.headers.psn;
        set(&mut self.seen, psn);
        set(&mut self.taken, psn);
        self.latest = psn;
        self.ack = Some(Ends::of_answer(packet));
        self.advance();
    }

    /// A new packet was refused.
    pub fn refuse(&mut self, packet: &SrdPacket<'_>, id: u32, code: u8) {
        let headers = &packet.headers;
        set(&mut self.seen, headers.psn);
        let refusal = Refusal { psn: headers.psn, id, code, ends: Ends::of_answer(packet) };
        self.refused.push(refusal);
        self.tell(refusal);
    }

    fn tell(&mut self, refusal: Refusal) {
        if !self.untold.iter().any(|untold| untold.psn == refusal.psn) {
            self.untold.push_back(refusal);
        }
    }

    /// The state to acknowledge: what is missing first, what came last, and bits of what came besides.
    pub fn acknowledgement(&self) -> (SrdPsn, SrdPsn, [u64; WORDS]) {
        let base = self.base.unwrap_or_default();
        let mut bits = [0; WORDS];
        for place in 0..SRD_WINDOW {
            if get(&self.taken, base.plus(place)) {
                bits[place as usize / 64] |= 1 << (place % 64);
            }
        }
        (base, self.latest, bits)
    }

    /// The peer waits for nothing before this.
    fn forget_before(&mut self, una: SrdPsn) {
        let base = *self.base.get_or_insert(una);
        let ahead = una.distance_from(base);
        if ahead > 0 {
            for place in 0..(ahead as u32).min(SRD_WINDOW) {
                self.clear(base.plus(place));
            }
            self.base = Some(una);
        }
        self.advance();
    }

    /// What has come without a gap is forgotten.
    fn advance(&mut self) {
        let Some(mut base) = self.base else { return };
        while get(&self.taken, base) {
            self.clear(base);
            base = base.plus(1);
        }
        self.base = Some(base);
        if !self.refused.is_empty() {
            self.refused.retain(|refusal| refusal.psn.distance_from(base) >= 0);
            self.untold.retain(|refusal| refusal.psn.distance_from(base) >= 0);
        }
    }

    fn clear(&mut self, psn: SrdPsn) {
        let (word, bit) = place(psn);
        self.seen[word] &= !bit;
        self.taken[word] &= !bit;
    }

    /// A part of a SEND.
    pub fn send<H: Host<Qp = Q, Data = D>>(
        &mut self,
        from: &Peer,
        packet: &SrdPacket<'_>,
        (message, part, imm): (SrdMessage, SrdPart, Option<Imm>),
        host: &mut H,
    ) -> Result<(), u8> {
        let headers = &packet.headers;
        let qp = host.target(headers.bth.dest_qpn, part.qkey).ok_or(Code::BadDestination as u8)?;
        check_part(packet, &part)?;
        let arrived = packet.payload.len() as u32;
        let kept = self.partial.remove(&message.id);
        let mut partial = match kept {
            Some(partial) if partial.qp == qp && partial.length == part.length && partial.wqe.is_some() => {
                partial
            }
            Some(partial) => {
                let code = partial.refusal();
                self.partial.insert(message.id, partial);
                return Err(code);
            }
            None => {
                let wqe = host.take_receive(qp).ok_or(Code::ReceiverNotReady as u8)?;
                if wqe.length < part.length {
                    host.return_receive(qp, wqe);
                    return Err(Code::ReceiveTooShort as u8);
                }
                Partial { qp, wqe: Some(wqe), length: part.length, got: 0, is_void: false }
            }
        };
        if let Some(wqe) = &partial.wqe
            && arrived > 0
            && host.scatter(qp, &wqe.data, part.offset.into(), packet.payload).is_err()
        {
            let arrival = arrival(partial, headers.src_qpn, false, imm, Code::InvalidLkey);
            host.complete_receive(qp, from, arrival);
            return Err(Code::BadStatus as u8);
        }
        partial.got = partial.got.saturating_add(arrived);
        if partial.got < partial.length {
            self.partial.insert(message.id, partial);
        } else {
            host.complete_receive(qp, from, arrival(partial, headers.src_qpn, false, imm, Code::Ok));
        }
        Ok(())
    }

    /// A part of a WRITE.
    pub fn write<H: Host<Qp = Q, Data = D>>(
        &mut self,
        from: &Peer,
        packet: &SrdPacket<'_>,
        (message, part, remote, imm): (SrdMessage, SrdPart, SrdRemote, Option<Imm>),
        host: &mut H,
    ) -> Result<(), u8> {
        let headers = &packet.headers;
        let qp = host.target(headers.bth.dest_qpn, part.qkey).ok_or(Code::BadDestination as u8)?;
        check_part(packet, &part)?;
        let arrived = packet.payload.len() as u32;
        if arrived > 0 {
            let va = remote.va.wrapping_add(part.offset.into());
            host.write(qp, remote.rkey, va, packet.payload).map_err(|_| Code::BadAddress as u8)?;
        }
        if imm.is_none() {
            return Ok(());
        }
        let got = match self.partial.get(&message.id) {
            Some(partial)
                if partial.qp == qp
                    && partial.length == part.length
                    && partial.wqe.is_none()
                    && !partial.is_void =>
            {
                partial.got
            }
            Some(partial) => return Err(partial.refusal()),
            None if self.partial.len() >= MAX_PARTIAL => return Err(crate::code::BUSY),
            None => 0,
        };
        let got = got.saturating_add(arrived);
        if got < part.length {
            let partial = Partial { qp, wqe: None, length: part.length, got, is_void: false };
            self.partial.insert(message.id, partial);
            return Ok(());
        }
        // All of it is here, but for a receive: this packet comes again then, and writes the same once more.
        let wqe = match host.is_unsolicited(qp) {
            true => None,
            false => Some(host.take_receive(qp).ok_or(Code::ReceiverNotReady as u8)?),
        };
        self.partial.remove(&message.id);
        let partial = Partial { qp, wqe, length: part.length, got, is_void: false };
        host.complete_receive(qp, from, arrival(partial, headers.src_qpn, true, imm, Code::Ok));
        Ok(())
    }

    /// The peer gives a message up.
    pub fn cancel<H: Host<Qp = Q, Data = D>>(&mut self, id: u32, host: &mut H) {
        if let Some(Partial { qp, wqe: Some(wqe), .. }) = self.partial.remove(&id) {
            host.return_receive(qp, wqe);
        }
    }

    /// The peer has begun anew: none of its messages goes on.
    pub fn clear_all<H: Host<Qp = Q, Data = D>>(&mut self, host: &mut H) {
        let partial = core::mem::take(&mut self.partial);
        for partial in partial.into_values() {
            if let Some(wqe) = partial.wqe {
                host.return_receive(partial.qp, wqe);
            }
        }
        *self = Receiving::new();
    }

    /// A queue pair receives nothing more. What it had taken is given back, for the queue pair to flush.
    pub fn forget_qp<H: Host<Qp = Q, Data = D>>(&mut self, qp: Q, host: &mut H) {
        for partial in self.partial.values_mut().filter(|partial| partial.qp == qp) {
            partial.is_void = true;
            if let Some(wqe) = partial.wqe.take() {
                host.return_receive(qp, wqe);
            }
        }
    }
}

impl<Q, D> Partial<Q, D> {
    /// Why no other part of it is taken.
    fn refusal(&self) -> u8 {
        let why = if self.is_void { Code::BadDestination } else { Code::BadStatus };
        why as u8
    }
}

fn arrival<Q, D>(
    partial: Partial<Q, D>,
    src_qpn: Qpn,
    is_write: bool,
    imm: Option<Imm>,
    code: Code,
) -> Arrival<D> {
    Arrival { wqe: partial.wqe, is_write, src_qpn, length: partial.length, imm, code }
}

/// A part lies within its message, and only messages without bytes have parts without.
fn check_part(packet: &SrdPacket<'_>, part: &SrdPart) -> Result<(), u8> {
    let len = packet.payload.len() as u64;
    let fits = u64::from(part.offset) + len <= u64::from(part.length) && (len > 0 || part.length == 0);
    if fits { Ok(()) } else { Err(Code::BadStatus as u8) }
}

fn place(psn: SrdPsn) -> (usize, u64) {
    let place = psn.0 % SRD_WINDOW;
    (place as usize / 64, 1 << (place % 64))
}

fn get(bits: &[u64; WORDS], psn: SrdPsn) -> bool {
    let (word, bit) = place(psn);
    bits[word] & bit != 0
}

fn set(bits: &mut [u64; WORDS], psn: SrdPsn) {
    let (word, bit) = place(psn);
    bits[word] |= bit;
}
