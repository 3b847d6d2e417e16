//! What fuzzing runs, so that it can be run without a fuzzer too: over kept inputs, and over random ones.
//!
//! Each function accepts any bytes and panics if something is wrong.

mod captures;
mod cm;
mod control;
mod frames;
mod hostile;
mod looks;
mod questions;
mod sockets;
mod specifications;
mod srd;
mod verbs;

pub use captures::captures;
pub use cm::cm;
pub use control::control;
pub use frames::frames;
pub use hostile::hostile;
pub use looks::looks;
pub use questions::questions;
pub use sockets::sockets;
pub use softrnic_af_xdp::fuzz::xdp;
pub use softrnic_netdev::fuzz::netlink;
pub use softrnic_shm::fuzz::shm;
pub use softrnic_xdp::fuzz::grant;
pub use specifications::specifications;
pub use srd::srd;
pub use verbs::verbs;

/// The name and the function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 15] = [
    ("frames", frames),
    ("hostile", hostile),
    ("srd", srd),
    ("control", control),
    ("captures", captures),
    ("verbs", verbs),
    ("sockets", sockets),
    ("xdp", xdp),
    ("shm", shm),
    ("netlink", netlink),
    ("grant", grant),
    ("cm", cm),
    ("looks", looks),
    ("questions", questions),
    ("specifications", specifications),
];

/// Bytes that decide what happens next; zeros once they are used up.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// At most `len` bytes.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// One of `from`, which is not empty.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}
