//! A rdma_cm server that runs at the peer and knows nothing of scripts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use softrnic_script::{Script, play};

use super::{Lab, LabError, told};
use crate::peer::Peer;
use crate::timing::Place;

/// What it must be able to do, whatever else it does. It may repeat its reply before the confirmation has come, and whether it
/// agrees to the end shows in scripts.
const MEETING: &str = "server\n< CM REQ c\n> CM REP c\n< CM RTU c\nignore\n";
/// What happens where nobody listens and a kernel answers. Where somebody listens, another reason refuses this, and the program
/// learns nothing of it.
const ABSENCE: &str = "server\n< CM REQ c rgid 0x01020304\n> CM REJ c reason 8\n";
/// One that serves a single connection, like `rping -s` in a loop of the shell, must listen again after this time.
const ABSENT_AT_MOST: Duration = Duration::from_secs(5);

impl Lab {
    /// Makes a connection, so that nothing else is sent where nobody wants it, and measures how long the peer takes to answer.
    pub(super) fn meet_server(&mut self, port: u16) -> Result<(), LabError> {
        let mut wire = self.wire(None)?;
        let mut peer = Peer::new(&mut wire, None, Some(port), self.place, self.take_qpns());
        exchange(MEETING, &mut peer).map_err(|why| self.refused(port, why))?;
        let measured = Place::measure(|| peer.ask_server().map(drop));
        let measured = measured.map_err(|trouble| self.refused(port, trouble.to_string()))?;
        self.past = peer.past;
        self.place.jitter = self.place.jitter.max(measured.jitter);
        self.place.round_trip = self.place.round_trip.max(measured.round_trip);
        self.measured = self.place;
        Ok(())
    }

    /// Waits until it listens.
    pub(super) fn await_server(&mut self, port: u16) -> Result<(), LabError> {
        let end = Instant::now() + ABSENT_AT_MOST;
        while !self.listens(port)? {
            if Instant::now() > end {
                return Err(self.refused(port, "it does not listen any more".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether there is a listener. Where there is none the peer says so, or it has ended with its connection manager.
    fn listens(&mut self, port: u16) -> Result<bool, LabError> {
        let mut wire = self.wire(None)?;
        let mut peer = Peer::new(&mut wire, None, Some(port), self.place, self.take_qpns());
        peer.past = self.past;
        if exchange(ABSENCE, &mut peer).is_ok() {
            return Ok(false);
        }
        let answers = !peer.nothing_came || peer.ask_server().is_ok_and(|answered| answered);
        Ok(answers)
    }

    fn refused(&self, port: u16, why: String) -> LabError {
        LabError::Server(SocketAddr::new(self.options.peer, port), why)
    }
}

/// Plays what no capture shows; returns why it has not gone like that.
fn exchange(text: &str, peer: &mut Peer<'_>) -> Result<(), String> {
    let cases = Script::new("server", text).cases().map_err(|error| error.to_string())?;
    cases.iter().try_for_each(|case| play(&case.lines, peer).map_err(|failure| told(&failure, "").2))
}
