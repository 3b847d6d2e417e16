//! Reports as text, in the form that users of AddressSanitizer and Valgrind know.

use std::fmt::{self, Display, Formatter};

use crate::finding::{Finding, Summary};
use crate::{Kind, Trace};

/// A call in a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The function, or what stands for it.
    pub function: String,
    /// File and line, or module and offset.
    pub place: String,
}

/// Who knows the calls behind a [`Trace`].
pub trait Symbols {
    /// The calls, innermost first.
    fn frames(&self, trace: Trace) -> Vec<Frame>;
}

impl Finding {
    /// The report, each line with `prefix` before it.
    pub fn text(&self, prefix: &str, symbols: &dyn Symbols) -> String {
        Text { finding: self, prefix, symbols }.to_string()
    }
}

struct Text<'a> {
    finding: &'a Finding,
    prefix: &'a str,
    symbols: &'a dyn Symbols,
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Text { finding, prefix, symbols } = self;
        writeln!(f, "{prefix}ERROR: SoftRNIC check: {}: {}", finding.kind, finding.kind.means())?;
        writeln!(f, "{prefix}  {}", finding.what)?;
        for part in &finding.parts {
            writeln!(f, "{prefix}  {}", part.says)?;
            let frames = symbols.frames(part.trace);
            if frames.is_empty() {
                writeln!(f, "{prefix}    (where is not known)")?;
            }
            for (number, frame) in frames.iter().enumerate() {
                writeln!(f, "{prefix}    #{number} {} {}", frame.function, frame.place)?;
            }
        }
        writeln!(f, "{prefix}  Rule: {}", finding.kind.rule())?;
        writeln!(f, "{prefix}  Usual cause: {}", finding.kind.cause())?;
        writeln!(f, "{prefix}")
    }
}

impl Summary {
    /// The last lines of a report.
    pub fn text(&self, prefix: &str) -> String {
        let mut text = String::new();
        if !self.left.is_empty() {
            let left: Vec<_> = self.left.iter().map(|(what, count)| format!("{count} {what}")).collect();
            text += &format!("{prefix}LEFT AT EXIT: {}\n", left.join(", "));
        }
        let (errors, places) = (self.errors(), self.places());
        text += &format!(
            "{prefix}ERROR SUMMARY: {errors} {} in {places} {} (suppressed: {})\n",
            plural(errors, "error"),
            plural(places, "place"),
            self.suppressed
        );
        for (kind, (count, _)) in &self.kinds {
            text += &format!("{prefix}  {count:>5} {}\n", Kind::name(*kind));
        }
        text
    }
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
