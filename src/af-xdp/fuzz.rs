//! Rings in which the kernel's side says anything.

use std::os::fd::OwnedFd;

use softrnic_sys::fuzz::Choices;

use super::memory::{Sharing, Umem};
use super::receive::Receive;
use super::ring::Desc;
use super::testing::ring_pair;

const CHUNK: usize = 2048;
const CHUNKS: u32 = 8;
const LONGEST: usize = 3 * CHUNK;

/// Frames as the kernel delivers them, descriptors of any address, length and flags, and indices that jump.
pub fn xdp(data: &[u8]) {
    let (mut ring, our_ring) = ring_pair::<Desc>(CHUNKS);
    let (our_fill, mut fill) = ring_pair::<u64>(Receive::fill_ring_size(CHUNKS));
    let mut umem = Umem::new(CHUNKS as usize, CHUNK, Sharing::Private).expect("memory");
    let mut receive = Receive::new(our_ring, our_fill, CHUNKS, CHUNK, LONGEST);
    let mut choices = Choices(data);
    // Where the kernel would write next.
    let mut next = 0u32;
    let mut honest = true;
    while !choices.is_empty() {
        match choices.byte() % 6 {
            0 => {
                let pieces = usize::from(choices.byte() % 4);
                for piece in 0..pieces {
                    let Some(address) = fill.pop() else { break };
                    let len = choices.number(2) as u32 % (CHUNK as u32 - 256);
                    let options = if piece + 1 < pieces { libc::XDP_PKT_CONTD } else { 0 };
                    ring.forge_entry(next, Desc { address: address + 256, len, options });
                    next = next.wrapping_add(1);
                }
                fill.release();
                ring.forge_index(next);
            }
            1 => {
                honest = false;
                let [address, len, options] = [8, 4, 1].map(|bytes| choices.number(bytes));
                ring.forge_entry(next, Desc { address, len: len as u32, options: options as u32 });
                next = next.wrapping_add(1);
                ring.forge_index(next);
            }
            2 => {
                // A chunk that may or may not be the kernel's.
                honest = false;
                let [chunk, offset, len] = [1, 2, 2].map(|bytes| choices.number(bytes));
                let address = chunk % u64::from(CHUNKS + 1) * CHUNK as u64 + offset % CHUNK as u64;
                let options = u32::from(choices.byte() & 1);
                ring.forge_entry(next, Desc { address, len: len as u32, options });
                next = next.wrapping_add(1);
                ring.forge_index(next);
            }
            3 => {
                honest = false;
                next = choices.number(4) as u32;
                ring.forge_index(next);
            }
            4 => {
                honest = false;
                fill.forge_index(choices.number(4) as u32);
            }
            _ => {
                let budget = usize::from(choices.byte());
                let mut frames = 0;
                let received = receive.drain(&mut umem, budget, &mut |frame| {
                    assert!(frame.len() <= LONGEST);
                    frames += 1;
                });
                assert!(received.frames <= budget);
                assert_eq!(received.frames as u64, frames + received.malformed);
            }
        }
        let count = receive.count();
        assert_eq!(count.held + count.in_kernel, count.chunks);
        assert!(count.is_exact() || !honest, "{count:?}");
    }
}

/// The file of packet memory that could be handed over.
pub fn memory_file(chunks: usize) -> OwnedFd {
    let umem = Umem::new(chunks, CHUNK, Sharing::Shared).expect("memory");
    umem.file().expect("shared").try_clone_to_owned().expect("a descriptor")
}
