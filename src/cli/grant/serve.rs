//! Answering requests for grants.

use std::os::unix::net::{UnixListener, UnixStream};

use anstream::eprintln;
use rustix::process::{Resource, Rlimit};
use softrnic_link::xdp::{Grant, GrantRequest};

use super::Interface;

/// What packet memory may take, in bytes for each queue: many times the default.
const LOCKED_MEMORY: u64 = 256 << 20;

/// Which interfaces are granted to whom.
pub struct Service {
    interfaces: Vec<Interface>,
    uid: u32,
}

impl Service {
    pub fn new(interfaces: Vec<Interface>, uid: u32) -> Service {
        Service { interfaces, uid }
    }

    /// Serves those who connect, one after the other, for ever.
    pub fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            if let Err(error) = stream.and_then(|stream| self.answer(stream)) {
                eprintln!("softrnic: a request was not served: {error}");
            }
        }
    }

    fn answer(&self, stream: UnixStream) -> std::io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        let request = GrantRequest::read(stream)?;
        if peer.uid.as_raw() != self.uid {
            return request.refuse(&format!("it is for user {} only", self.uid));
        }
        let Some(interface) = self.interfaces.iter().find(|known| known.name == request.interface()) else {
            let names: Vec<_> = self.interfaces.iter().map(|known| known.name.as_str()).collect();
            return request.refuse(&format!("it is for {} only", names.join(", ")));
        };
        match Grant::acquire(&interface.name, &interface.options) {
            Ok(grant) => {
                // Without it the peer may fail, and then says that it is the limit.
                let _ = raise_limit(peer.pid);
                request.grant(grant)
            }
            Err(error) => request.refuse(&error.to_string()),
        }
    }
}

/// Lets a process lock as much memory as packets need, if it may not already. Memory that the kernel writes packets
/// into counts as locked.
fn raise_limit(process: rustix::process::Pid) -> rustix::io::Result<()> {
    let enough = |limit: Option<u64>| limit.is_none_or(|bytes| bytes >= LOCKED_MEMORY);
    let limit = Rlimit { current: Some(LOCKED_MEMORY), maximum: Some(LOCKED_MEMORY) };
    let before = rustix::process::prlimit(Some(process), Resource::Memlock, limit)?;
    if enough(before.current) {
        rustix::process::prlimit(Some(process), Resource::Memlock, before)?;
    }
    Ok(())
}
