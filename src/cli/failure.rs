//! How a subcommand ends when it fails.

use std::fmt;

/// The general exit status of a failure, which the text explains.
pub const FAILED: u8 = 1;
/// Invalid arguments; the same status as clap's.
pub const USAGE: u8 = 2;

/// A message for humans, and the exit status.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub status: u8,
}

/// The result of subcommands.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: FAILED }
    }

    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: USAGE }
    }

    pub fn with_status(message: impl Into<String>, status: u8) -> Failure {
        Failure { message: message.into(), status }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Any error is a failure; `Failure` itself is not an `Error`, so this does not conflict.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}

/// Adds what was being done when an error occurred.
pub trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}
