//! Connection management messages (IBTA 12.6 and following), laid out as the kernel's
//! `ibta_vol1_c12.h` has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use softrnic_wire::{Gid, Mtu, Pkey, Psn, Qkey, Qpn};

/// A message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMessage<'a> {
    /// What it says.
    pub body: CmBody<'a>,
    /// Bytes for the application on the other side, or for its RDMA CM.
    pub private: &'a [u8],
}

/// The message and its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack, one at a time")]
pub enum CmBody<'a> {
    /// Asks for a connection.
    Req(Req),
    /// Asks for patience.
    Mra(Mra),
    /// Refuses.
    Rej(Rej<'a>),
    /// Agrees.
    Rep(Rep),
    /// Confirms that the connection is in use.
    Rtu(CmIds),
    /// Asks to end it.
    Dreq(Dreq),
    /// Agrees to end it.
    Drep(CmIds),
    /// Asks for the datagram QP of a service.
    SidrReq(SidrReq),
    /// Names it.
    SidrRep(SidrRep<'a>),
    /// Proposes an alternate path.
    Lap(Lap),
    /// Answers such a proposal.
    Apr(Apr<'a>),
}

/// Communication ids of sender and receiver of the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CmIds {
    /// The sender's.
    pub local: u32,
    /// The receiver's.
    pub remote: u32,
}

/// Connection request (IBTA 12.6.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's communication id.
    pub local_id: u32,
    /// Vendor of ECE options, 24 bits.
    pub vendor_id: u32,
    /// What the connection is for.
    pub service: ServiceId,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// 0 for connections.
    pub qkey: Qkey,
    /// The sender's QP.
    pub qpn: Qpn,
    /// READs and atomics that the receiver may have outstanding at the sender.
    pub responder_resources: u8,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// End-to-end contexts, for reliable datagram: the sender's and the receiver's.
    pub eecn: (u32, u32),
    /// Exponent: how long the receiver may take to answer.
    pub remote_cm_timeout: u8,
    /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport`.
    pub transport: u8,
    /// Whether ACK credits are honoured.
    pub flow_control: bool,
    /// PSN of the first packet that the receiver will send.
    pub starting_psn: Psn,
    /// Exponent: how long the sender may take to answer.
    pub local_cm_timeout: u8,
    /// Times the receiver should repeat before giving up.
    pub retry_count: u8,
    /// Partition.
    pub pkey: Pkey,
    /// Path MTU code; 1..=5 are legal.
    pub mtu_code: u8,
    /// Reliable datagram channel exists.
    pub rdc_exists: bool,
    /// Times the receiver should repeat after RNR NAKs; 7 means for ever.
    pub rnr_retry_count: u8,
    /// Times a CM message is repeated.
    pub max_cm_retries: u8,
    /// The sender receives into a shared queue.
    pub srq: bool,
    /// 1 is XRC.
    pub extended_transport: u8,
    /// The path to use.
    pub primary: CmPath,
    /// The path to fall back on; all zero on RoCE.
    pub alternate: CmPath,
    /// Whether the alternate path may be changed later.
    pub sap_supported: bool,
}

/// A path named in a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPath {
    /// LID of the message's sender; no meaning on RoCE.
    pub local_lid: u16,
    /// LID of its receiver.
    pub remote_lid: u16,
    /// GID of the message's sender.
    pub local_gid: Gid,
    /// GID of its receiver.
    pub remote_gid: Gid,
    /// 20 bits.
    pub flow_label: u32,
    /// Six bits.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, four bits.
    pub sl: u8,
    /// Whether both ends share a subnet.
    pub subnet_local: bool,
    /// Exponent of the retransmission timer.
    pub ack_timeout: u8,
}

/// Message receipt acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// Whose connection.
    pub ids: CmIds,
    /// Which message was received.
    pub answers: Served,
    /// Exponent: how long the sender may take for the real answer.
    pub service_timeout: u8,
}

/// Which message a REJ or MRA answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Served(pub u8);

/// Refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej<'a> {
    /// Whose connection; the sender's id is 0 when it has none.
    pub ids: CmIds,
    /// Which message was refused.
    pub answers: Served,
    /// Why.
    pub reason: RejReason,
    /// Bytes of `info` by the message; at most 72 exist.
    pub info_len: u8,
    /// More about why.
    pub info: &'a [u8],
}

/// Reason of a REJ (IBTA 12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RejReason(pub u16);

/// Agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// Whose connection.
    pub ids: CmIds,
    /// 0 for connections.
    pub qkey: Qkey,
    /// The sender's QP.
    pub qpn: Qpn,
    /// End-to-end context, for reliable datagram.
    pub eecn: u32,
    /// Vendor of ECE options, 24 bits.
    pub vendor_id: u32,
    /// PSN of the first packet that the receiver will send.
    pub starting_psn: Psn,
    /// READs and atomics that the receiver may have outstanding at the sender.
    pub responder_resources: u8,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// Exponent: how long the sender takes to acknowledge.
    pub target_ack_delay: u8,
    /// Whether an alternate path was accepted.
    pub failover: u8,
    /// Whether ACK credits are honoured.
    pub flow_control: bool,
    /// Times the receiver should repeat after RNR NAKs.
    pub rnr_retry_count: u8,
    /// The sender receives into a shared queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
}

/// Disconnect request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// Whose connection.
    pub ids: CmIds,
    /// The receiver's QP.
    pub remote_qpn: Qpn,
}

/// Request for the QP of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// Relates the answer to it.
    pub request_id: u32,
    /// Partition.
    pub pkey: Pkey,
    /// The service.
    pub service: ServiceId,
}

/// Answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep<'a> {
    /// That of the request.
    pub request_id: u32,
    /// 0 when the QP is valid.
    pub status: u8,
    /// Vendor of ECE options, 24 bits.
    pub vendor_id: u32,
    /// The service's QP.
    pub qpn: Qpn,
    /// The service.
    pub service: ServiceId,
    /// Key that admits datagrams to the QP.
    pub qkey: Qkey,
    /// More about the status.
    pub info: &'a [u8],
}

/// Load alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lap {
    /// Whose connection.
    pub ids: CmIds,
    /// The receiver's QP.
    pub remote_qpn: Qpn,
    /// Exponent: how long the receiver may take to answer.
    pub remote_cm_timeout: u8,
    /// The proposed path.
    pub path: CmPath,
}

/// Alternate path response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apr<'a> {
    /// Whose connection.
    pub ids: CmIds,
    /// 0 when the path was taken.
    pub status: u8,
    /// More about the status.
    pub info: &'a [u8],
}

/// What a connection or datagram service is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ServiceId(pub u64);

/// What the RDMA CM puts in front of an application's private data (IBTA Annex A11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateHeader {
    /// 0.
    pub version: u8,
    /// 4 or 6.
    pub ip_version: u8,
    /// The connecting side's port; the other port is in the service id.
    pub src_port: u16,
    /// The connecting side's address.
    pub src: IpAddr,
    /// The listening side's address.
    pub dst: IpAddr,
}

impl PrivateHeader {
    /// Bytes of the header.
    pub const LEN: usize = 36;

    /// Reads it; `None` when too short or of an IP version that is none.
    pub fn read(private: &[u8]) -> Option<PrivateHeader> {
        let bytes = private.first_chunk::<36>()?;
        let ip_version = bytes[1] >> 4;
        let address = |at: usize| -> Option<IpAddr> {
            let field: [u8; 16] = *bytes[at..].first_chunk()?;
            match ip_version {
                4 => Some(Ipv4Addr::from(*field.last_chunk()?).into()),
                6 => Some(Ipv6Addr::from(field).into()),
                _ => None,
            }
        };
        let src_port = u16::from_be_bytes([bytes[2], bytes[3]]);
        Some(PrivateHeader { version: bytes[0], ip_version, src_port, src: address(4)?, dst: address(20)? })
    }
}

impl ServiceId {
    /// Port space and port, when the RDMA CM made the id out of them.
    pub const fn port(self) -> Option<(&'static str, u16)> {
        let space = match self.0 >> 16 {
            0x106 => "TCP",
            0x111 => "UDP",
            0x13F => "IB",
            0x002 => "IPoIB",
            _ => return None,
        };
        Some((space, self.0 as u16))
    }
}

impl Req {
    /// The path MTU, if the code is legal.
    pub const fn mtu(&self) -> Option<Mtu> {
        Mtu::from_code(self.mtu_code)
    }
}

impl<'a> CmMessage<'a> {
    /// Reads the message with this attribute id, `None` when no message has it.
    pub fn read(attribute_id: u16, body: &'a [u8; 232]) -> Option<CmMessage<'a>> {
        let b = Fields(body);
        let ids = CmIds { local: b.u32(0), remote: b.u32(4) };
        let (body, private) = match attribute_id {
            0x0010 => (CmBody::Req(b.req()), 140),
            0x0011 => (
                CmBody::Mra(Mra { ids, answers: Served(b.bits(8, 6, 2)), service_timeout: b.bits(9, 3, 5) }),
                10,
            ),
            0x0012 => {
                let info_len = b.bits(9, 1, 7);
                let (answers, reason) = (Served(b.bits(8, 6, 2)), RejReason(b.u16(10)));
                let info = &body[12..12 + usize::from(info_len).min(72)];
                (CmBody::Rej(Rej { ids, answers, reason, info_len, info }), 84)
            }
            0x0013 => (CmBody::Rep(b.rep(ids)), 36),
            0x0014 => (CmBody::Rtu(ids), 8),
            0x0015 => (CmBody::Dreq(Dreq { ids, remote_qpn: Qpn::new(b.u24(8)) }), 12),
            0x0016 => (CmBody::Drep(ids), 8),
            0x0017 => {
                let service = ServiceId(b.u64(8));
                (CmBody::SidrReq(SidrReq { request_id: ids.local, pkey: Pkey(b.u16(4)), service }), 16)
            }
            0x0018 => (CmBody::SidrRep(b.sidr_rep()), 96),
            0x0019 => (CmBody::Lap(b.lap(ids)), 64),
            0x001A => {
                let info_len = usize::from(b.u8(8)).min(72);
                (CmBody::Apr(Apr { ids, status: b.u8(9), info: &body[12..12 + info_len] }), 84)
            }
            _ => return None,
        };
        Some(CmMessage { body, private: b.0.get(private..).unwrap_or_default() })
    }
}

/// Big-endian fields at fixed places of a message body.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8; 232]);

impl<'a> Fields<'a> {
    fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    fn u24(self, at: usize) -> u32 {
        u32::from_be_bytes([0, self.0[at], self.0[at + 1], self.0[at + 2]])
    }

    fn u32(self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    fn gid(self, at: usize) -> Gid {
        let mut gid = [0; 16];
        gid.copy_from_slice(&self.0[at..at + 16]);
        Gid(gid)
    }

    /// `count` bits of the byte at `at`, the lowest of them bit `low`.
    fn bits(self, at: usize, low: u32, count: u32) -> u8 {
        (self.0[at] >> low) & ((1u16 << count) - 1) as u8
    }

    fn req(self) -> Req {
        Req {
            local_id: self.u32(0),
            vendor_id: self.u24(5),
            service: ServiceId(self.u64(8)),
            ca_guid: self.u64(16),
            qkey: Qkey(self.u32(28)),
            qpn: Qpn::new(self.u24(32)),
            responder_resources: self.u8(35),
            initiator_depth: self.u8(39),
            eecn: (self.u24(36), self.u24(40)),
            remote_cm_timeout: self.bits(43, 3, 5),
            transport: self.bits(43, 1, 2),
            flow_control: self.bits(43, 0, 1) != 0,
            starting_psn: Psn::new(self.u24(44)),
            local_cm_timeout: self.bits(47, 3, 5),
            retry_count: self.bits(47, 0, 3),
            pkey: Pkey(self.u16(48)),
            mtu_code: self.bits(50, 4, 4),
            rdc_exists: self.bits(50, 3, 1) != 0,
            rnr_retry_count: self.bits(50, 0, 3),
            max_cm_retries: self.bits(51, 4, 4),
            srq: self.bits(51, 3, 1) != 0,
            extended_transport: self.bits(51, 0, 3),
            primary: self.path(52),
            alternate: self.path(96),
            sap_supported: self.bits(139, 2, 1) != 0,
        }
    }

    /// A path of a REQ, both of which are laid out alike.
    fn path(self, at: usize) -> CmPath {
        CmPath {
            local_lid: self.u16(at),
            remote_lid: self.u16(at + 2),
            local_gid: self.gid(at + 4),
            remote_gid: self.gid(at + 20),
            flow_label: self.u24(at + 36) >> 4,
            packet_rate: self.bits(at + 39, 0, 6),
            traffic_class: self.u8(at + 40),
            hop_limit: self.u8(at + 41),
            sl: self.bits(at + 42, 4, 4),
            subnet_local: self.bits(at + 42, 3, 1) != 0,
            ack_timeout: self.bits(at + 43, 3, 5),
        }
    }

    fn rep(self, ids: CmIds) -> Rep {
        let vendor = [0, self.u8(15), self.u8(19), self.u8(23)];
        Rep {
            ids,
            qkey: Qkey(self.u32(8)),
            qpn: Qpn::new(self.u24(12)),
            eecn: self.u24(16),
            vendor_id: u32::from_be_bytes(vendor),
            starting_psn: Psn::new(self.u24(20)),
            responder_resources: self.u8(24),
            initiator_depth: self.u8(25),
            target_ack_delay: self.bits(26, 3, 5),
            failover: self.bits(26, 1, 2),
            flow_control: self.bits(26, 0, 1) != 0,
            rnr_retry_count: self.bits(27, 5, 3),
            srq: self.bits(27, 4, 1) != 0,
            ca_guid: self.u64(28),
        }
    }

    fn sidr_rep(self) -> SidrRep<'a> {
        let info_len = usize::from(self.u8(5)).min(72);
        SidrRep {
            request_id: self.u32(0),
            status: self.u8(4),
            vendor_id: u32::from(self.u16(6)) << 8 | u32::from(self.u8(11)),
            qpn: Qpn::new(self.u24(8)),
            service: ServiceId(self.u64(12)),
            qkey: Qkey(self.u32(20)),
            info: &self.0[24..24 + info_len],
        }
    }

    fn lap(self, ids: CmIds) -> Lap {
        let path = CmPath {
            local_lid: self.u16(20),
            remote_lid: self.u16(22),
            local_gid: self.gid(24),
            remote_gid: self.gid(40),
            flow_label: self.u24(56) >> 4,
            packet_rate: self.bits(61, 0, 6),
            traffic_class: self.u8(59),
            hop_limit: self.u8(60),
            sl: self.bits(62, 4, 4),
            subnet_local: self.bits(62, 3, 1) != 0,
            ack_timeout: self.bits(63, 3, 5),
        };
        Lap { ids, remote_qpn: Qpn::new(self.u24(12)), remote_cm_timeout: self.bits(15, 3, 5), path }
    }
}
