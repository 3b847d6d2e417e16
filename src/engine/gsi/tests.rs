//! QP 1 of two engines with a simulated network between them.

use std::net::IpAddr;
use std::time::Duration;

use softrnic_cm::{AcceptParams, CmTransport, CommId, ConnectParams, Ece, Path, State};
use softrnic_link::sim::{self, Fabric, SimLink, SimOptions};
use softrnic_wire::{AddressPair, Mtu, Opcode, PortSpace, PrivateHeader};

use super::*;
use crate::{Budget, EngineConfig};

struct End {
    engine: Engine,
    link: SimLink,
    events: Vec<Event>,
}

struct World {
    fabric: Fabric,
    ends: [End; 2],
    now: Time,
}

fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + end as u8])
}

fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, 7471)
}

const LISTEN: Listen = Listen { service: ServiceId(0), transport: Some(CmTransport::Rc), backlog: 64 };

fn listen() -> Listen {
    Listen { service: service(), ..LISTEN }
}

impl World {
    fn new(seed: u64) -> World {
        let fabric = Fabric::new(seed);
        let ends = [0, 1].map(|end| {
            let mut engine = Engine::new(EngineConfig::with_seed(seed * 2 + end as u64));
            engine.gids().set_only(Some(address(end)));
            engine.serve_management(end as u64 + 1);
            let link = fabric.attach(address(end), SimOptions::default()).expect("free");
            End { engine, link, events: Vec::new() }
        });
        World { fabric, ends, now: Time::from_nanos(1) }
    }

    fn cm(&mut self, end: usize) -> &mut Management {
        self.ends[end].engine.management().expect("served")
    }

    fn step(&mut self) {
        for End { engine, link, events } in &mut self.ends {
            engine.step(self.now, link, Budget::default());
            events.extend(engine.take_connection_events());
        }
    }

    /// Runs until `until` in virtual time. `react` is called after each step.
    fn run(&mut self, until: Time, mut react: impl FnMut(&mut World)) {
        loop {
            self.step();
            react(self);
            self.step();
            let timers = self.ends.iter().filter_map(|end| end.engine.poll_timeout());
            let next = timers.chain(self.fabric.next_delivery()).min().unwrap_or(Time::NEVER);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next.max(self.now + Duration::from_nanos(1));
        }
    }

    fn connect(&mut self, qpn: u32) -> CommId {
        let route = Route { local: address(0), remote: address(1) };
        let addresses = AddressPair::new(address(0), address(1)).expect("one family");
        let params = ConnectParams {
            service: service(),
            path: Path { route, flow_label: 0, traffic_class: 0, hop_limit: 64, mtu: Mtu::B1024 },
            transport: CmTransport::Rc,
            qpn: Qpn::new(qpn),
            starting_psn: Psn::new(qpn),
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry: 7,
            packet_life: None,
            flow_control: true,
            srq: false,
            private: PrivateHeader { version: 0, src_port: 1, addresses }.to_bytes().to_vec(),
            ece: Ece::default(),
        };
        let now = self.now;
        self.cm(0).cm().connect(now, &params).expect("asks")
    }

    fn counter(&self, end: usize, counter: GsiCounter) -> u64 {
        self.ends[end].engine.management_counters().find(|(known, _)| *known == counter).expect("known").1
    }

    fn drops(&self, end: usize, reason: DropReason) -> u64 {
        self.ends[end].engine.drops().find(|(known, _)| *known == reason).expect("known").1
    }
}

/// What an application does: accepts what it is asked, and confirms what was agreed to.
fn be_willing(world: &mut World) {
    let now = world.now;
    for end in [0, 1] {
        for event in std::mem::take(&mut world.ends[end].events) {
            match event {
                Event::Request(request) => {
                    let qpn = Qpn::new(0x8000 + request.qpn.get());
                    let accept = AcceptParams { qpn, ..AcceptParams::default() };
                    world.cm(end).cm().accept(now, request.id, &accept).expect("accepts");
                }
                Event::Reply(reply) => world.cm(end).cm().establish(reply.id, &[]).expect("confirms"),
                Event::Disconnected { id, .. } => {
                    let _agreed = world.cm(end).cm().disconnect(now, id, &[]);
                }
                _ => {}
            }
        }
    }
}

fn after(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// The whole way of connections, over a network that loses, doubles, delays and damages.
#[test]
fn connections_are_made_and_ended_over_a_bad_network() {
    for seed in 1..=20 {
        let mut world = World::new(seed);
        world.fabric.set_default_path(sim::Path {
            loss: 0.2,
            duplicate: 0.1,
            reorder: 0.2,
            reorder_delay: Duration::from_millis(80),
            corrupt: 0.05,
            ..sim::Path::default()
        });
        let now = world.now;
        world.cm(1).listen(now, listen()).expect("listens");
        let ids: Vec<CommId> = (0..8).map(|qpn| world.connect(qpn + 2)).collect();
        world.run(after(100), be_willing);
        for id in &ids {
            assert_eq!(world.cm(0).cm().state(*id), Some(State::Established), "seed {seed}");
        }
        assert_eq!(world.cm(1).cm().usage().connections, ids.len());
        assert!(world.counter(0, GsiCounter::Repeated) > 0, "nothing was lost with seed {seed}");
        for id in ids {
            let now = world.now;
            world.cm(0).cm().disconnect(now, id, &[]).expect("disconnects");
        }
        world.run(after(300), be_willing);
        for end in [0, 1] {
            let usage = world.cm(end).cm().usage();
            assert_eq!((usage.connections, usage.timers, usage.index_entries), (0, 0, 0), "seed {seed}");
        }
        assert_eq!(world.ends[0].engine.poll_timeout(), None, "an idle device sleeps");
    }
}

/// cm.c and rxe send it so, and Linux checks all of it.
#[test]
fn a_request_looks_like_one_of_linux() {
    let mut world = World::new(1);
    world.connect(5);
    let End { engine, link, .. } = &mut world.ends[0];
    engine.step(world.now, link, Budget::default());
    let mut seen = 0;
    let arrival = world.now + Duration::from_secs(1);
    world.ends[1].link.receive(arrival, 10, &mut |datagram| {
        seen += 1;
        assert_eq!((datagram.sport, datagram.dst), (0xD872, address(1)));
        assert_eq!(datagram.bytes.len(), 12 + 8 + 256 + 4, "a UDP payload of 280 bytes");
        let packet = Packet::parse(datagram.bytes).expect("sound");
        let Body::Ud { deth, imm: None } = packet.body else { panic!("{packet:?}") };
        assert_eq!(datagram.bytes[0], 0x64);
        assert_eq!(packet.body.opcode(), Opcode::from_byte(0x64).expect("SEND only"));
        assert_eq!((deth.qkey, deth.src_qpn), (Qkey(0x8001_0000), Qpn::GSI));
        assert!(packet.bth.ack_req && packet.bth.dest_qpn == Qpn::GSI && packet.bth.pkey.0 == 0xFFFF);
    });
    assert_eq!(seen, 1);
}

#[test]
fn a_request_waits_a_moment_for_its_listener() {
    let mut world = World::new(1);
    let early = world.connect(5);
    let pause = Time::ZERO + Duration::from_millis(150);
    world.run(pause, be_willing);
    let now = world.now;
    world.cm(1).listen(now, listen()).expect("listens");
    world.run(after(1), be_willing);
    assert_eq!(world.cm(0).cm().state(early), Some(State::Established));
}

#[test]
fn a_request_that_nobody_listens_for_is_refused_after_that() {
    let mut world = World::new(1);
    let asked = world.connect(5);
    world.run(Time::ZERO + Duration::from_millis(190), |_| {});
    assert_eq!(world.cm(0).cm().state(asked), Some(State::ReqSent));
    world.run(Time::ZERO + Duration::from_millis(260), |_| {});
    assert_eq!(world.cm(0).cm().state(asked), None);
    let reasons = world.ends[0].events.iter().filter_map(|event| match event {
        Event::Rejected { reason, .. } => Some(reason.0),
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [8]);
    assert_eq!(world.counter(1, GsiCounter::Refused), 1, "its repeats waited with it");
}

/// Whatever asks for services that are not there, it takes a bounded place.
#[test]
fn a_flood_of_requests_is_bounded() {
    let mut world = World::new(1);
    for qpn in 0..5000 {
        world.connect(qpn + 2);
        world.step();
        let management = world.cm(1);
        assert!(management.parked.len() <= MAX_PARKED);
        assert!(management.cm().usage().outgoing <= MAX_OUTGOING + 1);
        world.now += Duration::from_micros(10);
    }
    assert!(world.counter(1, GsiCounter::Received) > 0);
}

#[test]
fn other_datagrams_to_qp1_are_dropped_and_counted() {
    let mut world = World::new(1);
    let send = |world: &mut World, headers: Headers, payload: usize| {
        let flow = Flow { src: address(0), dst: address(1), sport: 0xC000, slot: None, tos: 0, ttl: 64 };
        let now = world.now;
        let link = &mut world.ends[0].link;
        let slot = link.reserve(now, &flow, headers.transport_len(payload)).expect("room");
        headers.emit(slot.bytes);
        seal(&slot.facts, slot.bytes);
        link.commit(now);
        link.flush(now);
        world.now = now + Duration::from_millis(1);
        world.step();
    };
    let ud = |qkey| Body::Ud { deth: Deth { qkey, src_qpn: Qpn::GSI }, imm: None };
    let to = |qpn, body| Headers { bth: Bth::new(qpn, Psn::new(0)), body };
    send(&mut world, to(Qpn::SMI, ud(GSI_QKEY)), MAD_LEN);
    send(&mut world, to(Qpn::GSI, Body::Uc(softrnic_wire::UcOp::SendOnly(None))), MAD_LEN);
    assert_eq!(world.drops(1, DropReason::SpecialQp), 2);
    send(&mut world, to(Qpn::GSI, ud(Qkey(1))), MAD_LEN);
    assert_eq!(world.drops(1, DropReason::GsiQkey), 1);
    send(&mut world, to(Qpn::GSI, ud(GSI_QKEY)), MAD_LEN);
    send(&mut world, to(Qpn::GSI, ud(GSI_QKEY)), 64);
    assert_eq!(world.counter(1, GsiCounter::Malformed), 2, "zeros, and too short");
}
