//! What is kept of each packet: forty bytes, so that millions of them fit.

use std::net::IpAddr;

use softrnic_wire::{
    Aeth, CmBody, CmIds, Msn, Operation, Psn, Qpn, Req, Rkey, ServiceId, Syndrome, Transport,
};

/// A valid packet of some flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Record number in the capture, from 1.
    pub number: u32,
    /// Index of the flow.
    pub(crate) flow: u32,
    psn: u32,
    aeth: u32,
    /// Equal in packets that are equal from the IP header on.
    pub(crate) icrc: u32,
    /// One more than the index of the packet's [`Extra`]; 0 for none.
    extra: u32,
    /// Payload bytes.
    pub len: u16,
    /// What the packet does.
    pub operation: Operation,
    /// Single facts.
    pub flags: Flags,
    /// What the analysis found it to be.
    pub mark: Mark,
}

bitflags::bitflags! {
    /// Facts of a packet.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u8 {
        /// The requester asks for an acknowledgement.
        const ACK_REQ = 1;
        /// The receiver is to raise an event.
        const SOLICITED = 1 << 1;
        /// The ICRC is wrong.
        const BAD_ICRC = 1 << 2;
        /// A switch on the way was congested.
        const CONGESTION = 1 << 3;
        /// The capture was made where the packet was received; its time is when it was read, not when it came.
        const INBOUND = 1 << 4;
        /// The capture was made where the packet was sent.
        const OUTBOUND = 1 << 5;
    }
}

/// Role of a packet in the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mark {
    /// As it should be.
    #[default]
    Plain,
    /// Damaged in the network; receivers drop it.
    Corrupt,
    /// Lost after the capture saw it, as the responder shows.
    LostLater,
    /// Sent again by the requester.
    Resent,
    /// The same packet twice, although it was not asked for again.
    Duplicate,
    /// Overtaken by later packets.
    Late,
    /// An answer given again.
    Replay,
    /// Not allowed by the specification.
    Violation,
}

/// Headers that only some packets have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extra {
    Reth { va: u64, rkey: Rkey, len: u32 },
    Atomic { va: u64, rkey: Rkey, operands: (u64, u64) },
    Original(u64),
    Cm(u32),
}

/// A direction: everything that one side sends to one QP of the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FlowKey {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub dest: Qpn,
    /// Known for datagrams only.
    pub src_qpn: Option<Qpn>,
    pub transport: Transport,
    /// Counts the connections that used this QPN one after the other.
    pub epoch: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub key: FlowKey,
    /// The UDP port that its first packet came from, and from how many its packets came.
    pub src_port: u16,
    pub src_ports: u32,
    pub packets: u64,
    pub answers: u64,
    pub bytes: u64,
    pub bad_icrc: u64,
    pub ce_marks: u64,
    pub first: u32,
    pub last: u32,
}

/// What is kept of a connection management message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CmEvent {
    pub time_ns: u64,
    pub number: u32,
    pub event: u32,
    /// Of the QP that a REQ or REP names: see [`FlowKey::epoch`].
    pub epoch: u16,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub name: &'static str,
    pub message: CmFacts,
}

/// The facts of a message that explaining needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CmFacts {
    Req(ReqFacts),
    Rep { ids: CmIds, qpn: Qpn, starting_psn: Psn, rnr_retry: u8 },
    Rtu(CmIds),
    Rej { ids: CmIds, reason: u16, reason_name: &'static str },
    Mra(CmIds),
    Dreq { ids: CmIds, remote_qpn: Qpn },
    Drep(CmIds),
    SidrReq { request_id: u32, service: ServiceId },
    SidrRep { request_id: u32, status: u8, status_name: &'static str, qpn: Qpn },
    Other,
}

/// What a REQ says, as far as it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReqFacts {
    pub local_id: u32,
    pub qpn: Qpn,
    pub starting_psn: Psn,
    pub service: ServiceId,
    pub mtu_code: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub ack_timeout: u8,
    pub transport: &'static str,
}

impl CmFacts {
    pub fn of(body: &CmBody<'_>) -> CmFacts {
        match body {
            CmBody::Req(req) => CmFacts::Req(ReqFacts::of(req)),
            CmBody::Rep(rep) => CmFacts::Rep {
                ids: rep.ids,
                qpn: rep.qpn,
                starting_psn: rep.starting_psn,
                rnr_retry: rep.rnr_retry_count.get() as u8,
            },
            CmBody::Rtu(ids) => CmFacts::Rtu(*ids),
            CmBody::Rej(rej) => {
                CmFacts::Rej { ids: rej.ids, reason: rej.reason.0, reason_name: rej.reason.name() }
            }
            CmBody::Mra(mra) => CmFacts::Mra(mra.ids),
            CmBody::Dreq(dreq) => CmFacts::Dreq { ids: dreq.ids, remote_qpn: dreq.remote_qpn },
            CmBody::Drep(ids) => CmFacts::Drep(*ids),
            CmBody::SidrReq(req) => CmFacts::SidrReq { request_id: req.request_id, service: req.service },
            CmBody::SidrRep(rep) => CmFacts::SidrRep {
                request_id: rep.request_id,
                status: rep.status,
                status_name: rep.status_name(),
                qpn: rep.qpn,
            },
            CmBody::Lap(_) | CmBody::Apr(_) => CmFacts::Other,
        }
    }
}

impl ReqFacts {
    fn of(req: &Req) -> ReqFacts {
        ReqFacts {
            local_id: req.local_id,
            qpn: req.qpn,
            starting_psn: req.starting_psn,
            service: req.service,
            mtu_code: req.mtu_code.get() as u8,
            retry_count: req.retry_count.get() as u8,
            rnr_retry: req.rnr_retry_count.get() as u8,
            ack_timeout: req.primary.ack_timeout.get() as u8,
            transport: req.transport_name(),
        }
    }
}

/// The parts an [`Event`] is made of.
pub(crate) struct EventParts {
    pub time_ns: u64,
    pub number: u64,
    pub flow: u32,
    pub psn: Psn,
    pub aeth: Option<Aeth>,
    pub icrc: u32,
    pub extra: Option<u32>,
    pub len: usize,
    pub operation: Operation,
    pub flags: Flags,
}

impl Event {
    pub(crate) fn new(parts: EventParts) -> Event {
        let aeth = parts.aeth.map_or(0, |a| u32::from(a.syndrome.byte()) << 24 | a.msn.get());
        Event {
            time_ns: parts.time_ns,
            number: u32::try_from(parts.number).unwrap_or(u32::MAX),
            flow: parts.flow,
            psn: parts.psn.get(),
            aeth,
            icrc: parts.icrc,
            extra: parts.extra.map_or(0, |index| index + 1),
            len: u16::try_from(parts.len).unwrap_or(u16::MAX),
            operation: parts.operation,
            flags: parts.flags,
            mark: Mark::Plain,
        }
    }

    /// Packet sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(self.psn)
    }

    /// The syndrome, of packets with an AETH.
    #[inline]
    pub fn syndrome(&self) -> Option<Syndrome> {
        self.has_aeth().then(|| Syndrome::from_byte((self.aeth >> 24) as u8))
    }

    /// The responder's count of completed messages, of packets with an AETH.
    #[inline]
    pub fn msn(&self) -> Option<Msn> {
        self.has_aeth().then(|| Msn::new(self.aeth))
    }

    /// Index of the packet's extra facts.
    #[inline]
    pub(crate) fn extra(&self) -> Option<usize> {
        (self.extra as usize).checked_sub(1)
    }

    /// Whether the requester asks for an acknowledgement.
    pub fn ack_req(&self) -> bool {
        self.flags.contains(Flags::ACK_REQ)
    }

    /// Whether the ICRC is wrong.
    pub fn bad_icrc(&self) -> bool {
        self.flags.contains(Flags::BAD_ICRC)
    }

    /// Whether its receiver captured it: its time says when it was read, and nothing of when it came.
    pub fn is_inbound(&self) -> bool {
        self.flags.contains(Flags::INBOUND)
    }

    /// Whether its sender captured it.
    pub fn is_outbound(&self) -> bool {
        self.flags.contains(Flags::OUTBOUND)
    }

    /// Takes the packet for undamaged.
    pub(crate) fn trust_icrc(&mut self) {
        self.flags = Flags(self.flags.0 & !Flags::BAD_ICRC.0);
    }

    fn has_aeth(&self) -> bool {
        self.operation.is_response() && self.operation != Operation::ReadResponseMiddle
    }
}

const _: () = assert!(size_of::<Event>() == 40);
