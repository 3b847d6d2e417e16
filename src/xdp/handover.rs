//! Hands a [`Grant`] from a privileged process to another one, over a Unix socket.
//!
//! The application sends a request. The helper answers with `granted`, the description and the descriptors, or with
//! `refused` and a reason. After a grant the connection stays open: the application asks for groups to receive, and
//! closing it tells the helper that the grant is no longer in use.

mod text;

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use softrnic_af_xdp::{BoundQueue, Options, Sharing};
use softrnic_sys::Credentials;
use softrnic_sys::unix::{self, MAX_DESCRIPTORS};
use softrnic_xdp_prog::MAX_QUEUES;

use super::grant::{Grant, GrantDescription, Prepared, prepare};
use super::keeper::Keeper;
use super::options::{AttachChoice, AttachMode, XdpError, XdpOptions};
use super::program::Maps;
use super::steering::Steering;
use softrnic_netdev::Host;
pub(super) use text::Wish;

/// Those of a grant with as many queues as the program supports.
const MOST_DESCRIPTORS: usize = 2 + 2 * MAX_QUEUES;
/// Longer than any valid request or answer, in bytes.
const MAX_TEXT: usize = 16 << 10;
/// How long the helper may take: drivers that reset their hardware to attach a program need seconds.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an application may take to send its request, or to receive the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

impl Grant {
    /// Asks the helper listening on `socket` (a path, or `@` and an abstract name) for `interface`.
    ///
    /// # Errors
    /// [`XdpError::Grant`]: no helper listens, it refuses, or what it grants is not what `options` require.
    pub fn request(socket: &str, interface: &str, options: &XdpOptions) -> Result<Grant, XdpError> {
        let failed = |reason: String| XdpError::Grant { socket: socket.to_owned(), reason };
        let stream = connect(socket).map_err(|error| failed(error.to_string()))?;
        Grant::ask(stream, interface, options).map_err(failed)
    }

    /// The same, with a helper that is connected already.
    ///
    /// # Errors
    /// A sentence with the reason, as for [`Grant::request`].
    pub fn ask(stream: UnixStream, interface: &str, options: &XdpOptions) -> Result<Grant, String> {
        let answer = ask(&stream, interface, options).map_err(|error| error.to_string())?;
        let (description, descriptors) = answer?;
        let description = text::read_description(&description).ok_or("the answer is malformed")?;
        check(&description, interface, options)?;
        Grant::from_parts(description, descriptors, stream).map_err(|error| error.to_string())
    }

    fn from_parts(
        description: GrantDescription,
        descriptors: Vec<OwnedFd>,
        stream: UnixStream,
    ) -> Result<Grant, XdpError> {
        if descriptors.len() != 2 + 2 * description.queues.len() {
            return Err(XdpError::BadOption("it has the wrong number of descriptors"));
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(XdpError::BadOption("it has too few descriptors"));
        let (program, verdicts) = (next()?, next()?);
        let mut queues = Vec::new();
        for layout in &description.queues {
            let (socket, memory) = (next()?, next()?);
            let max_frame = description.max_frame as usize;
            queues.push(BoundQueue::handed_over(socket, memory, *layout, description.chunk_size, max_frame)?);
        }
        Ok(Grant { description, program, verdicts, queues, steering: Steering::Helper(stream) })
    }
}

impl GrantDescription {
    /// Whether there can be such a grant: nothing computed from it overflows.
    fn is_sane(&self) -> bool {
        let in_range = |size: u32| Options::RING_SIZES.contains(&size) && size.is_power_of_two();
        let mut transmit = true;
        let queues_are = self.queues.iter().all(|layout| {
            let tx_slots_are = if transmit { in_range(layout.tx_slots) } else { layout.tx_slots == 0 };
            transmit = false;
            in_range(layout.rx_chunks) && tx_slots_are
        });
        Options::CHUNK_SIZES.contains(&self.chunk_size)
            && (64..=1 << 17).contains(&self.max_frame)
            && (1..=MAX_QUEUES).contains(&self.queues.len())
            && queues_are
    }
}

/// A request for a grant, as the helper sees it.
pub struct GrantRequest {
    stream: UnixStream,
    interface: String,
    options: XdpOptions,
}

impl GrantRequest {
    /// Reads the request of the connected application.
    ///
    /// # Errors
    /// No request comes in time, or it is malformed.
    pub fn read(stream: UnixStream) -> io::Result<GrantRequest> {
        let end = Instant::now() + CLIENT_TIMEOUT;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let mut request = Vec::new();
        let mut bytes = [0; 1024];
        while !request.ends_with(b"\n\n") {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match (&stream).read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => request.extend_from_slice(&bytes[..len]),
            }
            if request.len() > MAX_TEXT {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let request = String::from_utf8(request).map_err(|_| io::ErrorKind::InvalidData)?;
        let (interface, options) = text::read_request(&request).ok_or(io::ErrorKind::InvalidData)?;
        Ok(GrantRequest { stream, interface, options })
    }

    /// The requested interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Refuses the request.
    ///
    /// # Errors
    /// As for [`refuse`].
    pub fn refuse(self, reason: &str) -> io::Result<()> {
        refuse(&self.stream, reason)
    }

    /// Prepares the interface, attached and bound as `own` says, hands it over, and keeps only what decides which
    /// addresses are steered. If that fails, the application is told why.
    ///
    /// # Errors
    /// The application has gone away, or has reached its limit of descriptors.
    pub fn grant(self, own: &XdpOptions) -> io::Result<Option<Keeper>> {
        let XdpOptions { attach, queues, busy_poll, .. } = own.clone();
        let options = XdpOptions { attach, queues, busy_poll, ..self.options };
        let prepared = match prepare(&self.interface, &options, Sharing::Shared) {
            Ok(prepared) => prepared,
            Err(error) => {
                refuse(&self.stream, &error.to_string())?;
                return Ok(None);
            }
        };
        let Prepared { description, program, maps, queues } = prepared;
        let Maps { addresses, verdicts, .. } = maps;
        let stream = self.stream.try_clone()?;
        let keeper = match Keeper::new(stream, &description, options.addresses, addresses) {
            Ok(keeper) => keeper,
            Err(error) => {
                refuse(&self.stream, &error.to_string())?;
                return Ok(None);
            }
        };
        let mut descriptors = vec![program.as_fd(), verdicts.as_fd()];
        for queue in &queues {
            descriptors.push(queue.socket().as_fd());
            descriptors.extend(queue.memory_file());
        }
        send(&self.stream, &text::write_description(&description), &descriptors)?;
        Ok(Some(keeper))
    }
}

/// Refuses an application.
///
/// # Errors
/// It has gone away, or does not read.
pub fn refuse(stream: &UnixStream, reason: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    // An empty line would end the text early.
    let lines: Vec<&str> = reason.lines().filter(|line| !line.is_empty()).collect();
    send(stream, &format!("refused\n{}\n\n", lines.join("\n")), &[])
}

/// Sends a text, and descriptors with its first bytes.
pub(super) fn send(stream: &UnixStream, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut rest = text.as_bytes();
    for some in descriptors.chunks(MAX_DESCRIPTORS) {
        let (first, others) = rest.split_at(1);
        unix::send_waiting(stream, first, some)?;
        rest = others;
    }
    while !rest.is_empty() {
        let sent = rustix::net::send(stream, rest, SendFlags::NOSIGNAL)?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// The helper's answer: description and descriptors, or why not.
type Answer = Result<(String, Vec<OwnedFd>), String>;

fn connect(socket: &str) -> io::Result<UnixStream> {
    let Some(name) = socket.strip_prefix('@') else { return UnixStream::connect(socket) };
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    // Anybody can take the name of a helper that has ended, and would see all packets.
    let peer = Credentials::of_peer(&stream)?;
    if peer.are_roots() || peer.are_ours() {
        return Ok(stream);
    }
    let why = format!("the listener belongs to user {}, who is neither root nor this user", peer.uid);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn ask(stream: &UnixStream, interface: &str, options: &XdpOptions) -> io::Result<Answer> {
    if interface.contains('\n') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    stream.set_read_timeout(Some(HELPER_TIMEOUT))?;
    // A helper that serves other users refuses without reading the request.
    let asked = send(stream, &text::write_request(interface, options), &[]);
    let mut text = Vec::new();
    let mut descriptors = Vec::new();
    while !text.ends_with(b"\n\n") {
        match receive(stream, &mut text, &mut descriptors)? {
            0 => {
                asked?;
                break;
            }
            _ if text.len() > MAX_TEXT || descriptors.len() > MOST_DESCRIPTORS => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            _ => {}
        }
    }
    let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
    match text.split_once('\n') {
        Some(("granted", description)) => Ok(Ok((description.to_owned(), descriptors))),
        Some(("refused", reason)) => Ok(Err(reason.trim_end().to_owned())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is not that of a helper")),
    }
}

fn receive(stream: &UnixStream, text: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut bytes = [0; 1024];
    let received = unix::receive_waiting(stream, &mut bytes)?;
    descriptors.extend(received.descriptors);
    if received.lacks_descriptors {
        return Err(io::Error::other("too many open files"));
    }
    text.extend_from_slice(&bytes[..received.len]);
    Ok(received.len)
}

/// Received bytes of wishes, up to the end of a line.
#[derive(Default)]
pub(super) struct Wishes(Vec<u8>);

impl Wishes {
    /// Longer than any wish.
    const MAX_LINE: usize = 64;

    /// # Errors
    /// A line that is not a wish.
    pub(super) fn add(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Wish)) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        let mut rest = self.0.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = str::from_utf8(&rest[..end]).map_err(|_| io::ErrorKind::InvalidData)?;
            sink(line.parse().map_err(|()| io::ErrorKind::InvalidData)?);
            rest = &rest[end + 1..];
        }
        let used = self.0.len() - rest.len();
        self.0.drain(..used);
        if self.0.len() > Wishes::MAX_LINE { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

/// What the helper chose must match the request and our network namespace.
fn check(granted: &GrantDescription, interface: &str, options: &XdpOptions) -> Result<(), String> {
    let host = Host::open().map_err(|error| format!("the machine's interfaces cannot be read: {error}"))?;
    let here = host.interface(granted.ifindex).is_some_and(|found| found.name == granted.interface);
    if granted.interface != interface || !here {
        return Err(format!(
            "it grants {} in another network namespace, not {interface} in this one",
            granted.interface
        ));
    }
    match (options.attach, granted.attach) {
        (AttachChoice::Native, AttachMode::Skb) => {
            return Err("native XDP is requested, but the grant is for SKB mode".into());
        }
        (AttachChoice::Skb, AttachMode::Native) => {
            return Err("SKB mode is requested, but the grant is for native XDP".into());
        }
        _ => {}
    }
    let queues: Vec<u32> = granted.queues.iter().map(|layout| layout.queue).collect();
    if !options.queues.is_empty() && options.queues != queues {
        return Err(format!("queues {:?} are requested, but the grant is for {queues:?}", options.queues));
    }
    if options.busy_poll.is_some() && !granted.busy_poll {
        return Err("busy polling is requested, but the grant is without it".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
