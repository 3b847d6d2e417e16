//! What fuzzing runs of this crate's internals: each function accepts any bytes and panics if something is wrong.

pub use crate::shm::fuzz::shm;
pub use crate::xdp::fuzz::{grant, xdp};
