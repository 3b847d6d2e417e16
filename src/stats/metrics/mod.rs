//! The counters over HTTP, for Prometheus: one short answer per connection.

mod exposition;
mod request;

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use softrnic_wire::Time;

use super::Look;
use super::serve::{Answer, Limits, Server};
pub use exposition::exposition;
use request::{Request, Response};

/// Limits of HTTP clients.
pub const LIMITS: Limits = Limits {
    clients: 64,
    accepted: 16,
    bytes: 4 << 20,
    request: 8 << 10,
    timeout: Duration::from_secs(5),
    pace: Duration::from_millis(2),
};

/// How long the answers of the devices are reused.
const LIFETIME: Duration = Duration::from_millis(250);

/// Serves what `look` finds, for ever.
///
/// # Errors
/// The system has no descriptors or threads to start with.
pub fn serve(
    listener: TcpListener,
    mut look: impl FnMut() -> Result<Look, String> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let (mut wake, woken) = UnixStream::pair()?;
    woken.set_nonblocking(true)?;
    let (asks, asked) = unbounded();
    let (finds, found) = unbounded();
    // Looking is slow if a device does not answer; clients are served in the meantime.
    std::thread::Builder::new().name("look".into()).spawn(move || {
        while let Ok(()) = asked.recv() {
            if finds.send(look()).is_err() || wake.write_all(&[1]).is_err() {
                return;
            }
        }
    })?;
    let mut page = Page::new(asks, found);
    let begun = Instant::now();
    let now = || Time::ZERO + begun.elapsed();
    let mut server = Server::new(listener, LIMITS, |_| true, |request: &[u8], now| page.hear(request, now));
    loop {
        if server.wait(now(), Duration::MAX, woken.as_fd()) {
            let _ = (&woken).read(&mut [0; 64]);
        }
        server.round(now());
    }
}

/// The answers. The last result is given to every client while it is fresh.
pub struct Page {
    asks: Sender<()>,
    found: Receiver<Result<Look, String>>,
    looking: bool,
    last: Option<Found>,
}

/// The result of a look, as an answer, and as an answer to HEAD.
struct Found {
    whole: Arc<[u8]>,
    head: Arc<[u8]>,
    until: Time,
}

impl Page {
    /// A page that sends to `asks` to request a look, and receives it from `found`.
    pub fn new(asks: Sender<()>, found: Receiver<Result<Look, String>>) -> Page {
        Page { asks, found, looking: false, last: None }
    }

    /// The answer to a request.
    pub fn hear(&mut self, request: &[u8], now: Time) -> Answer {
        let head_only = request.starts_with(b"HEAD ");
        let response = match Request::parse(request) {
            Request::Unfinished => return Answer::More,
            Request::Refused(response) => response,
            Request::Index => Response::index(),
            Request::Metrics => return self.metrics(head_only, now),
        };
        Answer::Say(response.bytes(head_only).into())
    }

    fn metrics(&mut self, head_only: bool, now: Time) -> Answer {
        if let Ok(found) = self.found.try_recv() {
            self.looking = false;
            let response = match found {
                Ok(look) => Response::metrics(exposition(&look)),
                Err(problem) => Response::failed(&problem),
            };
            let (whole, head) = (response.bytes(false).into(), response.bytes(true).into());
            self.last = Some(Found { whole, head, until: now + LIFETIME });
        }
        match &self.last {
            Some(Found { whole, head, until }) if now < *until => {
                Answer::Say(Arc::clone(if head_only { head } else { whole }))
            }
            _ if self.looking => Answer::Later,
            _ => match self.asks.send(()) {
                Ok(()) => {
                    self.looking = true;
                    Answer::Later
                }
                Err(_) => Answer::Leave,
            },
        }
    }
}
