//! The report as text.

use std::io::{self, Write};

use super::assemble::Message;
use super::connection::service_name;
use super::finding::{Finding, Kind, Severity};
use super::log::Tally;
use super::pairing::PairedBy;
use super::report::{Pair, Report};
use super::words;

/// How much to write.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// Messages listed per pair.
    pub messages: usize,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions { messages: 20 }
    }
}

/// Writes the report for people to read.
///
/// # Errors
/// Those of writing.
pub fn write_text(report: &Report, options: TextOptions, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", report.summary)?;
    let (first, last) = report.times_ns;
    if report.summary.records > 0 {
        let mut utc = Vec::new();
        softrnic_inspect::decode::writing::utc(&mut utc, first);
        writeln!(
            out,
            "from {}, for {}",
            String::from_utf8_lossy(&utc),
            words::span(last.saturating_sub(first))
        )?;
    }
    verdict(report, out)?;
    kinds(report, out)?;
    connections(report, out)?;
    let mut told = vec![Told::default(); report.pairs.len()];
    for finding in &report.findings {
        if let Some(pair) = finding.pair {
            told[pair].findings.push(finding);
        }
    }
    for (pair, kind, count) in &report.more_findings {
        if let Some(pair) = *pair {
            told[pair].more.push((*kind, *count));
        }
    }
    for (number, (pair, told)) in report.pairs.iter().zip(&told).enumerate() {
        write_pair(report, (number, pair), told, options, out)?;
    }
    let general: Vec<_> = report.findings.iter().filter(|f| f.pair.is_none()).collect();
    if !general.is_empty() {
        writeln!(out, "\nfindings of no single pair")?;
        for finding in general {
            write_finding(report, finding, out)?;
        }
    }
    for (_, kind, count) in report.more_findings.iter().filter(|(pair, ..)| pair.is_none()) {
        writeln!(out, "    and {count} more of {kind}")?;
    }
    Ok(())
}

/// The findings of one pair.
#[derive(Clone, Debug, Default)]
struct Told<'r> {
    findings: Vec<&'r Finding>,
    /// Kinds of which more were found, and how many.
    more: Vec<(Kind, u64)>,
}

fn verdict(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let (errors, warnings) = (report.count(Severity::Error), report.count(Severity::Warning));
    if errors + warnings == 0 {
        return match report.is_incomplete() {
            true => writeln!(out, "no fault found in what was captured"),
            false => writeln!(out, "no fault found"),
        };
    }
    write!(out, "{}, {}", words::count(errors, "error"), words::count(warnings, "warning"))?;
    let kept = report.faults().count() as u64;
    if errors + warnings > kept {
        write!(out, "; {} of them are not listed", errors + warnings - kept)?;
    }
    writeln!(out)
}

/// As many findings as one sees at a glance; more than these are counted by kind before they are listed.
const AT_A_GLANCE: u64 = 10;

/// Columns of a time-line.
const COLUMNS: usize = 30;

/// The kinds of findings with their numbers, the most severe and rarest first.
fn kinds(report: &Report, out: &mut impl Write) -> io::Result<()> {
    if report.kinds.iter().map(|t| t.count).sum::<u64>() <= AT_A_GLANCE {
        return Ok(());
    }
    writeln!(out, "\nfindings by kind; a time-line runs from the first packet to the last")?;
    let width = |of: &dyn Fn(&Tally) -> usize| report.kinds.iter().map(of).max().unwrap_or(0);
    let count_width = width(&|t| t.count.to_string().len());
    let name_width = width(&|t| t.kind.name().len());
    for tally in &report.kinds {
        let at = |time_ns| {
            let mut time = Vec::new();
            softrnic_inspect::decode::writing::seconds(&mut time, time_ns, report.times_ns.0);
            String::from_utf8_lossy(&time).trim_start().to_owned()
        };
        let (first, last) = tally.times_ns;
        let when = match first == last {
            true => format!("at {}", at(first)),
            false => format!("{} to {}", at(first), at(last)),
        };
        writeln!(
            out,
            "  {:<7} {:>count_width$} {:<name_width$} |{}| {when}{}",
            tally.severity().name(),
            tally.count,
            tally.kind,
            time_line(tally),
            place(report, tally.kind),
        )?;
    }
    Ok(())
}

/// Where to look for the first finding of a kind.
fn place(report: &Report, kind: Kind) -> String {
    let Some(first) = report.findings.iter().find(|f| f.kind == kind) else { return String::new() };
    let pair = first.pair.map(|pair| format!("pair {}", pair + 1));
    let packet = first.packets.first().map(|packet| format!("packet {packet}"));
    let place: Vec<String> = pair.into_iter().chain(packet).collect();
    if place.is_empty() { String::new() } else { format!("; first {}", place.join(", ")) }
}

/// The time-line of a kind: a bar in each column in which something of it began.
fn time_line(tally: &Tally) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns: Vec<u64> = tally.slices.chunks(Tally::SLICES / COLUMNS).map(|c| c.iter().sum()).collect();
    let highest = columns.iter().max().copied().unwrap_or(0).max(1);
    let bar = |count: &u64| match count {
        0 => ' ',
        count => BARS[(count * 8).div_ceil(highest) as usize - 1],
    };
    columns.iter().map(bar).collect()
}

fn connections(report: &Report, out: &mut impl Write) -> io::Result<()> {
    if report.connections.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nconnections")?;
    for c in &report.connections {
        let qpn = |qpn: Option<softrnic_wire::Qpn>| qpn.map_or("?".to_owned(), |q| format!("{:#x}", q.get()));
        writeln!(
            out,
            "  {} QP {} asked {} for {} ({}): {}, QP {}; CM packets {}",
            c.active,
            qpn(c.qpns[0]),
            c.passive,
            service_name(c.service),
            c.transport,
            c.state.name(),
            qpn(c.qpns[1]),
            list(&c.packets),
        )?;
    }
    Ok(())
}

fn write_pair(
    report: &Report,
    (number, pair): (usize, &Pair),
    told: &Told<'_>,
    options: TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\npair {}: {} {}", number + 1, pair.transport_name(), pair.name())?;
    for (letter, end) in ["A", "B"].into_iter().zip(&pair.ends) {
        let packets = words::count(end.packets, "packet");
        let ports = if end.ports > 1 { format!(", from {} UDP ports", end.ports) } else { String::new() };
        writeln!(out, "  {letter} {} sent {packets}, {} bytes{ports}", end.name(), end.bytes)?;
    }
    let mut facts = Vec::new();
    if let Some(mtu) = pair.mtu {
        facts.push(format!("path MTU {mtu}"));
    }
    if let Some(rtt) = pair.rtt_ns {
        facts.push(format!("answers after {} (median)", words::span(rtt)));
    }
    if let Some(how) = pairing_words(pair.paired_by) {
        facts.push(how.to_owned());
    }
    if !facts.is_empty() {
        writeln!(out, "  {}", facts.join("; "))?;
    }
    if !told.findings.is_empty() {
        writeln!(out, "  findings")?;
    }
    for finding in &told.findings {
        write_finding(report, finding, out)?;
    }
    for (kind, count) in &told.more {
        writeln!(out, "    and {count} more of {kind}")?;
    }
    write_messages(report, pair, options, out)
}

fn write_messages(
    report: &Report,
    pair: &Pair,
    options: TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let total: u64 = pair.message_counts.iter().sum();
    if pair.messages.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {}", words::count(total, "message"))?;
    let mut by_time: Vec<&Message> = pair.messages.iter().collect();
    by_time.sort_by_key(|m| m.start_ns);
    for message in by_time.iter().take(options.messages) {
        write_message(report, message, out)?;
    }
    let shown = options.messages.min(pair.messages.len()) as u64;
    if total > shown {
        writeln!(out, "    and {} more", total - shown)?;
    }
    Ok(())
}

fn write_message(report: &Report, m: &Message, out: &mut impl Write) -> io::Result<()> {
    let mut time = Vec::new();
    softrnic_inspect::decode::writing::seconds(&mut time, m.start_ns, report.times_ns.0);
    write!(
        out,
        "    {} {} {} of {} bytes, {}, {}",
        String::from_utf8_lossy(&time),
        if m.requester == 0 { "A → B" } else { "B → A" },
        m.kind.name(),
        m.bytes,
        words::psns(m.first, m.last),
        if m.packets.0 == m.packets.1 {
            format!("packet {}", m.packets.0)
        } else {
            format!("packets {} to {}", m.packets.0, m.packets.1)
        },
    )?;
    if let Some((by, at)) = m.answer {
        let after = words::span(at.saturating_sub(m.start_ns));
        let how = if m.coalesced { "acknowledged together with later ones" } else { "answered" };
        write!(out, "; {how} by packet {by} after {after}")?;
    }
    if m.repeats > 0 {
        write!(out, "; {} repeated", words::count(m.repeats.into(), "packet"))?;
    }
    if !m.whole {
        write!(out, "; not all of it seen")?;
    }
    writeln!(out)
}

fn write_finding(report: &Report, finding: &Finding, out: &mut impl Write) -> io::Result<()> {
    let mut time = Vec::new();
    softrnic_inspect::decode::writing::seconds(&mut time, finding.time_ns, report.times_ns.0);
    writeln!(
        out,
        "    {} {:<7} {}: {}",
        String::from_utf8_lossy(&time),
        finding.severity().name(),
        finding.kind,
        finding.text
    )?;
    if !finding.packets.is_empty() {
        writeln!(out, "                   packets {}", list(&finding.packets))?;
    }
    if let Some(rule) = finding.rule {
        writeln!(out, "                   rule: {rule}")?;
    }
    Ok(())
}

/// How the pair was found, where that is less than certain.
const fn pairing_words(by: PairedBy) -> Option<&'static str> {
    match by {
        PairedBy::Datagrams | PairedBy::Itself | PairedBy::Nothing => None,
        PairedBy::Handshake => Some("paired by the CM handshake"),
        PairedBy::Answers => Some("paired by answers to requests"),
        PairedBy::SourcePort => Some("paired by the UDP source port"),
        PairedBy::OnlyCandidate => Some("paired because nothing else fits"),
    }
}

fn list(numbers: &[u32]) -> String {
    const SHOWN: usize = 12;
    let mut text: Vec<String> = numbers.iter().take(SHOWN).map(u32::to_string).collect();
    if numbers.len() > SHOWN {
        text.push(format!("and {} more", numbers.len() - SHOWN));
    }
    text.join(", ")
}
