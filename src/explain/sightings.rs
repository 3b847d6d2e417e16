//! Recognises a packet that was captured at several places: two interfaces, or leaving and arriving.

use rustc_hash::FxHashMap;

use softrnic_inspect::capture::{Direction, LinkType, Record};

/// Places told apart; those of further ones count as one.
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
    times: [u32; PLACES],
    last_ns: u64,
}

#[derive(Default)]
pub(super) struct Sightings {
    places: Vec<u64>,
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
        let fresh = Seen { times: [0; PLACES], last_ns: record.time_ns };
        let before = self.young.get(&key).or_else(|| self.old.get(&key));
        let mut seen =
            before.copied().filter(|s| record.time_ns.abs_diff(s.last_ns) < WITHIN_NS).unwrap_or(fresh);
        let most = seen.times.iter().copied().max().unwrap_or(0);
        seen.times[place] += 1;
        seen.last_ns = record.time_ns;
        self.young.insert(key, seen);
        seen.times[place] <= most
    }

    fn place(&mut self, record: &Record<'_>) -> usize {
        let place = place_of(record);
        let known = self.places.iter().position(|known| *known == place).unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        });
        self.places.truncate(PLACES);
        known.min(PLACES - 1)
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
