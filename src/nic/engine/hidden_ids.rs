//! The IPv4 IDs of senders whose headers a socket hides.
//!
//! The ICRC covers the ID. One that is solved for leaves 16 of its 32 bits to tell damage: of damaged datagrams, one in
//! 2^16 has an ID that explains the damage away. What a sender has numbered so far says which IDs can come next, and only
//! these pass. `docs/decisions/0151-hidden-ids.md` says why so, and how much is left to chance.
//!
//! Linux numbers in three ways: with 0, and 1, 2, … for the segments of one send; with a counter for each connected
//! socket; and with counters that sockets share, which also jump ahead by up to the jiffies that have passed
//! (`ip_idents_reserve` in net/ipv4/route.c; kernel rxe sends so). NICs count somehow, or not at all.

mod numbering;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use softrnic_wire::Time;

use super::DropReason;
use numbering::{LOST, Numbering};

/// Senders that are remembered: so many sets of so many places.
const SETS: usize = 256;
const WAYS: usize = 4;
/// Addresses whose last ID is remembered; more share places.
const HOSTS: usize = 256;
/// Numberings of one sender: several processes may share an address and a port.
const NUMBERINGS: usize = 3;
/// So many datagrams in a row that are sound but for an unexpected ID, with none between them that no ID explains, are
/// no accident: the ID of a damaged one has a chance of 2^-16 each time.
const STRIKES: u8 = 3;
/// A known sender keeps its place for so many ticks after it was heard.
const KEPT: u32 = 1 << 10;
/// After so many ticks of silence a counter that jumps may be anywhere.
const FORGOTTEN: u32 = 1 << 16;

/// A datagram of a host that is no further behind the last is late, and no new beginning.
const LATE: u16 = 64;

/// Tells keys from that of a free place.
const TAKEN: u64 = 1 << 63;

/// What was seen of senders; they are told apart by address and source port.
pub struct HiddenIds {
    senders: Box<[Sender]>,
    hosts: Box<[Host]>,
    /// Stands for a sender that finds no place.
    nobody: Sender,
}

/// One sender.
#[derive(Clone, Copy, Default)]
struct Sender {
    /// Address and port, and [`TAKEN`]; 0 for a place that nobody has.
    key: u64,
    /// When it was last heard, sound or not.
    heard: u32,
    was_heard: bool,
    /// A datagram was as expected.
    is_known: bool,
    /// Datagrams in a row that were not expected, and when the last came.
    strikes: u8,
    struck: u32,
    /// The likeliest first.
    numberings: [Option<Numbering>; NUMBERINGS],
    /// What the last unexpected datagram would begin. The next may prove it, but not after damage: the same damage again
    /// would lead to the same ID.
    candidate: Option<Numbering>,
}

/// The last ID of an address, whatever the port: for counters that ports share.
#[derive(Clone, Copy, Default)]
struct Host {
    address: u32,
    heard: u32,
    /// When it was heard before that.
    heard_before: u32,
    id: u16,
}

impl HiddenIds {
    pub fn new() -> HiddenIds {
        HiddenIds {
            senders: vec![Sender::default(); SETS * WAYS].into_boxed_slice(),
            hosts: vec![Host::default(); HOSTS].into_boxed_slice(),
            nobody: Sender::default(),
        }
    }

    /// The ID of a datagram that has the given place in its send. `recover` verifies the datagram with the ID that it is
    /// given, or says which other ID would make it sound, if any.
    #[inline]
    pub fn verify(
        &mut self,
        now: Time,
        (src, sport): (Ipv4Addr, u16),
        place: u16,
        recover: impl FnOnce(u16) -> Option<u16>,
    ) -> Result<u16, DropReason> {
        let tick = tick(now);
        let address = u32::from(src);
        let host = &mut self.hosts[hash(address.into()) % HOSTS];
        let sender = place_of(&mut self.senders, &mut self.nobody, tick, address, sport);
        let guess = sender.expected(place);
        let recovered = recover(guess);
        let fits = match recovered {
            Some(id) if id == guess && sender.follow(place, id) => true,
            Some(id) => sender.accepts(host, tick, address, place, id),
            None => {
                (sender.strikes, sender.candidate) = (0, None);
                false
            }
        };
        sender.was_heard = true;
        sender.heard = tick;
        match recovered {
            Some(id) if fits => {
                host.take(address, tick, id);
                Ok(id)
            }
            _ => {
                if host.address == address {
                    host.hear(tick);
                }
                Err(if recovered.is_some() { DropReason::UnexpectedId } else { DropReason::Icrc })
            }
        }
    }
}

impl Sender {
    /// The likeliest ID of the next datagram; of an unknown sender that it sends with 0.
    #[inline]
    fn expected(&self, place: u16) -> u16 {
        self.numberings[0].as_ref().map_or(place, |numbering| numbering.expected(place))
    }

    /// Takes note that the ID was as expected; whether anything was.
    #[inline]
    fn follow(&mut self, place: u16, id: u16) -> bool {
        let Some(numbering) = &mut self.numberings[0] else { return false };
        numbering.follow(place, id);
        self.is_known = true;
        true
    }

    /// Whether an ID other than the likeliest can be this sender's.
    #[cold]
    fn accepts(&mut self, host: &Host, tick: u32, address: u32, place: u16, id: u16) -> bool {
        let silence = tick.wrapping_sub(self.heard);
        let admits = |known: &Option<Numbering>| known.is_some_and(|known| known.admits(place, id, silence));
        let at = self.numberings.iter().position(admits);
        let proven = if at.is_none() && admits(&self.candidate) { self.candidate.take() } else { None };
        if at.is_some() || proven.is_some() {
            self.numberings[..=at.unwrap_or(NUMBERINGS - 1)].rotate_right(1);
            self.numberings[0] = proven.or(self.numberings[0]);
            if let Some(numbering) = &mut self.numberings[0] {
                numbering.follow_about(place, id, silence);
            }
            self.is_known = true;
            return true;
        }
        // Linux gives 0 to what has DF and comes from a socket that is not connected.
        let is_zero = id == 0 || id == place;
        if !self.was_heard || is_zero || host.is_at(address, tick, id) {
            self.numberings.rotate_right(1);
            self.numberings[0] = Some(Numbering::starting(place, id));
            return true;
        }
        if tick.wrapping_sub(std::mem::replace(&mut self.struck, tick)) > FORGOTTEN {
            self.strikes = 0;
        }
        self.strikes = self.strikes.saturating_add(1);
        match &mut self.numberings[0] {
            // It numbers in a way of its own. That the next such datagrams pass takes as wide a berth.
            Some(numbering) if self.strikes >= STRIKES => {
                numbering.widen_to(place, id);
                true
            }
            _ => {
                self.candidate = Some(Numbering::starting(place, id));
                if self.strikes >= STRIKES {
                    self.numberings[0] = self.candidate.take();
                }
                false
            }
        }
    }
}

impl Host {
    /// A sound datagram of `address` had this ID.
    #[inline]
    fn take(&mut self, address: u32, tick: u32, id: u16) {
        if self.address != address {
            *self = Host { address, heard: tick, heard_before: tick, id };
            return;
        }
        self.hear(tick);
        // Late ones take nothing back.
        if !(1..=LATE).contains(&self.id.wrapping_sub(id)) {
            self.id = id;
        }
    }

    #[inline]
    fn hear(&mut self, tick: u32) {
        if self.heard != tick {
            (self.heard_before, self.heard) = (self.heard, tick);
        }
    }

    /// Whether a counter that the ports of `address` share can have come to `id`.
    fn is_at(&self, address: u32, tick: u32, id: u16) -> bool {
        let ahead = i32::from(id.wrapping_sub(self.id).wrapping_sub(1) as i16);
        // What is read together may have been sent at any time since the reading before.
        let since = if self.heard == tick { self.heard_before } else { self.heard };
        let silence = tick.wrapping_sub(since);
        // 0 is rather what comes from sockets that do not count.
        self.address == address && self.id != 0 && numbering::is_within(ahead, LOST.into(), silence)
    }
}

/// The place of a sender. Who was proven right and heard a moment ago is not pushed out, whatever comes from whoever.
#[inline]
fn place_of<'a>(
    senders: &'a mut [Sender],
    nobody: &'a mut Sender,
    tick: u32,
    address: u32,
    sport: u16,
) -> &'a mut Sender {
    let key = TAKEN | u64::from(address) << 16 | u64::from(sport);
    let set = hash(key) % SETS * WAYS;
    let found = senders[set..set + WAYS].iter().position(|sender| sender.key == key);
    match found {
        Some(way) if tick.wrapping_sub(senders[set + way].heard) < FORGOTTEN => &mut senders[set + way],
        _ => new_place(&mut senders[set..set + WAYS], nobody, tick, key, found),
    }
}

/// The place of a sender that is new, or forgotten where it was found.
#[cold]
fn new_place<'a>(
    ways: &'a mut [Sender],
    nobody: &'a mut Sender,
    tick: u32,
    key: u64,
    found: Option<usize>,
) -> &'a mut Sender {
    let silence = |sender: &Sender| tick.wrapping_sub(sender.heard);
    let worth = |sender: &Sender| (sender.key != 0, sender.is_known, u32::MAX - silence(sender));
    let way = found.or_else(|| (0..WAYS).min_by_key(|&way| worth(&ways[way]))).unwrap_or(0);
    let keeps = found.is_none() && ways[way].is_known && silence(&ways[way]) < KEPT;
    let place = if keeps { nobody } else { &mut ways[way] };
    *place = Sender { key, ..Sender::default() };
    place
}

#[inline]
fn hash(key: u64) -> usize {
    // The fractional part of the golden ratio spreads keys that follow each other; the top bits depend on all others.
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize
}

/// Time in units of at least a jiffy of most kernels, 1.05 ms.
#[inline]
fn tick(now: Time) -> u32 {
    (now.as_nanos() >> 20) as u32
}
