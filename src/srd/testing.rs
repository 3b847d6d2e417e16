//! Endpoints with memory and receives, and the network between them.

use std::boxed::Box;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::format;
use std::net::{IpAddr, Ipv4Addr};
use std::vec;
use std::vec::Vec;

use core::time::Duration;

use softrnic_transport::{
    LocalFault, RecvWqe, RemoteBuffer, RemoteFault, SendOp, SendWqe, SrdVerb, TransmitError,
};
use softrnic_wire::{
    Bth, Imm, Pad, Psn, Qkey, Qpn, Rkey, SrdBody, SrdHeaders, SrdMessage, SrdPacket, SrdPart, SrdPsn,
    SrdRemote, Time,
};

use crate::{Arrival, Code, Config, Counter, Endpoint, Host, Payload, Peer, Post};

pub const KEY: u32 = 0x77;
const RKEY: Rkey = Rkey(0x1234);
pub const MEMORY: usize = 1 << 20;

/// How a network treats packets. Probabilities are in thousandths.
#[derive(Clone, Copy)]
pub struct Link {
    pub loss: u64,
    pub repeat: u64,
    pub delay: Duration,
    pub jitter: Duration,
    /// Time that a packet takes the wire for.
    pub rate: Option<Duration>,
}

impl Link {
    pub const GOOD: Link =
        Link { loss: 0, repeat: 0, delay: Duration::from_micros(10), jitter: Duration::ZERO, rate: None };
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    Sent { wr_id: u64, code: Code },
    Received { wr_id: u64, bytes: Vec<u8>, code: Code },
}

/// Local bytes: those of the request, or a place in the memory of the NIC.
#[derive(Clone)]
pub enum Data {
    Bytes(Vec<u8>),
    Place(usize),
    /// Receives have a buffer of their own.
    Buffer(u64),
}

pub struct World {
    random: u64,
    link: Link,
    now: Time,
    nics: Vec<(Endpoint<usize, Data>, Nic)>,
    network: BTreeMap<(Time, u64), (usize, usize, Vec<u8>)>,
    order: u64,
    wire_free: Time,
    cut: Vec<bool>,
    pub rnr_retry: u8,
    pub qkey: u32,
    reads: Vec<(usize, usize, usize)>,
    writes: Vec<(usize, Vec<u8>)>,
}

/// The NIC around an endpoint.
pub struct Nic {
    number: usize,
    random: u64,
    memory: Vec<u8>,
    receives: Vec<VecDeque<RecvWqe<Data>>>,
    buffers: HashMap<u64, Box<[u8]>>,
    next_buffer: u64,
    out: Vec<(usize, Vec<u8>)>,
    done: Vec<Done>,
    counters: Vec<u64>,
}

fn next(random: &mut u64) -> u64 {
    // SplitMix64.
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *random;
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

pub fn pattern(number: u64, length: usize) -> Vec<u8> {
    let mut random = number + 1;
    (0..length).map(|_| next(&mut random) as u8).collect()
}

fn address(nic: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0A00_0000 + nic as u32))
}

fn number(address: IpAddr) -> usize {
    let IpAddr::V4(v4) = address else { panic!("{address}") };
    (u32::from(v4) - 0x0A00_0000) as usize
}

fn peer(local: usize, remote: usize) -> Peer {
    Peer { local: address(local), remote: address(remote), place: 0 }
}

fn qpn(qp: usize) -> Qpn {
    Qpn::new(16 + qp as u32)
}

impl World {
    pub fn new(seed: u64, nics: usize, link: Link) -> World {
        let mut random = seed ^ 0x5EED;
        let nic = |number| (Endpoint::new(Config::default()), Nic::new(number, next(&mut random)));
        World {
            nics: (0..nics).map(nic).collect(),
            random,
            link,
            now: Time::from_nanos(1_000_000_000),
            network: BTreeMap::new(),
            order: 0,
            wire_free: Time::ZERO,
            cut: vec![false; nics],
            rnr_retry: 7,
            qkey: KEY,
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    pub fn random(&mut self) -> u64 {
        next(&mut self.random)
    }

    pub fn queue_pairs(&mut self, nic: usize, count: usize) {
        self.nics[nic].1.receives.resize_with(count, VecDeque::new);
    }

    pub fn limit_peers(&mut self, nic: usize, most: usize) {
        self.nics[nic].0 = Endpoint::new(Config { max_peers: most, ..Config::default() });
    }

    pub fn receive(&mut self, nic: usize, qp: usize, wr_id: u64, length: usize) {
        let nic = &mut self.nics[nic].1;
        nic.next_buffer += 1;
        nic.buffers.insert(nic.next_buffer, vec![0; length].into_boxed_slice());
        let data = Data::Buffer(nic.next_buffer);
        nic.receives[qp].push_back(RecvWqe { wr_id, data, length: length as u32 });
    }

    /// The queue pair, the peer and its queue pair.
    pub fn send(&mut self, nic: usize, ends: (usize, usize, usize), wr_id: u64, bytes: &[u8]) {
        let imm = (wr_id.is_multiple_of(2)).then_some(Imm([1; 4]));
        self.post(nic, ends, wr_id, SrdVerb::Send(imm), Data::Bytes(bytes.to_vec()), bytes.len());
    }

    pub fn write(&mut self, nic: usize, ends: (usize, usize, usize), wr_id: u64, at: usize, bytes: &[u8]) {
        self.writes.push((at, bytes.to_vec()));
        let verb = SrdVerb::Write(RemoteBuffer { va: at as u64, rkey: RKEY }, None);
        self.post(nic, ends, wr_id, verb, Data::Bytes(bytes.to_vec()), bytes.len());
    }

    pub fn write_with_imm(
        &mut self,
        nic: usize,
        ends: (usize, usize, usize),
        wr_id: u64,
        at: usize,
        bytes: &[u8],
    ) {
        let verb = SrdVerb::Write(RemoteBuffer { va: at as u64, rkey: RKEY }, Some(Imm([9; 4])));
        self.post(nic, ends, wr_id, verb, Data::Bytes(bytes.to_vec()), bytes.len());
    }

    pub fn read(&mut self, nic: usize, ends: (usize, usize, usize), wr_id: u64, at: usize, length: usize) {
        self.reads.push((nic, at, length));
        let verb = SrdVerb::Read(RemoteBuffer { va: at as u64, rkey: RKEY });
        self.post(nic, ends, wr_id, verb, Data::Place(at), length);
    }

    fn post(
        &mut self,
        nic: usize,
        (qp, to, dest): (usize, usize, usize),
        wr_id: u64,
        verb: SrdVerb,
        data: Data,
        length: usize,
    ) {
        let qkey = Qkey(self.qkey);
        let op = SendOp::Srd { handle: 0, dest_qpn: qpn(dest), qkey, verb };
        let wqe = SendWqe { wr_id, length: length as u32, ..SendWqe::new(op, data) };
        let post = Post { qp, qpn: qpn(qp), dest_qpn: qpn(dest), qkey, rnr_retry: self.rnr_retry, wqe };
        let (endpoint, host) = &mut self.nics[nic];
        endpoint.post(self.now, peer(nic, to), post, host);
    }

    pub fn flush(&mut self, nic: usize, qp: usize) {
        let (endpoint, host) = &mut self.nics[nic];
        endpoint.flush(qp, host);
    }

    pub fn cut(&mut self, nic: usize, cut: bool) {
        self.cut[nic] = cut;
    }

    /// The process of a NIC ends, and another begins.
    pub fn restart(&mut self, nic: usize) {
        let random = self.random();
        self.nics[nic] = (Endpoint::new(Config::default()), Nic::new(nic, random));
    }

    pub fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    pub fn done(&mut self, nic: usize) -> Vec<Done> {
        core::mem::take(&mut self.nics[nic].1.done)
    }

    pub fn counter(&self, nic: usize, counter: Counter) -> u64 {
        self.nics[nic].1.counters[counter as usize]
    }

    pub fn connections(&self, nic: usize) -> usize {
        self.nics[nic].0.connections()
    }

    /// Receives that some message has taken, and has not given back.
    pub fn kept(&self) -> usize {
        self.nics
            .iter()
            .map(|(_, nic)| {
                let queued: usize = nic.receives.iter().map(VecDeque::len).sum();
                nic.buffers.len() - queued
            })
            .sum()
    }

    /// Runs until nothing goes on, and says how long that took.
    pub fn run(&mut self) -> Duration {
        let start = self.now;
        let mut last = self.now;
        while self.turn(Time::NEVER) {
            last = self.now;
            assert!(self.now.since(start) < Duration::from_secs(300), "it does not end");
        }
        last.since(start)
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.turn(end) {}
        self.now = end;
    }

    fn turn(&mut self, end: Time) -> bool {
        for place in 0..self.nics.len() {
            let (endpoint, host) = &mut self.nics[place];
            while endpoint.has_work() {
                let progress = endpoint.poll_transmit(self.now, 64, host);
                assert!(progress.sent > 0 || !progress.more, "it would go on for ever");
            }
            let out = core::mem::take(&mut host.out);
            out.into_iter().for_each(|(to, bytes)| self.carry(place, to, bytes));
        }
        let arrival = self.network.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let timer = self.nics.iter().map(|(endpoint, _)| endpoint.poll_timeout()).min();
        let next = arrival.min(timer.unwrap_or(Time::NEVER));
        if next == Time::NEVER || next > end {
            return false;
        }
        self.now = self.now.max(next);
        if arrival <= next {
            let Some((_, (from, to, bytes))) = self.network.pop_first() else { return false };
            let packet = SrdPacket::parse(&bytes).expect("what was sent");
            let (endpoint, host) = &mut self.nics[to];
            endpoint.on_packet(self.now, peer(to, from), &packet, host);
        } else {
            for (endpoint, host) in &mut self.nics {
                endpoint.on_timeout(self.now, host);
            }
        }
        true
    }

    fn carry(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        if self.cut[from] || self.cut[to] {
            return;
        }
        let copies = 1 + u64::from(self.random() % 1000 < self.link.repeat);
        for _ in 0..copies {
            if self.random() % 1000 < self.link.loss {
                continue;
            }
            let mut at = self.now;
            if let Some(time) = self.link.rate {
                self.wire_free = self.wire_free.max(self.now) + time;
                at = self.wire_free;
            }
            let jitter = self.random() % (self.link.jitter.as_nanos() as u64 + 1);
            at = at + self.link.delay + Duration::from_nanos(jitter);
            self.order += 1;
            self.network.insert((at, self.order), (from, to, bytes.clone()));
        }
    }

    /// What was written and read is what it should be.
    pub fn check_memory(&self, seed: u64) {
        for (at, bytes) in &self.writes {
            assert!(
                self.nics[1].1.memory[*at..*at + bytes.len()] == bytes[..],
                "seed {seed}: a WRITE at {at:#x}"
            );
        }
        for &(nic, at, length) in &self.reads {
            let same = self.nics[nic].1.memory[at..at + length] == self.nics[1].1.memory[at..at + length];
            assert!(same, "seed {seed}: a READ at {at:#x}");
        }
    }

    /// Packets from the address of a NIC, of somebody who knows no tag.
    pub fn forge(&mut self, to: usize, (from, qp): (usize, usize), count: usize) {
        for _ in 0..count {
            let body = SrdBody::Send(
                SrdMessage { una: SrdPsn(self.random() as u32), id: 1 },
                SrdPart { qkey: Qkey(KEY), length: 0, offset: 0 },
                None,
            );
            let (src_tag, dst_tag) =
                (self.random() as u32 | 1, self.random() as u32 * (self.random() % 2) as u32);
            let psn = SrdPsn(body.message().map_or(0, |message| message.una.0));
            let bth = Bth::new(qpn(qp), Psn::new(0));
            let headers = SrdHeaders { bth, src_qpn: qpn(0), src_tag, dst_tag, psn, body };
            self.inject(to, from, &headers, &[]);
        }
    }

    /// Packets of somebody who has tags of a connection, and says whatever there is to say.
    pub fn forge_with_tags(&mut self, to: usize, from: usize, count: usize) {
        let tags = self.nics[to].0.tags(&peer(to, from));
        let Some((ours, theirs, near)) = tags else { return };
        for _ in 0..count {
            let mut small = |most: u64| (next(&mut self.random) % most) as u32;
            let psn = SrdPsn(near.0.wrapping_add(small(600)).wrapping_sub(300));
            let message = SrdMessage { una: SrdPsn(psn.0.wrapping_sub(small(400))), id: small(1 << 22) };
            let part = SrdPart { qkey: Qkey(KEY), length: small(9000), offset: small(9000) };
            let remote = SrdRemote { va: u64::from(small(u64::from(u32::MAX))), rkey: RKEY };
            let imm = (small(2) == 0).then_some(Imm([0; 4]));
            let bits = [0; 8].map(|_: u64| u64::from(small(u64::from(u32::MAX))));
            let body = match small(9) {
                0 => SrdBody::Send(message, part, imm),
                1 => SrdBody::Write(message, part, remote, imm),
                2 => SrdBody::ReadRequest(message, part, remote),
                3 => SrdBody::ReadResponse(message, part.offset),
                4 => SrdBody::ReadFailure(message, small(256) as u8),
                5 => SrdBody::Cancel(message),
                6 => SrdBody::Acknowledge { latest: psn, bits },
                7 => SrdBody::Refuse { id: message.id, code: small(256) as u8 },
                _ => SrdBody::Hello,
            };
            let payload = vec![7; if body.message().is_some() { small(4000) as usize } else { 0 }];
            let bth = Bth {
                pad: Pad::for_payload(payload.len()),
                ..Bth::new(qpn(small(4) as usize), Psn::new(psn.0))
            };
            let headers = SrdHeaders { bth, src_qpn: qpn(0), src_tag: theirs, dst_tag: ours, psn, body };
            self.inject(to, from, &headers, &payload);
            self.run_for(Duration::from_micros(3));
        }
    }

    fn inject(&mut self, to: usize, from: usize, headers: &SrdHeaders, payload: &[u8]) {
        let bytes = packet(headers, payload);
        let packet = SrdPacket::parse(&bytes).expect("what was built");
        let (endpoint, host) = &mut self.nics[to];
        endpoint.on_packet(self.now, peer(to, from), &packet, host);
    }
}

fn packet(headers: &SrdHeaders, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; headers.transport_len(payload.len())];
    let at = headers.emit(&mut bytes);
    bytes[at..at + payload.len()].copy_from_slice(payload);
    bytes
}

impl Nic {
    fn new(number: usize, random: u64) -> Nic {
        Nic {
            number,
            random,
            memory: if number < 2 { pattern(number as u64, MEMORY) } else { Vec::new() },
            receives: (0..3).map(|_| VecDeque::new()).collect(),
            buffers: HashMap::new(),
            next_buffer: 0,
            out: Vec::new(),
            done: Vec::new(),
            counters: vec![0; Counter::ALL.len()],
        }
    }
}

impl Host for Nic {
    type Qp = usize;
    type Data = Data;

    fn transmit(
        &mut self,
        to: &Peer,
        headers: &SrdHeaders,
        payload: Payload<'_, usize, Data>,
    ) -> Result<(), TransmitError> {
        assert_eq!(number(to.local), self.number);
        let bytes = match payload {
            Payload::None => &[],
            Payload::Local { data: Data::Bytes(bytes), offset, len, .. } => {
                &bytes[offset as usize..offset as usize + len]
            }
            Payload::Local { .. } => return Err(TransmitError::Local(LocalFault)),
            Payload::Remote { va, len, .. } => {
                let bytes = self.memory.get(va as usize..va as usize + len);
                bytes.ok_or(TransmitError::Remote(RemoteFault::Access))?
            }
        };
        assert!(bytes.len() <= Config::default().payload as usize);
        self.out.push((number(to.remote), packet(headers, bytes)));
        Ok(())
    }

    fn target(&mut self, qpn: Qpn, qkey: Qkey) -> Option<usize> {
        let qp = (qpn.get() as usize).checked_sub(16)?;
        (qp < self.receives.len() && qkey == Qkey(KEY)).then_some(qp)
    }

    fn take_receive(&mut self, qp: usize) -> Option<RecvWqe<Data>> {
        self.receives[qp].pop_front()
    }

    fn is_unsolicited(&mut self, _qp: usize) -> bool {
        false
    }

    fn return_receive(&mut self, qp: usize, wqe: RecvWqe<Data>) {
        self.receives[qp].push_front(wqe);
    }

    fn check_local(&mut self, _qp: usize, _data: &Data, _sink: bool) -> Result<(), LocalFault> {
        Ok(())
    }

    fn scatter(&mut self, _qp: usize, data: &Data, offset: u64, bytes: &[u8]) -> Result<(), LocalFault> {
        let (memory, at) = match data {
            Data::Buffer(number) => (&mut self.buffers.get_mut(number).expect("taken")[..], 0),
            Data::Place(at) => (&mut self.memory[..], *at),
            Data::Bytes(_) => return Err(LocalFault),
        };
        let at = at + offset as usize;
        memory.get_mut(at..at + bytes.len()).ok_or(LocalFault)?.copy_from_slice(bytes);
        Ok(())
    }

    fn check_read(&mut self, _qp: usize, rkey: Rkey, va: u64, len: u64) -> Result<(), RemoteFault> {
        let fits = va.checked_add(len).is_some_and(|end| end <= self.memory.len() as u64);
        if fits && rkey == RKEY { Ok(()) } else { Err(RemoteFault::Access) }
    }

    fn write(&mut self, qp: usize, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), RemoteFault> {
        self.check_read(qp, rkey, va, bytes.len() as u64)?;
        self.memory[va as usize..va as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn complete_send(&mut self, _qp: usize, wqe: SendWqe<Data>, code: Code) {
        self.done.push(Done::Sent { wr_id: wqe.wr_id, code });
    }

    fn complete_receive(&mut self, _qp: usize, _from: &Peer, arrival: Arrival<Data>) {
        let Some(RecvWqe { wr_id, data: Data::Buffer(number), .. }) = arrival.wqe else {
            panic!("{}", format!("no receive for {} B", arrival.length));
        };
        let buffer = self.buffers.remove(&number).expect("taken once");
        let bytes = buffer[..arrival.length as usize].to_vec();
        self.done.push(Done::Received { wr_id, bytes, code: arrival.code });
    }

    fn random(&mut self) -> u32 {
        next(&mut self.random) as u32
    }

    fn count(&mut self, counter: Counter) {
        self.counters[counter as usize] += 1;
    }
}
