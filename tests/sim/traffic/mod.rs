//! Random traffic: what a seed decides is done, and every completion and every byte is checked.

mod complete;
mod datagram;
mod endpoint;
mod lifecycle;
mod operation;
mod plan;
mod post;
mod receive;
mod window;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::Duration;

use softrnic_engine::{CqKey, QpHandle, RecvRequest, SrqKey, XrcdKey};
use softrnic_link::sim::SimOptions;
use softrnic_sync::queue::RecvRing;
use softrnic_transport::Counter;
use softrnic_wire::{Qpn, Srqn, Time};

use crate::arena::Span;
use crate::rng::Rng;
use crate::switches::{SwitchCounts, Switches};
use crate::tap::Damage;
use crate::world::{Node, World};
use endpoint::{Endpoint, Receive, total};
use plan::{ConnectionPlan, Plan};

pub use plan::Profile;

/// What a run has done, to see that it did something.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    /// Sends that were completed successfully.
    pub sends: u64,
    /// Receives that were completed successfully.
    pub receives: u64,
    /// QPs that reported an error.
    pub failures: u64,
    /// Request packets sent more than once.
    pub retransmitted: u64,
    /// RNR NAKs sent.
    pub not_ready: u64,
    /// Requests that came before their turn and were kept.
    pub kept: u64,
    /// Answers that did.
    pub ahead: u64,
    /// Packets sent again because others behind them had come.
    pub selective: u64,
    /// QPs that spread their packets over many paths.
    pub spread: u64,
    /// Paths that were left.
    pub left: u64,
    /// WRITEs through memory windows that have succeeded.
    pub windows: u64,
    /// Virtual time that has passed, in nanoseconds.
    pub nanos: u64,
    /// Packets that came damaged to NICs that see no IP headers.
    pub damage: Damage,
    /// What switches did to packets.
    pub switches: SwitchCounts,
}

impl Summary {
    /// Adds what another run has done.
    pub fn add(&mut self, other: &Summary) {
        self.sends += other.sends;
        self.receives += other.receives;
        self.failures += other.failures;
        self.retransmitted += other.retransmitted;
        self.not_ready += other.not_ready;
        self.kept += other.kept;
        self.ahead += other.ahead;
        self.selective += other.selective;
        self.spread += other.spread;
        self.left += other.left;
        self.windows += other.windows;
        self.nanos += other.nanos;
        self.damage.add(other.damage);
        self.switches.add(other.switches);
    }
}

/// No run takes longer than this, in virtual time.
const LIMIT: Duration = Duration::from_secs(100);

/// Runs one seed.
///
/// # Panics
/// When a rule is broken.
pub fn run(seed: u64, profile: Profile) -> Summary {
    let plan = Plan::new(seed, profile);
    let mut traffic = Traffic::new(seed, plan, profile);
    traffic.run();
    traffic.finish()
}

/// What happens at a time of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// Make and connect the QPs.
    Open(usize),
    /// An end posts sends.
    Post(usize, usize),
    /// An end posts receives.
    Receive(usize, usize),
    /// A NIC's shared queue is filled up.
    Refill(usize, usize),
    /// Something bad is done to a connection in this life of it.
    Disturb(usize, u32),
    /// A connection ends this life.
    Close(usize, u32),
}

/// A pair of QPs, again and again.
struct Connection {
    plan: ConnectionPlan,
    ends: Option<[Endpoint; 2]>,
    qpns: [Qpn; 2],
    /// QPs of the last life, reset to be used again.
    kept: Option<[QpHandle; 2]>,
    /// How often it is still opened again.
    lives: u32,
    /// Something bad was done to it.
    disturbed: bool,
    closing: bool,
}

/// A receive queue that several QPs share.
struct SharedQueue {
    key: SrqKey,
    srqn: Srqn,
    ring: RecvRing<RecvRequest>,
    posted: HashMap<u64, Receive>,
    /// Bytes of each receive.
    capacity: usize,
    refill_due: bool,
}

/// A word to which many QPs add 1.
struct SharedWord {
    span: Span,
    added: u64,
    /// Additions whose fate is unknown.
    unsure: u64,
    seen: HashSet<u64>,
}

/// What a NIC has besides its connections.
struct Site {
    cqs: Vec<CqKey>,
    srq: SharedQueue,
    xrcd: XrcdKey,
    xrc_srq: SharedQueue,
    word: SharedWord,
}

struct Traffic {
    world: World,
    rng: Rng,
    profile: Profile,
    ordered: bool,
    sites: Vec<Site>,
    connections: Vec<Connection>,
    by_qpn: HashMap<(usize, Qpn), (usize, usize)>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    next_id: u64,
    rounds: u64,
    summary: Summary,
}

impl Traffic {
    fn new(seed: u64, plan: Plan, profile: Profile) -> Traffic {
        let is_switched = profile == Profile::Switched;
        let path = if is_switched { Switches::path(plan.path) } else { plan.path };
        let mut world = World::new(seed, path);
        world.switches = is_switched
            .then(|| Switches::new(seed, plan.nodes.iter().map(|(address, ..)| *address).collect()));
        for &(address, options, config, memory) in &plan.nodes {
            // The tap must see what it hides from the NIC.
            let open = SimOptions { sees_ip_header: true, ..options };
            let mut node = Node::new(&world.fabric, address, open, config, memory);
            if !options.sees_ip_header {
                node.link.hide_headers();
            }
            if profile == Profile::Selective {
                node.engine.serve_management(world.nodes.len() as u64 + 1);
            }
            node.callers = Some(Rng::new(seed ^ 0xCA11 ^ (world.nodes.len() as u64) << 16));
            world.nodes.push(node);
        }
        let longest = plan.connections.iter().map(|c| c.longest_send).max().unwrap_or(0);
        let sites = world.nodes.iter_mut().map(|node| Site::new(node, longest)).collect();
        let mut traffic = Traffic {
            world,
            rng: Rng::new(seed ^ 0x007A_FF1C),
            profile,
            ordered: path.duplicate + path.reorder == 0.0 && !is_switched,
            sites,
            connections: Vec::new(),
            by_qpn: HashMap::new(),
            events: BinaryHeap::new(),
            next_id: 1,
            rounds: 0,
            summary: Summary::default(),
        };
        for (index, plan) in plan.connections.into_iter().enumerate() {
            let lives = if plan.robust { traffic.rng.below(2) } else { traffic.rng.below(3) } as u32;
            let qpns = Default::default();
            let connection =
                Connection { plan, ends: None, qpns, kept: None, lives, disturbed: false, closing: false };
            traffic.connections.push(connection);
            traffic.at(Duration::ZERO, Event::Open(index));
        }
        traffic
    }

    fn run(&mut self) {
        let limit = Time::ZERO + LIMIT;
        loop {
            self.world.settle();
            self.poll();
            self.close_finished();
            self.check_step();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let quiet = event.is_none() && self.world.fabric.next_delivery().is_none();
            if quiet && self.is_done() {
                return;
            }
            let next = [event, self.world.next_time()].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next < limit) else {
                panic!("stalled at {:?}: {}", self.world.now, self.pending());
            };
            self.world.now = self.world.now.max(next);
            while let Some(&Reverse((at, _, event))) = self.events.peek()
                && at <= self.world.now
            {
                self.events.pop();
                self.handle(event);
            }
        }
    }

    /// What holds at all times; the longer checks now and then.
    fn check_step(&mut self) {
        self.rounds += 1;
        for node in &self.world.nodes {
            let usage = node.engine.usage();
            let statuses = node.engine.qps().map(|(_, _, query, _)| query.status);
            assert_eq!(usage.in_flight, statuses.map(|status| status.charged).sum::<u64>(), "{usage:?}");
            assert!(usage.timers <= usage.queue_pairs && usage.peers <= usage.queue_pairs, "{usage:?}");
            if self.rounds.is_multiple_of(500) {
                node.arena.verify_all();
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Open(connection) => self.open(connection),
            Event::Post(connection, end) => self.post_sends(connection, end),
            Event::Receive(connection, end) => self.post_receives(connection, end),
            Event::Refill(node, which) => self.refill(node, which),
            Event::Disturb(connection, life) if self.connections[connection].lives == life => {
                self.disturb(connection);
            }
            Event::Close(connection, life) if self.connections[connection].lives == life => {
                self.close(connection);
            }
            Event::Disturb(..) | Event::Close(..) => {}
        }
    }

    fn at(&mut self, delay: Duration, event: Event) {
        let sequence = self.next_id();
        self.events.push(Reverse((self.world.now + delay, sequence, event)));
    }

    fn soon(&mut self, most_us: u64, event: Event) {
        let delay = Duration::from_nanos(self.rng.between(0, most_us * 1000));
        self.at(delay, event);
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn is_done(&self) -> bool {
        self.connections.iter().all(|c| c.ends.is_none() && c.lives == 0)
    }

    /// What is waited for, for a failure's message.
    fn pending(&self) -> String {
        let mut text = String::new();
        for (index, connection) in self.connections.iter().enumerate() {
            for (side, end) in connection.ends.iter().flatten().enumerate() {
                let query = self.world.nodes[end.node].engine.query_qp(end.qp.key);
                let (out, budget) = (end.outstanding.len(), end.budget);
                text += &format!(
                    "\nconnection {index} end {side}: {out} outstanding, {budget} to post, receives {}, incoming {}, {:?}",
                    end.receives.len(),
                    end.incoming.len(),
                    query.map(|query| query.status)
                );
            }
        }
        text
    }

    /// The last checks, when nothing moves any more.
    fn finish(mut self) -> Summary {
        self.summary.nanos = self.world.now.as_nanos();
        self.summary.switches =
            self.world.switches.as_ref().map_or_else(SwitchCounts::default, Switches::counts);
        for (node, site) in self.world.nodes.iter_mut().zip(&mut self.sites) {
            let word = &mut site.word;
            let value = u64::from_ne_bytes(node.arena.read(word.span).try_into().expect("eight bytes"));
            let (least, most) = (word.added, word.added + word.unsure);
            assert!(
                (least..=most).contains(&value),
                "{least} to {most} additions, but the word holds {value}"
            );
            node.arena.settle_unknown(word.span);
            node.arena.verify_all();
            let posted = [&site.srq, &site.xrc_srq].into_iter().flat_map(|queue| queue.posted.values());
            let posted: usize = posted.map(|receive| total(&receive.buffer)).sum();
            assert_eq!(node.arena.in_use(), posted + 8, "bytes of requests that nobody knows of any more");
            let usage = node.engine.usage();
            assert_eq!(usage.in_flight, 0, "{usage:?}");
            assert_eq!((usage.queue_pairs, usage.peers, usage.waiting), (0, 0, 0), "{usage:?}");
            assert_eq!(usage.held, 0, "{usage:?}");
            let counted = |wanted| node.engine.counters().find(|c| c.0 == wanted).map_or(0, |c| c.1);
            self.summary.retransmitted += counted(Counter::RetransmittedPacket);
            self.summary.not_ready += counted(Counter::SendRnrErr);
            self.summary.kept += counted(Counter::KeptForLater);
            self.summary.ahead += counted(Counter::AnsweredOutOfOrder);
            self.summary.selective += counted(Counter::SelectiveResend);
            self.summary.spread += counted(Counter::PathsAgreed);
            self.summary.left += counted(Counter::PathLeft);
            self.summary.damage.add(node.link.damage());
        }
        self.summary
    }
}
