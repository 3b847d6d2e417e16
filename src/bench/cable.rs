//! The cheapest link that there can be, so that what is measured through it is the NIC. It loses nothing and
//! allocates nothing once it is warm. (The simulated fabric can do far more, and costs far more.)

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softrnic_link::{Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, TxError, TxSlot};
use softrnic_wire::{IpFacts, Time, UdpFacts};

/// The longest datagram: an IB MTU of 4096 with all headers.
const MAX_DATAGRAM: usize = 4200;

/// One end of a cable between two addresses.
pub struct Cable {
    address: Ipv4Addr,
    outgoing: Arc<Mutex<Way>>,
    incoming: Arc<Mutex<Way>>,
    arrived: VecDeque<Parcel>,
    outbox: VecDeque<Parcel>,
    reserved: Option<Parcel>,
    /// Parcels of ours that can be used again.
    spare: Vec<Parcel>,
    /// Parcels of the other end that we have read.
    read: Vec<Parcel>,
    capabilities: Capabilities,
    counters: LinkCounters,
}

/// One direction.
#[derive(Default)]
struct Way {
    sent: VecDeque<Parcel>,
    /// Parcels on their way back to who sent them.
    empty: Vec<Parcel>,
}

struct Parcel {
    flow: Flow,
    len: usize,
    bytes: Box<[u8; MAX_DATAGRAM]>,
}

impl Cable {
    /// Both ends.
    pub fn between(a: Ipv4Addr, b: Ipv4Addr) -> [Cable; 2] {
        let (to_b, to_a) = (Arc::default(), Arc::default());
        [Cable::new(a, Arc::clone(&to_b), Arc::clone(&to_a)), Cable::new(b, to_a, to_b)]
    }

    fn new(address: Ipv4Addr, outgoing: Arc<Mutex<Way>>, incoming: Arc<Mutex<Way>>) -> Cable {
        Cable {
            address,
            outgoing,
            incoming,
            arrived: VecDeque::new(),
            outbox: VecDeque::new(),
            reserved: None,
            spare: Vec::new(),
            read: Vec::new(),
            capabilities: Capabilities {
                mode: "cable".into(),
                max_datagram: MAX_DATAGRAM,
                ip_mtu: MAX_DATAGRAM + 28,
                sees_ip_header: false,
                segments: 128,
                receive_buffer: 4 << 20,
                zero_copy: false,
                shared_memory: false,
                slot: None,
            },
            counters: LinkCounters::default(),
        }
    }
}

impl Link for Cable {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, _now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else {
            return Err(TxError::Unreachable);
        };
        if len > MAX_DATAGRAM {
            return Err(TxError::TooLong);
        }
        let spare = self.reserved.take().or_else(|| self.spare.pop());
        let mut parcel =
            spare.unwrap_or_else(|| Parcel { flow: *flow, len, bytes: Box::new([0; MAX_DATAGRAM]) });
        (parcel.flow, parcel.len) = (*flow, len);
        let parcel = self.reserved.insert(parcel);
        Ok(TxSlot {
            bytes: &mut parcel.bytes[..len],
            facts: UdpFacts::roce(IpFacts::v4(src, dst), flow.sport),
            wants_icrc: true,
        })
    }

    fn reserved(&self) -> &[u8] {
        self.reserved.as_ref().map_or(&[], |parcel| &parcel.bytes[..parcel.len])
    }

    fn commit(&mut self, _now: Time) {
        if let Some(parcel) = self.reserved.take() {
            self.counters.tx_datagrams += 1;
            self.counters.tx_bytes += parcel.len as u64;
            self.outbox.push_back(parcel);
        }
    }

    fn flush(&mut self, _now: Time) {
        if !self.outbox.is_empty() {
            self.counters.tx_calls += 1;
            let mut way = lock(&self.outgoing);
            way.sent.append(&mut self.outbox);
            self.spare.append(&mut way.empty);
        }
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn receive(&mut self, _now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        if self.arrived.is_empty() {
            let mut way = lock(&self.incoming);
            std::mem::swap(&mut self.arrived, &mut way.sent);
            way.empty.append(&mut self.read);
        }
        for _ in 0..budget {
            let Some(parcel) = self.arrived.pop_front() else { return Overrun::Drained };
            self.counters.rx_datagrams += 1;
            self.counters.rx_bytes += parcel.len as u64;
            sink(Datagram {
                src: parcel.flow.src,
                dst: self.address.into(),
                sport: parcel.flow.sport,
                tos: parcel.flow.tos,
                ttl: parcel.flow.ttl,
                id: HeaderId::Hidden { place: 0 },
                ip_header: None,
                bytes: &parcel.bytes[..parcel.len],
                has_icrc: true,
                record: None,
            });
            self.read.push(parcel);
        }
        if self.arrived.is_empty() { Overrun::Drained } else { Overrun::Budget }
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

/// Nobody panics while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
