//! Rings in which the kernel's side says anything, and hand-overs with any bytes and descriptors.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use softrnic_sys::fuzz::Choices;

use super::audit::AddQueue;
use super::grant::Grant;
use super::handover::{GrantRequest, Wishes, send};
use super::memory::{Sharing, Umem};
use super::options::XdpOptions;
use super::receive::Receive;
use super::ring::Desc;
use super::testing::ring_pair;
use softrnic_link::FrameAudit;

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
        let mut audit = FrameAudit::default();
        audit.add_receive(count);
        assert!(audit.is_exact() || !honest, "{audit:?}");
    }
}

/// What a helper receives from an application, and an application from a helper, with descriptors of all kinds.
pub fn grant(data: &[u8]) {
    let mut choices = Choices(data);
    let kind = choices.byte();
    let (near, far) = UnixStream::pair().expect("a pair");
    match kind % 3 {
        0 => {
            (&near).write_all(choices.0).expect("room for it");
            near.shutdown(Shutdown::Write).expect("the end");
            if let Ok(request) = GrantRequest::read(far) {
                assert!(!request.interface().contains('\n'));
                request.refuse("it is not for anybody").expect("room for it");
            }
        }
        1 => {
            let count = usize::from(choices.byte() % 8);
            let descriptors: Vec<OwnedFd> =
                choices.take(count).iter().map(|&kind| descriptor(kind)).collect();
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            let text = String::from_utf8_lossy(choices.0);
            if !text.is_empty() {
                send(&far, &text, &borrowed).expect("room for it");
            }
            far.shutdown(Shutdown::Write).expect("the end");
            assert!(
                Grant::ask(near, "lo", &XdpOptions::default()).is_err(),
                "none of them is a bound socket"
            );
        }
        _ => {
            let mut wishes = Wishes::default();
            while !choices.is_empty() {
                let len = usize::from(choices.byte());
                if wishes.add(choices.take(len), &mut |_| {}).is_err() {
                    break;
                }
            }
        }
    }
}

fn descriptor(kind: u8) -> OwnedFd {
    match kind % 3 {
        0 => UnixStream::pair().expect("a pair").0.into(),
        1 => File::open("/dev/null").expect("a device").into(),
        _ => {
            let umem = Umem::new(usize::from(kind), CHUNK, Sharing::Shared).expect("memory");
            umem.file().expect("shared").try_clone_to_owned().expect("a descriptor")
        }
    }
}
