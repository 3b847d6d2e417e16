//! Plays scripts on one NIC in virtual time.

mod machine;
mod post;
mod target;

use machine::Machine;
use softrnic_script::{Case, Script, play};

/// A NIC that does not do what the script says, or a script that cannot be played.
#[derive(Debug)]
pub struct Failure {
    /// Where, and with which values of its variables.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// Runs a script for every combination of its variables' values, and returns how many there are.
///
/// # Errors
/// The first line of each combination that fails.
pub fn run(script: &Script) -> Result<usize, Vec<Failure>> {
    let cases = script.cases().map_err(|error| {
        vec![Failure { place: format!("{}:{}", error.script, error.number), what: error.to_string() }]
    })?;
    let failures: Vec<_> = cases.iter().filter_map(|case| run_case(&script.name, case).err()).collect();
    if failures.is_empty() { Ok(cases.len()) } else { Err(failures) }
}

fn run_case(name: &str, case: &Case) -> Result<(), Failure> {
    play(&case.lines, &mut Machine::new()).map_err(|failure| Failure {
        place: format!("{name}:{} {}", failure.number, case.values),
        what: format!("{}\n      {:?}", failure.line, failure.trouble),
    })
}
