//! Statistics of the NICs of running processes.
//!
//! Every device has a Unix socket in a directory that only its user can enter ([`private_directory`]). A client that
//! connects sends a line, and gets one [`Snapshot`] as JSON, or has something done to the port ([`command`]). Then the
//! connection is closed. A thread that lives only while there are
//! clients takes and sends the snapshots. So they cost the data path nothing without clients; with clients, the NIC is
//! held for them at most ten times a second, each time for a bounded number of QPs.

#![forbid(unsafe_code)]

mod directory;
mod look;
mod meaning;
pub mod metrics;
mod rates;
mod report;
mod request;
mod resources;
pub mod serve;
mod snapshot;
mod socket;
#[cfg(test)]
mod tests;
mod why;

pub use directory::private_directory;
pub use look::{Look, Silent, ask, command, look, look_closely, running};
pub use meaning::{is_drop, link_counters, meaning};
pub use rates::Between;
pub use report::{FailedQp, Report, UnpolledCq};
pub use request::Detail;
pub use resources::{
    CmIdSnapshot, CqSnapshot, MOST_REGIONS, MrSnapshot, PdSnapshot, QpOwnersSnapshot, Resources, SrqSnapshot,
};
pub use snapshot::{
    ConnectionSnapshot, Devices, PeerSays, PeerSnapshot, PortSnapshot, QpSnapshot, ReachSnapshot, Snapshot,
};
pub use socket::{Answering, Cached, LIMITS, StatsSocket, is_ours};
pub use why::why;

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
