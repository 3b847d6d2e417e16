//! A snapshot of a NIC.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use softrnic_cm::{CmTransport, CommId};
use softrnic_link::Part;
use softrnic_transport::{QpState, QpType};
use softrnic_wire::Qpn;

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

/// QPs or connections that are read during one hold of the NIC.
const PART: usize = 256;

impl Snapshot {
    /// What is known about a device without holding its NIC.
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
        known.map_or_else(|| kind(&self.mode), |reach| &reach.through)
    }

    /// Everything except the QPs and the connections.
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
        let reach = |reach: softrnic_link::Reach| ReachSnapshot {
            peer: reach.peer,
            part: reach.part.map(Part::number),
            through: if reach.obstacle.is_some() { kind(&self.mode) } else { "shm" }.to_owned(),
            why: reach.obstacle,
            shm_sent_pkts: reach.tx_datagrams,
            shm_rcvd_pkts: reach.rx_datagrams,
        };
        self.processes = core.link.sharing().map(|sharing| sharing.processes()).unwrap_or_default();
        self.reach = core.link.reaches().into_iter().map(reach).collect();
    }

    /// Reads some more QPs; false if there are no more. Many QPs are not read in one hold of the NIC, so that other
    /// threads do not wait long: each is shown as it was at one moment, but not all at the same moment.
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
                peer_stopped: core.engine.is_peer_stopped(&query),
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

    /// Reads some more connections, after `after`; returns the last one read if there are more.
    pub(crate) fn take_connections(&mut self, core: &Core, after: Option<CommId>) -> Option<CommId> {
        let mut last = None;
        let mut count = 0;
        self.connections.extend(core.engine.connections(after).take(PART).map(|status| {
            (last, count) = (Some(status.id), count + 1);
            let [qpn, peer_qpn] = status.qpns.map(Qpn::get);
            ConnectionSnapshot {
                id: status.id.get(),
                peer_id: status.remote_id,
                state: connection_state_name(status.state).to_owned(),
                transport: transport_name(status.transport).to_owned(),
                service: match status.service.port() {
                    Some((space, port)) => format!("{} {port}", space.name()),
                    None => format!("{:#x}", status.service.0),
                },
                peer: status.route.remote,
                qpn,
                peer_qpn,
            }
        }));
        last.filter(|_| count == PART)
    }
}

/// The kind of a link, which its mode begins with.
fn kind(mode: &str) -> &str {
    mode.split(' ').next().unwrap_or_default()
}

fn transport_name(transport: Option<CmTransport>) -> &'static str {
    match transport {
        Some(CmTransport::Rc) => "RC",
        Some(CmTransport::Uc) => "UC",
        Some(CmTransport::Xrc) => "XRC",
        None => "UD",
    }
}

fn connection_state_name(state: softrnic_cm::State) -> &'static str {
    use softrnic_cm::State as At;
    match state {
        At::ReqSent => "REQ sent",
        At::RepRcvd => "REP received",
        At::ReqRcvd => "REQ received",
        At::RepSent => "REP sent",
        At::Established => "established",
        At::DreqSent => "DREQ sent",
        At::DreqRcvd => "DREQ received",
        At::Timewait => "timewait",
        At::SidrReqSent => "SIDR_REQ sent",
        At::SidrReqRcvd => "SIDR_REQ received",
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
