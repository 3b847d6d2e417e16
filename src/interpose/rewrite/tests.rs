use std::fs::File;
use std::os::fd::AsRawFd;

use super::*;

#[test]
fn paths_below_our_directories_are_ours_and_no_others() {
    assert_eq!(target(b"/sys/class/infiniband"), Some(Target::Sysfs(b"/class/infiniband")));
    assert_eq!(target(b"/sys/class/infiniband_verbs/x"), Some(Target::Sysfs(b"/class/infiniband_verbs/x")));
    assert_eq!(target(b"/dev/infiniband/uverbs0"), Some(Target::Device(b"uverbs0")));
    for other in
        ["/sys/class/infiniband_mad", "/sys/class/net", "/dev/infiniband/", "/dev/infiniband/a/b", "/"]
    {
        assert_eq!(target(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn relative_paths_start_at_their_directory() {
    let class = File::open("/sys/class").expect("a directory of the kernel's");
    let resolve = |path: &[u8]| Buffer::new().resolve(class.as_raw_fd(), path).map(<[u8]>::to_vec);
    assert_eq!(resolve(b"infiniband/x").as_deref(), Some(&b"/sys/class/infiniband/x"[..]));
    assert_eq!(resolve(b"./infiniband").as_deref(), Some(&b"/sys/class/infiniband"[..]));
    assert_eq!(resolve(b"net"), None);
    assert_eq!(Buffer::new().resolve(-1, b"infiniband"), None, "no descriptor");
}
