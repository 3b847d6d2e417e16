use super::super::memory::Sharing;
use super::super::testing::ring_pair;
use super::*;

const CHUNK: usize = 2048;
const CHUNKS: u32 = 8;
const HEADROOM: u64 = 256;

/// The kernel's part: takes chunks from the fill ring, and publishes that only when it has taken all that
/// it knew of.
struct Kernel {
    fill: Consumer<u64>,
    ring: Producer<Desc>,
}

impl Kernel {
    /// Receives a frame of pieces with these lengths; false when there are no chunks.
    fn receive(&mut self, lens: &[u32]) -> bool {
        for (index, &len) in lens.iter().enumerate() {
            let Some(chunk) = self.take_chunk() else { return false };
            let options = if index + 1 < lens.len() { libc::XDP_PKT_CONTD } else { 0 };
            self.ring.push(Desc { address: chunk + HEADROOM, len, options });
        }
        self.ring.publish();
        true
    }

    fn take_chunk(&mut self) -> Option<u64> {
        if self.fill.cached() == 0 {
            self.fill.release();
        }
        self.fill.pop()
    }
}

fn receive_and_kernel() -> (Receive, Kernel, Umem) {
    let (ring, our_ring) = ring_pair(CHUNKS);
    let (our_fill, fill) = ring_pair(Receive::fill_ring_size(CHUNKS));
    let receive = Receive::new(our_ring, our_fill, CHUNKS, CHUNK, 4 * CHUNK);
    (receive, Kernel { fill, ring }, Umem::new(CHUNKS as usize, CHUNK, Sharing::Private).expect("memory"))
}

fn exact(receive: &Receive) -> bool {
    receive.count().is_exact()
}

#[test]
fn chunks_go_round_although_the_kernel_publishes_late() {
    let (mut receive, mut kernel, mut umem) = receive_and_kernel();
    for round in 0..1000 {
        let lens: &[u32] = [&[60][..], &[1792, 10], &[1792, 1792, 1000]][round % 3];
        let mut lengths = Vec::new();
        assert!(kernel.receive(lens));
        let received = receive.drain(&mut umem, 10, &mut |frame| lengths.push(frame.len()));
        assert_eq!((received.frames, received.malformed), (1, 0));
        assert_eq!(lengths, [lens.iter().sum::<u32>() as usize]);
        assert!(exact(&receive));
    }
}

#[test]
fn a_frame_is_delivered_once_all_of_it_is_there() {
    let (mut receive, mut kernel, mut umem) = receive_and_kernel();
    let (first, second) = (kernel.take_chunk().expect("chunk"), kernel.take_chunk().expect("chunk"));
    kernel.ring.push(Desc { address: first + HEADROOM, len: 1792, options: libc::XDP_PKT_CONTD });
    kernel.ring.publish();
    assert_eq!(receive.drain(&mut umem, 10, &mut |_| panic!("half a frame")), Received::default());
    kernel.ring.push(Desc { address: second + HEADROOM, len: 8, options: 0 });
    kernel.ring.publish();
    let mut lengths = Vec::new();
    receive.drain(&mut umem, 10, &mut |frame| lengths.push(frame.len()));
    assert_eq!(lengths, [1800]);
}

#[test]
fn descriptors_that_the_kernel_cannot_own_are_refused() {
    let beyond = u64::from(CHUNKS) * CHUNK as u64;
    for (address, len) in [(beyond, 60), (u64::MAX, 60), (CHUNK as u64 + 2000, 60), (HEADROOM, 1793)] {
        let (mut receive, mut kernel, mut umem) = receive_and_kernel();
        kernel.ring.push(Desc { address, len, options: 0 });
        kernel.ring.publish();
        let received = receive.drain(&mut umem, 10, &mut |_| panic!("delivered {address}"));
        assert_eq!((received.frames, received.malformed, receive.count().violations), (1, 1, 1));
        assert_eq!(receive.count().held, 0);
    }
    // A chunk that was given twice.
    let (mut receive, mut kernel, mut umem) = receive_and_kernel();
    let chunk = kernel.take_chunk().expect("chunk") + HEADROOM;
    kernel.ring.push(Desc { address: chunk, len: 60, options: libc::XDP_PKT_CONTD });
    kernel.ring.push(Desc { address: chunk, len: 60, options: 0 });
    kernel.ring.publish();
    let received = receive.drain(&mut umem, 10, &mut |_| panic!("delivered"));
    assert_eq!((received.malformed, receive.count().violations, receive.count().held), (1, 1, 0));
}

#[test]
fn a_budget_ends_a_drain_and_the_next_goes_on() {
    let (mut receive, mut kernel, mut umem) = receive_and_kernel();
    for len in [60, 61, 62, 63, 64] {
        assert!(kernel.receive(&[len]));
    }
    let mut lengths = Vec::new();
    assert_eq!(receive.drain(&mut umem, 3, &mut |frame| lengths.push(frame.len())).frames, 3);
    assert_eq!((receive.count().ring, receive.count().in_kernel), (2, 8));
    assert_eq!(receive.drain(&mut umem, 3, &mut |frame| lengths.push(frame.len())).frames, 2);
    assert_eq!(lengths, [60, 61, 62, 63, 64]);
    assert!(exact(&receive));
}

/// A UMEM of four chunks in which every byte tells its address.
fn umem() -> Umem {
    let mut umem = Umem::new(4, CHUNK, Sharing::Private).expect("memory");
    // SAFETY: no kernel knows of it.
    for (address, byte) in unsafe { umem.bytes_mut(0, 4 * CHUNK) }.iter_mut().enumerate() {
        *byte = (address % 251) as u8;
    }
    umem
}

fn desc(chunk: usize, offset: usize, len: usize, continues: bool) -> Desc {
    let options = if continues { libc::XDP_PKT_CONTD } else { 0 };
    Desc { address: (chunk * CHUNK + offset) as u64, len: len as u32, options }
}

fn expected(chain: &[Desc]) -> Vec<u8> {
    let addresses = chain.iter().flat_map(|desc| desc.address..desc.address + u64::from(desc.len));
    addresses.map(|address| (address % 251) as u8).collect()
}

#[test]
fn frames_of_one_chunk_stay_where_they_are() {
    let chain = [desc(2, 256, 100, false)];
    let mut umem = umem();
    let place = umem.memory().base().as_ptr() as usize + 2 * CHUNK + 256;
    let frame = assemble(&chain, &mut [], &mut umem, CHUNK).expect("whole");
    assert_eq!((frame.as_ptr() as usize, frame), (place, expected(&chain).as_slice()));
}

#[test]
fn pieces_in_neighbouring_chunks_close_up_in_place() {
    let full = CHUNK - 256;
    let chain = [desc(1, 256, full, true), desc(2, 256, full, true), desc(3, 256, 17, false)];
    let mut umem = umem();
    let place = umem.memory().base().as_ptr() as usize + CHUNK + 256;
    let mut scratch = [0; 4 * CHUNK];
    let frame = assemble(&chain, &mut scratch, &mut umem, CHUNK).expect("whole");
    assert_eq!((frame.as_ptr() as usize, frame), (place, expected(&chain).as_slice()));
}

#[test]
fn pieces_in_other_chunks_are_copied_together() {
    let full = CHUNK - 256;
    for order in [[3, 0], [2, 0], [2, 1]] {
        let chain = [desc(order[0], 256, full, true), desc(order[1], 256, 300, false)];
        let mut umem = umem();
        let mut scratch = [0; 4 * CHUNK];
        let frame = assemble(&chain, &mut scratch, &mut umem, CHUNK).expect("whole");
        assert_eq!(frame, expected(&chain));
    }
}

#[test]
fn frames_longer_than_any_we_expect_are_refused() {
    let chain = [desc(0, 256, 1000, true), desc(1, 256, 1000, false)];
    assert_eq!(assemble(&chain, &mut [0; 1999], &mut umem(), CHUNK), None);
    assert!(assemble(&chain, &mut [0; 2000], &mut umem(), CHUNK).is_some());
}
