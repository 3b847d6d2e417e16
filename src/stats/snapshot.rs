//! A snapshot of a NIC.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use softrnic_link::ProcessSlot;
use softrnic_link::fault::spelled;
use softrnic_wire::Qpn;

use super::Resources;

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
    /// The state of the port.
    #[serde(default)]
    pub port: PortSnapshot,
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
    /// The objects that programs have created on it, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Where the device was asked.
    #[serde(skip)]
    pub socket: PathBuf,
}

/// A port at one moment.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct PortSnapshot {
    /// `ACTIVE` or `DOWN`.
    pub state: String,
    /// The physical state, as sysfs names it.
    pub phys_state: String,
    /// The reported speed in megabits per second.
    pub speed_mbps: u64,
    /// For how long it has been down on command.
    pub down_for_ns: Option<u64>,
    /// When it will change on command.
    pub changes_in_ns: Option<u64>,
    /// What else holds on command, as commands say it: blackholes, limits, faults.
    #[serde(default)]
    pub in_force: Vec<String>,
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
    /// For how long the oldest request in flight has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_ns: Option<u64>,
    /// Where that was posted, if the program is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posted: Option<String>,
    /// What the peer's NIC has said of its end, if it was asked and has answered.
    #[serde(default)]
    pub peer_says: Option<PeerSays>,
    /// The peer does not answer, because its process is stopped, or waits for a processor or a disk.
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

/// What the NIC of a peer has said of its end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerSays {
    /// How long ago.
    pub ago_ns: u64,
    /// The state of its queue pair.
    pub state: String,
    /// The PSN that it expects.
    pub expected_psn: u32,
    /// How often it has answered that it has no receive.
    pub rnr_sent: u32,
    /// Receives that are posted.
    pub receives: u32,
    /// Its own requests that are not complete.
    pub queued_sends: u32,
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
    /// The slot of the address that is the peer's, the highest bits of its QPNs; none if it has all of the address.
    #[serde(default)]
    pub slot: Option<usize>,
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
            port: PortSnapshot::default(),
            active_mtu: 0,
            counters: BTreeMap::new(),
            qps: Vec::new(),
            peers: Vec::new(),
            connections: Vec::new(),
            reach: Vec::new(),
            processes: Vec::new(),
            resources: None,
            socket: PathBuf::new(),
        }
    }

    /// How the QP of a peer is reached: `shm`, or the kind of the link.
    pub fn through(&self, peer: IpAddr, qpn: u32) -> &str {
        let slot = ProcessSlot::of(Qpn::new(qpn)).number();
        let known = self
            .reach
            .iter()
            .find(|reach| reach.peer == peer && reach.slot.is_none_or(|known| known == slot));
        known.map_or_else(|| self.kind(), |reach| &reach.through)
    }

    /// The kind of its link, which the mode begins with.
    pub fn kind(&self) -> &str {
        self.mode.split(' ').next().unwrap_or_default()
    }
}

impl PortSnapshot {
    /// Its speed for people.
    pub fn speed(&self) -> String {
        match self.speed_mbps {
            megabits if megabits % 1000 == 0 => format!("{}Gbit", megabits / 1000),
            megabits => format!("{megabits}Mbit"),
        }
    }

    /// What was commanded of it, if anything was.
    pub fn commanded(&self) -> Option<String> {
        // To the millisecond: nobody reads more.
        let time = |ns: u64| spelled(Duration::from_millis(ns / 1_000_000));
        let down = self.down_for_ns.map(|ns| format!("down on command for {}", time(ns)));
        let change = self.changes_in_ns.map(|ns| format!("changes in {}", time(ns)));
        let in_force = self.in_force.iter().cloned();
        let texts: Vec<String> = down.into_iter().chain(change).chain(in_force).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

/// Which devices are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Devices {
    /// Every one.
    All,
    /// Those that have an address.
    With(IpAddr),
    /// Those that have a name.
    Named(String),
}

impl Devices {
    /// Whether a device is meant.
    pub fn include(&self, snapshot: &Snapshot) -> bool {
        match self {
            Devices::All => true,
            Devices::With(address) => snapshot.gids.values().any(|known| known == address),
            Devices::Named(name) => snapshot.device == *name,
        }
    }
}

fn program_name() -> String {
    std::fs::read_to_string("/proc/self/comm")
        .map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}
