//! Identifiers as those see them who look at a process from outside.

use softrnic_nic::device::CmIdSnapshot;
use softrnic_transport::QpType;

use super::id::IdState;
use super::state::{Entry, State};

impl State {
    /// The identifiers on a device. As in the kernel, a listener on every address is on every device.
    pub fn identifiers(&self, device_index: usize) -> Vec<CmIdSnapshot> {
        let is_here = |entry: &Entry| match entry.device {
            Some(device) => device == device_index,
            None => entry.state == IdState::Listen,
        };
        let here = self.ids.iter().filter(|(_, entry)| is_here(entry));
        here.map(|(number, entry)| entry.shown(number)).collect()
    }
}

impl Entry {
    fn shown(&self, number: u32) -> CmIdSnapshot {
        CmIdSnapshot {
            number,
            state: state_name(self.state).to_owned(),
            space: self.kind.space.name().to_owned(),
            service: service_name(self.kind.service).to_owned(),
            qpn: self.said.qpn.get(),
            local: self.local.map(|address| address.on_interface()),
            peer: self.peer.filter(|address| !address.is_any()).map(|address| address.on_interface()),
        }
    }
}

/// Kernel: `enum rdma_cm_state`.
fn state_name(state: IdState) -> &'static str {
    match state {
        IdState::Idle => "IDLE",
        IdState::Bound => "ADDR_BOUND",
        IdState::AddressQuery => "ADDR_QUERY",
        IdState::AddressResolved => "ADDR_RESOLVED",
        IdState::RouteQuery => "ROUTE_QUERY",
        IdState::RouteResolved => "ROUTE_RESOLVED",
        IdState::Connect => "CONNECT",
        IdState::Disconnect => "DISCONNECT",
        IdState::Listen => "LISTEN",
    }
}

fn service_name(service: QpType) -> &'static str {
    match service {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::XrcInitiator => "XRC_INI",
        QpType::XrcTarget => "XRC_TGT",
        QpType::Srd => "DRIVER",
    }
}
