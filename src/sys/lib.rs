//! What the NIC asks of Linux in several places, each written once.
//!
//! - [`Credentials`] of the process at the other side of a Unix socket, and which users the kernel can tell apart.
//! - [`BlockedSignals`] for threads of the NIC's own, and [`Uncancelled`] for threads of the application.
//! - [`unix`]: finding each other by an abstract name, and passing descriptors.
//! - [`ProcessLooks`]: whether the process of a peer is stopped.
//! - [`environment`]: variables of a process that may run with more privileges than its user.
//! - [`ask_for_short_slices`]: a thread that others wait for.
//! - [`pace`]: time that runs slower than the wall clock.
//! - [`epoll_ctl`]: watching descriptors by number.
//!
//! Nothing here knows of links, NICs or packets. No call is a cancellation point of POSIX.

#![cfg(not(target_family = "wasm"))]

mod cancel;
mod credentials;
pub mod environment;
mod epoll;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod pace;
mod process;
mod signals;
mod slices;
pub mod unix;

pub use cancel::Uncancelled;
pub use credentials::{Credentials, is_user, stands_for_many};
pub use epoll::epoll_ctl;
pub use process::{Halt, ProcessLooks, is_stopped};
pub use signals::BlockedSignals;
pub use slices::ask_for_short_slices;
