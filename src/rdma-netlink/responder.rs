//! Answers datagrams.

use crate::device::{Device, Facts, Numbers, System};
use crate::monitor::Monitor;
use crate::number::{attribute::*, command};
use crate::objects::{self, Kind};
use crate::reply::{Attributes, LONGEST, Refusal, Replies};
use crate::request::{HEADER, Request};
use crate::statistics;

/// The port that all devices have, and the only one.
const PORT: u32 = 1;

/// `enum rdma_node_type`: a channel adapter.
const NODE_CA: u8 = 1;

/// Answers what a process asks.
#[derive(Clone, Default)]
pub struct Responder {
    numbers: Numbers,
}

impl Responder {
    /// The datagrams that answer one that was sent on the socket with the number `port`.
    pub fn answer(&mut self, port: u32, datagram: &[u8], system: &dyn System) -> Vec<Vec<u8>> {
        let facts = Facts::new(system, &mut self.numbers);
        let mut replies = Replies::new(port);
        for request in Request::all(datagram).filter(Request::is_request) {
            let mut answering =
                Answering { request, facts: &facts, numbers: &mut self.numbers, replies: &mut replies };
            let outcome = answering.run();
            replies.end(&request, outcome);
        }
        replies.datagrams
    }

    /// Begins to watch for devices that come and go, for the socket with the number `port`.
    pub fn monitor(&mut self, port: u32, system: &dyn System) -> Monitor {
        Monitor::new(port, system, &mut self.numbers)
    }

    /// What has changed since the last call.
    pub fn watch(&mut self, monitor: &mut Monitor, system: &dyn System) -> Vec<Vec<u8>> {
        monitor.look(system, &mut self.numbers)
    }
}

/// One request.
struct Answering<'a> {
    request: Request<'a>,
    facts: &'a Facts<'a>,
    numbers: &'a mut Numbers,
    replies: &'a mut Replies,
}

impl Answering<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        let number = self.request.command().ok_or(Refusal::Invalid)?;
        if let Some(kind) = Kind::of(number) {
            return self.objects(&kind);
        }
        match number {
            command::GET => self.devices(|device, facts, to| describe(device, facts.system, to)),
            command::RES_GET => self.devices(|device, _, to| to.nest(RES_SUMMARY, &objects::summary(device))),
            command::PORT_GET => self.port(),
            command::SYS_GET => self.system(),
            command::GET_CHARDEV => self.character_device(),
            command::STAT_GET => self.statistics(),
            command::STAT_GET_STATUS => self.optional_counters(),
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Tells something about a device, or about each.
    fn devices(&mut self, tell: impl Fn(&Device<'_>, &Facts<'_>, &mut Attributes)) -> Result<(), Refusal> {
        let devices = match self.request.is_dump() {
            true => self.facts.devices(self.numbers),
            false => vec![self.device()?],
        };
        for device in devices {
            let mut attributes = identity(&device);
            tell(&device, self.facts, &mut attributes);
            self.replies.message(&self.request, &attributes);
        }
        Ok(())
    }

    fn port(&mut self) -> Result<(), Refusal> {
        let devices = match self.request.is_dump() && self.request.find(PORT_INDEX).is_none() {
            true => self.device_to_list()?.into_iter().collect(),
            false => vec![self.device_and_port()?],
        };
        for device in devices {
            let mut attributes = identity_of_port(&device);
            attributes.u64(CAP_FLAGS, self.facts.system.port_flags().into());
            let (state, physical) = device.port_state();
            attributes.u8(PORT_STATE, state);
            attributes.u8(PORT_PHYS_STATE, physical);
            if let Some((index, name)) = device.interface() {
                attributes.u32(NDEV_INDEX, index);
                attributes.text(NDEV_NAME, name);
            }
            self.replies.message(&self.request, &attributes);
        }
        Ok(())
    }

    /// One device, seen by all of the machine's network namespaces, whose events can be had.
    fn system(&mut self) -> Result<(), Refusal> {
        let mut attributes = Attributes::default();
        attributes.u8(SYS_NETNS_MODE, 1);
        attributes.u8(SYS_COPY_ON_FORK, 1);
        attributes.u8(SYS_PRIVILEGED_QKEY_MODE, 0);
        attributes.u8(SYS_MONITOR_MODE, 1);
        self.replies.message(&self.request, &attributes);
        Ok(())
    }

    /// The node of the connection manager. Those of the devices stand for nothing, so that copies of libibverbs that are
    /// not ours find no device to open.
    fn character_device(&mut self) -> Result<(), Refusal> {
        if self.request.text(CHARDEV_TYPE).ok_or(Refusal::Invalid)? != b"rdma_cm" {
            return Err(Refusal::Unsupported);
        }
        let (major, minor) = self.facts.system.connection_manager();
        let mut attributes = Attributes::default();
        attributes.text(CHARDEV_NAME, "rdma_cm");
        attributes.u64(CHARDEV_ABI, 4);
        attributes.u64(CHARDEV, device_number(major, minor));
        self.replies.message(&self.request, &attributes);
        Ok(())
    }

    fn objects(&mut self, kind: &Kind) -> Result<(), Refusal> {
        if self.request.is_dump() {
            if let Some(device) = self.device_to_list()? {
                let entries = kind.list(&device).map(|(_, entry)| entry);
                self.replies.table(&self.request, &identity(&device), kind.table, entries);
            }
            return Ok(());
        }
        self.check_port()?;
        let device = self.device()?;
        let wanted = self.request.number(kind.number).ok_or(Refusal::Invalid)?;
        // Several processes may have an object with this number.
        let mut found = Err(Refusal::Missing);
        for (_, entry) in kind.list(&device).filter(|(number, _)| *number == wanted) {
            let mut attributes = identity(&device);
            attributes.append(&entry);
            self.replies.message(&self.request, &attributes);
            found = Ok(());
        }
        found
    }

    /// The counters of a port. Queue pairs and regions have none of their own, and none can be bound to them.
    fn statistics(&mut self) -> Result<(), Refusal> {
        /// `RDMA_COUNTER_MODE_NONE`.
        const NO_MODE: u32 = 0;
        if self.request.is_dump() {
            return self.device_to_list().map(|_| ());
        }
        let device = self.device_and_port()?;
        let mut attributes = identity_of_port(&device);
        match self.request.number(STAT_RES) {
            None => {
                let room = LONGEST.saturating_sub(HEADER + attributes.len() + 4);
                attributes.nest(STAT_HWCOUNTERS, &statistics::counters(&device, room));
            }
            Some(kind) if kind == u32::from(RES_QP) => attributes.u32(STAT_MODE, NO_MODE),
            Some(_) => return Err(Refusal::Missing),
        }
        self.replies.message(&self.request, &attributes);
        Ok(())
    }

    /// No counter can be switched on or off.
    fn optional_counters(&mut self) -> Result<(), Refusal> {
        let mut attributes = identity_of_port(&self.device_and_port()?);
        attributes.nest(STAT_HWCOUNTERS, &Attributes::default());
        self.replies.message(&self.request, &attributes);
        Ok(())
    }
}

impl<'a> Answering<'a> {
    /// The device that the request names.
    fn device(&self) -> Result<Device<'a>, Refusal> {
        let index = self.request.number(DEV_INDEX).ok_or(Refusal::Invalid)?;
        self.facts.device(self.numbers, index).ok_or(Refusal::Invalid)
    }

    /// The device whose parts are to be listed; `None` if it has gone since it was listed itself. That of another process goes
    /// with the process, at any time, and who lists all devices has made no mistake.
    fn device_to_list(&self) -> Result<Option<Device<'a>>, Refusal> {
        self.check_port()?;
        let index = self.request.number(DEV_INDEX).ok_or(Refusal::Invalid)?;
        match self.facts.device(self.numbers, index) {
            None if self.numbers.name(index).is_none() => Err(Refusal::Invalid),
            device => Ok(device),
        }
    }

    /// The port that the request names, if it names one, is there.
    fn check_port(&self) -> Result<(), Refusal> {
        let is_there =
            self.request.find(PORT_INDEX).is_none() || self.request.number(PORT_INDEX) == Some(PORT);
        is_there.then_some(()).ok_or(Refusal::Invalid)
    }

    fn device_and_port(&self) -> Result<Device<'a>, Refusal> {
        if self.request.number(PORT_INDEX) != Some(PORT) {
            return Err(Refusal::Invalid);
        }
        self.device()
    }
}

fn identity(device: &Device<'_>) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.u32(DEV_INDEX, device.index);
    attributes.text(DEV_NAME, device.name);
    attributes
}

fn identity_of_port(device: &Device<'_>) -> Attributes {
    let mut attributes = identity(device);
    attributes.u32(PORT_INDEX, PORT);
    attributes
}

/// All about a device. The port here is the number of ports.
fn describe(device: &Device<'_>, system: &dyn System, to: &mut Attributes) {
    to.u32(PORT_INDEX, 1);
    to.u64(CAP_FLAGS, system.device_flags());
    to.text(FW_VERSION, env!("CARGO_PKG_VERSION"));
    if let Some(guid) = device.guid() {
        to.u64(NODE_GUID, guid);
        to.u64(SYS_IMAGE_GUID, guid);
    }
    to.u8(DEV_NODE_TYPE, NODE_CA);
    to.text(DEV_PROTOCOL, "roce");
}

/// Linux: `huge_encode_dev`.
fn device_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    minor & 0xFF | major << 8 | (minor & !0xFF) << 12
}
