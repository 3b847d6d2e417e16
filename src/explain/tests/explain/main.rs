//! Captures with planted faults, each of which must be named, and clean ones, which must pass.

#[path = "../../../inspect/tests/common/mod.rs"]
mod common;

mod answers;
mod clean;
mod early;
mod losses;
mod network;
mod other;

use common::Capture;
use softrnic_explain::{Kind, Limits, Report, Severity, TextOptions, explain, write_text};
use softrnic_inspect::capture::Reader;

/// Explains a capture.
fn report(capture: &Capture) -> Report {
    report_of(&capture.pcap())
}

fn report_of(file: &[u8]) -> Report {
    let mut reader = Reader::new(file).unwrap();
    explain(&mut reader, Limits::default(), |_| {})
}

/// The report as text, for failure messages.
fn text(report: &Report) -> String {
    let mut out = Vec::new();
    write_text(report, TextOptions::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Asserts that exactly these faults are found, in any order, and nothing else above info.
#[track_caller]
fn assert_faults(capture: &Capture, expected: &[Kind]) -> Report {
    let report = report(capture);
    let mut found: Vec<Kind> = report.faults().map(|f| f.kind).collect();
    let mut expected = expected.to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "\n{}", text(&report));
    report
}

/// Asserts that the report mentions something that is not a fault.
#[track_caller]
fn assert_told(report: &Report, kind: Kind) {
    let told = report.findings.iter().any(|f| f.kind == kind && f.severity() == Severity::Info);
    assert!(told, "{kind} is missing\n{}", text(report));
}

/// The one finding of a kind.
#[track_caller]
fn only(report: &Report, kind: Kind) -> &softrnic_explain::Finding {
    let found: Vec<_> = report.findings.iter().filter(|f| f.kind == kind).collect();
    assert_eq!(found.len(), 1, "\n{}", text(report));
    found[0]
}
