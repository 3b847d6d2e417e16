//! The events of `rdma monitor`: devices come and go.

use std::collections::BTreeMap;

use crate::device::{Device, Facts, Numbers, System};
use crate::number::{NLDEV, attribute::*, command};
use crate::reply::{Attributes, Replies};

/// `enum rdma_nl_notify_event_type`.
const REGISTER: u8 = 0;
const UNREGISTER: u8 = 1;
const NETDEV_ATTACH: u8 = 2;

/// Knows which devices there were, and tells what has changed since.
pub struct Monitor {
    port: u32,
    known: BTreeMap<String, u32>,
}

impl Monitor {
    /// For the program's socket with this number; it learns of what changes from now on.
    pub fn new(port: u32, system: &dyn System, numbers: &mut Numbers) -> Monitor {
        let facts = Facts::new(system, numbers);
        let known =
            facts.devices(numbers).iter().map(|device| (device.name.to_owned(), device.index)).collect();
        Monitor { port, known }
    }

    /// The messages about what has changed since the last call.
    pub fn look(&mut self, system: &dyn System, numbers: &mut Numbers) -> Vec<Vec<u8>> {
        let facts = Facts::new(system, numbers);
        let devices = facts.devices(numbers);
        let mut replies = Replies::new(self.port);
        self.known.retain(|name, index| {
            let stays = devices.iter().any(|device| device.name == name);
            if !stays {
                tell(&mut replies, UNREGISTER, &identity(name, *index));
            }
            stays
        });
        for device in &devices {
            if self.known.insert(device.name.to_owned(), device.index).is_none() {
                let mut attributes = identity(device.name, device.index);
                tell(&mut replies, REGISTER, &attributes);
                attach(&mut attributes, device);
                tell(&mut replies, NETDEV_ATTACH, &attributes);
            }
        }
        replies.datagrams
    }
}

fn identity(name: &str, index: u32) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.u32(DEV_INDEX, index);
    attributes.text(DEV_NAME, name);
    attributes
}

fn attach(attributes: &mut Attributes, device: &Device<'_>) {
    attributes.u32(PORT_INDEX, 1);
    if let Some((index, name)) = device.interface() {
        attributes.u32(NDEV_INDEX, index);
        attributes.text(NDEV_NAME, name);
    }
}

fn tell(replies: &mut Replies, event: u8, about: &Attributes) {
    let mut attributes = about.clone();
    attributes.u8(EVENT_TYPE, event);
    replies.push(NLDEV << 10 | command::MONITOR, 0, 0, attributes.bytes());
}
