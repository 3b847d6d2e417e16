//! Lets application threads and the progress thread share an engine.
//!
//! Callers drive the NIC and the progress thread fills in, so everything here answers one question: can work be left
//! behind when each of two threads believes that the other one will do it? Start with [`lock`], whose one word is both
//! the lock and the doorbell.
//!
//! - [`lock`]: the NIC lock with its doorbell.
//! - [`doorbells`]: the set of queue pairs that have been posted to.
//! - [`queue`]: work and completions between application threads and the NIC; [`ring`]: the ring that they are built
//!   on.
//! - [`notify`]: arming a completion queue for an event.
//! - [`channel`]: event channels with a descriptor that can be polled, and counting acknowledgements.
//! - [`tokens`]: a count with a descriptor that belongs to the application.
//! - [`kick`]: waking the progress thread.
//!
//! # Cancellation
//!
//! A cancelled thread may end without running destructors, so it must never be cancelled while it owns anything that
//! others wait for. All system calls here go through `syscall()`, which is not a cancellation point; the exceptions are
//! the blocking reads of [`channel::EventChannel::wait`] and [`tokens::wait`], which hold no lock and own nothing.
//!
//! # Checking
//!
//! All atomics come from [`atomics`], so that loom can run the protocols through every interleaving and every value that
//! the memory model lets a load return: `RUSTFLAGS="--cfg loom" cargo test -p softrnic-sync --release --lib loom`. Beside
//! each protocol is a broken variant of it, in which loom must find the failure.

pub mod atomics;
#[cfg(loom)]
pub mod models;
pub mod notify;
pub mod queue;
pub mod ring;
#[cfg(not(any(loom, target_family = "wasm")))]
mod slots;
#[cfg(not(target_family = "wasm"))]
mod threads;

#[cfg(not(target_family = "wasm"))]
pub use threads::*;

#[cfg(all(test, loom))]
mod loom_tests;
