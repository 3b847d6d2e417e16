//! Statistics as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use softrnic_stats::{ConnectionSnapshot, Look, QpSnapshot, Snapshot, meaning};

use super::Group;
use crate::table::{BAD, HEADING, QUIET, Table};
use crate::units;

/// The whole result, or `nothing`; counters that are 0 only if `all`.
pub fn report(look: &Look, nothing: &str, all: bool) -> String {
    let mut out = String::new();
    if look.snapshots.is_empty() && look.silent.is_empty() {
        return format!("{nothing}\n");
    }
    for (number, snapshot) in look.snapshots.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        device(&mut out, snapshot, all);
    }
    for silent in &look.silent {
        let _ = writeln!(out, "{BAD}{}{BAD:#}: {}", silent.name, silent.why);
    }
    out
}

fn device(out: &mut String, snapshot: &Snapshot, all: bool) {
    let Snapshot { device, program, pid, mode, .. } = snapshot;
    let _ = writeln!(out, "{HEADING}{device}{HEADING:#} of {program} ({pid}): {QUIET}{mode}{QUIET:#}");
    for line in reach(snapshot) {
        let _ = writeln!(out, "{line}");
    }
    if !snapshot.qps.is_empty() {
        let _ = writeln!(out, "{}", queue_pairs(snapshot));
    }
    if !snapshot.connections.is_empty() {
        let _ = writeln!(out, "{}", connections(&snapshot.connections));
    }
    for group in Group::ALL {
        let counters =
            snapshot.counters.iter().filter(|(name, value)| Group::of(name) == group && (all || **value > 0));
        let mut table = Table::new(1, &[group.title(), "count", ""]);
        let mut any = false;
        for (name, value) in counters {
            any = true;
            table.row(vec![name.clone(), value.to_string(), meaning(name).unwrap_or_default().to_owned()]);
        }
        if any {
            let _ = writeln!(out, "{}", table.words(2));
        }
    }
    if let Some(trimmed) = out.strip_suffix("\n\n") {
        out.truncate(trimmed.len() + 1);
    }
}

fn queue_pairs(snapshot: &Snapshot) -> Table {
    let titles = [
        "QP",
        "service",
        "state",
        "peer",
        "through",
        "its QP",
        "send PSN",
        "oldest",
        "expected",
        "MSN",
        "in flight",
        "sends",
        "sent",
        "received",
        "resent",
        "RNR in",
        "RNR out",
    ];
    let mut table = Table::new(6, &titles).group(6, "PSNs").group(12, "packets");
    for qp in &snapshot.qps {
        table.row(vec![
            format!("{:#x}", qp.qpn),
            qp.service.clone(),
            state(qp),
            peer(qp),
            through(snapshot, qp),
            peer_qpn(qp),
            qp.send_psn.to_string(),
            qp.una_psn.to_string(),
            qp.expected_psn.to_string(),
            qp.msn.to_string(),
            units::volume(qp.in_flight),
            qp.queued_sends.to_string(),
            qp.packets_sent.to_string(),
            qp.packets_received.to_string(),
            qp.retransmitted.to_string(),
            qp.rnr_received.to_string(),
            qp.rnr_sent.to_string(),
        ]);
    }
    table
}

/// The connections of the connection manager.
pub fn connections(connections: &[ConnectionSnapshot]) -> Table {
    let mut table =
        Table::new(8, &["connection", "its id", "transport", "state", "peer", "service", "QP", "its QP"]);
    let number = |number: u32| if number == 0 { "-".into() } else { format!("{number:#x}") };
    for connection in connections {
        table.row(vec![
            number(connection.id),
            number(connection.peer_id),
            connection.transport.clone(),
            connection.state.clone(),
            connection.peer.to_string(),
            connection.service.clone(),
            number(connection.qpn),
            number(connection.peer_qpn),
        ]);
    }
    table
}

/// As many peers are named that share an obstacle.
const NAMED: usize = 4;

/// The port, unless it is simply active; who shares the address; who is reached through shared memory and who is not, on a link that has it.
pub fn reach(snapshot: &Snapshot) -> Vec<String> {
    let shared = snapshot.reach.iter().filter(|reach| reach.why.is_none());
    let (mut sent, mut received, mut count) = (0, 0, 0);
    for reach in shared {
        (sent, received, count) = (sent + reach.shm_sent_pkts, received + reach.shm_rcvd_pkts, count + 1);
    }
    let mut lines = Vec::new();
    if snapshot.port.state != "ACTIVE" || snapshot.port.commanded().is_some() {
        let commanded = snapshot.port.commanded().map(|text| format!(", {text}")).unwrap_or_default();
        lines.push(format!("port {}{commanded}", snapshot.port.state));
    }
    if snapshot.processes.len() > 1 {
        let processes = snapshot.processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        lines.push(format!("address shared by processes {processes}"));
    }
    if count > 0 {
        let peers = if count == 1 { "1 peer" } else { &format!("{count} peers") };
        lines.push(format!("shared memory with {peers}: {sent} packets sent, {received} received"));
    }
    let mut others: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
    for reach in &snapshot.reach {
        if let Some(why) = &reach.why {
            others.entry(why).or_default().push(reach.peer);
        }
    }
    for (why, peers) in others {
        let named = peers.iter().take(NAMED).map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let more = match peers.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!("no shared memory with {named}{more}: {why}"));
    }
    lines
}

/// The QP's state, and what it waits for.
pub fn state(qp: &QpSnapshot) -> String {
    let waits = match qp {
        QpSnapshot { peer_stopped: true, .. } => ", peer stopped",
        QpSnapshot { rnr_wait: true, .. } => ", RNR",
        _ => "",
    };
    format!("{}{waits}", qp.state)
}

/// How the QP's peer is reached.
pub fn through(snapshot: &Snapshot, qp: &QpSnapshot) -> String {
    if qp.peer.is_unspecified() { "-".into() } else { snapshot.through(qp.peer, qp.peer_qpn).into() }
}

/// The address at the other end, if the QP has one.
pub fn peer(qp: &QpSnapshot) -> String {
    if qp.peer.is_unspecified() { "-".into() } else { qp.peer.to_string() }
}

/// The number of the QP at the other end, if there is one.
pub fn peer_qpn(qp: &QpSnapshot) -> String {
    if qp.peer_qpn == 0 { "-".into() } else { format!("{:#x}", qp.peer_qpn) }
}
