//! Statistics of the NICs of running processes.
//!
//! Every device has a Unix socket in a directory that only its user can enter ([`private_directory`]). A client that
//! connects gets one [`Snapshot`] as JSON, then the connection is closed. A thread that lives only while there are
//! clients takes and sends the snapshots. So they cost the data path nothing without clients; with clients, the NIC is
//! held for them at most ten times a second, each time for a bounded number of QPs.

#![forbid(unsafe_code)]

mod directory;
mod look;
mod meaning;
pub mod metrics;
pub mod serve;
mod snapshot;
mod socket;
#[cfg(test)]
mod tests;

pub use directory::private_directory;
pub use look::{Look, Silent, ask, look, running};
pub use meaning::{link_counters, meaning};
pub use snapshot::{ConnectionSnapshot, PeerSnapshot, QpSnapshot, ReachSnapshot, Snapshot};
pub use socket::{Answering, Cached, LIMITS, StatsSocket, is_ours};

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
