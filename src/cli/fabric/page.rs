//! A study as a web page: completion times, goodput and queues over time, and who paused whom.

use std::fmt::Write as _;

use softrnic_study::{FlowResult, PortResult, Report, Sample};

use super::chart::{Axis, HUES, Line, chart};
use super::pauses;
use crate::units::count;
use crate::web_page::{Origin, TAIL, escaped, head};

const STYLE: &str = include_str!("page.css");
/// Rows of a table.
const ROWS: usize = 200;

pub fn page(report: &Report, deadlock: Option<&[String]>, origin: &Origin) -> String {
    let mut out = head(origin, "fabric study", STYLE);
    let ended = report.flows.iter().filter(|flow| flow.fct_ns.is_some()).count();
    let _ = writeln!(
        out,
        "<p>{} of {} ended, in {:.3} ms of virtual time.</p>",
        ended,
        count(report.flows.len() as u64, "flow"),
        report.end_ns / 1e6
    );
    if let Some(ports) = deadlock {
        let ports = escaped(&ports.join(" \u{2192} "));
        let _ = writeln!(
            out,
            "<p class=\"bad\">Deadlock: these queues pause each other in a circle: {ports}</p>"
        );
    }
    out += &completion_times(report);
    out += &goodput(report);
    out += &queues(report);
    out += &paused(report);
    out += &ports(report);
    out += &flows(report);
    out + TAIL
}

/// The share of flows that have ended within a time.
fn completion_times(report: &Report) -> String {
    let mut times: Vec<f64> = report.flows.iter().filter_map(|flow| flow.fct_ns).collect();
    if times.is_empty() {
        return String::new();
    }
    times.sort_by(f64::total_cmp);
    let share = |number: usize| 100.0 * number as f64 / report.flows.len() as f64;
    let mut points = vec![(0.0, 0.0)];
    for (number, time) in times.iter().enumerate() {
        points.push((time / 1e3, share(number)));
        points.push((time / 1e3, share(number + 1)));
    }
    let x = Axis { title: "us from the post to the last completion", high: times[times.len() - 1] / 1e3 };
    let y = Axis { title: "% of flows", high: 100.0 };
    "<h2>Completion times</h2>\n".to_owned()
        + &chart(&x, &y, &[Line { name: "flows that have ended".into(), points }])
}

fn time_axis(samples: &[Sample]) -> Axis {
    Axis { title: "us", high: samples.last().map_or(0.0, |sample| sample.time_ns / 1e3) }
}

/// What receivers got between samples, in Gb/s: of all flows, and of each if they are few.
fn goodput(report: &Report) -> String {
    if report.samples.len() < 2 {
        return String::new();
    }
    let rate = |bytes: fn(&Sample, usize) -> u64, flow: usize| -> Vec<(f64, f64)> {
        let pairs = report.samples.windows(2);
        pairs
            .map(|pair| {
                let bits = 8.0 * (bytes(&pair[1], flow) - bytes(&pair[0], flow)) as f64;
                (pair[1].time_ns / 1e3, bits / (pair[1].time_ns - pair[0].time_ns))
            })
            .collect()
    };
    let mut lines =
        vec![Line { name: "all flows".into(), points: rate(|sample, _| sample.delivered.iter().sum(), 0) }];
    if report.flows.len() < HUES {
        lines.extend(report.flows.iter().map(|flow| Line {
            name: format!("flow {}: {} to {}", flow.flow, flow.src, flow.dst),
            points: rate(|sample, flow| sample.delivered[flow], flow.flow),
        }));
    }
    let high = lines[0].points.iter().map(|point| point.1).fold(0.0, f64::max);
    "<h2>Goodput</h2>\n".to_owned()
        + &chart(&time_axis(&report.samples), &Axis { title: "Gb/s", high }, &lines)
}

/// The longest egress queues over time.
fn queues(report: &Report) -> String {
    if report.samples.len() < 2 {
        return String::new();
    }
    let mut longest: Vec<usize> = (0..report.ports.len()).collect();
    longest.sort_by_key(|&port| std::cmp::Reverse(report.ports[port].queue_peak));
    longest.truncate(HUES);
    longest.retain(|&port| report.samples.iter().any(|sample| sample.queued[port] > 0));
    let lines: Vec<Line> = longest
        .iter()
        .map(|&port| Line {
            name: report.ports[port].port.clone(),
            points: report
                .samples
                .iter()
                .map(|at| (at.time_ns / 1e3, at.queued[port] as f64 / 1e3))
                .collect(),
        })
        .collect();
    let high = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    "<h2>Queues</h2>\n<p>Bytes that wait to leave a port, at the times of the samples.</p>\n".to_owned()
        + &chart(&time_axis(&report.samples), &Axis { title: "kB", high }, &lines)
}

fn paused(report: &Report) -> String {
    let branches = pauses::tree(report);
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
