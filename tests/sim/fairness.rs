//! QPs whose peer QP is gone must not hold up others, and must end in the time that they were given.

use std::collections::HashMap;
use std::time::Duration;

use softrnic_engine::QpKey;
use softrnic_sim_tests::goodput::{Kind, Sender, Stream, connect, network};
use softrnic_sim_tests::world::World;
use softrnic_transport::{QpState, Status};
use softrnic_wire::{Qpn, Time};

/// How long the healthy streams are watched once the others' peer QPs are gone.
const WATCHED: Duration = Duration::from_millis(40);
const RETRIES: u32 = 7;

/// QPs that lose their peer QP.
#[derive(Clone, Copy, Debug)]
struct Dead {
    count: usize,
    kind: Kind,
    timeout: u8,
    /// Whether they have been answered before.
    answered: bool,
}

/// The results of the healthy streams.
#[derive(Debug)]
struct Health {
    /// Long WRITEs completed, several at a time.
    long: usize,
    /// Short WRITEs completed, one at a time.
    short: usize,
    /// The longest time that one of those took.
    longest: Duration,
}

struct Scene {
    world: World,
    long: Sender,
    short: Sender,
    dead: Vec<Sender>,
    /// When each of the dead gave up.
    verdicts: HashMap<Qpn, Time>,
}

impl Scene {
    fn new(dead: Dead) -> Scene {
        let mut world = network(0.0, 1);
        let long = Stream { kind: Kind::Write, message: 64 << 10, depth: 4, timeout: 14 };
        let short = Stream { message: 8, depth: 1, ..long };
        let dying = Stream { kind: dead.kind, message: 64 << 10, depth: 16, timeout: dead.timeout };
        let (long, short) = (connect(&mut world, 1, &long), connect(&mut world, 1, &short));
        let dead = (0..dead.count).map(|_| connect(&mut world, 1, &dying)).collect();
        Scene { world, long, short, dead, verdicts: HashMap::new() }
    }

    /// Keeps the healthy streams going.
    fn watch(&mut self, duration: Duration) -> Health {
        let mut health = Health { long: 0, short: 0, longest: Duration::ZERO };
        let end = self.world.now + duration;
        let mut posted = self.world.now;
        self.long.fill(&mut self.world);
        self.short.fill(&mut self.world);
        self.world.settle();
        while self.world.advance(end) {
            let (long, short) = self.collect();
            health.long += long;
            health.short += short;
            if short > 0 {
                health.longest = health.longest.max(self.world.now.since(posted));
                posted = self.world.now;
            }
            if long + short > 0 {
                self.long.fill(&mut self.world);
                self.short.fill(&mut self.world);
            }
            self.world.settle();
        }
        health.longest = health.longest.max(end.since(posted));
        health
    }

    /// Completed messages of the healthy streams.
    fn collect(&mut self) -> (usize, usize) {
        let (mut long, mut short) = (0, 0);
        let ring = self.world.nodes[1].cqs.values_mut().next().expect("a CQ");
        while let Some(cqe) = ring.pop() {
            match cqe.qpn {
                qpn if qpn == self.long.qp.qpn => long += 1,
                qpn if qpn == self.short.qp.qpn => short += 1,
                qpn if cqe.status == Status::RetryExceeded => {
                    self.verdicts.insert(qpn, self.world.now);
                }
                _ => {}
            }
        }
        (long, short)
    }

    /// The QPs on the other side disappear, and what is posted from now on is never answered.
    fn kill(&mut self) {
        for sender in &mut self.dead {
            self.world.nodes[0].engine.destroy_qp(self.world.now, sender.far).expect("a QP");
            sender.fill(&mut self.world);
        }
    }

    fn state(&self, key: QpKey) -> QpState {
        self.world.nodes[1].state(key)
    }
}

/// Healthy streams alone, and beside QPs that die.
fn compare(dead: Dead) {
    let mut scene = Scene::new(dead);
    if dead.answered {
        for sender in &mut scene.dead {
            sender.fill(&mut scene.world);
        }
        // SENDs find no receives and wait for them.
        scene.watch(Duration::from_millis(60));
    }
    let alone = scene.watch(WATCHED);
    let start = scene.world.now;
    scene.kill();
    let beside = scene.watch(WATCHED);
    assert!(
        beside.long * 2 >= alone.long && beside.short * 2 >= alone.short,
        "{dead:?}: alone {alone:?}, beside them {beside:?}"
    );
    check_verdicts(&mut scene, dead, start);
}

/// The last retry is over when timeout and retry count say so (C9-140, C9-141). The first try may have waited until
/// the dead before it had fallen silent.
fn check_verdicts(scene: &mut Scene, dead: Dead, start: Time) {
    let timeout = Duration::from_nanos(4096 << dead.timeout);
    let due = timeout * (RETRIES + 1);
    scene.world.settle();
    while scene.world.advance(start + due * 2) {
        scene.collect();
    }
    for sender in &scene.dead {
        if dead.timeout == 0 {
            assert_eq!(scene.state(sender.qp.key), QpState::Rts, "{dead:?}: without a timeout it waits");
            continue;
        }
        let verdict = scene.verdicts.get(&sender.qp.qpn).expect("it has given up");
        let took = verdict.since(start);
        // Those that were answered before take turns at the window with their READs.
        let late = if dead.answered && dead.kind == Kind::Read { due } else { due / 8 };
        assert!(took >= due && took < due + late, "{dead:?}: gave up after {took:?}, not {due:?}");
    }
}

fn compare_all(kind: Kind) {
    for timeout in [0, 14, 18] {
        for count in [1, 2, 16, 64] {
            for answered in [false, true] {
                if kind != Kind::Send || !answered {
                    compare(Dead { count, kind, timeout, answered });
                }
            }
        }
    }
}

#[test]
fn dead_readers_do_not_hold_up_healthy_qps() {
    compare_all(Kind::Read);
}

#[test]
fn dead_writers_do_not_hold_up_healthy_qps() {
    compare_all(Kind::Write);
}

#[test]
fn dead_senders_do_not_hold_up_healthy_qps() {
    compare_all(Kind::Send);
}
