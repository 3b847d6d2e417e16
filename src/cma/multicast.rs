//! Multicast groups. RoCE has no subnet administrator to ask: an address is its group, and attaching a QP joins it.

use softrnic_cm::Ece;
use softrnic_wire::{Gid, Qpn};

use super::address::Address;
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::id::IdState;
use super::params::UdParams;
use super::queue::Queued;
use super::resolve::HOPS;
use super::state::{State, UDP_QKEY};
use softrnic_nic::verbs::AddressVector;

/// A group that an identifier has joined.
pub(super) struct Group {
    pub id: u32,
    pub reported: u32,
}

impl State {
    /// Joins a group. A send-only join makes no difference here: receiving starts when a QP is attached.
    pub fn join_multicast(&mut self, number: u32, context: u64, group: &Address) -> Result<u32, Error> {
        let entry = self.entry(number)?;
        let in_state = matches!(
            entry.state,
            IdState::Bound | IdState::AddressResolved | IdState::RouteResolved | IdState::Connect
        );
        let (device_index, route) = entry.device.zip(entry.route).ok_or(Error::Invalid)?;
        let mgid = Gid::from(group.ip());
        if !entry.is_datagram() || !in_state || !mgid.is_multicast() {
            return Err(Error::Invalid);
        }
        let (channel, traffic_class) = (entry.channel, entry.tos);
        let address = AddressVector {
            dgid: mgid,
            sgid_index: self.gid_index(device_index, route.local)?,
            flow_label: 0,
            traffic_class,
            hop_limit: HOPS,
        };
        let joined = self.groups.insert(Group { id: number, reported: 0 }).ok_or(Error::NoMemory)?;
        self.entry_mut(number)?.groups.push(joined);
        let params =
            UdParams { qpn: Qpn::MULTICAST, qkey: UDP_QKEY, address: Some(address), private: Vec::new() };
        let event = Queued {
            owner: number,
            group: Some(joined),
            request: None,
            kind: EventKind::MulticastJoin,
            status: EventStatus::Done,
            context,
            data: EventData::Ud(params),
            ece: Ece::default(),
        };
        self.push(channel, event);
        Ok(joined)
    }

    /// Leaves a group.
    pub fn leave_multicast(&mut self, channel: u64, joined: u32) -> Result<u32, Error> {
        let id = self.groups.get(joined).ok_or(Error::UnknownId)?.id;
        if self.entry(id)?.channel != channel {
            return Err(Error::Invalid);
        }
        self.entry_mut(id)?.groups.retain(|known| *known != joined);
        if let Some(queue) = self.channels.get_mut(&channel) {
            queue.remove(|event| event.group == Some(joined));
        }
        let reported = self.groups.remove(joined).map_or(0, |group| group.reported);
        Ok(reported)
    }
}
