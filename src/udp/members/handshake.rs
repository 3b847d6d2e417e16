//! How a process that joins gets what the others have: from whichever of them accepts the connection to the address'
//! name first.
//!
//! The name is abstract, so its scope is the network namespace, as that of the address itself. All processes hold the
//! listener, so the name lasts as long as any of them. Only processes of the same user are answered, and believed: with the
//! sockets comes everything that is sent to the address. The kernel would not let another user's socket share the port
//! either (`inet_bind_conflict`: equal effective users).

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use softrnic_sys::{Credentials, unix};

use super::BACKLOG;
use crate::sys;
use softrnic_link::{OpenError, ProcessSlot};

/// Changes with everything that the processes must agree on: the slots, the table, the program.
const HELLO: [u8; 8] = *b"snicmem2";
/// How long a name may be taken and nobody listen: whoever takes it listens at once, unless it is somebody else.
const LISTEN_TIMEOUT: Duration = Duration::from_millis(200);
/// How long so many others may want to join that there is no place to wait.
const CROWD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long whoever joins waits for the others.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The listener, the table, and a socket for each slot.
const DESCRIPTORS: usize = 2 + ProcessSlot::COUNT;

/// What a process that joins is given.
pub struct Handed {
    pub listener: OwnedFd,
    pub table: OwnedFd,
    pub sockets: Vec<OwnedFd>,
}

/// Why it is not.
pub enum Unanswered {
    /// Another attempt may be answered, if this has not been so for this long.
    Again(Duration),
    Never(OpenError),
}

fn name(address: IpAddr) -> String {
    format!("softrnic/udp/{address}")
}

/// Takes the name of an address, and listens. Nobody is answered yet.
pub fn take_name(address: IpAddr) -> io::Result<OwnedFd> {
    Ok(unix::listen(&name(address), BACKLOG)?)
}

/// The name of one process of an address, for its lifelines: a number that others learn from the table alone, so that
/// nobody else can have taken it before.
fn name_of(address: IpAddr, lifelines: u64) -> String {
    format!("softrnic/udp/{address}/{lifelines:016x}")
}

/// Takes a name for the lifelines of this process, and listens. Returns the number, too.
pub fn listen_for_lifelines(address: IpAddr) -> io::Result<(OwnedFd, u64)> {
    let mut random = [0; 8];
    sys::random(&mut random)?;
    let lifelines = u64::from_ne_bytes(random);
    Ok((unix::listen(&name_of(address, lifelines), BACKLOG)?, lifelines))
}

/// A stream to one process of an address.
pub fn connect_to(address: IpAddr, lifelines: u64) -> Result<OwnedFd, Errno> {
    let socket = unix::connect(&name_of(address, lifelines))?;
    match Credentials::of_peer(&socket) {
        Ok(peer) if peer.are_ours() => Ok(socket),
        _ => Err(Errno::PERM),
    }
}

/// A stream to whichever process of an address accepts it.
pub fn connect_to_any(address: IpAddr) -> Result<OwnedFd, Errno> {
    unix::connect(&name(address))
}

/// Who listens at the name of an address.
pub fn owner(address: IpAddr) -> Option<Credentials> {
    Credentials::of_peer(connect_to_any(address).ok()?).ok()
}

/// Asks the processes of an address for what they share.
pub fn ask(address: IpAddr, end: Instant) -> Result<Handed, Unanswered> {
    let socket = connect_to_any(address).map_err(|error| match error {
        Errno::CONNREFUSED => Unanswered::Again(LISTEN_TIMEOUT),
        Errno::AGAIN => Unanswered::Again(CROWD_TIMEOUT),
        error => system("connecting to the processes of the address", error),
    })?;
    match Credentials::of_peer(&socket) {
        Ok(peer) if peer.are_ours() => {}
        Ok(peer) => {
            let error = OpenError::OtherUser { address, uid: peer.uid, pid: peer.pid };
            return Err(Unanswered::Never(error));
        }
        Err(_) => return Err(Unanswered::Again(JOIN_TIMEOUT)),
    }
    let left = end.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Err(Unanswered::Never(OpenError::NoAnswer(address))),
        Ok(_) => hear(&socket, address),
        Err(_) => Err(Unanswered::Again(JOIN_TIMEOUT)),
    }
}

fn hear(socket: &OwnedFd, address: IpAddr) -> Result<Handed, Unanswered> {
    let mut bytes = [0; HELLO.len() + 1];
    let Ok(received) = unix::receive(socket, &mut bytes) else {
        return Err(Unanswered::Again(JOIN_TIMEOUT));
    };
    match received.len {
        // It has ended, or there are too many descriptors on their way at the moment.
        0 => return Err(Unanswered::Again(JOIN_TIMEOUT)),
        len if bytes[..len] != HELLO => return Err(Unanswered::Never(OpenError::OtherVersion(address))),
        _ => {}
    }
    let mut descriptors = received.descriptors;
    if received.lacks_descriptors || descriptors.len() != DESCRIPTORS {
        return Err(Unanswered::Never(OpenError::TooFewDescriptors(DESCRIPTORS)));
    }
    let sockets = descriptors.split_off(2);
    match <[OwnedFd; 2]>::try_from(descriptors) {
        Ok([listener, table]) => Ok(Handed { listener, table, sockets }),
        Err(_) => Err(Unanswered::Again(JOIN_TIMEOUT)),
    }
}

/// Answers one that has connected, with copies of `shared`.
pub fn answer(stream: &OwnedFd, shared: &[BorrowedFd<'_>]) {
    // If it cannot be sent, because too many descriptors are on their way, the other side tries again.
    let _ = unix::send(stream, &HELLO, shared);
}

fn system(doing: &'static str, error: Errno) -> Unanswered {
    Unanswered::Never(OpenError::System { doing, errno: error.raw_os_error() })
}
