//! The text of a script and the cases that it stands for.

use std::fmt;

use crate::parse;
use crate::statement::{Act, Post, Statement};

/// A named text, of which nothing but the headings has been read.
#[derive(Clone, Debug)]
pub struct Script {
    /// What reports call it: the file's name without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Where the specification says so.
    pub rules: String,
    /// Why it cannot be played where packets take time, if so.
    pub not_on_wires: Option<String>,
    text: String,
}

/// What a peer needs for a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Somebody who makes queue pairs and posts what the script says.
    Agent,
    /// A stock rdma_cm server that accepts connections, and nobody who posts.
    Server,
    /// It is for the simulation alone.
    Simulation,
}

impl Needs {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Needs::Agent => "agent",
            Needs::Server => "server",
            Needs::Simulation => "simulation",
        }
    }
}

/// One value for each variable, and the lines with those values.
#[derive(Clone, Debug)]
pub struct Case {
    /// `A=1 B=x`, or nothing.
    pub values: String,
    /// What is played.
    pub lines: Vec<Line>,
}

/// A line of a case.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number in the script.
    pub number: usize,
    /// Its text, with the values of variables.
    pub text: String,
    pub(crate) statement: Statement,
}

impl Line {
    /// Whether it is about how long something takes, or about what comes of waiting.
    pub fn is_timed(&self) -> bool {
        self.statement.after.is_some() || matches!(self.statement.act, Act::Quiet | Act::Wait(_))
    }

    /// The request that it posts at once.
    pub(crate) fn post(&self) -> Option<&Post> {
        match &self.statement {
            Statement { after: None, act: Act::Post(post), .. } => Some(post),
            _ => None,
        }
    }
}

/// A line that is not of the language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The script.
    pub script: String,
    /// The line's number.
    pub number: usize,
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.script, self.number, self.line, self.what)
    }
}

impl std::error::Error for Error {}

/// Lines that say something about the script and are not played.
const HEADINGS: [&str; 4] = ["title:", "rules:", "not on wires:", "with "];

type Values = Vec<(String, String)>;

impl Script {
    /// A script of this name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Script {
        let text = text.into();
        let heading = |heading: &str| {
            let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix(heading));
            lines.next().map(|rest| rest.trim().to_owned())
        };
        Script {
            name: name.into(),
            title: heading("title:").unwrap_or_default(),
            rules: heading("rules:").unwrap_or_default(),
            not_on_wires: heading("not on wires:"),
            text,
        }
    }

    /// What the peer needs, so that it can be played.
    pub fn needs(&self) -> Needs {
        let mut lines = self.text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        match lines.find(|words| words.first() == Some(&"server")) {
            _ if self.not_on_wires.is_some() => Needs::Simulation,
            Some(words) if words.get(1) == Some(&"datagrams") => Needs::Simulation,
            Some(_) => Needs::Server,
            None => Needs::Agent,
        }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Every combination of the variables' values.
    ///
    /// # Errors
    /// The first line that cannot be understood.
    pub fn cases(&self) -> Result<Vec<Case>, Error> {
        combinations(&self.text).into_iter().map(|values| self.case(values)).collect()
    }

    fn case(&self, values: Values) -> Result<Case, Error> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(self.text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() || HEADINGS.iter().any(|heading| line.starts_with(heading)) {
                continue;
            }
            let mut text = line.to_string();
            for (name, value) in &values {
                text = text.replace(&format!("${name}"), value);
            }
            let statement = parse::statement(&text).map_err(|what| Error {
                script: self.name.clone(),
                number,
                line: text.clone(),
                what,
            })?;
            lines.push(Line { number, text, statement });
        }
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(Case { values: values.join(" "), lines })
    }
}

/// Every combination of what the lines `with NAME in VALUE; VALUE …` offer. `with A,B in x,y; …` gives several variables
/// at once.
fn combinations(text: &str) -> Vec<Values> {
    let mut cases: Vec<Values> = vec![Vec::new()];
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("with ")) {
        let Some((names, values)) = line.split_once(" in ") else { continue };
        let names: Vec<_> = names.split(',').map(str::trim).collect();
        let offers: Vec<Vec<_>> = values
            .split(';')
            .map(|offer| offer.splitn(names.len(), ',').map(str::trim).collect::<Vec<_>>())
            .collect();
        let with = |case: &Values, offer: &Vec<&str>| {
            let new = names.iter().zip(offer).map(|(name, value)| (name.to_string(), value.to_string()));
            case.iter().cloned().chain(new).collect()
        };
        cases = cases
            .iter()
            .flat_map(|case| offers.iter().map(|offer| with(case, offer)).collect::<Vec<_>>())
            .collect();
    }
    for case in &mut cases {
        // The longest names first: $TIME is not $T followed by IME.
        case.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_every_combination() {
        let text = "title: t\nrules: r\nwith T,TIME in 1,2ms; 3,4ms\nwith X in a; b\nwait $TIME # not $T";
        let cases = Script::new("s", text).cases().expect("valid");
        assert_eq!(cases.len(), 4);
        assert_eq!(cases[0].values, "TIME=2ms T=1 X=a");
        assert_eq!((cases[3].lines[0].number, cases[3].lines[0].text.as_str()), (5, "wait 4ms"));
    }

    #[test]
    fn a_parse_error_names_its_line() {
        let error = Script::new("s", "qp a rc\nqp b rx").cases().expect_err("no service");
        assert_eq!(error.to_string(), "s:2: qp b rx: `rx` is not a service");
    }
}
