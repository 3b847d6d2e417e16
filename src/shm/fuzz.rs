//! Peers that do anything: they say any words over their streams, give away any descriptors, and write anything into
//! their segments between our calls.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with, sendmsg,
};
use rustix::pipe::{PipeFlags, pipe_with};
use softrnic_sys::fuzz::Choices;
use softrnic_wire::{Gid, ROCE_UDP_PORT, Time};

use softrnic_link::sim::{Fabric, SimLink, SimOptions};
use softrnic_link::{Flow, Link, Overrun, ProcessSlot, Sleeper};

use super::ShmLink;
use super::handshake::{self, Endpoint, Message, PeerMessage};
use super::header::Sleep;
use super::ring::{ALIGN, MAX_DATAGRAM, RECORD_HEADER, SKIP, first_word, record_len};
use super::segment::{MAX_CAPACITY, MIN_CAPACITY, Own, Peer};

/// Addresses of peers.
const PEERS: u8 = 4;
/// Streams that are open at the same time.
const STREAMS: usize = 6;
/// Those of the link: it may not have heard yet which have ended.
const MOST_STREAMS: usize = 64;

/// One link, and peers that it asks or that ask it.
pub fn shm(data: &[u8]) {
    let mut choices = Choices(data);
    let Some(mut world) = World::new() else { return };
    while !choices.is_empty() {
        world.step(&mut choices);
        world.check();
    }
    world.end();
}

fn endpoint(address: IpAddr) -> Endpoint {
    Endpoint { address, slot: None }
}

struct World {
    link: ShmLink<SimLink>,
    now: Time,
    address: IpAddr,
    /// Those under whose names somebody listens.
    listeners: [Option<OwnedFd>; PEERS as usize + 1],
    streams: Vec<Hostile>,
    /// The other ends of what was given away: closed once nobody has it any more.
    pipes: Vec<File>,
}

/// A peer's end of a stream.
struct Hostile {
    socket: OwnedFd,
    own: Option<Own>,
    theirs: Option<Peer>,
    tail: u64,
    written: u16,
}

impl World {
    /// `None` if all names are taken.
    fn new() -> Option<World> {
        (0..100).find_map(|_| {
            let address = unused();
            let below = Fabric::new(0).attach(address, SimOptions::default()).ok()?;
            let link = ShmLink::new(below, address).ok()?;
            Some(World {
                link,
                now: Time::from_nanos(1),
                address,
                listeners: [const { None }; PEERS as usize + 1],
                streams: Vec::new(),
                pipes: Vec::new(),
            })
        })
    }

    /// The address of a peer, or now and then our own.
    fn peer(&self, number: u8) -> IpAddr {
        match (self.address, number % (PEERS + 1)) {
            (own, 0) => own,
            (IpAddr::V4(own), number) => Ipv4Addr::from(u32::from(own) + u32::from(number)).into(),
            (own, _) => own,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        match kind % 13 {
            0 => self.connect(),
            1 => self.listen(choices.byte()),
            2 => self.accept(choices.byte()),
            3 => self.send(choices),
            4 | 5 => self.receive(usize::from(choices.byte() % 65)),
            6 => {
                self.link.watch(
                    [Sleeper::Nobody, Sleeper::Thread, Sleeper::Caller][usize::from(choices.byte() % 3)],
                );
            }
            7 => self.now += Duration::from_micros(choices.number(3)),
            kind => {
                let count = self.streams.len();
                let Some(place) = usize::from(choices.byte()).checked_rem(count) else { return };
                match kind {
                    8 => self.say(place, choices),
                    9 => self.offer(place, choices),
                    10 => self.streams[place].write(choices),
                    11 => self.streams[place].forge(choices),
                    _ if choices.byte() & 3 == 0 => drop(self.streams.swap_remove(place)),
                    _ => self.streams[place].hear(),
                }
            }
        }
    }

    fn connect(&mut self) {
        if self.streams.len() < STREAMS
            && let Ok((socket, _)) = handshake::ask(endpoint(self.address))
        {
            self.streams.push(Hostile { socket, own: None, theirs: None, tail: 0, written: 0 });
        }
    }

    fn listen(&mut self, number: u8) {
        let address = self.peer(number);
        let place = &mut self.listeners[usize::from(number % (PEERS + 1))];
        *place = match place.take() {
            Some(_) => None,
            None if address != self.address => handshake::take_name(endpoint(address)).ok(),
            None => None,
        };
    }

    fn accept(&mut self, number: u8) {
        if self.streams.len() < STREAMS
            && let Some(listener) = &self.listeners[usize::from(number % (PEERS + 1))]
            && let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            self.streams.push(Hostile { socket, own: None, theirs: None, tail: 0, written: 0 });
        }
    }

    /// We send something, and what we have written stays as it is.
    fn send(&mut self, choices: &mut Choices<'_>) {
        let dst = self.peer(choices.byte());
        let len = choices.number(2) as usize % (MAX_DATAGRAM + 8);
        let flow = Flow {
            src: self.address,
            dst,
            sport: ROCE_UDP_PORT,
            slot: Some(ProcessSlot::default()),
            tos: 0,
            ttl: 64,
        };
        for _ in 0..=choices.byte() % 16 {
            let Ok(slot) = self.link.reserve(self.now, &flow, len) else { break };
            assert_eq!(slot.bytes.len(), len);
            slot.bytes.fill(len as u8);
            assert!(self.link.reserved().iter().all(|&byte| byte == len as u8));
            self.link.commit(self.now);
        }
        self.link.flush(self.now);
    }

    fn receive(&mut self, budget: usize) {
        let (own, peers) = (self.address, (0..=PEERS).map(|number| self.peer(number)).collect::<Vec<_>>());
        let mut got = 0;
        let overrun = self.link.receive(self.now, budget, &mut |datagram| {
            // What is longer goes below, and only we send there.
            assert!(datagram.bytes.len() <= MAX_DATAGRAM || datagram.src == own);
            assert!(peers.contains(&datagram.src) && datagram.dst == own);
            got += 1;
        });
        assert!(got <= budget, "{got} of {budget}");
        assert!(overrun != Overrun::Budget || got == budget);
    }

    /// Any bytes, with any descriptors.
    fn say(&mut self, place: usize, choices: &mut Choices<'_>) {
        let form = choices.byte();
        let mut words = Vec::new();
        if form & 1 != 0 {
            words.extend(handshake::MAGIC);
            words.extend([if form & 2 != 0 { b'O' } else { b'N' }, 0, 0, 0]);
            words.extend(Gid::from(self.peer(choices.byte())).0);
        }
        let len = usize::from(choices.byte() % 32);
        words.extend(choices.take(len));
        let count = usize::from(form >> 4).min(5);
        let descriptors: Vec<OwnedFd> =
            (0..count).filter_map(|_| self.descriptor(choices.byte(), choices)).collect();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = sendmsg(&self.streams[place].socket, &[std::io::IoSlice::new(&words)], &mut ancillary, flags);
    }

    fn descriptor(&mut self, kind: u8, choices: &mut Choices<'_>) -> Option<OwnedFd> {
        match kind % 5 {
            0 => Some(File::open("/dev/null").expect("a device").into()),
            1 => Some(bell()),
            2 => Some(Own::create(MIN_CAPACITY).expect("memory").1),
            3 => {
                let file = memfd_create("softrnic-fuzz", MemfdFlags::ALLOW_SEALING).expect("a memfd");
                ftruncate(&file, choices.number(3)).expect("room");
                let seals = SealFlags::from_bits_truncate(u32::from(choices.byte()));
                let _ = fcntl_add_seals(&file, seals);
                Some(file)
            }
            _ => {
                let (near, far) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
                self.pipes.push(near.into());
                Some(far)
            }
        }
    }

    /// What a peer says that means it well, for now.
    fn offer(&mut self, place: usize, choices: &mut Choices<'_>) {
        let address = self.peer(choices.byte());
        let capacity = match choices.byte() % 3 {
            0 => MIN_CAPACITY,
            1 => MAX_CAPACITY,
            _ => 2 * MIN_CAPACITY,
        };
        let (own, segment) = Own::create(capacity).expect("memory");
        let hostile = &mut self.streams[place];
        if handshake::offer(
            &hostile.socket,
            endpoint(address),
            &segment,
            &handshake::Bells { thread: bell(), caller: bell() },
            choices.byte() & 1 != 0,
        )
        .is_ok()
        {
            hostile.own.get_or_insert(own);
        }
    }

    /// What holds after each step.
    fn check(&self) {
        let places = self.link.connections.places();
        assert!(places <= MOST_STREAMS, "{places} streams");
        let connections = self
            .link
            .connections
            .each()
            .filter(|connection| !connection.ended && connection.peer != endpoint(self.address));
        let mut to: Vec<Endpoint> = connections.map(|connection| connection.peer).collect();
        to.sort();
        assert!(to.windows(2).all(|pair| pair[0] != pair[1]), "two connections to one address: {to:?}");
    }

    /// Nothing that was given to the link is left.
    fn end(self) {
        let World { link, streams, listeners, mut pipes, .. } = self;
        drop((link, streams, listeners));
        for pipe in &mut pipes {
            match pipe.read(&mut [0]) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("a descriptor is still open"),
                other => panic!("nobody writes: {other:?}"),
            }
        }
    }
}

impl Hostile {
    fn hear(&mut self) {
        if let PeerMessage::Message(Message::Offer { shared, .. }) = handshake::hear(&self.socket) {
            self.theirs = Peer::map(&shared.segment).ok();
            assert!(self.theirs.is_some(), "the link offers what it would take");
        }
        // What a peer can read of us is ours alone to write.
        let mut buffer = [0; RECORD_HEADER];
        if let Some(theirs) = &self.theirs {
            theirs.copy(0, &mut buffer);
        }
        let _ = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK);
    }

    /// A record as it should be, or nearly.
    fn write(&mut self, choices: &mut Choices<'_>) {
        let Some(own) = &mut self.own else { return };
        let len = choices.number(2) as usize % (MAX_DATAGRAM + 1);
        let (capacity, need) = (own.capacity(), record_len(len));
        let mut at = self.tail as usize % capacity / ALIGN * ALIGN;
        if need > capacity - at {
            own.bytes_mut(at, 4).copy_from_slice(&SKIP.to_ne_bytes());
            self.tail = self.tail.wrapping_add((capacity - at) as u64);
            at = 0;
        }
        own.bytes_mut(at, 4).copy_from_slice(&first_word(len, self.written).to_ne_bytes());
        self.written = self.written.wrapping_add(1);
        self.tail = self.tail.wrapping_add(need as u64);
        own.header().show(self.tail);
        if let Some(theirs) = &self.theirs {
            let mut rung = Sleep::NONE;
            own.header().publish_head(theirs.header().tail(), theirs.header(), &mut rung);
        }
    }

    /// Anything, anywhere in the segment.
    fn forge(&mut self, choices: &mut Choices<'_>) {
        let Some(own) = &mut self.own else { return };
        let kind = choices.byte();
        let number = choices.number(if kind & 8 == 0 { 2 } else { 8 });
        let near = |value: u64| if kind & 16 == 0 { value.wrapping_add(number) } else { number };
        match kind % 8 {
            0 | 1 => {
                self.tail = near(self.tail);
                own.header().show(self.tail);
            }
            2 => {
                let Some(theirs) = &self.theirs else { return };
                let head = near(theirs.header().head());
                let mut rung = Sleep::NONE;
                own.header().publish_head(head, theirs.header(), &mut rung);
            }
            3 => own.header().sleep(Sleep::forged(number as u32)),
            4 => own.header().wait(number & 1 != 0),
            5 if kind & 32 != 0 => own.header().begin_at(near(self.tail)),
            5 => {
                // Skips to nowhere.
                let at = number as usize % (own.capacity() / ALIGN) * ALIGN;
                own.bytes_mut(at, 4).copy_from_slice(&SKIP.to_ne_bytes());
            }
            _ => {
                let at = number as usize % (own.capacity() - 8);
                let word = choices.number(8);
                own.bytes_mut(at, 8).copy_from_slice(&word.to_ne_bytes());
            }
        }
    }
}

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// An address, with others behind it, that no other world of this process has, and most likely none of another's.
fn unused() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() << 9);
    Ipv4Addr::from(10 << 24 | (number << 3 & 0xFF_FFFF)).into()
}
