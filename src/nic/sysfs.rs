//! The sysfs tree for programs that look for RDMA devices there, below a directory of our own.
//!
//! Processes with the same devices share the tree, so it only says what is true for all of them. A device that finds
//! its own address has a different one in each process: here its GUIDs and GIDs are zero, and the verbs report them. As
//! in the kernel's sysfs, a class directory has links to the descriptions of the devices. A description is completed
//! before its link is created, and never changes, so readers see either the old state or the new one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::path::Path;

use softrnic_netdev::{Host, Interface, LinkState};
use softrnic_wire::Gid;

use crate::device::{DeviceSpec, LinkKind};
use crate::verbs::Running;
use softrnic_engine::GID_TABLE_LEN;

/// The interface of all addresses that belong to no other.
const LOOPBACK: &str = "lo";

/// Another number for other files of the same facts, so that a description from before is not taken for one of today.
const LAYOUT: u32 = 2;

/// Describes the devices below `root`, in `class/infiniband` and `class/infiniband_verbs`, and the connection manager
/// in `class/misc`.
///
/// # Errors
/// Those of the file system.
pub fn describe(root: &Path, devices: &[DeviceSpec]) -> io::Result<()> {
    let host = Host::open().ok();
    let verbs = root.join("class/infiniband_verbs");
    put(&verbs, "abi_version", "6\n")?;
    put(&root.join("class/misc/rdma_cm"), "abi_version", "4\n")?;
    for (number, spec) in devices.iter().enumerate() {
        let node = verbs.join(format!("uverbs{number}"));
        put(&node, "ibdev", &format!("{}\n", spec.name))?;
        put(&node, "abi_version", "1\n")?;
        publish(root, &spec.name, &Facts::of(spec, host.as_ref()))?;
    }
    Ok(())
}

/// The facts about a device that differ between devices.
#[derive(Hash)]
struct Facts {
    interface: String,
    active: bool,
    guid: u64,
    gids: Vec<Gid>,
}

impl Facts {
    fn of(spec: &DeviceSpec, host: Option<&Host>) -> Facts {
        match &spec.link {
            LinkKind::Udp(options) => Facts::of_address(options.address, host),
            LinkKind::UdpInterface { interface, .. } => Facts::of_interface(interface, host),
            #[cfg(feature = "xdp")]
            LinkKind::Xdp { interface, .. } => Facts::of_interface(interface, host),
        }
    }

    /// A device on one address; if that is not given, it is found when the device is opened.
    fn of_address(address: Option<IpAddr>, host: Option<&Host>) -> Facts {
        let owner = host.zip(address).and_then(|(host, address)| host.interface(host.owner(address)?));
        Facts {
            interface: owner.map_or(LOOPBACK, |interface| &interface.name).to_owned(),
            active: owner.is_none_or(is_up),
            guid: address.map_or(0, Running::guid_of),
            gids: vec![address.map_or(Gid::ZERO, Gid::from); 2],
        }
    }

    fn of_interface(name: &str, host: Option<&Host>) -> Facts {
        let found = host.and_then(|host| Some((host, host.interface_by_name(name)?)));
        let mut gids = Vec::new();
        if let Some((host, interface)) = found {
            gids.push(Gid::link_local(interface.mac));
            for address in host.stacked_addresses(interface.index) {
                let gid = Gid::from(address.ip);
                if !gids.contains(&gid) {
                    gids.push(gid);
                }
            }
        }
        Facts {
            interface: name.to_owned(),
            active: found.is_some_and(|(_, interface)| is_up(interface)),
            guid: Running::known_by(gids.iter().map(|gid| gid.to_ip())).map_or(0, Running::guid_of),
            gids,
        }
    }

    /// Writes the files of a device's directory, in the kernel's format.
    fn write(&self, directory: &Path) -> io::Result<()> {
        let groups = [48, 32, 16, 0].map(|shift| format!("{:04x}", self.guid >> shift & 0xFFFF));
        let guid = groups.join(":");
        let (state, physical) =
            if self.active { ("4: ACTIVE", "5: LinkUp") } else { ("1: DOWN", "3: Disabled") };
        for (file, text) in [
            ("node_type", "1: CA"),
            ("node_desc", "SoftRNIC"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hw_rev", "0x0"),
            ("hca_type", "SoftRNIC"),
            ("board_id", "SoftRNIC"),
        ] {
            put(directory, file, &format!("{text}\n"))?;
        }
        let port = directory.join("ports/1");
        // The same as ibv_query_port reports: four lanes of 2.5 Gb/s, CM_SUP and IP_BASED_GIDS.
        for (file, text) in [
            ("state", state),
            ("phys_state", physical),
            ("rate", "10 Gb/sec (4X SDR)"),
            ("cap_mask", "0x04010000"),
            ("link_layer", "Ethernet"),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("pkeys/0", "0xffff"),
        ] {
            put(&port, file, &format!("{text}\n"))?;
        }
        for (index, gid) in self.gids.iter().enumerate() {
            put(&port, &format!("gids/{index}"), &format!("{gid}\n"))?;
            put(&port, &format!("gid_attrs/ndevs/{index}"), &format!("{}\n", self.interface))?;
        }
        // As in the kernel, every place of the table has a GID, and a file for its type: programs try them all. The
        // kernel refuses to read the type of a GID that is zero.
        put(&port, "gid_attrs/types/0", "RoCE v2\n")?;
        if self.gids.len() < GID_TABLE_LEN {
            put(&port, &format!("gids/{}", self.gids.len()), &format!("{}\n", Gid::ZERO))?;
            repeat(&port.join("gids"), self.gids.len())?;
        }
        repeat(&port.join("gid_attrs/types"), 0)?;
        std::fs::create_dir_all(directory.join("device/net").join(&self.interface))
    }
}

fn is_up(interface: &Interface) -> bool {
    interface.state == LinkState::Up
}

/// Points `class/infiniband/NAME` to a description of these facts, creating it if there is none.
fn publish(root: &Path, name: &str, facts: &Facts) -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), LAYOUT, facts).hash(&mut hasher);
    let described = format!("{name}.{:016x}", hasher.finish());
    let devices = root.join("devices");
    let directory = devices.join(&described);
    let draft = devices.join(format!(".{described}.{}", std::process::id()));
    if !directory.exists() {
        facts.write(&draft)?;
        match std::fs::rename(&draft, &directory) {
            // Another process was faster.
            Err(_) if directory.exists() => std::fs::remove_dir_all(&draft)?,
            done => done?,
        }
    }
    let class = root.join("class/infiniband");
    std::fs::create_dir_all(&class)?;
    let (link, target) = (class.join(name), Path::new("../../devices").join(&described));
    if std::fs::read_link(&link).is_ok_and(|existing| existing == target) {
        return Ok(());
    }
    // A link cannot be overwritten, but another can be renamed over it.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => std::os::unix::fs::symlink(&target, &draft)?,
    }
    std::fs::rename(&draft, &link)
}

/// Writes a file, unless it already has this content.
fn put(directory: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = directory.join(file);
    if std::fs::read(&path).is_ok_and(|existing| existing == text.as_bytes()) {
        return Ok(());
    }
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, text)
}

/// Gives the file of one place of the GID table to all places behind it as well.
fn repeat(directory: &Path, first: usize) -> io::Result<()> {
    let file = directory.join(first.to_string());
    (first + 1..GID_TABLE_LEN)
        .try_for_each(|index| std::fs::hard_link(&file, directory.join(index.to_string())))
}

#[cfg(test)]
mod tests;
