//! The counters in Prometheus' text format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Look, QpSnapshot, ReachSnapshot, Snapshot, meaning};

/// A metric of one QP.
type OfQp = (&'static str, Type, &'static str, fn(&QpSnapshot) -> u64);

const QP: &[OfQp] = &[
    ("qp_sent_packets_total", Type::Counter, "Packets that a QP sent, retransmissions included.", |qp| {
        qp.packets_sent
    }),
    ("qp_received_packets_total", Type::Counter, "Packets that a QP received.", |qp| qp.packets_received),
    ("qp_sent_bytes_total", Type::Counter, "Bytes of the packets that a QP sent.", |qp| qp.bytes_sent),
    ("qp_received_bytes_total", Type::Counter, "Bytes of the packets that a QP received.", |qp| {
        qp.bytes_received
    }),
    ("qp_resent_packets_total", Type::Counter, "Requests that a QP sent more than once.", |qp| {
        qp.retransmitted
    }),
    ("qp_sent_rnr_naks_total", Type::Counter, "RNR NAKs that a QP sent.", |qp| qp.rnr_sent),
    ("qp_received_rnr_naks_total", Type::Counter, "RNR NAKs that a QP received.", |qp| qp.rnr_received),
    ("qp_in_flight_bytes", Type::Gauge, "Bytes of a QP that are in flight.", |qp| qp.in_flight),
    ("qp_queued_sends", Type::Gauge, "Send work requests of a QP that are not complete.", |qp| {
        qp.queued_sends as u64
    }),
    ("qp_waits_for_receiver", Type::Gauge, "Whether a QP waits after an RNR NAK.", |qp| qp.rnr_wait.into()),
];

#[derive(Clone, Copy)]
enum Type {
    Counter,
    Gauge,
}

/// Names and values that tell the samples of a metric apart.
type Labels = Vec<(&'static str, String)>;

/// All metrics.
pub fn exposition(look: &Look) -> String {
    let mut metrics = Metrics::default();
    let count = [("", look.snapshots.len()), ("silent", look.silent.len())];
    metrics.describe("devices", Type::Gauge, "Devices of running processes that answer.");
    metrics.sample("devices", &[], count[0].1 as u64);
    metrics.describe("silent_devices", Type::Gauge, "Devices of running processes that do not answer.");
    metrics.sample("silent_devices", &[], count[1].1 as u64);
    for snapshot in &look.snapshots {
        device(&mut metrics, snapshot);
    }
    metrics.text()
}

fn device(metrics: &mut Metrics, snapshot: &Snapshot) {
    let pid = snapshot.pid.to_string();
    let own: [(&str, &str); 3] =
        [("pid", &pid), ("program", &snapshot.program), ("device", &snapshot.device)];
    let with = |more: &[(&'static str, &str)]| -> Labels {
        own.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    metrics.describe("device_info", Type::Gauge, "What a device is; always 1.");
    metrics.sample("device_info", &with(&[("mode", &snapshot.mode)]), 1);
    metrics.describe("active_mtu_bytes", Type::Gauge, "The largest path MTU that a device's port allows.");
    metrics.sample("active_mtu_bytes", &with(&[]), snapshot.active_mtu.into());
    // Names also come from the other process. An invalid one would invalidate the whole page.
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    for (name, value) in snapshot.counters.iter().filter(|(name, _)| is_name(name)) {
        let name = format!("{name}_total");
        metrics.describe(
            &name,
            Type::Counter,
            meaning(name.trim_end_matches("_total")).unwrap_or("Not known."),
        );
        metrics.sample(&name, &with(&[]), *value);
    }
    for qp in &snapshot.qps {
        let (qpn, peer_qpn) = (format!("{:#x}", qp.qpn), format!("{:#x}", qp.peer_qpn));
        let peer = qp.peer.to_string();
        metrics.describe("qp_info", Type::Gauge, "What a QP is and the state that it is in; always 1.");
        let info: [(&str, &str); 5] = [
            ("qp", &qpn),
            ("service", &qp.service),
            ("state", &qp.state),
            ("peer", &peer),
            ("peer_qp", &peer_qpn),
        ];
        metrics.sample("qp_info", &with(&info), 1);
        for (name, kind, help, value) in QP {
            metrics.describe(name, *kind, help);
            metrics.sample(name, &with(&[("qp", &qpn)]), value(qp));
        }
    }
    let mut connections = BTreeMap::<&str, u64>::new();
    for connection in &snapshot.connections {
        *connections.entry(&connection.state).or_default() += 1;
    }
    for (state, count) in connections {
        metrics.describe("connections", Type::Gauge, "Connections of the connection manager in a state.");
        metrics.sample("connections", &with(&[("state", state)]), count);
    }
    for peer in &snapshot.peers {
        let address = peer.address.to_string();
        metrics.describe("peer_window_bytes", Type::Gauge, "Bytes that may be in flight to a peer.");
        metrics.sample("peer_window_bytes", &with(&[("peer", &address)]), peer.window);
        metrics.describe("peer_in_flight_bytes", Type::Gauge, "Bytes that are in flight to a peer.");
        metrics.sample("peer_in_flight_bytes", &with(&[("peer", &address)]), peer.in_flight);
    }
    for one in &snapshot.reach {
        reach(metrics, one, with);
    }
}

fn reach(metrics: &mut Metrics, reach: &ReachSnapshot, with: impl Fn(&[(&'static str, &str)]) -> Labels) {
    let peer = reach.peer.to_string();
    let slot = reach.slot.map(|slot| slot.to_string()).unwrap_or_default();
    let why = reach.why.as_deref().unwrap_or_default();
    metrics.describe(
        "peer_info",
        Type::Gauge,
        "How a peer is reached, and why not through shared memory; always 1.",
    );
    metrics.sample(
        "peer_info",
        &with(&[("peer", &peer), ("slot", &slot), ("through", &reach.through), ("why", why)]),
        1,
    );
    let sent =
        ("peer_shm_sent_packets_total", "Packets sent to a peer through shared memory.", reach.shm_sent_pkts);
    let received = (
        "peer_shm_received_packets_total",
        "Packets received from a peer through shared memory.",
        reach.shm_rcvd_pkts,
    );
    for (name, help, value) in [sent, received] {
        metrics.describe(name, Type::Counter, help);
        metrics.sample(name, &with(&[("peer", &peer), ("slot", &slot)]), value);
    }
}

/// Samples by metric: the format requires all samples of a metric to be together.
#[derive(Default)]
struct Metrics {
    by_name: BTreeMap<String, String>,
}

impl Metrics {
    fn describe(&mut self, name: &str, kind: Type, help: &str) {
        self.by_name.entry(name.to_owned()).or_insert_with(|| {
            let kind = match kind {
                Type::Counter => "counter",
                Type::Gauge => "gauge",
            };
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            format!("# HELP softrnic_{name} {help}\n# TYPE softrnic_{name} {kind}\n")
        });
    }

    fn sample(&mut self, name: &str, labels: &[(&str, String)], value: u64) {
        let Some(out) = self.by_name.get_mut(name) else { return };
        let _ = write!(out, "softrnic_{name}");
        for (place, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(out, "{}{label}=\"{text}\"", if place == 0 { '{' } else { ',' });
        }
        let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn text(self) -> String {
        self.by_name.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_metrics_stay_together() {
        let snapshot = |pid, program: &str| Snapshot {
            pid,
            program: program.into(),
            device: "softrnic0".into(),
            mode: String::new(),
            time_ns: 0,
            gids: BTreeMap::new(),
            active_mtu: 4096,
            counters: [("rcvd_seq_err".to_owned(), u64::MAX)].into(),
            qps: Vec::new(),
            peers: Vec::new(),
            connections: Vec::new(),
            reach: Vec::new(),
            processes: Vec::new(),
            resources: None,
            port: Default::default(),
            socket: Default::default(),
        };
        let snapshots = vec![snapshot(1, "a \"b\\\nc"), snapshot(2, "d")];
        let text = exposition(&Look { snapshots, ..Look::default() });
        let expected = "# HELP softrnic_rcvd_seq_err_total NAKs for a PSN sequence error received.\n\
            # TYPE softrnic_rcvd_seq_err_total counter\n\
            softrnic_rcvd_seq_err_total{pid=\"1\",program=\"a \\\"b\\\\\\nc\",device=\"softrnic0\"} 18446744073709551615\n\
            softrnic_rcvd_seq_err_total{pid=\"2\",program=\"d\",device=\"softrnic0\"} 18446744073709551615\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("softrnic_devices 2\n"), "{text}");
    }
}
