//! Deviations that are known, one a line: `SCRIPT:LINE what the peer does`, `event NAME why it never comes`, or
//! `crash SCRIPT what happens` for a script that must not be played.

use std::fmt;

use softrnic_script::{Case, Line};

use crate::verdict::{CaseResult, Judgement, Verdict};

/// Known deviations of a peer.
#[derive(Clone, Default, Debug)]
pub struct Known {
    entries: Vec<Entry>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where the peer does something else.
    pub place: Place,
    /// What it does.
    pub what: String,
}

/// Where a peer does something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At a line of a script.
    Line(String, usize),
    /// Wherever this event has to come.
    Event(String),
    /// In this script, which brings its machine down.
    Crash(String),
}

impl Place {
    /// Whether that is where a case of a script has ended, which deviates.
    fn is_of(&self, script: &str, case: &CaseResult) -> bool {
        match self {
            Place::Line(name, line) => name == script && *line == case.number,
            Place::Event(event) => is_event(&case.line, event),
            Place::Crash(_) => false,
        }
    }
}

/// Whether a line wants this event.
fn is_event(line: &str, event: &str) -> bool {
    line.strip_prefix("event ").is_some_and(|rest| rest.split_whitespace().nth(1) == Some(event))
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(script, line) => write!(f, "{script}:{line} {}", self.what),
            Place::Event(event) => write!(f, "event {event} {}", self.what),
            Place::Crash(script) => write!(f, "crash {script} {}", self.what),
        }
    }
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
        write!(
            f,
            "line {number}: `{line}` is neither SCRIPT:LINE nor event NAME nor crash SCRIPT, and what the peer does"
        )
    }
}

impl std::error::Error for KnownError {}

/// Those that ship with the crate.
const SHIPPED: [(&str, &str); 2] =
    [("rxe-6.1", include_str!("known/rxe-6.1.txt")), ("rxe-7.2", include_str!("known/rxe-7.2.txt"))];

/// The script about the ICRC of FLUSHes.
pub const FLUSH_ICRC: &str = "flush-icrc";

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
            let (first, rest) = line.split_once(char::is_whitespace).ok_or_else(error)?;
            let (place, what) = match (first, rest.trim().split_once(char::is_whitespace)) {
                ("event", Some((event, what))) => (Place::Event(event.to_owned()), what),
                ("crash", Some((script, what))) => (Place::Crash(script.to_owned()), what),
                _ => {
                    let (script, at) = first.split_once(':').ok_or_else(error)?;
                    (Place::Line(script.to_owned(), at.parse().map_err(|_| error())?), rest)
                }
            };
            entries.push(Entry { place, what: what.trim().to_owned() });
        }
        Ok(Known { entries })
    }

    /// Why a script must not be played.
    pub fn crash(&self, script: &str) -> Option<&str> {
        let is_it = |entry: &&Entry| matches!(&entry.place, Place::Crash(name) if name == script);
        self.entries.iter().find(is_it).map(|entry| &*entry.what)
    }

    /// Whether a deviation at this line is known.
    pub fn has(&self, script: &str, line: usize) -> bool {
        self.entries.iter().any(|entry| entry.place == Place::Line(script.to_owned(), line))
    }

    /// Whether the peer wants the ICRC of a FLUSH as rxe computes it: it is known not to take the one of the specification.
    pub fn wants_rxe_flush(&self) -> bool {
        let is_it = |entry: &Entry| matches!(&entry.place, Place::Line(script, _) if script == FLUSH_ICRC);
        self.entries.iter().any(is_it)
    }

    /// Takes the events out of a case that the peer is known not to raise, so that the lines behind them are judged as well;
    /// the first of them. Should it raise one after all, no line mentions it, which is another deviation.
    pub fn take_events(&self, case: &mut Case) -> Option<Line> {
        let is_missing = |line: &Line| {
            let never =
                |entry: &Entry| matches!(&entry.place, Place::Event(event) if is_event(&line.text, event));
            self.entries.iter().any(never)
        };
        let first = case.lines.iter().find(|line| is_missing(line)).cloned();
        case.lines.retain(|line| !is_missing(line));
        first
    }

    /// Marks what is known among the cases of a script.
    pub fn mark(&self, script: &str, cases: &mut [CaseResult]) {
        for case in cases.iter_mut().filter(|case| case.verdict == Verdict::Deviates) {
            let entry = self.entries.iter().find(|entry| entry.place.is_of(script, case));
            case.known = entry.map(|entry| entry.what.clone());
        }
    }

    /// The entries that no case has shown, though their scripts were judged.
    pub fn gone<'a>(&'a self, judgements: &'a [Judgement]) -> impl Iterator<Item = &'a Entry> {
        let is_shown = |entry: &Entry, judgement: &Judgement| {
            let known = judgement.cases.iter().filter(|case| case.known.is_some());
            known.into_iter().any(|case| entry.place.is_of(&judgement.script, case))
        };
        let was_judged = |script: &str| {
            let judgement = judgements.iter().find(|judgement| judgement.script == script);
            judgement
                .is_some_and(|judgement| matches!(judgement.verdict(), Verdict::Conforms | Verdict::Deviates))
        };
        self.entries.iter().filter(move |entry| {
            let could_be = match &entry.place {
                Place::Line(script, _) => was_judged(script),
                Place::Event(_) => judgements.len() == softrnic_script::suite().len(),
                Place::Crash(_) => false,
            };
            could_be && !judgements.iter().any(|judgement| is_shown(entry, judgement))
        })
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
    fn an_unseen_known_deviation_is_gone_unless_the_verdict_is_open() {
        let known = Known::parse("lengths:7 says 0x63\nstates:3 sleeps\n").expect("valid");
        let mut cases = vec![deviation(7)];
        known.mark("lengths", &mut cases);
        let judged = |cases: &[CaseResult]| {
            let (script, title, rules) = ("lengths".into(), String::new(), String::new());
            [Judgement { script, title, rules, cases: cases.to_vec(), capture: None }]
        };
        assert_eq!(known.gone(&judged(&cases)).count(), 0);
        cases[0].verdict = Verdict::Conforms;
        cases[0].known = None;
        let gone: Vec<_> = known.gone(&judged(&cases)).map(ToString::to_string).collect();
        assert_eq!(gone, ["lengths:7 says 0x63"]);
        cases[0].verdict = Verdict::CannotTell;
        assert_eq!(known.gone(&judged(&cases)).count(), 0);
    }

    #[test]
    fn an_event_that_never_comes_does_not_hide_the_lines_behind_it() {
        let text = "qp a rc\nevent a COMM_EST\nstate a RTS\nevent a QP_REQ_ERR";
        let script = softrnic_script::Script::new("s", text);
        let mut case = script.cases().expect("valid").remove(0);
        let known = Known::parse("event COMM_EST is never raised").expect("valid");
        assert_eq!(known.take_events(&mut case).map(|line| line.number), Some(2));
        let left: Vec<_> = case.lines.iter().map(|line| line.number).collect();
        assert_eq!(left, [1, 3, 4]);
    }

    #[test]
    fn shipped_deviations_parse_and_name_scripts() {
        let scripts = softrnic_script::suite();
        for name in Known::shipped() {
            let text = Known::named(name).expect("a text");
            for entry in Known::parse(text).expect("valid").entries {
                let is_there = scripts.iter().any(|script| match &entry.place {
                    Place::Line(name, line) => {
                        let cases = script.cases().expect("valid");
                        script.name == *name && cases[0].lines.iter().any(|known| known.number == *line)
                    }
                    Place::Crash(name) => script.name == *name,
                    Place::Event(event) => script.text().lines().any(|line| is_event(line, event)),
                });
                assert!(is_there, "{name}: no script has that line: {entry}");
            }
        }
        assert!(Known::parse("lengths says 0x63").is_err());
    }
}
