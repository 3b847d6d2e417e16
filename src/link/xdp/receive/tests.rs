use super::*;

const CHUNK: usize = 2048;

/// A UMEM of four chunks in which every byte tells its address.
fn umem() -> Umem {
    let mut umem = Umem::new(4, CHUNK).expect("memory");
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
