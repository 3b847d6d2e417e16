//! The IPv4 IDs of senders whose headers a socket hides.
//!
//! The ICRC covers the ID. One that was expected is checked with the rest; any other has to be solved for, which can
//! take longer than the rest of a short packet. Sockets of Linux send with 0, or count on with each send.

use std::net::Ipv4Addr;

/// Senders that are remembered; more share places.
const PLACES: usize = 64;

/// What was seen of senders; they are told apart by address and source port.
pub struct HiddenIds {
    senders: Box<[Sender; PLACES]>,
}

/// One sender's IDs.
#[derive(Clone, Copy, Default)]
pub struct Sender {
    address: u64,
    /// The ID of the first datagram of its last send, and by how much that had grown.
    first: u16,
    step: u16,
}

impl HiddenIds {
    pub fn new() -> HiddenIds {
        HiddenIds { senders: Box::new([Sender::default(); PLACES]) }
    }

    /// What is known of a sender; of an unknown one that it might send with 0.
    #[inline]
    pub fn of(&mut self, src: Ipv4Addr, sport: u16) -> &mut Sender {
        let address = u64::from(u32::from(src)) << 16 | u64::from(sport);
        let sender = &mut self.senders[usize::from(sport) % PLACES];
        if sender.address != address {
            *sender = Sender { address, ..Sender::default() };
        }
        sender
    }
}

impl Sender {
    /// The likeliest ID of its next datagram, which has the given place in its send.
    #[inline]
    pub fn expected(&self, place: u16) -> u16 {
        let first = if place == 0 { self.first.wrapping_add(self.step) } else { self.first };
        first.wrapping_add(place)
    }

    /// A datagram had this ID.
    #[inline]
    pub fn seen(&mut self, place: u16, id: u16) {
        let first = id.wrapping_sub(place);
        if place == 0 || first != self.first {
            self.step = first.wrapping_sub(self.first);
            self.first = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the datagrams, each a place and an ID, are not as expected.
    fn surprises(datagrams: &[(u16, u16)]) -> usize {
        let mut sender = Sender::default();
        let mut surprises = |&&(place, id): &&(u16, u16)| {
            let expected = sender.expected(place);
            sender.seen(place, id);
            expected != id
        };
        datagrams.iter().filter(|datagram| surprises(datagram)).count()
    }

    #[test]
    fn sends_numbered_from_zero_never_surprise() {
        assert_eq!(surprises(&[(0, 0), (0, 0), (1, 1), (2, 2), (0, 0), (1, 1), (0, 0)]), 0);
    }

    #[test]
    fn sends_that_count_surprise_until_their_step_is_known() {
        assert_eq!(
            surprises(&[(0, 65_534), (1, 65_535), (2, 0), (0, 65_535), (0, 0), (1, 1), (0, 1), (0, 2)]),
            2
        );
    }

    #[test]
    fn one_that_is_lost_surprises_twice() {
        assert_eq!(surprises(&[(0, 7), (0, 8), (0, 9), (0, 11), (0, 12), (0, 13), (0, 14)]), 4);
    }

    #[test]
    fn a_sender_is_not_taken_for_another() {
        let mut ids = HiddenIds::new();
        ids.of(Ipv4Addr::LOCALHOST, 5000).seen(0, 100);
        assert_eq!(ids.of(Ipv4Addr::LOCALHOST, 5000).expected(1), 101);
        assert_eq!(ids.of(Ipv4Addr::LOCALHOST, 5000 + PLACES as u16).expected(0), 0);
        assert_eq!(ids.of(Ipv4Addr::UNSPECIFIED, 5000).expected(0), 0);
    }
}
