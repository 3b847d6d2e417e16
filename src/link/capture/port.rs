//! Packets given to a capture by whoever sees them pass: the ports of a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use softrnic_wire::IpHeader;

use super::frame::{Given, Meta};
use super::queue::Interface;
use super::{Capture, WhenFull, record};

/// An interface of a capture, and what left by it.
pub struct CapturePort {
    capture: Capture,
    interface: u32,
    lost: Arc<AtomicU64>,
    reported_lost: u64,
}

impl Capture {
    /// Adds an interface whose packets are given one by one. Whoever gives them waits for the file, if it is to
    /// [wait](WhenFull::Wait).
    pub fn port(&self, name: &str, description: &str) -> CapturePort {
        let lost = Arc::new(AtomicU64::new(0));
        let interface = self.file.queue.add_interface(Interface {
            name: name.to_owned(),
            description: description.to_owned(),
            lost: Arc::clone(&lost),
        });
        CapturePort { capture: self.clone(), interface, lost, reported_lost: 0 }
    }
}

impl CapturePort {
    /// Records a datagram, BTH to ICRC, that leaves now. `time` is in nanoseconds since 1970.
    pub fn datagram(&mut self, time: u64, ip: IpHeader, sport: u16, bytes: &[u8], note: Option<Arc<str>>) {
        self.record(time, Given::Datagram { ip, sport, id_is_known: true, has_icrc: true }, bytes, note);
    }

    /// Records an Ethernet frame, without FCS, that leaves now.
    pub fn frame(&mut self, time: u64, bytes: &[u8], note: Option<Arc<str>>) {
        self.record(time, Given::Frame, bytes, note);
    }

    /// Datagrams and frames that are missing in the file.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn record(&mut self, time: u64, given: Given, bytes: &[u8], note: Option<Arc<str>>) {
        let file = &self.capture.file;
        if file.options.when_full == WhenFull::Wait && file.queue.is_full() {
            file.queue.wait_for_room();
        }
        let meta = Meta { interface: self.interface, outbound: true, time, len: bytes.len(), given };
        record(&file.queue, &self.lost, &mut self.reported_lost, meta, bytes, note);
    }
}
