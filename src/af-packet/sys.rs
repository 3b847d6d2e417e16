//! The system calls.

use std::ffi::{CString, c_int};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Options of packet sockets (include/uapi/linux/if_packet.h) that the libc crate does not name.
const PACKET_IGNORE_OUTGOING: c_int = 23;
/// Bytes that may wait in each direction: some milliseconds of a fast network.
const BUFFER: c_int = 16 << 20;

/// Messages of one call.
pub const BATCH: usize = 32;
/// Room for what the kernel says of the VLAN tag that it has taken off.
const CONTROL: usize = 64;

/// A packet socket that gets all that arrives at an interface, and nothing that leaves by it.
pub fn open(interface: &str) -> io::Result<OwnedFd> {
    let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the name ends with a zero, and lives until the call returns.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    let index = index.cast_signed();
    // Without a protocol it gets nothing yet.
    let socket = rustix::net::socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_i32)?;
    set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1_i32)?;
    let everything = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everything)?;
    for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        // Without the capability the usual buffers must do.
        let _ = set(&socket, libc::SOL_SOCKET, option, &BUFFER);
    }
    // SAFETY: all zeros are a valid address of a packet socket.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address lives until the call returns, and the length is its own.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// `T` is what the option takes: an integer, or a structure without pointers.
fn set<T: Copy>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads the value, which lives until the call returns, and no more than its size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A message that was received: its length, and the VLAN tag that the kernel has taken off, with its Ethernet type.
#[derive(Clone, Copy, Default, Debug)]
pub struct Message {
    pub len: usize,
    pub vlan: Option<(u16, u16)>,
    pub is_cut: bool,
}

/// Receives as many messages as there are and buffers for them, without blocking.
pub fn receive(
    socket: &OwnedFd,
    buffers: &mut [Box<[u8]>; BATCH],
    messages: &mut [Message; BATCH],
) -> io::Result<usize> {
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut headers, mut iovecs): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) = unsafe { mem::zeroed() };
    // Aligned as control messages need it.
    let mut controls = [[0_u64; CONTROL / 8]; BATCH];
    for (((header, iovec), buffer), control) in
        headers.iter_mut().zip(&mut iovecs).zip(buffers.iter_mut()).zip(&mut controls)
    {
        *iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        header.msg_hdr.msg_iov = iovec;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = CONTROL as _;
    }
    // SAFETY: each header points to a buffer and a control buffer of its own, exclusively borrowed until the call
    // returns, with their lengths. A raw system call is no cancellation point.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmmsg,
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            BATCH as libc::c_uint,
            libc::MSG_DONTWAIT,
            ptr::null_mut::<libc::timespec>(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    for (message, header) in messages.iter_mut().zip(&headers).take(received as usize) {
        *message = Message {
            len: header.msg_len as usize,
            vlan: vlan_of(&header.msg_hdr),
            is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
    }
    Ok(received as usize)
}

fn vlan_of(header: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the kernel has written control messages into the buffer that the header names, and how long they are.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_PACKET && (*control).cmsg_type == libc::PACKET_AUXDATA {
                let data: libc::tpacket_auxdata = ptr::read_unaligned(libc::CMSG_DATA(control).cast());
                let is_there = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                let has_type = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                let kind = if has_type { data.tp_vlan_tpid } else { 0x8100 };
                return is_there.then_some((kind, data.tp_vlan_tci));
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    None
}

/// Sends frames, each with `header` before it. Returns how many the kernel took.
pub fn send(socket: &OwnedFd, header: &[u8], frames: &[Vec<u8>]) -> io::Result<usize> {
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut headers, mut iovecs): ([libc::mmsghdr; BATCH], [[libc::iovec; 2]; BATCH]) =
        unsafe { mem::zeroed() };
    let count = frames.len().min(BATCH);
    for ((message, iovecs), frame) in headers.iter_mut().zip(&mut iovecs).zip(frames) {
        for (iovec, bytes) in iovecs.iter_mut().zip([header, frame]) {
            *iovec = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        message.msg_hdr.msg_iov = iovecs.as_mut_ptr();
        message.msg_hdr.msg_iovlen = 2;
    }
    // SAFETY: the first `count` headers point to bytes that are borrowed until the call returns, and that it only reads.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmmsg,
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}
