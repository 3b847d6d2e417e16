//! Waiting for completions.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softrnic_nic::verbs::{CompletionChannel, Cq, Cqe};

/// Longer than a QP takes to give up by itself, with the attributes that the tests use.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(60);

/// Takes completions of two queues, by polling or by events.
pub struct Waiting<'a> {
    queues: [&'a Cq; 2],
    channel: &'a Arc<CompletionChannel>,
    events: bool,
    empty: u32,
    since: Instant,
}

impl<'a> Waiting<'a> {
    pub fn new(queues: [&'a Cq; 2], channel: &'a Arc<CompletionChannel>, events: bool) -> Waiting<'a> {
        Waiting { queues, channel, events, empty: 0, since: Instant::now() }
    }

    /// Takes what is there, and waits a little when that is nothing. An error when there was no progress for too long.
    pub fn take(&mut self, found: &mut Vec<Cqe>) -> Result<(), String> {
        self.poll(found);
        if !found.is_empty() {
            self.empty = 0;
            return Ok(());
        }
        self.empty += 1;
        if self.since.elapsed() > COMPLETION_TIMEOUT {
            return Err("no completions come any more".into());
        }
        if !self.events {
            std::thread::yield_now();
        } else if self.empty > 100 {
            self.block(found).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// What was waited for has come, or nothing is expected; so nothing is late.
    pub fn progress(&mut self) {
        self.since = Instant::now();
    }

    fn poll(&self, found: &mut Vec<Cqe>) {
        for queue in self.queues {
            queue.poll_with(64, |cqe| found.push(cqe));
        }
    }

    fn block(&mut self, found: &mut Vec<Cqe>) -> std::io::Result<()> {
        self.queues.iter().for_each(|queue| queue.arm(false));
        // What came before arming fires nothing.
        self.poll(found);
        let mut descriptors = [PollFd::new(self.channel, PollFlags::IN)];
        let patience = if found.is_empty() { 100_000_000 } else { 0 };
        poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: patience }))?;
        while poll(&mut [PollFd::new(&self.channel.as_fd(), PollFlags::IN)], Some(&Timespec::default()))? > 0
        {
            self.channel.event()?;
        }
        Ok(())
    }
}
