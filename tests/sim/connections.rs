//! A storm of connections between whole NICs, each for one message.

#[path = "../../src/cm/tests/connections/ledger.rs"]
mod ledger;
#[path = "../../src/cm/tests/connections/storm.rs"]
mod storm;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use softrnic_cm::{
    AcceptParams, Cm, CmTransport, CommId, ConnectParams, Ece, Listen, Path as CmPath, QpParams, Request,
    Route,
};
use softrnic_engine::{EngineConfig, LocalData, Management, QpHandle, QpInit, ReceiveSource, RecvRequest};
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sim_tests::rng::Rng;
use softrnic_sim_tests::world::{Agreement, Node, World, empty_send};
use softrnic_transport::{QpType, Status};
use softrnic_wire::{AddressPair, Mtu, PortSpace, PrivateHeader, Psn, Qpn, ServiceId, Time};

use ledger::{ACTIVE, PASSIVE, check_empty};
use storm::{BACKLOG, DELAY, DOUBLE, Ends, Happening, LATE, LOSS, REORDER, Storm};

struct Nics {
    world: World,
    rng: Rng,
    /// By end and number.
    qps: HashMap<(usize, u32), QpHandle>,
    /// Connections whose message has arrived, by number of the active side.
    carried: HashSet<u32>,
    /// What has happened at each end, and is still to be handled.
    happened: [Vec<Happening>; 2],
    /// Whether an end may have lost what the other one still knows.
    has_restarted: bool,
}

fn address(end: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + end as u8).into()
}

fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, 7471)
}

impl Nics {
    fn new(seed: u64) -> Nics {
        let weather = Path {
            delay: DELAY,
            loss: LOSS,
            duplicate: DOUBLE,
            reorder: REORDER,
            reorder_delay: LATE,
            ..Path::default()
        };
        let mut nics = Nics {
            world: World::new(seed, weather),
            rng: Rng::new(seed),
            qps: HashMap::new(),
            carried: HashSet::new(),
            happened: Default::default(),
            has_restarted: false,
        };
        nics.start(ACTIVE);
        nics.start(PASSIVE);
        nics
    }

    /// A process without history, on the address of `end`.
    fn start(&mut self, end: usize) {
        let config = EngineConfig::with_seed(self.rng.next());
        let mut node = Node::new(&self.world.fabric, address(end), SimOptions::default(), config, 1 << 16);
        node.create_cq(4096);
        node.engine.serve_management(0x0200_0000_0000_0000 + end as u64);
        self.world.nodes.insert(end, node);
        if end == PASSIVE {
            let listen = Listen { service: service(), transport: Some(CmTransport::Rc), backlog: BACKLOG };
            self.management(end).listen(Time::ZERO, listen).expect("free");
        }
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
        let params: QpParams = self.cm(end).qp_params(id).expect("the peer has said it");
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

    /// Takes what the ends say, and the completions.
    fn gather(&mut self) {
        for end in [ACTIVE, PASSIVE] {
            let events = self.world.nodes[end].engine.take_connection_events();
            self.happened[end].extend(events.map(Happening::Event));
            let mut done = Vec::new();
            for cq in self.world.nodes[end].cqs.values_mut() {
                done.extend(std::iter::from_fn(|| cq.pop()).map(|cqe| (cqe.wr_id as u32, cqe.status)));
            }
            done.into_iter().for_each(|(number, status)| self.carried(end, number, status));
        }
    }

    /// A message has arrived or been sent.
    fn carried(&mut self, end: usize, number: u32, status: Status) {
        if !self.has_restarted {
            assert!(matches!(status, Status::Success | Status::Flushed), "{end} {number:#x}: {status:?}");
        }
        if status != Status::Success {
            return;
        }
        if end == ACTIVE {
            self.carried.insert(number);
        }
        if let Some(id) = self.cm(end).id_of(number) {
            self.happened[end].push(Happening::Used(id));
        }
    }
}

impl Ends for Nics {
    fn now(&self) -> Time {
        self.world.now
    }

    fn step(&mut self, until: Time) -> bool {
        self.world.settle();
        self.gather();
        if self.happened.iter().any(|happened| !happened.is_empty()) || self.world.advance(until) {
            return true;
        }
        self.world.now = self.world.now.max(until);
        false
    }

    fn take(&mut self, end: usize) -> Vec<Happening> {
        self.gather();
        std::mem::take(&mut self.happened[end])
    }

    fn cm(&mut self, end: usize) -> &mut Cm {
        self.management(end).cm()
    }

    fn connect(&mut self) -> (CommId, Qpn) {
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
        let (now, qpn) = (self.world.now, qp.qpn);
        let id = self.cm(ACTIVE).connect(now, &params).expect("asks");
        self.qps.insert((ACTIVE, id.get()), qp);
        (id, qpn)
    }

    /// After posting a receive.
    fn accept(&mut self, request: &Request) {
        let id = request.id;
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
        self.cm(PASSIVE).accept(now, id, &params).expect("accepts");
        // Before the answer is on its way: no step has come in between.
        self.bring_up(PASSIVE, id);
    }

    fn prepare(&mut self, id: CommId) {
        self.bring_up(ACTIVE, id);
    }

    /// Sends the only message of a connection.
    fn established(&mut self, end: usize, id: CommId) {
        if end == PASSIVE {
            return;
        }
        let qp = self.qps.get_mut(&(ACTIVE, id.get())).expect("in use");
        assert!(qp.sends.push(empty_send(id.get().into())).is_ok());
        let (now, key) = (self.world.now, qp.key);
        self.world.nodes[ACTIVE].engine.on_doorbell(now, key.index());
    }

    fn ended(&mut self, end: usize, id: CommId) {
        if let Some(qp) = self.qps.remove(&(end, id.get())) {
            let now = self.world.now;
            let _remains = self.world.nodes[end].engine.destroy_qp(now, qp.key).expect("there");
        }
    }

    fn restart(&mut self, end: usize) {
        drop(self.world.nodes.remove(end));
        self.start(end);
        self.qps.retain(|(of, _), _| *of != end);
        self.happened[end].clear();
        self.has_restarted = true;
    }

    fn check_empty(&mut self, end: usize) {
        check_empty(end, self.cm(end).usage());
        assert_eq!(self.world.nodes[end].engine.usage().queue_pairs, 0, "end {end}");
    }
}

#[test]
fn a_storm_of_connections_ends_in_agreement() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut storm = Storm::new(Nics::new(seed), seed);
        let (ended, carried) = (storm.blow(), storm.ends.carried.len());
        assert!(ended > 20 && carried > 10, "{ended} ended, {carried} carried");
    }
}

#[test]
fn ends_that_restart_leave_nothing_behind() {
    for seed in 1000..1100 {
        println!("seed {seed}");
        Storm::new(Nics::new(seed), seed).blow_with_restarts();
    }
}
