//! Asks the devices of running processes for snapshots.
//!
//! A socket may belong to a process that is stopped, stuck or not what it seems. Each is asked by its own thread, with
//! a deadline for the whole answer and a limit on its length, so none can hold up the others.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, test_kill_process};
use softrnic_sys::Credentials;

use super::Snapshot;
use super::directory::{check_private, directories};
use super::request::{Detail, LINK};

/// How long a device may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest snapshot that is read, in bytes: enough for more than a hundred thousand QPs.
const MAX_SNAPSHOT: u64 = 64 << 20;

/// Threads that ask at the same time.
const AT_ONCE: usize = 64;

/// The answers of the devices of this user's running processes.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Those that answered, by process and name.
    pub snapshots: Vec<Snapshot>,
    /// Those that did not, by the names of their sockets.
    pub silent: Vec<Silent>,
    /// Directories that should have sockets but are not private to this user, and why.
    pub passed_over: Vec<String>,
}

/// A device that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Silent {
    /// Process and device, as in the socket's name: `1234-softrnic0`.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// Asks all devices of this user's running processes. Sockets left behind by killed processes are removed.
///
/// # Errors
/// A directory cannot be read. If there is none, nothing is running.
pub fn look() -> io::Result<Look> {
    look_with(Detail::Usual)
}

/// Like [`look`], with the [`Resources`](super::Resources) of each device.
///
/// # Errors
/// Those of [`look`].
pub fn look_closely() -> io::Result<Look> {
    look_with(Detail::Close)
}

fn look_with(detail: Detail) -> io::Result<Look> {
    let (directories, passed_over) = directories();
    let mut all = Look { passed_over, ..Look::default() };
    for directory in directories {
        let Look { snapshots, silent, .. } = look_into(&directory, detail)?;
        all.snapshots.extend(snapshots);
        all.silent.extend(silent);
    }
    all.snapshots.sort_by(|a, b| (a.pid, &a.device).cmp(&(b.pid, &b.device)));
    Ok(all)
}

/// Only the snapshots of [`look`].
///
/// # Errors
/// Those of [`look`].
pub fn running() -> io::Result<Vec<Snapshot>> {
    Ok(look()?.snapshots)
}

pub(super) fn look_into(directory: &Path, detail: Detail) -> io::Result<Look> {
    match check_private(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::default()),
        Err(error) => return Err(error),
    }
    let mut sockets = sockets_in(directory)?;
    sockets.sort();
    let mut look = Look::default();
    for some in sockets.chunks(AT_ONCE) {
        let answers: Vec<io::Result<Snapshot>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (some.iter())
                .map(|path| std::thread::Builder::new().spawn_scoped(scope, move || ask_for(path, detail)))
                .collect();
            let answers = asking.into_iter().zip(some).map(|(asked, path)| match asked {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("asking it failed"))),
                // Where no thread can be made, one is asked after the other.
                Err(_) => ask_for(path, detail),
            });
            answers.collect()
        });
        for (path, answer) in some.iter().zip(answers) {
            match answer {
                Ok(snapshot) => look.snapshots.push(snapshot),
                // Another thread may already have removed it.
                dead if is_dead(&dead) => {
                    let _ = std::fs::remove_file(path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    look.silent.push(Silent { name, why: error.to_string() });
                }
            }
        }
    }
    look.snapshots.sort_by(|a, b| (a.pid, &a.device).cmp(&(b.pid, &b.device)));
    look.snapshots.dedup_by(|a, b| (a.pid, &a.device) == (b.pid, &b.device));
    Ok(look)
}

fn sockets_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut sockets: Vec<PathBuf> =
        std::fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect();
    sockets.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    Ok(sockets)
}

/// Removes the sockets of processes that ended without doing so.
pub(super) fn sweep(directory: &Path) {
    for path in sockets_in(directory).unwrap_or_default() {
        // Where no such process is, it may still be one of another PID namespace: its socket answers.
        if !runs(&path) && is_dead(&connect(&path)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether the process that a socket is named after runs, as far as this PID namespace shows.
fn runs(socket: &Path) -> bool {
    let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
    let number = stem.split_once('-').and_then(|(number, _)| number.parse().ok());
    number.and_then(Pid::from_raw).is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether a socket has no listener, so that its process has ended.
fn is_dead<T>(answer: &io::Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// One device's snapshot. The facts about its process come from the kernel.
///
/// # Errors
/// There is none, it belongs to another user, or it does not answer in time, or in a way that makes sense.
pub fn ask(socket: &Path) -> io::Result<Snapshot> {
    ask_for(socket, Detail::Usual)
}

/// Has a device ask the NICs of its peers about the queue pairs that wait for them; tells what they have said so far.
///
/// # Errors
/// Those of [`ask`].
pub(super) fn ask_peers(socket: &Path) -> io::Result<Snapshot> {
    ask_for(socket, Detail::Asking)
}

fn ask_for(socket: &Path, detail: Detail) -> io::Result<Snapshot> {
    let (text, peer) = request(socket, detail.request())?;
    let mut snapshot = Snapshot::read(&text)?;
    // Processes of other PID namespaces have no number here but what they say.
    if peer.pid != 0 {
        snapshot.pid = peer.pid.unsigned_abs();
    }
    snapshot.socket = socket.to_owned();
    Ok(snapshot)
}

/// Has a device do something to its port: `text` is a [`LinkCommand`](softrnic_link::fault::LinkCommand).
///
/// # Errors
/// There is none, it belongs to another user, it does not answer in time, or it says why it cannot.
pub fn command(socket: &Path, text: &str) -> io::Result<()> {
    let (text, _) = request(socket, &format!("{LINK}{text}"))?;
    let answer: Result<(), String> = serde_json::from_slice(&text).map_err(|_| no_sense())?;
    answer.map_err(io::Error::other)
}

/// Sends a line to a device, and returns its answer, and who has given it.
fn request(socket: &Path, line: &str) -> io::Result<(Vec<u8>, Credentials)> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut stream = connect(socket)?;
    let peer = Credentials::of_peer(&stream)?;
    if !peer.are_ours() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    match stream.write_all(format!("{line}\n").as_bytes()) {
        // Another version may answer before it is asked.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    let mut text = Vec::new();
    let mut part = vec![0; 1 << 16];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(len) => text.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        }
        if text.len() as u64 > MAX_SNAPSHOT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
        }
    }
    if text.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it sent no answer"));
    }
    Ok((text, peer))
}

fn no_sense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its answer is not in the format of this version")
}

impl Snapshot {
    /// Parses a snapshot from an untrusted process.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(text: &[u8]) -> io::Result<Snapshot> {
        let mut snapshot: Snapshot = serde_json::from_slice(text).map_err(|_| no_sense())?;
        tame(&mut snapshot);
        Ok(snapshot)
    }
}

/// Ensures that what is shown of a process is at most a line of text, and that no QP or peer appears twice.
fn tame(snapshot: &mut Snapshot) {
    const LONGEST: usize = 500;
    let plain = |text: &mut String| {
        if text.chars().any(char::is_control) || text.chars().nth(LONGEST).is_some() {
            let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            *text = text.chars().take(LONGEST).map(shown).collect();
        }
    };
    plain(&mut snapshot.program);
    plain(&mut snapshot.device);
    plain(&mut snapshot.mode);
    plain(&mut snapshot.port.state);
    plain(&mut snapshot.port.phys_state);
    snapshot.port.in_force.iter_mut().for_each(plain);
    let is_name = |text: &str| {
        text.len() <= LONGEST
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    snapshot.counters.retain(|name, _| is_name(name));
    for qp in &mut snapshot.qps {
        plain(&mut qp.service);
        plain(&mut qp.state);
    }
    for connection in &mut snapshot.connections {
        plain(&mut connection.state);
        plain(&mut connection.transport);
        plain(&mut connection.service);
    }
    if let Some(resources) = &mut snapshot.resources {
        resources.tame(plain);
    }
    snapshot.connections.sort_by_key(|connection| connection.id);
    snapshot.connections.dedup_by_key(|connection| connection.id);
    snapshot.qps.sort_by_key(|qp| qp.qpn);
    snapshot.qps.dedup_by_key(|qp| qp.qpn);
    snapshot.peers.sort_by_key(|peer| peer.address);
    snapshot.peers.dedup_by_key(|peer| peer.address);
    for reach in &mut snapshot.reach {
        plain(&mut reach.through);
        if let Some(why) = &mut reach.why {
            plain(why);
        }
    }
    snapshot.reach.sort_by_key(|reach| (reach.peer, reach.slot));
    snapshot.reach.dedup_by_key(|reach| (reach.peer, reach.slot));
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

/// Connects without waiting for a process that does not accept.
pub(super) fn connect(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&descriptor, &SocketAddrUnix::new(socket)?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not accept connections"));
        }
        Err(error) => return Err(error.into()),
    }
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
