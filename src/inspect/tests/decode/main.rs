//! What decoding prints, and whether tshark sees the same.

#[path = "../common/mod.rs"]
mod common;

mod forms;
mod frames;
mod tshark;
mod tunnels;
