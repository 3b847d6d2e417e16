use rustc_hash::FxHashMap;

use crate::error::MemoryError;

/// Protection domain. Values are not reused until all 2^32 have been used, so a stale one names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PdId(u32);

impl PdId {
    /// The domain whose value is `value`, if there is one.
    pub fn new(value: u32) -> PdId {
        PdId(value)
    }

    /// The value, to show or to pass through C.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The protection domains and how many objects use each.
#[derive(Default)]
pub(crate) struct PdTable {
    users: FxHashMap<u32, u64>,
    last: u32,
}

impl PdTable {
    pub(crate) fn alloc(&mut self, max: usize) -> Result<PdId, MemoryError> {
        if self.users.len() >= max || self.users.try_reserve(1).is_err() {
            return Err(MemoryError::NoMemory);
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.users.contains_key(&self.last) {
                self.users.insert(self.last, 0);
                return Ok(PdId(self.last));
            }
        }
    }

    pub(crate) fn dealloc(&mut self, pd: PdId) -> Result<(), MemoryError> {
        match self.users.get(&pd.0) {
            None => Err(MemoryError::UnknownPd),
            Some(0) => {
                self.users.remove(&pd.0);
                Ok(())
            }
            Some(_) => Err(MemoryError::Busy),
        }
    }

    pub(crate) fn retain(&mut self, pd: PdId) -> Result<(), MemoryError> {
        let users = self.users.get_mut(&pd.0).ok_or(MemoryError::UnknownPd)?;
        *users += 1;
        Ok(())
    }

    pub(crate) fn release(&mut self, pd: PdId) {
        let users = self.users.get_mut(&pd.0);
        debug_assert!(users.as_ref().is_some_and(|n| **n > 0), "release without retain");
        if let Some(users) = users {
            *users = users.saturating_sub(1);
        }
    }

    pub(crate) fn contains(&self, pd: PdId) -> bool {
        self.users.contains_key(&pd.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PdId, u64)> {
        self.users.iter().map(|(pd, users)| (PdId(*pd), *users))
    }

    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }
}
