//! The fields of each connection management message (IBTA 12.6) and where they are.

use super::layout::{Bits, Layout, Pass};
use super::service::ServiceId;
use crate::gid::Gid;
use crate::ids::{Pkey, Psn, Qkey, Qpn};
use crate::mtu::Mtu;

/// Communication ids of sender and receiver of the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CmIds {
    /// The sender's.
    pub local: u32,
    /// The receiver's.
    pub remote: u32,
}

/// Connection request (IBTA 12.6.5).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Req {
    /// The sender's communication id.
    pub local_id: u32,
    /// Vendor of ECE options.
    pub vendor_id: Bits<24>,
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
    pub eecn: (Bits<24>, Bits<24>),
    /// Exponent: how long the receiver may take to answer.
    pub remote_cm_timeout: Bits<5>,
    /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport`.
    pub transport: Bits<2>,
    /// Whether ACK credits are honoured.
    pub flow_control: bool,
    /// PSN of the first packet that the receiver will send.
    pub starting_psn: Psn,
    /// Exponent: how long the sender may take to answer.
    pub local_cm_timeout: Bits<5>,
    /// Times the receiver should repeat before giving up.
    pub retry_count: Bits<3>,
    /// Partition.
    pub pkey: Pkey,
    /// Path MTU code; 1..=5 are legal.
    pub mtu_code: Bits<4>,
    /// Reliable datagram channel exists.
    pub rdc_exists: bool,
    /// Times the receiver should repeat after RNR NAKs; 7 means for ever.
    pub rnr_retry_count: Bits<3>,
    /// Times a CM message is repeated.
    pub max_cm_retries: Bits<4>,
    /// The sender receives into a shared queue.
    pub srq: bool,
    /// 1 is XRC.
    pub extended_transport: Bits<3>,
    /// The path to use.
    pub primary: CmPath,
    /// The path to fall back on; all zero on RoCE.
    pub alternate: CmPath,
    /// Whether the alternate path may be changed later.
    pub sap_supported: bool,
}

impl Req {
    /// The path MTU, if the code is legal.
    pub const fn mtu(&self) -> Option<Mtu> {
        Mtu::from_code(self.mtu_code.get() as u8)
    }
}

impl Layout for Req {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(0, &mut self.local_id);
        pass.field(5, &mut self.vendor_id);
        pass.field(8, &mut self.service);
        pass.field(16, &mut self.ca_guid);
        pass.field(28, &mut self.qkey);
        pass.field(32, &mut self.qpn);
        pass.field(35, &mut self.responder_resources);
        pass.field(36, &mut self.eecn.0);
        pass.field(39, &mut self.initiator_depth);
        pass.field(40, &mut self.eecn.1);
        pass.bits(43, 1, 3, &mut self.remote_cm_timeout);
        pass.bits(43, 1, 1, &mut self.transport);
        pass.bits(43, 1, 0, &mut self.flow_control);
        pass.field(44, &mut self.starting_psn);
        pass.bits(47, 1, 3, &mut self.local_cm_timeout);
        pass.bits(47, 1, 0, &mut self.retry_count);
        pass.field(48, &mut self.pkey);
        pass.bits(50, 1, 4, &mut self.mtu_code);
        pass.bits(50, 1, 3, &mut self.rdc_exists);
        pass.bits(50, 1, 0, &mut self.rnr_retry_count);
        pass.bits(51, 1, 4, &mut self.max_cm_retries);
        pass.bits(51, 1, 3, &mut self.srq);
        pass.bits(51, 1, 0, &mut self.extended_transport);
        self.primary.lay_out(52, pass);
        self.alternate.lay_out(96, pass);
        pass.bits(139, 1, 2, &mut self.sap_supported);
    }
}

/// A path named in a REQ or a LAP.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CmPath {
    /// LID of the message's sender; no meaning on RoCE.
    pub local_lid: u16,
    /// LID of its receiver.
    pub remote_lid: u16,
    /// GID of the message's sender.
    pub local_gid: Gid,
    /// GID of its receiver.
    pub remote_gid: Gid,
    /// Flow label of the packets.
    pub flow_label: Bits<20>,
    /// Static rate.
    pub packet_rate: Bits<6>,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: Bits<4>,
    /// Whether both ends share a subnet.
    pub subnet_local: bool,
    /// Exponent of the retransmission timer.
    pub ack_timeout: Bits<5>,
}

impl CmPath {
    /// Both paths of a REQ are laid out alike.
    fn lay_out(&mut self, at: usize, pass: &mut impl Pass) {
        self.addresses(at, pass);
        pass.bits(at + 39, 1, 0, &mut self.packet_rate);
        pass.field(at + 40, &mut self.traffic_class);
        pass.field(at + 41, &mut self.hop_limit);
        self.last_bits(at + 42, pass);
    }

    /// A LAP has traffic class and hop limit in front of the rate.
    fn lay_out_in_lap(&mut self, at: usize, pass: &mut impl Pass) {
        self.addresses(at, pass);
        pass.field(at + 39, &mut self.traffic_class);
        pass.field(at + 40, &mut self.hop_limit);
        pass.bits(at + 41, 1, 0, &mut self.packet_rate);
        self.last_bits(at + 42, pass);
    }

    fn addresses(&mut self, at: usize, pass: &mut impl Pass) {
        pass.field(at, &mut self.local_lid);
        pass.field(at + 2, &mut self.remote_lid);
        pass.gid(at + 4, &mut self.local_gid);
        pass.gid(at + 20, &mut self.remote_gid);
        pass.bits(at + 36, 3, 4, &mut self.flow_label);
    }

    fn last_bits(&mut self, at: usize, pass: &mut impl Pass) {
        pass.bits(at, 1, 4, &mut self.sl);
        pass.bits(at, 1, 3, &mut self.subnet_local);
        pass.bits(at + 1, 1, 3, &mut self.ack_timeout);
    }
}

/// Message receipt acknowledgement (IBTA 12.6.6).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mra {
    /// Whose connection.
    pub ids: CmIds,
    /// Which message was received.
    pub answers: Served,
    /// Exponent: how long the sender may take for the real answer.
    pub service_timeout: Bits<5>,
}

impl Layout for Mra {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        self.ids.lay_out(pass);
        pass.bits(8, 1, 6, &mut self.answers.0);
        pass.bits(9, 1, 3, &mut self.service_timeout);
    }
}

/// Which message a REJ or MRA answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Served(pub Bits<2>);

impl Served {
    /// The connection request.
    pub const REQ: Served = Served(Bits::new(0));
    /// The reply to it.
    pub const REP: Served = Served(Bits::new(1));
    /// In a REJ: another message, or none.
    pub const OTHER: Served = Served(Bits::new(2));
}

/// Refusal (IBTA 12.6.7).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rej<'a> {
    /// Whose connection; the sender's id is 0 when it has none.
    pub ids: CmIds,
    /// Which message was refused.
    pub answers: Served,
    /// Why.
    pub reason: RejReason,
    /// More about why.
    pub info: CmInfo<'a, 7>,
}

impl Layout for Rej<'_> {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        self.ids.lay_out(pass);
        pass.bits(8, 1, 6, &mut self.answers.0);
        pass.bits(9, 1, 1, &mut self.info.len);
        pass.field(10, &mut self.reason.0);
    }
}

/// Reason of a REJ (IBTA 12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RejReason(pub u16);

impl RejReason {
    /// No answer came in time.
    pub const TIMEOUT: RejReason = RejReason(4);
    /// The receiver has no such communication id.
    pub const INVALID_COMMUNICATION_ID: RejReason = RejReason(6);
    /// Nothing listens for the service.
    pub const INVALID_SERVICE_ID: RejReason = RejReason(8);
    /// The receiver has a connection of that QP already.
    pub const STALE_CONNECTION: RejReason = RejReason(10);
    /// The receiver has no such GID.
    pub const INVALID_GID: RejReason = RejReason(12);
    /// RoCE has no alternate paths.
    pub const INVALID_ALTERNATE_GID: RejReason = RejReason(18);
    /// The application refuses.
    pub const CONSUMER_DEFINED: RejReason = RejReason(28);
}

/// Additional information of a REJ, SIDR_REP or APR, whose length field has `N` bits: at most 72 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CmInfo<'a, const N: u32> {
    len: Bits<N>,
    bytes: &'a [u8],
}

impl<'a, const N: u32> CmInfo<'a, N> {
    /// Size of the field in bytes.
    pub const ROOM: usize = 72;

    /// `None` when there are more bytes than [`CmInfo::ROOM`].
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() <= Self::ROOM).then(|| CmInfo { len: Bits::new(bytes.len() as u32), bytes })
    }

    /// The bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The length that the message claims; it may exceed the size of the field.
    pub const fn claimed_len(&self) -> u32 {
        self.len.get()
    }

    /// Once the length is read: the bytes, at the front of `from`.
    pub(super) fn take_from(&mut self, from: &'a [u8]) {
        self.bytes = &from[..(self.len.get() as usize).min(Self::ROOM)];
    }

    pub(super) fn put_into(&self, room: &mut [u8]) {
        room[..self.bytes.len()].copy_from_slice(self.bytes);
    }
}

/// Agreement (IBTA 12.6.8).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rep {
    /// Whose connection.
    pub ids: CmIds,
    /// 0 for connections.
    pub qkey: Qkey,
    /// The sender's QP.
    pub qpn: Qpn,
    /// End-to-end context, for reliable datagram; with XRC the number of the target QP.
    pub eecn: Bits<24>,
    /// Vendor of ECE options.
    pub vendor_id: Bits<24>,
    /// PSN of the first packet that the receiver will send.
    pub starting_psn: Psn,
    /// READs and atomics that the receiver may have outstanding at the sender.
    pub responder_resources: u8,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// Exponent: how long the sender takes to acknowledge.
    pub target_ack_delay: Bits<5>,
    /// Whether an alternate path was accepted.
    pub failover: Bits<2>,
    /// Whether ACK credits are honoured.
    pub flow_control: bool,
    /// Times the receiver should repeat after RNR NAKs.
    pub rnr_retry_count: Bits<3>,
    /// The sender receives into a shared queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
}

impl Layout for Rep {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        self.ids.lay_out(pass);
        pass.field(8, &mut self.qkey);
        pass.field(12, &mut self.qpn);
        pass.field(16, &mut self.eecn);
        // The bytes of the vendor ID fill what was reserved in the first layout (kernel: CM_REP_VENDOR_ID_H, _M, _L).
        let [_, mut high, mut middle, mut low] = self.vendor_id.get().to_be_bytes();
        pass.field(15, &mut high);
        pass.field(19, &mut middle);
        pass.field(23, &mut low);
        self.vendor_id = Bits::new(u32::from_be_bytes([0, high, middle, low]));
        pass.field(20, &mut self.starting_psn);
        pass.field(24, &mut self.responder_resources);
        pass.field(25, &mut self.initiator_depth);
        pass.bits(26, 1, 3, &mut self.target_ack_delay);
        pass.bits(26, 1, 1, &mut self.failover);
        pass.bits(26, 1, 0, &mut self.flow_control);
        pass.bits(27, 1, 5, &mut self.rnr_retry_count);
        pass.bits(27, 1, 4, &mut self.srq);
        pass.field(28, &mut self.ca_guid);
    }
}

/// Disconnect request (IBTA 12.6.10).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dreq {
    /// Whose connection.
    pub ids: CmIds,
    /// The receiver's QP.
    pub remote_qpn: Qpn,
}

impl Layout for Dreq {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        self.ids.lay_out(pass);
        pass.field(8, &mut self.remote_qpn);
    }
}

/// Request for the QP of a datagram service (IBTA 12.11.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SidrReq {
    /// Relates the answer to it.
    pub request_id: u32,
    /// Partition.
    pub pkey: Pkey,
    /// The service.
    pub service: ServiceId,
}

impl Layout for SidrReq {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(0, &mut self.request_id);
        pass.field(4, &mut self.pkey);
        pass.field(8, &mut self.service);
    }
}

/// Answer to it (IBTA 12.11.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SidrRep<'a> {
    /// That of the request.
    pub request_id: u32,
    /// 0 when the QP is valid.
    pub status: u8,
    /// Vendor of ECE options.
    pub vendor_id: Bits<24>,
    /// The service's QP.
    pub qpn: Qpn,
    /// The service.
    pub service: ServiceId,
    /// Key that admits datagrams to the QP.
    pub qkey: Qkey,
    /// More about the status.
    pub info: CmInfo<'a, 8>,
}

impl Layout for SidrRep<'_> {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(0, &mut self.request_id);
        pass.field(4, &mut self.status);
        pass.field(5, &mut self.info.len);
        // The vendor ID is in two pieces, around the QPN.
        let mut high: Bits<16> = Bits::new(self.vendor_id.get() >> 8);
        let mut low = self.vendor_id.get() as u8;
        pass.field(6, &mut high);
        pass.field(11, &mut low);
        self.vendor_id = Bits::new(high.get() << 8 | u32::from(low));
        pass.field(8, &mut self.qpn);
        pass.field(12, &mut self.service);
        pass.field(20, &mut self.qkey);
    }
}

/// Load alternate path (IBTA 12.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lap {
    /// Whose connection.
    pub ids: CmIds,
    /// The receiver's QP.
    pub remote_qpn: Qpn,
    /// Exponent: how long the receiver may take to answer.
    pub remote_cm_timeout: Bits<5>,
    /// The proposed path.
    pub path: CmPath,
}

impl Layout for Lap {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        self.ids.lay_out(pass);
        pass.field(12, &mut self.remote_qpn);
        pass.bits(15, 1, 3, &mut self.remote_cm_timeout);
        self.path.lay_out_in_lap(20, pass);
    }
}

/// Alternate path response (IBTA 12.8.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Apr<'a> {
    /// Whose connection.
    pub ids: CmIds,
    /// 0 when the path was taken.
    pub status: u8,
    /// More about the status.
    pub info: CmInfo<'a, 8>,
}

impl Layout for Apr<'_> {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        self.ids.lay_out(pass);
        pass.field(8, &mut self.info.len);
        pass.field(9, &mut self.status);
    }
}

/// Every message that has both ids begins with them.
impl Layout for CmIds {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(0, &mut self.local);
        pass.field(4, &mut self.remote);
    }
}
