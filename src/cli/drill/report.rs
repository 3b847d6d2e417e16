//! Judgements as a table, as JSON, and as JUnit XML.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use softrnic_drill::{CaseResult, Judgement, Known, Verdict};
use softrnic_script::Script;

use crate::failure::Result;
use crate::output::{say, write};
use crate::table::{BAD, GOOD, QUIET, Table};
use crate::web_page::escaped;

/// What is said of a script, in a few words.
fn short(judgement: &Judgement) -> String {
    if judgement.is_known() { "known deviation".into() } else { judgement.verdict().to_string() }
}

/// A table that grows: a row for each script that has ended.
pub struct Growing(Table);

impl Growing {
    /// The heading of a table about these scripts.
    pub fn new(scripts: &[Script]) -> Growing {
        let longest = scripts.iter().map(|script| script.name.chars().count()).max().unwrap_or(0);
        let verdict = "known deviation".len();
        let table = Table::new(1, &["script", "cases", "verdict", "where", "what"]).words(2);
        let table = table.at_least(&[longest, 5, verdict, "line 99".len(), 0]);
        write(format_args!("{table}"));
        Growing(table)
    }

    pub fn row(&mut self, judgement: &Judgement) {
        let (place, what) = match judgement.reason() {
            Some(case) if judgement.verdict() != Verdict::Conforms => {
                let place = if case.number == 0 { String::new() } else { format!("line {}", case.number) };
                (place, case.known.clone().unwrap_or_else(|| case.what.clone()))
            }
            _ => Default::default(),
        };
        let cases = judgement.cases.len();
        let of_them = judgement.count(judgement.verdict());
        let cases = if of_them == cases { cases.to_string() } else { format!("{of_them}/{cases}") };
        say!("{}", self.0.grow(vec![judgement.script.clone(), cases, short(judgement), place, what]));
    }
}

/// What follows the table: each deviation, and the counts.
pub fn summary(judgements: &[Judgement], known: &Known) {
    for judgement in judgements.iter().filter(|judgement| judgement.cases.iter().any(|case| is_told(&case))) {
        explain(judgement);
    }
    for entry in known.gone(judgements) {
        say!("\nknown, but not seen: {entry}");
    }
    let counts = Verdict::ALL.map(|verdict| {
        let count = judgements.iter().filter(|judgement| judgement.verdict() == verdict).count();
        format!("{count} {verdict}")
    });
    let notes = judgements.iter().filter(|judgement| judgement.is_known()).count();
    let style = if judgements
        .iter()
        .all(|judgement| judgement.is_known() || judgement.verdict() < Verdict::CannotTell)
    {
        GOOD
    } else {
        BAD
    };
    say!(
        "\n{style}{} scripts: {}, {notes} of the deviations are known{style:#}",
        judgements.len(),
        counts.join(", ")
    );
}

/// Whether there is more to say than the table does. A case without a line was not played.
fn is_told(case: &&CaseResult) -> bool {
    case.verdict >= Verdict::CannotTell && case.known.is_none() && case.number > 0
}

fn explain(judgement: &Judgement) {
    say!(
        "\n{BAD}{}{BAD:#} {}: {} {QUIET}({}){QUIET:#}",
        judgement.script,
        short(judgement),
        judgement.title,
        judgement.rules
    );
    for case in judgement.cases.iter().filter(is_told) {
        let values = if case.values.is_empty() { String::new() } else { format!("  with {}", case.values) };
        say!("  line {}: {}{values}\n    {}: {}", case.number, case.line, case.verdict, case.what);
        if let Some(capture) = case.capture.as_ref().or(judgement.capture.as_ref()) {
            say!("    {QUIET}{}, packets {} to {}{QUIET:#}", capture.display(), case.frames.0, case.frames.1);
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Conforms => "conforms",
        Verdict::Deviates => "deviates",
        Verdict::NotApplicable => "not_applicable",
        Verdict::CannotTell => "cannot_tell",
    }
}

pub fn json(judgements: &[Judgement], known: &Known, peer: IpAddr, device: &str) -> Result<String> {
    let case = |case: &CaseResult| {
        json!({
            "values": case.values,
            "verdict": word(case.verdict),
            "line_number": case.number,
            "line": case.line,
            "what": case.what,
            "first_packet": case.frames.0,
            "last_packet": case.frames.1,
            "capture": case.capture,
            "known": case.known,
        })
    };
    let script = |judgement: &Judgement| {
        json!({
            "script": judgement.script,
            "title": judgement.title,
            "rules": judgement.rules,
            "verdict": word(judgement.verdict()),
            "known": judgement.is_known(),
            "capture": judgement.capture,
            "cases": judgement.cases.iter().map(case).collect::<Vec<Value>>(),
        })
    };
    let scripts: Vec<Value> = judgements.iter().map(script).collect();
    let gone: Vec<String> = known.gone(judgements).map(ToString::to_string).collect();
    let result = json!({ "peer": peer, "device": device, "scripts": scripts, "known_but_not_seen": gone });
    Ok(serde_json::to_string_pretty(&result)?)
}

pub fn list(scripts: &[Script]) -> Result<String> {
    let list: Vec<Value> = scripts
        .iter()
        .map(|script| {
            json!({
                "script": script.name,
                "title": script.title,
                "rules": script.rules,
                "needs": script.needs().name(),
                "not_on_wires": script.not_on_wires,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&list)?)
}

/// Each case is a test: a known deviation passes, what is not applicable is skipped.
pub fn junit(judgements: &[Judgement]) -> String {
    let mut out =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"softrnic drill\">\n");
    for judgement in judgements {
        let failed = |case: &&CaseResult| case.verdict == Verdict::Deviates && case.known.is_none();
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
            escaped(&judgement.script),
            judgement.cases.len(),
            judgement.cases.iter().filter(failed).count(),
            judgement.count(Verdict::CannotTell),
            judgement.count(Verdict::NotApplicable),
        );
        for case in &judgement.cases {
            let name = if case.values.is_empty() { &judgement.title } else { &case.values };
            let _ = write!(
                out,
                "    <testcase classname=\"{}\" name=\"{}\"",
                escaped(&judgement.script),
                escaped(name)
            );
            let message = escaped(&format!("line {}: {}: {}", case.number, case.line, case.what));
            let _ = match (case.verdict, &case.known) {
                (Verdict::Conforms, _) => writeln!(out, "/>"),
                (Verdict::Deviates, Some(known)) => {
                    writeln!(out, "><system-out>known: {}</system-out></testcase>", escaped(known))
                }
                (Verdict::Deviates, None) => writeln!(
                    out,
                    "><failure message=\"{message}\">{}</failure></testcase>",
                    escaped(&judgement.rules)
                ),
                (Verdict::CannotTell, _) => writeln!(out, "><error message=\"{message}\"/></testcase>"),
                (Verdict::NotApplicable, _) => writeln!(out, "><skipped message=\"{message}\"/></testcase>"),
            };
        }
        out += "  </testsuite>\n";
    }
    out + "</testsuites>\n"
}
