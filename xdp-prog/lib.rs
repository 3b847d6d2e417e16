//! The XDP program that steers RoCEv2 datagrams into AF_XDP sockets.
//!
//! The source is `softrnic_xdp.c`, beside this file. The compiled object is committed, so that users need no BPF compiler.
//! Whoever loads it takes the names of programs and maps from here. This crate loads nothing itself.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

/// Alignment that readers of ELF structures need.
#[repr(C, align(8))]
struct Aligned<Bytes: ?Sized>(Bytes);

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!("softrnic_xdp.bpf.o"));

/// The object: an ELF file with BPF code, aligned to 8 bytes.
pub static OBJECT: &[u8] = &ALIGNED.0;

/// The program for kernels that know frames of several buffers (Linux 5.18 and later).
pub const STEER_FRAGS: &str = "steer_frags";

/// The program for kernels and drivers that do not.
pub const STEER_LINEAR: &str = "steer_linear";

/// The map from a receive queue to its AF_XDP socket: an XSKMAP with [`MAX_QUEUES`] entries, by the queue's index.
pub const SOCKETS: &str = "sockets";

/// The map of the addresses whose datagrams are steered: a hash map. The key is an address of 16 bytes in network byte
/// order, IPv4-mapped for IPv4, as in a GID. The value is one byte of any value.
pub const ADDRESSES: &str = "addresses";

/// The map that counts what became of frames: a per-CPU array of `u64`, by [`Verdict`]. Read-only for processes.
pub const VERDICTS: &str = "verdicts";

/// The receive queues that [`SOCKETS`] has room for.
pub const MAX_QUEUES: usize = 256;

/// The addresses that [`ADDRESSES`] has room for.
pub const MAX_ADDRESSES: usize = 4096;

/// What became of a frame. The value is the index in [`VERDICTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Verdict {
    /// Redirected to a socket.
    Redirected,
    /// Steered, but no socket serves the receive queue.
    PassedNoSocket,
    /// Not IP, or behind more than two VLAN tags.
    PassedNotIp,
    /// IP, but not directly followed by UDP.
    PassedNotUdp,
    /// An IPv4 fragment.
    PassedFragment,
    /// Another UDP port.
    PassedOtherPort,
    /// The RoCEv2 port of an address that is not in [`ADDRESSES`].
    PassedOtherAddress,
    /// Headers cut short or contradictory.
    PassedTruncated,
}

impl Verdict {
    /// Every verdict, in the order of the indices.
    pub const ALL: [Verdict; 8] = [
        Verdict::Redirected,
        Verdict::PassedNoSocket,
        Verdict::PassedNotIp,
        Verdict::PassedNotUdp,
        Verdict::PassedFragment,
        Verdict::PassedOtherPort,
        Verdict::PassedOtherAddress,
        Verdict::PassedTruncated,
    ];
}
