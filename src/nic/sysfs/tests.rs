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

    fn describe(&self, devices: &str) {
        describe(&self.0, &DeviceSpec::list(devices).unwrap()).unwrap();
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join("class").join(file)).unwrap()
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_device_is_described_as_the_kernel_would() {
    let scratch = Scratch::new("described");
    scratch.describe("soft=udp:127.0.0.1");
    assert_eq!(scratch.read("infiniband_verbs/uverbs0/ibdev"), "soft\n");
    for (file, text) in [
        ("node_guid", "0200:ffff:7f00:0001\n"),
        ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001\n"),
        ("ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001\n"),
        ("ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("ports/1/gids/1023", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("ports/1/gid_attrs/types/1", "RoCE v2\n"),
        ("ports/1/gid_attrs/types/2", "RoCE v2\n"),
        ("ports/1/gid_attrs/types/1023", "RoCE v2\n"),
        ("ports/1/gid_attrs/ndevs/1", "lo\n"),
        ("ports/1/state", "4: ACTIVE\n"),
    ] {
        assert_eq!(scratch.read(&format!("infiniband/soft/{file}")), text, "{file}");
    }
    assert!(scratch.0.join("class/infiniband/soft/device/net/lo").is_dir());
}

#[test]
fn the_default_device_shows_no_address() {
    let scratch = Scratch::new("own");
    scratch.describe("udp");
    let zero = "0000:0000:0000:0000:0000:0000:0000:0000\n";
    assert_eq!(scratch.read("infiniband/softrnic0/ports/1/gids/0"), zero);
    assert_eq!(scratch.read("infiniband/softrnic0/node_guid"), "0000:0000:0000:0000\n");
}

#[test]
fn an_interface_has_its_default_gid_first() {
    let scratch = Scratch::new("interface");
    scratch.describe("soft=xdp:lo");
    let port = "infiniband/soft/ports/1";
    assert_eq!(scratch.read(&format!("{port}/gids/0")), "fe80:0000:0000:0000:0200:00ff:fe00:0000\n");
    assert_eq!(scratch.read(&format!("{port}/gids/1")), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    scratch.describe("soft=xdp:nosuch0");
    assert_eq!(scratch.read(&format!("{port}/state")), "1: DOWN\n");
}

#[test]
fn describing_again_changes_only_what_has_changed() {
    let scratch = Scratch::new("again");
    scratch.describe("soft=udp:127.0.0.1");
    scratch.describe("soft=udp:127.0.0.1");
    assert_eq!(scratch.list("class/infiniband"), ["soft"]);
    assert_eq!(scratch.list("described").len(), 1, "no draft is left");
    assert_eq!(scratch.list("."), ["class", "described", "devices"], "no draft is left");
    let before = std::fs::canonicalize(scratch.0.join("class/infiniband/soft")).unwrap();
    scratch.describe("soft=udp:127.0.0.2");
    assert_eq!(scratch.list("class/infiniband"), ["soft"]);
    assert_eq!(scratch.read("infiniband/soft/node_guid"), "0200:ffff:7f00:0002\n");
    // A reader of the old one can continue.
    assert_eq!(std::fs::read_to_string(before.join("node_guid")).unwrap(), "0200:ffff:7f00:0001\n");
}

#[test]
fn fingerprints_tell_devices_apart() {
    assert_ne!(fingerprint(&["0.1.0", "udp"]), fingerprint(&["0.1.0", "udp:10.0.0.5"]));
    assert_ne!(fingerprint(&["a", "bc"]), fingerprint(&["ab", "c"]));
}

#[test]
fn a_device_on_pci_is_where_the_kernel_would_have_it() {
    let scratch = Scratch::new("pci");
    scratch.describe("r[0-1]=udp:127.0.0.[1,2]?pci=0000:00:01.0/0000:10:00.[0-1]&numa=0&speed=400Gbit");
    let device = "../devices/pci0000:00/0000:00:01.0/0000:10:00.1";
    for (file, text) in [
        ("infiniband/r1/device/numa_node", "0\n"),
        ("infiniband/r1/../../class", "0x020000\n"),
        ("infiniband/r1/device/../max_link_speed", "32.0 GT/s PCIe\n"),
        ("infiniband/r1/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
        ("../bus/pci/devices/0000:10:00.1/max_link_width", "16\n"),
        ("pci_bus/0000:10/../../0000:10:00.1/numa_node", "0\n"),
        ("pci_bus/0000:00/../../0000:00:01.0/class", "0x060400\n"),
        (&format!("{device}/infiniband/r1/node_guid"), "0200:ffff:7f00:0002\n"),
    ] {
        assert_eq!(scratch.read(file), text, "{file}");
    }
    let link = std::fs::read_link(scratch.0.join("class/infiniband/r1")).unwrap();
    assert_eq!(link.to_str(), Some(&*format!("../{device}/infiniband/r1")));
    let subsystem = std::fs::canonicalize(scratch.0.join("class/infiniband/r0/device/subsystem")).unwrap();
    assert!(subsystem.ends_with("bus/pci"), "{}", subsystem.display());
    assert_eq!(scratch.list(&format!("class/{device}/infiniband")), ["r1"]);
    assert_eq!(scratch.list("."), ["bus", "class", "described", "devices"], "no draft is left");
}
