//! Answers requests for grants.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anstream::eprintln;
use rustix::process::{Resource, Rlimit};
use softrnic_sys::Credentials;
use softrnic_xdp::{GrantRequest, Keeper, refuse};

use super::Interface;

/// The most callers at a time, including those that hold a grant.
const MOST_CALLERS: usize = 64;

/// The interfaces to grant, and the user to grant them to.
pub struct Service {
    offers: Vec<Offer>,
    uid: u32,
    callers: AtomicUsize,
}

/// An interface, which is handed over to one process at a time. Until the hand-over is complete this process also holds
/// the program, and the next caller would find it attached although the previous one has released it.
struct Offer {
    interface: Interface,
    handing_over: Mutex<()>,
}

impl Service {
    pub fn new(interfaces: Vec<Interface>, uid: u32) -> Service {
        // This process pins the packet memory. Without the privilege its limit stays, and is named in the error.
        let unlimited = Rlimit { current: None, maximum: None };
        let _limited = rustix::process::setrlimit(Resource::Memlock, unlimited);
        let offer = |interface| Offer { interface, handing_over: Mutex::new(()) };
        Service { offers: interfaces.into_iter().map(offer).collect(), uid, callers: AtomicUsize::new(0) }
    }

    /// Serves all callers, for ever; each in its own thread, so that none waits for another.
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

    /// Nothing is read from callers that may not be served.
    fn admit(&self, stream: UnixStream) -> io::Result<()> {
        let peer = Credentials::of_peer(&stream)?;
        if !peer.are_of(self.uid) {
            return refuse(&stream, &format!("it is for user {} only", self.uid));
        }
        let before = self.callers.fetch_add(1, Ordering::Relaxed);
        let done = if before < MOST_CALLERS {
            self.answer(stream)
        } else {
            refuse(&stream, &format!("{MOST_CALLERS} other processes are being served"))
        };
        self.callers.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Returns when a grant is no longer in use.
    fn answer(&self, stream: UnixStream) -> io::Result<()> {
        let request = GrantRequest::read(stream)?;
        let Some(offer) = self.offers.iter().find(|offer| offer.interface.name == request.interface()) else {
            let names: Vec<_> = self.offers.iter().map(|offer| offer.interface.name.as_str()).collect();
            return request.refuse(&format!("it is for {} only", names.join(", ")));
        };
        let keeper = {
            let _alone = offer.handing_over.lock().unwrap_or_else(PoisonError::into_inner);
            request.grant(&offer.interface.options)?
        };
        keeper.map_or(Ok(()), Keeper::keep)
    }
}

fn complain(error: &io::Error) {
    eprintln!("softrnic: a request was not served: {error}");
}
