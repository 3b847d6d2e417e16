//! The services of this process, among those of its host.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use softrnic_link::{Backlog, ProcessSlot, ServeError, Sharing};
use softrnic_wire::ServiceId;

use crate::rendezvous::{self, Message};

/// What a process has told its fabric of the services that it listens for.
pub struct Services {
    /// Nothing ever comes by it: that others join a host is no business of its NICs.
    quiet: OwnedFd,
    pub stream: Option<OwnedFd>,
    processes: usize,
    /// The question that the fabric has not answered, and the answer to it.
    asked: Option<(ServiceId, Option<bool>)>,
}

impl Services {
    pub fn new(quiet: OwnedFd, stream: OwnedFd, processes: u16) -> Services {
        Services { quiet, stream: Some(stream), processes: processes.into(), asked: None }
    }

    /// The fabric has answered.
    pub fn answered(&mut self, served: bool) {
        if let Some((_, answer)) = &mut self.asked {
            *answer = Some(served);
        }
    }
}

impl Sharing for Services {
    /// One number for each process there was at the start.
    fn processes(&mut self) -> Vec<u32> {
        vec![0; self.processes]
    }

    fn lifelines(&mut self, _address: IpAddr, _slot: ProcessSlot) -> Option<u64> {
        None
    }

    fn descriptor(&self) -> RawFd {
        self.quiet.as_raw_fd()
    }

    fn attend(&mut self) -> Vec<Arc<dyn Backlog>> {
        Vec::new()
    }

    fn let_in(&mut self) {}

    /// Asks the fabric, which answers a moment later: until then, others may be changing it for all that we know.
    fn serve(&mut self, service: ServiceId, _at: Option<IpAddr>) -> Result<(), ServeError> {
        match self.asked {
            Some((asked, Some(served))) if asked == service => {
                self.asked = None;
                if served { Ok(()) } else { Err(ServeError::Taken) }
            }
            // The fabric has ended: nobody's requests will come, in any case.
            _ if self.stream.is_none() => {
                self.asked = None;
                Ok(())
            }
            // Another thread waits for the answer to its own question.
            Some((_, None)) => Err(ServeError::Busy),
            _ => {
                let said = |stream: &OwnedFd| rendezvous::say(stream, &Message::Serve(service)).is_ok();
                if !self.stream.as_ref().is_some_and(said) {
                    return Ok(());
                }
                self.asked = Some((service, None));
                Err(ServeError::Busy)
            }
        }
    }

    fn stop_serving(&mut self, service: ServiceId) -> Result<(), ServeError> {
        if let Some(stream) = &self.stream {
            let _ = rendezvous::say(stream, &Message::StopServing(service));
        }
        Ok(())
    }

    fn end_sharing(&mut self) {}
}
