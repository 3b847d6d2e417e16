//! The sysfs tree for programs that look for RDMA devices there, below a directory of our own.
//!
//! Processes with the same devices share the tree, so it only says what is true for all of them. A device that finds
//! its own address has a different one in each process: here its GUIDs and GIDs are zero, and the verbs report them.
//!
//! The tree is laid out as the kernel's: `class/infiniband/NAME` leads to `devices/…/infiniband/NAME`, below the device's
//! place on PCI if it has one. There, a link leads to a description of the device, which is such a tree again, of this device
//! alone. A description is completed before its link is created, and never changes, so readers see either the old state or
//! the new one.
//!
//! A port that has changed since it was opened is described for its process alone (`shown.rs`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use softrnic_models::Model;
use softrnic_netdev::{Host, LinkState};
use softrnic_sys::environment;
use softrnic_wire::Gid;

use crate::device::{
    DeviceSpec, Hardware, LinkKind, PortObserver, PortSpeed, PortState, ShownPort, on_fork_in_child, opening,
};
use crate::verbs::Running;
use softrnic_engine::GID_TABLE_LEN;

mod pci;
mod shown;

pub use shown::directory_of;

/// The interface of all addresses that belong to no other.
const LOOPBACK: &str = "lo";
/// Its number in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Another number for other files of the same facts, so that a description from before is not taken for one of today.
const LAYOUT: u32 = 6;

/// Describes the devices in a private directory, which processes with the same devices share, and returns it. Some programs that
/// read it do not load libibverbs, so this is for whoever starts them.
///
/// # Errors
/// Those of the file system.
pub fn describe_privately(names: &str, devices: &[DeviceSpec]) -> io::Result<PathBuf> {
    let directory = softrnic_stats::private_directory()?;
    let like = devices.iter().map(|device| device.like.map_or("-", |model| model.name));
    let parts: Vec<&str> = [env!("CARGO_PKG_VERSION"), names].into_iter().chain(like).collect();
    let directory = directory.join(format!("sysfs{LAYOUT}-{:016x}", fingerprint(&parts)));
    describe(&directory, devices)?;
    Ok(directory)
}

/// FNV-1a, the same in every build: the directories outlive a build.
fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

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

/// The directory that `SOFTRNIC_SYSFS` names, in which devices are described.
pub fn root() -> Option<PathBuf> {
    environment::path("SOFTRNIC_SYSFS")
}

/// Describes a device of this process whenever its port changes, until it is dropped.
pub struct Describer {
    root: PathBuf,
    spec: DeviceSpec,
}

impl Describer {
    /// Of a device with this specification; nothing if there is no directory.
    pub fn new(spec: &DeviceSpec) -> Option<Describer> {
        Some(Describer { root: root()?, spec: spec.clone() })
    }
}

impl PortObserver for Describer {
    fn changed(&self, port: ShownPort) {
        let Describer { root, spec } = self;
        let facts = Facts { port, ..Facts::of(spec, Host::open().ok().as_ref()) };
        match draw(root, &spec.name, &facts) {
            Ok(described) => {
                let opening = opening();
                on_fork_in_child(&opening, shown::unset_all);
                shown::set(&spec.name, described.join(facts.place(&spec.name)));
            }
            Err(error) => {
                tracing::warn!(%error, device = spec.name, "cannot describe the port for sysfs readers");
            }
        }
    }
}

impl Drop for Describer {
    fn drop(&mut self) {
        shown::unset(&self.spec.name);
    }
}

/// What is known of a device without opening it.
pub struct Identity {
    /// Its GUID in host order, if its address is given.
    pub guid: Option<u64>,
    /// The index and the name of its network interface.
    pub interface: (u32, String),
    /// Whether its port is active.
    pub is_active: bool,
}

impl Identity {
    /// Of a device with this specification.
    pub fn of(spec: &DeviceSpec) -> Identity {
        let host = Host::open().ok();
        let facts = Facts::of(spec, host.as_ref());
        let index = host.as_ref().and_then(|host| Some(host.interface_by_name(&facts.interface)?.index));
        Identity {
            guid: (facts.guid != 0).then_some(facts.guid),
            interface: (index.unwrap_or(LOOPBACK_INDEX), facts.interface),
            is_active: PortState::from(facts.port.state) == PortState::Active,
        }
    }
}

/// The facts about a device that differ between devices.
#[derive(Hash)]
struct Facts {
    hardware: Hardware,
    interface: String,
    port: ShownPort,
    guid: u64,
    gids: Vec<Gid>,
    like: Option<&'static str>,
}

impl Facts {
    /// The device that is imitated.
    fn model(&self) -> Option<&'static Model> {
        self.like.and_then(|name| Model::named(name).ok())
    }

    fn of(spec: &DeviceSpec, host: Option<&Host>) -> Facts {
        let hardware = spec.hardware.clone();
        let facts = match &spec.link {
            LinkKind::Udp(options) => Facts::of_address(options.address, host),
            LinkKind::UdpInterface { interface, .. } => Facts::of_interface(interface, host),
            // Its address is known once it has joined.
            LinkKind::Fabric { .. } => Facts::of_address(None, host),
            #[cfg(feature = "xdp")]
            LinkKind::Xdp { interface, .. } => Facts::of_interface(interface, host),
        };
        let port = ShownPort { speed: hardware.speed, ..facts.port };
        Facts { port, hardware, like: spec.like.map(|model| model.name), ..facts }
    }

    /// Where the device is in a tree.
    fn place(&self, name: &str) -> PathBuf {
        Path::new("devices").join(pci::place(&self.hardware)).join("infiniband").join(name)
    }

    /// A device on one address; if that is not given, it is found when the device is opened.
    fn of_address(address: Option<IpAddr>, host: Option<&Host>) -> Facts {
        let owner = host.zip(address).and_then(|(host, address)| host.interface(host.owner(address)?));
        Facts {
            hardware: Hardware::default(),
            interface: owner.map_or(LOOPBACK, |interface| &interface.name).to_owned(),
            port: port(owner.map_or(LinkState::Up, |interface| interface.state)),
            guid: address.map_or(0, Running::guid_of),
            gids: vec![address.map_or(Gid::ZERO, Gid::from); 2],
            like: None,
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
            hardware: Hardware::default(),
            interface: name.to_owned(),
            port: port(found.map_or(LinkState::AdminDown, |(_, interface)| interface.state)),
            guid: Running::known_by(gids.iter().map(|gid| gid.to_ip())).map_or(0, Running::guid_of),
            gids,
            like: None,
        }
    }

    /// Writes the tree of a device alone, in the kernel's format.
    fn write(&self, root: &Path, name: &str) -> io::Result<()> {
        pci::write(root, &self.hardware, &self.interface, self.model())?;
        let directory = &root.join(self.place(name));
        let groups = [48, 32, 16, 0].map(|shift| format!("{:04x}", self.guid >> shift & 0xFFFF));
        let guid = groups.join(":");
        let state = PortState::from(self.port.state);
        let speed = PortSpeed::of(self.port.speed);
        let numbered = |(number, name): (u32, &str)| format!("{number}: {name}");
        let identity = self.model().map(|model| &model.identity);
        let has_srd = self.model().is_some_and(|model| model.srd.is_some());
        let hw_rev = format!("{:#x}", identity.map_or(0, |identity| identity.hw_ver));
        for (file, text) in [
            ("node_type", if has_srd { "7: unspecified" } else { "1: CA" }),
            ("node_desc", "SoftRNIC"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("fw_ver", identity.and_then(|identity| identity.fw_ver).unwrap_or(env!("CARGO_PKG_VERSION"))),
            ("hw_rev", &hw_rev),
            ("board_id", "SoftRNIC"),
        ] {
            put(directory, file, &format!("{text}\n"))?;
        }
        if let Some(text) = identity.map_or(Some("SoftRNIC"), |identity| identity.hca_type) {
            put(directory, "hca_type", &format!("{text}\n"))?;
        }
        let port = directory.join("ports/1");
        // The same as ibv_query_port reports, with CM_SUP and IP_BASED_GIDS.
        for (file, text) in [
            ("state", &*numbered(state.logical())),
            ("phys_state", &numbered(state.physical())),
            ("rate", speed.text),
            ("cap_mask", "0x04010000"),
            ("link_layer", if has_srd { "Unspecified" } else { "Ethernet" }),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("pkeys/0", "0xffff"),
        ] {
            put(&port, file, &format!("{text}\n"))?;
        }
        // Devices that speak RoCE v1 have each address twice.
        let with_v1 = self.model().is_some_and(|model| model.features.roce_v1);
        let length = self.model().map_or(GID_TABLE_LEN, |model| model.limits.gid_table_len as usize);
        let times = if with_v1 { 2 } else { 1 };
        let gids: Vec<&Gid> =
            self.gids.iter().take(length).flat_map(|gid| std::iter::repeat_n(gid, times)).collect();
        for (index, gid) in gids.iter().enumerate() {
            put(&port, &format!("gids/{index}"), &format!("{gid}\n"))?;
            put(&port, &format!("gid_attrs/ndevs/{index}"), &format!("{}\n", self.interface))?;
        }
        // As in the kernel, every place of the table has a GID, and a file for its type: programs try them all. The
        // kernel refuses to read the type of a GID that is zero.
        put(&port, "gid_attrs/types/0", if with_v1 { "IB/RoCE v1\n" } else { "RoCE v2\n" })?;
        if gids.len() < length {
            put(&port, &format!("gids/{}", gids.len()), &format!("{}\n", Gid::ZERO))?;
            repeat(&port.join("gids"), gids.len(), length, 1)?;
        }
        repeat(&port.join("gid_attrs/types"), 0, length, times)?;
        if with_v1 {
            put(&port, "gid_attrs/types/1", "RoCE v2\n")?;
            repeat(&port.join("gid_attrs/types"), 1, length, times)?;
        }
        match self.hardware.pci {
            Some(_) => std::os::unix::fs::symlink("../..", directory.join("device")),
            None => std::fs::create_dir_all(directory.join("device/net").join(&self.interface)),
        }
    }
}

/// A port in this state, of which nothing was commanded.
fn port(state: LinkState) -> ShownPort {
    ShownPort { state, speed: None }
}

/// Creates the description of these facts if there is none; returns its directory.
fn draw(root: &Path, name: &str, facts: &Facts) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), LAYOUT, facts).hash(&mut hasher);
    let described = format!("{name}.{:016x}", hasher.finish());
    let all = root.join("described");
    let directory = all.join(&described);
    if !directory.exists() {
        let draft = all.join(format!(".{described}.{}", std::process::id()));
        facts.write(&draft, name)?;
        match std::fs::rename(&draft, &directory) {
            // Another process was faster.
            Err(_) if directory.exists() => std::fs::remove_dir_all(&draft)?,
            done => done?,
        }
    }
    Ok(directory)
}

/// Has the tree show a description of these facts.
fn publish(root: &Path, name: &str, facts: &Facts) -> io::Result<()> {
    let described = draw(root, name, facts)?;
    let place = facts.place(name);
    // A device on PCI is described with the function that it is.
    let end = if facts.hardware.pci.is_some() { place.ancestors().nth(2) } else { Some(&*place) };
    let end = end.unwrap_or(&place);
    let described = described.strip_prefix(root).unwrap_or(&described);
    point(root, &root.join(end), &up_from(end).join(described).join(end))?;
    if let Some(path) = &facts.hardware.pci {
        pci::write_bridges(root, path, &facts.hardware)?;
        for (name, place) in pci::names(path) {
            if place.parent().is_some_and(|parent| parent.ends_with("pci_bus")) {
                std::fs::create_dir_all(root.join(&place))?;
            }
            point(root, &root.join(&name), &up_from(&name).join(place))?;
        }
    }
    point(root, &root.join("class/infiniband").join(name), &Path::new("../..").join(place))
}

/// The way from the directory of a file back to where its path begins.
fn up_from(path: &Path) -> PathBuf {
    path.components().skip(1).map(|_| "..").collect()
}

/// Makes a link below `root`, or another in its place.
fn point(root: &Path, link: &Path, target: &Path) -> io::Result<()> {
    if std::fs::read_link(link).is_ok_and(|existing| existing == target) {
        return Ok(());
    }
    let (Some(directory), Some(name)) = (link.parent(), link.file_name()) else { return Ok(()) };
    std::fs::create_dir_all(directory)?;
    // A link cannot be overwritten, but another can be renamed over it.
    let draft = root.join(format!(".{}.{}", name.display(), std::process::id()));
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => std::os::unix::fs::symlink(target, &draft)?,
    }
    std::fs::rename(&draft, link)
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

/// Gives the file of one place of the GID table to all places behind it as well, or to each second one.
fn repeat(directory: &Path, first: usize, length: usize, step: usize) -> io::Result<()> {
    let file = directory.join(first.to_string());
    (first + step..length)
        .step_by(step)
        .try_for_each(|index| std::fs::hard_link(&file, directory.join(index.to_string())))
}

#[cfg(test)]
mod tests;
