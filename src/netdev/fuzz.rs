//! Netlink datagrams of any bytes, as changes and as answers.

use softrnic_sys::fuzz::Choices;

use super::netlink::{messages, take_answer};
use super::resolve::{route_of, unstack};
use super::tables::Tables;

/// Longer than most of what the kernel sends in one datagram.
const LONGEST: usize = 4096;

/// Pieces of the bytes are datagrams, each preceded by its length.
pub fn netlink(data: &[u8]) {
    let mut choices = Choices(data);
    let mut tables = Tables::default();
    let mut events = 0;
    while !choices.is_empty() {
        let kind = choices.byte();
        let len = choices.number(2) as usize % LONGEST;
        let datagram = choices.take(len);
        match kind % 4 {
            0 => {
                let mut routes = Vec::new();
                // The fuzzer chooses the sequence number too.
                let sequence = datagram.get(8..12).and_then(|bytes| bytes.try_into().ok());
                let sequence = sequence.map_or(0, u32::from_ne_bytes);
                let _over = take_answer(datagram, sequence, kind & 4 == 0, &mut |answer| routes.push(answer));
                for route in routes {
                    let _route = route_of(route);
                }
            }
            _ => messages(datagram).for_each(|message| {
                if let netlink_packet_core::NetlinkPayload::InnerMessage(inner) = message.payload {
                    tables.apply(inner, &mut |_| events += 1);
                }
            }),
        }
    }
    for interface in tables.links.values() {
        let stack = unstack(interface, &tables);
        assert!(stack.is_err() || stack.is_ok_and(|(_, vlans)| vlans.len() <= 2));
        for lower in tables.links.keys() {
            tables.is_stacked(interface.index, *lower);
        }
    }
    // What was reported one by one must equal what is reported at once.
    let mut all = 0;
    tables.changes_since(&Tables::default(), &mut |_| all += 1);
    assert!(all <= events + 1, "{all} changes, but {events} events");
}
