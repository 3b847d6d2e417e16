//! The HTML page: bounded, well-formed, and drawn by a real browser without an error.

#[path = "../../../inspect/tests/common/mod.rs"]
mod common;

mod browser;
mod page;
