//! NETLINK_RDMA: what `rdma` of iproute2, librdmacm and UCX ask the kernel about RDMA devices, and the answers.
//!
//! A [`Responder`] takes a datagram that a program has sent, and returns those that it receives: pure code, which trusts
//! neither the length nor the content of what it is given. What there is to tell comes from a [`System`]: the devices of
//! this process, and the NICs of all processes of the user. Devices of the same name are one device here, as they would
//! be in a kernel that all these processes share; each object has the number of its process.
//!
//! Start reading at `responder.rs`. The numbers are in `number.rs`, as `rdma_netlink.h` has them.

#![forbid(unsafe_code)]

mod device;
mod monitor;
mod number;
mod objects;
mod reply;
mod request;
mod responder;
mod statistics;
#[cfg(test)]
mod tests;

pub use device::{OwnDevice, System};
pub use monitor::Monitor;
pub use responder::Responder;
