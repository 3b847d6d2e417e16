//! What is not to be reported, in the form of Valgrind's suppressions.

use std::fmt;

use crate::Kind;
use crate::finding::Finding;
use crate::text::Symbols;

/// Rules that suppress findings.
///
/// ```text
/// # perftest leaves that on purpose
/// {
///    the name of the rule
///    softrnic:changed-buffer
///    fun:run_iter_bw
///    ...
///    fun:main
/// }
/// ```
///
/// The lines after the kind are calls, innermost first: `fun:` with the name of a function, `src:` with a file, `obj:` with a
/// program or library of which no lines are known, `...` for any number of calls. `*` stands for any characters, `softrnic:*` for every kind. A rule holds for any of the stacks of a report.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Suppressions {
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    /// Every kind without one.
    kind: Option<Kind>,
    calls: Vec<Call>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Call {
    Function(String),
    File(String),
    Module(String),
    Any,
}

/// Why a file of suppressions cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuppressionsError {
    line: usize,
    why: String,
}

impl fmt::Display for SuppressionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for SuppressionsError {}

impl Suppressions {
    /// Reads rules.
    ///
    /// # Errors
    /// A line is not understood.
    pub fn parse(text: &str) -> Result<Suppressions, SuppressionsError> {
        let mut rules = Vec::new();
        // The name of a rule, and the rule, once the braces are open.
        let mut open: Option<(bool, Option<Rule>)> = None;
        for (number, line) in text.lines().enumerate() {
            let error = |why: &str| SuppressionsError { line: number + 1, why: why.into() };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            open = match (open, line) {
                (None, "{") => Some((false, None)),
                (None, _) => return Err(error("a rule begins with {")),
                (Some((_, Some(rule))), "}") => {
                    rules.push(rule);
                    None
                }
                (Some(_), "}") => return Err(error("the rule has no kind: softrnic:KIND")),
                (Some((false, _)), _) => Some((true, None)),
                (Some((true, None)), _) => {
                    let kind = line
                        .strip_prefix("softrnic:")
                        .ok_or_else(|| error("the second line of a rule is its kind: softrnic:KIND"))?;
                    let kind = match kind {
                        "*" => None,
                        name => Some(Kind::named(name).ok_or_else(|| {
                            error(&format!("there is no kind {name}: see softrnic check --list"))
                        })?),
                    };
                    Some((true, Some(Rule { kind, calls: Vec::new() })))
                }
                (Some((true, Some(mut rule))), call) => {
                    rule.calls.push(match call.split_once(':') {
                        Some(("fun", name)) => Call::Function(name.into()),
                        Some(("src", name)) => Call::File(name.into()),
                        Some(("obj", name)) => Call::Module(name.into()),
                        _ if call == "..." => Call::Any,
                        _ => return Err(error("a call is fun:NAME, src:FILE, obj:FILE or ...")),
                    });
                    Some((true, Some(rule)))
                }
            };
        }
        match open {
            None => Ok(Suppressions { rules }),
            Some(_) => Err(SuppressionsError { line: text.lines().count(), why: "a } is missing".into() }),
        }
    }

    /// Whether a finding is suppressed.
    pub fn cover(&self, finding: &Finding, symbols: &dyn Symbols) -> bool {
        let mut rules = self.rules.iter().filter(|rule| rule.kind.is_none_or(|kind| kind == finding.kind));
        rules.any(|rule| {
            rule.calls.is_empty()
                || finding.parts.iter().any(|part| {
                    let frames = symbols.frames(part.trace);
                    let frames: Vec<_> =
                        frames.iter().map(|frame| (frame.function.as_str(), frame.place.as_str())).collect();
                    fits(&rule.calls, &frames)
                })
        })
    }
}

/// Whether a stack begins as the calls say.
fn fits(calls: &[Call], frames: &[(&str, &str)]) -> bool {
    match (calls, frames) {
        ([], _) => true,
        ([Call::Any, rest @ ..], _) => (0..=frames.len()).any(|skip| fits(rest, &frames[skip..])),
        (_, []) => false,
        ([Call::Function(name), rest @ ..], [(function, _), others @ ..]) => {
            like(name, function) && fits(rest, others)
        }
        ([Call::File(name), rest @ ..], [(_, place), others @ ..]) => {
            let file = place.rsplit_once(':').map_or(*place, |(file, _)| file);
            names(name, file) && fits(rest, others)
        }
        ([Call::Module(name), rest @ ..], [(_, place), others @ ..]) => {
            let module = place.strip_prefix('(').and_then(|place| place.rsplit_once("+0x"));
            module.is_some_and(|(module, _)| names(name, module)) && fits(rest, others)
        }
    }
}

/// Whether a name stands for a path, or for its last part.
fn names(name: &str, path: &str) -> bool {
    like(name, path) || path.rsplit('/').next().is_some_and(|last| like(name, last))
}

/// Whether a text is like a pattern, in which `*` is any text.
fn like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            starts.into_iter().any(|at| like(rest, &text[at..]))
        }),
    }
}
