//! A switch's memory: who may store a frame, and whom that makes pause.
//!
//! Every stored frame is charged to the ingress port and priority that it came by. Of a lossless priority, each ingress port has
//! a reserve of its own, then shared memory up to a threshold, then headroom. The threshold is a fraction of the shared memory that
//! is free, so it falls while memory fills. A lossy priority has shared memory alone, and a frame is stored while its egress queue
//! is shorter than a fraction of what is free.

use crate::config::SwitchConfig;
use crate::frame::{PRIORITIES, Priority};

/// Bytes of one ingress port and priority.
#[derive(Clone, Copy, Default, Debug)]
struct Account {
    /// In its reserve and in shared memory.
    stored: u64,
    /// In its headroom.
    headroom: u64,
    /// The neighbour was told to pause.
    pausing: bool,
}

/// What a neighbour is to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// To pause the priority.
    Pause,
    /// To go on.
    Resume,
}

/// See the [module](self). Ports are counted within the switch.
#[derive(Clone)]
pub struct Buffer {
    /// Shared memory: all but reserves and headroom.
    shared: u64,
    used: u64,
    reserve: u64,
    lossless: u8,
    xon_offset: u64,
    ingress_alpha_log2: i8,
    egress_alpha_log2: i8,
    headroom: Vec<u64>,
    accounts: Vec<[Account; PRIORITIES]>,
    /// The most that was used of the shared memory.
    peak: u64,
}

impl Buffer {
    /// The memory of a switch whose ports need these headrooms for each lossless priority. `Err` has the bytes that reserves and
    /// headroom take, if these are more than there are.
    pub fn new(config: &SwitchConfig, headroom: Vec<u64>) -> Result<Buffer, u64> {
        let priorities = u64::from(config.pfc.lossless.count_ones());
        let taken = priorities * (headroom.iter().sum::<u64>() + config.reserve * headroom.len() as u64);
        let shared = config.buffer.checked_sub(taken).ok_or(taken)?;
        Ok(Buffer {
            shared,
            used: 0,
            reserve: config.reserve,
            lossless: config.pfc.lossless,
            xon_offset: config.pfc.xon_offset,
            ingress_alpha_log2: config.ingress_alpha_log2,
            egress_alpha_log2: config.egress_alpha_log2,
            accounts: vec![[Account::default(); PRIORITIES]; headroom.len()],
            headroom,
            peak: 0,
        })
    }

    /// Whether there is room for a frame that came by `port` and goes to an egress queue of `queued` bytes. It is stored then.
    pub fn store(&mut self, port: usize, priority: Priority, bytes: u64, queued: u64) -> bool {
        let stored = if self.is_lossless(priority) {
            self.store_lossless(port, priority, bytes)
        } else {
            self.store_lossy(port, priority, bytes, queued)
        };
        self.peak = self.peak.max(self.used);
        stored
    }

    fn store_lossless(&mut self, port: usize, priority: Priority, bytes: u64) -> bool {
        let threshold = self.threshold();
        let (reserve, headroom) = (self.reserve, self.headroom[port]);
        let account = &mut self.accounts[port][priority as usize];
        if account.stored + bytes <= reserve {
            account.stored += bytes;
            return true;
        }
        // What is in headroom leaves it first, so shared memory is used again only when that is empty.
        if account.headroom == 0 && account.stored + bytes - reserve <= threshold {
            self.used += bytes.min(account.stored + bytes - reserve);
            account.stored += bytes;
            return true;
        }
        let fits = account.headroom + bytes <= headroom;
        if fits {
            account.headroom += bytes;
        }
        fits
    }

    fn store_lossy(&mut self, port: usize, priority: Priority, bytes: u64, queued: u64) -> bool {
        let free = self.shared - self.used.min(self.shared);
        let fits = bytes <= free && queued + bytes <= scaled(free, self.egress_alpha_log2);
        if fits {
            self.accounts[port][priority as usize].stored += bytes;
            self.used += bytes;
        }
        fits
    }

    /// A frame that came by `port` has left.
    pub fn release(&mut self, port: usize, priority: Priority, bytes: u64) {
        let reserve = if self.is_lossless(priority) { self.reserve } else { 0 };
        let account = &mut self.accounts[port][priority as usize];
        let from_headroom = bytes.min(account.headroom);
        account.headroom -= from_headroom;
        let rest = bytes - from_headroom;
        debug_assert!(rest <= account.stored, "released more than was stored");
        let shared = account.stored.saturating_sub(reserve);
        account.stored -= rest;
        self.used -= shared - account.stored.saturating_sub(reserve);
    }

    /// What the neighbour at `port` is to be told after a frame was stored (`arrived`) or released.
    pub fn tells(&mut self, port: usize, priority: Priority, arrived: bool) -> Option<Told> {
        if !self.is_lossless(priority) {
            return None;
        }
        let threshold = self.threshold();
        let (reserve, xon_offset) = (self.reserve, self.xon_offset);
        let account = &mut self.accounts[port][priority as usize];
        let shared = account.stored.saturating_sub(reserve);
        if arrived && !account.pausing && (account.headroom > 0 || shared >= threshold) {
            account.pausing = true;
            return Some(Told::Pause);
        }
        let low = account.headroom == 0 && (shared == 0 || shared + xon_offset <= threshold);
        if !arrived && account.pausing && low {
            account.pausing = false;
            return Some(Told::Resume);
        }
        None
    }

    /// Whether the neighbour at `port` has been told to pause.
    pub fn is_pausing(&self, port: usize, priority: Priority) -> bool {
        self.accounts[port][priority as usize].pausing
    }

    /// What a lossless ingress port and priority may have of the shared memory now.
    pub fn threshold(&self) -> u64 {
        scaled(self.shared - self.used.min(self.shared), self.ingress_alpha_log2)
    }

    /// The most shared memory that was in use, in bytes.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    fn is_lossless(&self, priority: Priority) -> bool {
        self.lossless >> priority & 1 != 0
    }
}

/// `bytes` times 2 to the power of `log2`.
fn scaled(bytes: u64, log2: i8) -> u64 {
    let by = u32::from(log2.unsigned_abs());
    if log2 < 0 {
        bytes.checked_shr(by).unwrap_or(0)
    } else {
        bytes.saturating_mul(1_u64.checked_shl(by).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Headroom, Pfc};

    const LOSSLESS: Priority = 3;
    const LOSSY: Priority = 0;

    fn buffer(bytes: u64, ports: usize) -> Buffer {
        let pfc = Pfc { lossless: 1 << LOSSLESS, headroom: Headroom::Bytes(10_000), ..Pfc::default() };
        let config = SwitchConfig { buffer: bytes, reserve: 4096, pfc, ..SwitchConfig::default() };
        Buffer::new(&config, vec![10_000; ports]).expect("a buffer")
    }

    #[test]
    fn equally_loaded_ports_settle_at_the_fixed_point() {
        // With alpha 1/8 and n ports: T = F / (8 + n).
        let ports = 16;
        let mut buffer = buffer(2 << 20, ports);
        let free = (2 << 20) - ports as u64 * (10_000 + 4096);
        let mut open: Vec<usize> = (0..ports).collect();
        while !open.is_empty() {
            open.retain(|&port| {
                assert!(buffer.store(port, LOSSLESS, 64, 0));
                buffer.tells(port, LOSSLESS, true) != Some(Told::Pause)
            });
        }
        let expected = free / (8 + ports as u64);
        let reached = buffer.used / ports as u64;
        assert!(reached.abs_diff(expected) <= 2 * 64, "{reached} instead of {expected}");
    }

    #[test]
    fn headroom_takes_what_comes_after_a_pause_and_no_more() {
        let mut buffer = buffer(64 << 10, 1);
        let mut stored = 0;
        while buffer.tells(0, LOSSLESS, true).is_none() {
            assert!(buffer.store(0, LOSSLESS, 1000, 0));
            stored += 1;
        }
        for _ in 0..9 {
            assert!(buffer.store(0, LOSSLESS, 1000, 0));
            stored += 1;
        }
        let mut more = 0;
        while buffer.store(0, LOSSLESS, 1000, 0) {
            more += 1;
        }
        assert!(more <= 1, "{more} frames beyond the headroom");
        stored += more;
        let mut resumed = None;
        for left in (0..stored).rev() {
            buffer.release(0, LOSSLESS, 1000);
            if buffer.tells(0, LOSSLESS, false) == Some(Told::Resume) {
                assert_eq!(resumed.replace(left), None);
            }
        }
        assert!(resumed.is_some());
        assert_eq!(buffer.used, 0);
    }

    #[test]
    fn a_lossy_queue_gets_as_much_as_is_left() {
        // With alpha 1, a queue and what is free are equal in the end.
        let mut buffer = buffer(1 << 20, 2);
        let shared = (1 << 20) - 2 * (10_000 + 4096);
        let mut queued = 0;
        while buffer.store(0, LOSSY, 100, queued) {
            queued += 100;
        }
        assert!(queued.abs_diff(shared / 2) <= 100, "{queued} of {shared}");
        assert_eq!(buffer.tells(0, LOSSY, true), None);
    }

    #[test]
    fn what_is_released_is_free_again() {
        let mut buffer = buffer(1 << 20, 2);
        let mut left = 0;
        for round in 0..10_000_u64 {
            let (port, priority) = (round as usize % 2, if round % 3 == 0 { LOSSY } else { LOSSLESS });
            if buffer.store(port, priority, 1 + round % 1500, 0) {
                buffer.release(port, priority, 1 + round % 1500);
                left += 1;
            }
        }
        assert_eq!((buffer.used, left), (0, 10_000));
    }

    #[test]
    fn a_buffer_without_room_for_its_headroom_says_how_much_it_needs() {
        let pfc = Pfc { lossless: 0b11, ..Pfc::default() };
        let config = SwitchConfig { buffer: 1000, reserve: 100, pfc, ..SwitchConfig::default() };
        assert_eq!(Buffer::new(&config, vec![500, 700]).err(), Some(2 * (500 + 700 + 200)));
    }
}
