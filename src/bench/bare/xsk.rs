//! An AF_XDP socket with its rings, as thin as it can be: one queue, one thread, frames of two chunks at most.
//!
//! It shares nothing with the `xdp` link but the XDP program, so that what the link costs shows.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aya::maps::{HashMap, XskMap};
use aya::programs::{Xdp, xdp::XdpMode};
use aya::{Ebpf, EbpfLoader};
use softrnic_wire::{Gid, MacAddr};
use softrnic_xdp_prog as xdp_prog;

use crate::process::Result;

pub const CHUNK: usize = 4096;
/// Chunks for receiving, and as many frames to be sent, of two chunks each.
const RECEIVE: u32 = 2048;
const TRANSMIT: u32 = 512;
/// Rings have twice the places, so that they are never full.
const RING: u32 = 4096;

/// See the [module](self).
pub struct Xsk {
    fd: OwnedFd,
    memory: *mut u8,
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    transmit: Ring<libc::xdp_desc>,
    /// Slots for frames to be sent, by offset of their first chunk.
    free: Vec<u64>,
    _program: Ebpf,
}

impl Xsk {
    /// Takes RoCEv2 datagrams for `address` from queue 0 of an interface.
    pub fn open(interface: &str, address: Ipv4Addr) -> Result<Xsk> {
        let fd = socket()?;
        let len = (RECEIVE + 2 * TRANSMIT) as usize * CHUNK;
        let memory = map(-1, len, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        // SAFETY: plain C data, for which all zero is valid.
        let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        registration.addr = memory as u64;
        registration.len = len as u64;
        registration.chunk_size = CHUNK as u32;
        set(&fd, libc::XDP_UMEM_REG, &registration)?;
        for ring in
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
        {
            set(&fd, ring, &RING)?;
        }
        let offsets = offsets(&fd)?;
        let mut xsk = Xsk {
            fill: Ring::map(&fd, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as i64)?,
            completion: Ring::map(&fd, &offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?,
            receive: Ring::map(&fd, &offsets.rx, libc::XDP_PGOFF_RX_RING)?,
            transmit: Ring::map(&fd, &offsets.tx, libc::XDP_PGOFF_TX_RING)?,
            free: (0..TRANSMIT).map(|slot| u64::from(RECEIVE + 2 * slot) * CHUNK as u64).collect(),
            _program: attach(interface, address, &fd)?,
            memory,
            fd,
        };
        for chunk in 0..RECEIVE {
            xsk.fill.push(u64::from(chunk) * CHUNK as u64);
        }
        xsk.fill.publish();
        xsk.bind(interface)?;
        Ok(xsk)
    }

    /// Room for a frame of at most two chunks; `None` while all slots are in use.
    pub fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            self.completion.take(|address| {
                // The second chunk of a frame completes too.
                let slot = address & !(CHUNK as u64 - 1);
                if (slot / CHUNK as u64 - u64::from(RECEIVE)).is_multiple_of(2) {
                    self.free.push(slot);
                }
            });
        }
        let slot = *self.free.last()?;
        assert!(len <= 2 * CHUNK);
        // SAFETY: inside the memory, in a slot that the kernel does not own; borrowed with `self`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.add(slot as usize), len) })
    }

    /// Queues the frame that was written to [`Xsk::slot`].
    pub fn commit(&mut self, len: usize) {
        let Some(addr) = self.free.pop() else { return };
        let first = len.min(CHUNK);
        let options = if len > CHUNK { libc::XDP_PKT_CONTD } else { 0 };
        self.transmit.push(libc::xdp_desc { addr, len: first as u32, options });
        if len > CHUNK {
            let (addr, len) = (addr + CHUNK as u64, (len - CHUNK) as u32);
            self.transmit.push(libc::xdp_desc { addr, len, options: 0 });
        }
    }

    /// Lets the kernel send what is queued.
    pub fn flush(&mut self) -> Result<()> {
        self.transmit.publish();
        while self.transmit.pending() > 0 {
            // SAFETY: no bytes and no address are given.
            let sent = unsafe {
                libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
            };
            let error = io::Error::last_os_error();
            if sent < 0 && !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Hands over the frames that have come, each in one or two pieces; returns how many there were.
    pub fn receive(&mut self, mut frame: impl FnMut(&[&[u8]]) -> Result<()>) -> Result<usize> {
        let mut frames = 0;
        let mut failure = Ok(());
        let mut first: Option<(u64, &[u8])> = None;
        while let Some(descriptor) = self.receive.peek() {
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            // SAFETY: the kernel has given the chunk to us with so many bytes in it, until it is pushed below.
            let piece: &[u8] = unsafe {
                std::slice::from_raw_parts(self.memory.add(descriptor.addr as usize), descriptor.len as usize)
            };
            if more && !self.receive.has_two() {
                break;
            }
            self.receive.advance();
            match (first.take(), more) {
                (None, true) => first = Some((descriptor.addr, piece)),
                (None, false) => {
                    frames += 1;
                    failure = failure.and_then(|()| frame(&[piece]));
                    self.fill.push(descriptor.addr & !(CHUNK as u64 - 1));
                }
                (Some((address, begin)), _) => {
                    frames += 1;
                    failure = failure.and_then(|()| frame(&[begin, piece]));
                    self.fill.push(address & !(CHUNK as u64 - 1));
                    self.fill.push(descriptor.addr & !(CHUNK as u64 - 1));
                }
            }
        }
        if frames > 0 {
            self.receive.release();
            self.fill.publish();
        }
        failure.map(|()| frames)
    }

    fn bind(&self, interface: &str) -> Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            // Multi-buffer needs kernel 6.6; without need-wakeup the driver is asked more than it must be.
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
            sxdp_ifindex: index(interface)?,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of_val(&address) as u32;
        // The kernel gives a queue back some time after its last socket was closed.
        let patience = Instant::now() + Duration::from_secs(2);
        loop {
            // SAFETY: the address is alive and of the length given.
            let done = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) };
            let busy = done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
            if !busy || Instant::now() > patience {
                return check("bind", done);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// One ring. Either side of all four is written the same way.
struct Ring<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    entries: *mut T,
    /// Our own index, and the other side's as it was seen last.
    ours: u32,
    theirs: u32,
}

impl<T: Copy> Ring<T> {
    fn map(fd: &OwnedFd, offset: &libc::xdp_ring_offset, place: i64) -> Result<Ring<T>> {
        let len = offset.desc as usize + RING as usize * size_of::<T>();
        let base = map(fd.as_raw_fd(), len, place, libc::MAP_SHARED)?;
        // SAFETY: the kernel's offsets are inside the mapping, which is never undone.
        unsafe {
            Ok(Ring {
                producer: base.add(offset.producer as usize).cast(),
                consumer: base.add(offset.consumer as usize).cast(),
                entries: base.add(offset.desc as usize).cast(),
                ours: 0,
                theirs: 0,
            })
        }
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: masked to a place in the ring.
        unsafe { self.entries.add((index & (RING - 1)) as usize) }
    }

    /// Adds an entry to a ring of which we are the producer. There is always room: a ring has more places
    /// than there are chunks.
    fn push(&mut self, entry: T) {
        // SAFETY: a place in the ring, which the kernel has consumed.
        unsafe { self.entry(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: in the mapping, and used atomically by both sides.
        unsafe { (*self.producer).store(self.ours, Ordering::Release) };
    }

    /// Published entries that the kernel has not consumed.
    fn pending(&self) -> u32 {
        // SAFETY: as for `publish`.
        self.ours.wrapping_sub(unsafe { (*self.consumer).load(Ordering::Acquire) })
    }

    /// Looks at the next entry of a ring of which we are the consumer.
    fn peek(&mut self) -> Option<T> {
        if self.theirs == self.ours {
            // SAFETY: as for `publish`.
            self.theirs = unsafe { (*self.producer).load(Ordering::Acquire) };
        }
        // SAFETY: the kernel has produced the entry.
        (self.theirs != self.ours).then(|| unsafe { self.entry(self.ours).read() })
    }

    /// Whether the entry after the one that was peeked at is there too.
    fn has_two(&mut self) -> bool {
        // SAFETY: as for `publish`.
        self.theirs = unsafe { (*self.producer).load(Ordering::Acquire) };
        self.theirs.wrapping_sub(self.ours) >= 2
    }

    fn advance(&mut self) {
        self.ours = self.ours.wrapping_add(1);
    }

    fn release(&mut self) {
        // SAFETY: as for `publish`.
        unsafe { (*self.consumer).store(self.ours, Ordering::Release) };
    }

    fn take(&mut self, mut each: impl FnMut(T)) {
        while let Some(entry) = self.peek() {
            self.advance();
            each(entry);
        }
        self.release();
    }
}

/// Steers datagrams for `address` on an interface to the socket, for as long as the value lives.
fn attach(interface: &str, address: Ipv4Addr, fd: &OwnedFd) -> Result<Ebpf> {
    let mut program = EbpfLoader::new().load(xdp_prog::OBJECT)?;
    let steer: &mut Xdp = program.program_mut(xdp_prog::STEER_FRAGS).ok_or("no such program")?.try_into()?;
    steer.load()?;
    steer.attach(interface, XdpMode::Driver)?;
    let mut sockets = XskMap::try_from(program.map_mut(xdp_prog::SOCKETS).ok_or("no map of sockets")?)?;
    sockets.set(0, fd.as_raw_fd(), 0)?;
    let addresses = program.map_mut(xdp_prog::ADDRESSES).ok_or("no map of addresses")?;
    HashMap::<_, [u8; 16], u8>::try_from(addresses)?.insert(
        Gid::from(std::net::IpAddr::V4(address)).0,
        1,
        0,
    )?;
    Ok(program)
}

/// The hardware address of an interface in this network namespace.
pub fn mac(interface: &str) -> Result<MacAddr> {
    let mut request = request(interface)?;
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: the request names an interface and has room for the answer.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    check("SIOCGIFHWADDR", done)?;
    // SAFETY: the kernel has filled in this member.
    let bytes = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(MacAddr(std::array::from_fn(|i| bytes[i] as u8)))
}

fn index(interface: &str) -> Result<u32> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(format!("no interface {interface}").into()),
        index => Ok(index),
    }
}

fn request(interface: &str) -> Result<libc::ifreq> {
    // SAFETY: plain C data, for which all zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err("the name of the interface is too long".into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn socket() -> Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new and owned by nobody else.
    unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        check("socket(AF_XDP)", fd)?;
        Ok(File::from_raw_fd(fd).into())
    }
}

fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> Result<()> {
    let len = size_of::<T>() as u32;
    // SAFETY: the value is alive and of the length given.
    let done =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, (&raw const *value).cast(), len) };
    check("setsockopt(SOL_XDP)", done)
}

fn offsets(fd: &OwnedFd) -> Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain C data, for which all zero is valid, and of the length given.
    unsafe {
        let mut offsets: libc::xdp_mmap_offsets = std::mem::zeroed();
        let mut len = size_of_val(&offsets) as u32;
        let place = (&raw mut offsets).cast();
        let done =
            libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, place, &raw mut len);
        check("XDP_MMAP_OFFSETS", done)?;
        Ok(offsets)
    }
}

/// Maps memory for good.
fn map(fd: libc::c_int, len: usize, offset: i64, flags: libc::c_int) -> Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: no address is asked for, so no existing mapping is touched.
    let base =
        unsafe { libc::mmap(ptr::null_mut(), len, protection, flags | libc::MAP_POPULATE, fd, offset) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    Ok(base.cast())
}

fn check(what: &str, result: libc::c_int) -> Result<()> {
    if result < 0 { Err(format!("{what}: {}", io::Error::last_os_error()).into()) } else { Ok(()) }
}
