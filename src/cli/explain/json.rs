//! The report as JSON: `docs/looking.md` lists the fields. Fields may be added, never renamed.

use serde_json::{Value, json};
use softrnic_explain::{Connection, End, Finding, Kind, Message, Pair, Report, Severity, Tally};

/// Counts what changes in a way that a program has to know of.
const VERSION: u32 = 1;

pub fn report(report: &Report, messages: usize) -> Value {
    let summary = &report.summary;
    json!({
        "version": VERSION,
        "records": summary.records,
        "packets": summary.roce,
        "not_roce": summary.not_roce(),
        "bad_icrc": summary.bad_icrc,
        "lost_by_capture": summary.dropped_by_capture,
        "incomplete": report.is_incomplete(),
        "first": seconds(report.times_ns.0),
        "last": seconds(report.times_ns.1),
        "errors": report.count(Severity::Error),
        "warnings": report.count(Severity::Warning),
        "kinds": report.kinds.iter().map(tally).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "not_listed": report.more_findings.iter().map(not_listed).collect::<Vec<_>>(),
        "pairs": report.pairs.iter().map(|p| pair(p, messages)).collect::<Vec<_>>(),
        "connections": report.connections.iter().map(connection).collect::<Vec<_>>(),
    })
}

/// A string, because nanoseconds since 1970 exceed what a JSON number can safely hold.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn tally(tally: &Tally) -> Value {
    json!({
        "kind": tally.kind.name(),
        "severity": tally.severity().name(),
        "count": tally.count,
        "first": seconds(tally.times_ns.0),
        "last": seconds(tally.times_ns.1),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "kind": finding.kind.name(),
        "severity": finding.severity().name(),
        "pair": finding.pair.map(|pair| pair + 1),
        "time": seconds(finding.time_ns),
        "psns": finding.psns.map(|(first, last)| [first.get(), last.get()]),
        "packets": finding.packets,
        "rule": finding.rule.map(|rule| json!({ "name": rule.name, "cite": rule.cite })),
        "text": finding.text,
    })
}

fn not_listed((pair, kind, count): &(Option<usize>, Kind, u64)) -> Value {
    json!({ "pair": pair.map(|pair| pair + 1), "kind": kind.name(), "count": count })
}

fn pair(pair: &Pair, messages: usize) -> Value {
    let mut listed: Vec<&Message> = pair.messages.iter().collect();
    listed.sort_by_key(|message| message.start_ns);
    listed.truncate(messages);
    json!({
        "transport": pair.transport_name(),
        "ends": pair.ends.iter().map(end).collect::<Vec<_>>(),
        "mtu": pair.mtu,
        "answers_after_ns": pair.rtt_ns,
        "connection": pair.connection.map(|connection| connection + 1),
        "message_count": pair.message_counts.iter().sum::<u64>(),
        "messages": listed.iter().map(|m| message(m)).collect::<Vec<_>>(),
    })
}

fn end(end: &End) -> Value {
    json!({
        "address": end.address,
        "qpn": end.qpn.map(|qpn| qpn.get()),
        "packets": end.packets,
        "bytes": end.bytes,
        "ports": end.ports,
        "ce_marks": end.ce_marks,
    })
}

fn message(message: &Message) -> Value {
    json!({
        "from": message.requester,
        "kind": message.kind.name(),
        "psns": [message.first.get(), message.last.get()],
        "bytes": message.bytes,
        "packets": [message.packets.0, message.packets.1],
        "time": seconds(message.start_ns),
        "answered_by": message.answer.map(|(packet, _)| packet),
        "answered": message.answer.map(|(_, time)| seconds(time)),
        "repeats": message.repeats,
        "whole": message.whole,
    })
}

fn connection(connection: &Connection) -> Value {
    json!({
        "active": connection.active,
        "passive": connection.passive,
        "service": connection.service.map(|service| service.0),
        "transport": connection.transport,
        "qpns": connection.qpns.map(|qpn| qpn.map(|qpn| qpn.get())),
        "state": connection.state.name(),
        "packets": connection.packets,
    })
}
