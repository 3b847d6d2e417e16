//! How two processes exchange segments: a stream between them, whose name is the endpoint of a device: its
//! address, and the slot of that which is its own, unless it has all of it.
//!
//! The names are abstract, so their scope is the network namespace, like that of the addresses. The initiator sends its
//! endpoint, a segment and two bells; the acceptor answers with its own, or refuses. The stream stays open: its end says
//! that the peer has ended, or has given up the connection. One side may say that it sends nothing more. Only processes of
//! the same user are accepted, since a peer speaks for the endpoint that it states.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use softrnic_sys::Credentials;
use softrnic_sys::unix::{self, Received};
use softrnic_wire::Gid;

use super::fallback_reason::FallbackReason;
use softrnic_link::ProcessSlot;

/// Peers that ask at the same time.
const BACKLOG: i32 = 128;

pub(super) const MAGIC: [u8; 4] = *b"shm5";
const LEN: usize = 24;
/// Set in the seventh byte of an offer by who wants the ICRC of each datagram.
const ASKS_FOR_ICRCS: u8 = 1;
/// Instead of the number of a slot.
const WHOLE: u8 = 0xFF;

/// A process, as peers know it: the slot of an address that is its own. Without one, it has all of the address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Endpoint {
    pub address: IpAddr,
    pub slot: Option<ProcessSlot>,
}

impl Endpoint {
    /// The process that has all of the address.
    pub fn whole(self) -> Endpoint {
        Endpoint { slot: None, ..self }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "{}/{slot}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// The eventfds by which a process is woken.
#[derive(Debug)]
pub(super) struct Bells {
    /// Its progress thread waits for this one, beside others.
    pub thread: OwnedFd,
    /// A caller blocks on this one.
    pub caller: OwnedFd,
}

impl Bells {
    pub fn new() -> Result<Bells, Errno> {
        Ok(Bells {
            thread: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            caller: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }
}

/// What one side shares with the other.
#[derive(Debug)]
pub(super) struct Shared {
    pub segment: OwnedFd,
    pub bells: Bells,
    /// Datagrams to it are to have their ICRC.
    pub asks_for_icrcs: bool,
}

/// What is said in either direction.
#[derive(Debug)]
pub(super) enum Message {
    /// Who the sender is, and what it shares.
    Offer { from: Endpoint, shared: Shared },
    /// There will be no connection by this stream.
    Refusal,
    /// The sender sends nothing more on this connection.
    Farewell,
}

/// What came over a stream.
#[derive(Debug)]
pub(super) enum PeerMessage {
    Nothing,
    Message(Message),
    /// What is no message.
    Garbage,
    /// The peer has ended.
    End,
}

fn name(endpoint: Endpoint) -> String {
    format!("softrnic/shm/{endpoint}")
}

/// Takes the name of an endpoint.
pub(super) fn take_name(endpoint: Endpoint) -> io::Result<OwnedFd> {
    Ok(unix::listen(&name(endpoint), BACKLOG)?)
}

/// A stream to the process behind an endpoint, and its own endpoint: it may have all of the address. Somebody else who has
/// taken one of the names does not hide who has the other.
pub(super) fn ask(endpoint: Endpoint) -> Result<(OwnedFd, Endpoint), FallbackReason> {
    let whole = endpoint.whole();
    let reached = reach(whole).map(|socket| (socket, whole));
    match reached {
        Err(fallback_reason) if endpoint.slot.is_some() => match reach(endpoint) {
            Err(FallbackReason::Nobody) => Err(fallback_reason),
            reached => reached.map(|socket| (socket, endpoint)),
        },
        reached => reached,
    }
}

/// A stream to the process that has the name of an endpoint.
fn reach(endpoint: Endpoint) -> Result<OwnedFd, FallbackReason> {
    match unix::connect(&name(endpoint)) {
        Ok(socket) if is_same_user(&socket) => Ok(socket),
        Ok(_) => Err(FallbackReason::OtherUser),
        Err(Errno::CONNREFUSED) => Err(FallbackReason::Nobody),
        // Too many others ask it.
        Err(Errno::AGAIN) => Err(FallbackReason::NoAnswer),
        Err(error) => Err(FallbackReason::System(error.raw_os_error())),
    }
}

/// Whether the other side is a process of this user.
pub(super) fn is_same_user(socket: &OwnedFd) -> bool {
    Credentials::of_peer(socket).is_ok_and(Credentials::are_ours)
}

/// Whether one process is at the other side of two streams, as far as can be seen: those of another PID namespace all
/// have number 0.
pub(super) fn are_of_one_process(one: &OwnedFd, other: &OwnedFd) -> bool {
    let pid = |socket| Credentials::of_peer(socket).ok().map(|peer| peer.pid);
    pid(one).is_some() && pid(one) == pid(other)
}

/// Says that a connection is wanted or made, with the segment and the bells for it.
pub(super) fn offer(
    socket: &OwnedFd,
    from: Endpoint,
    segment: &OwnedFd,
    bells: &Bells,
    asks_for_icrcs: bool,
) -> Result<(), Errno> {
    let flags = if asks_for_icrcs { ASKS_FOR_ICRCS } else { 0 };
    send(socket, b'O', Some((from, flags)), &[segment.as_fd(), bells.thread.as_fd(), bells.caller.as_fd()])
}

/// Says that there will be none.
pub(super) fn refuse(socket: &OwnedFd) -> Result<(), Errno> {
    send(socket, b'N', None, &[])
}

/// Says that nothing more is sent.
pub(super) fn farewell(socket: &OwnedFd) -> Result<(), Errno> {
    send(socket, b'F', None, &[])
}

fn send(
    socket: &OwnedFd,
    kind: u8,
    from: Option<(Endpoint, u8)>,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = kind;
    if let Some((from, flags)) = from {
        bytes[5] = from.slot.map_or(WHOLE, |slot| slot.number() as u8);
        bytes[6] = flags;
        bytes[8..].copy_from_slice(&Gid::from(from.address).0);
    }
    unix::send(socket, &bytes, descriptors).map(drop)
}

/// What the other side has said.
pub(super) fn hear(socket: &OwnedFd) -> PeerMessage {
    let mut bytes = [0; LEN + 1];
    let Received { len, descriptors, .. } = match unix::receive(socket, &mut bytes) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return PeerMessage::Nothing,
        Err(_) => return PeerMessage::End,
    };
    if len == 0 {
        return PeerMessage::End;
    }
    if len != LEN || bytes[..4] != MAGIC {
        return PeerMessage::Garbage;
    }
    match (bytes[4], <[OwnedFd; 3]>::try_from(descriptors)) {
        (b'O', Ok([segment, thread, caller])) => {
            let address = Gid(std::array::from_fn(|i| bytes[8 + i])).to_ip();
            let slot = ProcessSlot::new(bytes[5].into());
            match slot.map(Some).or((bytes[5] == WHOLE).then_some(None)) {
                Some(slot) => {
                    let asks_for_icrcs = bytes[6] & ASKS_FOR_ICRCS != 0;
                    let shared = Shared { segment, bells: Bells { thread, caller }, asks_for_icrcs };
                    PeerMessage::Message(Message::Offer { from: Endpoint { address, slot }, shared })
                }
                None => PeerMessage::Garbage,
            }
        }
        (b'F', _) => PeerMessage::Message(Message::Farewell),
        (b'N', _) => PeerMessage::Message(Message::Refusal),
        _ => PeerMessage::Garbage,
    }
}
