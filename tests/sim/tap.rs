//! A link that writes down what passes, in readable lines, when `SOFTRNIC_TRACE` is set.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use softrnic_link::{Capabilities, Datagram, Flow, Link, LinkCounters, Overrun, TxError, TxSlot};
use softrnic_wire::{Packet, Time};

/// See the [module](self).
pub struct Tap {
    link: Box<dyn Link>,
    address: IpAddr,
    on: bool,
    to: Option<IpAddr>,
}

impl Tap {
    /// Wraps the link of the NIC at `address`.
    pub fn new(link: Box<dyn Link>, address: IpAddr) -> Tap {
        Tap { link, address, on: std::env::var_os("SOFTRNIC_TRACE").is_some(), to: None }
    }
}

/// One line about the transport headers of a datagram.
pub fn describe(bytes: &[u8]) -> String {
    match Packet::parse(bytes) {
        Err(error) => format!("{error}"),
        Ok(packet) => {
            let bth = packet.bth;
            let name = packet.body.opcode().name();
            let flags = [(bth.ack_req, " A"), (bth.solicited, " SE"), (bth.becn, " BECN")];
            let flags: String = flags.into_iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
            let (qpn, psn, len) = (bth.dest_qpn, bth.psn, packet.payload.len());
            format!("{name} qp {qpn} psn {psn}{flags} len {len} {:?}", packet.body)
        }
    }
}

impl Link for Tap {
    fn capabilities(&self) -> &Capabilities {
        self.link.capabilities()
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.to = Some(flow.dst);
        self.link.reserve(now, flow, len)
    }

    fn reserved(&self) -> &[u8] {
        self.link.reserved()
    }

    fn commit(&mut self, now: Time) {
        if let (true, Some(to)) = (self.on, self.to) {
            let line = describe(self.link.reserved());
            eprintln!("{:>12} {} -> {to}: {line}", now.as_nanos(), self.address);
        }
        self.link.commit(now);
    }

    fn flush(&mut self, now: Time) {
        self.link.flush(now);
    }

    fn is_blocked(&self) -> bool {
        self.link.is_blocked()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        let (on, to) = (self.on, self.address);
        self.link.receive(now, budget, &mut |datagram| {
            if on {
                let (from, line) = (datagram.src, describe(datagram.bytes));
                eprintln!("{:>12} {to} <- {from}: {line}", now.as_nanos());
            }
            sink(datagram);
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.link.poll_timeout()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.link.descriptor()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.link.join(group)
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.link.leave(group)
    }

    fn counters(&self) -> LinkCounters {
        self.link.counters()
    }
}
