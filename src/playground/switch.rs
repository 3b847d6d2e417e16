//! A switch between the NICs: each has a port, and packets to the same NIC queue for it.
//!
//! It marks what finds a long queue (IBTA Annex A17.9). It loses nothing by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use softrnic_wire::Time;

/// See the [module](self).
pub struct Switch {
    /// Nanoseconds that a byte takes through a port, times 2^10.
    byte_time: u64,
    /// Half of the way.
    half: Duration,
    /// Bytes that wait when it begins to mark.
    mark_at: u64,
    /// When each port has sent all that has reached it.
    free: Vec<Time>,
    /// Packets on their way to it: when they reach it, and their numbers.
    coming: BTreeSet<(Time, usize)>,
}

/// What becomes of a packet.
pub struct Passage {
    /// When it reaches the NIC.
    pub at: Time,
    /// Whether it is marked.
    pub mark: bool,
    /// Bytes before it.
    pub queue: u64,
}

impl Switch {
    /// One with this many ports.
    pub fn new(ports: usize, bandwidth: u64, delay: Duration, mark_at: u64) -> Switch {
        Switch {
            byte_time: (8_000_000_000_u64 << 10) / bandwidth.max(1_000_000),
            half: delay / 2,
            mark_at,
            free: vec![Time::ZERO; ports],
            coming: BTreeSet::new(),
        }
    }

    /// A packet has left a NIC and would be at its receiver at `at`, if nothing were in the way.
    pub fn expect(&mut self, at: Time, packet: usize) {
        let reaches = Time::from_nanos(at.as_nanos().saturating_sub(self.half.as_nanos() as u64));
        self.coming.insert((reaches, packet));
    }

    /// The next packet that reaches it by `until`.
    pub fn take(&mut self, until: Time) -> Option<(Time, usize)> {
        let first = *self.coming.first()?;
        if first.0 > until {
            return None;
        }
        self.coming.pop_first()
    }

    /// Lets a packet through.
    pub fn pass(&mut self, reaches: Time, port: usize, bytes: usize) -> Passage {
        let begins = reaches.max(self.free[port]);
        let ends = begins + Duration::from_nanos((bytes as u64 * self.byte_time) >> 10);
        self.free[port] = ends;
        let queue = (begins.nanos_since(reaches) << 10) / self.byte_time.max(1);
        Passage { at: ends + self.half, mark: queue >= self.mark_at, queue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_for_one_port_queue_and_a_long_queue_marks() {
        let mut switch = Switch::new(2, 8_000_000_000, Duration::from_nanos(1000), 1500);
        let us = |n| Time::from_nanos(n);
        let first = switch.pass(us(100), 1, 1000);
        assert_eq!((first.at, first.mark, first.queue), (us(100 + 1000 + 500), false, 0));
        let second = switch.pass(us(100), 1, 1000);
        assert_eq!((second.at, second.mark, second.queue), (us(100 + 2000 + 500), false, 1000));
        let third = switch.pass(us(100), 1, 1000);
        assert!(third.mark && third.queue == 2000);
        assert_eq!(switch.pass(us(100), 0, 1000).queue, 0, "another port");
        assert_eq!(switch.pass(us(5000), 1, 1000).queue, 0, "it has drained");
    }

    #[test]
    fn packets_reach_it_in_order() {
        let mut switch = Switch::new(2, 8_000_000_000, Duration::from_nanos(1000), 1500);
        switch.expect(Time::from_nanos(3000), 7);
        switch.expect(Time::from_nanos(2000), 8);
        assert_eq!(switch.take(Time::from_nanos(1000)), None);
        assert_eq!(switch.take(Time::from_nanos(9000)), Some((Time::from_nanos(1500), 8)));
        assert_eq!(switch.take(Time::from_nanos(9000)), Some((Time::from_nanos(2500), 7)));
    }
}
