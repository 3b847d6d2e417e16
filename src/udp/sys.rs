//! The socket calls of the UDP link as safe functions; all of its `unsafe` is here.
//!
//! Connecting, sending and receiving go through `syscall`, since the C library's wrappers are cancellation points and a
//! thread cancelled inside one would never release the NIC.

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use super::members::Instruction;
use super::message::{Control, SockAddr};

/// A non-blocking UDP socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: RawFd,
}

impl Socket {
    pub(super) fn open(v6: bool) -> io::Result<Socket> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(family, kind, 0) })?;
        let socket = Socket { fd };
        if v6 {
            socket.set(libc::SOL_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        Ok(socket)
    }

    pub(super) fn bind(&self, address: &SockAddr) -> io::Result<()> {
        // SAFETY: the pointer and length describe the bytes of `address`, which the kernel only reads.
        check(unsafe { libc::bind(self.fd, address.as_ptr().cast(), address.len()) })?;
        Ok(())
    }

    /// Makes `address` the default destination.
    pub(super) fn connect(&self, address: &SockAddr) -> io::Result<()> {
        // SAFETY: the pointer and length describe the bytes of `address`, which the kernel only reads.
        let result = unsafe { libc::syscall(libc::SYS_connect, self.fd, address.as_ptr(), address.len()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Undoes [`Socket::connect`]; the socket stays bound.
    pub(super) fn disconnect(&self) -> io::Result<()> {
        self.connect(&SockAddr::nowhere())
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        let mut address = SockAddr::empty();
        let mut len = SockAddr::CAPACITY;
        // SAFETY: `address` has room for `len` bytes and outlives the call.
        check(unsafe { libc::getsockname(self.fd, address.as_mut_ptr().cast(), &mut len) })?;
        address.to_std(len).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// Sets an option that takes an `int`.
    pub(super) fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        self.set_value(level, name, &value)
    }

    /// Sets an option that takes a structure.
    pub(super) fn set_value<T: Copy>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and length describe `value`, which the kernel only reads.
        check(unsafe { libc::setsockopt(self.fd, level, name, ptr::from_ref(value).cast(), len) })?;
        Ok(())
    }

    pub(super) fn get(&self, level: c_int, name: c_int) -> io::Result<c_int> {
        let mut value: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: `value` has room for `len` bytes, and outlives the call.
        check(unsafe { libc::getsockopt(self.fd, level, name, ptr::from_mut(&mut value).cast(), &mut len) })?;
        Ok(value)
    }

    /// Datagrams dropped for lack of room, modulo 2^32.
    pub(super) fn drops(&self) -> u32 {
        /// From linux/sock_diag.h: the last of the values that the option returns.
        const SK_MEMINFO_DROPS: usize = 8;
        let mut figures = [0u32; SK_MEMINFO_DROPS + 1];
        let mut len = size_of_val(&figures) as libc::socklen_t;
        // SAFETY: `figures` has room for `len` bytes. If the call fails they stay 0.
        unsafe {
            libc::getsockopt(
                self.fd,
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                figures.as_mut_ptr().cast(),
                &mut len,
            );
        }
        figures[SK_MEMINFO_DROPS]
    }

    /// Another descriptor of the same socket.
    pub(super) fn duplicate(&self) -> io::Result<Socket> {
        Ok(Socket::from(self.as_fd().try_clone_to_owned()?))
    }

    /// Has `program` choose among the sockets that share the port of this one.
    pub(super) fn choose_by(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SO_ATTACH_REUSEPORT_CBPF, program)
    }

    /// Keeps out what `program` does not let in.
    pub(super) fn filter_by(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SO_ATTACH_FILTER, program)
    }

    /// Lets in everything again.
    pub(super) fn stop_filtering(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
    }

    fn set_program(&self, option: c_int, program: &[Instruction]) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: program.len() as libc::c_ushort,
            filter: program.as_ptr().cast_mut().cast(),
        };
        self.set_value(libc::SOL_SOCKET, option, &program)
    }

    /// Takes the datagram at the head of the queue, or as much of it as `bytes` has room for; returns how much that is.
    pub(super) fn take(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let nobody = ptr::null_mut::<libc::sockaddr>();
        let no_len = ptr::null_mut::<libc::socklen_t>();
        // SAFETY: the kernel fills at most `bytes`, which are exclusively borrowed; no address is requested.
        let len = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd,
                bytes.as_mut_ptr(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                nobody,
                no_len,
            )
        };
        if len < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
    }

    /// Takes the packet at the head of the error queue; returns how many bytes of `packet` were filled.
    pub(super) fn take_returned(&self, packet: &mut [u8]) -> io::Result<usize> {
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let nobody = ptr::null_mut::<libc::sockaddr>();
        let no_len = ptr::null_mut::<libc::socklen_t>();
        // SAFETY: the pointer and length describe `packet`, which is exclusively borrowed; no address is requested.
        let len = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd,
                packet.as_mut_ptr(),
                packet.len(),
                flags,
                nobody,
                no_len,
            )
        };
        if len < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
    }

    /// Waits until something is readable, at most `millis`.
    pub(super) fn wait_readable(&self, millis: c_int) -> io::Result<bool> {
        let mut entry = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let ready = check(unsafe { libc::poll(&mut entry, 1, millis) })?;
        Ok(ready > 0)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        close(self.fd);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the socket, which stays borrowed.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Socket {
        Socket { fd: descriptor.into_raw_fd() }
    }
}

/// Sets or takes away the lock of an open file on one byte (`F_WRLCK`, `F_UNLCK`), without waiting. `false` if another
/// has it.
pub(super) fn try_lock(file: BorrowedFd<'_>, byte: usize, kind: c_int) -> io::Result<bool> {
    let mut lock = lock_of(byte, kind);
    // SAFETY: the structure lives through the call, which reads it.
    let done = unsafe { libc::syscall(libc::SYS_fcntl, file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    match io::Error::last_os_error() {
        _ if done >= 0 => Ok(true),
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Whether another open file has a lock on a byte.
pub(super) fn is_locked(file: BorrowedFd<'_>, byte: usize) -> io::Result<bool> {
    let mut lock = lock_of(byte, libc::F_WRLCK);
    // SAFETY: the structure lives through the call, which reads and writes it.
    let done = unsafe { libc::syscall(libc::SYS_fcntl, file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(c_int::from(lock.l_type) != libc::F_UNLCK) }
}

fn lock_of(byte: usize, kind: c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

/// A socket for queries to the kernel about other sockets.
#[derive(Debug)]
pub(super) struct Diagnosis {
    fd: RawFd,
}

impl Diagnosis {
    pub(super) fn open() -> io::Result<Diagnosis> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) })?;
        Ok(Diagnosis { fd })
    }

    /// Sends a query, and returns how many bytes of `answer` were filled: the kernel answers before the first call
    /// returns.
    pub(super) fn ask(&self, question: &[u8], answer: &mut [u8]) -> io::Result<usize> {
        let nobody = ptr::null_mut::<libc::sockaddr>();
        // SAFETY: the pointer and length describe `question`, which the kernel only reads; no address is given.
        let sent = unsafe {
            libc::syscall(libc::SYS_sendto, self.fd, question.as_ptr(), question.len(), 0, nobody, 0)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let no_len = ptr::null_mut::<libc::socklen_t>();
        // SAFETY: the pointer and length describe `answer`, which is exclusively borrowed; no address is requested.
        let received = unsafe {
            libc::syscall(libc::SYS_recvfrom, self.fd, answer.as_mut_ptr(), answer.len(), 0, nobody, no_len)
        };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received as usize) }
    }
}

impl Drop for Diagnosis {
    fn drop(&mut self) {
        close(self.fd);
    }
}

/// One message for [`send_many`].
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    /// `None` for the peer that the socket is connected to.
    pub(super) to: Option<&'a SockAddr>,
    pub(super) payload: &'a [u8],
    pub(super) control: &'a [u8],
}

/// The most messages per call.
pub(super) const BATCH: usize = 32;

/// Sends the first [`BATCH`] of `messages` in one call; returns how many the kernel accepted. An error concerns only
/// the first message.
pub(super) fn send_many<'a>(
    socket: &Socket,
    messages: impl Iterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    let mut messages = messages.peekable();
    let first = messages.next();
    if let (Some(only), None) = (first, messages.peek())
        && only.control.is_empty()
    {
        return send_one(socket, &only);
    }
    let messages = first.into_iter().chain(messages);
    let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    // The arrays come first in the zip: a message is only taken if there is room for it.
    for ((iovec, header), message) in iovecs.iter_mut().zip(&mut headers).zip(messages) {
        let iovec = iovec.write(libc::iovec {
            iov_base: message.payload.as_ptr().cast_mut().cast(),
            iov_len: message.payload.len(),
        });
        // SAFETY: integers and pointers, for which zero is valid.
        let header = header.write(unsafe { mem::zeroed() });
        if let Some(to) = message.to {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
        }
        header.msg_hdr.msg_iov = iovec;
        header.msg_hdr.msg_iovlen = 1;
        if !message.control.is_empty() {
            header.msg_hdr.msg_control = message.control.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_controllen = message.control.len();
        }
        count += 1;
    }
    let headers = headers.as_mut_ptr();
    // SAFETY: the first `count` headers are initialised; what they point to is borrowed for `'a` or lives
    // in `iovecs`, and sending only reads it. An mmsghdr begins with its msghdr.
    let sent = unsafe {
        match count {
            // Cheaper than a batch of one.
            1 => libc::syscall(libc::SYS_sendmsg, socket.fd, headers, libc::MSG_NOSIGNAL).min(1),
            _ => libc::syscall(
                libc::SYS_sendmmsg,
                socket.fd,
                headers,
                count as libc::c_uint,
                libc::MSG_NOSIGNAL,
            ),
        }
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// A message without control messages is cheaper to send without a header.
fn send_one(socket: &Socket, message: &Outgoing<'_>) -> io::Result<usize> {
    // SAFETY: the pointers and lengths describe initialised bytes that outlive the call, which only reads them.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket.fd,
            message.payload.as_ptr(),
            message.payload.len(),
            libc::MSG_NOSIGNAL,
            message.to.map_or(ptr::null(), SockAddr::as_ptr),
            message.to.map_or(0, SockAddr::len),
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) }
}

/// Buffers for one received message.
pub(super) struct Incoming<'a> {
    pub(super) buffer: &'a mut [u8],
    pub(super) meta: &'a mut IncomingMeta,
}

/// What the kernel returned about one received message.
#[derive(Clone, Copy)]
pub(super) struct IncomingMeta {
    pub(super) from: SockAddr,
    pub(super) from_len: u32,
    pub(super) control: Control,
    pub(super) control_len: usize,
    pub(super) len: usize,
    pub(super) flags: c_int,
}

impl IncomingMeta {
    pub(super) fn new() -> IncomingMeta {
        IncomingMeta {
            from: SockAddr::empty(),
            from_len: 0,
            control: Control::new(),
            control_len: 0,
            len: 0,
            flags: 0,
        }
    }
}

/// Receives one message, without blocking. Cheaper than a batch of one, which would also check for a second.
pub(super) fn receive_one(socket: &Socket, room: Incoming<'_>) -> io::Result<()> {
    let Incoming { buffer, meta } = room;
    let mut iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: integers and pointers, for which zero is valid.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = meta.from.as_mut_ptr().cast();
    header.msg_namelen = SockAddr::CAPACITY;
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = meta.control.as_mut_ptr().cast();
    header.msg_controllen = Control::CAPACITY;
    // SAFETY: the header points to `iovec` and `meta`, and `iovec` to `buffer`, with their lengths; all outlive the
    // call, and the latter two are exclusively borrowed.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, socket.fd, &raw mut header, libc::MSG_DONTWAIT) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    meta.len = len as usize;
    meta.flags = header.msg_flags;
    meta.from_len = header.msg_namelen;
    meta.control_len = header.msg_controllen;
    Ok(())
}

/// Receives into as many of `room` (at most [`BATCH`]) as there are messages, without blocking.
pub(super) fn receive_many<'a>(
    socket: &Socket,
    room: impl Iterator<Item = Incoming<'a>>,
) -> io::Result<usize> {
    let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut metas: [*mut IncomingMeta; BATCH] = [ptr::null_mut(); BATCH];
    let mut count = 0;
    for (((iovec, header), slot), incoming) in iovecs.iter_mut().zip(&mut headers).zip(&mut metas).zip(room) {
        let iovec = iovec.write(libc::iovec {
            iov_base: incoming.buffer.as_mut_ptr().cast(),
            iov_len: incoming.buffer.len(),
        });
        let meta: *mut IncomingMeta = incoming.meta;
        // SAFETY: the header is integers and pointers, for which zero is valid; `meta` is exclusively borrowed for
        // `'a`.
        unsafe {
            let header = header.write(mem::zeroed());
            header.msg_hdr.msg_name = (*meta).from.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = SockAddr::CAPACITY;
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = (*meta).control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = Control::CAPACITY;
        }
        *slot = meta;
        count += 1;
    }
    // SAFETY: the first `count` headers are initialised and point into distinct buffers and metas that
    // are exclusively borrowed for `'a`.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmmsg,
            socket.fd,
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
            ptr::null_mut::<libc::timespec>(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = received as usize;
    for (header, meta) in headers.iter().zip(metas).take(received) {
        // SAFETY: these headers were initialised above, and their metas are still exclusively borrowed.
        unsafe {
            let header = header.assume_init_ref();
            (*meta).len = header.msg_len as usize;
            (*meta).flags = header.msg_hdr.msg_flags;
            (*meta).from_len = header.msg_hdr.msg_namelen;
            (*meta).control_len = header.msg_hdr.msg_controllen;
        }
    }
    Ok(received)
}

/// An epoll instance over several sockets.
#[derive(Debug)]
pub(super) struct Epoll {
    fd: RawFd,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Epoll { fd })
    }

    pub(super) fn add(&self, socket: &Socket, events: c_int) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, events)
    }

    pub(super) fn modify(&self, socket: &Socket, events: c_int) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, events)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    fn control(&self, operation: c_int, socket: &Socket, events: c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: 0 };
        // SAFETY: `event` outlives the call, which reads it.
        check(unsafe { libc::epoll_ctl(self.fd, operation, socket.fd, &mut event) })?;
        Ok(())
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        close(self.fd);
    }
}

/// Fills `bytes` with unpredictable bytes.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the pointer and length describe `bytes`, which is exclusively borrowed.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    match got {
        got if got < 0 => Err(io::Error::last_os_error()),
        got if got as usize == bytes.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EINTR)),
    }
}

/// The MTU of the interface called `name`.
pub(super) fn interface_mtu(socket: &Socket, name: &[u8]) -> io::Result<usize> {
    // SAFETY: integers, for which zero is valid, and a union whose pointers may be null.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name, which ends with a zero, and writes the MTU inside `request`.
    check(unsafe { libc::ioctl(socket.fd, libc::SIOCGIFMTU, &mut request) })?;
    // SAFETY: the kernel has just set this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// Calls `visit` with the name, flags and address of each interface address of the machine.
pub(super) fn for_each_address(mut visit: impl FnMut(&[u8], u32, SocketAddr)) -> io::Result<()> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `head` outlives the call, which stores the start of a list there; it is freed below.
    check(unsafe { libc::getifaddrs(&mut head) })?;
    let mut entry = head;
    while !entry.is_null() {
        // SAFETY: a node of the list, which has not been freed yet; its name is a C string (getifaddrs(3)).
        let (node, name) = unsafe { (&*entry, std::ffi::CStr::from_ptr((*entry).ifa_name)) };
        entry = node.ifa_next;
        if node.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: not null, so an address that begins with its family, of the size of that family (getifaddrs(3)).
        let address = unsafe {
            match c_int::from((*node.ifa_addr).sa_family) {
                libc::AF_INET => SockAddr::copy_from(node.ifa_addr.cast(), size_of::<libc::sockaddr_in>()),
                libc::AF_INET6 => SockAddr::copy_from(node.ifa_addr.cast(), size_of::<libc::sockaddr_in6>()),
                _ => continue,
            }
        };
        if let Some(address) = address.to_std(address.len()) {
            visit(name.to_bytes(), node.ifa_flags, address);
        }
    }
    // SAFETY: the list came from getifaddrs and is no longer used.
    unsafe { libc::freeifaddrs(head) };
    Ok(())
}

/// The index of the interface called `name`.
pub(super) fn interface_index(socket: &Socket, name: &[u8]) -> io::Result<u32> {
    // SAFETY: integers, for which zero is valid, and a union whose pointers may be null.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: SIOCGIFINDEX reads the name, which ends with a zero, and writes the index inside `request`.
    check(unsafe { libc::ioctl(socket.fd, libc::SIOCGIFINDEX, &mut request) })?;
    // SAFETY: the kernel has just set this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn close(fd: RawFd) {
    // SAFETY: takes no pointers; the descriptor is owned by the value that is being dropped. `close` of the C library
    // would be a cancellation point.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}
