//! A study as a web page: completion times, goodput and queues over time, and who paused whom.

use std::fmt::Write as _;

use softrnic_page::{Origin, TAIL, escaped, head};

use crate::charts;
use crate::pauses::pause_tree;
use crate::result::{FlowResult, PortResult, Report};

/// Colours and lines of the charts are of it too.
pub const STYLE: &str = include_str!("page.css");
/// Rows of a table.
const ROWS: usize = 200;

/// The page. `deadlock` are the ports of a circle, if there is one.
pub fn page(report: &Report, deadlock: Option<&[String]>, origin: &Origin) -> String {
    let mut out = head(origin, "fabric study", STYLE);
    let ended = report.flows.iter().filter(|flow| flow.fct_ns.is_some()).count();
    let _ = writeln!(
        out,
        "<p>{} of {} ended, in {:.3} ms of virtual time.</p>",
        ended,
        if report.flows.len() == 1 { "1 flow".into() } else { format!("{} flows", report.flows.len()) },
        report.end_ns / 1e6
    );
    if let Some(ports) = deadlock {
        let ports = escaped(&ports.join(" \u{2192} "));
        let _ = writeln!(
            out,
            "<p class=\"bad\">Deadlock: these queues pause each other in a circle: {ports}</p>"
        );
    }
    if let Some(chart) = charts::completion_times(report) {
        out += "<h2>Completion times</h2>\n";
        out += &chart.figure();
    }
    if let Some(chart) = charts::goodput(report) {
        out += "<h2>Goodput</h2>\n";
        out += &chart.figure();
    }
    if let Some(chart) = charts::queues(report) {
        out += "<h2>Queues</h2>\n<p>Bytes that wait to leave a port, at the times of the samples.</p>\n";
        out += &chart.figure();
    }
    out += &paused(report);
    out += &ports(report);
    out += &flows(report);
    out + TAIL
}

fn paused(report: &Report) -> String {
    let branches = pause_tree(report);
    if branches.is_empty() {
        return String::new();
    }
    let mut out = "<h2>Who paused whom</h2>\n<pre>".to_owned();
    for branch in branches {
        let _ = writeln!(out, "{}{}", "  ".repeat(branch.depth), escaped(&branch.text));
    }
    out + "</pre>\n"
}

fn ports(report: &Report) -> String {
    let telling = |port: &&PortResult| port.tx_frames > 0;
    let mut ports: Vec<&PortResult> = report.ports.iter().filter(telling).collect();
    ports.sort_by_key(|port| std::cmp::Reverse((port.dropped + port.lost_down, port.queue_peak)));
    let titles = [
        "port",
        "frames",
        "bytes",
        "marked",
        "dropped",
        "damaged",
        "lost, link down",
        "faults",
        "pauses",
        "paused us",
        "longest queue B",
    ];
    table(
        "Ports",
        &titles,
        ports.len(),
        ports.iter().map(|port| {
            let mut row = vec![port.port.clone()];
            row.extend(port.counts().iter().map(u64::to_string));
            row.extend([format!("{:.1}", port.paused_ns / 1e3), port.queue_peak.to_string()]);
            row
        }),
    )
}

fn flows(report: &Report) -> String {
    let mut flows: Vec<&FlowResult> = report.flows.iter().collect();
    flows.sort_by(|one, other| {
        let time = |flow: &FlowResult| flow.fct_ns.unwrap_or(f64::INFINITY);
        time(other).total_cmp(&time(one))
    });
    let titles = ["flow", "from", "to", "bytes", "start us", "completion us", "Gb/s"];
    table(
        "Flows, the slowest first",
        &titles,
        flows.len(),
        flows.iter().map(|flow| {
            let (time, rate) = match (flow.fct_ns, &flow.error) {
                (Some(time), _) => {
                    (format!("{:.1}", time / 1e3), format!("{:.2}", 8.0 * flow.bytes as f64 / time))
                }
                (None, Some(error)) => (error.clone(), String::new()),
                (None, None) => ("not ended".into(), String::new()),
            };
            vec![
                flow.flow.to_string(),
                flow.src.clone(),
                flow.dst.clone(),
                flow.bytes.to_string(),
                format!("{:.1}", flow.start_ns / 1e3),
                time,
                rate,
            ]
        }),
    )
}

fn table(title: &str, titles: &[&str], of: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = format!("<h2>{title}</h2>\n<div class=\"wide\"><table>\n<tr>");
    for title in titles {
        let _ = write!(out, "<th>{title}</th>");
    }
    out += "</tr>\n";
    for row in rows.take(ROWS) {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out += "</table></div>\n";
    if of > ROWS {
        let _ = writeln!(out, "<p class=\"origin\">{ROWS} of {of}; --csv writes all.</p>");
    }
    out
}
