//! The part of an object that C sees.

use std::cell::UnsafeCell;

/// A public struct inside an object of ours, which C code may read at any time. There is never a reference to it or to
/// a field: unchanging fields are read through the pointer, and fields that several threads may change in verbs are
/// accessed as atomics.
#[repr(transparent)]
pub(crate) struct Shown<T>(UnsafeCell<T>);

impl<T> Shown<T> {
    pub const fn new(value: T) -> Shown<T> {
        Shown(UnsafeCell::new(value))
    }

    /// The pointer to the object that C code uses.
    #[inline]
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}
