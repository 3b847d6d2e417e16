//! What is said of a peer.

use std::fmt;

/// What a script says of the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// It cannot be played here, or not with this peer.
    NotApplicable,
    /// The peer does what the script says.
    Conforms,
    /// Something else than the peer went wrong, or repeats do not agree.
    CannotTell,
    /// The peer does something else, each time.
    Deviates,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 4] =
        [Verdict::Conforms, Verdict::Deviates, Verdict::CannotTell, Verdict::NotApplicable];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::NotApplicable => "not applicable",
            Verdict::Conforms => "conforms",
            Verdict::CannotTell => "cannot tell",
            Verdict::Deviates => "deviates",
        })
    }
}

/// What one case of a script says.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The values of the script's variables.
    pub values: String,
    /// What it says.
    pub verdict: Verdict,
    /// The number of the line at which it ended early.
    pub number: usize,
    /// That line, if it ended early.
    pub line: String,
    /// What came instead, or why it cannot be played.
    pub what: String,
    /// Its packets in the capture, counted from 1.
    pub frames: (u64, u64),
    /// The capture of the last time that a deviation was seen, and nothing else; `frames` are those of that file.
    pub capture: Option<std::path::PathBuf>,
    /// Why it is known, for a known deviation.
    pub known: Option<String>,
}

/// What a script says, with all its cases.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The script's name.
    pub script: String,
    /// What it shows.
    pub title: String,
    /// Where the specification says so.
    pub rules: String,
    /// Its cases.
    pub cases: Vec<CaseResult>,
    /// The capture's file, if there is one.
    pub capture: Option<std::path::PathBuf>,
}

impl Judgement {
    /// The worst of the cases.
    pub fn verdict(&self) -> Verdict {
        self.cases.iter().map(|case| case.verdict).max().unwrap_or(Verdict::NotApplicable)
    }

    /// How many cases have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Whether every deviation is a known one.
    pub fn is_known(&self) -> bool {
        let deviates = |case: &&CaseResult| case.verdict == Verdict::Deviates;
        self.verdict() == Verdict::Deviates
            && self.cases.iter().filter(deviates).all(|case| case.known.is_some())
    }

    /// The first case with the verdict of the whole, for a deviation the first that is not known.
    pub fn reason(&self) -> Option<&CaseResult> {
        let verdict = self.verdict();
        let mut cases = self.cases.iter().filter(|case| case.verdict == verdict);
        cases.clone().find(|case| case.known.is_none()).or_else(|| cases.next())
    }
}
