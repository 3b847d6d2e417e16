//! The choice among paths of equal length.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

use crate::frame::FlowTuple;
use crate::murmur::murmur3_32;

/// How a switch chooses among next hops of equal distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Balance {
    /// By a hash of the 5-tuple: all packets of a flow take one path. `None` gives each switch a seed of its own: its
    /// number.
    Ecmp {
        /// Seed of the hash.
        seed: Option<u32>,
    },
    /// Packet by packet, in turn.
    RoundRobin,
    /// Packet by packet, at random.
    Random,
    /// Packet by packet, to the shortest queue.
    LeastQueue,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance::Ecmp { seed: None }
    }
}

/// The index of the chosen next hop, of `hops`. `turn` is the switch's counter; `queue` tells how many bytes wait for a hop.
pub fn choose(
    balance: Balance,
    flow: &FlowTuple,
    node: u32,
    hops: usize,
    turn: &mut u32,
    rng: &mut ChaCha8Rng,
    queue: impl Fn(usize) -> u64,
) -> usize {
    if hops == 1 {
        return 0;
    }
    match balance {
        Balance::Ecmp { seed } => hash(flow, seed.unwrap_or(node)) as usize % hops,
        Balance::RoundRobin => {
            *turn = turn.wrapping_add(1);
            *turn as usize % hops
        }
        Balance::Random => rng.next_u32() as usize % hops,
        Balance::LeastQueue => {
            // Equal queues are taken in turn, or the first hop would get all that finds the fabric empty.
            *turn = turn.wrapping_add(1);
            let first = *turn as usize % hops;
            (0..hops).map(|step| (first + step) % hops).min_by_key(|&hop| queue(hop)).unwrap_or(0)
        }
    }
}

/// The hash of a 5-tuple: MurmurHash3 over addresses and ports, IPv4 addresses as numbers, all in little-endian order, as the
/// HPCC simulator computes it.
fn hash(flow: &FlowTuple, seed: u32) -> u32 {
    use std::net::IpAddr::{V4, V6};
    let ports = (u32::from(flow.sport) | u32::from(flow.dport) << 16).to_le_bytes();
    match (flow.src, flow.dst) {
        (V4(src), V4(dst)) => {
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&u32::from(src).to_le_bytes());
            bytes[4..8].copy_from_slice(&u32::from(dst).to_le_bytes());
            bytes[8..].copy_from_slice(&ports);
            murmur3_32(&bytes, seed)
        }
        (src, dst) => {
            let mut bytes = [0; 36];
            for (address, bytes) in [src, dst].into_iter().zip(bytes.chunks_exact_mut(16)) {
                let octets = match address {
                    V4(address) => address.to_ipv6_mapped().octets(),
                    V6(address) => address.octets(),
                };
                bytes.copy_from_slice(&octets);
            }
            bytes[32..].copy_from_slice(&ports);
            murmur3_32(&bytes, seed)
        }
    }
}
