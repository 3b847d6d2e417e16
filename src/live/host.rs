//! What the NICs of a host share: its port, and who listens for what.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use softrnic_fabric::{Fabric, Host, PRIORITIES, PortId};
use softrnic_link::{MAX_SERVICES, ProcessSlot};
use softrnic_wire::ServiceId;

use crate::target::Target;

/// A host.
pub struct HostState {
    pub host: Host,
    pub address: Ipv4Addr,
    /// Its ports. What it sends goes by the first whose link is up.
    pub ports: Vec<PortId>,
    /// Places of its NICs among all, by slot.
    pub members: [Option<usize>; ProcessSlot::COUNT],
    services: HashMap<ServiceId, ProcessSlot>,
    /// The slot that the next process gets, if it is free: numbers are used again as late as possible.
    next_slot: u32,
    /// Packets that its NICs have sent and its port has not, by priority.
    pub backlog: [usize; PRIORITIES],
    /// For each priority, the slot whose turn it is.
    pub turns: [usize; PRIORITIES],
    /// Priorities that the host pauses because a NIC does not read.
    pub pausing: u8,
    /// Priorities that it pauses because it was told to.
    pub storm: u8,
    /// Its place among the interfaces, if it is one.
    pub interface: Option<usize>,
}

impl HostState {
    pub fn new<P: Clone>(host: Host, address: Ipv4Addr, fabric: &Fabric<P>) -> HostState {
        HostState {
            host,
            address,
            ports: fabric.host_ports(host).to_vec(),
            members: [None; ProcessSlot::COUNT],
            services: HashMap::new(),
            next_slot: 0,
            backlog: [0; PRIORITIES],
            turns: [0; PRIORITIES],
            pausing: 0,
            storm: 0,
            interface: None,
        }
    }

    /// A slot for one more process.
    pub fn take_slot(&mut self, member: usize) -> Option<ProcessSlot> {
        let is_free = |slot: &ProcessSlot| self.members[slot.number()].is_none();
        let slot = ProcessSlot::in_turn(self.next_slot).find(is_free)?;
        self.members[slot.number()] = Some(member);
        self.next_slot = slot.number() as u32 + 1;
        Some(slot)
    }

    /// A process has ended.
    pub fn free_slot(&mut self, slot: ProcessSlot) {
        self.members[slot.number()] = None;
        self.services.retain(|_, owner| *owner != slot);
    }

    /// Processes of the host.
    pub fn processes(&self) -> usize {
        self.members.iter().flatten().count()
    }

    /// The NIC that a packet is for. A message for nobody goes to the first, which knows what to answer.
    pub fn member_for(&self, packet: &[u8]) -> Option<usize> {
        let slot = match Target::of(packet)? {
            Target::QueuePair(slot) => return self.members[slot.number()],
            Target::Connection(slot) => Some(slot),
            Target::Service(service) => self.services.get(&service).copied(),
        };
        let found = slot.and_then(|slot| self.members[slot.number()]);
        found.or_else(|| self.members.iter().flatten().next().copied())
    }

    /// Requests for a service go to a process from now on, unless they go to another one.
    pub fn serve(&mut self, service: ServiceId, slot: ProcessSlot) -> bool {
        match self.services.get(&service) {
            Some(owner) => *owner == slot,
            None if self.services.len() >= MAX_SERVICES => false,
            None => {
                self.services.insert(service, slot);
                true
            }
        }
    }

    /// They do not any more.
    pub fn stop_serving(&mut self, service: ServiceId, slot: ProcessSlot) {
        if self.services.get(&service) == Some(&slot) {
            self.services.remove(&service);
        }
    }
}

#[cfg(test)]
mod tests {
    use softrnic_fabric::{LinkSpec, Parts, Topology};

    use softrnic_wire::Qpn;

    use super::*;

    fn host() -> HostState {
        let parts = Parts {
            host: Default::default(),
            switch: Default::default(),
            edge: LinkSpec::default(),
            core: LinkSpec::default(),
        };
        let fabric: Fabric<()> =
            Fabric::new(Topology::star(2, &parts).expect("a star"), 1).expect("a network");
        HostState::new(Host(0), Ipv4Addr::new(127, 77, 0, 1), &fabric)
    }

    #[test]
    fn slots_are_used_again_as_late_as_possible_and_those_with_numbers_of_rxe_last() {
        let mut host = host();
        let first = host.take_slot(0).expect("a slot");
        host.free_slot(first);
        for member in 0..ProcessSlot::COUNT {
            let slot = host.take_slot(member).expect("a slot");
            assert_eq!(slot == first, member == 59, "{slot} for {member}");
            assert_eq!(slot < ProcessSlot::of(Qpn::LAST_OF_RXE), member >= 60, "{slot} for {member}");
        }
        assert_eq!(host.take_slot(64), None);
    }

    #[test]
    fn a_service_belongs_to_one_process_until_that_ends() {
        let mut host = host();
        let [one, other] = [0, 1].map(|member| host.take_slot(member).expect("a slot"));
        let service = ServiceId(7);
        assert!(host.serve(service, one) && host.serve(service, one) && !host.serve(service, other));
        host.stop_serving(service, other);
        assert!(!host.serve(service, other));
        host.free_slot(one);
        assert!(host.serve(service, other));
    }
}
