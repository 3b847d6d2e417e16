//! A snapshot of a NIC.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use softrnic_link::Part;
use softrnic_wire::Qpn;

/// A NIC at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process.
    pub pid: u32,
    /// Its program's name.
    pub program: String,
    /// The device's name.
    pub device: String,
    /// The mode of the link.
    pub mode: String,
    /// Nanoseconds on the device's clock, to compute rates between two snapshots.
    pub time_ns: u64,
    /// Addresses by index in the GID table.
    pub gids: BTreeMap<usize, IpAddr>,
    /// Active MTU in bytes.
    pub active_mtu: u32,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Queue pairs.
    pub qps: Vec<QpSnapshot>,
    /// Peers.
    pub peers: Vec<PeerSnapshot>,
    /// Connections of the connection manager.
    pub connections: Vec<ConnectionSnapshot>,
    /// How peers are reached, where that is not the same for all.
    #[serde(default)]
    pub reach: Vec<ReachSnapshot>,
    /// The processes that share the device's address, this one included; empty if none may.
    #[serde(default)]
    pub processes: Vec<u32>,
}

/// A queue pair at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct QpSnapshot {
    pub qpn: u32,
    pub service: String,
    pub state: String,
    pub peer: IpAddr,
    pub peer_qpn: u32,
    /// The next PSN to send, and the oldest unacknowledged one.
    pub send_psn: u32,
    pub una_psn: u32,
    pub expected_psn: u32,
    pub msn: u32,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Send work requests that are not complete.
    pub queued_sends: usize,
    pub retries_left: u8,
    pub rnr_wait: bool,
    /// The peer does not answer, because its process is stopped.
    #[serde(default)]
    pub peer_stopped: bool,
    /// Bytes per second that congestion control allows, if it limits the rate.
    pub paced_rate: Option<u64>,
    pub packets_sent: u64,
    pub packets_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Request packets sent more than once.
    pub retransmitted: u64,
    pub rnr_sent: u64,
    pub rnr_received: u64,
}

/// A peer address at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerSnapshot {
    /// The address.
    pub address: IpAddr,
    /// Bytes that may be in flight to it.
    pub window: u64,
    /// Bytes in flight to it.
    pub in_flight: u64,
}

/// How a peer is reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReachSnapshot {
    /// Its address.
    pub peer: IpAddr,
    /// The part of the address that is the peer's, the highest bits of its QPNs; none if it has all of the address.
    #[serde(default)]
    pub part: Option<usize>,
    /// `shm`, or the kind of the link: `udp`.
    pub through: String,
    /// Why not through shared memory.
    pub why: Option<String>,
    /// Packets sent through shared memory.
    pub shm_sent_pkts: u64,
    /// Packets received through shared memory.
    pub shm_rcvd_pkts: u64,
}

/// A connection of the connection manager at one moment, or a SIDR request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ConnectionSnapshot {
    pub id: u32,
    /// The peer's communication id, 0 until it is known.
    pub peer_id: u32,
    pub state: String,
    /// Transport service of the QPs.
    pub transport: String,
    /// The service that was asked for: port space and port, or a number.
    pub service: String,
    pub peer: IpAddr,
    pub qpn: u32,
    pub peer_qpn: u32,
}

impl Snapshot {
    /// What is known about a device without holding its NIC.
    pub fn of(device: &str) -> Snapshot {
        Snapshot {
            pid: std::process::id(),
            program: program_name(),
            device: device.to_owned(),
            mode: String::new(),
            time_ns: 0,
            gids: BTreeMap::new(),
            active_mtu: 0,
            counters: BTreeMap::new(),
            qps: Vec::new(),
            peers: Vec::new(),
            connections: Vec::new(),
            reach: Vec::new(),
            processes: Vec::new(),
        }
    }

    /// How the QP of a peer is reached: `shm`, or the kind of the link.
    pub fn through(&self, peer: IpAddr, qpn: u32) -> &str {
        let part = Part::of(Qpn::new(qpn)).number();
        let known = self
            .reach
            .iter()
            .find(|reach| reach.peer == peer && reach.part.is_none_or(|known| known == part));
        known.map_or_else(|| self.kind(), |reach| &reach.through)
    }

    /// The kind of its link, which the mode begins with.
    pub fn kind(&self) -> &str {
        self.mode.split(' ').next().unwrap_or_default()
    }
}

fn program_name() -> String {
    std::fs::read_to_string("/proc/self/comm")
        .map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}
