//! Judgements as a web page, with the ladder of each deviation.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use softrnic_drill::{CaseResult, Judgement, Verdict};
use softrnic_explain::svg::write_svg;
use softrnic_explain::{Limits, explain};
use softrnic_inspect::capture::Reader;
use softrnic_inspect::decode::date;
use softrnic_script::Script;

use super::report::escaped;
use crate::failure::{Doing, Result};
use crate::units::count;

/// Packets in a ladder, at most.
const ROWS: usize = 60;

const STYLE: &str = include_str!("page.css");

/// Where a page comes from.
pub struct Origin {
    /// What was judged.
    peer: String,
    /// When.
    date: String,
    /// By which command.
    command: String,
}

impl Origin {
    /// This run.
    pub fn now(peer: String) -> Origin {
        let words: Vec<String> = std::env::args().skip(1).map(|word| quoted(&word)).collect();
        Origin { peer, date: date(SystemTime::now()), command: format!("softrnic {}", words.join(" ")) }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn head(origin: &Origin) -> String {
    let Origin { peer, date, command } = origin;
    let (peer, command) = (escaped(peer), escaped(command));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n\
         <title>{peer}: softrnic drill</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<h1>{peer}</h1>\n\
         <p class=\"origin\">{date}, SoftRNIC {}<br><code>{command}</code></p>\n<p>",
        env!("CARGO_PKG_VERSION")
    )
}

pub fn page(judgements: &[Judgement], origin: &Origin, scripts: &[Script]) -> Result<Vec<u8>> {
    let mut out = head(origin);
    let counts = Verdict::ALL.map(|verdict| {
        format!("{} {verdict}", judgements.iter().filter(|judgement| judgement.verdict() == verdict).count())
    });
    let scripts_played = count(judgements.len() as u64, "script");
    out += &format!("{scripts_played}: {}.</p>\n<table>\n", counts.join(", "));
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
    out.extend(b"</body>\n</html>\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_date_version_and_command() {
        let origin = Origin {
            peer: "10.0.0.5, device <mlx5>".into(),
            date: "2026-01-31 12:34:56 UTC".into(),
            command: "softrnic drill --peer 10.0.0.5 'my scripts/a.txt'".into(),
        };
        let page = String::from_utf8(page(&[], &origin, &[]).expect("a page")).expect("text");
        for part in [
            "<h1>10.0.0.5, device &lt;mlx5&gt;</h1>",
            concat!("2026-01-31 12:34:56 UTC, SoftRNIC ", env!("CARGO_PKG_VERSION")),
            "<code>softrnic drill --peer 10.0.0.5 'my scripts/a.txt'</code>",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(part), "no '{part}' in:\n{page}");
        }
    }

    #[test]
    fn a_command_can_be_given_to_a_shell_again() {
        assert_eq!(
            ["--peer=10.0.0.5", "a b", "it's", ""].map(quoted),
            ["--peer=10.0.0.5", "'a b'", r"'it'\''s'", "''"]
        );
    }
}
