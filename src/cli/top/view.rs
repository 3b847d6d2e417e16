//! What is shown, as lines of text, and which of them fit.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use softrnic_stats::{Between, Look, QpSnapshot, Snapshot};

use crate::stats::{Group, connections, peer, peer_qpn, reach, state, through};
use crate::table::{BAD, HEADING, QUIET, Table};
use crate::units;

/// A line in one style.
pub struct Line {
    pub style: Style,
    pub text: String,
}

const PLAIN: Style = Style::new();
const WAITS: Style = AnsiColor::Yellow.on_default();

/// All lines; `nothing` is what the first one says where there is no device.
pub fn lines(before: Option<&Look>, now: &Look, nothing: &str) -> Vec<Line> {
    let mut lines = vec![summary(now, nothing)];
    let mut add = |style, text| lines.push(Line { style, text });
    for snapshot in &now.snapshots {
        let between = Between::new(before, snapshot);
        add(PLAIN, String::new());
        add(HEADING, format!("{} of {} ({})", snapshot.device, snapshot.program, snapshot.pid));
        add(QUIET, format!("  {}", snapshot.mode));
        add(PLAIN, format!("  {}", traffic(snapshot, between)));
        for text in reach(snapshot) {
            add(PLAIN, format!("  {text}"));
        }
        for group in [Group::Connections, Group::Recovery, Group::Dropped] {
            if let Some(text) = counters(snapshot, between, group) {
                let style = match group {
                    Group::Dropped => BAD,
                    Group::Recovery => WAITS,
                    Group::Traffic | Group::Connections => PLAIN,
                };
                add(style, format!("  {}: {text}", group.title()));
            }
        }
        for (number, text) in queue_pairs(snapshot, between).lines().into_iter().enumerate() {
            let style = match number.checked_sub(1).map(|place| &snapshot.qps[place]) {
                None => QUIET,
                Some(qp) if qp.state == "ERR" || qp.state == "SQE" => BAD,
                Some(qp) if qp.rnr_wait || qp.peer_stopped => WAITS,
                Some(_) => PLAIN,
            };
            add(style, format!("  {text}"));
        }
        if !snapshot.connections.is_empty() {
            for (number, text) in connections(&snapshot.connections).lines().into_iter().enumerate() {
                add(if number == 0 { QUIET } else { PLAIN }, format!("  {text}"));
            }
        }
    }
    for silent in &now.silent {
        add(BAD, format!("{}: {}", silent.name, silent.why));
    }
    lines
}

fn summary(now: &Look, nothing: &str) -> Line {
    let count = |number: usize, what: &str| units::count(number as u64, what);
    let processes: BTreeSet<u32> = now.snapshots.iter().map(|snapshot| snapshot.pid).collect();
    let qps = now.snapshots.iter().map(|snapshot| snapshot.qps.len()).sum();
    let text = match processes.len() {
        0 => nothing.to_owned(),
        1 => format!("1 process, {}, {}", count(now.snapshots.len(), "device"), count(qps, "QP")),
        many => format!("{many} processes, {} devices, {}", now.snapshots.len(), count(qps, "QP")),
    };
    Line { style: PLAIN, text: format!("softrnic top: {text}") }
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or("-".into(), units::rate)
}

fn bandwidth(per_second: Option<f64>) -> String {
    per_second.map_or("-".into(), units::bandwidth)
}

fn traffic(snapshot: &Snapshot, between: Between<'_>) -> String {
    let now = |name: &str| snapshot.counters.get(name).copied().unwrap_or(0);
    let part = |what: &str, bytes: &str, packets: &str| {
        let (bytes, packets) =
            (between.of_counter(bytes, now(bytes)), between.of_counter(packets, now(packets)));
        format!("{what} {} in {} packets", bandwidth(bytes), rate(packets))
    };
    let (sent, received) =
        (part("sends", "sent_bytes", "sent_pkts"), part("receives", "rcvd_bytes", "rcvd_pkts"));
    format!("{sent}, {received}")
}

/// The counters of a group that are not 0, and how fast they increase.
fn counters(snapshot: &Snapshot, between: Between<'_>, group: Group) -> Option<String> {
    let shown = snapshot.counters.iter().filter(|(name, value)| Group::of(name) == group && **value > 0);
    let texts: Vec<String> = shown
        .map(|(name, value)| match between.of_counter(name, *value) {
            Some(rate) if rate > 0.0 => format!("{name} {value} (+{})", units::rate(rate)),
            _ => format!("{name} {value}"),
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn queue_pairs(snapshot: &Snapshot, between: Between<'_>) -> Table {
    let titles = [
        "QP",
        "service",
        "state",
        "peer",
        "through",
        "its QP",
        "next PSN",
        "oldest",
        "expected",
        "in flight",
        "window",
        "posted",
        "resent",
        "RNR in",
        "RNR out",
        "out",
        "in",
    ];
    let mut table = Table::new(6, &titles);
    for qp in &snapshot.qps {
        let window = snapshot.peers.iter().find(|p| p.address == qp.peer).map(|p| units::volume(p.window));
        let both = |bytes: fn(&QpSnapshot) -> u64, packets: fn(&QpSnapshot) -> u64| match (
            between.of_qp(qp, bytes),
            between.of_qp(qp, packets),
        ) {
            (Some(bytes), Some(packets)) if packets > 0.0 => {
                format!("{}, {}", units::bandwidth(bytes), units::rate(packets))
            }
            (Some(_), Some(_)) => "0".into(),
            _ => "-".into(),
        };
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
            units::volume(qp.in_flight),
            window.unwrap_or("-".into()),
            qp.queued_sends.to_string(),
            qp.retransmitted.to_string(),
            qp.rnr_received.to_string(),
            qp.rnr_sent.to_string(),
            both(|qp| qp.bytes_sent, |qp| qp.packets_sent),
            both(|qp| qp.bytes_received, |qp| qp.packets_received),
        ]);
    }
    table
}

/// Which lines are visible.
#[derive(Default)]
pub struct Scroll {
    first: usize,
}

impl Scroll {
    /// The summary, and as many of the other lines as there are rows for.
    pub fn visible<'a>(&mut self, lines: &'a [Line], rows: usize) -> Vec<&'a Line> {
        self.by(0, lines.len(), rows);
        let Some((summary, others)) = lines.split_first() else { return Vec::new() };
        let shown = others.iter().skip(self.first).take(rows.saturating_sub(1));
        std::iter::once(summary).chain(shown).collect()
    }

    /// Moves by this many lines, but not past the last.
    pub fn by(&mut self, by: isize, lines: usize, rows: usize) {
        self.first = self.first.saturating_add_signed(by).min(lines.saturating_sub(rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrolling_ends_with_the_last_line() {
        let line = |n: i32| Line { style: PLAIN, text: n.to_string() };
        let lines: Vec<Line> = (0..10).map(line).collect();
        let mut scroll = Scroll::default();
        let mut shown = |by, rows| {
            scroll.by(by, lines.len(), rows);
            let visible = scroll.visible(&lines, rows);
            visible.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(0, 4), "0 1 2 3");
        assert_eq!(shown(2, 4), "0 3 4 5");
        assert_eq!(shown(100, 4), "0 7 8 9");
        assert_eq!(shown(0, 8), "0 3 4 5 6 7 8 9", "more room shows more");
        assert_eq!(shown(-100, 4), "0 1 2 3");
        assert_eq!(shown(0, 20), "0 1 2 3 4 5 6 7 8 9");
        assert_eq!(shown(0, 0), "0");
    }
}
