//! Those who connect: NICs join and leave, commands are answered.

use std::fmt;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use softrnic_fabric::Host;
use softrnic_fabric_link::Place;
use softrnic_fabric_link::rendezvous::{self, Message, PeerMessage};
use softrnic_link::ProcessSlot;
use softrnic_shm::pair::{Bells, Pair, Segment};
use softrnic_sys::unix;

use crate::live::{BUDGET, FIRST_PEER, LISTENER, Live, Peer};
use crate::member::{MOST_GROUPS, Member};

/// Ethernet's header, FCS, preamble and gap: bytes of a frame that the MTU of IP does not count.
const ETHERNET: u32 = 38;
/// The least MTU of IPv4 (RFC 791).
const LEAST_IP_MTU: u32 = 576;
/// Times that packets are taken from a NIC that has ended, each up to the budget: more than a ring holds.
const LAST_TURNS: usize = 256;
/// Descriptors that come with a NIC.
const FILES_OF_JOIN: usize = 3;
/// Those who have connected and are no NICs.
const MAX_OTHERS: usize = 64;

impl Live {
    pub(crate) fn accept_peers(&mut self) {
        loop {
            let stream = match unix::accept(&self.listener) {
                Ok(stream) => stream,
                // What comes now may be a command, and what cannot be let in is told so.
                Err(Errno::MFILE | Errno::NFILE) if self.spare_file.take().is_some() => continue,
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.listens = epoll::delete(&self.epoll, &self.listener).is_err();
                    return;
                }
                Err(_) => return,
            };
            let is_other = |peer: &&Peer| matches!(peer, Peer::Unidentified(_) | Peer::Asker(..));
            let others = self.peers.iter().flatten().filter(is_other).count();
            if others >= MAX_OTHERS || !rendezvous::is_same_user(&stream) {
                continue;
            }
            let peer = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
            let token = epoll::EventData::new_u64(FIRST_PEER + peer as u64);
            if epoll::add(&self.epoll, &stream, token, epoll::EventFlags::IN).is_err() {
                continue;
            }
            if peer == self.peers.len() {
                self.peers.push(None);
            }
            self.peers[peer] = Some(Peer::Unidentified(stream));
        }
    }

    /// Listens again if descriptors had run out and there are some now.
    pub(crate) fn listen_again(&mut self) {
        if self.spare_file.is_some() {
            return;
        }
        self.spare_file = self.listener.try_clone().ok();
        if self.spare_file.is_some() && !self.listens {
            let token = epoll::EventData::new_u64(LISTENER);
            self.listens = epoll::add(&self.epoll, &self.listener, token, epoll::EventFlags::IN).is_ok();
        }
    }

    fn lacks_descriptors(&self) -> bool {
        let free = (0..FILES_OF_JOIN).map_while(|_| self.listener.try_clone().ok());
        free.collect::<Vec<OwnedFd>>().len() < FILES_OF_JOIN
    }

    pub(crate) fn hear(&mut self, peer: usize) {
        match self.peers.get_mut(peer) {
            Some(Some(Peer::Unidentified(_))) => self.hear_unidentified(peer),
            Some(Some(Peer::Member(_))) => self.hear_member(peer),
            Some(asker @ Some(Peer::Asker(..))) => {
                let Some(Peer::Asker(stream, answer)) = asker.take() else { return };
                self.go_on_answering(peer, stream, answer);
            }
            _ => {}
        }
    }

    fn hear_unidentified(&mut self, peer: usize) {
        let Some(Some(Peer::Unidentified(stream))) = self.peers.get(peer) else { return };
        let heard = rendezvous::hear(stream);
        if matches!(heard, PeerMessage::Nothing) {
            return;
        }
        let Some(Peer::Unidentified(stream)) = self.peers[peer].take() else { return };
        match heard {
            PeerMessage::Message(Message::Join { host, files }) => {
                match self.join(peer, &host, &stream, files) {
                    Ok(member) => {
                        let link = self.hosts[member.0.0 as usize].ports[0].link();
                        let rate = self.fabric.topology().links()[link.0 as usize].spec.rate;
                        let member = Member::new(member.0, member.1, stream, member.2, rate, self.slow);
                        self.peers[peer] = Some(Peer::Member(Box::new(member)));
                    }
                    Err(why) => {
                        let _ = rendezvous::say(&stream, &Message::Refusal(why));
                        let _ = epoll::delete(&self.epoll, &stream);
                    }
                }
            }
            PeerMessage::Message(Message::Command(command)) => self.answer(peer, stream, &command),
            // Without descriptors, what came with the message was lost.
            PeerMessage::Garbage if self.lacks_descriptors() => {
                let why =
                    format!("the fabric {} has all file descriptors that it may have (ulimit -n)", self.name);
                let _ = rendezvous::say(&stream, &Message::Refusal(why));
                let _ = epoll::delete(&self.epoll, &stream);
            }
            _ => {
                let _ = epoll::delete(&self.epoll, &stream);
            }
        }
    }

    /// A NIC joins a host.
    fn join(
        &mut self,
        peer: usize,
        host: &str,
        stream: &OwnedFd,
        files: [OwnedFd; 3],
    ) -> Result<(Host, ProcessSlot, Pair), String> {
        let host = self.find_host(host)?;
        if let Some(interface) = self.interface_of(host) {
            let name = self.host_name(host);
            return Err(format!(
                "{name} is the interface {interface}: who is behind it is there without `fabric exec`"
            ));
        }
        let place = host.0 as usize;
        let refused =
            |error: &dyn fmt::Display| format!("the fabric {} cannot share memory: {error}", self.name);
        let [file, thread, caller] = files;
        let own = Segment::new().map_err(|error| refused(&error))?;
        let copied = |file: BorrowedFd<'_>| file.try_clone_to_owned().map_err(|error| refused(&error));
        let [bell, other_bell] = self.bells.files();
        let files = [copied(own.file())?, copied(bell)?, copied(other_bell)?];
        let pair = Pair::join(own, &file, Bells::given(thread, caller)).map_err(|error| refused(&error))?;
        let link = self.hosts[place].ports[0].link();
        let ip_mtu = self.fabric.topology().links()[link.0 as usize].spec.mtu_bytes.saturating_sub(ETHERNET);
        let is_up = self.is_up(host);
        let (first, hosts) = (self.hosts[0].address, self.hosts.len() as u32);
        let state = &mut self.hosts[place];
        let Some(slot) = state.take_slot(peer) else {
            return Err(format!("{} has {} processes already, and no more fit", self.host_name(host), 64));
        };
        let place = Place {
            address: state.address,
            slot,
            ip_mtu: ip_mtu.clamp(LEAST_IP_MTU, u16::MAX.into()) as u16,
            processes: state.processes() as u16,
            is_up,
            first,
            hosts,
            slow: self.slow,
        };
        if rendezvous::say(stream, &Message::Welcome { place, files }).is_err() {
            state.free_slot(slot);
            return Err("it has ended".into());
        }
        Ok((host, slot, pair))
    }

    /// Tells the NICs of a host whether a cable of it is up.
    pub(crate) fn tell_of_carrier(&mut self, host: Host) {
        let state = &self.hosts[host.0 as usize];
        let is_up = self.is_up(host);
        for &peer in state.members.iter().flatten() {
            if let Some(Peer::Member(member)) = &self.peers[peer] {
                let _ = rendezvous::say(&member.stream, &Message::Carrier(is_up));
            }
        }
    }

    /// Whether a cable of a host is up.
    pub(crate) fn is_up(&self, host: Host) -> bool {
        self.hosts[host.0 as usize].ports.iter().any(|port| self.fabric.is_up(port.link()))
    }

    pub(crate) fn find_host(&self, name: &str) -> Result<Host, String> {
        let found = self.hosts.iter().find(|state| self.host_name(state.host) == name);
        found.map(|state| state.host).ok_or_else(|| {
            let names: Vec<&str> = self.hosts().map(|(name, _)| name).take(16).collect();
            let more = if self.hosts.len() > names.len() { ", …" } else { "" };
            format!("the fabric {} has no host {name}: it has {}{more}", self.name, names.join(", "))
        })
    }

    fn hear_member(&mut self, peer: usize) {
        let Some(Some(Peer::Member(member))) = self.peers.get_mut(peer) else { return };
        let state = &mut self.hosts[member.host.0 as usize];
        match rendezvous::hear(&member.stream) {
            PeerMessage::Message(Message::Serve(service)) => {
                let served = state.serve(service, member.slot);
                let _ = rendezvous::say(&member.stream, &Message::Served(served));
            }
            PeerMessage::Message(Message::StopServing(service)) => state.stop_serving(service, member.slot),
            PeerMessage::Message(Message::JoinGroup(group)) if member.groups.len() < MOST_GROUPS => {
                member.groups.insert(group);
                self.fabric.join(group.into(), state.host);
            }
            PeerMessage::Message(Message::LeaveGroup(group)) => {
                member.groups.remove(&group);
                let host = state.host;
                self.leave_group(host, group);
            }
            PeerMessage::Nothing | PeerMessage::Message(_) => {}
            PeerMessage::Garbage | PeerMessage::End => {
                // A process that ends has sent its last acknowledgements. What a child of it still writes counts no more.
                let _rest = (0..LAST_TURNS).find(|_| self.take_from(peer) < BUDGET);
                self.end(peer);
            }
        }
    }

    /// A process of a host has left a group; the host leaves it with the last one.
    fn leave_group(&mut self, host: Host, group: Ipv4Addr) {
        let wants = |peer: &usize| matches!(&self.peers[*peer], Some(Peer::Member(member)) if member.groups.contains(&group));
        if !self.hosts[host.0 as usize].members.iter().flatten().any(wants) {
            self.fabric.leave(group.into(), host);
        }
    }

    /// A NIC has ended. What it has sent still leaves.
    pub(crate) fn end(&mut self, peer: usize) {
        self.let_leave();
        let Some(Peer::Member(member)) = self.peers[peer].take() else { return };
        let _ = epoll::delete(&self.epoll, &member.stream);
        let (host, groups) = (member.host, member.groups.clone());
        self.peers[peer] = Some(Peer::Ended(member));
        for group in groups {
            self.leave_group(host, group);
        }
        self.flush(peer);
    }

    pub(crate) fn forget(&mut self, peer: usize) {
        if let Some(Peer::Ended(member)) = self.peers[peer].take() {
            self.hosts[member.host.0 as usize].free_slot(member.slot);
        }
    }
}
