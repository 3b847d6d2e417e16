//! Devices, each with all that is known of it.

use std::cell::OnceCell;

use softrnic_stats::Snapshot;

/// A device that this process lists.
#[derive(Clone, Debug)]
pub struct OwnDevice {
    /// Its name.
    pub name: String,
    /// Its GUID in host order; `None` until its address is known.
    pub guid: Option<u64>,
    /// The index and the name of its network interface.
    pub interface: (u32, String),
    /// Whether its port is active, as far as that is known without opening it.
    pub is_active: bool,
}

/// What there is to tell.
pub trait System {
    /// The devices that this process lists, in their order.
    fn own(&self) -> Vec<OwnDevice>;

    /// The NICs of all processes of the user, with their resources.
    fn running(&self) -> Vec<Snapshot>;

    /// `ibv_device_attr::device_cap_flags` of all devices.
    fn device_flags(&self) -> u64;

    /// `ibv_port_attr::port_cap_flags` of all ports.
    fn port_flags(&self) -> u32;

    /// Major and minor number of `/dev/infiniband/rdma_cm`.
    fn connection_manager(&self) -> (u32, u32);
}

/// What is known while one datagram is answered. The processes are asked when it is first needed.
pub struct Facts<'a> {
    pub system: &'a dyn System,
    own: Vec<OwnDevice>,
    running: OnceCell<Vec<Snapshot>>,
}

/// A device: this process's own, those of others with its name, or both.
pub struct Device<'f> {
    pub index: u32,
    pub name: &'f str,
    own: Option<&'f OwnDevice>,
    facts: &'f Facts<'f>,
}

/// Numbers for names. A name keeps its number as long as this process runs, so that a program that asks for one device
/// after the other finds them all, whoever comes and goes meanwhile. Those of own devices are their places.
#[derive(Clone, Default)]
pub struct Numbers(Vec<String>);

impl Numbers {
    fn of(&mut self, name: &str) -> u32 {
        let known = self.0.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        }) as u32
    }

    /// The name that was given a number.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.0.get(index as usize).map(String::as_str)
    }
}

impl<'a> Facts<'a> {
    pub fn new(system: &'a dyn System, numbers: &mut Numbers) -> Facts<'a> {
        let own = system.own();
        own.iter().for_each(|device| {
            numbers.of(&device.name);
        });
        Facts { system, own, running: OnceCell::new() }
    }

    fn running(&self) -> &[Snapshot] {
        self.running.get_or_init(|| self.system.running())
    }

    /// All devices, by number.
    pub fn devices(&self, numbers: &mut Numbers) -> Vec<Device<'_>> {
        let own = self.own.iter().map(|device| device.name.as_str());
        let mut names: Vec<&str> = self.running().iter().map(|snapshot| snapshot.device.as_str()).collect();
        names.sort_unstable();
        let mut indices: Vec<u32> = own.chain(names).map(|name| numbers.of(name)).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().filter_map(|index| self.device(numbers, index)).collect()
    }

    /// The device with a number.
    pub fn device(&self, numbers: &Numbers, index: u32) -> Option<Device<'_>> {
        let name = numbers.name(index)?;
        let own = self.own.iter().find(|device| device.name == name);
        let name = match own {
            Some(device) => &device.name,
            None => &self.running().iter().find(|snapshot| snapshot.device == name)?.device,
        };
        Some(Device { index, name, own, facts: self })
    }
}

/// `enum ib_port_state`, and the physical states, as `ibv_port_attr` has them.
const DOWN: u8 = 1;
const ACTIVE: u8 = 4;
const PHYSICAL: [(&str, u8); 4] = [("Polling", 2), ("Disabled", 3), ("LinkUp", 5), ("LinkErrorRecovery", 6)];

impl<'f> Device<'f> {
    /// The NICs of this name.
    pub fn running(&self) -> impl Iterator<Item = &'f Snapshot> + use<'f> {
        let name = self.name;
        self.facts.running().iter().filter(move |snapshot| snapshot.device == name)
    }

    /// Its GUID, if that is the same in all processes.
    pub fn guid(&self) -> Option<u64> {
        if let Some(guid) = self.own.and_then(|own| own.guid) {
            return Some(guid);
        }
        let mut guids = self.running().filter_map(|snapshot| Some(snapshot.resources.as_ref()?.node_guid));
        let first = guids.next()?;
        guids.all(|guid| guid == first).then_some(first)
    }

    /// The index and the name of its network interface.
    pub fn interface(&self) -> Option<(u32, &'f str)> {
        let of = |snapshot: &'f Snapshot| {
            let resources = snapshot.resources.as_ref()?;
            Some((resources.interface_index, resources.interface.as_str()))
        };
        self.running()
            .find_map(of)
            .or_else(|| self.own.map(|own| (own.interface.0, own.interface.1.as_str())))
    }

    /// State and physical state of its port. Each process has a port of its own: it is down if any of them is.
    pub fn port_state(&self) -> (u8, u8) {
        let mut shown = None;
        for snapshot in self.running() {
            if snapshot.port.state != "ACTIVE" {
                let known = PHYSICAL.iter().find(|(name, _)| *name == snapshot.port.phys_state);
                return (DOWN, known.map_or(3, |(_, number)| *number));
            }
            shown = Some((ACTIVE, 5));
        }
        let own = || if self.own.is_none_or(|own| own.is_active) { (ACTIVE, 5) } else { (DOWN, 3) };
        shown.unwrap_or_else(own)
    }
}
