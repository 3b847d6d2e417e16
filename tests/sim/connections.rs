//! Connections between whole NICs: a storm of them over a bad network, with ends that restart. In the end both ends
//! agree on each connection, or know that they do not, and nothing is left.

#[path = "../../src/cm/tests/connections/ledger.rs"]
mod ledger;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softrnic_cm::{
    AcceptParams, CmTransport, CommId, ConnectParams, Ece, Event, Listen, Path as CmPath, QpParams, Route,
    State,
};
use softrnic_engine::{EngineConfig, LocalData, Management, QpHandle, QpInit, ReceiveSource, RecvRequest};
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sim_tests::rng::Rng;
use softrnic_sim_tests::world::{Agreement, Node, World, empty_send};
use softrnic_transport::{QpType, Status};
use softrnic_wire::{AddressPair, Mtu, PortSpace, PrivateHeader, Psn, RejReason, ServiceId, Time};

use ledger::{ACTIVE, Fate, Ledger, PASSIVE, check_empty};

struct Storm {
    world: World,
    rng: Rng,
    ledger: Ledger,
    /// By end and number.
    qps: HashMap<(usize, u32), QpHandle>,
    /// Connections whose message has arrived, by number of the active side.
    carried: HashSet<u32>,
}

fn address(end: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + end as u8).into()
}

fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, 7471)
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let weather = Path {
            delay: Duration::from_micros(100),
            loss: 0.15,
            duplicate: 0.1,
            reorder: 0.2,
            reorder_delay: Duration::from_millis(30),
            ..Path::default()
        };
        let mut storm = Storm {
            world: World::new(seed, weather),
            rng: Rng::new(seed),
            ledger: Ledger::default(),
            qps: HashMap::new(),
            carried: HashSet::new(),
        };
        storm.start(ACTIVE);
        storm.start(PASSIVE);
        storm
    }

    /// A process without history, on the address of `end`.
    fn start(&mut self, end: usize) {
        let config = EngineConfig::with_seed(self.rng.next());
        let mut node = Node::new(&self.world.fabric, address(end), SimOptions::default(), config, 1 << 16);
        node.create_cq(4096);
        node.engine.serve_management(0x0200_0000_0000_0000 + end as u64);
        self.world.nodes.insert(end, node);
        if end == PASSIVE {
            let listen = Listen { service: service(), transport: Some(CmTransport::Rc), backlog: 16 };
            self.management(end).listen(Time::ZERO, listen).expect("free");
        }
    }

    /// The end's process is killed, and another one takes its place.
    fn restart(&mut self, end: usize) {
        drop(self.world.nodes.remove(end));
        self.start(end);
        self.qps.retain(|(of, _), _| *of != end);
        self.ledger.restarted(end);
    }

    fn management(&mut self, end: usize) -> &mut Management {
        self.world.nodes[end].engine.management().expect("served")
    }

    fn create_qp(&mut self, end: usize) -> QpHandle {
        let node = &mut self.world.nodes[end];
        let cq = *node.cqs.keys().next().expect("a CQ");
        let receive = ReceiveSource::Own(1);
        let init =
            QpInit { service: QpType::Rc, pd: node.pd, send_cq: cq, recv_cq: cq, max_send_wr: 1, receive };
        node.engine.create_qp(init).expect("a QP")
    }

    /// Sets the attributes of a connection's QP as both sides have agreed.
    fn bring_up(&mut self, end: usize, id: CommId) {
        let params: QpParams = self.management(end).cm().qp_params(id).expect("the peer has said it");
        let agreement = Agreement {
            mtu: params.path.mtu,
            timeout: params.timeout,
            retry_cnt: params.retry_count,
            rnr_retry: params.rnr_retry,
            rnr_timer: 12,
            rd_atomic: 1,
            tos: 0,
        };
        let psns = (params.sq_psn, params.rq_psn);
        let attributes = self.world.attributes(end, 1 - end, params.dest_qpn, &agreement, psns);
        let key = self.qps[&(end, id.get())].key;
        self.world.bring_up(end, key, QpType::Rc, &attributes);
    }

    fn connect(&mut self) {
        let qp = self.create_qp(ACTIVE);
        let route = Route { local: address(ACTIVE), remote: address(PASSIVE) };
        let addresses = AddressPair::new(route.local, route.remote).expect("one family");
        let params = ConnectParams {
            service: service(),
            path: CmPath { route, flow_label: 7, traffic_class: 0, hop_limit: 64, mtu: Mtu::B1024 },
            transport: CmTransport::Rc,
            qpn: qp.qpn,
            starting_psn: Psn::new(self.rng.next() as u32),
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry: 7,
            packet_life: None,
            flow_control: true,
            srq: false,
            private: PrivateHeader { version: 0, src_port: 40000, addresses }.to_bytes().to_vec(),
            ece: Ece::default(),
        };
        let now = self.world.now;
        let id = self.management(ACTIVE).cm().connect(now, &params).expect("asks");
        self.ledger.asked(ACTIVE, id, qp.qpn);
        self.qps.insert((ACTIVE, id.get()), qp);
    }

    /// Accepts a request, after posting a receive.
    fn accept(&mut self, id: CommId) {
        let mut qp = self.create_qp(PASSIVE);
        let receive = RecvRequest { wr_id: id.get().into(), data: LocalData::empty(), length: 0 };
        assert!(qp.receives.as_mut().is_some_and(|receives| receives.push(receive).is_ok()));
        let params = AcceptParams {
            qpn: qp.qpn,
            starting_psn: Psn::new(self.rng.next() as u32),
            responder_resources: 1,
            initiator_depth: 1,
            rnr_retry: 7,
            ..AcceptParams::default()
        };
        self.qps.insert((PASSIVE, id.get()), qp);
        let now = self.world.now;
        self.management(PASSIVE).cm().accept(now, id, &params).expect("accepts");
        // Before the answer is on its way: no step has come in between.
        self.bring_up(PASSIVE, id);
    }

    /// Sends the only message of a connection.
    fn send(&mut self, id: CommId) {
        let request = empty_send(id.get().into());
        let qp = self.qps.get_mut(&(ACTIVE, id.get())).expect("in use");
        assert!(qp.sends.push(request).is_ok());
        let key = qp.key;
        let now = self.world.now;
        self.world.nodes[ACTIVE].engine.on_doorbell(now, key.index());
    }

    fn handle(&mut self, end: usize, event: Event) {
        let now = self.world.now;
        match event {
            Event::Request(request) => {
                let id = request.id;
                self.ledger.asked(end, id, request.qpn);
                if self.rng.chance(0.2) {
                    let reason = RejReason::CONSUMER_DEFINED;
                    self.management(end).cm().reject(id, reason, &[], b"no").expect("rejects");
                    self.ledger.ended(end, id, Fate::Refused);
                } else {
                    self.accept(id);
                }
            }
            Event::Reply(reply) => {
                self.bring_up(end, reply.id);
                self.management(end).cm().establish(reply.id, &[]).expect("confirms");
                self.ledger.established(end, reply.id);
                self.send(reply.id);
            }
            Event::Established(id, _) => self.ledger.established(end, id),
            Event::Rejected { id, .. } => self.ended(end, id, Fate::Refused),
            Event::Unreachable(id) => self.ended(end, id, Fate::Unreachable),
            Event::Disconnected { id, timed_out, .. } => {
                if !timed_out && self.management(end).cm().state(id) == Some(State::DreqRcvd) {
                    self.management(end).cm().disconnect(now, id, &[]).expect("agrees");
                }
                self.ended(end, id, Fate::Ended);
            }
            Event::TimewaitExit(id) => self.ledger.timewait_is_over(end, id),
            Event::SidrRequest { .. } | Event::SidrReply(_) => unreachable!("nobody asks"),
        }
    }

    /// A message has arrived or been sent: the connection ends in a while. The other side may end it, or both.
    fn carried(&mut self, end: usize, number: u32, status: Status) {
        if !self.ledger.has_restarted() {
            assert!(matches!(status, Status::Success | Status::Flushed), "{end} {number:#x}: {status:?}");
        }
        if status != Status::Success {
            return;
        }
        if end == ACTIVE {
            self.carried.insert(number);
        }
        if self.rng.chance(0.6)
            && let Some(id) = self.management(end).cm().id_of(number)
        {
            let at = self.world.now + Duration::from_micros(self.rng.between(0, 2_000_000));
            self.ledger.plan_end(at, end, id);
        }
    }

    fn ended(&mut self, end: usize, id: CommId, fate: Fate) {
        self.ledger.ended(end, id, fate);
        if let Some(qp) = self.qps.remove(&(end, id.get())) {
            let now = self.world.now;
            let _remains = self.world.nodes[end].engine.destroy_qp(now, qp.key).expect("there");
        }
    }

    /// Does what has become possible at this time. Returns whether there was anything.
    fn react(&mut self) -> bool {
        let mut any = false;
        for end in [ACTIVE, PASSIVE] {
            let events: Vec<Event> = self.world.nodes[end].engine.take_connection_events().collect();
            any |= !events.is_empty();
            events.into_iter().for_each(|event| self.handle(end, event));
            let mut done = Vec::new();
            for cq in self.world.nodes[end].cqs.values_mut() {
                done.extend(std::iter::from_fn(|| cq.pop()).map(|cqe| (cqe.wr_id as u32, cqe.status)));
            }
            any |= !done.is_empty();
            done.into_iter().for_each(|(number, status)| self.carried(end, number, status));
        }
        let now = self.world.now;
        while let Some((end, id)) = self.ledger.take_due(now) {
            if self.management(end).cm().state(id) == Some(State::Established) {
                self.management(end).cm().disconnect(now, id, &[]).expect("disconnects");
            }
            any = true;
        }
        any
    }

    fn run(&mut self, time: Duration) {
        let until = self.world.now + time;
        loop {
            self.world.settle();
            if self.react() {
                continue;
            }
            let next = self.world.next_time().into_iter().chain(self.ledger.next_plan()).min();
            match next.filter(|&next| next <= until) {
                Some(next) => self.world.now = self.world.now.max(next),
                None => {
                    self.world.now = until;
                    return;
                }
            }
        }
    }

    /// Ends all connections still in use, lets all timers run out, and checks that nothing is left.
    fn finish(&mut self) {
        for (end, number) in self.ledger.in_use() {
            let now = self.world.now;
            let cm = self.management(end).cm();
            if let Some(id) = cm.id_of(number) {
                // The other side may be ending it.
                let _ending = cm.disconnect(now, id, &[]);
            }
        }
        self.run(Duration::from_secs(400));
        self.ledger.check();
        for end in [ACTIVE, PASSIVE] {
            check_empty(end, self.management(end).cm().usage());
            assert_eq!(self.world.nodes[end].engine.usage().queue_pairs, 0, "end {end}");
        }
    }
}

#[test]
fn a_storm_of_connections_ends_in_agreement() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut storm = Storm::new(seed);
        for _ in 0..40 {
            storm.connect();
            storm.run(Duration::from_micros(100));
        }
        storm.run(Duration::from_secs(5));
        storm.finish();
        let ended = storm.ledger.count_ended();
        assert!(ended > 20 && storm.carried.len() > 10, "{ended} ended, {} carried", storm.carried.len());
    }
}

#[test]
fn ends_that_restart_leave_nothing_behind() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut storm = Storm::new(1000 + seed);
        for round in 0..6 {
            for _ in 0..8 {
                storm.connect();
                storm.run(Duration::from_millis(20));
            }
            storm.run(Duration::from_secs(1));
            storm.restart(round % 2);
        }
        storm.finish();
    }
}
