use super::*;

fn sealed_file(len: u64, seals: SealFlags) -> OwnedFd {
    let file =
        memfd_create("softrnic-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, len).expect("room");
    fcntl_add_seals(&file, seals).expect("seals");
    file
}

#[test]
fn each_side_reads_what_the_other_wrote() {
    let (mut own, file) = Own::create(MIN_CAPACITY).expect("memory");
    let peer = Peer::map(&file).expect("a segment");
    own.bytes_mut(100, 5).copy_from_slice(b"hello");
    let mut read = [0; 5];
    peer.copy(100, &mut read);
    assert_eq!(&read, b"hello");
    assert_eq!(peer.capacity(), MIN_CAPACITY);
}

#[test]
fn the_receiver_of_a_segment_cannot_write_it() {
    let (_own, file) = Own::create(MIN_CAPACITY).expect("memory");
    assert!(Mapped::new(&file, HEADER_LEN, libc::PROT_READ | libc::PROT_WRITE).is_err());
    assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
    assert!(ftruncate(&file, 0).is_err());
    assert!(ftruncate(&file, 1 << 30).is_err());
    let mapped = Mapped::new(&file, HEADER_LEN, libc::PROT_READ).expect("readable");
    // SAFETY: the mapping's own page.
    let changed = unsafe {
        rustix::mm::mprotect(
            mapped.0.base().as_ptr().cast(),
            HEADER_LEN,
            rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE,
        )
    };
    assert!(changed.is_err());
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&file, hole, 0, 4096).is_err());
}

#[test]
fn unsealed_segments_are_refused() {
    let right = (HEADER_LEN + MIN_CAPACITY) as u64;
    assert!(Peer::map(&sealed_file(right, SEALS)).is_ok());
    assert!(Peer::map(&sealed_file(right, SEALS.difference(SealFlags::SHRINK))).is_err());
    assert!(Peer::map(&sealed_file(right, SEALS.difference(SealFlags::FUTURE_WRITE))).is_err());
    for len in
        [0, HEADER_LEN as u64, right - 1, right + 1, right - 4096, right + 4096, u64::from(u32::MAX), 1 << 62]
    {
        assert!(Peer::map(&sealed_file(len, SEALS)).is_err(), "{len}");
    }
    let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
    assert!(Peer::map(&pipe).is_err());
}

#[test]
#[should_panic(expected = "bytes at")]
fn nothing_is_copied_from_beyond_the_end() {
    let (_own, file) = Own::create(MIN_CAPACITY).expect("memory");
    Peer::map(&file).expect("a segment").copy(MIN_CAPACITY - 4, &mut [0; 5]);
}
