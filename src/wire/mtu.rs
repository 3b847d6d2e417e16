//! Path MTU: the payload size of every packet of a message but the last.

/// An InfiniBand path MTU. Its order is the order of sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All sizes, smallest first.
    pub const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// Bytes that rxe sets aside for headers when it derives a port's MTU from its interface's.
    pub const NETDEV_OVERHEAD: u32 = 80;

    /// Payload bytes per packet.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// The code 1..=5 used by verbs and CM messages.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The size for a code, `None` outside 1..=5.
    pub const fn from_code(code: u8) -> Option<Mtu> {
        match code {
            1 => Some(Mtu::B256),
            2 => Some(Mtu::B512),
            3 => Some(Mtu::B1024),
            4 => Some(Mtu::B2048),
            5 => Some(Mtu::B4096),
            _ => None,
        }
    }

    /// The MTU of exactly `bytes`, if there is one.
    pub const fn from_bytes(bytes: u32) -> Option<Mtu> {
        match bytes {
            256 => Some(Mtu::B256),
            512 => Some(Mtu::B512),
            1024 => Some(Mtu::B1024),
            2048 => Some(Mtu::B2048),
            4096 => Some(Mtu::B4096),
            _ => None,
        }
    }

    /// The MTU a port reports for a network interface's MTU, by rxe's rule: take off
    /// [`Mtu::NETDEV_OVERHEAD`], round down, and never say less than 256.
    pub const fn from_netdev_mtu(netdev_mtu: u32) -> Mtu {
        match netdev_mtu.saturating_sub(Self::NETDEV_OVERHEAD) {
            4096.. => Mtu::B4096,
            2048.. => Mtu::B2048,
            1024.. => Mtu::B1024,
            512.. => Mtu::B512,
            _ => Mtu::B256,
        }
    }

    /// How many packets, and so PSNs, a message of `len` bytes takes: at least one.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        let n = len.div_ceil(self.bytes());
        if n == 0 { 1 } else { n }
    }
}
