//! Statistics as tables.

use std::fmt::Write as _;

use softrnic_nic::stats::{ConnectionSnapshot, Look, QpSnapshot, Snapshot, meaning};

use super::Group;
use crate::table::{BAD, HEADING, QUIET, Table};
use crate::units;

/// The whole result; counters that are 0 only if `all`.
pub fn report(look: &Look, all: bool) -> String {
    let mut out = String::new();
    if look.snapshots.is_empty() && look.silent.is_empty() {
        return "No process of this user has a SoftRNIC device.\n".into();
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
    if !snapshot.qps.is_empty() {
        let _ = writeln!(out, "{}", queue_pairs(&snapshot.qps));
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

fn queue_pairs(qps: &[QpSnapshot]) -> Table {
    let titles = [
        "QP",
        "service",
        "state",
        "peer",
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
    let mut table = Table::new(5, &titles).group(5, "PSNs").group(11, "packets");
    for qp in qps {
        table.row(vec![
            format!("{:#x}", qp.qpn),
            qp.service.clone(),
            qp.state.clone(),
            peer(qp),
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

/// The address at the other end, if the QP has one.
pub fn peer(qp: &QpSnapshot) -> String {
    if qp.peer.is_unspecified() { "-".into() } else { qp.peer.to_string() }
}

/// The number of the QP at the other end, if there is one.
pub fn peer_qpn(qp: &QpSnapshot) -> String {
    if qp.peer_qpn == 0 { "-".into() } else { format!("{:#x}", qp.peer_qpn) }
}
