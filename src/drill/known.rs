//! Deviations that are known: `SCRIPT:LINE what the peer does`, one a line.

use std::fmt;

use crate::verdict::{CaseResult, Verdict};

/// Known deviations of a peer.
#[derive(Clone, Default, Debug)]
pub struct Known {
    entries: Vec<(String, usize, String)>,
}

/// A line that says something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownError {
    /// Its number.
    pub number: usize,
    /// Its text.
    pub line: String,
}

impl fmt::Display for KnownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KnownError { number, line } = self;
        write!(f, "line {number}: `{line}` is not SCRIPT:LINE and what the peer does")
    }
}

impl std::error::Error for KnownError {}

/// Those that ship with the crate.
const SHIPPED: [(&str, &str); 1] = [("rxe-6.1", include_str!("known/rxe-6.1.txt"))];

impl Known {
    /// The names of those that ship with the crate.
    pub fn shipped() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// One that ships with the crate.
    pub fn named(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a text; `#` begins a comment.
    ///
    /// # Errors
    /// The first line that is not of this form.
    pub fn parse(text: &str) -> Result<Known, KnownError> {
        let mut entries = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let error = || KnownError { number, line: line.to_owned() };
            let (place, what) = line.split_once(char::is_whitespace).ok_or_else(error)?;
            let (script, at) = place.split_once(':').ok_or_else(error)?;
            let at = at.parse().map_err(|_| error())?;
            entries.push((script.to_owned(), at, what.trim().to_owned()));
        }
        Ok(Known { entries })
    }

    /// Marks what is known among the cases of a script.
    pub fn mark(&self, script: &str, cases: &mut [CaseResult]) {
        for case in cases.iter_mut().filter(|case| case.verdict == Verdict::Deviates) {
            let entry = self.entries.iter().find(|(name, line, _)| name == script && *line == case.number);
            case.known = entry.map(|(_, _, what)| what.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deviation(number: usize) -> CaseResult {
        let (values, line, what) = (String::new(), String::new(), String::new());
        let verdict = Verdict::Deviates;
        CaseResult { values, verdict, number, line, what, frames: (1, 1), capture: None, known: None }
    }

    #[test]
    fn only_the_line_that_is_named_is_known() {
        let known = Known::parse("# rxe\nlengths:7 says 0x63\n").expect("valid");
        let mut cases = [deviation(7), deviation(8)];
        known.mark("lengths", &mut cases);
        assert_eq!(cases[0].known.as_deref(), Some("says 0x63"));
        assert_eq!(cases[1].known, None);
        known.mark("states", &mut cases);
        assert_eq!(cases[0].known, None);
    }

    #[test]
    fn what_ships_can_be_read_and_names_scripts() {
        let scripts = softrnic_script::suite();
        for name in Known::shipped() {
            let text = Known::named(name).expect("a text");
            for (script, ..) in Known::parse(text).expect("valid").entries {
                assert!(scripts.iter().any(|known| known.name == script), "{name}: there is no {script}");
            }
        }
        assert!(Known::parse("lengths says 0x63").is_err());
    }
}
