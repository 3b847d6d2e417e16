//! `softrnic check`: tells the checker what the program does.
//!
//! Off, which it is unless `SOFTRNIC_CHECK` is set, nothing of this runs: the tables that `verbs.h` calls through have other
//! functions (`data_path.rs`), and the other verbs look at one flag. What is done with it is in `softrnic-checking`.

mod calls;
pub(crate) mod data_path;
mod late;
mod objects;
mod watch;

pub(crate) use calls::{refused, unacknowledged};
pub(crate) use objects::{destroyed, kind, made, modified, rekeyed};
pub(crate) use softrnic_checking::*;
pub(crate) use watch::{Watcher, dropped_requests};
