//! Who sees each frame that leaves a port: a capture, and faults on links.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use softrnic_fabric::{DropReason, Ect, Frame, Meddling, Picos, PortId, Priority, Topology};
use softrnic_link::capture::{Capture, CapturePort};
use softrnic_link::fault::{Action, Direction, FaultSpec, Rules};

/// What frames carry, as captures and faults see it.
pub trait Carried {
    /// The RoCEv2 packet in it, if it is one: its addresses, and BTH to ICRC.
    fn roce(&mut self) -> Option<(IpAddr, IpAddr, &mut [u8])>;

    /// The packet was damaged on purpose: checksums below the ICRC must not hide that.
    fn damaged(&mut self) {}

    /// Records it as it is on the wire with these ECN bits.
    fn record(&self, ect: Ect, port: &mut CapturePort, time: u64, note: Option<Arc<str>>);
}

/// Sees each frame that leaves a port. Without a capture and without faults it does nothing.
#[derive(Default)]
pub struct Watch {
    /// By link; empty while there are none.
    faults: Vec<Option<Box<LinkFaults>>>,
    tap: Option<Tap>,
}

/// Faults on a link.
struct LinkFaults {
    rules: Rules,
    /// What leaves by this port is `tx` to the rules, what comes to it is `rx`.
    from: PortId,
    since: Picos,
}

/// A capture with an interface for each port.
struct Tap {
    ports: Vec<CapturePort>,
    names: Vec<String>,
    /// Nanoseconds since 1970 when virtual time began.
    epoch: u64,
    /// What is to be said of the frame that leaves next.
    note: Option<Arc<str>>,
}

impl Watch {
    /// Records what leaves by the ports of a network from now on. `epoch` is when its time began, in nanoseconds since 1970.
    pub fn capture(&mut self, capture: &Capture, topology: &Topology, epoch: u64) {
        let names: Vec<String> =
            (0..2 * topology.links().len() as u32).map(|port| topology.port_name(PortId(port))).collect();
        let ports = names.iter().map(|name| {
            let (node, peer) = name.split_once('-').unwrap_or((name, ""));
            capture.port(name, &format!("fabric: what {node} sends to {peer}"))
        });
        self.tap = Some(Tap { ports: ports.collect(), names, epoch, note: None });
    }

    /// Whether there is a capture, or a fault on any link.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.tap.is_some() || !self.faults.is_empty()
    }

    /// Injects faults on a link from now on, and no others; none, if there are no rules.
    pub fn inject(&mut self, now: Picos, from: PortId, spec: &FaultSpec) {
        let link = from.link().0 as usize;
        if self.faults.len() <= link {
            self.faults.resize_with(link + 1, || None);
        }
        let faults = || Box::new(LinkFaults { rules: Rules::new(spec), from, since: now });
        self.faults[link] = (!spec.rules.is_empty()).then(faults);
        if self.faults.iter().all(Option::is_none) {
            self.faults.clear();
        }
    }

    /// For [`Observer::meddle`](softrnic_fabric::Observer::meddle).
    #[inline]
    pub fn meddle<C: Carried>(&mut self, at: Picos, port: PortId, frame: &mut Frame<C>) -> Option<Meddling> {
        let faults = self.faults.get_mut(port.link().0 as usize)?.as_deref_mut()?;
        let (meddling, note) = faults.meddle(at, port, frame)?;
        if let Some(tap) = &mut self.tap {
            tap.note = Some(note);
        }
        Some(meddling)
    }

    /// For [`Observer::sent`](softrnic_fabric::Observer::sent).
    #[inline]
    pub fn sent<C: Carried>(&mut self, at: Picos, port: PortId, frame: &Frame<C>) {
        if let Some(tap) = &mut self.tap {
            let note = tap.note.take();
            tap.record(at, port, frame, note);
        }
    }

    /// For [`Observer::marked`](softrnic_fabric::Observer::marked).
    #[inline]
    pub fn marked(&mut self, port: PortId) {
        if let Some(tap) = &mut self.tap {
            tap.note = Some(format!("fabric: marked at {}", tap.names[port.0 as usize]).into());
        }
    }

    /// For [`Observer::dropped`](softrnic_fabric::Observer::dropped).
    #[inline]
    pub fn dropped<C: Carried>(&mut self, at: Picos, port: PortId, frame: &Frame<C>, reason: DropReason) {
        let Some(tap) = &mut self.tap else { return };
        let why = match reason {
            DropReason::NoRoom => "the switch has no room",
            DropReason::NoRoute => "no path is known",
            DropReason::LinkDown => "the link is down",
            DropReason::BlackHole => "the link is a black hole",
            DropReason::Damaged => "the link damages it",
            // Said as it left.
            _ => return,
        };
        let note = format!("fabric: dropped at {}, {why}", tap.names[port.0 as usize]);
        tap.record(at, port, frame, Some(note.into()));
    }

    /// For [`Observer::paused`](softrnic_fabric::Observer::paused) and its opposite: `port` obeys what its peer has sent.
    #[inline]
    pub fn paused(&mut self, at: Picos, port: PortId, priority: Priority, is_paused: bool) {
        if let Some(tap) = &mut self.tap {
            let time = tap.time(at);
            tap.ports[port.peer().0 as usize].frame(
                time,
                &pfc_frame(priority, if is_paused { u16::MAX } else { 0 }),
                None,
            );
        }
    }
}

impl Tap {
    fn time(&self, at: Picos) -> u64 {
        self.epoch.saturating_add(at.0 / 1000)
    }

    fn record<C: Carried>(&mut self, at: Picos, port: PortId, frame: &Frame<C>, note: Option<Arc<str>>) {
        let time = self.time(at);
        frame.payload.record(frame.ect, &mut self.ports[port.0 as usize], time, note);
    }
}

impl LinkFaults {
    #[cold]
    fn meddle<C: Carried>(
        &mut self,
        at: Picos,
        port: PortId,
        frame: &mut Frame<C>,
    ) -> Option<(Meddling, Arc<str>)> {
        let (src, dst, bytes) = frame.payload.roce()?;
        let age = Duration::from_nanos((at - self.since).0 / 1000);
        let (direction, peer) = match port == self.from {
            true => (Direction::Tx, dst),
            false => (Direction::Rx, src),
        };
        let (action, note) = self.rules.decide(age, direction, peer, bytes)?;
        let meddling = match action {
            Action::Drop => Meddling::Lose,
            Action::Duplicate => Meddling::Twice,
            Action::Reorder(depth) => Meddling::Behind(depth),
            Action::Delay(by) => Meddling::Delay(by.into()),
            Action::Corrupt => {
                self.rules.corrupt(bytes);
                frame.payload.damaged();
                Meddling::Nothing
            }
            _ => return None,
        };
        Some((meddling, note))
    }
}

/// Priority-based flow control as it is on the wire (IEEE 802.1Q, clause 36): one priority, and for how long.
fn pfc_frame(priority: Priority, quanta: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[0x01, 0x80, 0xC2, 0, 0, 0x01]);
    // A sender's address that no hardware has.
    frame[6] = 2;
    frame[12..16].copy_from_slice(&[0x88, 0x08, 0x01, 0x01]);
    frame[17] = 1 << priority;
    let time = 18 + 2 * usize::from(priority);
    frame[time..time + 2].copy_from_slice(&quanta.to_be_bytes());
    frame
}
