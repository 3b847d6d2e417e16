//! Answering requests for grants.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anstream::eprintln;
use rustix::process::{Resource, Rlimit};
use softrnic_link::xdp::{GrantRequest, refuse};

use super::Interface;

/// The most callers at a time, those that have a grant among them. An interface can have one.
const MOST_CALLERS: usize = 64;

/// Which interfaces are granted to whom.
pub struct Service {
    interfaces: Vec<Interface>,
    uid: u32,
    callers: AtomicUsize,
}

impl Service {
    pub fn new(interfaces: Vec<Interface>, uid: u32) -> Service {
        // Packet memory is pinned by this process. Without the privilege its limit stays, and is named where it bites.
        let unlimited = Rlimit { current: None, maximum: None };
        let _limited = rustix::process::setrlimit(Resource::Memlock, unlimited);
        Service { interfaces, uid, callers: AtomicUsize::new(0) }
    }

    /// Serves those who connect, for ever; each in a thread of its own, so that nobody waits for another.
    pub fn serve(&self, listener: &UnixListener) {
        thread::scope(|scope| {
            for stream in listener.incoming() {
                let served = stream.and_then(|stream| {
                    let work = move || self.admit(stream).unwrap_or_else(|error| complain(&error));
                    thread::Builder::new().name("grant".into()).spawn_scoped(scope, work)
                });
                if let Err(error) = served {
                    complain(&error);
                }
            }
        });
    }

    /// Nothing is read from those who are not to be served.
    fn admit(&self, stream: UnixStream) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if peer.uid.as_raw() != self.uid {
            return refuse(&stream, &format!("it is for user {} only", self.uid));
        }
        let before = self.callers.fetch_add(1, Ordering::Relaxed);
        let done = if before < MOST_CALLERS {
            self.answer(stream)
        } else {
            refuse(&stream, &format!("{MOST_CALLERS} others are served already"))
        };
        self.callers.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Returns when a grant is used no more.
    fn answer(&self, stream: UnixStream) -> io::Result<()> {
        let request = GrantRequest::read(stream)?;
        let Some(interface) = self.interfaces.iter().find(|known| known.name == request.interface()) else {
            let names: Vec<_> = self.interfaces.iter().map(|known| known.name.as_str()).collect();
            return request.refuse(&format!("it is for {} only", names.join(", ")));
        };
        match request.grant(&interface.options)? {
            Some(keeper) => keeper.keep(),
            None => Ok(()),
        }
    }
}

fn complain(error: &io::Error) {
    eprintln!("softrnic: a request was not served: {error}");
}
