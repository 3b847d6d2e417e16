//! The part of an object that C sees.

use std::cell::UnsafeCell;

/// A public struct inside an object of ours, which C code may read at any time. There is never a reference to it or to a
/// field: what does not change is read through the pointer, and what several threads may change in verbs is
/// an atomic's.
#[repr(transparent)]
pub(crate) struct Shown<T>(UnsafeCell<T>);

impl<T> Shown<T> {
    pub const fn new(value: T) -> Shown<T> {
        Shown(UnsafeCell::new(value))
    }

    /// What C code has as a pointer to the object.
    #[inline]
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}
