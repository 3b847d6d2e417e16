use super::*;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("softrnic-sysfs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join("class").join(file)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ENTRY: Entry<'_> = Entry { name: "soft", node: "uverbs0", interface: "lo", gids: 2 };

#[test]
fn a_device_is_described_as_the_kernel_would() {
    let scratch = Scratch::new("described");
    write_tree(&scratch.0, &ENTRY).unwrap();
    assert_eq!(scratch.read("infiniband_verbs/uverbs0/ibdev"), "soft\n");
    assert_eq!(scratch.read("infiniband/soft/ports/1/gid_attrs/types/1"), "RoCE v2\n");
    assert_eq!(scratch.read("infiniband/soft/ports/1/gid_attrs/ndevs/1"), "lo\n");
    assert!(scratch.0.join("class/infiniband/soft/device/net/lo").is_dir());
}

#[test]
fn what_another_process_wrote_stays() {
    let scratch = Scratch::new("stays");
    write_tree(&scratch.0, &ENTRY).unwrap();
    write_tree(&scratch.0, &Entry { interface: "other", ..ENTRY }).unwrap();
    assert_eq!(std::fs::read_dir(scratch.0.join("class/infiniband")).unwrap().count(), 1, "no draft is left");
    assert_eq!(scratch.read("infiniband/soft/ports/1/gid_attrs/ndevs/0"), "lo\n");
}

#[test]
fn files_are_read_without_their_newline_and_never_past_the_buffer() {
    let scratch = Scratch::new("read");
    std::fs::write(scratch.0.join("value"), "4: ACTIVE\n").unwrap();
    let dir = CString::new(scratch.0.as_os_str().as_bytes()).unwrap();
    let mut buffer = [0x7F as c_char; 12];
    let mut read = |size: usize| {
        buffer.fill(0x7F);
        // SAFETY: the buffer has at least `size` bytes.
        let len = unsafe { ibv_read_sysfs_file(dir.as_ptr(), c"/value".as_ptr(), buffer.as_mut_ptr(), size) };
        (len, buffer.map(|c| c as u8))
    };
    assert_eq!(read(12), (9, *b"4: ACTIVE\0\x7F\x7F"));
    assert_eq!(read(4), (4, *b"4: A\x7F\x7F\x7F\x7F\x7F\x7F\x7F\x7F"));
    assert_eq!(read(0).0, -1);
    // SAFETY: as above.
    let missing = unsafe { ibv_read_sysfs_file(dir.as_ptr(), c"none".as_ptr(), buffer.as_mut_ptr(), 12) };
    assert_eq!((missing, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOENT)));
}
