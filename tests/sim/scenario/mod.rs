//! Plays scripts on one NIC in virtual time.

mod machine;
mod post;
mod server;
mod target;

use machine::Machine;
use softrnic_script::{Case, Script, play};
use softrnic_transport::Fault;

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
    run_with(script, None)
}

/// The same, with a NIC that has a fault.
///
/// # Errors
/// See [`run`].
pub fn run_with(script: &Script, fault: Option<Fault>) -> Result<usize, Vec<Failure>> {
    let cases = script.cases().map_err(|error| {
        vec![Failure { place: format!("{}:{}", error.script, error.number), what: error.to_string() }]
    })?;
    let failures: Vec<_> =
        cases.iter().filter_map(|case| run_case(&script.name, case, fault).err()).collect();
    if failures.is_empty() { Ok(cases.len()) } else { Err(failures) }
}

fn run_case(name: &str, case: &Case, fault: Option<Fault>) -> Result<(), Failure> {
    let mut machine = Machine::new();
    machine.config.transport.planted = fault;
    play(&case.lines, &mut machine).map_err(|failure| Failure {
        place: format!("{name}:{} {}", failure.number, case.values),
        what: format!("{}\n      {:?}", failure.line, failure.trouble),
    })
}
