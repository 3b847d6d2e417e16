//! The devices running in this process. All contexts of a device share one NIC.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use softrnic_link::{Link, ProcessSlot};
use softrnic_models::Model;
use softrnic_wire::Gid;

use super::address::HandleCount;
use super::error::Error;
use super::imitation::{self, HeldSlots};
use crate::device::{
    Attachment, DeviceSpec, LinkKind, Network, Nic, OpenCapture, OpenedLink, Progress, on_fork_in_child,
    opening,
};
use softrnic_engine::{DeviceCaps, EngineConfig, Seed};

/// A running device, with its progress thread. It ends with the last context that uses it.
pub struct Running {
    /// The NIC.
    pub(crate) nic: Arc<Nic>,
    spec: DeviceSpec,
    address: IpAddr,
    mode: String,
    network: Option<Network>,
    guid: u64,
    /// The slot of its address that is this process's; `None` if all of it is.
    slot: Option<ProcessSlot>,
    pub(crate) caps: DeviceCaps,
    pub(crate) handles: HandleCount,
    /// Present if a send slot is free only once a completion was polled.
    pub(crate) held_slots: Option<HeldSlots>,
    _progress: Progress,
    /// Finished, if no other device shares it, once the NIC above has dropped its link.
    _capture: Option<Arc<OpenCapture>>,
}

static RUNNING: Mutex<Option<HashMap<String, Weak<Running>>>> = Mutex::new(None);

impl Running {
    /// The running device with this name, or a newly started one.
    pub(crate) fn open(spec: &DeviceSpec) -> Result<Arc<Running>, Error> {
        let opening = opening();
        on_fork_in_child(&opening, forget_running);
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = running.get_or_insert_with(HashMap::new);
        if let Some(device) = devices.get(&spec.name).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Arc::new(Running::start(spec)?);
        devices.insert(spec.name.clone(), Arc::downgrade(&device));
        Ok(device)
    }

    /// A device on the caller's own link, not shared with others.
    ///
    /// # Errors
    /// No descriptor or thread could be created.
    pub fn with_link(link: Box<dyn Link>, address: IpAddr, name: &str) -> Result<Arc<Running>, Error> {
        let opened = OpenedLink {
            link,
            attachment: None,
            address: Some(address),
            network: None,
            capture: None,
            faults: None,
        };
        let spec = DeviceSpec { name: name.to_owned(), ..DeviceSpec::default() };
        Running::on(&spec, opened, Nic::start).map(Arc::new)
    }

    /// Like [`with_link`](Self::with_link), with the test's clock; the test takes the progress thread's turns itself.
    #[cfg(test)]
    pub(crate) fn in_virtual_time(
        link: Box<dyn Link>,
        address: IpAddr,
        name: &str,
        clock: crate::device::Clock,
    ) -> Result<Arc<Running>, Error> {
        let opened = OpenedLink {
            link,
            attachment: None,
            address: Some(address),
            network: None,
            capture: None,
            faults: None,
        };
        let spec = DeviceSpec { name: name.to_owned(), ..DeviceSpec::default() };
        let assemble = |config, link, attachment, name: &str| {
            let nic = Nic::assemble(config, link, attachment, name, clock)?;
            Ok((nic.clone(), Progress::without_thread(nic)))
        };
        Running::on(&spec, opened, assemble).map(Arc::new)
    }

    fn start(spec: &DeviceSpec) -> Result<Running, Error> {
        Running::on(spec, spec.open_link()?, Nic::start)
    }

    fn on(
        spec: &DeviceSpec,
        opened: OpenedLink,
        start: impl FnOnce(
            EngineConfig,
            Box<dyn Link>,
            Option<Attachment>,
            &str,
        ) -> std::io::Result<(Arc<Nic>, Progress)>,
    ) -> Result<Running, Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| Error::System(std::io::Error::other(error.to_string())))?;
        let mut config = EngineConfig::with_seed(Seed::new(secret));
        config.transport = spec.transport;
        config.safe_copies = spec.copies_safely();
        config.adversary = spec.adversary;
        if let Some(model) = spec.like {
            config.caps = imitation::limited(config.caps, model);
            config.polling_frees_slots = model.features.polling_frees_slots;
            config.srd = imitation::srd(model);
        }
        let config = config.in_slot(opened.link.capabilities().slot);
        let mode = opened.link.capabilities().mode.clone();
        let (nic, progress) = start(config, opened.link, opened.attachment, &spec.name)?;
        if let Some(faults) = opened.faults {
            nic.report_faults(faults);
        }
        let address = nic.control(|core, _| {
            if spec.like.is_some_and(|model| model.features.roce_v1) {
                core.engine.gids().show_v1();
            }
            if opened.address.is_some() {
                core.engine.gids().set_only(opened.address);
            }
            core.port.be_as_fast_as(spec.hardware.speed);
            core.engine.set_active_mtu(core.port.active_mtu());
            let gids = core.engine.gids();
            Running::known_by((0..gids.len()).filter_map(|index| gids.get(index)))
        })?;
        let address = address.ok_or_else(|| {
            Error::System(std::io::Error::new(
                std::io::ErrorKind::AddrNotAvailable,
                "the link has no address",
            ))
        })?;
        tracing::info!(device = spec.name, %address, mode, "device open");
        let guid = Running::guid_of(address);
        nic.control(|core, _| core.engine.serve_management(guid))?;
        Ok(Running {
            nic,
            spec: spec.clone(),
            address,
            mode,
            network: opened.network,
            guid,
            slot: config.slot,
            caps: config.caps,
            handles: HandleCount::new(config.caps.max_ah),
            held_slots: config.polling_frees_slots.then(HeldSlots::default),
            _progress: progress,
            _capture: opened.capture,
        })
    }

    /// The main address of a device, by which users know it. It is not the default GID of an interface.
    pub fn known_by(addresses: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
        addresses.max_by_key(|ip| (ip.is_ipv4(), !is_link_local(*ip)))
    }

    /// A stable, locally administered EUI-64 from the device's address: peers remember it across connections.
    pub(crate) fn guid_of(address: IpAddr) -> u64 {
        let gid = Gid::from(address);
        let low = u64::from_be_bytes(gid.0[8..].try_into().unwrap_or_default());
        let high = u64::from_be_bytes(gid.0[..8].try_into().unwrap_or_default());
        let mixed = (low ^ high.rotate_left(17)) & 0x00FF_FFFF_FFFF_FFFF;
        0x0200_0000_0000_0000 | mixed
    }

    /// The slot of its address that is this process's; `None` if all of it is.
    pub fn slot(&self) -> Option<ProcessSlot> {
        self.slot
    }

    /// The device that it imitates, if it imitates one.
    pub fn model(&self) -> Option<&'static Model> {
        self.spec.like
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The first address of the device.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The mode that the link obtained, for humans.
    pub fn mode(&self) -> &str {
        &self.mode
    }

    /// The network that it is on, if that is not the machine's.
    pub fn network(&self) -> Option<Network> {
        self.network
    }

    /// Node GUID, in host order.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// The name of the interface, for links that have one.
    pub fn interface(&self) -> Option<&str> {
        match &self.spec.link {
            LinkKind::Udp(_) | LinkKind::Fabric { .. } => None,
            LinkKind::UdpInterface { interface, .. } => Some(interface),
            #[cfg(feature = "xdp")]
            LinkKind::Xdp { interface, .. } => Some(interface),
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The parent's devices are not the child's.
fn forget_running() {
    // The lock is free: only opening a device takes it, and a fork waits for that.
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
