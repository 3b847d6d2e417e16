//! What goes to and comes from the interfaces that hosts are.

use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;
use softrnic_af_packet::Tap;
use softrnic_fabric::{Fabric, Frame, Host, To};

use crate::cargo::{Cargo, EthernetFrame};
use crate::host::HostState;
use crate::interface::{EVERYBODY, Interface, on_wire};
use crate::live::{INTERFACE, Live, Peer};
use crate::member::depth;
use crate::up_error::UpError;

/// Takes over the interfaces that hosts are to be.
pub fn open_interfaces(
    wanted: &[(Host, String)],
    fabric: &mut Fabric<Cargo>,
    hosts: &mut [HostState],
    epoll: &OwnedFd,
) -> Result<Vec<Interface>, UpError> {
    let mut interfaces = Vec::new();
    for (host, interface) in wanted {
        let errno = |error: &std::io::Error| error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        let tap =
            Tap::open(interface).map_err(|error| UpError::Interface(interface.clone(), errno(&error)))?;
        let token = epoll::EventData::new_u64(INTERFACE);
        epoll::add(epoll, tap.descriptor(), token, epoll::EventFlags::IN)?;
        let state = &mut hosts[host.0 as usize];
        state.interface = Some(interfaces.len());
        let rate = fabric.topology().links()[state.ports[0].link().0 as usize].spec.rate;
        interfaces.push(Interface::new(*host, interface, tap, depth(rate, 1)));
        fabric.join(EVERYBODY, *host);
    }
    Ok(interfaces)
}

impl Live {
    /// The interface that a host is, if it is one.
    pub(crate) fn interface_of(&self, host: Host) -> Option<&str> {
        self.hosts[host.0 as usize].interface.map(|place| self.interfaces[place].name.as_str())
    }

    /// What a host could not take, or not send in time.
    pub(crate) fn overruns(&self, state: &HostState) -> u64 {
        let interface = state.interface.map_or(0, |place| {
            let Interface { tap, overruns, .. } = &self.interfaces[place];
            overruns + tap.counters().lost + tap.counters().refused
        });
        let members = state.members.iter().flatten().map(|&peer| match &self.peers[peer] {
            Some(Peer::Member(member)) => member.overruns,
            _ => 0,
        });
        interface + members.sum::<u64>()
    }

    /// Sends a frame by the interface that a host is.
    pub(crate) fn deliver_outside(&mut self, host: Host, frame: Box<EthernetFrame>) {
        if let Some(interface) = self.hosts[host.0 as usize].interface {
            self.interfaces[interface].tap.send(&frame.bytes);
        }
        self.spare_frames.keep(frame);
    }

    /// Takes what has arrived at an interface. Returns how much.
    pub(crate) fn take_from_interface(&mut self, place: usize) -> usize {
        let (interface, spare, stations) =
            (&mut self.interfaces[place], &mut self.spare_frames, &mut self.stations);
        let Interface { tap, .. } = interface;
        let mut come = std::mem::take(&mut self.come);
        let taken = tap.receive(&mut |bytes| come.extend(spare.take().fill(bytes)));
        let host = interface.host;
        for frame in come.drain(..) {
            stations.learn(frame.from(), host);
            let priority = usize::from(frame.tos() >> 5);
            match interface.push(priority, frame) {
                Some(lost) => spare.keep(lost),
                None => self.hosts[host.0 as usize].backlog[priority] += 1,
            }
        }
        self.come = come;
        match taken {
            Ok(0) => 0,
            Ok(taken) => {
                self.feed(host);
                self.serve(self.now);
                taken
            }
            // It is broken for good; nobody is to be woken for it.
            Err(_) => {
                let _ = epoll::delete(&self.epoll, self.interfaces[place].tap.descriptor());
                0
            }
        }
    }

    /// Hands over the next frame of an interface. Returns whether there was room.
    pub(crate) fn feed_frame(&mut self, place: usize, interface: usize, priority: usize) -> bool {
        let port = self.hosts[place].ports[0];
        let Some(next) = self.interfaces[interface].sent[priority].front() else { return false };
        if !self.fabric.has_room(port, next.tos() >> 2, on_wire(next)) {
            return false;
        }
        let Some(frame) = self.interfaces[interface].pop(priority) else { return false };
        self.hosts[place].backlog[priority] -= 1;
        let from = Host(place as u32);
        let to = match self.stations.find(frame.to()) {
            // Both are behind the same interface.
            Some(host) if host == from => {
                self.spare_frames.keep(frame);
                return true;
            }
            Some(host) => To::Host(host),
            None => To::Group(EVERYBODY),
        };
        let frame = Frame {
            from,
            to,
            bytes: on_wire(&frame),
            flow: frame.flow(),
            dscp: frame.tos() >> 2,
            ect: frame.ect(),
            trimmed: false,
            payload: Cargo::Frame(frame),
        };
        let _ = self.fabric.send(self.now, port, frame, &mut self.seen);
        true
    }
}
