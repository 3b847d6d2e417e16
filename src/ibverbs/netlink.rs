//! NETLINK_RDMA, for the preloaded interposer: what a program sends on such a socket is answered here.
//!
//! The interposer gives the program a NETLINK_USERSOCK socket, which every user may open, and hands over what is sent on
//! it. `softrnic_rdma_netlink` makes the answers; they are sent to the program's socket from another one. This module
//! knows the sockets, and what there is to tell.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use softrnic_mapping::Thread;
use softrnic_nic::sysfs::Identity;
use softrnic_rdma_netlink::{Monitor, OwnDevice, Responder, System};
use softrnic_stats::{Snapshot, look_closely};
use softrnic_sys::BlockedSignals;

use crate::device::devices;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, call, guard};
use crate::query;
use crate::registry::registry;

mod answering;

use answering::{answering, number_of, port_of, to};

/// No request is longer.
const LONGEST: usize = 1 << 16;

/// How long a program may leave the rest of a long answer alone.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a monitored machine is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// This process, and those of the user.
struct Machine;

impl System for Machine {
    fn own(&self) -> Vec<OwnDevice> {
        let of = |device: &crate::device::Device| {
            let Identity { guid, interface, is_active } = Identity::of(&device.spec);
            OwnDevice {
                name: device.spec.name.clone(),
                guid: device.known_guid().or(guid),
                interface,
                is_active,
            }
        };
        devices().iter().map(of).collect()
    }

    fn running(&self) -> Vec<Snapshot> {
        // Others are asked by threads.
        let _blocked = BlockedSignals::new();
        look_closely().map(|look| look.snapshots).unwrap_or_default()
    }

    fn device_flags(&self) -> u64 {
        query::CAP_FLAGS.into()
    }

    fn port_flags(&self) -> u32 {
        query::PORT_FLAGS
    }

    /// If the kernel has such a node, the interposer's has its numbers.
    fn connection_manager(&self) -> (u32, u32) {
        let text = std::fs::read_to_string("/sys/class/misc/rdma_cm/dev").unwrap_or_default();
        let number = |text: &str| text.trim_end().parse().ok();
        let numbers = text.split_once(':').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
        numbers.unwrap_or((10, 58))
    }
}

/// Answers what a program sends on a socket. Returns its length.
///
/// # Safety
/// There are `count` structures at `parts`, which name memory that can be read, as `sendmsg` requires.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_netlink_send(
    fd: c_int,
    parts: *const libc::iovec,
    count: usize,
) -> c_int {
    guard::<OrMinusOne>(call!(softrnic_netlink_send, fd, count), move || {
        // SAFETY: as the caller promises.
        let datagram = unsafe { joined(parts, count)? };
        let (port, socket) = (port_of(fd)?, answering(fd)?);
        // Not kept locked while others are asked.
        let mut responder = registry().responder.clone();
        let answers = responder.answer(port, &datagram, &Machine);
        registry().responder = responder;
        deliver(&socket, port, answers)?;
        Ok(OrMinusOne(datagram.len() as c_int))
    })
}

/// Tells a program on this socket which devices come and go, until it closes the socket. Returns 0.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_netlink_monitor(fd: c_int) -> c_int {
    guard::<OrMinusOne>(call!(softrnic_netlink_monitor, fd), move || {
        let (port, socket) = (port_of(fd)?, answering(fd)?);
        let mut responder = registry().responder.clone();
        let monitor = responder.monitor(port, &Machine);
        let _blocked = BlockedSignals::new();
        // It ends by itself.
        Thread::spawn(c"softrnic-watch", move || watch(fd, port, &socket, monitor, responder))?;
        Ok(OrMinusOne(0))
    })
}

fn watch(fd: c_int, port: u32, socket: &Arc<OwnedFd>, mut monitor: Monitor, mut responder: Responder) {
    while number_of(fd) == Ok(port) {
        if deliver(socket, port, responder.watch(&mut monitor, &Machine)).is_err() {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// # Safety
/// As for [`softrnic_netlink_send`].
unsafe fn joined(parts: *const libc::iovec, count: usize) -> Result<Vec<u8>, Errno> {
    if count > libc::UIO_MAXIOV as usize {
        return Err(Errno(libc::EMSGSIZE));
    }
    let mut datagram = Vec::new();
    for place in 0..count {
        // SAFETY: one of `count` structures, as the caller promises.
        let part = unsafe { *parts.add(place) };
        if part.iov_len > LONGEST - datagram.len() {
            return Err(Errno(libc::EMSGSIZE));
        }
        if part.iov_len > 0 {
            // SAFETY: memory that the application lets the call read (`sendmsg`).
            datagram
                .extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) });
        }
    }
    Ok(datagram)
}

/// Sends the answers to a program's socket. If it has no room for all of them, a thread sends the rest as the program reads.
fn deliver(socket: &Arc<OwnedFd>, port: u32, answers: Vec<Vec<u8>>) -> Result<(), Errno> {
    for (place, answer) in answers.iter().enumerate() {
        match send(socket, port, answer, libc::MSG_DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (socket, rest) = (socket.clone(), answers[place..].to_vec());
                let _blocked = BlockedSignals::new();
                // It ends by itself.
                Thread::spawn(c"softrnic-answer", move || send_rest(&socket, port, &rest))?;
                return Ok(());
            }
            sent => sent?,
        }
    }
    Ok(())
}

fn send_rest(socket: &OwnedFd, port: u32, answers: &[Vec<u8>]) {
    let patience = libc::timeval { tv_sec: PATIENCE.as_secs() as libc::time_t, tv_usec: 0 };
    // SAFETY: a time that lives through the call, with its length.
    unsafe {
        let (value, length) = (&raw const patience, size_of_val(&patience) as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, value.cast(), length);
    }
    // The first that cannot be sent means that the program has closed its socket, or reads no more.
    let _unsent = answers.iter().try_for_each(|answer| send(socket, port, answer, 0));
}

fn send(socket: &OwnedFd, port: u32, answer: &[u8], flags: c_int) -> io::Result<()> {
    let to = to(port);
    let (data, length): (*const c_void, _) = (answer.as_ptr().cast(), answer.len());
    // SAFETY: bytes and an address that live through the call, with their lengths.
    let sent = unsafe {
        let address: *const libc::sockaddr = (&raw const to).cast();
        libc::sendto(socket.as_raw_fd(), data, length, flags, address, size_of_val(&to) as libc::socklen_t)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
