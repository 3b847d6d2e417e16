//! The devices that identifiers use.

use crate::verbs::{Context, Error};

/// The devices of a process, given by whoever embeds a [`Manager`](super::Manager).
pub trait Devices: Send + Sync {
    /// How many there are. The first is the one for addresses that belong to the machine and to no device.
    fn count(&self) -> usize;

    /// By what applications know the device at a place.
    fn identity(&self, place: usize) -> DeviceIdentity;

    /// The open device at a place. Called with no lock held, seldom; an open device is kept as long as the manager
    /// needs it.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self, place: usize) -> Result<Context, Error>;
}

/// By what an application finds the device of an identifier among those that it has listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceIdentity {
    /// Node GUID, in host order, as the application was told it.
    pub guid: u64,
    /// Index, -1 if the application knows none.
    pub index: i32,
}
