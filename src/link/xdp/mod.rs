//! The `xdp` link: RoCEv2 frames of a real interface, by AF_XDP.
//!
//! An XDP program ([`XdpVerdicts`] says what it did) steers the datagrams for the device's addresses
//! into one socket per receive queue; everything else stays the kernel's. Frames are received into and
//! sent from packet memory of our own ("UMEM"), whose ownership is accounted for exactly
//! ([`FrameAudit`]). Destination hardware addresses come from [`crate::host`].
//! Start reading with [`XdpLink`].

mod audit;
mod grant;
mod handover;
mod identity;
mod link;
mod membership;
mod memory;
mod open;
mod options;
mod paths;
mod program;
mod queue;
mod readiness;
mod receive;
mod ring;
#[cfg(test)]
mod testing;
mod transmit;
mod xsk;

pub use audit::FrameAudit;
pub use grant::{Grant, GrantDescription};
pub use handover::GrantRequest;
pub use link::XdpLink;
pub use options::{AttachChoice, AttachMode, BusyPoll, CopyChoice, XdpError, XdpMode, XdpOptions};
pub use program::XdpVerdicts;
