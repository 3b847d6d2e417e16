//! The ring of a segment: records of their own length, written by one side and read by the other.
//!
//! A record is a header of 16 bytes, a datagram, and padding to 16. The header has the record's number, counted by both
//! sides, so that what a writer has damaged or left unwritten is not taken for the next record. One that does not fit before the end begins at the
//! front, and so does any when the ring is empty and its first part is used up: what is hot stays hot, and a connection of
//! few messages touches few pages. Indices count bytes of all time. To begin again an empty ring moves them forward, on
//! both sides, so that all of its room is there.
//!
//! The other side may write anything. Indices are checked against what was known before, lengths against what was
//! copied out, and a record is copied before it is looked at.

use softrnic_link::COPIED_HEADERS;
use softrnic_mapping::SharedBytes;

use super::header::Sleep;
use super::segment::{MIN_CAPACITY, Own, Peer};

/// The longest datagram: a payload of 4096 bytes and any headers.
pub const MAX_DATAGRAM: usize = 4096 + 128;

pub(super) const ALIGN: usize = 16;
pub(super) const RECORD_HEADER: usize = 16;
/// The first word of a header that says to skip up to the end. No record has such a length.
pub(super) const SKIP: u32 = u32::MAX;
/// An empty ring goes on from the front once this much is used.
const HOT: usize = 16 << 10;
/// An ACK: BTH, AETH and ICRC.
const ACK_LEN: usize = 20;
/// Room that only what is as short as an ACK may use: it finds some although the peer has not read the data before it.
const HEADROOM: usize = 2 << 10;
/// The first word of a record's header: its length, and its number modulo 2^16.
pub(super) const fn first_word(len: usize, number: u16) -> u32 {
    (number as u32) << 16 | len as u32
}

/// Where a note says whether the datagram has an ICRC.
const ICRC_FLAG: usize = 6;
/// From this length on a payload may be left in its record: shorter ones are copied faster than they are told apart.
const LEFT_FROM: usize = 1024;

/// What has been written is shown this early, so that the peer can begin.
const SHOWN_EARLY: u64 = 8 << 10;
/// Records of datagrams up to this long are gathered in memory that only we have, and copied into the ring together before they
/// are shown. In the ring, whose lines the peer's processor has, each would have to wait for its lines to arrive, and a peer that
/// looks between an ACK and the message behind it would take them away again.
const SHORT: usize = 256;
/// The bytes of records that are gathered at most.
const MAX_GATHERED: usize = 512;

/// The lines of short records are fetched this far ahead: by the writer, whose processor has to take them from the reader's, and
/// by the reader. Where a line takes long to come, each of the two is half of the time of a short message.
const WRITTEN_AHEAD: usize = 192;
const READ_AHEAD: usize = 256;
/// What is fetched with each record: as much as one of 64 bytes of data takes.
const FETCHED: usize = 128;

// One that does not fit before the end and is skipped for fits into the rest.
const _: () = assert!(2 * record_len(MAX_DATAGRAM) + HEADROOM <= MIN_CAPACITY);
const _: () = assert!(record_len(SHORT) <= MAX_GATHERED);

pub(super) const fn record_len(datagram: usize) -> usize {
    (RECORD_HEADER + datagram).next_multiple_of(ALIGN)
}

/// What a record has beside a datagram.
pub(super) const NOTE_LEN: usize = RECORD_HEADER - size_of::<u32>();
pub(super) type Note = [u8; NOTE_LEN];

/// What travels beside a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Addressing {
    pub sport: u16,
    /// IPv4 identification.
    pub id: u16,
    pub tos: u8,
    pub ttl: u8,
    /// The datagram has its ICRC.
    pub has_icrc: bool,
}

/// The peer has violated the ring protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Corrupt {
    /// It says that it has read or written what it cannot have.
    Index,
    /// A record is longer than any datagram, or than what was written.
    Length,
    /// A record is not the one that comes next.
    Number,
}

/// Why nothing can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoRoom {
    /// The peer has to read first, and rings when it has.
    Full,
    Corrupt(Corrupt),
}

impl From<Corrupt> for NoRoom {
    fn from(corrupt: Corrupt) -> NoRoom {
        NoRoom::Corrupt(corrupt)
    }
}

/// Both directions: the ring in our segment, and that in the peer's.
pub(super) struct Rings {
    own: Own,
    peer: Peer,
    /// Written by us, and how far it has been shown.
    tail: u64,
    shown: u64,
    /// Read by the peer, as last seen, and up to where it can be written again: an empty ring has begun again there, which
    /// the peer sees with the next record.
    read: u64,
    freed: u64,
    /// The record that is being written: where it is and the datagram's length.
    reserved: Option<(usize, usize)>,
    /// Records written, modulo 2^16.
    written: u16,
    /// Short records that are not in the ring yet, and their bytes in all: those right before `tail`.
    gathered: [u8; MAX_GATHERED],
    gathered_len: usize,
    waits: bool,
    /// Read by us, and how far the peer knows.
    head: u64,
    published_head: u64,
    /// Written by the peer, as last seen.
    arrived: u64,
    /// Records taken, modulo 2^16.
    taken: u16,
    /// Of the record that was taken last: where its datagram is, and its length, if that was left there.
    left: Option<(usize, usize)>,
    /// The sleep of the peer's for which we have rung.
    rung: Sleep,
}

impl Rings {
    pub fn new(own: Own, peer: Peer) -> Rings {
        Rings {
            own,
            peer,
            tail: 0,
            shown: 0,
            read: 0,
            freed: 0,
            reserved: None,
            written: 0,
            gathered: [0; MAX_GATHERED],
            gathered_len: 0,
            waits: false,
            head: 0,
            published_head: 0,
            arrived: 0,
            taken: 0,
            left: None,
            rung: Sleep::NONE,
        }
    }

    /// Finds room for one datagram, which [`Rings::slot`] then is.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<(), NoRoom> {
        debug_assert!(len <= MAX_DATAGRAM);
        let capacity = self.own.capacity();
        let need = record_len(len);
        let mut at = self.own.place(self.tail);
        if at >= HOT && self.shown == self.tail {
            self.look_for_room()?;
            if self.freed == self.tail {
                self.begin_again();
                at = 0;
            }
        }
        let rest = capacity - at;
        let skip = if need > rest { rest } else { 0 };
        let room = skip + need + if len > ACK_LEN { HEADROOM } else { 0 };
        if !self.has_room(room) {
            self.look_for_room()?;
            if !self.has_room(room) {
                self.wait_for_room(room)?;
            }
        }
        // What is gathered is copied to one place of the ring.
        if at == 0 || skip > 0 || len > SHORT || self.gathered_len + need > MAX_GATHERED {
            self.put();
        }
        if skip > 0 {
            self.own.bytes_mut(at, 4).copy_from_slice(&SKIP.to_ne_bytes());
            self.tail += skip as u64;
            at = 0;
        }
        self.reserved = Some((at, len));
        Ok(())
    }

    /// What was reserved last, with stale contents.
    #[inline]
    pub fn slot(&mut self, addressing: Addressing) -> &mut [u8] {
        let Some((note, datagram)) = self.record() else { return &mut [] };
        note[..2].copy_from_slice(&addressing.sport.to_ne_bytes());
        note[2..4].copy_from_slice(&addressing.id.to_ne_bytes());
        note[4] = addressing.tos;
        note[5] = addressing.ttl;
        note[ICRC_FLAG] = addressing.has_icrc.into();
        datagram
    }

    /// The same, with any note beside it.
    pub fn slot_with(&mut self, note: &Note) -> &mut [u8] {
        let Some((place, datagram)) = self.record() else { return &mut [] };
        place.copy_from_slice(note);
        datagram
    }

    /// The note of the record that was reserved last, and its datagram.
    #[inline(always)]
    fn record(&mut self) -> Option<(&mut [u8], &mut [u8])> {
        let (at, len) = self.reserved?;
        let word = first_word(len, self.written);
        let record = if len <= SHORT {
            &mut self.gathered[self.gathered_len..][..RECORD_HEADER + len]
        } else {
            self.own.bytes_mut(at, RECORD_HEADER + len)
        };
        let (header, datagram) = record.split_at_mut(RECORD_HEADER);
        header[..4].copy_from_slice(&word.to_ne_bytes());
        Some((&mut header[4..], datagram))
    }

    fn has_room(&self, len: usize) -> bool {
        self.tail - self.freed + len as u64 <= self.own.capacity() as u64
    }

    /// Asks what the peer has read.
    fn look_for_room(&mut self) -> Result<(), Corrupt> {
        let read = self.peer.header().head();
        if read < self.read || read > self.shown {
            return Err(Corrupt::Index);
        }
        self.read = read;
        self.freed = self.freed.max(read);
        Ok(())
    }

    /// Goes on from the front of a ring that is empty.
    fn begin_again(&mut self) {
        let start = self.tail + (self.own.capacity() - self.own.place(self.tail)) as u64;
        self.own.header().begin_at(start);
        (self.tail, self.shown, self.freed) = (start, start, start);
    }

    /// Says that we wait, and looks once more: either the peer sees it, or we see what it has read.
    #[cold]
    fn wait_for_room(&mut self, len: usize) -> Result<(), NoRoom> {
        self.own.header().wait(true);
        self.waits = true;
        self.look_for_room()?;
        if self.has_room(len) { Ok(()) } else { Err(NoRoom::Full) }
    }

    /// The datagram that was reserved last.
    pub fn reserved(&self) -> &[u8] {
        let Some((at, len)) = self.reserved else { return &[] };
        if len <= SHORT {
            &self.gathered[self.gathered_len + RECORD_HEADER..][..len]
        } else {
            self.own.bytes(at + RECORD_HEADER, len)
        }
    }

    /// Queues what was reserved.
    #[inline]
    pub fn commit(&mut self) {
        let Some((at, len)) = self.reserved.take() else { return };
        if len <= SHORT {
            self.gathered_len += record_len(len);
            // A reader that waits for one record looks at the place of the next, whose line it would lose.
            if self.tail != self.shown {
                self.own.fetch(at + WRITTEN_AHEAD, FETCHED);
            }
        }
        self.tail += record_len(len) as u64;
        self.written = self.written.wrapping_add(1);
        // Not an ACK: the completion that it belongs to is to be visible first.
        if len > ACK_LEN && self.tail - self.shown >= SHOWN_EARLY {
            self.show();
        }
    }

    /// Copies what was gathered into the ring.
    #[inline]
    fn put(&mut self) {
        let len = std::mem::take(&mut self.gathered_len);
        let at = self.own.place(self.tail - len as u64);
        self.own.bytes_mut(at, len).copy_from_slice(&self.gathered[..len]);
    }

    /// Lets the peer see what is queued, and returns the sleep from which it is to be rung.
    pub fn flush(&mut self) -> Option<Sleep> {
        self.show();
        self.peer.header().to_be_woken(&mut self.rung)
    }

    /// Bytes that the peer has read, as far as we know.
    pub fn read_by_peer(&self) -> u64 {
        self.freed
    }

    /// Bytes that have gone in either direction, of all time.
    pub fn moved(&self) -> u64 {
        self.tail + self.head
    }

    /// Whether both sides have read everything.
    pub fn is_empty(&mut self) -> bool {
        self.look_for_room().is_ok() && self.freed == self.tail && self.look() == Ok(false)
    }

    /// Says that we sleep from now on, if nothing has come. Returns whether there is something to do instead.
    pub fn sleep(&mut self, sleep: Sleep) -> Result<bool, Corrupt> {
        self.own.header().sleep(sleep);
        Ok(self.look()? || self.has_room_again()?)
    }

    /// Says that we are awake.
    pub fn wake(&mut self) {
        self.own.header().wake();
    }

    /// Lets the peer see what is queued. One that sleeps does not.
    pub fn show(&mut self) {
        self.put();
        self.own.header().show(self.tail);
        self.shown = self.tail;
    }

    /// Takes the next datagram into `buffer`, which is long enough for any; returns its length. If its payload `may_stay`,
    /// a long one without ICRC is left behind its headers, in the [record](Rings::record_taken).
    #[inline]
    pub fn receive(
        &mut self,
        buffer: &mut [u8; MAX_DATAGRAM],
        may_stay: bool,
    ) -> Result<Option<(usize, Addressing)>, Corrupt> {
        let stays = |len: usize, note: &Note| may_stay && len >= LEFT_FROM && note[ICRC_FLAG] == 0;
        let Some((len, note)) = self.take_unless(buffer, stays)? else { return Ok(None) };
        let addressing = Addressing {
            sport: u16::from_ne_bytes([note[0], note[1]]),
            id: u16::from_ne_bytes([note[2], note[3]]),
            tos: note[4],
            ttl: note[5],
            has_icrc: note[ICRC_FLAG] != 0,
        };
        Ok(Some((len, addressing)))
    }

    /// What the last call of [`receive`](Rings::receive) has left in its record, until the peer is told that it was read.
    #[inline]
    pub fn record_taken(&self) -> Option<SharedBytes<'_>> {
        self.left.map(|(at, len)| self.peer.shared(at, len))
    }

    /// Takes the next datagram with the note that is beside it.
    #[inline]
    pub fn take(&mut self, buffer: &mut [u8; MAX_DATAGRAM]) -> Result<Option<(usize, Note)>, Corrupt> {
        self.take_unless(buffer, |_, _| false)
    }

    #[inline(always)]
    fn take_unless(
        &mut self,
        buffer: &mut [u8; MAX_DATAGRAM],
        stays: impl FnOnce(usize, &Note) -> bool,
    ) -> Result<Option<(usize, Note)>, Corrupt> {
        self.left = None;
        loop {
            if self.head == self.arrived && !self.look()? {
                return Ok(None);
            }
            let capacity = self.peer.capacity();
            let at = self.peer.place(self.head);
            let rest = capacity - at;
            // All lengths are multiples of it, so that there is a header wherever there is anything.
            let mut header = [0; RECORD_HEADER];
            self.peer.copy(at, &mut header);
            let word = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let here = (self.arrived - self.head).min(rest as u64);
            if word == SKIP {
                // A peer that skips from the front, where every skip leads, could keep us here.
                if here < rest as u64 || at == 0 {
                    return Err(Corrupt::Length);
                }
                self.head += rest as u64;
                continue;
            }
            let (len, number) = ((word & 0xFFFF) as usize, (word >> 16) as u16);
            if len > MAX_DATAGRAM || record_len(len) as u64 > here {
                return Err(Corrupt::Length);
            }
            if number != self.taken {
                return Err(Corrupt::Number);
            }
            // What has not been written yet is left to the writer.
            if len <= SHORT && self.arrived - self.head >= (READ_AHEAD + FETCHED) as u64 {
                self.peer.fetch(at + READ_AHEAD, FETCHED);
            }
            let note = std::array::from_fn(|i| header[4 + i]);
            let copied = if stays(len, &note) {
                self.left = Some((at + RECORD_HEADER, len));
                COPIED_HEADERS
            } else {
                len
            };
            self.peer.copy(at + RECORD_HEADER, &mut buffer[..copied]);
            self.head += record_len(len) as u64;
            self.taken = number.wrapping_add(1);
            return Ok(Some((len, note)));
        }
    }

    /// Asks what the peer has written, and returns whether there is something to receive.
    #[inline]
    pub fn look(&mut self) -> Result<bool, Corrupt> {
        let arrived = self.peer_tail();
        if arrived != self.head {
            let start = self.peer.header().start();
            if start > self.head {
                self.follow(start)?;
            }
        }
        let sound = arrived >= self.arrived.max(self.head)
            && arrived - self.head <= self.peer.capacity() as u64
            && arrived.is_multiple_of(ALIGN as u64);
        if !sound {
            return Err(Corrupt::Index);
        }
        self.arrived = arrived;
        Ok(self.arrived != self.head)
    }

    /// The peer's ring was empty and has begun again.
    fn follow(&mut self, start: u64) -> Result<(), Corrupt> {
        if self.peer.place(start) != 0 {
            return Err(Corrupt::Index);
        }
        self.head = start;
        Ok(())
    }

    /// Whether a look would find nothing, and the peer knows all that was read.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.head == self.published_head && self.peer_tail() == self.head
    }

    /// How far the peer's records go. The next one is fetched at the same time: a line that another processor has written
    /// takes long to come, and two at a time take no longer.
    #[inline]
    fn peer_tail(&self) -> u64 {
        self.peer.fetch(self.peer.place(self.head), FETCHED);
        self.peer.header().tail()
    }

    /// Whether so much was read that the peer should know, although there is more.
    pub fn has_read_much(&self) -> bool {
        self.head - self.published_head >= self.peer.capacity() as u64 / 4
    }

    /// Tells the peer what was read. Returns its sleep if it sleeps until then: it is to be rung.
    pub fn publish_head(&mut self) -> Option<Sleep> {
        if self.head == self.published_head {
            return None;
        }
        self.published_head = self.head;
        self.own.header().publish_head(self.head, self.peer.header(), &mut self.rung)
    }

    /// Whether we have waited for room that is there now.
    pub fn has_room_again(&mut self) -> Result<bool, Corrupt> {
        if !self.waits {
            return Ok(false);
        }
        self.look_for_room()?;
        let again = self.tail - self.freed <= self.own.capacity() as u64 / 2;
        if again {
            self.waits = false;
            self.own.header().wait(false);
        }
        Ok(again)
    }
}

#[cfg(test)]
impl Rings {
    /// What a broken peer might do.
    pub fn scribble(&mut self) {
        self.own.header().show(u64::MAX);
    }

    /// The same, to a peer that waits for room.
    pub fn scribble_what_was_read(&mut self) {
        let mut rung = Sleep::NONE;
        self.own.header().publish_head(u64::MAX, self.peer.header(), &mut rung);
    }
}

#[cfg(test)]
mod tests;
