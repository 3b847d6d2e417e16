//! The errors of opening a queue.

use std::fmt;
use std::io;

/// Why a queue could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An option is out of range.
    BadOption(&'static str),
    /// A system call failed.
    System {
        /// What was attempted.
        what: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// Every permitted mode was refused; one sentence each.
    Refused(Vec<String>),
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::System { what, error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadOption(what) => f.write_str(what),
            Error::System { what, error } => write!(f, "{what}: {error}"),
            Error::Refused(reasons) => write!(f, "no permitted mode works: {}", reasons.join("; ")),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
