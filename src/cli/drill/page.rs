//! Judgements as a web page, with the ladder of each deviation.

use std::fs::File;
use std::path::Path;

use softrnic_drill::{CaseResult, Judgement, Verdict};
use softrnic_explain::svg::write_svg;
use softrnic_explain::{Limits, explain};
use softrnic_inspect::capture::Reader;
use softrnic_script::Script;

use crate::failure::{Doing, Result};
use crate::units::count;
use crate::web_page::{Origin, TAIL, escaped, head};

/// Packets in a ladder, at most.
const ROWS: usize = 60;

const STYLE: &str = include_str!("page.css");

pub fn page(judgements: &[Judgement], origin: &Origin, scripts: &[Script]) -> Result<Vec<u8>> {
    let mut out = head(origin, "drill", STYLE);
    let counts = Verdict::ALL.map(|verdict| {
        format!("{} {verdict}", judgements.iter().filter(|judgement| judgement.verdict() == verdict).count())
    });
    let scripts_played = count(judgements.len() as u64, "script");
    out += &format!("<p>{scripts_played}: {}.</p>\n<table>\n", counts.join(", "));
    out += "<tr><th>script</th><th>verdict</th><th>shows</th><th>rules</th></tr>\n";
    for judgement in judgements {
        let verdict = judgement.verdict();
        let class = match verdict {
            Verdict::Conforms => "conforms",
            Verdict::Deviates if !judgement.is_known() => "deviates",
            Verdict::CannotTell => "cannot",
            _ => "",
        };
        let name = escaped(&judgement.script);
        let text = if judgement.is_known() { "known deviation".into() } else { verdict.to_string() };
        let link =
            if verdict == Verdict::Conforms { name } else { format!("<a href=\"#{name}\">{name}</a>") };
        out += &format!(
            "<tr><td>{link}</td><td class=\"{class}\">{text}</td><td>{}</td><td>{}</td></tr>\n",
            escaped(&judgement.title),
            escaped(&judgement.rules),
        );
    }
    out += "</table>\n";
    let mut out = out.into_bytes();
    for judgement in judgements.iter().filter(|judgement| judgement.verdict() != Verdict::Conforms) {
        let script = scripts.iter().find(|script| script.name == judgement.script);
        section(&mut out, judgement, script)?;
    }
    out.extend(TAIL.bytes());
    Ok(out)
}

fn section(out: &mut Vec<u8>, judgement: &Judgement, script: Option<&Script>) -> Result {
    let name = escaped(&judgement.script);
    out.extend(format!("<h2 id=\"{name}\">{name}</h2>\n<p>{}<br>", escaped(&judgement.title)).bytes());
    out.extend(format!("{}</p>\n", escaped(&judgement.rules)).bytes());
    if let Some(script) = script {
        let text = escaped(script.text().trim_end());
        out.extend(format!("<details><summary>The script</summary><pre>{text}</pre></details>\n").bytes());
    }
    for case in judgement.cases.iter().filter(|case| case.verdict != Verdict::Conforms) {
        let CaseResult { values, number, line, what, verdict, .. } = case;
        let values = if values.is_empty() { String::new() } else { format!(" with {}", escaped(values)) };
        out.extend(
            format!("<p><b>{verdict}</b>{values}, line {number}: <code>{}</code><br>", escaped(line)).bytes(),
        );
        out.extend(format!("{}</p>\n", escaped(case.known.as_ref().unwrap_or(what))).bytes());
        if let Some(capture) = &case.capture {
            ladder(out, capture)?;
        }
    }
    Ok(())
}

fn ladder(out: &mut Vec<u8>, path: &Path) -> Result {
    let doing = || format!("cannot read {}", path.display());
    let mut reader = Reader::new(File::open(path).doing(doing)?).doing(doing)?;
    let report = explain(&mut reader, Limits::default(), |_| {});
    let title = path.file_name().unwrap_or_default().to_string_lossy();
    write_svg(&report, &title, ROWS, out)?;
    Ok(())
}
