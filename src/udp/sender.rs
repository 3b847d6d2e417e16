//! Send-only sockets, one or two for each source port other than 4791.
//!
//! The first is connected to the first peer that it sends to, so that the kernel looks up the route once and not for each
//! send. A connected socket sends with IPv4 IDs that count up from a random number, by one for each send, and on
//! through its segments. The ICRC covers them, so the number must be known: with the time stamp of a send the kernel
//! also returns the packet that was sent. If it does not, the socket stays unconnected, and sends with ID 0.
//!
//! All other peers get what a second socket sends, which is never connected: what went to them would leave gaps in the
//! numbers that the first peer sees, and theirs would have gaps as well.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use softrnic_wire::{EthHeader, IPV4_LEN, MacAddr};

use super::message::{Control, ControlWriter, SockAddr};
use super::open::{self, Local};
use super::sys::{self, Outgoing, Socket};
use super::tx::Route;

/// See the [module](self).
pub(super) struct Sender {
    pub(super) socket: Socket,
    local: Local,
    sport: u16,
    /// The peer that the socket is connected to.
    peer: Option<SockAddr>,
    /// The IPv4 ID of the next send, and by how much it grows with each.
    next_id: u16,
    step: u16,
    /// Whether `next_id` is certainly what the kernel will use.
    is_certain: bool,
}

impl Sender {
    /// A socket that sends from `sport`, connected to `dst` (with the socket address `to`) if possible.
    pub(super) fn open(local: &Local, sport: u16, dst: IpAddr, to: SockAddr) -> io::Result<Sender> {
        let socket = open::open_sender(local, sport)?;
        // For groups the kernel looks up the route all the same.
        let connects = !dst.is_multicast() && socket.connect(&to).is_ok();
        let peer = connects.then_some(to);
        let mut sender = Sender { socket, local: *local, sport, peer, next_id: 0, step: 0, is_certain: true };
        if connects {
            sender.learn_id();
        }
        Ok(sender)
    }

    /// A second socket with the same port, not connected.
    pub(super) fn beside(&self) -> io::Result<Sender> {
        let socket = open::open_sender_beside(&self.local, self.sport, &self.socket)?;
        Ok(Sender {
            socket,
            local: self.local,
            sport: self.sport,
            peer: None,
            next_id: 0,
            step: 0,
            is_certain: true,
        })
    }

    /// Whether what goes to `to` may leave through this socket: one that counts is for its peer alone.
    pub(super) fn serves(&self, to: &SockAddr) -> bool {
        self.step == 0 || self.peer.as_ref() == Some(to)
    }

    /// The route of a run to `to` through this socket, whose index is `index`, if it is sent next.
    pub(super) fn route(&self, index: usize, to: SockAddr) -> Route {
        let to = Some(to).filter(|to| self.peer != Some(*to));
        Route { socket: index, sport: self.sport, to, first_id: self.next_id }
    }

    /// The run is queued.
    pub(super) fn queued(&mut self) {
        self.next_id = self.next_id.wrapping_add(self.step);
    }

    /// The kernel has refused the send that was to have `id`. Unless the kernel counted it, another send takes its ID,
    /// so that the runs queued behind it keep theirs.
    pub(super) fn refused(&mut self, id: u16) {
        if let (IpAddr::V4(address), 1) = (self.local.address, self.step) {
            self.is_certain &= sent_id(&self.socket, address, 1) == Some(id);
        }
    }

    pub(super) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Learns the next ID. Nothing may be queued.
    pub(super) fn learn_id(&mut self) {
        let IpAddr::V4(address) = self.local.address else { return };
        (self.next_id, self.step) = match next_id(&self.socket, address, self.local.segments) {
            Some(next) => (next, 1),
            None => (0, 0),
        };
        self.is_certain = self.step == 1 || self.socket.disconnect().is_ok();
        self.peer = self.peer.filter(|_| self.step == 1);
    }
}

/// The IPv4 ID that the connected `socket` uses next; `None` if the kernel does not say, or counts differently.
fn next_id(socket: &Socket, address: Ipv4Addr, segments: usize) -> Option<u16> {
    let [first, second, third] = [1, segments.min(2), 1].map(|segments| sent_id(socket, address, segments));
    let next = first?.wrapping_add(3);
    let counts_sends = second? == first?.wrapping_add(1) && third?.wrapping_add(1) == next;
    counts_sends.then_some(next)
}

/// Sends `segments` datagrams in one send to a socket of our own; returns the IPv4 ID of the first.
fn sent_id(socket: &Socket, address: Ipv4Addr, segments: usize) -> Option<u16> {
    const ETHERNET: usize = EthHeader::untagged(MacAddr([0; 6]), MacAddr([0; 6])).wire_len();
    /// From linux/net_tstamp.h: when the packet is passed to its interface, which is before the call returns.
    const SOF_TIMESTAMPING_TX_SCHED: u32 = 1 << 8;
    let sink = Socket::open(false).ok()?;
    sink.bind(&SockAddr::new(address.into(), 0, 0)).ok()?;
    let to = SockAddr::new(address.into(), sink.local_addr().ok()?.port(), 0);
    let mut control = Control::new();
    let mut writer = ControlWriter::new(&mut control);
    writer.push(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &SOF_TIMESTAMPING_TX_SCHED.to_ne_bytes());
    if segments > 1 {
        writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, &1_u16.to_ne_bytes());
    }
    let len = writer.finish();
    let message = Outgoing { to: Some(&to), payload: &[0; 2][..segments], control: &control.bytes()[..len] };
    sys::send_many(socket, std::iter::once(message)).ok()?;
    let mut packet = [0; 256];
    let len = socket.take_returned(&mut packet).ok()?;
    let header = packet[..len].get(ETHERNET..)?.first_chunk::<IPV4_LEN>()?;
    let own = address.octets();
    let is_ours = header[0] == 0x45 && header[12..16] == own && header[16..] == own;
    is_ours.then(|| u16::from_be_bytes([header[4], header[5]]))
}
