//! A network in memory and in virtual time, for exactly repeatable tests.
//!
//! A [`Fabric`] connects any number of [`SimLink`]s by address. Nothing happens by itself: the test moves time to
//! [`Fabric::next_delivery`] (or to an earlier timeout of an engine) and lets the links receive. The same seed and the
//! same calls give the same losses, delays and bits. What happens in one direction between two addresses does not
//! depend on other traffic.

mod fabric;
mod link;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use softrnic_wire::Time;

pub use link::SimLink;

use fabric::State;

/// The path from one address to another: its delay and its faults. Probabilities are from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Path {
    /// How long a datagram takes, not counting its transmission time.
    pub delay: Duration,
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a second copy arrives.
    pub duplicate: f64,
    /// Probability that a datagram is delayed further and so may be overtaken.
    pub reorder: f64,
    /// The longest such delay; it is uniformly distributed.
    pub reorder_delay: Duration,
    /// Probability that a byte between BTH and ICRC is changed.
    pub corrupt: f64,
    /// Probability that an ECN-capable datagram is marked "congestion experienced".
    pub mark: f64,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            delay: Duration::from_micros(5),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_micros(50),
            corrupt: 0.0,
            mark: 0.0,
        }
    }
}

/// The properties of a [`SimLink`]'s attachment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SimOptions {
    /// The MTU that limits the datagrams, in bytes with IP header.
    pub ip_mtu: usize,
    /// Bits per second at which the link sends; if absent, sending takes no time.
    pub bandwidth: Option<u64>,
    /// Bytes (headers included) that may wait to be sent before the link is blocked.
    pub transmit_buffer: usize,
    /// Bytes (headers included) that may wait to be read; datagrams beyond that are dropped.
    pub receive_buffer: usize,
    /// Whether received datagrams come with their IP header.
    pub sees_ip_header: bool,
    /// Whether the IPv4 identification counts up from an arbitrary value, as rxe's does, instead of staying 0.
    pub counts_ids: bool,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions {
            ip_mtu: 65_536,
            bandwidth: None,
            transmit_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            sees_ip_header: false,
            counts_ids: false,
        }
    }
}

/// What a [`Fabric`] has done to the datagrams that it carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FabricCounters {
    /// Datagrams sent into it; one to a group counts once for each member.
    pub sent: u64,
    /// Datagrams that reached a receive buffer.
    pub delivered: u64,
    /// Lost by [`Path::loss`].
    pub lost: u64,
    /// Second copies by [`Path::duplicate`].
    pub duplicated: u64,
    /// Delayed by [`Path::reorder`].
    pub reordered: u64,
    /// Changed by [`Path::corrupt`].
    pub corrupted: u64,
    /// Marked by [`Path::mark`].
    pub marked: u64,
    /// Dropped because a receive buffer was full.
    pub overrun: u64,
    /// Sent to, or arrived for, an address that is not attached.
    pub unroutable: u64,
}

/// A datagram under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flight {
    /// Its number, by which it can be [meddled with](Fabric::meddle); a copy has its own.
    pub number: u64,
    /// When it arrives.
    pub at: Time,
    /// The sender.
    pub from: IpAddr,
    /// The link to which it goes: of a datagram to a group, there is one for each member.
    pub to: IpAddr,
    /// Its bytes, from the IP header on.
    pub packet: Vec<u8>,
}

/// What can be done to a datagram under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meddling {
    /// It never arrives.
    Lose,
    /// A copy arrives at the same time, behind what was sent before.
    Duplicate,
    /// It arrives at another time; at once, if that has passed.
    ArriveAt(Time),
    /// It is marked "congestion experienced", if it is ECN-capable.
    Mark,
    /// A bit is inverted: 0 is the first of the BTH.
    Flip {
        /// Which one.
        bit: usize,
    },
}

/// Another link is attached with that address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressTaken(pub IpAddr);

impl std::fmt::Display for AddressTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the fabric already has a link with the address {}", self.0)
    }
}

impl std::error::Error for AddressTaken {}

/// See the [module](self). Clones are the same fabric.
#[derive(Clone, Debug)]
pub struct Fabric {
    state: Arc<Mutex<State>>,
}

impl Fabric {
    /// A fabric whose faults are determined by `seed`.
    pub fn new(seed: u64) -> Fabric {
        Fabric { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// Attaches a link; dropping it detaches it.
    ///
    /// # Errors
    /// There is a link with this address already.
    pub fn attach(&self, address: IpAddr, options: SimOptions) -> Result<SimLink, AddressTaken> {
        self.lock().attach(address, options.receive_buffer)?;
        Ok(SimLink::new(self.clone(), address, options))
    }

    /// Sets the path of all pairs of addresses that have none of their own.
    pub fn set_default_path(&self, path: Path) {
        self.lock().default_path = path;
    }

    /// Sets the path of datagrams from `src` to `dst`, from now on.
    pub fn set_path(&self, src: IpAddr, dst: IpAddr, path: Path) {
        self.lock().set_path(src, dst, path);
    }

    /// When the next datagram in flight arrives; `None` if there is none.
    pub fn next_delivery(&self) -> Option<Time> {
        self.lock().next_delivery()
    }

    /// The datagrams under way, in the order of their arrival.
    pub fn flights(&self) -> Vec<Flight> {
        self.lock().flights(0)
    }

    /// Those numbered from `number` on.
    pub fn flights_from(&self, number: u64) -> Vec<Flight> {
        self.lock().flights(number)
    }

    /// Changes the fate of a datagram under way. `false` if it is not under way, or that cannot be done to it.
    pub fn meddle(&self, number: u64, what: Meddling) -> bool {
        self.lock().meddle(number, what)
    }

    /// Moves everything that has arrived by `now` into the receive buffers. Links do this themselves whenever they are
    /// driven.
    pub fn advance(&self, now: Time) {
        self.lock().advance(now);
    }

    /// Datagrams waiting in the receive buffer of `address`.
    pub fn waiting(&self, address: IpAddr) -> usize {
        self.lock().waiting(address)
    }

    /// What was carried, and what happened to it.
    pub fn counters(&self) -> FabricCounters {
        self.lock().counters
    }

    /// A panic elsewhere leaves the state consistent, since every change is made under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}
