//! Connection managers with a network between them that loses, duplicates and reorders.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softrnic_link::Rng;
use softrnic_wire::{AddressPair, CmBody, Mad, Mtu, PortSpace, PrivateHeader, Psn, Qpn, ServiceId, Time};

use softrnic_cm::*;

pub fn address(end: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + end as u8).into()
}

pub fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, 7174)
}

pub fn datagrams() -> ServiceId {
    ServiceId::of_port(PortSpace::Udp, 7174)
}

pub fn header(from: usize, to: usize) -> [u8; PrivateHeader::LEN] {
    let addresses = AddressPair::new(address(from), address(to)).expect("one family");
    PrivateHeader { version: 0, src_port: 40000, addresses }.to_bytes()
}

pub fn connect_params(from: usize, to: usize, qpn: u32) -> ConnectParams {
    let route = Route { local: address(from), remote: address(to) };
    ConnectParams {
        service: service(),
        path: Path { route, flow_label: 7, traffic_class: 0, hop_limit: 64, mtu: Mtu::B1024 },
        transport: CmTransport::Rc,
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn + 1),
        responder_resources: 3,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry: 6,
        packet_life: None,
        flow_control: true,
        srq: false,
        private: [&header(from, to)[..], b"hello"].concat(),
        ece: Ece::default(),
    }
}

pub fn accept_params(qpn: u32) -> AcceptParams {
    AcceptParams {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn + 1),
        responder_resources: 1,
        initiator_depth: 4,
        rnr_retry: 5,
        private: b"welcome".to_vec(),
        ..AcceptParams::default()
    }
}

/// How bad the network is: probabilities, how long a datagram takes, and the longest that one is late.
#[derive(Clone, Copy)]
pub struct Weather {
    pub loss: f64,
    pub double: f64,
    pub reorder: f64,
    pub delay: Duration,
    pub late: Duration,
}

impl Default for Weather {
    fn default() -> Weather {
        let (delay, late) = (Duration::from_micros(100), Duration::from_millis(30));
        Weather { loss: 0.0, double: 0.0, reorder: 0.0, delay, late }
    }
}

pub struct World {
    pub now: Time,
    pub ends: Vec<Cm>,
    pub rng: Rng,
    pub weather: Weather,
    /// Datagrams in flight, by time of arrival.
    flying: BTreeMap<(Time, u64), Outgoing>,
    sent: u64,
    /// Names of the messages, in the order in which they were sent.
    pub log: Vec<&'static str>,
    /// Drops the messages for which it returns true.
    pub censor: Option<fn(&CmBody<'_>, usize) -> bool>,
    seen: BTreeMap<u16, usize>,
}

impl World {
    pub fn new(ends: usize, seed: u64) -> World {
        let mut world = World {
            now: Time::ZERO,
            ends: Vec::new(),
            rng: Rng::new(seed),
            weather: Weather::default(),
            flying: BTreeMap::new(),
            sent: 0,
            log: Vec::new(),
            censor: None,
            seen: BTreeMap::new(),
        };
        for end in 0..ends {
            let cm = world.start(end);
            world.ends.push(cm);
        }
        world
    }

    /// A new connection manager on the device of `end`.
    pub fn start(&mut self, end: usize) -> Cm {
        let mut rng = Rng::new(self.rng.next());
        let mut cm = Cm::new(Config::new(0x0200_0000_0000_0000 + end as u64), move || rng.next() as u32);
        cm.set_gids(&[address(end).into()]);
        cm
    }

    /// The end that listens for connections and for datagrams.
    pub fn listen(&mut self, end: usize, backlog: usize) -> ListenerId {
        let transport = Some(CmTransport::Rc);
        let cm = &mut self.ends[end];
        cm.listen(Listen { service: datagrams(), transport: None, backlog }).expect("free");
        cm.listen(Listen { service: service(), transport, backlog }).expect("free")
    }

    /// Puts all outgoing messages of the ends on the wire.
    pub fn collect(&mut self) {
        for end in 0..self.ends.len() {
            while let Some(outgoing) = self.ends[end].poll_transmit() {
                self.send(outgoing);
            }
        }
    }

    fn send(&mut self, outgoing: Outgoing) {
        let mad = Mad::read(&outgoing.bytes[..]).expect("a MAD");
        let message = mad.cm().expect("a message");
        self.log.push(message.name());
        let nth = self.seen.entry(mad.attribute_id).or_default();
        *nth += 1;
        if self.censor.is_some_and(|censor| censor(message.body(), *nth))
            || self.rng.chance(self.weather.loss)
        {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(self.weather.double));
        for _ in 0..copies {
            let most = self.weather.late.as_micros() as u64;
            let late = if self.rng.chance(self.weather.reorder) { self.rng.below(most) } else { 0 };
            let at = self.now + self.weather.delay + Duration::from_micros(late);
            self.sent += 1;
            self.flying.insert((at, self.sent), outgoing.clone());
        }
    }

    /// Advances to the next datagram or timer, but not beyond `until`. False when nothing
    /// is due.
    pub fn step(&mut self, until: Time) -> bool {
        self.collect();
        let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
        let timer = self.ends.iter().filter_map(Cm::poll_timeout).min();
        let Some(next) = arrival.into_iter().chain(timer).min().filter(|&next| next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        if arrival.is_some_and(|at| at <= next) {
            let ((_, _), Outgoing { route, bytes }) = self.flying.pop_first().expect("something flies");
            let to = (0..self.ends.len()).find(|&end| address(end) == route.remote);
            if let Some(to) = to {
                let route = Route { local: route.remote, remote: route.local };
                self.ends[to].on_mad(self.now, route, &bytes[..]);
            }
        }
        for end in 0..self.ends.len() {
            self.ends[end].on_timeout(self.now);
        }
        self.collect();
        true
    }

    /// Runs until `end` has an event.
    pub fn event(&mut self, end: usize) -> Option<Event> {
        loop {
            if let Some(event) = self.ends[end].poll_event() {
                return Some(event);
            }
            if !self.step(self.now + Duration::from_secs(300)) {
                return None;
            }
        }
    }

    /// Runs for a while, whatever happens.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// The ids of a connection between ends 0 and 1, the active one first.
    pub fn connected(&mut self) -> (CommId, CommId) {
        let active = self.ends[0].connect(self.now, &connect_params(0, 1, 0x11)).expect("connect");
        let Some(Event::Request(request)) = self.event(1) else { panic!("no request") };
        self.ends[1].accept(self.now, request.id, &accept_params(0x22)).expect("accept");
        let Some(Event::Reply(_)) = self.event(0) else { panic!("no reply") };
        self.ends[0].establish(active, b"go").expect("establish");
        let Some(Event::Established(passive, _)) = self.event(1) else { panic!("not established") };
        (active, passive)
    }
}
