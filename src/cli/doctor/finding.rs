//! The findings.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::output::say;
use crate::table::{BAD, GOOD};

const NOTE: Style = AnsiColor::Yellow.on_default().bold();

/// How good things are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could, or not everything does.
    Warn,
    /// A problem.
    Fail,
}

/// One thing that was checked.
#[derive(Serialize)]
pub struct Finding {
    pub level: Level,
    /// What it is about.
    pub subject: &'static str,
    pub text: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub fn print(&self) {
        let (style, word) = match self.level {
            Level::Ok => (GOOD, "ok"),
            Level::Warn => (NOTE, "warn"),
            Level::Fail => (BAD, "fail"),
        };
        say!("{style}{word:<4}{style:#}  {}: {}", self.subject, self.text);
        if let Some(advice) = &self.advice {
            say!("      → {advice}");
        }
    }
}

/// Everything that was checked, in order.
#[derive(Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub fn ok(&mut self, subject: &'static str, text: impl Into<String>) {
        self.0.push(Finding { level: Level::Ok, subject, text: text.into(), advice: None });
    }

    pub fn warn(&mut self, subject: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Warn, subject, text, advice);
    }

    pub fn fail(&mut self, subject: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Fail, subject, text, advice);
    }

    pub fn add(
        &mut self,
        level: Level,
        subject: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let advice = Some(advice.into()).filter(|advice| !advice.is_empty());
        self.0.push(Finding { level, subject, text: text.into(), advice });
    }

    pub fn all(&self) -> &[Finding] {
        &self.0
    }
}
