//! What C may have at any address: libiscsi, for one, keeps its elements in packed structures.

/// A value that need not be aligned, so that a slice of them need not be either.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub(crate) struct Unaligned<T>(T);

impl<T: Copy> Unaligned<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Unaligned<T> {
        Unaligned(value)
    }

    #[inline(always)]
    pub(crate) fn get(self) -> T {
        self.0
    }
}
