//! The data that the page's script draws.

use softrnic_wire::{Operation, Syndrome};

use super::details::Details;
use super::escape::json;
use super::plot::{Plot, plots};
use super::rows::{Ladder, Row};
use crate::{Event, Mark, Report, words};
use softrnic_inspect::decode::nak_name;
use softrnic_inspect::decode::writing::Out;

/// Appends the data as JSON in a script element of its own.
pub(super) fn write(
    out: &mut Vec<u8>,
    report: &Report,
    ladders: &[Ladder],
    details: &Details,
    points: usize,
) {
    out.text("<script type=\"application/json\" id=\"data\">{\"pairs\":[");
    for (place, ladder) in ladders.iter().enumerate() {
        comma(out, place);
        let pair = &report.pairs[ladder.pair];
        out.text("{\"id\":");
        out.dec(ladder.pair as u64);
        out.text(",\"a\":");
        json(out, &pair.ends[0].name());
        out.text(",\"b\":");
        json(out, &pair.ends[1].name());
        out.text(",\"transport\":");
        json(out, pair.transport_name());
        out.text(",\"rows\":[");
        for (place, row) in ladder.rows.iter().enumerate() {
            comma(out, place);
            write_row(out, report, ladder.pair, row, details);
        }
        out.text("],\"plots\":[");
        for (place, plot) in plots(report, ladder.pair, points).iter().enumerate() {
            comma(out, place);
            write_plot(out, plot);
        }
        out.text("]}");
    }
    out.text("]}</script>\n");
}

fn comma(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

/// `[time, direction, class, mark, number, label, fields]`, or `[count]` for packets not drawn.
fn write_row(out: &mut Vec<u8>, report: &Report, pair: usize, row: &Row, details: &Details) {
    let Shown { time_ns, from, class, mark, number, label } = match shown(report, pair, row) {
        Ok(shown) => shown,
        Err(count) => {
            out.push(b'[');
            out.dec(count as u64);
            out.push(b']');
            return;
        }
    };
    out.push(b'[');
    out.dec(time_ns);
    out.push(b',');
    out.dec(from as u64);
    out.text(",\"");
    out.text(class);
    out.text("\",\"");
    out.text(mark);
    out.text("\",");
    out.dec(number.into());
    out.push(b',');
    json(out, &label);
    if let Row::Packet { id, .. } = row
        && let Some(fields) = details.of(*id)
    {
        out.push(b',');
        json(out, fields);
    }
    out.push(b']');
}

/// A row of a ladder.
pub(crate) struct Shown {
    /// Since the capture began.
    pub time_ns: u64,
    /// The side that sent it, 0 or 1.
    pub from: usize,
    pub class: &'static str,
    pub mark: &'static str,
    /// The packet, or 0 where packets are missing.
    pub number: u32,
    pub label: String,
}

/// A row, or the number of packets that are left out here.
pub(crate) fn shown(report: &Report, pair: usize, row: &Row) -> Result<Shown, usize> {
    let since = |time_ns: u64| time_ns.saturating_sub(report.times_ns.0);
    match row {
        Row::Skipped(count) => Err(*count),
        Row::Lost(index) => {
            let lost = &report.lost[*index];
            let label = match lost.first == lost.last {
                true => format!("PSN {} missing", lost.first),
                false => format!("PSNs {} to {} missing", lost.first, lost.last),
            };
            let time_ns = since(report.events[lost.before as usize].time_ns);
            Ok(Shown { time_ns, from: lost.from, class: "lost", mark: "lost", number: 0, label })
        }
        Row::Packet { at, .. } => {
            let event = &report.events[report.pairs[pair].order[*at] as usize];
            Ok(Shown {
                time_ns: since(event.time_ns),
                from: report.side_of(pair, event),
                class: class(event),
                mark: mark(event.mark),
                number: event.number,
                label: label(report, event),
            })
        }
    }
}

fn class(event: &Event) -> &'static str {
    match (event.operation, event.syndrome()) {
        (Operation::Cnp, _) => "cnp",
        (_, Some(Syndrome::Nak(_) | Syndrome::Reserved(_))) => "nak",
        (_, Some(Syndrome::RnrNak(_))) => "rnr",
        (Operation::Acknowledge, _) => "ack",
        (op, _) if op.is_response() => "resp",
        _ => "req",
    }
}

const fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Plain => "",
        Mark::Corrupt => "corrupt",
        Mark::LostLater => "lost",
        Mark::Resent => "resent",
        Mark::Duplicate => "duplicate",
        Mark::Late => "late",
        Mark::Replay => "replay",
        Mark::Violation => "violation",
    }
}

fn label(report: &Report, event: &Event) -> String {
    if let Some(name) = report.cm_name(event) {
        return format!("CM {name}");
    }
    let psn = event.psn();
    let name = match (event.operation, event.syndrome()) {
        (Operation::Cnp, _) => return "CNP".to_owned(),
        (Operation::Acknowledge, Some(Syndrome::Ack(_))) => "ACK".to_owned(),
        (_, Some(Syndrome::RnrNak(timer))) => {
            format!("RNR NAK, wait {}", words::span(u64::from(timer.delay_us()) * 1000))
        }
        (_, Some(Syndrome::Nak(code))) => format!("NAK {}", nak_name(code)),
        (op, _) => words::operation(op).to_owned(),
    };
    let mut label = format!("{name} · PSN {psn}");
    if let Some(asked) = report.dma_len(event) {
        label += &format!(" · {asked} B");
    } else if event.len > 0 {
        label += &format!(" · {} B", event.len);
    }
    if let Some(msn) = event.msn() {
        label += &format!(" · MSN {msn}");
    }
    if event.ack_req() {
        label += " · A";
    }
    label
}

/// Times and PSNs as differences, which are short.
fn write_plot(out: &mut Vec<u8>, plot: &Plot) {
    out.text("{\"base\":");
    out.dec(plot.base.get().into());
    out.text(",\"more\":");
    out.dec(plot.left_out as u64);
    out.text(",\"points\":[");
    for (place, point) in plot.points.iter().enumerate() {
        comma(out, place);
        out.push(b'[');
        out.dec(point.time_ns);
        out.push(b',');
        if point.psn < 0 {
            out.push(b'-');
        }
        out.dec(point.psn.unsigned_abs());
        out.push(b',');
        out.dec(point.class as u64);
        out.push(b',');
        out.dec(point.number.into());
        out.push(b']');
    }
    out.text("]}");
}
