//! Text and tables of the page.

use super::escape::html;
use super::rows::{Ladder, Row};
use crate::{Message, Report, Severity, service_name, words};
use softrnic_inspect::decode::writing::{Out, seconds, utc};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

pub(super) fn head(out: &mut Vec<u8>, title: &str) {
    out.text("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.text("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.text("<meta name=\"color-scheme\" content=\"light dark\">\n");
    out.text("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; ");
    out.text("script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n<title>");
    html(out, title);
    out.text(" explained</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n");
    out.text(STYLE);
    out.text("</style>\n</head>\n<body>\n<main>\n");
}

pub(super) fn foot(out: &mut Vec<u8>) {
    out.text("</main>\n<aside id=\"fields\" hidden aria-live=\"polite\"></aside>\n<script>\n");
    out.text(SCRIPT);
    out.text("</script>\n</body>\n</html>\n");
}

pub(super) fn summary(out: &mut Vec<u8>, report: &Report, title: &str) {
    out.text("<header><h1>");
    html(out, title);
    out.text("</h1>\n<p class=\"verdict\">");
    let (errors, warnings) = (report.count(Severity::Error), report.count(Severity::Warning));
    if errors + warnings == 0 {
        out.text("<span class=\"badge good\">✓ no fault found</span>");
    }
    if errors > 0 {
        badge(out, "error", &format!("✕ {}", words::count(errors, "error")));
    }
    if warnings > 0 {
        badge(out, "warning", &format!("▲ {}", words::count(warnings, "warning")));
    }
    out.text("</p>\n<p>");
    html(out, &report.summary.to_string());
    out.text("<br>");
    let (first, last) = report.times_ns;
    out.text("from <time>");
    utc(out, first);
    out.text("</time>, for ");
    html(out, &words::span(last.saturating_sub(first)));
    out.text("</p></header>\n");
}

fn badge(out: &mut Vec<u8>, class: &str, text: &str) {
    out.text("<span class=\"badge ");
    out.text(class);
    out.text("\">");
    html(out, text);
    out.text("</span> ");
}

pub(super) fn pairs(out: &mut Vec<u8>, report: &Report, ladders: &[Ladder]) {
    if report.pairs.is_empty() {
        out.text("<p>No RoCE packets.</p>\n");
        return;
    }
    out.text("<section><h2>QP pairs</h2>\n<div class=\"wide\"><table id=\"pairs\"><thead><tr>");
    for title in
        ["#", "A", "B", "", "packets A / B", "bytes A / B", "messages", "missing", "answer after", "faults"]
    {
        out.text("<th>");
        out.text(title);
        out.text("</th>");
    }
    out.text("</tr></thead><tbody>\n");
    let (missing, faults) = (missing(report), faults(report));
    for (number, pair) in report.pairs.iter().enumerate().take(TABLE_ROWS) {
        let drawn = ladders.iter().any(|l| l.pair == number);
        out.text(if drawn { "<tr tabindex=\"0\" data-pair=\"" } else { "<tr data-none=\"" });
        out.dec(number as u64);
        out.text("\"><td>");
        out.dec(number as u64 + 1);
        out.text("</td>");
        for end in &pair.ends {
            cell(out, &end.name());
        }
        cell(out, pair.transport_name());
        cell(out, &format!("{} / {}", pair.ends[0].packets, pair.ends[1].packets));
        cell(out, &format!("{} / {}", pair.ends[0].bytes, pair.ends[1].bytes));
        cell(out, &pair.message_counts.iter().sum::<u64>().to_string());
        cell(out, &missing[number].to_string());
        cell(out, &pair.rtt_ns.map_or(String::new(), words::span));
        out.text(if faults[number] > 0 { "<td class=\"bad\">▲ " } else { "<td>" });
        out.dec(faults[number]);
        out.text("</td></tr>\n");
    }
    out.text("</tbody></table></div>\n");
    more(out, report.pairs.len(), TABLE_ROWS, "pair");
    out.text("</section>\n");
}

/// Packets missing, by pair.
fn missing(report: &Report) -> Vec<u64> {
    let mut missing = vec![0; report.pairs.len()];
    for lost in &report.lost {
        missing[lost.pair] += u64::from(lost.last.distance_from(lost.first).unsigned_abs()) + 1;
    }
    missing
}

/// Warnings and errors, by pair, those that were left out included.
fn faults(report: &Report) -> Vec<u64> {
    let mut faults = vec![0; report.pairs.len()];
    for pair in report.faults().filter_map(|f| f.pair) {
        faults[pair] += 1;
    }
    for (pair, kind, count) in &report.more_findings {
        if let Some(pair) = pair
            && kind.severity() > Severity::Info
        {
            faults[*pair] += count;
        }
    }
    faults
}

/// Rows of tables, which would otherwise grow with the capture.
const TABLE_ROWS: usize = 500;

pub(super) fn more(out: &mut Vec<u8>, total: usize, shown: usize, what: &str) {
    if total > shown {
        out.text("<p class=\"note\">");
        html(out, &format!("and {} not listed", words::count((total - shown) as u64, what)));
        out.text("</p>\n");
    }
}

fn cell(out: &mut Vec<u8>, text: &str) {
    out.text("<td>");
    html(out, text);
    out.text("</td>");
}

/// Seconds since the capture began.
pub(super) fn time(out: &mut Vec<u8>, report: &Report, time_ns: u64) {
    let mut text = Vec::new();
    seconds(&mut text, time_ns, report.times_ns.0);
    out.text(String::from_utf8_lossy(&text).trim_start());
    out.text(" s");
}

/// Space for the diagrams, and a note on what they leave out.
pub(super) fn diagrams(out: &mut Vec<u8>, report: &Report, ladders: &[Ladder]) {
    if ladders.is_empty() {
        return;
    }
    out.text("<section id=\"diagrams\"><h2>Ladder</h2>\n");
    out.text(
        "<noscript><p class=\"note\">The diagrams are drawn by a script, which is switched off.</p></noscript>\n",
    );
    out.text("<form id=\"controls\"><label>QP pair <select id=\"pair\"></select></label> ");
    out.text("<label>QP <input id=\"qp\" size=\"8\" placeholder=\"0x11\" inputmode=\"text\"></label> ");
    out.text("<span class=\"zoom\"><button type=\"button\" id=\"in\">zoom in</button> ");
    out.text("<button type=\"button\" id=\"out\">zoom out</button> ");
    out.text("<button type=\"button\" id=\"whole\">all</button></span> ");
    out.text(
        "<output id=\"range\"></output></form>\n<div id=\"legend\"></div>\n<div id=\"ladders\"></div>\n",
    );
    let skipped: usize = ladders
        .iter()
        .flat_map(|l| &l.rows)
        .map(|row| match row {
            Row::Skipped(count) => *count,
            _ => 0,
        })
        .sum();
    let undrawn = report.pairs.len() - ladders.len();
    if skipped > 0 || undrawn > 0 {
        out.text("<p class=\"note\">To keep this page small, ");
        let mut parts = Vec::new();
        if skipped > 0 {
            parts.push(format!("{} of these pairs are not drawn", words::count(skipped as u64, "packet")));
        }
        if undrawn > 0 {
            parts.push(format!("{} without faults have no ladder", words::count(undrawn as u64, "pair")));
        }
        html(out, &parts.join(", and "));
        out.text("; what findings speak of is drawn first.</p>\n");
    }
    out.text("</section>\n");
}

pub(super) fn connections(out: &mut Vec<u8>, report: &Report) {
    if report.connections.is_empty() {
        return;
    }
    out.text("<section><h2>Connections</h2>\n<div class=\"wide\"><table><thead><tr>");
    for title in ["asked by", "asked", "service", "QPs", "first PSNs", "MTU", "state", "packets"] {
        out.text("<th>");
        out.text(title);
        out.text("</th>");
    }
    out.text("</tr></thead><tbody>\n");
    for c in report.connections.iter().take(TABLE_ROWS) {
        out.text("<tr>");
        cell(out, &c.active.to_string());
        cell(out, &c.passive.to_string());
        cell(out, &format!("{} ({})", service_name(c.service), c.transport));
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
        let qpn = |i: usize| or_unknown(c.qpns[i].map(|q| format!("{:#x}", q.get())));
        let psn = |i: usize| or_unknown(c.first_psns[i].map(|p| p.to_string()));
        cell(out, &format!("{}, {}", qpn(0), qpn(1)));
        cell(out, &format!("{}, {}", psn(0), psn(1)));
        cell(out, &or_unknown(c.mtu.map(|m| m.bytes().to_string())));
        cell(out, c.state.name());
        let packets: Vec<String> = c.packets.iter().take(12).map(u32::to_string).collect();
        cell(out, &packets.join(" "));
        out.text("</tr>\n");
    }
    out.text("</tbody></table></div>\n");
    more(out, report.connections.len(), TABLE_ROWS, "connection");
    out.text("</section>\n");
}

pub(super) fn messages(out: &mut Vec<u8>, report: &Report, per_pair: usize) {
    if report.pairs.iter().all(|p| p.messages.is_empty()) {
        return;
    }
    out.text("<section><h2>Messages</h2>\n");
    for (number, pair) in report.pairs.iter().enumerate().take(TABLE_ROWS / 5) {
        if pair.messages.is_empty() {
            continue;
        }
        out.text("<details data-pair=\"");
        out.dec(number as u64);
        out.text("\"><summary>");
        html(out, &format!("{}: {}", number + 1, pair.name()));
        out.text("</summary>\n<div class=\"wide\"><table><thead><tr>");
        for title in ["at", "", "message", "bytes", "PSNs", "packets", "answered by", "after", "repeats"] {
            out.text("<th>");
            out.text(title);
            out.text("</th>");
        }
        out.text("</tr></thead><tbody>\n");
        let mut by_time: Vec<&Message> = pair.messages.iter().collect();
        by_time.sort_by_key(|m| m.start_ns);
        for message in by_time.into_iter().take(per_pair) {
            write_message(out, report, message);
        }
        out.text("</tbody></table></div>\n");
        more(out, pair.message_counts.iter().sum::<u64>() as usize, per_pair, "message");
        out.text("</details>\n");
    }
    out.text("</section>\n");
}

fn write_message(out: &mut Vec<u8>, report: &Report, m: &Message) {
    out.text("<tr><td>");
    time(out, report, m.start_ns);
    out.text("</td>");
    cell(out, if m.requester == 0 { "A → B" } else { "B → A" });
    cell(out, m.kind.name());
    cell(out, &m.bytes.to_string());
    let range = |a: String, b: String| if a == b { a } else { format!("{a} to {b}") };
    cell(out, &range(m.first.to_string(), m.last.to_string()));
    cell(out, &range(m.packets.0.to_string(), m.packets.1.to_string()));
    match m.answer {
        Some((by, at)) => {
            cell(out, &by.to_string());
            cell(out, &words::span(at.saturating_sub(m.start_ns)));
        }
        None => out.text("<td></td><td></td>"),
    }
    cell(out, &if m.repeats == 0 { String::new() } else { m.repeats.to_string() });
    out.text("</tr>\n");
}
