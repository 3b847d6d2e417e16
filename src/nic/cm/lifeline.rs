//! Lifelines: a stream between the processes of connected identifiers. When one process ends, in whatever way, the
//! kernel hangs up, and the other tells its application at once that it is disconnected.
//!
//! A stream to ask a listener's process by becomes one when both sides say so. Only processes of the same user, or of
//! root, are believed: who hangs up ends the connections with the address that it gave.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// What either side says.
pub(super) const KEEP: [u8; 1] = *b"K";

/// Streams that are kept at most.
const MOST: usize = 4096;

/// The streams that are kept, by the address of the other process's device.
#[derive(Default)]
pub(super) struct Lifelines {
    /// To processes that we have asked.
    to: HashMap<IpAddr, OwnedFd>,
    /// From processes that have asked us.
    from: Vec<(IpAddr, OwnedFd)>,
}

impl Lifelines {
    /// Whether there is one to the process with this device.
    pub fn has(&self, device: IpAddr) -> bool {
        self.to.contains_key(&device)
    }

    /// Somebody who asked us wants to keep the stream, and was told that it is kept.
    pub fn keep(&mut self, socket: OwnedFd, device: Option<IpAddr>) {
        self.from.extend(device.map(|device| (device, socket)));
    }

    /// Whether another may be kept.
    pub fn has_room(&self) -> bool {
        self.from.len() < MOST
    }

    /// One that we have asked agrees.
    pub fn keep_to(&mut self, socket: OwnedFd, device: IpAddr) {
        if self.to.len() < MOST {
            self.to.insert(device, socket);
        }
    }

    /// The addresses of those who have hung up.
    pub fn hung_up(&mut self) -> Vec<IpAddr> {
        let mut gone = Vec::new();
        self.to.retain(|device, socket| {
            let is_there = !has_hung_up(socket);
            if !is_there {
                gone.push(*device);
            }
            is_there
        });
        self.from.retain(|(device, socket)| {
            let is_there = !has_hung_up(socket);
            if !is_there {
                gone.push(*device);
            }
            is_there
        });
        gone
    }
}

/// Whether the other side may be believed.
pub(super) fn is_believed(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(socket).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Says that the stream is kept.
pub(super) fn offer(socket: &OwnedFd) -> bool {
    is_believed(socket) && send(socket, &KEEP, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}

fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut byte = [0; 1];
    match recv(socket, &mut byte[..], RecvFlags::DONTWAIT) {
        Ok((_, len)) => len == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}
