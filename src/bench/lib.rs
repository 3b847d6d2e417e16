//! What the microbenchmarks and the instruction counts drive: two NICs on a cable, one thread, and nothing else.
//!
//! Start reading with [`Duo`]. The programs `softrnic-bench` and `softrnic-count` are beside this library.

mod cable;
mod duo;

pub use duo::{Duo, Work};
