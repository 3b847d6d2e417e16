//! How processes of one machine find each other, and pass descriptors.
//!
//! A name is abstract (unix(7)): its scope is the network namespace, as that of an IP address, and it ends with the last
//! descriptor of the socket that has it. Sockets keep the boundaries of messages (`SOCK_SEQPACKET`), and none blocks.
//! Any user can take any name, so whoever connects looks at the other side's [`Credentials`](crate::Credentials).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};

/// The most descriptors of one message (`SCM_MAX_FD`, net/scm.h).
pub const MAX_DESCRIPTORS: usize = 253;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

/// A socket without a name.
///
/// # Errors
/// There are too many descriptors.
pub fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

/// A socket that has `name`. Until it listens, those who connect are refused.
///
/// # Errors
/// Somebody has the name, or there are too many descriptors.
pub fn bind(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// A socket that listens at `name`.
///
/// # Errors
/// As for [`bind`].
pub fn listen(name: &str, backlog: i32) -> Result<OwnedFd, Errno> {
    let socket = bind(name)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// A stream to whoever listens at `name`.
///
/// # Errors
/// `CONNREFUSED` if nobody does, `AGAIN` if too many others wait there.
pub fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// The next stream of a listener.
///
/// # Errors
/// `AGAIN` if nobody waits; or there are too many descriptors.
pub fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, FLAGS)
}

/// Sends a message with copies of descriptors, without waiting. Returns how many bytes were sent.
///
/// # Errors
/// The other side has ended or does not read, or too many descriptors are on their way.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    send_with(socket, bytes, descriptors, SendFlags::DONTWAIT)
}

/// The same, of a stream that may block.
///
/// # Errors
/// As for [`send`].
pub fn send_waiting(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    send_with(socket, bytes, descriptors, SendFlags::empty())
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL)
}

/// A message that was received.
#[derive(Debug)]
pub struct Received {
    /// How many bytes it has; 0 if the other side has ended.
    pub len: usize,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
    /// Descriptors are missing: this process has as many as it may have.
    pub lacks_descriptors: bool,
}

/// Receives a message, without waiting. Of one that is longer than `bytes`, the rest is lost.
///
/// # Errors
/// `AGAIN` if there is none, `INTR`; all others mean that the stream is of no use.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> Result<Received, Errno> {
    receive_with(socket, bytes, RecvFlags::DONTWAIT)
}

/// The same, of a stream that may block.
///
/// # Errors
/// As for [`receive`].
pub fn receive_waiting(socket: impl AsFd, bytes: &mut [u8]) -> Result<Received, Errno> {
    receive_with(socket, bytes, RecvFlags::empty())
}

fn receive_with(socket: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    // All of them are taken, so that those too many are closed.
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let lacks_descriptors = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(Received { len: received.bytes, descriptors, lacks_descriptors })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("softrnic-sys/tests/{of}/{}", std::process::id())
    }

    #[test]
    fn a_message_and_its_descriptors_arrive_together() {
        let name = name("message");
        let listener = listen(&name, 1).expect("a name that is free");
        assert_eq!(accept(&listener).err(), Some(Errno::AGAIN));
        let ours = connect(&name).expect("a listener");
        let theirs = accept(&listener).expect("a stream");
        assert_eq!(receive(&theirs, &mut [0; 8]).err(), Some(Errno::AGAIN));
        send(&ours, b"hello", &[ours.as_fd(), listener.as_fd()]).expect("room");
        send(&ours, b"again", &[]).expect("room");
        let mut bytes = [0; 8];
        let first = receive(&theirs, &mut bytes).expect("a message");
        assert_eq!((&bytes[..first.len], first.descriptors.len()), (&b"hello"[..], 2));
        let second = receive(&theirs, &mut bytes).expect("a message");
        assert_eq!((&bytes[..second.len], second.descriptors.len()), (&b"again"[..], 0));
        drop((ours, first));
        assert_eq!(receive(&theirs, &mut bytes).expect("an end").len, 0);
    }

    #[test]
    fn a_name_is_taken_once_and_refuses_until_it_listens() {
        let name = name("taken");
        assert_eq!(connect(&name).err(), Some(Errno::CONNREFUSED));
        let socket = bind(&name).expect("a name that is free");
        assert_eq!(bind(&name).err(), Some(Errno::ADDRINUSE));
        assert_eq!(connect(&name).err(), Some(Errno::CONNREFUSED));
        drop(socket);
        listen(&name, 1).expect("free again");
    }

    #[test]
    fn more_descriptors_than_the_kernel_takes_are_refused() {
        let socket = socket().expect("a socket");
        let many = vec![socket.as_fd(); 2 * MAX_DESCRIPTORS];
        assert_eq!(send(&socket, b"x", &many).err(), Some(Errno::INVAL));
    }
}
