//! One side sends, the other answers, and both spin meanwhile.

use std::time::{Duration, Instant};

use crate::process::{Line, Result};
use crate::stats::{RoundTrips, Samples};

/// Looks in vain after which the answering side asks whether it is over.
const LOOKS: u32 = 1 << 12;

/// One end of a ping-pong.
pub trait Side {
    fn send(&mut self) -> Result<()>;

    /// Whether what the other side has sent has come.
    fn receive(&mut self) -> Result<bool>;

    /// After a look in vain.
    fn wait(&self) {}
}

/// Sends, waits for the answer, and begins again.
pub fn ask(mut side: impl Side, time: Duration, line: &mut Line) -> Result<RoundTrips> {
    let mut samples = Samples::new();
    let start = Instant::now();
    let mut sent = start;
    while sent - start < time {
        side.send()?;
        while !side.receive()? {
            side.wait();
        }
        let now = Instant::now();
        samples.add(now - sent);
        sent = now;
    }
    line.stop()?;
    Ok(samples.summary()?)
}

/// Answers until the other side says that it is over.
pub fn answer(mut side: impl Side, mut line: Line) -> Result<()> {
    let mut looks = 0_u32;
    loop {
        if side.receive()? {
            side.send()?;
            looks = 0;
            continue;
        }
        side.wait();
        looks += 1;
        if looks.is_multiple_of(LOOKS) && line.stopped()? {
            return Ok(());
        }
    }
}
