//! The calls that led a program to a verb: recorded as return addresses, with a line of source for each when a report is written.
//!
//! [`Traces`] gives each stack a number. [`lines`] asks a Python interpreter for its lines, and [`resolve`] finds names and lines
//! in the debug information of the program. What is reported is decided in `softrnic-check`. Start reading in `traces.rs`.

mod python;
mod symbols;
mod traces;

pub use python::{Lines, lines};
pub use symbols::{Resolved, is_in, resolve};
pub use traces::{Stack, Traces};
