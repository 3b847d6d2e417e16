//! One line on a terminal that shows the progress of a long run. Nothing is shown elsewhere.

use std::io::{IsTerminal, Write};

/// Removes its line when dropped.
pub struct Progress {
    shown: bool,
    done: usize,
    total: usize,
}

impl Progress {
    /// None of `total` parts is done.
    pub fn new(total: usize) -> Progress {
        Progress { shown: std::io::stderr().is_terminal(), done: 0, total }
    }

    /// Starts the next part.
    pub fn next(&mut self, what: &str) {
        self.done += 1;
        if !self.shown {
            return;
        }
        const WIDTH: usize = 24;
        let filled = (WIDTH * self.done / self.total.max(1)).min(WIDTH);
        let bar = format!("{:█<filled$}{:░<empty$}", "", "", empty = WIDTH - filled);
        // A terminal that cannot be written to is no reason to stop.
        let _ = write!(std::io::stderr(), "\r\x1b[2K{bar} {}/{} {what}", self.done, self.total);
    }
}

impl Progress {
    /// Removes the line until the next part starts, for other output.
    pub fn hide(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}
