//! The IPv4 IDs of datagrams whose IP header the socket hides.
//!
//! The ICRC covers the ID. Solving for the ID leaves only 16 of the ICRC's 32 bits to detect damage: one in 2^16
//! damaged datagrams has an ID that explains the damage away. So the IDs that a sender has used so far determine which
//! IDs can come next, and only these pass. `docs/decisions/0001-hidden-ids.md` gives the reasons, and how much is left
//! to chance.
//!
//! Linux numbers in three ways: with 0, and 1, 2, … for the segments of one send; with a counter for each connected
//! socket; and with counters that sockets share, which also jump ahead by up to the jiffies that have passed
//! (`ip_idents_reserve` in net/ipv4/route.c; kernel rxe uses these). NICs count in their own way, or not at all.
//!
//! A counter numbers what goes to an address. If other processes receive there as well, this one sees a part of the
//! numbers, and those between belong to what the others have got.

mod numbering;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use softrnic_wire::Time;

use super::DropReason;
use numbering::{LOST, Numbering, Silence};

/// The table of senders: this many sets of this many entries.
const SETS: usize = 256;
const WAYS: usize = 4;
/// Addresses whose last ID is remembered; more than this share entries.
const HOSTS: usize = 256;
/// Numberings per sender: several processes may share an address and a port.
const NUMBERINGS: usize = 3;
/// This many datagrams in a row that are sound but for an unexpected ID, with no unexplained one between them, are not
/// an accident: a damaged datagram yields any one ID with a chance of 2^-16.
const STRIKES: u8 = 3;
/// A known sender keeps its entry for this many ticks after it was last heard.
const KEPT: u32 = 1 << 10;
/// After this many ticks of silence a counter that jumps may be anywhere.
const FORGOTTEN: u32 = 1 << 16;

/// A datagram this little behind the last one of its host is late, and does not start a new sequence.
const LATE: u16 = 64;

/// Set in the keys of entries that are in use.
const TAKEN: u64 = 1 << 63;

/// What has been seen of senders, which are identified by address and source port.
pub struct HiddenIds {
    senders: Box<[Sender]>,
    hosts: Box<[Host]>,
    /// Stands in for a sender that gets no entry.
    nobody: Sender,
    /// Whether other processes receive at the same address.
    with_others: bool,
}

/// One sender.
#[derive(Clone, Copy, Default)]
struct Sender {
    /// Address and port, and [`TAKEN`]; 0 for a free entry.
    key: u64,
    /// When it was last heard, sound or not.
    heard: u32,
    was_heard: bool,
    /// Whether a datagram has been as expected.
    is_known: bool,
    /// Unexpected datagrams in a row, and when the last came.
    strikes: u8,
    struck: u32,
    /// The likeliest first.
    numberings: [Option<Numbering>; NUMBERINGS],
    /// The numbering that the last unexpected datagram would start. The next may prove it, but not after damage: the
    /// same damage again would lead to the same ID.
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
            with_others: false,
        }
    }

    /// Another process receives at the same address. It stays so: what came for it before it ended is missing here.
    pub fn share(&mut self) {
        self.with_others = true;
    }

    /// The ID of a datagram at the given position in its send. `recover` verifies the datagram with the ID passed to
    /// it, or returns the other ID that would make it sound, if there is one.
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
            Some(id) => sender.accepts(host, self.with_others, tick, address, place, id),
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
    /// The likeliest ID of the next datagram; for an unknown sender, that of one that numbers from 0.
    #[inline]
    fn expected(&self, place: u16) -> u16 {
        self.numberings[0].as_ref().map_or(place, |numbering| numbering.expected(place))
    }

    /// Records an ID that was expected; returns whether it was.
    #[inline]
    fn follow(&mut self, place: u16, id: u16) -> bool {
        let Some(numbering) = &mut self.numberings[0] else { return false };
        numbering.follow(place, id);
        self.is_known = true;
        true
    }

    /// Whether an ID other than the likeliest can be this sender's.
    #[cold]
    fn accepts(
        &mut self,
        host: &Host,
        with_others: bool,
        tick: u32,
        address: u32,
        place: u16,
        id: u16,
    ) -> bool {
        let silence = Silence { ticks: tick.wrapping_sub(self.heard), with_others };
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
        // Linux gives 0 to datagrams with DF from an unconnected socket.
        let is_zero = id == 0 || id == place;
        if !self.was_heard || is_zero || host.is_at(address, with_others, tick, id) {
            self.numberings.rotate_right(1);
            self.numberings[0] = Some(Numbering::starting(place, id));
            return true;
        }
        if tick.wrapping_sub(std::mem::replace(&mut self.struck, tick)) > FORGOTTEN {
            self.strikes = 0;
        }
        self.strikes = self.strikes.saturating_add(1);
        match &mut self.numberings[0] {
            // It numbers in its own way, and needs as wide a margin for the next such datagrams to pass.
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
        // Late datagrams do not move it back.
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

    /// Whether a counter that the ports of `address` share can have reached `id`.
    fn is_at(&self, address: u32, with_others: bool, tick: u32, id: u16) -> bool {
        let ahead = i32::from(id.wrapping_sub(self.id).wrapping_sub(1) as i16);
        // Datagrams read together may have been sent at any time since the previous reading.
        let since = if self.heard == tick { self.heard_before } else { self.heard };
        let silence = Silence { ticks: tick.wrapping_sub(since), with_others };
        // An ID of 0 more likely comes from a socket that does not count.
        self.address == address && self.id != 0 && numbering::is_within(ahead, LOST.into(), silence)
    }
}

/// The entry of a sender. A sender that was verified and heard recently is not replaced, whatever arrives from others.
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

/// Finds an entry for a sender that is new, or whose entry was replaced.
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
    // The fractional part of the golden ratio spreads consecutive keys; the top bits depend on all others.
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize
}

/// Time in units of at least a jiffy of most kernels, 1.05 ms.
#[inline]
fn tick(now: Time) -> u32 {
    (now.as_nanos() >> 20) as u32
}
