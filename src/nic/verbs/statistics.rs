//! What a device has counted.

use super::context::Context;
use super::error::Error;

impl Context {
    /// Every counter of the device with its name: the transport's (named as rxe's hw_counters where they mean
    /// the same), datagrams dropped by reason, and the link's.
    ///
    /// # Errors
    /// The device has failed.
    pub fn statistics(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let wakeups = self.nic().wakeups();
        Ok(self.nic().control(|core, _| {
            let link = core.link.counters();
            let mut all: Vec<(&'static str, u64)> = Vec::with_capacity(64);
            all.extend(core.engine.counters().map(|(counter, value)| (counter.name(), value)));
            all.extend(core.engine.drops().map(|(reason, value)| (reason.name(), value)));
            all.extend([
                ("sent_pkts", link.tx_datagrams),
                ("sent_bytes", link.tx_bytes),
                ("sent_calls", link.tx_calls),
                ("send_err", link.tx_errors),
                ("rcvd_pkts", link.rx_datagrams),
                ("rcvd_bytes", link.rx_bytes),
                ("rcvd_calls", link.rx_calls),
                ("rcvd_overruns", link.rx_overruns),
                ("drop_link_malformed", link.rx_malformed),
                ("capture_lost", link.capture_lost),
                ("faults_injected", link.faults_injected),
                ("progress_wakeups", wakeups),
            ]);
            all
        })?)
    }
}
