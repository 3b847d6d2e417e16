//! How a process that joins gets what the others have: from whichever of them accepts the connection to the address'
//! name first.
//!
//! The name is abstract, so its scope is the network namespace, as that of the address itself. All processes hold the
//! listener, so the name lasts as long as any of them. Only processes of the same user are answered, and believed: with the
//! sockets comes everything that is sent to the address. The kernel would not let another user's socket share the port
//! either (`inet_bind_conflict`: equal effective users).

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    recvmsg, sendmsg, socket_with,
};

use super::BACKLOG;
use crate::udp::open::OpenError;
use crate::{Credentials, Part};

/// Changes with everything that the processes must agree on: the parts, the table, the program.
const HELLO: [u8; 8] = *b"snicmem1";
/// The listener, the table, and a socket for each part.
const DESCRIPTORS: usize = 2 + Part::COUNT;

/// What a process that joins is given.
pub struct Handed {
    pub listener: OwnedFd,
    pub table: OwnedFd,
    pub sockets: Vec<OwnedFd>,
}

/// Why it is not.
pub enum Unanswered {
    /// Another attempt may be answered.
    Again,
    Never(OpenError),
}

fn name(address: IpAddr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("softrnic/udp/{address}").as_bytes())
}

fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Takes the name of an address. Nobody can connect to it yet.
pub fn take_name(address: IpAddr) -> io::Result<OwnedFd> {
    let socket = stream()?;
    bind(&socket, &name(address)?)?;
    Ok(socket)
}

/// The name of one process of an address, for its lifelines.
fn name_of(address: IpAddr, part: Part) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("softrnic/udp/{address}/{part}").as_bytes())
}

/// Takes the name of one process, and listens.
pub fn listen_as(address: IpAddr, part: Part) -> io::Result<OwnedFd> {
    let socket = stream()?;
    bind(&socket, &name_of(address, part)?)?;
    listen(&socket)?;
    Ok(socket)
}

/// A stream to one process of an address.
pub fn connect_to(address: IpAddr, part: Part) -> Result<OwnedFd, Errno> {
    let socket = stream()?;
    connect(&socket, &name_of(address, part)?)?;
    match Credentials::of_peer(&socket) {
        Ok(peer) if peer.are_ours() => Ok(socket),
        _ => Err(Errno::PERM),
    }
}

pub fn listen(listener: &OwnedFd) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

/// Who listens at the name of an address.
pub fn owner(address: IpAddr) -> Option<Credentials> {
    let socket = stream().ok()?;
    connect(&socket, &name(address).ok()?).ok()?;
    Credentials::of_peer(&socket).ok()
}

/// Asks the processes of an address for what they share.
pub fn ask(address: IpAddr, end: Instant) -> Result<Handed, Unanswered> {
    let socket = stream().map_err(|error| system("opening a socket", error))?;
    let name = name(address).map_err(|error| system("naming a socket", error))?;
    match connect(&socket, &name) {
        Ok(()) => {}
        // Nobody listens, or too many others want to join.
        Err(Errno::CONNREFUSED | Errno::AGAIN) => return Err(Unanswered::Again),
        Err(error) => return Err(system("connecting to the processes of the address", error)),
    }
    match Credentials::of_peer(&socket) {
        Ok(peer) if peer.are_ours() => {}
        Ok(peer) => {
            let error = OpenError::OtherUser { address, uid: peer.uid, pid: peer.pid };
            return Err(Unanswered::Never(error));
        }
        Err(_) => return Err(Unanswered::Again),
    }
    let left = end.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Err(Unanswered::Never(OpenError::NoAnswer(address))),
        Ok(_) => hear(&socket, address),
        Err(_) => Err(Unanswered::Again),
    }
}

fn hear(socket: &OwnedFd, address: IpAddr) -> Result<Handed, Unanswered> {
    let mut bytes = [0; HELLO.len() + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let Ok(received) = recvmsg(socket, &mut [io::IoSliceMut::new(&mut bytes)], &mut ancillary, flags) else {
        return Err(Unanswered::Again);
    };
    // All of them are taken, so that those too many are closed.
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    match received.bytes {
        // It has ended, or there are too many descriptors on their way at the moment.
        0 => return Err(Unanswered::Again),
        len if bytes[..len] != HELLO => return Err(Unanswered::Never(OpenError::OtherVersion(address))),
        _ => {}
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() != DESCRIPTORS {
        return Err(Unanswered::Never(OpenError::TooFewDescriptors(DESCRIPTORS)));
    }
    let sockets = descriptors.split_off(2);
    match <[OwnedFd; 2]>::try_from(descriptors) {
        Ok([listener, table]) => Ok(Handed { listener, table, sockets }),
        Err(_) => Err(Unanswered::Again),
    }
}

/// Answers those that have connected, with copies of `shared`.
pub fn answer_all(listener: &OwnedFd, shared: &[BorrowedFd<'_>]) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    while let Ok(socket) = accept_with(listener, flags) {
        if !Credentials::of_peer(&socket).is_ok_and(Credentials::are_ours) {
            continue;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(shared));
        // If it cannot be sent, because too many descriptors are on their way, the other side tries again.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = sendmsg(&socket, &[io::IoSlice::new(&HELLO)], &mut ancillary, flags);
    }
}

fn system(doing: &'static str, error: Errno) -> Unanswered {
    Unanswered::Never(OpenError::System { doing, errno: error.raw_os_error() })
}
