use crate::key::Lkey;

/// Scatter/gather element: a piece of local memory that a work request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// Address in the space of the key: the virtual address, or the region's iova or offset.
    pub addr: u64,
    /// Length in bytes. An element of length 0 is skipped and its key never checked.
    pub length: u32,
    /// Key of the region.
    pub lkey: Lkey,
}
