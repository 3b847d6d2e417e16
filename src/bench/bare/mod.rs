//! Loops that do only what the wire forces, or not even that.

pub mod cache_line;
mod frames;
pub mod memory;
pub mod ping;
mod ping_pong;
pub mod rate;
pub mod raw;
mod ring;
pub mod shm;
pub mod shm_ping;
mod socket;
pub mod wire;
pub mod wire_ping;
pub mod xdp_ping;
pub mod xdp_raw;
pub mod xdp_stream;
pub mod xdp_wire_ping;
mod xsk;
