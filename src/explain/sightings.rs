//! Recognises a packet that was captured at several places: two interfaces, or leaving and arriving.

use rustc_hash::FxHashMap;

use softrnic_inspect::capture::{Direction, LinkType, Record};

/// Places told apart that have seen one packet; those of further ones count as one.
const PLACES: usize = 8;

/// Sightings of one packet are nearer to each other than this. Longer than a packet waits in queues, shorter than
/// PSNs take to come round.
const WITHIN_NS: u64 = 1_000_000_000;

/// Packets remembered: at least so many, at most twice as many.
const REMEMBERED: usize = 1 << 16;

/// What a packet has in common at all places.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub flow: u32,
    pub psn: u32,
    pub icrc: u32,
    /// Whether it arrived damaged, which it was not when it left.
    pub bad: bool,
}

/// How often each place saw a packet.
#[derive(Clone, Copy)]
struct Seen {
    /// Each place by its number, from 1 on, and how often it saw the packet.
    times: [(u16, u16); PLACES],
    last_ns: u64,
}

#[derive(Default)]
pub(super) struct Sightings {
    places: FxHashMap<u64, u16>,
    /// Those of late, and those before.
    young: FxHashMap<Key, Seen>,
    old: FxHashMap<Key, Seen>,
}

impl Sightings {
    /// Whether another place has shown this packet already. There were as many as the place saw that saw most of
    /// them: so what the network or the sender doubled is two packets, wherever it was captured.
    pub fn is_known(&mut self, key: Key, record: &Record<'_>) -> bool {
        let place = self.place(record);
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        let fresh = Seen { times: [(0, 0); PLACES], last_ns: record.time_ns };
        let before = self.young.get(&key).or_else(|| self.old.get(&key));
        let mut seen =
            before.copied().filter(|s| record.time_ns.abs_diff(s.last_ns) < WITHIN_NS).unwrap_or(fresh);
        let most = seen.times.iter().map(|(_, times)| *times).max().unwrap_or(0);
        let at =
            seen.times.iter().position(|(known, _)| *known == place || *known == 0).unwrap_or(PLACES - 1);
        let (known, times) = &mut seen.times[at];
        (*known, *times) = (place, times.saturating_add(1));
        let is_known = *times <= most;
        seen.last_ns = record.time_ns;
        self.young.insert(key, seen);
        is_known
    }

    /// Whether any place has shown this packet.
    pub fn has_seen(&self, key: &Key) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    fn place(&mut self, record: &Record<'_>) -> u16 {
        let next = (self.places.len() + 1).min(usize::from(u16::MAX)) as u16;
        if next == u16::MAX {
            return self.places.get(&place_of(record)).copied().unwrap_or(next);
        }
        *self.places.entry(place_of(record)).or_insert(next)
    }
}

/// The interface, and whether the packet came or went.
fn place_of(record: &Record<'_>) -> u64 {
    let direction = match record.direction {
        None => 0,
        Some(Direction::Inbound) => 1,
        Some(Direction::Outbound) => 2,
    };
    let cooked = match (record.link, record.data) {
        // Packet type.
        (LinkType::LinuxSll, [_, direction, ..]) => u64::from(*direction) + 1,
        // Interface index and packet type.
        (LinkType::LinuxSll2, [_, _, _, _, a, b, c, d, _, _, direction, ..]) => {
            (u64::from(u32::from_be_bytes([*a, *b, *c, *d])) << 8) + u64::from(*direction) + 1
        }
        _ => 0,
    };
    u64::from(record.interface) << 44 | direction << 42 | cooked
}
