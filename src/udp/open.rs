//! Opens a UDP link: finds an address, sets up the sockets, and probes what the kernel supports.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use softrnic_wire::ROCE_UDP_PORT;

use super::members::{self, Members, NotShared};
use super::message::{Control, ControlWriter, SockAddr};
use super::sys::{self, Outgoing, Socket};
use super::tx::{DEFAULT_TOS, DEFAULT_TTL};
use softrnic_link::{OpenError, ProcessSlot};

/// How to open a [`super::UdpLink`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpOptions {
    /// An address of this machine; if absent, a free loopback address is found.
    pub address: Option<IpAddr>,
    /// The socket's receive buffer in bytes, as given to `SO_RCVBUF`; if absent, as much as is useful. The kernel caps
    /// either at `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// Whether several datagrams may leave in one send (`UDP_SEGMENT`).
    pub segmentation: bool,
    /// Whether several datagrams may arrive in one receive (`UDP_GRO`).
    pub gro: bool,
    /// Whether other processes of this user may have the address too. Not an address that is found.
    pub shared: bool,
    /// The slot of a shared address that this process must have; if absent, any.
    pub slot: Option<ProcessSlot>,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions {
            address: None,
            receive_buffer: None,
            segmentation: true,
            gro: true,
            shared: false,
            slot: None,
        }
    }
}

/// What the system granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) address: IpAddr,
    pub(super) interface: Interface,
    /// As accounted by the kernel, including its overhead.
    pub(super) receive_buffer: usize,
    /// Datagrams per send; 1 without segmentation.
    pub(super) segments: usize,
    pub(super) gro: bool,
    /// Why the address is not shared, although that was asked for.
    pub(super) alone: Option<&'static str>,
    /// The slot of the address that is this process's; `None` if all of it is.
    pub(super) slot: Option<ProcessSlot>,
}

/// The interface of an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) mtu: usize,
}

/// Enough for tens of windows; a larger one would only hide that a reader is too slow.
const WANTED_RECEIVE_BUFFER: usize = 4 << 20;
const WANTED_SEND_BUFFER: c_int = 1 << 20;

pub(super) fn open(options: &UdpOptions) -> Result<(Socket, Local, Option<Members>), OpenError> {
    let mut alone = None;
    let (main, address, members) = match options.address {
        Some(address) if options.shared => {
            check_unicast(address)?;
            match Members::join(address, scope_of(address), options.gro, options.slot) {
                Ok((members, main)) => (main, address, Some(members)),
                Err(NotShared::Failed(error)) => return Err(error),
                Err(NotShared::Alone(why)) => {
                    alone = Some(why);
                    (bind_to(address)?, address, None)
                }
            }
        }
        Some(address) => (bind_to(address)?, address, None),
        None => bind_to_free_loopback_address().map(|(main, address)| (main, address, None))?,
    };
    let interface = interface_of(&main, address).map_err(|e| match (e.raw_os_error(), options.address) {
        // Loopback addresses can be bound even while the loopback interface is down.
        (Some(libc::ENODEV), Some(address)) => OpenError::NotLocal(address),
        (Some(libc::ENODEV), None) => OpenError::NoFreeAddress,
        _ => system("looking up the interface")(e),
    })?;
    set_up_sender(&main, address, interface).map_err(system("setting up the socket"))?;
    set_up_receiver(&main, address).map_err(system("setting up the socket"))?;
    ask_for_tos(&main, address).map_err(system("setting up the socket"))?;
    let wanted = options.receive_buffer.unwrap_or(WANTED_RECEIVE_BUFFER);
    let wanted = c_int::try_from(wanted).unwrap_or(c_int::MAX);
    let receive_buffer = main
        .set(libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)
        .and_then(|()| main.get(libc::SOL_SOCKET, libc::SO_RCVBUF))
        .map_err(system("setting the receive buffer"))?;
    let segments = if options.segmentation { probe_segments(address, interface.index) } else { 1 };
    let gro = main.set(libc::SOL_UDP, libc::UDP_GRO, options.gro.into()).is_ok() && options.gro;
    let receive_buffer = receive_buffer.max(0) as usize;
    let slot = match &members {
        Some(members) => Some(members.slot()),
        // The device may have other addresses, which are shared.
        None if alone.is_some() => {
            Some(options.slot.map_or_else(random_slot, Ok).map_err(system("choosing numbers"))?)
        }
        None => None,
    };
    Ok((main, Local { address, interface, receive_buffer, segments, gro, alone, slot }, members))
}

fn random_slot() -> io::Result<ProcessSlot> {
    let mut random = [0; 4];
    sys::random(&mut random)?;
    Ok(ProcessSlot::in_turn(u32::from_ne_bytes(random)).next().expect("there are 64"))
}

/// A socket that only sends, from `sport`.
pub(super) fn open_sender(local: &Local, sport: u16) -> io::Result<Socket> {
    let socket = unbound_sender(local)?;
    socket.bind(&SockAddr::new(local.address, sport, local.interface.index))?;
    Ok(socket)
}

/// A second socket with the port of `first`, which nobody else can have, neither before nor after.
pub(super) fn open_sender_beside(local: &Local, sport: u16, first: &Socket) -> io::Result<Socket> {
    let socket = unbound_sender(local)?;
    first.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let bound = socket
        .set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
        .and_then(|()| socket.bind(&SockAddr::new(local.address, sport, local.interface.index)))
        .and_then(|()| socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 0));
    // Whatever failed, nobody else gets in.
    first.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 0)?;
    bound.map(|()| socket)
}

fn unbound_sender(local: &Local) -> io::Result<Socket> {
    let Local { address, interface, .. } = *local;
    let socket = Socket::open(address.is_ipv6())?;
    // This socket is never read: keep its receive buffer small.
    socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    set_up_sender(&socket, address, interface)?;
    Ok(socket)
}

/// A socket that only receives, from `group`.
pub(super) fn open_group(group: IpAddr, local: &Local) -> io::Result<Socket> {
    let index = local.interface.index;
    let socket = Socket::open(group.is_ipv6())?;
    // Every member process binds the group's address.
    socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    set_up_receiver(&socket, group)?;
    ask_for_tos(&socket, group)?;
    ask_for_ttl(&socket, group)?;
    let receive_buffer = c_int::try_from(local.receive_buffer / 2).unwrap_or(c_int::MAX);
    socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, receive_buffer)?;
    if local.gro {
        socket.set(libc::SOL_UDP, libc::UDP_GRO, 1)?;
    }
    socket.bind(&SockAddr::new(group, ROCE_UDP_PORT, index))?;
    match (group, local.address) {
        (IpAddr::V4(group), IpAddr::V4(address)) => {
            socket.set(libc::SOL_IP, libc::IP_MULTICAST_ALL, 0)?;
            socket.set_value(libc::SOL_IP, libc::IP_ADD_MEMBERSHIP, &mreqn(group, address, index))?;
        }
        (IpAddr::V6(group), IpAddr::V6(_)) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
                ipv6mr_interface: index,
            };
            socket.set_value(libc::SOL_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)?;
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
    Ok(socket)
}

fn check_unicast(address: IpAddr) -> Result<(), OpenError> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(OpenError::NotUnicast(address));
    }
    Ok(())
}

fn bind_to(address: IpAddr) -> Result<Socket, OpenError> {
    check_unicast(address)?;
    let socket = Socket::open(address.is_ipv6()).map_err(|error| open_error(address, error))?;
    socket
        .bind(&SockAddr::new(address, ROCE_UDP_PORT, scope_of(address)))
        .map_err(|error| bind_error(address, error))?;
    Ok(socket)
}

/// The interface of a link-local address, which can only be bound there.
fn scope_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Socket::open(true)
            .and_then(|socket| interface_of(&socket, address))
            .map_or(0, |interface| interface.index),
        _ => 0,
    }
}

pub(super) fn open_error(address: IpAddr, error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::Permission(address),
        _ => system("opening a UDP socket")(error),
    }
}

pub(super) fn bind_error(address: IpAddr, error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => members::other_user(address).unwrap_or(OpenError::AddressInUse(address)),
        Some(libc::EADDRNOTAVAIL | libc::ENODEV | libc::EINVAL) => OpenError::NotLocal(address),
        Some(libc::EPERM | libc::EACCES) => OpenError::Permission(address),
        _ => system("binding the UDP socket")(error),
    }
}

/// Tries random addresses, because processes that start together would otherwise try the same ones.
fn bind_to_free_loopback_address() -> Result<(Socket, IpAddr), OpenError> {
    const TRIES: usize = 64;
    for _ in 0..TRIES {
        let mut random = [0; 3];
        sys::random(&mut random).map_err(system("getting random bytes"))?;
        let [a, b, c] = random;
        // Not 127.0.0.x, which people use for other things, nor anything that looks like the end of a network.
        if matches!(a, 0 | 255) || matches!(c, 0 | 255) {
            continue;
        }
        let address = IpAddr::V4(Ipv4Addr::new(127, a, b, c));
        match bind_to(address) {
            Ok(socket) => return Ok((socket, address)),
            Err(OpenError::AddressInUse(_) | OpenError::NotLocal(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Err(OpenError::NoFreeAddress)
}

/// The interface with this address. An address that is not listed is local if a route says so; the loopback interface
/// then serves it, like the rest of 127.0.0.0/8.
fn interface_of(socket: &Socket, address: IpAddr) -> io::Result<Interface> {
    let mut exact = None;
    let mut loopback = None;
    sys::for_each_address(|name, flags, found| {
        if found.ip() == address {
            exact.get_or_insert_with(|| name.to_vec());
        }
        if flags & libc::IFF_LOOPBACK as u32 != 0 {
            loopback.get_or_insert_with(|| name.to_vec());
        }
    })?;
    let name = exact.or(loopback).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    Ok(Interface { index: sys::interface_index(socket, &name)?, mtu: sys::interface_mtu(socket, &name)? })
}

/// Makes the socket send with DF and, while it is not connected, with IPv4 ID 0, so that the ICRC can be computed in
/// advance; and to groups through the interface of `address`.
fn set_up_sender(socket: &Socket, address: IpAddr, interface: Interface) -> io::Result<()> {
    socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, WANTED_SEND_BUFFER)?;
    match address {
        IpAddr::V4(address) => {
            socket.set(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            socket.set(libc::SOL_IP, libc::IP_TOS, DEFAULT_TOS.into())?;
            socket.set(libc::SOL_IP, libc::IP_TTL, DEFAULT_TTL.into())?;
            socket.set(libc::SOL_IP, libc::IP_MULTICAST_TTL, DEFAULT_TTL.into())?;
            if address.is_loopback() {
                // The addresses that we find for ourselves belong to no interface; a route makes them local. The kernel
                // looks that route up for each send, to check the source, unless the socket may use any source. That
                // takes a privilege; without it a send takes 0.1 µs longer.
                let _ = socket.set(libc::SOL_IP, libc::IP_TRANSPARENT, 1);
            }
            let via = mreqn(Ipv4Addr::UNSPECIFIED, address, interface.index);
            socket.set_value(libc::SOL_IP, libc::IP_MULTICAST_IF, &via)
        }
        IpAddr::V6(_) => {
            socket.set(libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            socket.set(libc::SOL_IPV6, libc::IPV6_TCLASS, DEFAULT_TOS.into())?;
            socket.set(libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, DEFAULT_TTL.into())?;
            socket.set(libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS, DEFAULT_TTL.into())?;
            socket.set(libc::SOL_IPV6, libc::IPV6_MULTICAST_IF, interface.index as c_int)
        }
    }
}

/// Makes the socket accept the zero UDP checksums of rxe over IPv6.
fn set_up_receiver(socket: &Socket, address: IpAddr) -> io::Result<()> {
    if address.is_ipv6() {
        socket.set(libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
    }
    Ok(())
}

/// Makes the socket report the TOS or traffic class of what it receives, which has the mark of congestion. That takes
/// 0.1 µs per datagram.
fn ask_for_tos(socket: &Socket, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => socket.set(libc::SOL_IP, libc::IP_RECVTOS, 1),
        IpAddr::V6(_) => socket.set(libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1),
    }
}

/// Makes the socket report the TTL or hop limit of what it receives.
pub(super) fn ask_for_ttl(socket: &Socket, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => socket.set(libc::SOL_IP, libc::IP_RECVTTL, 1),
        IpAddr::V6(_) => socket.set(libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
    }
}

/// From `linux/udp.h`.
const UDP_NO_CHECK6_RX: c_int = 102;

/// The most segments that the kernel accepts in one send: 128, or 64 before Linux 6.9; 1 if none. Found by sending that
/// many one-byte datagrams from a private socket to itself.
fn probe_segments(address: IpAddr, scope: u32) -> usize {
    let Ok(socket) = Socket::open(address.is_ipv6()) else { return 1 };
    if socket.bind(&SockAddr::new(address, 0, scope)).is_err() {
        return 1;
    }
    let Ok(own) = socket.local_addr() else { return 1 };
    let to = SockAddr::new(address, own.port(), scope);
    let mut control = Control::new();
    let mut writer = ControlWriter::new(&mut control);
    writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, &1_u16.to_ne_bytes());
    let control_len = writer.finish();
    let payload = [0; 128];
    for segments in [128, 64] {
        let message = Outgoing {
            to: Some(&to),
            payload: &payload[..segments],
            control: &control.bytes()[..control_len],
        };
        let sent = sys::send_many(&socket, std::iter::once(message));
        if sent.is_ok_and(|sent| sent == 1) && socket.wait_readable(100).unwrap_or(false) {
            return segments;
        }
    }
    1
}

fn mreqn(group: Ipv4Addr, address: Ipv4Addr, index: u32) -> libc::ip_mreqn {
    let in_addr = |ip: Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
    libc::ip_mreqn {
        imr_multiaddr: in_addr(group),
        imr_address: in_addr(address),
        imr_ifindex: index as c_int,
    }
}

pub(super) fn system(doing: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |e| OpenError::System { doing, errno: e.raw_os_error().unwrap_or(libc::EIO) }
}
