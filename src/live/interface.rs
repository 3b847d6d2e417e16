//! A host that is a network interface of this machine: what arrives there enters the fabric, and what arrives at the host leaves
//! by the interface.

use std::collections::{HashMap, VecDeque};

use softrnic_af_packet::Tap;
use softrnic_fabric::{Host, PRIORITIES};

use crate::cargo::{EthernetFrame, Mac};

/// Bytes of Ethernet that a socket does not see: FCS, preamble, gap; and the shortest frame without FCS.
const UNSEEN: u32 = 24;
const SHORTEST: u32 = 60;
/// Stations remembered.
const MOST_STATIONS: usize = 1 << 16;

/// The group to which frames go whose station is not known, and those for several.
pub const EVERYBODY: u32 = 0;

/// An interface.
pub struct Interface {
    pub host: Host,
    pub name: String,
    pub tap: Tap,
    /// What has come from outside and the host's port has not sent yet, by priority.
    pub sent: [VecDeque<Box<EthernetFrame>>; PRIORITIES],
    bytes: [u64; PRIORITIES],
    /// Beyond so many bytes of a priority, what comes is lost: nobody outside can be told to pause.
    depth: u64,
    pub overruns: u64,
}

impl Interface {
    pub fn new(host: Host, name: &str, tap: Tap, depth: u64) -> Interface {
        Interface {
            host,
            name: name.into(),
            tap,
            sent: Default::default(),
            bytes: [0; PRIORITIES],
            depth,
            overruns: 0,
        }
    }

    /// A frame has come from outside. It comes back if there is no room.
    pub fn push(&mut self, priority: usize, frame: Box<EthernetFrame>) -> Option<Box<EthernetFrame>> {
        let bytes = frame.bytes.len() as u64;
        if self.bytes[priority] + bytes > self.depth {
            self.overruns += 1;
            return Some(frame);
        }
        self.bytes[priority] += bytes;
        self.sent[priority].push_back(frame);
        None
    }

    pub fn pop(&mut self, priority: usize) -> Option<Box<EthernetFrame>> {
        let frame = self.sent[priority].pop_front()?;
        self.bytes[priority] -= frame.bytes.len() as u64;
        Some(frame)
    }
}

/// Bytes that a frame takes on the wire.
pub fn on_wire(frame: &EthernetFrame) -> u32 {
    (frame.bytes.len() as u32).max(SHORTEST) + UNSEEN
}

/// Which station is at which interface, as bridges learn it.
#[derive(Default)]
pub struct Stations(HashMap<Mac, Host>);

impl Stations {
    /// Frames from a station come from a host.
    pub fn learn(&mut self, station: Mac, host: Host) {
        if !is_group(station) && (self.0.len() < MOST_STATIONS || self.0.contains_key(&station)) {
            self.0.insert(station, host);
        }
    }

    /// The host where a station is, if that is known.
    pub fn find(&self, station: Mac) -> Option<Host> {
        self.0.get(&station).copied()
    }
}

fn is_group(station: Mac) -> bool {
    station[0] & 1 != 0
}
