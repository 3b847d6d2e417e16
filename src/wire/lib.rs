//! The bytes of RoCEv2 and what they mean.
//!
//! This crate turns received bytes into checked values and values into bytes: Ethernet, IPv4, IPv6 and UDP ([`Frame`],
//! [`FrameHeader`]), the Base Transport Header with every extended header ([`Packet`], [`Headers`]), management
//! datagrams with the connection manager's messages ([`Mad`], [`CmMessage`]), PSN arithmetic ([`Psn`]) and the
//! invariant CRC ([`icrc()`]). One constant table, [`OPCODES`], says for each opcode which headers follow, what payload
//! is legal and what the packet does; parsing, emission and the tests all read it.
//!
//! It knows nothing of queue pairs, memory or sockets, allocates nothing and uses no `unsafe`. A view is checked once,
//! when it is parsed; afterwards no accessor can fail. What is sent is built from types that can only hold legal
//! combinations.
//!
//! Start reading at [`Packet::parse`] for what arrives and at [`Headers::emit`] for what leaves. All multi-byte values
//! are in host order inside the types and big-endian on the wire, except [`Imm`], which is never interpreted, and the
//! ICRC, which goes out least significant byte first.
//!
//! A SEND of five bytes, built, sealed, and read again:
//!
//! ```
//! use softrnic_wire::*;
//!
//! let ip = IpFacts::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
//! let facts = UdpFacts { ip, src_port: 0xC0DE, dst_port: ROCE_UDP_PORT };
//!
//! let payload = b"hello";
//! let bth = Bth { pad: Pad::for_payload(payload.len()), ..Bth::new(Qpn::new(0x11), Psn::new(7)) };
//! let headers = Headers { bth, body: Body::Rc(Op::SendOnly(SendTail::Plain)) };
//!
//! let mut packet = [0; 64];
//! let packet = &mut packet[..headers.transport_len(payload.len())];
//! let at = headers.emit(packet);
//! packet[at..at + payload.len()].copy_from_slice(payload);
//! seal(&facts, packet);
//!
//! assert!(verify(&facts, packet));
//! let received = Packet::parse(packet)?;
//! assert_eq!(received.body.opcode().name(), "RC SEND Only");
//! assert_eq!(received.payload, payload);
//! # Ok::<(), ParseError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod body;
mod bytes;
mod cnp;
mod eth;
mod frame;
mod gid;
mod headers;
mod icrc;
mod ids;
mod ip;
mod mad;
mod mtu;
mod opcode;
mod opcode_table;
mod packet;
mod roce_v1;
mod sport;
mod srd;
mod time;

pub use body::{Body, Op, SendTail, UcOp, XrcBody};
/// How many packets, from the one that it expects, a SoftRNIC keeps or tells apart when they come out of order.
pub const REORDER_WINDOW: usize = 512;
/// The most paths of a queue pair between SoftRNICs. The lowest four bits of their UDP source ports tell them apart.
pub const MAX_PATHS: u8 = 16;

pub use cnp::{CNP_LEN, CNP_RESERVED_LEN, cnp_headers, emit_cnp};
pub use eth::{EthHeader, EtherType, MacAddr, VlanTag};
pub use frame::{
    Frame, FrameError, FrameHeader, MAX_FRAME_HEADER_LEN, MAX_TRANSPORT_LEN, ROCE_UDP_PORT, UDP_LEN,
};
pub use gid::Gid;
pub use headers::{
    Aeth, AtomicEth, BTH_LEN, Bth, Credits, Deth, Feth, NakCode, Pad, Placement, Reth, RnrTimer, Selectivity,
    Syndrome,
};
pub use icrc::{
    DF, ICRC_LEN, IcrcForm, IdRecovery, IpFacts, UdpFacts, icrc, icrc_roce_v1, recover_v4_id, rxe_flush_icrc,
    seal, verify, verify_either_flush, verify_unknown_id, verify_unknown_id_rxe_flush,
};
pub use ids::{Imm, Msn, Pkey, Psn, Qkey, Qpn, Rkey, Srqn};
pub use ip::{IPV4_LEN, IPV6_LEN, IpHeader, ipv4_checksum};
pub use mad::{
    AddressPair, Apr, Bits, Capabilities, CmBody, CmIds, CmInfo, CmMessage, CmPath, Dreq, Lap, MAD_BODY_LEN,
    MAD_LEN, Mad, MgmtClass, Mra, PeerStatus, PortSpace, PrivateHeader, Rej, RejReason, Rep, Req, Served,
    ServiceId, SidrRep, SidrReq, VendorAttribute, VendorMad,
};
pub use mtu::Mtu;
pub use opcode::{Header, Opcode, OpcodeInfo, Operation, PayloadRule, Transport};
pub use opcode_table::OPCODES;
pub use packet::{Headers, MAX_HEADERS_LEN, Packet, ParseError};
pub use roce_v1::{GRH_LEN, RoceV1Frame};
pub use sport::{default_flow_label, flow_label_to_sport, rxe_qpn_to_sport};
pub use srd::{
    SRD_HEADERS_LEN, SRD_WINDOW, SrdBody, SrdHeaders, SrdMessage, SrdOpcode, SrdPacket, SrdPart, SrdPsn,
    SrdRemote, is_srd,
};
pub use time::Time;
