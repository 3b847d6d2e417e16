//! Which process of a host a packet is for, as the kernel's program says for sockets (`udp/members/program.rs`).
//!
//! A packet to a queue pair is for the slot in its number. One to QP 1 is a message of the connection manager: an answer
//! names our communication id, which has the slot too, and a request names a service.

use softrnic_link::ProcessSlot;
use softrnic_wire::{Qpn, ServiceId};

/// Where the fields are. BTH has 12 bytes, DETH 8, the header of a MAD 24.
const DEST_QPN: usize = 4;
const ATTRIBUTE: usize = 12 + 8 + 16;
const BODY: usize = 12 + 8 + 24;

const REQ: u16 = 0x10;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

/// For whom a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The process that has a queue pair.
    QueuePair(ProcessSlot),
    /// The process that has an end of a connection.
    Connection(ProcessSlot),
    /// The process that listens for this service.
    Service(ServiceId),
}

impl Target {
    /// `None` if the packet is too short to tell.
    pub fn of(packet: &[u8]) -> Option<Target> {
        let qpn = word(packet, DEST_QPN)? & 0xFF_FFFF;
        if qpn != 1 {
            return Some(Target::QueuePair(ProcessSlot::of(Qpn::new(qpn))));
        }
        let attribute = u16::from_be_bytes([*packet.get(ATTRIBUTE)?, *packet.get(ATTRIBUTE + 1)?]);
        let id = match attribute {
            REQ | SIDR_REQ => {
                let halves = [word(packet, BODY + 8)?, word(packet, BODY + 12)?];
                return Some(Target::Service(ServiceId(u64::from(halves[0]) << 32 | u64::from(halves[1]))));
            }
            SIDR_REP => word(packet, BODY)?,
            _ => word(packet, BODY + 4)?,
        };
        Some(Target::Connection(ProcessSlot::of_comm_id(id)))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attribute: u16) -> Vec<u8> {
        let mut packet = vec![0; BODY + 64];
        packet[DEST_QPN..DEST_QPN + 4].copy_from_slice(&[0xFF, 0, 0, 1]);
        packet[ATTRIBUTE..ATTRIBUTE + 2].copy_from_slice(&attribute.to_be_bytes());
        let ids: Vec<u8> = [1u32, 2, 3, 4].map(|slot| (slot << 26).to_be_bytes()).concat();
        packet[BODY..BODY + 16].copy_from_slice(&ids);
        packet
    }

    #[test]
    fn queue_pairs_services_and_communication_ids_say_for_whom_a_packet_is() {
        let slot = |number| ProcessSlot::new(number).expect("a slot");
        let mut packet = message(0);
        assert_eq!(Target::of(&packet), Some(Target::Connection(slot(2))));
        assert_eq!(Target::of(&message(SIDR_REP)), Some(Target::Connection(slot(1))));
        for request in [REQ, SIDR_REQ] {
            let service = ServiceId(3 << 58 | 4 << 26);
            assert_eq!(Target::of(&message(request)), Some(Target::Service(service)));
        }
        packet[DEST_QPN..DEST_QPN + 4].copy_from_slice(&[0, 0xFC, 0, 7]);
        assert_eq!(Target::of(&packet), Some(Target::QueuePair(slot(63))));
        assert_eq!(Target::of(&packet[..7]), None);
    }
}
