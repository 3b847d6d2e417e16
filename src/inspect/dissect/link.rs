//! What lies below the transport bytes: link layers, and frames of which only a part was captured.

use softrnic_wire::{EtherType, Frame, FrameError, RoceV1Frame};

use super::merged::Merged;
use super::roce::{Net, Roce};
use super::tunnel;
use super::{Dissection, Icrc};
use crate::capture::{LinkType, Record};

/// Turns records into packets. Holds the buffers that unusual frames are laid out in.
///
/// `softrnic-wire` reads whole Ethernet frames. Frames of other link types get an Ethernet header made
/// up, and frames cut short by the capture are filled up with zeros to their length on the wire; both
/// happen here, and what was made up is never shown.
#[derive(Debug, Default)]
pub struct Dissector {
    scratch: Vec<u8>,
    /// What was found inside of another packet.
    inner: Vec<u8>,
}

/// Why a record is not shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Skipped {
    /// ARP, LLDP and the like.
    NotIp,
    /// IP, but not UDP.
    NotUdp,
    /// UDP to another port than RoCEv2's.
    OtherPort,
    /// A fragment of an IP packet, or one with IPv4 options: RoCEv2 allows neither.
    IpForm,
    /// The frame ends before its own headers, or its IP header makes no sense.
    Damaged,
    /// So little was captured that one cannot tell.
    CutTooShort,
    /// A link layer this program does not read.
    LinkType(u16),
}

impl Skipped {
    /// What to call such records when counting them.
    pub const fn name(self) -> &'static str {
        match self {
            Skipped::NotIp => "not IP",
            Skipped::NotUdp => "not UDP",
            Skipped::OtherPort => "UDP to other ports",
            Skipped::IpForm => "IP fragments or IP options",
            Skipped::Damaged => "damaged below the transport",
            Skipped::CutTooShort => "cut too short by the capture",
            Skipped::LinkType(_) => "of a link type not supported",
        }
    }
}

const MAC_PAIR: usize = 12;
const ETHERNET: usize = 14;
const SLL: usize = 16;
const SLL2: usize = 20;
const LOOPBACK: usize = 4;
const ERF: u16 = 197;
/// No RoCE frame is longer: 64 KiB of IP behind an Ethernet header with two tags.
const LONGEST: usize = 22 + 65_535;

impl Dissector {
    /// An empty one.
    pub fn new() -> Dissector {
        Dissector::default()
    }

    /// Reads one record.
    #[inline(always)]
    pub fn dissect<'a>(&'a mut self, record: &Record<'a>) -> Dissection<'a> {
        if record.link == LinkType::Ethernet && record.data.len() >= record.wire_len as usize {
            let frame = record.data;
            return match ethernet(frame, frame.len(), true) {
                Dissection::Skipped(why) => inside(frame, frame.len(), why, &mut self.inner),
                found => found,
            };
        }
        self.lay_out(record)
    }

    /// Copies the record behind an Ethernet header, with zeros for what was not captured.
    #[inline(never)]
    fn lay_out<'a>(&'a mut self, record: &Record<'a>) -> Dissection<'a> {
        let data = record.data;
        let mut header = [0; ETHERNET];
        let (header_len, l3, real) = match record.link {
            LinkType::Ethernet => (0, data, true),
            LinkType::RawIp => {
                let version = data.first().map_or(0, |b| b >> 4);
                let ether_type = if version == 6 { EtherType::IPV6 } else { EtherType::IPV4 };
                header[MAC_PAIR..].copy_from_slice(&ether_type.0.to_be_bytes());
                (ETHERNET, data, false)
            }
            LinkType::LinuxSll => {
                let Some((cooked, l3)) = data.split_first_chunk::<SLL>() else {
                    return Dissection::Skipped(Skipped::CutTooShort);
                };
                header[MAC_PAIR..].copy_from_slice(&cooked[14..16]);
                (ETHERNET, l3, false)
            }
            LinkType::LinuxSll2 => {
                let Some((cooked, l3)) = data.split_first_chunk::<SLL2>() else {
                    return Dissection::Skipped(Skipped::CutTooShort);
                };
                header[MAC_PAIR..].copy_from_slice(&cooked[..2]);
                (ETHERNET, l3, false)
            }
            LinkType::Loopback => {
                let Some((_, l3)) = data.split_first_chunk::<LOOPBACK>() else {
                    return Dissection::Skipped(Skipped::CutTooShort);
                };
                let ether_type =
                    if l3.first().is_some_and(|b| b >> 4 == 6) { EtherType::IPV6 } else { EtherType::IPV4 };
                header[MAC_PAIR..].copy_from_slice(&ether_type.0.to_be_bytes());
                (ETHERNET, l3, false)
            }
            LinkType::Erf => match erf_ethernet(data) {
                Some(frame) => (0, frame, true),
                None => return Dissection::Skipped(Skipped::LinkType(ERF)),
            },
            LinkType::Other(code) => return Dissection::Skipped(Skipped::LinkType(code)),
        };
        let dropped_header = data.len() - l3.len();
        let wire_l3 = (record.wire_len as usize).saturating_sub(dropped_header).max(l3.len());
        let captured = (header_len + l3.len()).min(LONGEST);
        let whole = (header_len + wire_l3).min(LONGEST);
        self.scratch.clear();
        self.scratch.extend_from_slice(&header[..header_len]);
        self.scratch.extend_from_slice(&l3[..captured - header_len]);
        self.scratch.resize(whole, 0);
        let frame = &self.scratch;
        match ethernet(frame, captured, real) {
            Dissection::Skipped(why) => inside(frame, captured, why, &mut self.inner),
            found => found,
        }
    }
}

/// The Ethernet frame in a record of an Endace card: a header of 16 bytes, extensions of 8 while a bit says that there is
/// another, and two bytes before the frame.
fn erf_ethernet(record: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = record.split_first_chunk::<16>()?;
    let (kind, mut more) = (header[8] & 0x7F, header[8] & 0x80 != 0);
    while more {
        let (extension, behind) = rest.split_first_chunk::<8>()?;
        more = extension[0] & 0x80 != 0;
        rest = behind;
    }
    // TYPE_ETH, and those that use the loss counter for something else.
    matches!(kind, 2 | 11 | 16).then(|| rest.get(2..)).flatten()
}

/// Looks for a packet inside of a frame that is none itself, of which the first `captured` bytes are real.
#[cold]
fn inside<'a>(frame: &'a [u8], captured: usize, why: Skipped, buffer: &'a mut Vec<u8>) -> Dissection<'a> {
    let Some(inner) = tunnel::find(&frame[..captured]) else { return Dissection::Skipped(why) };
    let found = match inner.frame {
        Some(at) => ethernet(&frame[at..], captured - at, true),
        None => {
            let captured = inner.lay_out(frame, captured, buffer);
            ethernet(buffer, captured, false)
        }
    };
    match found {
        Dissection::Skipped(_) => Dissection::Skipped(why),
        found => found,
    }
}

/// Reads an Ethernet frame of which the first `captured` bytes are real.
#[inline(always)]
fn ethernet(frame: &[u8], captured: usize, real_eth: bool) -> Dissection<'_> {
    match Frame::parse(frame) {
        Ok(parsed) => {
            let header_len = parsed.header.wire_len();
            if captured < header_len {
                return Dissection::Skipped(Skipped::CutTooShort);
            }
            let net = Net::V2 {
                header: parsed.header,
                udp_checksum: parsed.udp_checksum,
                ip_checksum_ok: parsed.ip_checksum_ok(),
            };
            let here = parsed.transport.len().min(captured - header_len);
            let roce = Roce::read(net, real_eth, parsed.transport, here);
            if let Icrc::Bad { .. } = roce.icrc
                && let Some(merged) = Merged::find(net, real_eth, parsed.transport)
            {
                return Dissection::Merged(merged);
            }
            Dissection::Roce(roce)
        }
        Err(FrameError::RoceV1) => roce_v1(frame, captured, real_eth),
        Err(error) => Dissection::Skipped(match error {
            // Zeros that stand for what was not captured.
            FrameError::OtherPort(0) | FrameError::NotUdp(0) if captured < frame.len() => {
                Skipped::CutTooShort
            }
            FrameError::NotIp(_) => Skipped::NotIp,
            FrameError::NotUdp(_) => Skipped::NotUdp,
            FrameError::OtherPort(_) => Skipped::OtherPort,
            FrameError::IpOptions(_) | FrameError::Fragment => Skipped::IpForm,
            _ if captured < frame.len() => Skipped::CutTooShort,
            _ => Skipped::Damaged,
        }),
    }
}

fn roce_v1(frame: &[u8], captured: usize, real_eth: bool) -> Dissection<'_> {
    match RoceV1Frame::parse(frame) {
        Ok(v1) => {
            let header_len = v1.eth.wire_len() + softrnic_wire::GRH_LEN;
            if captured < header_len {
                return Dissection::Skipped(Skipped::CutTooShort);
            }
            let net = Net::V1 {
                eth: v1.eth,
                src: v1.src,
                dst: v1.dst,
                tclass: v1.tclass,
                hop_limit: v1.hop_limit,
                grh: v1.grh,
            };
            let here = v1.transport.len().min(captured - header_len);
            Dissection::Roce(Roce::read(net, real_eth, v1.transport, here))
        }
        Err(_) if captured < frame.len() => Dissection::Skipped(Skipped::CutTooShort),
        Err(_) => Dissection::Skipped(Skipped::Damaged),
    }
}

impl Icrc {
    /// Whether a receiver would take the packet, as far as one can tell.
    pub const fn acceptable(self) -> bool {
        !matches!(self, Icrc::Bad { .. })
    }
}
