//! UDP sockets with segmentation and coalescing, as thin as they can be.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Datagrams that leave in one send: `len` bytes from `start`, cut every `segment` bytes.
#[derive(Clone, Copy)]
pub struct Run {
    pub start: usize,
    pub len: usize,
    pub segment: usize,
}

/// Datagrams and bytes of one segmented send.
pub const MAX_SEGMENTS: usize = 64;
pub const MAX_RUN: usize = 65_493;

/// Sends of one call.
const BATCH: usize = 32;

/// A socket. What sends is connected to its peer, so that no route is looked up for each send. The kernel numbers what it
/// sends from a random IPv4 ID on, which a NIC has to know; here ICRCs are computed as if it counted from 0.
pub struct Socket {
    socket: UdpSocket,
    /// Whether each receive asks who has sent.
    asks: bool,
}

/// What a receive found.
pub struct Received {
    pub len: usize,
    /// Bytes of each of the datagrams in it but the last.
    pub segment: usize,
}

impl Socket {
    /// Asks for a receive buffer, as far as the system's limit allows.
    pub fn bind(address: Ipv4Addr, receive_buffer: usize) -> io::Result<Socket> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        let on = 1;
        let bytes = libc::c_int::try_from(receive_buffer).unwrap_or(libc::c_int::MAX);
        let options = [
            (libc::SOL_SOCKET, libc::SO_RCVBUF, bytes),
            (libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            (libc::SOL_UDP, libc::UDP_GRO, on),
        ];
        let socket = Socket { socket, asks: false };
        options.into_iter().try_for_each(|(level, name, value)| socket.set(level, name, value))?;
        Ok(socket)
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the options take an int, which lives through the call.
        let set =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Asks with each receive who has sent, and with which TOS.
    pub fn ask_for_origin(&mut self) -> io::Result<()> {
        self.asks = true;
        self.set(libc::SOL_IP, libc::IP_RECVTOS, 1)
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    pub fn connect(&self, address: Ipv4Addr, port: u16) -> io::Result<()> {
        self.socket.connect((address, port))
    }

    /// Sends all runs, which lie in `bytes`.
    pub fn send(&self, bytes: &[u8], mut runs: &[Run]) -> io::Result<()> {
        while !runs.is_empty() {
            match self.send_some(bytes, &runs[..runs.len().min(BATCH)]) {
                Ok(sent) => runs = &runs[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send_some(&self, bytes: &[u8], runs: &[Run]) -> io::Result<usize> {
        let mut controls = [[0_u64; 3]; BATCH];
        // SAFETY: all zero is valid for both.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (((run, control), vector), header) in
            runs.iter().zip(&mut controls).zip(&mut vectors).zip(&mut headers)
        {
            let payload = &bytes[run.start..run.start + run.len];
            *vector = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
            let header = &mut header.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            if run.len > run.segment {
                // struct cmsghdr (length, level and type) and its value.
                *control = [18, words(libc::SOL_UDP as u32, libc::UDP_SEGMENT as u32), run.segment as u64];
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = size_of_val(control) as _;
            }
        }
        // SAFETY: as many headers as runs are filled in, and what they point to outlives the call.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), runs.len() as u32, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Receives one datagram, or several that were coalesced, if any is there.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = [0_u64; 8];
        let mut origin = [0_u64; 4];
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zero is valid; the pointers go to live memory of the lengths given.
        let got = unsafe {
            let mut header: libc::msghdr = mem::zeroed();
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control) as _;
            if self.asks {
                header.msg_name = origin.as_mut_ptr().cast();
                header.msg_namelen = size_of_val(&origin) as _;
            }
            libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0)
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        let len = got as usize;
        let coalesced = control[1] == words(libc::SOL_UDP as u32, libc::UDP_GRO as u32);
        let segment = if coalesced { control[2] as u32 as usize } else { len };
        Ok(Some(Received { len, segment }))
    }
}

/// Two 32-bit words as they lie in memory one after the other.
fn words(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
