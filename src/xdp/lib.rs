//! The `xdp` link: RoCEv2 frames on a real interface, over AF_XDP.
//!
//! An XDP program ([`XdpVerdicts`] counts what it did) steers the datagrams for the device's addresses into one socket
//! per receive queue; the kernel gets everything else. Frames are received into and sent from packet memory of our own
//! ("UMEM", [`softrnic_af_xdp`]), whose ownership is accounted for exactly ([`FrameAudit`](softrnic_link::FrameAudit)). Destination hardware
//! addresses come from [`softrnic_netdev`]. Start reading with [`XdpLink`].

mod audit;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod handover;
mod identity;
mod keeper;
mod link;
mod membership;
mod open;
mod options;
mod paths;
mod program;
mod readiness;
mod steering;

pub use grant::{Grant, GrantDescription};
pub use handover::{GrantRequest, refuse};
pub use keeper::Keeper;
pub use link::XdpLink;
pub use options::{AttachChoice, AttachMode, BusyPoll, CopyChoice, XdpError, XdpMode, XdpOptions};
pub use program::XdpVerdicts;
pub use softrnic_af_xdp::QueueLayout;
