//! Answering requests for grants.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anstream::eprintln;
use rustix::process::{Resource, Rlimit};
use softrnic_link::xdp::{GrantRequest, Keeper, refuse};

use super::Interface;

/// The most callers at a time, those that have a grant among them. An interface can have one.
const MOST_CALLERS: usize = 64;

/// Which interfaces are granted to whom.
pub struct Service {
    offers: Vec<Offer>,
    uid: u32,
    callers: AtomicUsize,
}

/// An interface, and the one hand-over of it at a time. Until it is over this process holds on to the program as well,
/// and the next caller would find it attached although the one before has let go of it.
struct Offer {
    interface: Interface,
    handing_over: Mutex<()>,
}

impl Service {
    pub fn new(interfaces: Vec<Interface>, uid: u32) -> Service {
        // Packet memory is pinned by this process. Without the privilege its limit stays, and is named where it bites.
        let unlimited = Rlimit { current: None, maximum: None };
        let _limited = rustix::process::setrlimit(Resource::Memlock, unlimited);
        let offer = |interface| Offer { interface, handing_over: Mutex::new(()) };
        Service { offers: interfaces.into_iter().map(offer).collect(), uid, callers: AtomicUsize::new(0) }
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
