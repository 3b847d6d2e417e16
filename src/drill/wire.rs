//! Packets to and from the peer.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use softrnic_link::capture::Capture;
use softrnic_link::{Datagram, Flow, HeaderId, Link, OpenError};
use softrnic_script::{Outgoing, Seal, addressee, is_message};
use softrnic_shm::ShmLink;
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::{
    ICRC_LEN, IpFacts, ROCE_UDP_PORT, Time, UdpFacts, rxe_flush_icrc, seal, verify, verify_unknown_id,
    verify_unknown_id_rxe_flush,
};

/// Packets in one case, at most.
pub const MOST_PACKETS: usize = 2_000;
/// The port that is received on too: its socket sends each datagram with the identification 0, so that a peer that cannot
/// see identifications never has to learn them.
const SOURCE_PORT: u16 = ROCE_UDP_PORT;
/// Between two looks.
const NAP: Duration = Duration::from_micros(100);
const FLUSH: u8 = 0x1C;

/// A packet of the peer.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was found.
    pub at: Instant,
    /// When it was not there yet: it came in between.
    pub since: Instant,
    pub bytes: Vec<u8>,
    pub tos: u8,
    pub sport: u16,
    pub seal: Seal,
    /// Whether it went to the stranger's address.
    pub to_stranger: bool,
}

/// This side's addresses. Only packets between them and the peer count.
pub struct Wire {
    link: Box<dyn Link>,
    stranger: Option<Box<dyn Link>>,
    pub own: IpAddr,
    stranger_address: Option<IpAddr>,
    peer: IpAddr,
    began: Instant,
    /// The first of the 256 QP numbers of this side that packets of this case go to.
    pub first_qpn: u32,
    pub seen: VecDeque<Seen>,
    /// Messages of the peer's connection manager.
    pub messages: VecDeque<Seen>,
    /// When the last look began.
    looked: Instant,
    pub sent: usize,
    /// Packets in the capture so far.
    pub frames: u64,
    /// The longest time for which this side, or the agent, did not run when it wanted to.
    pub longest_pause: Duration,
}

impl Wire {
    /// Opens this side's address, and a second one for packets of strangers if there is one.
    pub fn open(
        own: Option<IpAddr>,
        stranger: Option<IpAddr>,
        peer: IpAddr,
        shared_memory: bool,
        capture: Option<&Capture>,
    ) -> Result<Wire, OpenError> {
        let open = |address| UdpLink::open(UdpOptions { address, ..UdpOptions::default() });
        let link = open(own)?;
        let own = link.address();
        // On loopback there are addresses for everybody.
        let stranger = match stranger {
            None if !own.is_loopback() || own.is_ipv6() => None,
            address => Some(open(address)?),
        };
        let stranger_address = stranger.as_ref().map(UdpLink::address);
        let recorded = |link: Box<dyn Link>, name: &str| -> Box<dyn Link> {
            match capture {
                Some(capture) => Box::new(capture.wrap(link, name)),
                None => link,
            }
        };
        let prepared = |mut link: UdpLink, name: &str| -> Box<dyn Link> {
            link.stop_segmenting();
            link.show_headers();
            let address = link.address();
            if !shared_memory {
                return recorded(Box::new(link), name);
            }
            // Where there is no shared memory, sockets do.
            match ShmLink::new(link, address) {
                Ok(link) => recorded(Box::new(link.with_icrcs()), name),
                Err((link, _)) => recorded(Box::new(link), name),
            }
        };
        Ok(Wire {
            link: prepared(link, "drill"),
            stranger: stranger.map(|link| prepared(link, "stranger")),
            own,
            stranger_address,
            peer,
            began: Instant::now(),
            first_qpn: 0,
            seen: VecDeque::new(),
            messages: VecDeque::new(),
            looked: Instant::now(),
            sent: 0,
            frames: 0,
            longest_pause: Duration::ZERO,
        })
    }

    pub fn stranger_address(&self) -> Option<IpAddr> {
        self.stranger_address
    }

    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    pub fn has_stranger(&self) -> bool {
        self.stranger.is_some()
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    /// Sends one packet.
    pub fn send(&mut self, packet: Outgoing) -> Result<(), String> {
        if self.sent == MOST_PACKETS {
            return Err(format!("the script sends more than {MOST_PACKETS} packets"));
        }
        self.sent += 1;
        self.frames += 1;
        let now = self.now();
        let (link, src) = match (&mut self.stranger, self.stranger_address) {
            (Some(link), Some(address)) if packet.stranger => (link, address),
            _ => (&mut self.link, self.own),
        };
        let flow = Flow { src, dst: self.peer, sport: SOURCE_PORT, slot: None, tos: packet.tos, ttl: 64 };
        let mut bytes = packet.bytes;
        let slot = link.reserve(now, &flow, bytes.len()).map_err(|error| error.to_string())?;
        let covered = bytes.len() - ICRC_LEN;
        match packet.seal {
            Seal::Rxe => {
                let icrc = rxe_flush_icrc(&slot.facts, &bytes[..covered]);
                bytes[covered..].copy_from_slice(&icrc.to_le_bytes());
            }
            Seal::Good | Seal::Bad => seal(&slot.facts, &mut bytes),
        }
        if packet.seal == Seal::Bad {
            bytes[covered] ^= 1;
        }
        slot.bytes.copy_from_slice(&bytes);
        link.commit(now);
        link.flush(now);
        Ok(())
    }

    /// Takes what has arrived.
    pub fn look(&mut self) {
        let (now, peer) = (self.now(), self.peer);
        let since = std::mem::replace(&mut self.looked, Instant::now());
        let Wire { link, stranger, seen, messages, first_qpn, frames, .. } = self;
        for (link, to_stranger) in [(Some(link), false), (stranger.as_mut(), true)] {
            let Some(link) = link else { continue };
            link.receive(now, usize::MAX, &mut |datagram| {
                *frames += 1;
                if datagram.src == peer && is_for(*first_qpn, datagram.bytes) {
                    let queue = if is_message(datagram.bytes) { &mut *messages } else { &mut *seen };
                    queue.push_back(Seen {
                        at: Instant::now(),
                        since,
                        bytes: datagram.bytes.to_vec(),
                        tos: datagram.tos,
                        sport: datagram.sport,
                        seal: seal_of(&datagram),
                        to_stranger,
                    });
                }
            });
        }
    }

    /// How long ago the last look began.
    pub fn since_last_look(&self) -> Duration {
        self.looked.elapsed()
    }

    /// Looks until a packet is there, at most until `end`.
    pub fn look_until(&mut self, end: Instant) {
        self.look_until_in(end, |wire| &wire.seen);
    }

    /// The same for a message of the connection manager.
    pub fn look_for_message_until(&mut self, end: Instant) {
        self.look_until_in(end, |wire| &wire.messages);
    }

    fn look_until_in(&mut self, end: Instant, queue: fn(&Wire) -> &VecDeque<Seen>) {
        loop {
            self.look();
            if !queue(self).is_empty() || Instant::now() >= end {
                return;
            }
            self.nap(NAP);
        }
    }

    fn nap(&mut self, time: Duration) {
        let began = Instant::now();
        std::thread::sleep(time);
        self.held_up(began.elapsed().saturating_sub(time));
    }

    /// Something that should have taken no time has taken this long.
    pub fn held_up(&mut self, time: Duration) {
        self.longest_pause = self.longest_pause.max(time);
    }

    /// Looks for so long, whatever comes.
    pub fn look_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.look();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.nap(NAP.min(left));
        }
    }
}

/// The first of the 256 communication ids of a case.
pub fn first_id(first_qpn: u32) -> u32 {
    first_qpn << 8
}

/// What is late from an earlier case names a QP of that case.
fn is_for(first_qpn: u32, bytes: &[u8]) -> bool {
    let Some(&[_, high, middle, low]) = bytes.get(4..8) else { return true };
    let qpn = u32::from_be_bytes([0, high, middle, low]);
    if is_message(bytes) {
        return addressee(bytes).is_none_or(|id| id & !0xFF == first_id(first_qpn));
    }
    // Numbers below 256 are those that scripts choose themselves.
    qpn & !0xFF == first_qpn || (2..256).contains(&qpn)
}

fn seal_of(datagram: &Datagram<'_>) -> Seal {
    let (id, flags_frag, hidden) = match datagram.id {
        HeaderId::Seen { id, flags } => (id, flags, false),
        HeaderId::Hidden { .. } => (0, 0x4000, true),
        HeaderId::None => (0, 0, false),
    };
    let ip = match (datagram.src, datagram.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::V4 { src, dst, id, flags_frag },
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
        _ => return Seal::Bad,
    };
    let facts = UdpFacts { ip, src_port: datagram.sport, dst_port: ROCE_UDP_PORT };
    let bytes = datagram.bytes;
    let Some((covered, icrc)) = bytes.split_last_chunk::<ICRC_LEN>() else { return Seal::Bad };
    let good = if hidden { verify_unknown_id(&facts, bytes).is_some() } else { verify(&facts, bytes) };
    let is_rxe = || match hidden {
        true => verify_unknown_id_rxe_flush(&facts, bytes).is_some(),
        false => rxe_flush_icrc(&facts, covered) == u32::from_le_bytes(*icrc),
    };
    match (good, bytes[0] == FLUSH) {
        (true, _) => Seal::Good,
        (false, true) if is_rxe() => Seal::Rxe,
        _ => Seal::Bad,
    }
}
