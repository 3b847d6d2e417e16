//! The transport headers, one file per group; each reads and writes itself.

mod aeth;
mod atomic;
mod bth;
mod deth;
mod feth;
mod reth;

pub use aeth::{Aeth, Credits, NakCode, RnrTimer, Syndrome};
pub use atomic::AtomicEth;
pub use bth::{BTH_LEN, Bth, Pad};
pub use deth::Deth;
pub use feth::{Feth, Placement, Selectivity};
pub use reth::Reth;
