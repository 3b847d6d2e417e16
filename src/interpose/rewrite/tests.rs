use std::fs::File;
use std::os::fd::AsRawFd;

use super::*;

fn named(path: &str) -> Option<Target<'_>> {
    target(b"", path.as_bytes())
}

#[test]
fn paths_below_our_directories_are_ours_and_no_others() {
    let ours = |class, rest| Some(Target::Sysfs { class, rest });
    assert_eq!(named("/sys/class/infiniband"), ours(b"infiniband", b""));
    assert_eq!(named("/sys/class/infiniband/"), ours(b"infiniband", b""));
    assert_eq!(named("/sys/class/infiniband_verbs/x/y/"), ours(b"infiniband_verbs", b"x/y/"));
    assert_eq!(named("/dev/infiniband/uverbs0"), Some(Target::Device(b"uverbs0")));
    for other in [
        "",
        "/",
        "/sys/class/infiniband_mad",
        "/sys/class/infiniband*",
        "/sys/class/net",
        "/sys/class/net/infiniband",
        "/sys/infiniband/x",
        "/sys/bus/pci",
        "/sys/bus/pci/devices",
        "/sys/bus/usb/devices/x",
        "/sys/devices",
        "/dev/infiniband",
        "/dev/infiniband/",
        "/dev/infiniband/a/b",
        "/home/sys/class/infiniband/x",
    ] {
        assert_eq!(named(other), None, "{other}");
    }
}

#[test]
fn paths_may_be_written_in_several_ways() {
    let ours = Some(Target::Sysfs { class: b"infiniband", rest: b"x" });
    for path in [
        "//sys/class//infiniband///x",
        "/sys/./class/./infiniband/./x",
        "/sys/class/net/../infiniband/x",
        "/../sys/bus/pci/../../class/infiniband/../infiniband/x",
    ] {
        assert_eq!(named(path), ours, "{path}");
    }
    assert_eq!(named("/sys/class/infiniband/.."), None);
    assert_eq!(named("/sys/class/infiniband/../net"), None);
    assert_eq!(named("/dev/./infiniband//uverbs0"), Some(Target::Device(b"uverbs0")));
    // From a device on it is for the kernel to say what dots mean: the device is a symbolic link.
    let device = Some(Target::Sysfs { class: b"infiniband", rest: b"x/../y" });
    assert_eq!(named("/sys/class/infiniband/x/../y"), device);
}

#[test]
fn relative_paths_start_at_their_directory() {
    let ours = Some(Target::Sysfs { class: b"infiniband", rest: b"x" });
    assert_eq!(target(b"/sys/class", b"infiniband/x"), ours);
    assert_eq!(target(b"/sys/class/net", b"../infiniband/x"), ours);
    assert_eq!(target(b"/sys", b"./class/infiniband/x"), ours);
    assert_eq!(target(b"/sys/class/net", b"infiniband/x"), None);
    let class = File::open("/sys/class").expect("a directory of the kernel's");
    let mut path = [0; 32];
    assert_eq!(directory_path(class.as_raw_fd(), &mut path), Some(10));
    assert!(path.starts_with(b"/sys/class\0"));
    assert_eq!(directory_path(-1, &mut path), None, "no descriptor");
}

#[test]
fn devices_are_looked_for_by_their_places_too() {
    let tree = |directory, rest| Some(Target::Tree { directory, rest });
    assert_eq!(named("/sys/devices/pci0000:00/x"), tree(b"devices", b"pci0000:00/x"));
    assert_eq!(
        named("/sys/bus/pci/devices/0000:10:00.0/class"),
        tree(b"bus/pci/devices", b"0000:10:00.0/class")
    );
    assert_eq!(named("/sys/class/pci_bus/0000:10/../../x"), tree(b"class/pci_bus", b"0000:10/../../x"));
    let ours = Some(Target::Sysfs { class: b"infiniband", rest: b"x" });
    for path in [
        "/sys/devices/../class/infiniband/x",
        "/sys/bus/pci/devices/../../../class/infiniband/x",
        "/sys/class/pci_bus/../infiniband/x",
    ] {
        assert_eq!(named(path), ours, "{path}");
    }
    assert_eq!(described::below(b"virtual/infiniband/x/ports/1"), Some(&b"x/ports/1"[..]));
    assert_eq!(described::below(b"pci0000:00/infiniband"), None);
}
