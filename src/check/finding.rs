//! What was found.

use std::collections::BTreeMap;

use crate::{Kind, Trace};

/// Something that the program does wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of mistake it is.
    pub kind: Kind,
    /// What happened, in a sentence with the values.
    pub what: String,
    /// Where in the program: the call that went wrong first, then whatever it depends on.
    pub parts: Vec<Part>,
}

/// A call that has to do with a finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// What was done there.
    pub says: String,
    /// Where.
    pub trace: Trace,
}

impl Finding {
    /// What makes two findings the same one, found again.
    pub(crate) fn identity(&self) -> (Kind, Vec<Trace>) {
        (self.kind, self.parts.iter().map(|part| part.trace).collect())
    }
}

/// What was found in all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// How often each kind was found, and in how many places.
    pub kinds: BTreeMap<Kind, (u64, u64)>,
    /// How often something was found that is suppressed.
    pub suppressed: u64,
    /// Objects that the program did not destroy, by the name of their structure.
    pub left: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// How often something was found.
    pub fn errors(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    /// In how many places.
    pub fn places(&self) -> u64 {
        self.kinds.values().map(|(_, places)| places).sum()
    }
}
