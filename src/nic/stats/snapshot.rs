//! What a look into a NIC shows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use softrnic_transport::{QpState, QpType};

use crate::device::Core;

/// A NIC at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process.
    pub pid: u32,
    /// Its program's name.
    pub program: String,
    /// The device's name.
    pub device: String,
    /// What the link is.
    pub mode: String,
    /// Nanoseconds on the device's clock, for rates between two snapshots.
    pub time_ns: u64,
    /// Addresses by place in the GID table.
    pub gids: BTreeMap<usize, IpAddr>,
    /// Active MTU in bytes.
    pub active_mtu: u32,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Queue pairs.
    pub qps: Vec<QpSnapshot>,
    /// Peers.
    pub peers: Vec<PeerSnapshot>,
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
    /// The next PSN to send, and the oldest one that is not acknowledged.
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
    /// Bytes per second that congestion control allows, if it limits.
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
    /// Bytes that are.
    pub in_flight: u64,
}

/// QPs that are looked at during one hold of the NIC.
const PART: usize = 256;

impl Snapshot {
    /// What is known of a device without holding its NIC.
    pub(crate) fn of(device: &str) -> Snapshot {
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
        }
    }

    /// All but the QPs.
    pub(crate) fn take(&mut self, time_ns: u64, wakeups: u64, core: &mut Core) {
        let gids = core.engine.gids();
        self.gids = (0..gids.len()).filter_map(|index| Some((index, gids.get(index)?))).collect();
        self.mode = core.link.capabilities().mode.clone();
        self.time_ns = time_ns;
        self.active_mtu = core.port.active_mtu().bytes();
        let counters = crate::device::counters(core, wakeups);
        self.counters = counters.map(|(name, value)| (name.to_owned(), value)).collect();
        let of_peer = |(address, window): (IpAddr, &softrnic_transport::Window)| PeerSnapshot {
            address,
            window: window.limit(),
            in_flight: window.in_flight(),
        };
        self.peers = core.engine.peers().map(of_peer).collect();
    }

    /// Some more QPs; false when there are no more. Many are not taken in one hold of the NIC, so that nobody waits
    /// long: each is then shown as it was at one moment, if not at the same as all others.
    pub(crate) fn take_qps(&mut self, core: &Core) -> bool {
        let before = self.qps.len();
        self.qps.extend(core.engine.qps().skip(before).take(PART).map(|(qpn, service, query, counts)| {
            QpSnapshot {
                qpn: qpn.get(),
                service: service_name(service).to_owned(),
                state: state_name(query.status.state).to_owned(),
                peer: query.attr.path.dst,
                peer_qpn: query.attr.dest_qpn.get(),
                send_psn: query.status.send_psn.get(),
                una_psn: query.status.una.get(),
                expected_psn: query.status.expected_psn.get(),
                msn: query.status.msn.get(),
                in_flight: query.status.in_flight,
                queued_sends: query.status.queued_sends,
                retries_left: query.status.retries_left,
                rnr_wait: query.status.rnr_wait,
                paced_rate: query.status.paced_rate,
                packets_sent: counts.packets_sent,
                packets_received: counts.packets_received,
                bytes_sent: counts.bytes_sent,
                bytes_received: counts.bytes_received,
                retransmitted: counts.retransmitted,
                rnr_sent: counts.rnr_sent,
                rnr_received: counts.rnr_received,
            }
        }));
        self.qps.len() == before + PART
    }
}

fn service_name(service: QpType) -> &'static str {
    match service {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::XrcInitiator => "XRC initiator",
        QpType::XrcTarget => "XRC target",
    }
}

fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}

fn program_name() -> String {
    std::fs::read_to_string("/proc/self/comm")
        .map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}
