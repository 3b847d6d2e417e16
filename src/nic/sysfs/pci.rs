//! The files of a device on PCI, and of the bridges above it, as the kernel shows them.

use std::io;
use std::path::{Path, PathBuf};

use softrnic_models::Model;

use super::put;
use crate::device::{Hardware, PciAddress, PciPath};

/// No vendor has this number.
const VENDOR: &str = "0xfffe";

/// Where a device is below `devices`.
pub(super) fn place(hardware: &Hardware) -> PathBuf {
    match &hardware.pci {
        Some(path) => below(path.all()),
        None => "virtual".into(),
    }
}

/// The directory of the last of these.
fn below(path: &[PciAddress]) -> PathBuf {
    let root = path.iter().take(1).map(|first| format!("pci{:04x}:{:02x}", first.domain, first.bus));
    root.chain(path.iter().map(PciAddress::to_string)).collect()
}

/// Writes a device's files and those of the bridges above it, below a directory that is like `/sys`.
pub(super) fn write(
    root: &Path,
    hardware: &Hardware,
    interface: &str,
    model: Option<&Model>,
) -> io::Result<()> {
    let Some(path) = &hardware.pci else { return Ok(()) };
    write_bridges(root, path, hardware)?;
    write_function(root, path.all(), hardware, "0x020000")?;
    let directory = root.join("devices").join(below(path.all()));
    if let Some(model) = model.filter(|model| model.srd.is_some()) {
        // libfabric and UCX tell EFA by these.
        put(&directory, "vendor", &format!("{:#06x}\n", model.identity.vendor_id))?;
        put(&directory, "device", &format!("{:#06x}\n", model.identity.part_id))?;
        let driver = Path::new("bus/pci/drivers").join(model.name);
        std::fs::create_dir_all(root.join(&driver))?;
        let up = "../".repeat(path.all().len() + 2);
        super::point(root, &directory.join("driver"), &Path::new(&up).join(driver))?;
    }
    std::fs::create_dir_all(directory.join("net").join(interface))
}

/// Writes the files of the bridges alone.
pub(super) fn write_bridges(root: &Path, path: &PciPath, hardware: &Hardware) -> io::Result<()> {
    // What `subsystem` leads to.
    std::fs::create_dir_all(root.join("bus/pci/devices"))?;
    for count in 1..=path.bridges().len() {
        write_function(root, &path.all()[..count], hardware, "0x060400")?;
    }
    Ok(())
}

/// What a class directory or the bus calls these, and where that leads: names below `root`, both.
pub(super) fn names(path: &PciPath) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    (1..=path.all().len()).flat_map(|count| {
        let (own, above) = (&path.all()[..count], &path.all()[..count - 1]);
        let last = own[count - 1];
        let bus = format!("{:04x}:{:02x}", last.domain, last.bus);
        // The directory that the bus is in has the functions on it.
        let parent =
            if above.is_empty() { below(own).parent().map(Path::to_owned) } else { Some(below(above)) };
        let parent = PathBuf::from("devices").join(parent.unwrap_or_default());
        [
            (
                PathBuf::from("bus/pci/devices").join(last.to_string()),
                PathBuf::from("devices").join(below(own)),
            ),
            (PathBuf::from("class/pci_bus").join(&bus), parent.join("pci_bus").join(bus)),
        ]
    })
}

fn write_function(root: &Path, path: &[PciAddress], hardware: &Hardware, class: &str) -> io::Result<()> {
    let Some(address) = path.last() else { return Ok(()) };
    let directory = &root.join("devices").join(below(path));
    let node = hardware.numa_node.map_or(-1, i32::from);
    let cpus = cpus_of(hardware.numa_node);
    // The slowest of today's that a port of this speed has.
    let link = if hardware.speed.unwrap_or_default() > 400_000_000_000 {
        "64.0 GT/s PCIe"
    } else {
        "32.0 GT/s PCIe"
    };
    let number = class.trim_start_matches("0x0");
    for (file, text) in [
        ("vendor", VENDOR),
        ("device", "0x0000"),
        ("subsystem_vendor", VENDOR),
        ("subsystem_device", "0x0000"),
        ("revision", "0x00"),
        ("class", class),
        ("enable", "1"),
        ("numa_node", &node.to_string()),
        ("local_cpulist", &cpus),
        ("local_cpus", &mask(&cpus)),
        ("current_link_speed", link),
        ("max_link_speed", link),
        ("current_link_width", "16"),
        ("max_link_width", "16"),
        (
            "uevent",
            &format!(
                "PCI_CLASS={number}\nPCI_ID=FFFE:0000\nPCI_SUBSYS_ID=FFFE:0000\nPCI_SLOT_NAME={address}"
            ),
        ),
    ] {
        put(directory, file, &format!("{text}\n"))?;
    }
    let up = "../".repeat(path.len() + 2);
    super::point(root, &directory.join("subsystem"), Path::new(&format!("{up}bus/pci")))
}

/// The processors that are near, as the kernel lists them: those of the node, and all if the machine has no such node.
fn cpus_of(node: Option<u16>) -> String {
    let of_node = node.map(|node| format!("/sys/devices/system/node/node{node}/cpulist"));
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let listed = of_node.as_deref().and_then(read).filter(|list| !list.is_empty());
    listed.or_else(|| read("/sys/devices/system/cpu/online")).unwrap_or_else(|| "0".to_owned())
}

/// A list of processors, such as `0-3,8`, as a mask: hexadecimal words of 32 bits, the highest first.
fn mask(list: &str) -> String {
    let mut words = vec![0_u32];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) else {
            continue;
        };
        for cpu in first..=last {
            let word = usize::from(cpu / 32);
            words.resize(words.len().max(word + 1), 0);
            words[word] |= 1 << (cpu % 32);
        }
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_bits_of_words() {
        assert_eq!(mask("0-3,8"), "0000010f");
        assert_eq!(mask("1,32-33"), "00000003,00000002");
    }

    #[test]
    fn a_bus_is_found_where_its_functions_are() {
        let path: PciPath = "0000:00:01.0/0000:10:00.0".parse().unwrap();
        let names: Vec<String> =
            names(&path).map(|(name, place)| format!("{} {}", name.display(), place.display())).collect();
        assert_eq!(
            names,
            [
                "bus/pci/devices/0000:00:01.0 devices/pci0000:00/0000:00:01.0",
                "class/pci_bus/0000:00 devices/pci0000:00/pci_bus/0000:00",
                "bus/pci/devices/0000:10:00.0 devices/pci0000:00/0000:00:01.0/0000:10:00.0",
                "class/pci_bus/0000:10 devices/pci0000:00/0000:00:01.0/pci_bus/0000:10",
            ]
        );
    }
}
