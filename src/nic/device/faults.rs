//! Says what each fault rule has done, once: when the device closes, or when the process exits.

use softrnic_link::fault::FaultTally;

use super::process::Process;

pub(super) struct FaultReport {
    tally: FaultTally,
    device: String,
    /// A child of a fork drops its copy.
    process: Process,
}

impl FaultReport {
    pub(super) fn new(tally: FaultTally, device: &str) -> FaultReport {
        FaultReport { tally, device: device.to_owned(), process: Process::current() }
    }
}

impl Drop for FaultReport {
    /// Not by `tracing`: at exit, what a thread keeps for it may be gone already.
    fn drop(&mut self) {
        if self.process != Process::current() || !tracing::enabled!(tracing::Level::WARN) {
            return;
        }
        let lines: String =
            self.tally.lines().map(|line| format!("softrnic: {}: fault {line}\n", self.device)).collect();
        let _ = rustix::io::write(rustix::stdio::stderr(), lines.as_bytes());
    }
}
