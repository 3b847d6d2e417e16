//! The counters of a device.

use super::context::Context;
use super::error::Error;

impl Context {
    /// All counters of the device with their names: the transport's (named as rxe's hw_counters where they mean the
    /// same), datagrams dropped by reason, and the link's.
    ///
    /// # Errors
    /// The device has failed.
    pub fn statistics(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let wakeups = self.nic().wakeups();
        Ok(self.nic().control(|core, _| crate::device::counters(core, wakeups).collect())?)
    }
}
