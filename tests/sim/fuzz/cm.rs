//! Two connection managers, whatever their applications call and whatever the network does to their messages: nothing
//! panics, state is bounded, and none is left in the end.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use softrnic_cm::*;
use softrnic_wire::{
    AddressPair, MAD_LEN, Mtu, PortSpace, PrivateHeader, Psn, Qkey, Qpn, RejReason, ServiceId, Time,
};

use super::Choices;

struct End {
    cm: Cm,
    ids: Vec<CommId>,
    listeners: Vec<ListenerId>,
}

struct World {
    ends: [End; 2],
    now: Time,
    /// Messages in the network, with their receivers.
    flying: VecDeque<(usize, Outgoing)>,
    qpn: u32,
}

/// The most messages in the network; beyond it the oldest is lost.
const MOST_FLYING: usize = 64;

/// Takes the bytes as calls, faults of the network and messages.
pub fn cm(data: &[u8]) {
    let mut choices = Choices(data);
    let mut world = World::new();
    let mut calls = 0;
    while !choices.is_empty() {
        calls += 1;
        let end = usize::from(choices.byte() & 1);
        world.act(end, &mut choices);
        world.collect();
        for End { cm, .. } in &world.ends {
            let usage = cm.usage();
            assert!(usage.connections <= calls + MOST_FLYING, "{usage:?} after {calls} calls");
            assert!(usage.timers <= usage.connections && usage.pending <= usage.connections, "{usage:?}");
            assert_eq!((usage.outgoing, usage.events), (0, 0));
        }
    }
    world.finish();
}

impl World {
    fn new() -> World {
        let ends = [0, 1].map(|end| {
            let mut next = 0x1000 * (end as u32 + 1);
            let mut cm = Cm::new(Config::new(end as u64 + 1), move || {
                next += 1;
                next
            });
            cm.set_gids(&[address(end).into()]);
            End { cm, ids: Vec::new(), listeners: Vec::new() }
        });
        World { ends, now: Time::from_nanos(1), flying: VecDeque::new(), qpn: 2 }
    }

    fn act(&mut self, end: usize, choices: &mut Choices<'_>) {
        let now = self.now;
        let call = choices.byte() % 20;
        let id = self.ends[end].id(choices.byte());
        match (call, id) {
            (0..=2, _) => self.deliver(choices, false),
            (3, _) => self.deliver(choices, true),
            (4, _) => drop(self.flying.pop_front()),
            (5, _) => {
                if let Some(front) = self.flying.front().cloned() {
                    self.flying.push_back(front);
                }
            }
            (6, _) => {
                let mut bytes = [0; MAD_LEN];
                let given = choices.take(MAD_LEN);
                bytes[..given.len()].copy_from_slice(given);
                self.ends[end].cm.on_mad(now, route(end), &bytes);
            }
            (7, _) => {
                self.now += Duration::from_millis(1 << (choices.byte() % 16));
                self.ends.iter_mut().for_each(|end| end.cm.on_timeout(self.now));
            }
            (8, _) => {
                let service = service(choices);
                let transport = if choices.byte() & 1 == 0 { Some(transport(choices)) } else { None };
                let backlog = usize::from(choices.byte() % 8);
                let made = self.ends[end].cm.listen(Listen { service, transport, backlog });
                self.ends[end].listeners.extend(made);
            }
            (9, _) => {
                if let Some(listener) = self.ends[end].listeners.pop() {
                    self.ends[end].cm.unlisten(now, listener).expect("it was there");
                }
            }
            (10 | 11, _) => self.connect(end, choices),
            (12, _) => {
                let service = service(choices);
                let params = SidrParams { service, route: route(end), private: private(end, choices) };
                let asked = self.ends[end].cm.ask(now, &params);
                self.ends[end].ids.extend(asked);
            }
            (13, _) => self.ends[end].cm.lose_peer(now, address(1 - end)),
            (call, Some(id)) => self.answer(end, call, id, choices),
            (_, None) => {}
        }
    }

    fn connect(&mut self, end: usize, choices: &mut Choices<'_>) {
        self.qpn += u32::from(choices.byte() & 1);
        let route = route(end);
        let params = ConnectParams {
            service: service(choices),
            path: Path { route, flow_label: 0, traffic_class: 0, hop_limit: 64, mtu: Mtu::B1024 },
            transport: transport(choices),
            qpn: Qpn::new(self.qpn),
            starting_psn: Psn::new(1),
            responder_resources: choices.byte(),
            initiator_depth: choices.byte(),
            retry_count: choices.byte(),
            rnr_retry: choices.byte(),
            packet_life: None,
            flow_control: true,
            srq: false,
            private: private(end, choices),
            ece: Ece::default(),
        };
        let asked = self.ends[end].cm.connect(self.now, &params);
        self.ends[end].ids.extend(asked);
    }

    /// Calls that any application may make about any connection; invalid ones are refused.
    fn answer(&mut self, end: usize, call: u8, id: CommId, choices: &mut Choices<'_>) {
        let (now, cm) = (self.now, &mut self.ends[end].cm);
        let private = choices.take(usize::from(choices.0.first().copied().unwrap_or(0))).to_vec();
        match call {
            14 => {
                self.qpn += 1;
                let params = AcceptParams { qpn: Qpn::new(self.qpn), private, ..AcceptParams::default() };
                let _refused = cm.accept(now, id, &params);
            }
            15 => {
                let _refused = cm.establish(id, &private);
            }
            16 => {
                let _refused = cm.reject(id, RejReason(choices.byte().into()), &[], &private);
            }
            17 => {
                let _refused = cm.disconnect(now, id, &private);
            }
            18 if choices.byte() & 1 == 0 => cm.note_seen(id),
            18 => cm.notify_established(id),
            _ if choices.byte() & 1 == 0 => {
                let reply = SidrReply { qkey: Qkey(1), private, ..SidrReply::default() };
                let _refused = cm.sidr_reply(id, &reply);
            }
            _ => cm.destroy(now, id),
        }
        let _known = cm.qp_params(id);
    }

    fn deliver(&mut self, choices: &mut Choices<'_>, damaged: bool) {
        let Some((to, mut outgoing)) = self.flying.pop_front() else { return };
        if damaged {
            let at = usize::from(choices.byte());
            outgoing.bytes[at] ^= choices.byte();
        }
        let route = Route { local: outgoing.route.remote, remote: outgoing.route.local };
        self.ends[to].cm.on_mad(self.now, route, &outgoing.bytes[..]);
    }

    /// Takes the events of the ends.
    fn collect(&mut self) {
        for (place, end) in self.ends.iter_mut().enumerate() {
            while let Some(outgoing) = end.cm.poll_transmit() {
                // A damaged message may have named any address.
                if outgoing.route.remote == address(1 - place) {
                    self.flying.push_back((1 - place, outgoing));
                }
            }
            while let Some(event) = end.cm.poll_event() {
                match event {
                    Event::Request(request) => end.ids.push(request.id),
                    Event::SidrRequest { id, .. } => end.ids.push(id),
                    _ => {}
                }
            }
        }
        while self.flying.len() > MOST_FLYING {
            self.flying.pop_front();
        }
    }

    /// Everything is released, and no messages are answered any longer.
    fn finish(mut self) {
        for End { cm, ids, listeners } in &mut self.ends {
            for listener in listeners.drain(..) {
                cm.unlisten(self.now, listener).expect("it was there");
            }
            ids.drain(..).for_each(|id| cm.destroy(self.now, id));
        }
        // The longest timewait is 2^23 ms.
        for _ in 0..40 {
            self.now += Duration::from_secs(20_000);
            self.ends.iter_mut().for_each(|end| end.cm.on_timeout(self.now));
            self.collect();
        }
        for End { cm, .. } in &self.ends {
            assert_eq!(cm.usage(), Usage::default());
        }
    }
}

impl End {
    fn id(&self, choice: u8) -> Option<CommId> {
        self.ids.get(usize::from(choice) % self.ids.len().max(1)).copied()
    }
}

fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + end as u8])
}

fn route(end: usize) -> Route {
    Route { local: address(end), remote: address(1 - end) }
}

fn service(choices: &mut Choices<'_>) -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, u16::from(choices.byte() & 3))
}

fn transport(choices: &mut Choices<'_>) -> CmTransport {
    choices.pick(&[CmTransport::Rc, CmTransport::Rc, CmTransport::Xrc, CmTransport::Uc])
}

fn private(end: usize, choices: &mut Choices<'_>) -> Vec<u8> {
    let addresses = AddressPair::new(address(end), address(1 - end)).expect("one family");
    let mut private = PrivateHeader { version: 0, src_port: 1, addresses }.to_bytes().to_vec();
    let more = usize::from(choices.byte() % 64);
    private.extend_from_slice(choices.take(more));
    private
}
