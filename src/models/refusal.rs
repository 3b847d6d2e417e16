//! Why a device would refuse what SoftRNIC has.

use std::fmt;

/// That a device refuses something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The device.
    pub model: &'static str,
    /// Why.
    pub rule: Rule,
}

/// What a device refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// More than it has.
    Above {
        /// Of what.
        what: &'static str,
        /// How much was asked for.
        asked: u32,
        /// How much there is.
        most: u32,
    },
    /// A queue whose entries do not fit.
    TooLarge {
        /// The queue.
        queue: &'static str,
        /// How many entries were asked for.
        entries: u32,
        /// How large one is.
        size: u32,
        /// How many units there are, and what a unit is.
        units: u32,
        /// How large a unit is.
        unit: u32,
    },
    /// What it does not have at all.
    Lacks(&'static str),
    /// What cannot be changed.
    Fixed(&'static str),
    /// What must not be 0.
    Zero(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} refuses this: ", self.model)?;
        match self.rule {
            Rule::Above { what, asked, most } => write!(f, "{what} is {asked}, of at most {most}"),
            Rule::TooLarge { queue, entries, size, units, unit } => write!(
                f,
                "{entries} entries of {size} B in the {queue} queue, which has at most {units} units of {unit} B"
            ),
            Rule::Lacks(what) => write!(f, "it has no {what}"),
            Rule::Fixed(what) => write!(f, "{what} cannot be changed"),
            Rule::Zero(what) => write!(f, "{what} is 0"),
        }
    }
}

impl std::error::Error for Refusal {}
