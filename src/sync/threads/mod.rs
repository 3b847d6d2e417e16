//! What needs an operating system: waiting, waking, and descriptors.

#[cfg(not(loom))]
pub mod channel;
pub mod doorbells;
pub(crate) mod eventfd;
mod futex;
pub mod kick;
pub mod lock;
#[cfg(not(loom))]
pub mod tokens;

#[cfg(all(test, not(loom)))]
mod tests;
