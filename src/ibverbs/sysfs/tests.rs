use std::path::PathBuf;

use super::*;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("softrnic-sysfs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
    // SAFETY: the buffer has at least 12 bytes.
    let missing = unsafe { ibv_read_sysfs_file(dir.as_ptr(), c"none".as_ptr(), buffer.as_mut_ptr(), 12) };
    assert_eq!((missing, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOENT)));
}
