//! The objects of a kind: the live ones, and the destroyed ones.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::bed::Bed;
use crate::fuzz::Choices;

/// Live objects of a kind, and the last one destroyed.
pub(super) struct Known<T> {
    pub(super) live: Vec<*mut T>,
    pub(super) gone: *mut T,
}

impl<T> Known<T> {
    pub(super) fn new() -> Known<T> {
        Known { live: Vec::new(), gone: null_mut() }
    }

    pub(super) fn add(&mut self, object: *mut T) {
        if !object.is_null() {
            self.live.push(object);
        }
    }

    /// For the data path: live or null.
    pub(super) fn one(&self, choices: &mut Choices<'_>) -> *mut T {
        match usize::from(choices.byte()) {
            255 => null_mut(),
            byte => byte.checked_rem(self.live.len()).map_or(null_mut(), |index| self.live[index]),
        }
    }

    /// For everything else: perhaps destroyed, of another kind, or not an object.
    pub(super) fn any(&self, choices: &mut Choices<'_>, bed: &Bed) -> *mut T {
        match choices.byte() {
            255 => null_mut(),
            254 => self.gone,
            253 => bed.memory.cast(),
            252 => bed.contexts[0].cast(),
            byte => {
                usize::from(byte).checked_rem(self.live.len()).map_or(self.gone, |index| self.live[index])
            }
        }
    }

    /// The result of a verb that destroys an object.
    pub(super) fn destroyed(&mut self, object: *mut T, status: c_int) {
        if status == 0 {
            let before = self.live.len();
            self.live.retain(|live| *live != object);
            assert_eq!(self.live.len() + 1, before, "what was not there was destroyed");
            self.gone = object;
        }
    }

    pub(super) fn full(&self) -> bool {
        self.live.len() >= 6
    }
}
