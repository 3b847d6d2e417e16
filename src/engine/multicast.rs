//! Multicast groups: a datagram to a group goes to every UD QP that is attached to it (IBTA 10.5.2).

use softrnic_link::Datagram;
use softrnic_transport::QpType;
use softrnic_wire::{Body, Gid, Packet, Time};

use super::control::ControlError;
use super::objects::QpKey;
use super::{DropReason, Engine};

/// Limits, the same as rxe's.
const MAX_GROUPS: usize = 8192;
const MAX_QPS_PER_GROUP: usize = 56;

impl Engine {
    /// Attaches a UD QP to a group. `true` if it is the first in the group, so the link must join.
    ///
    /// # Errors
    /// Not a UD QP, not a multicast GID, or a limit is reached.
    pub fn attach_multicast(&mut self, key: QpKey, group: Gid) -> Result<bool, ControlError> {
        let slot = self.qps.get(key).ok_or(ControlError::UnknownObject)?;
        if slot.io.service != QpType::Ud || !group.to_ip().is_multicast() {
            return Err(ControlError::Invalid("only UD QPs can attach, and only to multicast GIDs"));
        }
        self.groups.try_reserve(1).map_err(|_| ControlError::NoMemory)?;
        let groups = self.groups.len();
        let group = match self.groups.entry(group) {
            std::collections::hash_map::Entry::Vacant(_) if groups >= MAX_GROUPS => {
                return Err(ControlError::NoMemory);
            }
            entry => entry.or_default(),
        };
        if group.qps.len() >= MAX_QPS_PER_GROUP && !group.qps.contains(&key) {
            return Err(ControlError::NoMemory);
        }
        let first = group.qps.is_empty();
        group.qps.insert(key);
        Ok(first)
    }

    /// Detaches a QP. `true` if it was the last in the group, so the link must leave.
    ///
    /// # Errors
    /// The QP is not attached to the group.
    pub fn detach_multicast(&mut self, key: QpKey, group: Gid) -> Result<bool, ControlError> {
        let members =
            self.groups.get_mut(&group).ok_or(ControlError::Invalid("not attached to this group"))?;
        if !members.qps.remove(&key) {
            return Err(ControlError::Invalid("not attached to this group"));
        }
        let last = members.qps.is_empty();
        if last {
            self.groups.remove(&group);
        }
        Ok(last)
    }

    /// Whether a QP is attached to this group.
    pub fn is_member(&self, key: QpKey, group: Gid) -> bool {
        self.groups.get(&group).is_some_and(|group| group.qps.contains(&key))
    }

    /// Whether a QP is attached to any group.
    pub fn is_attached(&self, key: QpKey) -> bool {
        self.groups.values().any(|group| group.qps.contains(&key))
    }

    pub(super) fn on_multicast(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        id: (u16, u16),
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let group = self.groups.get(&Gid::from(datagram.dst)).ok_or(DropReason::Multicast)?;
        if !matches!(packet.body, Body::Ud { .. }) {
            return Err(DropReason::Multicast);
        }
        // Rare enough to collect: the QPs are driven one after the other.
        let members: Vec<QpKey> = group.qps.iter().copied().collect();
        for key in members {
            self.deliver(now, key, datagram, id, packet)?;
        }
        Ok(())
    }
}
