//! An AF_XDP socket: only the system calls.
//!
//! Those of the data path go through `rustix`, which makes them directly: the C library's wrappers are cancellation
//! points, and a thread cancelled inside one would never release the NIC.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::net::{RecvFlags, SendFlags};
use softrnic_mapping::Mapping;

use super::memory::{Umem, of_socket};
use super::options::BusyPoll;
use super::ring::{Consumer, Desc, Offsets, Producer};

// asm-generic/socket.h; libc lacks the last two for most targets.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Bytes that the kernel keeps free before a received frame (`XDP_PACKET_HEADROOM`).
const PACKET_HEADROOM: usize = 256;

/// The longest frame that drivers deliver in one piece: a page less headroom and `skb_shared_info`.
const LINEAR_FRAME: usize = 4096 - PACKET_HEADROOM - 320;

/// The longest frame that one chunk of this many bytes can receive.
pub fn single_buffer(chunk_size: u32) -> usize {
    (chunk_size as usize - PACKET_HEADROOM).min(LINEAR_FRAME)
}

/// An AF_XDP socket.
pub struct Xsk(OwnedFd);

/// Frames that the socket lost.
#[derive(Clone, Copy, Default, Debug)]
pub struct XskStatistics {
    /// Because no chunk or no entry of the receive ring was free.
    pub overruns: u64,
    /// Descriptors of ours that the kernel rejected.
    pub invalid: u64,
}

/// The four rings of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingKind {
    Fill,
    Completion,
    Receive,
    Transmit,
}

impl RingKind {
    fn size_option(self) -> libc::c_int {
        match self {
            RingKind::Fill => libc::XDP_UMEM_FILL_RING,
            RingKind::Completion => libc::XDP_UMEM_COMPLETION_RING,
            RingKind::Receive => libc::XDP_RX_RING,
            RingKind::Transmit => libc::XDP_TX_RING,
        }
    }

    fn page_offset(self) -> libc::off_t {
        match self {
            RingKind::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            RingKind::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
            RingKind::Receive => libc::XDP_PGOFF_RX_RING,
            RingKind::Transmit => libc::XDP_PGOFF_TX_RING,
        }
    }

    fn offsets(self, all: &libc::xdp_mmap_offsets) -> &libc::xdp_ring_offset {
        match self {
            RingKind::Fill => &all.fr,
            RingKind::Completion => &all.cr,
            RingKind::Receive => &all.rx,
            RingKind::Transmit => &all.tx,
        }
    }
}

impl Xsk {
    /// A new socket. Needs `CAP_NET_RAW`; the other calls do not.
    ///
    /// # Errors
    /// `EPERM` without the capability.
    pub fn new() -> io::Result<Xsk> {
        // SAFETY: takes no pointers; the descriptor is new and has no other owner.
        unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Xsk(OwnedFd::from_raw_fd(fd)))
        }
    }

    pub(super) fn from_fd(fd: OwnedFd) -> Xsk {
        Xsk(fd)
    }

    /// Registers `umem`, which must outlive the socket, as its packet memory.
    pub(super) fn register(&self, umem: &Umem) -> io::Result<()> {
        // SAFETY: integers only, for which zero is valid.
        let mut registration: libc::xdp_umem_reg = unsafe { mem::zeroed() };
        registration.addr = umem.memory().base().as_ptr() as u64;
        registration.len = umem.memory().len() as u64;
        registration.chunk_size = umem.chunk_size() as u32;
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
    }

    /// Gives the socket a ring with this many entries.
    pub(super) fn size_ring(&self, ring: RingKind, size: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, ring.size_option(), &size)
    }

    pub(super) fn fill_ring(&self, size: u32) -> io::Result<Producer<u64>> {
        let (memory, offsets) = self.map_ring::<u64>(RingKind::Fill, size)?;
        Ok(Producer::new(memory, offsets, size))
    }

    pub(super) fn completion_ring(&self, size: u32) -> io::Result<Consumer<u64>> {
        let (memory, offsets) = self.map_ring::<u64>(RingKind::Completion, size)?;
        Ok(Consumer::new(memory, offsets, size))
    }

    pub(super) fn receive_ring(&self, size: u32) -> io::Result<Consumer<Desc>> {
        let (memory, offsets) = self.map_ring::<Desc>(RingKind::Receive, size)?;
        Ok(Consumer::new(memory, offsets, size))
    }

    pub(super) fn transmit_ring(&self, size: u32) -> io::Result<Producer<Desc>> {
        let (memory, offsets) = self.map_ring::<Desc>(RingKind::Transmit, size)?;
        Ok(Producer::new(memory, offsets, size))
    }

    /// Binds the socket to a queue. After a refusal it may be tried again with other flags.
    pub(super) fn bind(&self, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address has the given length, and lives through the call, which reads it.
        check(unsafe { libc::bind(self.raw(), (&raw const address).cast(), len) })
    }

    /// Has the driver polled by system calls of this process instead of by interrupts.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_busy_poll(&self, busy_poll: BusyPoll) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &busy_poll.micros)?;
        self.set(libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &busy_poll.budget)
    }

    /// Asks for a send buffer of this many bytes; the system's limit may be lower.
    pub(super) fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX))
    }

    /// Makes the kernel process the transmit ring.
    pub(super) fn wake_transmit(&self) -> io::Result<()> {
        rustix::net::send(self, &[], SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Makes the kernel process the fill ring, and poll the driver when busy polling.
    pub(super) fn wake_receive(&self) {
        // Failures show in the receive ring.
        let _failed = rustix::net::recv(self, &mut [0; 0][..], RecvFlags::DONTWAIT);
    }

    /// What the socket lost.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        // Older kernels fill in fewer fields.
        let (statistics, _) = self.get::<libc::xdp_statistics>(libc::XDP_STATISTICS)?;
        Ok(XskStatistics {
            overruns: statistics.rx_dropped + statistics.rx_ring_full,
            invalid: statistics.rx_invalid_descs + statistics.tx_invalid_descs,
        })
    }

    /// Maps a ring with this many entries; since Linux 6.4 also possible after the socket is bound.
    fn map_ring<T>(&self, kind: RingKind, size: u32) -> io::Result<(Mapping, Offsets)> {
        let (offsets, len) = self.get::<libc::xdp_mmap_offsets>(libc::XDP_MMAP_OFFSETS)?;
        if len < size_of::<libc::xdp_mmap_offsets>() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is older than 5.4"));
        }
        let ring = kind.offsets(&offsets);
        let entries = ring.desc as usize;
        let bytes = entries + size as usize * size_of::<T>();
        let memory = of_socket(self.as_fd(), bytes, kind.page_offset())?;
        let offsets = Offsets {
            producer: ring.producer as usize,
            consumer: ring.consumer as usize,
            entries,
            flags: Some(ring.flags as usize),
        };
        Ok((memory, offsets))
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value has the given length, and lives through the call, which reads it.
        check(unsafe { libc::setsockopt(self.raw(), level, option, (&raw const *value).cast(), len) })
    }

    /// The value of an option, zero where the kernel did not fill it in, and the number of bytes that it did.
    fn get<T>(&self, option: libc::c_int) -> io::Result<(T, usize)> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: callers, all in this file, ask for structures of integers, for which zero is valid, as is whatever
        // the kernel writes, which is at most the given length.
        unsafe {
            let mut value: T = mem::zeroed();
            let value_pointer = (&raw mut value).cast();
            check(libc::getsockopt(self.raw(), libc::SOL_XDP, option, value_pointer, &raw mut len))?;
            Ok((value, len as usize))
        }
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Xsk {
    fn as_raw_fd(&self) -> RawFd {
        self.raw()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
