//! How the processes of an address learn that one of them has ended.
//!
//! They form a ring ordered by their slots: each has a stream to its successor, and one from its predecessor. When
//! a process ends, in whatever way, the kernel closes its streams, and its neighbours remove it from the table: requests for
//! its services then reach other processes, which refuse them. A process that has lost its stream makes another, so every
//! process has one as long as there are two.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::handshake;
use super::listener::Listener;
use super::table::Member;
use softrnic_link::ProcessSlot;

/// Streams that are kept: to one process, and from all others.
const MOST: usize = ProcessSlot::COUNT;
/// How often to look whether a process whose stream has ended still has its slot: the kernel closes its descriptors one
/// after the other, and the lock may go after the stream.
const LOOKS: u32 = 1000;

/// The streams of a process.
pub struct Lifelines {
    pub address: IpAddr,
    /// Others cannot find this process if there was no descriptor for it.
    pub listener: Option<Arc<Listener>>,
    /// Its name, for the table.
    pub name: u64,
    open: HashMap<u64, Lifeline>,
    last: u64,
}

struct Lifeline {
    stream: OwnedFd,
    /// Who is at the other end, once it has said so, and its process.
    peer: Option<(ProcessSlot, u32)>,
    /// Whether this process has made it.
    is_own: bool,
    looks: u32,
}

/// What a stream says.
pub enum PeerMessage {
    Nothing,
    /// Who is at the other end.
    ProcessSlot(ProcessSlot),
    End,
}

impl Lifelines {
    /// Without streams. `first` is the first token for those in the epoll instance.
    pub fn new(address: IpAddr, first: u64) -> Lifelines {
        let (listener, name) = handshake::listen_for_lifelines(address).ok().unzip();
        let listener = listener.map(|socket| Arc::new(Listener::new(socket)));
        Lifelines { address, listener, name: name.unwrap_or_default(), open: HashMap::new(), last: first }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether there is any stream.
    pub fn is_tied(&self) -> bool {
        !self.open.is_empty()
    }

    /// Makes a stream to a process.
    pub fn tie(
        &mut self,
        watch: &OwnedFd,
        own: ProcessSlot,
        to: ProcessSlot,
        member: Member,
    ) -> Result<(), Errno> {
        let Member { process, lifelines } = member;
        let stream = handshake::connect_to(self.address, lifelines)?;
        send(&stream, &[own.number() as u8], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        self.keep(watch, Lifeline { stream, peer: Some((to, process)), is_own: true, looks: 0 })
    }

    /// Keeps the streams of others that were accepted. Returns whether more may wait.
    pub fn let_in(&mut self, watch: &OwnedFd) -> bool {
        let Some(listener) = &self.listener else { return false };
        let (accepted, more) = listener.take();
        for stream in accepted {
            // One that is not kept ends at once, and the other side makes another.
            let _ = self.keep(watch, Lifeline { stream, peer: None, is_own: false, looks: 0 });
        }
        more
    }

    fn keep(&mut self, watch: &OwnedFd, lifeline: Lifeline) -> Result<(), Errno> {
        if self.open.len() >= MOST {
            return Err(Errno::MFILE);
        }
        self.last += 1;
        let data = epoll::EventData::new_u64(self.last);
        epoll::add(watch, &lifeline.stream, data, epoll::EventFlags::IN)?;
        self.open.insert(self.last, lifeline);
        Ok(())
    }

    /// What the stream with this token says.
    pub fn hear(&self, token: u64) -> PeerMessage {
        let Some(lifeline) = self.open.get(&token) else { return PeerMessage::Nothing };
        let mut byte = [0];
        match recv(&lifeline.stream, &mut byte[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => PeerMessage::Nothing,
            Ok((_, 1)) => ProcessSlot::new(byte[0].into()).map_or(PeerMessage::End, PeerMessage::ProcessSlot),
            Ok(_) | Err(_) => PeerMessage::End,
        }
    }

    /// Who is at the other end.
    pub fn name(&mut self, token: u64, slot: ProcessSlot, process: u32) {
        if let Some(lifeline) = self.open.get_mut(&token) {
            lifeline.peer = Some((slot, process));
        }
    }

    /// A stream has ended. `is_there` is whether the process is still in the table. Returns whether it was the stream that this
    /// process has made, once it is gone.
    pub fn end(
        &mut self,
        watch: &OwnedFd,
        token: u64,
        is_there: impl FnOnce(ProcessSlot, u32) -> bool,
    ) -> Option<bool> {
        let lifeline = self.open.get_mut(&token)?;
        lifeline.looks += 1;
        let ends = lifeline.peer.is_some_and(|(slot, process)| is_there(slot, process));
        if ends && lifeline.looks < LOOKS {
            return None;
        }
        let lifeline = self.open.remove(&token)?;
        let _ = epoll::delete(watch, lifeline.stream.as_fd());
        Some(lifeline.is_own)
    }
}
