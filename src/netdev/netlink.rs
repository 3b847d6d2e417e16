//! Requests and notifications on a plain, non-blocking rtnetlink socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A part of a dump never exceeds this (`NLMSG_GOODSIZE` grows to 32 KiB with the reader's buffer).
const BUFFER_LEN: usize = 64 << 10;
/// Enough for the notifications when some thousand neighbours change at once.
const NOTIFICATION_BUFFER: usize = 1 << 20;

/// A socket for requests. The kernel answers before `send` returns, so nothing here blocks.
pub(super) struct Requests {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Requests {
    pub(super) fn open() -> io::Result<Requests> {
        Ok(Requests { socket: open_socket(0)?, sequence: 0, buffer: vec![0; BUFFER_LEN] })
    }

    /// A request with one answer.
    pub(super) fn get(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let mut answer = None;
        self.exchange(message, NLM_F_REQUEST, &mut |message| answer = Some(message))?;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// All objects of a kind.
    pub(super) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        sink: &mut dyn FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_DUMP, sink)
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        sink: &mut dyn FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let len = receive(&self.socket, &mut self.buffer)?;
            let is_dump = flags & NLM_F_DUMP != 0;
            if let Some(end) = take_answer(&self.buffer[..len], self.sequence, is_dump, sink) {
                return end;
            }
        }
    }
}

/// What [`Notifications::drain`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drained {
    Complete,
    /// The kernel dropped notifications: everything must be read anew.
    Lost,
}

/// A socket for changes of links, addresses, routes, rules and neighbours.
pub(super) struct Notifications {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Notifications {
    pub(super) fn open() -> io::Result<Notifications> {
        let groups = libc::RTMGRP_LINK
            | libc::RTMGRP_NEIGH
            | libc::RTMGRP_IPV4_IFADDR
            | libc::RTMGRP_IPV6_IFADDR
            | libc::RTMGRP_IPV4_ROUTE
            | libc::RTMGRP_IPV6_ROUTE
            | libc::RTMGRP_IPV4_RULE;
        let socket = open_socket(groups as u32)?;
        socket.add_membership(libc::RTNLGRP_IPV6_RULE)?;
        // The system's limit may be lower; an overflow is noticed, and everything read anew.
        socket.set_rx_buf_sz(NOTIFICATION_BUFFER as libc::c_int)?;
        Ok(Notifications { socket, buffer: vec![0; BUFFER_LEN] })
    }

    pub(super) fn drain(&mut self, sink: &mut dyn FnMut(RouteNetlinkMessage)) -> io::Result<Drained> {
        let mut drained = Drained::Complete;
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(len) => {
                    for message in messages(&self.buffer[..len]) {
                        if let NetlinkPayload::InnerMessage(inner) = message.payload {
                            sink(inner);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(drained),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => drained = Drained::Lost,
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Notifications {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn open_socket(groups: u32) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, groups))?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// The length of one datagram read into `buffer`.
fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    let capacity = buffer.len();
    let len = socket.recv(&mut &mut buffer[..], 0)?;
    Ok(len.min(capacity))
}

/// Passes the part of the answer to a request that a datagram holds to `sink`. `Some` once the answer is complete.
pub(super) fn take_answer(
    datagram: &[u8],
    sequence: u32,
    is_dump: bool,
    sink: &mut dyn FnMut(RouteNetlinkMessage),
) -> Option<io::Result<()>> {
    let mut end = None;
    for message in messages(datagram).filter(|message| message.header.sequence_number == sequence) {
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => {
                sink(inner);
                if !is_dump {
                    end = Some(Ok(()));
                }
            }
            NetlinkPayload::Done(_) => end = Some(Ok(())),
            NetlinkPayload::Error(error) if error.code.is_some() => {
                end = Some(Err(refusal(error.raw_code())))
            }
            _ => {}
        }
    }
    end
}

/// The error for a negated `errno`. The smallest integer cannot be negated.
fn refusal(code: i32) -> io::Error {
    match code.checked_abs() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::ErrorKind::InvalidData.into(),
    }
}

/// The messages of a datagram; those that the packet library cannot parse are skipped.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> {
    std::iter::from_fn(move || {
        loop {
            let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
            if length < 16 {
                return None;
            }
            let message = NetlinkMessage::deserialize(datagram.get(..length)?);
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Ok(message) = message {
                return Some(message);
            }
        }
    })
}
