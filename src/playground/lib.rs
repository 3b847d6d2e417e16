//! NICs on a simulated network whose packets a reader controls.
//!
//! A [`World`](world::World) holds real engines in virtual time. It moves one step at a time, and a step is one packet
//! that arrives, one timer that fires, or room at a NIC's port. Switches between the NICs are those of `softrnic-fabric`.
//! Between steps [actions](action::Action) post work and meddle with packets under way. A [`Session`] is a setup and a
//! list of moves: it can go back, because the same moves lead to the same world.
//!
//! The page of `docs/playground` runs this as WebAssembly and knows nothing of the protocol. It sends a [`Request`] as
//! JSON and gets an answer as JSON ([`Session::call`], and `exports.rs` below that). The same requests get the same
//! answers on every machine, which is tested.

pub mod action;
mod exports;
mod layout;
mod manager;
pub mod memory;
mod network;
pub mod packet;
pub mod port;
mod post;
pub mod rules;
pub mod session;
pub mod side;
mod switches;
mod topology;
pub mod view;
pub mod world;

pub use session::{Request, Session};
