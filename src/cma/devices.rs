//! The devices that identifiers use.

use softrnic_nic::verbs::{Context, Error};

/// The devices of a process, supplied by the user of a [`Manager`](super::Manager).
pub trait Devices: Send + Sync {
    /// Number of devices. The first serves the machine's addresses that belong to no device.
    fn count(&self) -> usize;

    /// What identifies the device with this index to applications.
    fn identity(&self, device_index: usize) -> DeviceIdentity;

    /// Whether the first device is on a network of its own, whose ports are not the machine's.
    fn are_on_own_network(&self) -> bool {
        false
    }

    /// The device with this index, opened. Called rarely, and with no lock held; the manager keeps an open device as
    /// long as it needs it.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self, device_index: usize) -> Result<Context, Error>;
}

/// How an application finds the device of an identifier among those that it has listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceIdentity {
    /// Node GUID, in host order, as reported to the application.
    pub guid: u64,
    /// Index, -1 if the application knows of none.
    pub index: i32,
}

/// The only device of a process.
impl Devices for Context {
    fn count(&self) -> usize {
        1
    }

    fn identity(&self, _: usize) -> DeviceIdentity {
        DeviceIdentity { guid: self.device().guid(), index: 0 }
    }

    fn open(&self, _: usize) -> Result<Context, Error> {
        Ok(self.clone())
    }
}
