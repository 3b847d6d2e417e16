//! The part of an object that C sees.

use std::cell::UnsafeCell;

/// A public struct inside an object of ours: C code, and other threads of ours, may read it at any time, and
/// fields that change are only ever accessed through raw pointers.
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
