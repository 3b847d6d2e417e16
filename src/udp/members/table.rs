//! The table that the processes of an address share: a file in memory, where everyone has a process number, the name of
//! its lifelines, and the services that it listens for.
//!
//! It is read and written as a file, not mapped, so that what another process writes at the same time can do no harm. A
//! lock of an open file description (`F_OFD_SETLK`, fcntl(2)) on the byte of a slot says that the slot is taken, and one on
//! the byte behind those that the table is being changed. The kernel releases both when a process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use softrnic_wire::ServiceId;

use crate::sys;
use softrnic_link::{MAX_SERVICES, ProcessSlot, ServeError};

const MEMBER: usize = 12;
const SERVICE: usize = 12;
const SERVICES_AT: usize = ProcessSlot::COUNT * MEMBER;
const LEN: usize = SERVICES_AT + MAX_SERVICES * SERVICE;
/// The byte whose lock is for changes.
const CHANGES: usize = ProcessSlot::COUNT;
/// A service entry that is free.
const NOBODY: u32 = u32::MAX;

/// A process of the address.
#[derive(Clone, Copy)]
pub struct Member {
    pub process: u32,
    /// The name of its lifelines.
    pub lifelines: u64,
}

/// The table, as an open file of this process alone.
pub struct Table {
    file: OwnedFd,
    /// The slot that is locked with this open file.
    slot: Option<ProcessSlot>,
}

impl Table {
    pub fn create() -> io::Result<Table> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("softrnic-members", flags)?;
        rustix::fs::ftruncate(&file, LEN as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mut entries = Entries([0; LEN]);
        (0..MAX_SERVICES).for_each(|place| entries.set_service(place, ServiceId(0), NOBODY));
        rustix::io::pwrite(&file, &entries.0, 0)?;
        Table::open(&file)
    }

    /// The table that another process handed over. The locks belong to the open file, so this one is opened anew.
    pub fn open(file: &OwnedFd) -> io::Result<Table> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let own = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if rustix::fs::fstat(&own)?.st_size != LEN as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Table { file: own, slot: None })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes a slot if it is free, or any at random: which numbers a process has should not be known beforehand.
    pub fn take_a_slot(&mut self, wanted: Option<ProcessSlot>) -> io::Result<Option<ProcessSlot>> {
        let mut random = [0; 4];
        sys::random(&mut random)?;
        let slots = ProcessSlot::in_turn(u32::from_ne_bytes(random));
        for slot in slots.filter(|slot| wanted.is_none_or(|wanted| wanted == *slot)) {
            if sys::try_lock(self.file(), slot.number(), libc::F_WRLCK)? {
                self.slot = Some(slot);
                return Ok(self.slot);
            }
        }
        Ok(None)
    }

    /// The numbers of the processes that have a slot.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let entries = self.load()?;
        let taken =
            (0..ProcessSlot::COUNT).filter(|&number| entries.process(number) != 0 && self.is_taken(number));
        Ok(taken.map(|number| entries.process(number)).collect())
    }

    /// The process that has a slot.
    pub fn member(&self, slot: ProcessSlot) -> Option<Member> {
        let member = self.load().ok()?.member(slot);
        (member.process != 0 && self.is_taken(slot.number())).then_some(member)
    }

    /// Whether a process is in the table, be it that it has ended since.
    pub fn lists(&self, slot: ProcessSlot, process: u32) -> bool {
        self.load().is_ok_and(|entries| process != 0 && entries.process(slot.number()) == process)
    }

    fn is_taken(&self, number: usize) -> bool {
        // The lock of the own open file does not show.
        self.slot.is_some_and(|own| own.number() == number)
            || sys::is_locked(self.file(), number).unwrap_or(true)
    }

    /// Changes the table, and takes out those that have ended.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Entries) -> Result<(), ServeError>,
    ) -> Result<(), ServeError> {
        let lock = |kind| sys::try_lock(self.file(), CHANGES, kind).unwrap_or(false);
        if !lock(libc::F_WRLCK) {
            return Err(ServeError::Busy);
        }
        let changed = self.load().map_err(|_| ServeError::Busy).and_then(|mut entries| {
            self.forget_the_ended(&mut entries);
            change(&mut entries)?;
            rustix::io::pwrite(self.file(), &entries.0, 0).map_err(|_| ServeError::Busy)?;
            Ok(())
        });
        lock(libc::F_UNLCK);
        changed
    }

    fn load(&self) -> io::Result<Entries> {
        let mut entries = Entries([0; LEN]);
        match rustix::io::pread(self.file(), &mut entries.0[..], 0)? {
            LEN => Ok(entries),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A process that was killed had no time to say so.
    fn forget_the_ended(&self, entries: &mut Entries) {
        for slot in (0..ProcessSlot::COUNT).filter_map(ProcessSlot::new) {
            if entries.process(slot.number()) != 0 && !self.is_taken(slot.number()) {
                entries.end(slot);
            }
        }
    }
}

/// What is in the table.
pub struct Entries([u8; LEN]);

impl Entries {
    fn process(&self, number: usize) -> u32 {
        self.word(number * MEMBER)
    }

    fn member(&self, slot: ProcessSlot) -> Member {
        let at = slot.number() * MEMBER;
        Member { process: self.word(at), lifelines: self.double(at + 4) }
    }

    /// A process begins with a slot.
    pub fn begin(&mut self, slot: ProcessSlot, member: Member) {
        self.end(slot);
        let at = slot.number() * MEMBER;
        self.set_word(at, member.process);
        self.set_double(at + 4, member.lifelines);
    }

    /// Nobody has the slot any more.
    pub fn end(&mut self, slot: ProcessSlot) {
        self.set_word(slot.number() * MEMBER, 0);
        for place in 0..MAX_SERVICES {
            if self.service(place).is_some_and(|(_, owner)| owner == slot) {
                self.set_service(place, ServiceId(0), NOBODY);
            }
        }
    }

    pub fn add(&mut self, service: ServiceId, slot: ProcessSlot) -> Result<(), ServeError> {
        if let Some((_, owner)) = self.services().find(|(known, _)| *known == service) {
            return if owner == slot { Ok(()) } else { Err(ServeError::Taken) };
        }
        let free = (0..MAX_SERVICES).find(|&place| self.service(place).is_none());
        self.set_service(free.ok_or(ServeError::TooMany)?, service, slot.number() as u32);
        Ok(())
    }

    pub fn remove(&mut self, service: ServiceId, slot: ProcessSlot) {
        for place in 0..MAX_SERVICES {
            if self.service(place) == Some((service, slot)) {
                self.set_service(place, ServiceId(0), NOBODY);
            }
        }
    }

    pub fn services(&self) -> impl Iterator<Item = (ServiceId, ProcessSlot)> + '_ {
        (0..MAX_SERVICES).filter_map(|place| self.service(place))
    }

    /// The slots that processes have, in order.
    pub fn slots(&self) -> Vec<ProcessSlot> {
        (0..ProcessSlot::COUNT)
            .filter(|&number| self.process(number) != 0)
            .filter_map(ProcessSlot::new)
            .collect()
    }

    fn service(&self, place: usize) -> Option<(ServiceId, ProcessSlot)> {
        let at = SERVICES_AT + place * SERVICE;
        let service = ServiceId(self.double(at));
        Some((service, ProcessSlot::new(self.word(at + 8) as usize)?))
    }

    fn set_service(&mut self, place: usize, service: ServiceId, owner: u32) {
        let at = SERVICES_AT + place * SERVICE;
        self.set_double(at, service.0);
        self.set_word(at + 8, owner);
    }

    fn double(&self, at: usize) -> u64 {
        u64::from(self.word(at)) << 32 | u64::from(self.word(at + 4))
    }

    fn set_double(&mut self, at: usize, double: u64) {
        self.set_word(at, (double >> 32) as u32);
        self.set_word(at + 4, double as u32);
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|i| self.0[at + i]))
    }

    fn set_word(&mut self, at: usize, word: u32) {
        self.0[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
}
