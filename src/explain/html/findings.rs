//! The findings of the page: by kind, each with its time-line, then one by one.

use super::escape::html;
use super::page::{more, time};
use crate::{Finding, Report, Severity, Tally, words};
use softrnic_inspect::decode::writing::{Out, seconds};

/// Findings of one kind that are listed.
const LISTED: usize = 50;
/// Findings of one kind that are in sight before anything is opened.
const IN_SIGHT: u64 = 3;
/// Packets named with a finding.
const PACKETS: usize = 24;

/// Units of the time-line's picture: of one part of the time, and of the highest bar.
const SLICE: usize = 4;
const HIGHEST: u64 = 24;

pub(super) fn write(out: &mut Vec<u8>, report: &Report) {
    out.text("<section id=\"findings\"><h2>Findings</h2>\n");
    if report.kinds.is_empty() {
        out.text("<p>None.</p>\n");
    } else {
        out.text("<p class=\"note\">By kind: the most severe first, then the rarest. A time-line runs from the first packet");
        out.text(" of the capture to the last.</p>\n");
    }
    let mut listed = std::collections::BTreeMap::<_, Vec<&Finding>>::new();
    for finding in &report.findings {
        let of_kind = listed.entry(finding.kind).or_default();
        if of_kind.len() < LISTED {
            of_kind.push(finding);
        }
    }
    for tally in &report.kinds {
        write_kind(out, report, tally, listed.get(&tally.kind).map_or(&[], Vec::as_slice));
    }
    out.text("</section>\n");
}

fn write_kind(out: &mut Vec<u8>, report: &Report, tally: &Tally, listed: &[&Finding]) {
    out.text("<details class=\"kind ");
    out.text(tally.severity().name());
    out.text(if tally.count <= IN_SIGHT { "\" open>" } else { "\">" });
    out.text("<summary><span class=\"what\"><b>");
    out.text(match tally.severity() {
        Severity::Error => "✕ ",
        Severity::Warning => "▲ ",
        Severity::Info => "● ",
    });
    out.text(tally.kind.name());
    out.text("</b> <span class=\"count\">");
    out.dec(tally.count);
    out.text(" ×</span> <time>");
    html(out, &when(report, tally));
    out.text("</time><span class=\"chosen\"></span></span>");
    time_line(out, report, tally);
    out.text("</summary>\n<ol>\n");
    for finding in listed {
        write_finding(out, report, finding);
    }
    out.text("</ol>\n");
    more(out, tally.count as usize, listed.len(), "finding");
    out.text("</details>\n");
}

/// When the findings of a kind began.
fn when(report: &Report, tally: &Tally) -> String {
    let at = |time_ns| {
        let mut text = Vec::new();
        seconds(&mut text, time_ns, report.times_ns.0);
        String::from_utf8_lossy(&text).trim_start().to_owned()
    };
    match tally.times_ns {
        (first, last) if first == last => format!("at {} s", at(first)),
        (first, last) => format!("from {} s to {} s", at(first), at(last)),
    }
}

/// A bar for each part of the time in which findings began. None is too small to be seen.
fn time_line(out: &mut Vec<u8>, report: &Report, tally: &Tally) {
    out.text("<svg class=\"timeline\" viewBox=\"0 0 ");
    out.dec((Tally::SLICES * SLICE) as u64);
    out.text(" 26\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"");
    html(out, &in_words(report, tally));
    out.text("\"><path class=\"base\" d=\"M0 25.5h");
    out.dec((Tally::SLICES * SLICE) as u64);
    out.text("\"/><path class=\"bars\" d=\"");
    let highest = tally.slices.iter().max().copied().unwrap_or(0).max(1);
    for (place, count) in tally.slices.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (u128::from(*count) * u128::from(HIGHEST) / u128::from(highest)) as u64;
        let height = height.max(3);
        out.push(b'M');
        out.dec((place * SLICE) as u64);
        out.text(" 25v-");
        out.dec(height);
        out.text("h4v");
        out.dec(height);
        out.push(b'z');
    }
    out.text("\"/></svg>");
}

/// What the time-line shows, for those who do not see it.
fn in_words(report: &Report, tally: &Tally) -> String {
    let (first, last) = report.times_ns;
    let parts = tally.slices.iter().filter(|count| **count > 0).count();
    let highest = tally.slices.iter().max().copied().unwrap_or(0);
    let place = tally.slices.iter().position(|count| *count == highest).unwrap_or(0);
    let start = u128::from(last.saturating_sub(first)) * place as u128 / Tally::SLICES as u128;
    format!(
        "time-line: {} in {parts} of {} equal parts of the time; the most, {highest}, in the part that begins after {}",
        words::count(tally.count, "finding"),
        Tally::SLICES,
        words::span(start as u64),
    )
}

fn write_finding(out: &mut Vec<u8>, report: &Report, finding: &Finding) {
    out.text("<li data-pair=\"");
    match finding.pair {
        Some(pair) => out.dec(pair as u64),
        None => out.text("all"),
    }
    out.text("\"><time>");
    time(out, report, finding.time_ns);
    out.text("</time> ");
    if let Some(pair) = finding.pair.filter(|_| report.pairs.len() > 1) {
        out.text("pair ");
        out.dec(pair as u64 + 1);
        out.text(": ");
    }
    html(out, &finding.text);
    if let Some(rule) = finding.rule {
        out.text(" <span class=\"rule\">Rule: ");
        html(out, &rule.to_string());
        out.text("</span>");
    }
    if !finding.packets.is_empty() {
        out.text(" <span class=\"packets\">packets");
        for number in finding.packets.iter().take(PACKETS) {
            out.text(" <a href=\"#p");
            out.dec((*number).into());
            out.text("\">");
            out.dec((*number).into());
            out.text("</a>");
        }
        if finding.packets.len() > PACKETS {
            out.text(" and ");
            out.dec((finding.packets.len() - PACKETS) as u64);
            out.text(" more");
        }
        out.text("</span>");
    }
    out.text("</li>\n");
}
