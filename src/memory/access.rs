use bitflags::bitflags;

use crate::error::MemoryError;

bitflags! {
    /// What a region or window may be used for; values as in verbs (`IBV_ACCESS_*`).
    ///
    /// Unknown bits can be carried with `from_bits_retain`; registration then checks them.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u32 {
        /// The NIC may write on behalf of local work requests (receives, READ and atomic results).
        const LOCAL_WRITE = 1;
        /// Peers may WRITE and ATOMIC WRITE. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 2;
        /// Peers may READ.
        const REMOTE_READ = 4;
        /// Peers may execute atomics. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound to the region.
        const MW_BIND = 0x10;
        /// Addresses used with the key start at 0 instead of the registered virtual address.
        const ZERO_BASED = 0x20;
        /// Pages need not be present; copies tolerate unmapped memory.
        const ON_DEMAND = 0x40;
        /// Hint that the memory consists of huge pages; accepted, without effect.
        const HUGETLB = 0x80;
        /// Peers may FLUSH with global visibility.
        const FLUSH_GLOBAL = 0x100;
        /// Peers may FLUSH to persistence. Refused at registration: see [`MemoryError::Unsupported`].
        const FLUSH_PERSISTENT = 0x200;
        /// Optional hint; accepted, without effect.
        const RELAXED_ORDERING = 0x0010_0000;
    }
}

impl Access {
    /// All rights that a peer can have.
    pub const REMOTE: Self = Self::REMOTE_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC)
        .union(Self::FLUSH_GLOBAL)
        .union(Self::FLUSH_PERSISTENT);

    /// Bits 20 to 29: a device that does not know one of them ignores it (`IBV_ACCESS_OPTIONAL_RANGE`).
    const OPTIONAL: u32 = 0x3ff0_0000;

    /// The flags of a registration as this device honours them, optional ones dropped.
    ///
    /// IBTA 11.2.8: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE. FLUSH_PERSISTENT is refused: the promise it
    /// stands for needs persistent memory (IBTA A19; Linux rxe refuses other pages as well), and this device
    /// does not claim the capability.
    pub fn for_region(self) -> Result<Self, MemoryError> {
        const SUPPORTED: Access = Access::LOCAL_WRITE
            .union(Access::REMOTE_WRITE)
            .union(Access::REMOTE_READ)
            .union(Access::REMOTE_ATOMIC)
            .union(Access::MW_BIND)
            .union(Access::ZERO_BASED)
            .union(Access::ON_DEMAND)
            .union(Access::HUGETLB)
            .union(Access::FLUSH_GLOBAL);
        let asked = self.without_optional();
        if !SUPPORTED.contains(asked) {
            return Err(MemoryError::Unsupported);
        }
        if asked.writes_remotely() && !asked.contains(Self::LOCAL_WRITE) {
            return Err(MemoryError::InvalidAccess);
        }
        Ok(asked)
    }

    /// Whether peers could change memory with these rights.
    pub(crate) fn writes_remotely(self) -> bool {
        self.intersects(Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC))
    }

    pub(crate) fn without_optional(self) -> Self {
        Self::from_bits_retain(self.bits() & !Self::OPTIONAL)
    }
}
