//! Commands to a fabric that runs.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::join::{JoinError, connect, wait_for_answer};
use crate::rendezvous::{self, Message};

/// Has a fabric carry out a command, and returns its answer.
///
/// # Errors
/// See [`JoinError`].
pub fn command(fabric: &str, command: &str, timeout: Duration) -> Result<String, JoinError> {
    let stream = connect(fabric)?;
    rendezvous::say(&stream, &Message::Command(command.into()))?;
    let mut answer = String::new();
    loop {
        match wait_for_answer(&stream, timeout) {
            Some(Message::Answer(part)) => answer += &part,
            Some(Message::Done) => return Ok(answer),
            Some(Message::Refusal(why)) => return Err(JoinError::Refused(why)),
            _ => return Err(JoinError::NoAnswer(fabric.into())),
        }
    }
}

/// Waits until a fabric that was told to end has ended.
///
/// # Errors
/// It has not, in that time.
pub fn wait_for_end(fabric: &str, timeout: Duration) -> Result<(), JoinError> {
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        match rendezvous::connect(fabric) {
            Err(Errno::CONNREFUSED) => return Ok(()),
            // It has not seen us yet; its end is the end of the stream.
            Ok(stream) => drop(wait_for_answer(&stream, end.saturating_duration_since(Instant::now()))),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(JoinError::NoAnswer(fabric.into()))
}
