//! The result of explaining.

use std::net::IpAddr;

use softrnic_wire::{Qpn, Transport};

use super::analyze::sender;
use super::assemble::Message;
use super::connection::Connection;
use super::event::{CmEvent, Event, Extra, Flow};
use super::finding::{Finding, Kind, Severity};
use super::log::Tally;
use super::pairing::PairedBy;
use super::stream::Lost;
use softrnic_inspect::decode::Summary;

/// A capture, explained.
#[derive(Debug)]
pub struct Report {
    /// What the capture held, in numbers.
    pub summary: Summary,
    /// Time of its first and its last packet, nanoseconds since 1970.
    pub times_ns: (u64, u64),
    /// QP pairs in the order in which they first sent.
    pub pairs: Vec<Pair>,
    /// Connections that were asked for with CM messages.
    pub connections: Vec<Connection>,
    /// Findings, in the order of time.
    pub findings: Vec<Finding>,
    /// Findings left out, because there were too many of a kind in one pair.
    pub more_findings: Vec<(Option<usize>, Kind, u64)>,
    /// The kinds of findings, each in numbers: the most severe first, then the rarest.
    pub kinds: Vec<Tally>,
    /// Packets that must have existed but are not in the capture.
    pub lost: Vec<Lost>,
    pub(crate) events: Vec<Event>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) extras: Vec<Extra>,
    pub(crate) cm: Vec<CmEvent>,
}

/// Two QPs that communicate.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Both sides; the first sent first.
    pub ends: [End; 2],
    /// RC, UC, UD or XRC.
    pub transport: Transport,
    /// The evidence that the two directions belong together.
    pub paired_by: PairedBy,
    /// The connection that set it up, as an index into the report's.
    pub connection: Option<usize>,
    /// Path MTU in bytes, if it can be determined.
    pub mtu: Option<u32>,
    /// Time from a request to its acknowledgement as seen here, the median.
    pub rtt_ns: Option<u64>,
    /// Messages in the order of their PSNs, first those of one side.
    pub messages: Vec<Message>,
    /// Messages of each side, kept or not.
    pub message_counts: [u64; 2],
    /// Congestion notifications that each side received.
    pub cnps: [u64; 2],
    /// Time of its first and last packet.
    pub times_ns: (u64, u64),
    /// Indices of its events, in the order of time.
    pub(crate) order: Vec<u32>,
    pub(crate) flows: [Option<u32>; 2],
}

/// One side of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Its address.
    pub address: IpAddr,
    /// Its QP, if known.
    pub qpn: Option<Qpn>,
    /// Packets it sent.
    pub packets: u64,
    /// UDP source ports that they came from.
    pub ports: u32,
    /// Payload bytes it sent.
    pub bytes: u64,
    /// Packets of it that a switch marked.
    pub ce_marks: u64,
}

impl End {
    /// `10.0.0.1 QP 0x11`.
    pub fn name(&self) -> String {
        match self.qpn {
            Some(qpn) => format!("{} QP {:#x}", self.address, qpn.get()),
            None => format!("{} QP unknown", self.address),
        }
    }
}

impl Pair {
    /// `10.0.0.1 QP 0x11 and 10.0.0.2 QP 0x12`.
    pub fn name(&self) -> String {
        format!("{} and {}", self.ends[0].name(), self.ends[1].name())
    }

    /// Packets of both sides.
    pub fn packets(&self) -> u64 {
        self.ends[0].packets + self.ends[1].packets
    }

    /// The transport's name.
    pub const fn transport_name(&self) -> &'static str {
        match self.transport {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Rd => "RD",
            Transport::Ud => "UD",
            Transport::Cnp => "CNP",
            Transport::Xrc => "XRC",
            Transport::SoftRnic => "SoftRNIC",
        }
    }
}

impl Report {
    /// The worst of all findings, `None` without any.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(Finding::severity).max()
    }

    /// Whether the capture lacks packets, so that it cannot show everything.
    pub fn is_incomplete(&self) -> bool {
        self.kinds.iter().any(|t| matches!(t.kind, Kind::CaptureDropped | Kind::CaptureGap))
    }

    /// Findings that are faults: warnings and errors.
    pub fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.severity() > Severity::Info)
    }

    /// How many findings there are of a severity, those that were left out included.
    pub fn count(&self, severity: Severity) -> u64 {
        self.kinds.iter().filter(|t| t.severity() == severity).map(|t| t.count).sum()
    }

    /// Findings of one pair.
    pub fn findings_of(&self, pair: usize) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.pair == Some(pair))
    }

    /// The packets of a pair in the order of time, each with the side that sent it: 0 or 1.
    pub fn packets_of(&self, pair: usize) -> impl Iterator<Item = (usize, &Event)> {
        self.pairs[pair].order.iter().map(move |index| {
            let event = &self.events[*index as usize];
            (self.side_of(pair, event), event)
        })
    }

    /// The side of a pair that sent one of its packets: 0 or 1.
    pub fn side_of(&self, pair: usize, event: &Event) -> usize {
        let pair = &self.pairs[pair];
        sender(&self.flows, &pair.ends, pair.flows, event)
    }

    /// The name of a connection management message.
    pub fn cm_name(&self, event: &Event) -> Option<&'static str> {
        match self.extras.get(event.extra()?)? {
            Extra::Cm(index) => self.cm.get(*index as usize).map(|cm| cm.name),
            _ => None,
        }
    }

    /// Bytes that a READ or WRITE announces.
    pub fn dma_len(&self, event: &Event) -> Option<u32> {
        match self.extras.get(event.extra()?)? {
            Extra::Reth { len, .. } => Some(*len),
            _ => None,
        }
    }
}
