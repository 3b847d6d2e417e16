//! The HTML page: bounded, well-formed, and drawn by a real browser without a complaint.

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod page;
