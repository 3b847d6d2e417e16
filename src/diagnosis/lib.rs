//! Why something failed, in words for the programmer and in a code for `ibv_wc.vendor_err`.
//!
//! `transport` and `memory` know reasons as small types, and the engine puts what they know together: a [`Diagnosis`]. Its
//! `Display` is the sentence that `SOFTRNIC_LOG=warn` shows, and [`Diagnosis::code`] the number. This crate keeps no state
//! and writes nothing. Start reading in `diagnosis.rs`; the codes are in `code.rs`.
#![forbid(unsafe_code)]

mod code;
mod concern;
mod denied;
mod diagnosis;
mod words;

/// The target of log messages that are shown although `SOFTRNIC_LOG` is not set.
pub const ALWAYS: &str = "softrnic";

pub use code::Code;
pub use concern::Warning;
pub use denied::{Denied, KeyDenied};
pub use diagnosis::Diagnosis;
