//! What statistics show of a NIC, read while it is held.

use std::net::IpAddr;

use softrnic_cm::{CmTransport, CommId};
use softrnic_link::ProcessSlot;
use softrnic_stats::{
    ConnectionSnapshot, PeerSays, PeerSnapshot, PortSnapshot, QpSnapshot, ReachSnapshot, Snapshot,
};
use softrnic_transport::{QpState, QpType};
use softrnic_wire::{Qpn, Time};

use super::{Core, PortSpeed, PortState};

/// QPs or connections that are read during one hold of the NIC.
const PART: usize = 256;

/// Everything except the QPs and the connections.
pub(super) fn take(snapshot: &mut Snapshot, time_ns: u64, wakeups: u64, core: &mut Core) {
    let gids = core.engine.gids();
    snapshot.gids = (0..gids.len()).filter_map(|index| Some((index, gids.get(index)?))).collect();
    snapshot.mode = core.link.capabilities().mode.clone();
    snapshot.time_ns = time_ns;
    snapshot.active_mtu = core.port.active_mtu().bytes();
    snapshot.port = port(time_ns, core);
    let counters = super::counters(core, wakeups);
    snapshot.counters = counters.map(|(name, value)| (name.to_owned(), value)).collect();
    let of_peer = |(address, window): (IpAddr, &softrnic_transport::Window)| PeerSnapshot {
        address,
        window: window.limit(),
        in_flight: window.in_flight(),
    };
    snapshot.peers = core.engine.peers().map(of_peer).collect();
    let reach = |reach: softrnic_link::Reach| ReachSnapshot {
        peer: reach.peer,
        slot: reach.slot.map(ProcessSlot::number),
        through: if reach.fallback_reason.is_some() { snapshot.kind() } else { "shm" }.to_owned(),
        why: reach.fallback_reason,
        shm_sent_pkts: reach.tx_datagrams,
        shm_rcvd_pkts: reach.rx_datagrams,
    };
    snapshot.reach = core.link.reaches().into_iter().map(reach).collect();
    snapshot.processes = core.link.sharing().map(|sharing| sharing.processes()).unwrap_or_default();
}

fn port(time_ns: u64, core: &mut Core) -> PortSnapshot {
    let state = PortState::from(core.port.state());
    let now = Time::from_nanos(time_ns);
    let (mut down_since, mut changes_at, mut in_force) = (None, None, Vec::new());
    if let Some(faults) = core.link.faults() {
        let port = faults.port(now);
        (down_since, changes_at, in_force) = (port.down_since(), port.next_change(), port.in_force(now));
        if !faults.spec().is_empty() {
            in_force.push(format!("faults {}", faults.spec()));
        }
    }
    PortSnapshot {
        state: state.logical().1.to_owned(),
        phys_state: state.physical().1.to_owned(),
        speed_mbps: PortSpeed::of(core.port.shown().speed).hundred_megabits() * 100,
        down_for_ns: down_since.map(|since| now.since(since).as_nanos() as u64),
        changes_in_ns: changes_at.map(|at| at.since(now).as_nanos() as u64),
        in_force,
    }
}

/// Reads some more QPs; false if there are no more. Many QPs are not read in one hold of the NIC, so that other
/// threads do not wait long: each is shown as it was at one moment, but not all at the same moment.
pub(super) fn take_qps(snapshot: &mut Snapshot, core: &Core) -> bool {
    let before = snapshot.qps.len();
    let now = Time::from_nanos(snapshot.time_ns);
    snapshot.qps.extend(core.engine.qps().skip(before).take(PART).map(|(qpn, service, query, counts)| {
        QpSnapshot {
            qpn: qpn.get(),
            service: service_name(service).to_owned(),
            state: query.status.state.name().to_owned(),
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
            waits_ns: query.status.waits_since.map(|since| now.since(since).as_nanos() as u64),
            posted: None,
            peer_says: None,
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
    snapshot.qps.len() == before + PART
}

/// Has the NICs at the other ends of queue pairs asked how they are; says what each has said so far.
pub(super) fn ask_peers(core: &mut Core, now: Time, qpns: &[Qpn]) -> Vec<Option<PeerSays>> {
    let asked = qpns.iter().map(|&qpn| {
        let known = core.engine.peer_status(qpn);
        core.engine.ask_status(now, qpn);
        known.map(|(at, status)| PeerSays {
            ago_ns: now.since(at).as_nanos() as u64,
            state: QpState::ALL.get(usize::from(status.state)).map_or("?", |state| state.name()).to_owned(),
            expected_psn: status.expected_psn.get(),
            rnr_sent: status.rnr_naks,
            receives: status.receives,
            queued_sends: status.requests,
        })
    });
    asked.collect()
}

/// Reads some more connections, after `after`; returns the last one read if there are more.
pub(super) fn take_connections(
    snapshot: &mut Snapshot,
    core: &Core,
    after: Option<CommId>,
) -> Option<CommId> {
    let mut last = None;
    let mut count = 0;
    snapshot.connections.extend(core.engine.connections(after).take(PART).map(|status| {
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
        QpType::Srd => "SRD",
    }
}
