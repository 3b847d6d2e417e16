//! What goes through the rings.

use std::net::Ipv4Addr;

use softrnic_shm::pair::{NOTE_LEN, Note};

/// Bytes of a group's address behind the datagram that goes to it.
pub const GROUP_LEN: usize = 4;

/// The longest datagram that has room beside a group's address.
pub const MAX_DATAGRAM: usize = softrnic_shm::pair::MAX_DATAGRAM - GROUP_LEN;

/// The UDP and IP headers of a packet that are not those of every other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The destination of what a NIC sends, and the source of what it receives.
    pub peer: Ipv4Addr,
    /// UDP source port.
    pub sport: u16,
    /// IPv4 TOS.
    pub tos: u8,
    /// IPv4 TTL.
    pub ttl: u8,
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A packet, BTH to ICRC.
    Packet(Headers),
    /// To the NIC: a packet to a group that it has joined. The group's address is behind it.
    GroupPacket(Headers),
    /// To the NIC: it sends no priority whose bit is set, until it is told otherwise.
    Paused(u8),
}

const PACKET: u8 = 1;
const GROUP_PACKET: u8 = 2;
const PAUSED: u8 = 3;

impl Record {
    /// As it is written beside the datagram.
    #[inline]
    pub fn note(self) -> Note {
        let mut note = [0; NOTE_LEN];
        match self {
            Record::Packet(headers) => {
                note[0] = PACKET;
                headers.write(&mut note);
            }
            Record::GroupPacket(headers) => {
                note[0] = GROUP_PACKET;
                headers.write(&mut note);
            }
            Record::Paused(priorities) => {
                note[0] = PAUSED;
                note[1] = priorities;
            }
        }
        note
    }

    /// `None` if it is none.
    #[inline]
    pub fn read(note: &Note) -> Option<Record> {
        match note[0] {
            PACKET => Some(Record::Packet(Headers::read(note))),
            GROUP_PACKET => Some(Record::GroupPacket(Headers::read(note))),
            PAUSED => Some(Record::Paused(note[1])),
            _ => None,
        }
    }
}

impl Headers {
    #[inline]
    fn write(self, note: &mut Note) {
        note[1] = self.tos;
        note[2..4].copy_from_slice(&self.sport.to_ne_bytes());
        note[4..8].copy_from_slice(&self.peer.octets());
        note[8] = self.ttl;
    }

    #[inline]
    fn read(note: &Note) -> Headers {
        Headers {
            peer: Ipv4Addr::new(note[4], note[5], note[6], note[7]),
            sport: u16::from_ne_bytes([note[2], note[3]]),
            tos: note[1],
            ttl: note[8],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        let headers = Headers { peer: Ipv4Addr::new(10, 1, 2, 3), sport: 0xC123, tos: 0x6A, ttl: 64 };
        for record in [Record::Packet(headers), Record::GroupPacket(headers), Record::Paused(0b1000)] {
            assert_eq!(Record::read(&record.note()), Some(record));
        }
        assert_eq!(Record::read(&[0; NOTE_LEN]), None);
    }
}
