//! A NIC that has joined.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use softrnic_fabric::{Host, PRIORITIES, Picos};
use softrnic_fabric_link::record::{self, GROUP_LEN, Headers, Record};
use softrnic_link::ProcessSlot;
use softrnic_shm::pair::{Broken, MAX_DATAGRAM, Pair, Refused};
use softrnic_study::Packet;

/// What a NIC has sent of a priority, and the port has not: beyond what the port sends in this time of the clock it is told to pause, and
/// below half of that to go on. So long may its process not run, and the port still has something to send. What it has written
/// into its ring by then is taken, too.
const DEPTH: Picos = Picos::from_micros(10_000);
/// At least and at most, in bytes.
const DEPTHS: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;

/// Bytes that have arrived and wait until the NIC reads. Beyond, the host pauses its switch in lossless priorities; frames of
/// others are lost beyond the second.
pub const FULL: u64 = 1 << 20;
const OVERRUN: u64 = 8 << 20;
/// Bytes that a NIC may have sent and its port not: far more than what it may send before it reads that it is to pause.
const MOST_SENT: u64 = 256 << 20;
/// Groups that the processes of a NIC may be members of.
pub const MOST_GROUPS: usize = 8192;

/// Bytes of a priority that may wait before a port of this rate.
pub fn depth(rate: u64, slow: u32) -> u64 {
    Picos(DEPTH.0 / u64::from(slow)).bytes_at(rate).clamp(*DEPTHS.start(), *DEPTHS.end())
}

/// A process of a host.
pub struct Member {
    pub host: Host,
    pub slot: ProcessSlot,
    pub stream: OwnedFd,
    pair: Pair,
    pub groups: BTreeSet<Ipv4Addr>,
    /// What it has sent and its port has not, by priority.
    pub sent: [Queue; PRIORITIES],
    /// What it was told to pause, and beyond how many bytes it is.
    paused: u8,
    depth: u64,
    /// What has arrived and finds no room in the ring.
    arrived: Queue,
    unflushed: bool,
    pub overruns: u64,
}

/// Packets in order, and their bytes.
#[derive(Default)]
pub struct Queue {
    packets: VecDeque<Box<Packet>>,
    bytes: u64,
}

impl Queue {
    pub fn push(&mut self, packet: Box<Packet>) {
        self.bytes += packet.bytes.len() as u64;
        self.packets.push_back(packet);
    }

    pub fn front(&self) -> Option<&Packet> {
        self.packets.front().map(|packet| &**packet)
    }

    pub fn pop(&mut self) -> Option<Box<Packet>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes.len() as u64;
        Some(packet)
    }
}

impl Member {
    /// `rate` is that of the host's port, in bits per second; virtual time is slowed by `slow`.
    pub fn new(host: Host, slot: ProcessSlot, stream: OwnedFd, pair: Pair, rate: u64, slow: u32) -> Member {
        Member {
            host,
            slot,
            stream,
            pair,
            groups: BTreeSet::new(),
            sent: Default::default(),
            paused: 0,
            depth: depth(rate, slow),
            arrived: Queue::default(),
            unflushed: false,
            overruns: 0,
        }
    }

    /// Takes what the NIC has written, up to `budget` packets, and gives each to `packet`: the headers and the bytes.
    /// Returns how many there were.
    pub fn take(
        &mut self,
        buffer: &mut [u8; MAX_DATAGRAM],
        budget: usize,
        mut packet: impl FnMut(Headers, &[u8]),
    ) -> Result<usize, Broken> {
        for taken in 0..budget {
            let Some((len, note)) = self.pair.receive(buffer)? else {
                self.pair.publish_head();
                return Ok(taken);
            };
            match Record::read(&note) {
                // A longer one has no room where a group's address goes with it.
                Some(Record::Packet(headers)) if len <= record::MAX_DATAGRAM => {
                    packet(headers, &buffer[..len]);
                }
                _ => return Err(Broken),
            }
            if self.pair.has_read_much() {
                self.pair.publish_head();
            }
        }
        self.pair.publish_head();
        // It was told to pause long before.
        if self.sent.iter().map(|queue| queue.bytes).sum::<u64>() > MOST_SENT {
            return Err(Broken);
        }
        Ok(budget)
    }

    /// Tells the NIC which priorities to pause, by what it has sent and its port has not.
    pub fn regulate(&mut self) {
        let mut paused = self.paused;
        for (priority, queue) in self.sent.iter().enumerate() {
            if queue.bytes > self.depth {
                paused |= 1 << priority;
            } else if queue.bytes < self.depth / 2 {
                paused &= !(1 << priority);
            }
        }
        if paused != self.paused && self.arrived.packets.is_empty() && self.pair.reserve(0).is_ok() {
            self.pair.slot(&Record::Paused(paused).note());
            self.pair.commit();
            self.paused = paused;
            self.unflushed = true;
        }
    }

    /// A packet has arrived: it is written into the ring, and comes back to be used again, or waits.
    pub fn deliver(&mut self, packet: Box<Packet>, lossless: bool) -> Result<Option<Box<Packet>>, Broken> {
        if self.arrived.packets.is_empty() && self.write(&packet)? {
            return Ok(Some(packet));
        }
        if !lossless && self.arrived.bytes > OVERRUN {
            self.overruns += 1;
            return Ok(Some(packet));
        }
        self.arrived.push(packet);
        Ok(None)
    }

    /// Whether nothing of what it has sent waits for its port.
    pub fn has_sent_all(&self) -> bool {
        self.sent.iter().all(|queue| queue.packets.is_empty())
    }

    /// Bytes that wait until the NIC reads.
    pub fn waiting(&self) -> u64 {
        self.arrived.bytes
    }

    /// Writes what waits, as far as there is room, and shows everything to the NIC.
    pub fn flush(&mut self) -> Result<(), Broken> {
        while let Some(packet) = self.arrived.pop() {
            if !self.write(&packet)? {
                self.arrived.bytes += packet.bytes.len() as u64;
                self.arrived.packets.push_front(packet);
                break;
            }
        }
        self.regulate();
        if std::mem::take(&mut self.unflushed) {
            self.pair.flush();
        }
        Ok(())
    }

    /// Returns whether there was room.
    fn write(&mut self, packet: &Packet) -> Result<bool, Broken> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) else { return Ok(true) };
        let headers = Headers { peer: src, sport: packet.sport, tos: packet.tos, ttl: packet.ttl };
        let (record, len) = match dst.is_multicast() {
            true => (Record::GroupPacket(headers), packet.bytes.len() + GROUP_LEN),
            false => (Record::Packet(headers), packet.bytes.len()),
        };
        match self.pair.reserve(len) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(false),
            Err(Refused::Corrupt) => return Err(Broken),
        }
        let slot = self.pair.slot(&record.note());
        slot[..packet.bytes.len()].copy_from_slice(&packet.bytes);
        if dst.is_multicast() {
            slot[packet.bytes.len()..].copy_from_slice(&dst.octets());
        }
        self.pair.commit();
        self.unflushed = true;
        Ok(true)
    }

    /// It rings for what it sends from now on. Returns whether something has come before.
    pub fn sleep(&mut self) -> Result<bool, Broken> {
        self.pair.sleep(softrnic_link::Sleeper::Thread)
    }

    /// It need not ring.
    pub fn wake(&mut self) {
        self.pair.wake();
    }
}
