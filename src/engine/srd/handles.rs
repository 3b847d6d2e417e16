//! Address handles of SRD.

use std::net::IpAddr;

use rustc_hash::FxHashMap;
use softrnic_memory::PdId;

use super::super::control::ControlError;

/// Stands for none.
pub(super) const NO_HANDLE: u64 = 0xFFFF;

/// Address handles: one number for each address in a protection domain, however many handles of it there are.
#[derive(Default)]
pub(super) struct Handles {
    pub places: Vec<Option<Handle>>,
    pub by_address: FxHashMap<(PdId, IpAddr, IpAddr), u16>,
}

#[derive(Clone, Copy)]
pub(super) struct Handle {
    pub pd: PdId,
    pub local: IpAddr,
    pub remote: IpAddr,
    users: usize,
}

impl Handles {
    pub fn add(&mut self, pd: PdId, local: IpAddr, remote: IpAddr) -> Result<u16, ControlError> {
        if let Some(&number) = self.by_address.get(&(pd, local, remote)) {
            let handle = self.places[usize::from(number)].as_mut();
            handle.ok_or(ControlError::UnknownObject)?.users += 1;
            return Ok(number);
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        let number = u16::try_from(place).ok().filter(|number| u64::from(*number) != NO_HANDLE);
        let number = number.ok_or(ControlError::NoMemory)?;
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(Handle { pd, local, remote, users: 1 });
        self.by_address.insert((pd, local, remote), number);
        Ok(number)
    }

    pub fn remove(&mut self, number: u16) {
        let Some(place) = self.places.get_mut(usize::from(number)) else { return };
        let Some(handle) = place else { return };
        handle.users -= 1;
        if handle.users == 0 {
            self.by_address.remove(&(handle.pd, handle.local, handle.remote));
            *place = None;
        }
    }
}
