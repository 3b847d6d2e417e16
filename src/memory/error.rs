use std::fmt;

/// Why a verb on protection domains, regions, windows or device memory was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryError {
    /// The object is still in use: users of a PD, windows bound to a region, regions on device memory.
    /// Verbs: EBUSY.
    Busy,
    /// No such protection domain. Verbs: EINVAL.
    UnknownPd,
    /// No such region, window or device memory. Verbs: EINVAL.
    UnknownObject,
    /// Length, address, iova or page list out of range. Verbs: EINVAL.
    InvalidArgument,
    /// The access flags contradict each other. Verbs: EINVAL.
    InvalidAccess,
    /// The operation does not apply to the object's state. Verbs: EINVAL.
    InvalidState,
    /// Flags or a kind of region that this device does not offer: unknown access bits, FLUSH_PERSISTENT,
    /// ON_DEMAND where the system forbids `process_vm_readv`, re-registering other than an ordinary region.
    /// Verbs: EOPNOTSUPP.
    Unsupported,
    /// The range is not mapped, or not with the permissions needed. Verbs: EFAULT.
    BadAddress,
    /// A limit of the device or of the system is reached. Verbs: ENOMEM.
    NoMemory,
}

/// Why a window was not bound. All complete the work request with MW_BIND_ERR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BindError {
    /// No such window.
    UnknownWindow,
    /// No such region under that key.
    UnknownRegion,
    /// Queue pair, window and region are not of one protection domain.
    WrongPd,
    /// A type 2 window is bound already, or the region is not valid.
    State,
    /// The region lacks MW_BIND.
    NoBindAccess,
    /// The region is zero-based.
    ZeroBasedRegion,
    /// The window would let peers write a region without LOCAL_WRITE, or flush one that does not allow it.
    RegionAccess,
    /// Flags that a window of this type cannot have.
    WindowAccess,
    /// The window is not inside the region.
    Bounds,
    /// Length 0 for a type 2 window.
    ZeroLength,
}

/// Why a key was not invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InvalidateError {
    /// No such key.
    UnknownKey,
    /// The key belongs to another protection domain than the queue pair.
    WrongPd,
    /// The type 2 window is bound to another queue pair.
    WrongQp,
    /// Ordinary regions and type 1 windows cannot be invalidated.
    WrongKind,
    /// Windows are bound to the region.
    WindowsBound,
    /// A peer asked, and the region gives peers no access.
    Access,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "object is in use",
            Self::UnknownPd => "no such protection domain",
            Self::UnknownObject => "no such memory object",
            Self::InvalidArgument => "invalid length, address or page list",
            Self::InvalidAccess => "contradictory access flags",
            Self::InvalidState => "not possible in this state",
            Self::Unsupported => "not supported by this device",
            Self::BadAddress => "memory is not mapped with the access needed",
            Self::NoMemory => "out of resources",
        })
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownWindow => "no such memory window",
            Self::UnknownRegion => "no such memory region",
            Self::WrongPd => "protection domains differ",
            Self::State => "window or region in the wrong state",
            Self::NoBindAccess => "region does not allow windows",
            Self::ZeroBasedRegion => "region is zero-based",
            Self::RegionAccess => "window asks for more than the region allows",
            Self::WindowAccess => "access flags not possible for this window",
            Self::Bounds => "window exceeds the region",
            Self::ZeroLength => "type 2 window of length 0",
        })
    }
}

impl fmt::Display for InvalidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "no such key",
            Self::WrongPd => "protection domains differ",
            Self::WrongQp => "window is bound to another queue pair",
            Self::WrongKind => "key cannot be invalidated",
            Self::WindowsBound => "windows are bound to the region",
            Self::Access => "region gives peers no access",
        })
    }
}

impl std::error::Error for MemoryError {}
impl std::error::Error for BindError {}
impl std::error::Error for InvalidateError {}
