//! Lifelines: a stream between the processes of connected identifiers. When one process ends, in whatever way, the
//! kernel hangs up, and the other tells its application at once that it is disconnected.
//!
//! The stream over which a listener's process was asked becomes one, unless that process refuses. Only processes of the
//! same user, or of root, are trusted: a process that hangs up ends the connections with the device that it named.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use softrnic_sys::Credentials;

use super::registry::PeerDevice;

/// The process that asked keeps the stream.
pub(super) const KEEP: [u8; 1] = *b"K";

/// The process that was asked does not keep it: its end means nothing.
const REFUSED: [u8; 1] = *b"N";

/// The most streams that are kept.
const MOST: usize = 4096;

/// The streams that are kept, by where the other process is.
#[derive(Default)]
pub(super) struct Lifelines {
    /// To processes that we asked.
    to: HashMap<PeerDevice, OwnedFd>,
    /// From processes that asked us.
    from: Vec<(PeerDevice, OwnedFd)>,
}

impl Lifelines {
    /// A process that asked us keeps the stream. `false` if we do not.
    pub fn keep(&mut self, socket: OwnedFd, home: PeerDevice) -> Result<(), OwnedFd> {
        if self.from.len() >= MOST || !is_believed(&socket) {
            return Err(socket);
        }
        self.from.push((home, socket));
        Ok(())
    }

    /// Keeps a stream to a process that we asked.
    pub fn keep_to(&mut self, socket: OwnedFd, home: PeerDevice) {
        let wanted = self.to.len() < MOST && !self.to.contains_key(&home) && is_believed(&socket);
        if wanted && send(&socket, &KEEP, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {
            self.to.insert(home, socket);
        }
    }

    /// Where the processes were that have hung up.
    pub fn hung_up(&mut self) -> Vec<PeerDevice> {
        let mut gone = Vec::new();
        self.to.retain(|home, socket| {
            let heard = hear(socket);
            if heard == PeerMessage::End {
                gone.push(*home);
            }
            heard == PeerMessage::Nothing
        });
        self.from.retain(|(home, socket)| {
            let heard = hear(socket);
            if heard == PeerMessage::End {
                gone.push(*home);
            }
            heard == PeerMessage::Nothing
        });
        gone
    }
}

/// Whether the other side is trusted.
fn is_believed(socket: &OwnedFd) -> bool {
    Credentials::of_peer(socket).is_ok_and(|peer| peer.are_ours() || peer.are_roots())
}

/// Tells a process that asked that the stream is not kept.
pub(super) fn refuse(socket: &OwnedFd) {
    let _told = send(socket, &REFUSED, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerMessage {
    Nothing,
    Refused,
    End,
}

fn hear(socket: &OwnedFd) -> PeerMessage {
    let mut byte = [0; 1];
    let mut listen = || recv(socket, &mut byte[..], RecvFlags::DONTWAIT);
    // If a stream was closed with unread data in it, the kernel reports that first, and then what was sent.
    let heard = listen().or_else(|error| if error == Errno::CONNRESET { listen() } else { Err(error) });
    match heard {
        Err(Errno::AGAIN | Errno::INTR) => PeerMessage::Nothing,
        Ok((_, 1)) if byte == REFUSED => PeerMessage::Refused,
        Ok((_, 1..)) => PeerMessage::Nothing,
        Ok((_, 0)) | Err(_) => PeerMessage::End,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const HOME: PeerDevice = PeerDevice { device: IpAddr::V4(Ipv4Addr::LOCALHOST), slot: None };

    fn stream() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    #[test]
    fn a_stream_refused_before_its_message_is_read_does_not_count_as_an_end() {
        let mut lifelines = Lifelines::default();
        let (ours, theirs) = stream();
        lifelines.keep_to(ours, HOME);
        refuse(&theirs);
        drop(theirs);
        assert_eq!(lifelines.hung_up(), []);
        assert!(lifelines.to.is_empty(), "another one may be kept");
    }

    #[test]
    fn a_process_that_ends_with_a_message_unread_has_ended() {
        let mut lifelines = Lifelines::default();
        let (ours, theirs) = stream();
        lifelines.keep_to(ours, HOME);
        drop(theirs);
        assert_eq!(lifelines.hung_up(), [HOME]);
    }
}
