//! Scripts of posts, packets and times against one NIC, whose peer the script plays.
//!
//! `scenarios/README.md` describes the language. A script is a list of lines, executed one after the other; whatever
//! the NIC sends or completes must have its own line, or the script fails.

mod command;
mod machine;
mod packet;
mod value;

use std::fs;
use std::path::{Path, PathBuf};

use machine::Machine;

/// A faulty script, or a NIC that does not do what the script says.
#[derive(Debug)]
pub struct Failure {
    /// Where, and with which values of its variables.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// The scripts of a directory, in order of their names.
pub fn scripts(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of scripts");
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

/// Runs a script for every combination of its variables' values, and returns how many there are.
///
/// # Errors
/// The first line of each combination that fails.
pub fn run(path: &Path) -> Result<usize, Vec<Failure>> {
    let text = fs::read_to_string(path).expect("a readable script");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let cases = cases(&text);
    let failures: Vec<_> = cases.iter().filter_map(|case| run_case(&name, &text, case).err()).collect();
    if failures.is_empty() { Ok(cases.len()) } else { Err(failures) }
}

/// One value for each variable.
type Case = Vec<(String, String)>;

/// Every combination of what the lines `with NAME in VALUE; VALUE …` offer. `with A,B in x,y; …` gives
/// several variables at once.
fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = vec![Vec::new()];
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("with ")) {
        let Some((names, values)) = line.split_once(" in ") else { continue };
        let names: Vec<_> = names.split(',').map(str::trim).collect();
        let offers =
            values.split(';').map(|offer| offer.splitn(names.len(), ',').map(str::trim).collect::<Vec<_>>());
        let offers: Vec<Vec<_>> = offers.collect();
        cases = cases
            .iter()
            .flat_map(|case| {
                offers.iter().map(|offer| {
                    let new =
                        names.iter().zip(offer).map(|(name, value)| (name.to_string(), value.to_string()));
                    case.iter().cloned().chain(new).collect()
                })
            })
            .collect();
    }
    for case in &mut cases {
        // The longest names first: $TIME is not $T followed by IME.
        case.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }
    cases
}

fn run_case(name: &str, text: &str, case: &Case) -> Result<(), Failure> {
    let values: String = case.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let fail = |number: usize, line: &str, what: String| Failure {
        place: format!("{name}:{number}{values}"),
        what: format!("{line}\n      {what}"),
    };
    let mut machine = Machine::new();
    let mut last = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let header = ["title:", "rules:", "with "].iter().any(|header| line.starts_with(header));
        if line.is_empty() || header {
            continue;
        }
        last = number + 1;
        let mut line = line.to_string();
        for (name, value) in case {
            line = line.replace(&format!("${name}"), value);
        }
        command::run(&mut machine, &line).map_err(|what| fail(last, &line, what))?;
    }
    machine.finish().map_err(|what| fail(last, "the end", what))
}
