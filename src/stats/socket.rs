//! The statistics socket of a device.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use softrnic_mapping::Thread;
use softrnic_sys::Credentials;
use softrnic_wire::Time;

use super::look::sweep;
use super::request::{Detail, Request};
use super::serve::{Answer, Limits, Server};
use super::{Snapshot, private_directory};
use softrnic_sync::kick::Kick;

/// Limits of clients.
pub const LIMITS: Limits = Limits {
    clients: 64,
    accepted: 16,
    bytes: 4 << 20,
    request: 4 << 10,
    timeout: Duration::from_secs(1),
    pace: Duration::from_millis(2),
};

/// How long a snapshot is reused: however many clients there are, the NIC is not held for it more often than this.
pub const LIFETIME: Duration = Duration::from_millis(100);

/// How long the thread waits for another client before it ends.
const LINGER: Duration = Duration::from_secs(3);

/// Where a device answers clients. Removed when dropped, except by a forked child.
pub struct StatsSocket {
    listener: UnixListener,
    path: PathBuf,
    process: u32,
}

impl StatsSocket {
    /// Opens the socket of this process for a device.
    ///
    /// # Errors
    /// There is no directory for it, or it cannot be created there.
    pub fn open(device: &str) -> io::Result<StatsSocket> {
        let process = std::process::id();
        let directory = private_directory()?;
        sweep(&directory);
        let path = directory.join(format!("{process}-{device}.sock"));
        // Between bind and listen a socket refuses connections, like that of a dead process: so it is renamed to its
        // final name once it listens.
        let unnamed = directory.join(format!("{process}-{device}.new"));
        // A leftover of an earlier process with our process id.
        let _ = std::fs::remove_file(&unnamed);
        let listener = UnixListener::bind(&unnamed)?;
        listener.set_nonblocking(true)?;
        std::fs::rename(&unnamed, &path)?;
        Ok(StatsSocket { listener, path, process })
    }

    /// What is readable when a client comes.
    pub fn descriptor(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Answers clients until none has come for a while, or `stop` is closed. `snapshot` is called no more often than a
    /// snapshot is reused; `command` carries out a command to the port.
    pub fn serve(
        &self,
        stop: BorrowedFd<'_>,
        now: impl Fn() -> Time,
        mut snapshot: impl FnMut(Detail) -> Option<Snapshot>,
        mut command: impl FnMut(&str) -> Result<(), String>,
    ) {
        let [mut usual, mut close, mut asking] = [const { Cached::EMPTY }; 3];
        let mut server = Server::new(&self.listener, LIMITS, is_ours, |text: &[u8], now| {
            match Request::parse(text) {
                Request::Unfinished => Answer::More,
                Request::Unknown => Answer::Leave,
                Request::Snapshot(detail) => {
                    let cached = match detail {
                        Detail::Usual => &mut usual,
                        Detail::Close => &mut close,
                        Detail::Asking => &mut asking,
                    };
                    cached.get(now, || serde_json::to_vec(&snapshot(detail)?).ok())
                }
                Request::Link(text) => {
                    let answer = command(text);
                    // The last snapshots are from before.
                    (usual, close, asking) = (Cached::EMPTY, Cached::EMPTY, Cached::EMPTY);
                    serde_json::to_vec(&answer).map_or(Answer::Leave, |answer| Answer::Say(answer.into()))
                }
            }
        });
        let mut until = now() + LINGER;
        loop {
            let time = now();
            if server.wait(time, until.since(time), stop) {
                return;
            }
            let time = now();
            if server.round(time).accepted > 0 || server.clients() > 0 {
                until = time + LINGER;
            } else if until <= time {
                return;
            }
        }
    }

    /// Takes the socket away from those who look for devices: this one is closed, or the process exits.
    pub fn remove(&self) {
        if self.process == std::process::id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for StatsSocket {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The last snapshot.
#[derive(Default)]
pub struct Cached {
    text: Option<(Arc<[u8]>, Time)>,
}

impl Cached {
    const EMPTY: Cached = Cached { text: None };

    /// The last snapshot, or a new one if it is too old.
    pub fn get(&mut self, now: Time, take: impl FnOnce() -> Option<Vec<u8>>) -> Answer {
        if self.text.as_ref().is_none_or(|(_, until)| *until <= now) {
            self.text = take().map(|text| (text.into(), now + LIFETIME));
        }
        self.text.as_ref().map_or(Answer::Leave, |(text, _)| Answer::Say(Arc::clone(text)))
    }
}

/// Whether a client is of our user, or root.
pub fn is_ours(client: BorrowedFd<'_>) -> bool {
    Credentials::of_peer(client).is_ok_and(|peer| peer.are_roots() || peer.are_ours())
}

/// The thread that answers. It starts when a client comes and ends when there are no more: a process without clients
/// has none.
#[derive(Default)]
pub struct Answering {
    running: Option<Running>,
    /// No thread could be created: do not try again before then.
    not_before: Time,
}

struct Running {
    thread: Thread,
    /// Closed to stop it.
    stop: UnixStream,
    finished: Arc<AtomicBool>,
}

/// Tells the progress thread that the socket is no longer watched, however the thread has ended.
struct Finished(Arc<AtomicBool>, Arc<Kick>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.kick();
    }
}

impl Answering {
    /// From when on the socket is to be watched for clients: never while the thread runs.
    pub fn watches_from(&mut self) -> Time {
        if self.running.as_ref().is_some_and(|running| running.finished.load(Ordering::SeqCst)) {
            self.stop();
        }
        if self.running.is_some() { Time::NEVER } else { self.not_before }
    }

    /// A client has come: runs `answer` in the thread until it returns, at the latest when its argument is closed.
    pub fn start(
        &mut self,
        now: Time,
        kick: &Arc<Kick>,
        answer: impl FnOnce(BorrowedFd<'_>) + Send + 'static,
    ) {
        let started = UnixStream::pair().and_then(|(stop, stopped)| {
            let finished = Arc::new(AtomicBool::new(false));
            let last = Finished(Arc::clone(&finished), Arc::clone(kick));
            let thread = Thread::spawn(c"softrnic-stats", move || {
                let _last = last;
                answer(stopped.as_fd());
            })?;
            Ok(Running { thread, stop, finished })
        });
        match started {
            Ok(running) => self.running = Some(running),
            Err(error) => {
                tracing::debug!(%error, "no statistics: the system gives no thread");
                self.not_before = now + LINGER;
            }
        }
    }

    /// Ends the thread.
    pub fn stop(&mut self) {
        if let Some(Running { thread, stop, .. }) = self.running.take() {
            drop(stop);
            thread.join();
        }
    }
}
