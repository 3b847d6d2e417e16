//! Many connections at once over a bad network, with ends that restart: in the end both know how it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use softrnic_wire::{RejReason, Time};

use super::world::*;
use softrnic_cm::*;

/// How a connection ended, as one end saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Asked,
    Established,
    Ended,
    Refused,
    Unreachable,
    Forgotten,
}

struct Storm {
    world: World,
    /// By end and id.
    fates: BTreeMap<(usize, u32), Fate>,
    /// Connections to be ended, and when.
    plans: BTreeMap<(Time, usize, u32), CommId>,
    /// The QP that the active side named, of each passive id.
    passive_of: BTreeMap<u32, u32>,
    active_of: BTreeMap<u32, u32>,
    next_qpn: u32,
}

const ACTIVE: usize = 0;
const PASSIVE: usize = 1;

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut world = World::new(2, seed);
        world.weather = Weather { loss: 15, double: 10, reorder: 20 };
        world.listen(PASSIVE, 16);
        Storm {
            world,
            fates: BTreeMap::new(),
            plans: BTreeMap::new(),
            passive_of: BTreeMap::new(),
            active_of: BTreeMap::new(),
            next_qpn: 0x100,
        }
    }

    fn connect(&mut self) {
        self.next_qpn += 1;
        let qpn = self.next_qpn;
        let now = self.world.now;
        let id =
            self.world.ends[ACTIVE].connect(now, &connect_params(ACTIVE, PASSIVE, qpn)).expect("connect");
        self.fates.insert((ACTIVE, id.get()), Fate::Asked);
        self.active_of.insert(qpn, id.get());
    }

    fn handle_events(&mut self) {
        for end in [ACTIVE, PASSIVE] {
            while let Some(event) = self.world.ends[end].poll_event() {
                self.handle(end, event);
            }
        }
    }

    fn handle(&mut self, end: usize, event: Event) {
        let now = self.world.now;
        match event {
            Event::Request(request) => {
                self.fates.insert((end, request.id.get()), Fate::Asked);
                self.passive_of.insert(request.id.get(), request.qpn.get());
                if self.world.random.percent(20) {
                    let reason = RejReason::CONSUMER_DEFINED;
                    self.world.ends[end].reject(request.id, reason, &[], b"no").expect("reject");
                    self.fates.insert((end, request.id.get()), Fate::Refused);
                } else {
                    let params = accept_params(request.qpn.get() + 0x10_0000);
                    self.world.ends[end].accept(now, request.id, &params).expect("accept");
                }
            }
            Event::Reply(reply) => {
                self.world.ends[end].establish(reply.id, &[]).expect("establish");
                self.established(end, reply.id);
            }
            Event::Established(id, _) => self.established(end, id),
            Event::Rejected { id, .. } => self.ended(end, id, Fate::Refused),
            Event::Unreachable(id) => self.ended(end, id, Fate::Unreachable),
            Event::Disconnected { id, timed_out, .. } => {
                if !timed_out && self.world.ends[end].state(id) == Some(State::DreqRcvd) {
                    self.world.ends[end].disconnect(now, id, &[]).expect("agree");
                }
                self.ended(end, id, Fate::Ended);
            }
            Event::TimewaitExit(id) => assert_ne!(self.fates[&(end, id.get())], Fate::Established),
            Event::SidrRequest { .. } | Event::SidrReply(_) => unreachable!("nobody asks"),
        }
    }

    fn established(&mut self, end: usize, id: CommId) {
        let before = self.fates.insert((end, id.get()), Fate::Established);
        assert_eq!(before, Some(Fate::Asked), "{end} {id:?}");
        let at = self.world.now + Duration::from_micros(self.world.random.below(2_000_000));
        // Either side, or both at once.
        if self.world.random.percent(60) {
            self.plans.insert((at, end, id.get()), id);
        }
    }

    fn ended(&mut self, end: usize, id: CommId, fate: Fate) {
        let before = self.fates.insert((end, id.get()), fate);
        assert!(
            matches!(before, Some(Fate::Asked | Fate::Established)),
            "{end} {id:?}: {before:?}, then {fate:?}"
        );
    }

    fn disconnect_due(&mut self) {
        while let Some((&(at, end, _), &id)) = self.plans.first_key_value()
            && at <= self.world.now
        {
            self.plans.pop_first();
            if self.world.ends[end].state(id) == Some(State::Established) {
                self.world.ends[end].disconnect(self.world.now, id, &[]).expect("disconnect");
            }
        }
    }

    /// The end's process is killed, and another one takes its place.
    fn restart(&mut self, end: usize) {
        self.world.ends[end] = self.world.start(end);
        if end == PASSIVE {
            self.world.listen(PASSIVE, 16);
        }
        for ((of, _), fate) in &mut self.fates {
            if *of == end {
                *fate = Fate::Forgotten;
            }
        }
        self.plans.retain(|(_, of, _), _| *of != end);
    }

    fn run(&mut self, time: Duration) {
        let until = self.world.now + time;
        loop {
            let next_plan = self.plans.first_key_value().map_or(until, |(&(at, ..), _)| at.min(until));
            let more = self.world.step(next_plan);
            self.handle_events();
            self.disconnect_due();
            if !more && self.world.now >= until {
                return;
            }
        }
    }

    /// Ends whatever is still in use, and lets all timers run out.
    fn wind_down(&mut self) {
        let in_use: Vec<_> =
            self.fates.iter().filter(|(_, fate)| **fate == Fate::Established).map(|(&key, _)| key).collect();
        for (end, id) in in_use {
            let found = self.world.ends[end].id_of(id);
            if let Some(id) = found {
                let _ = self.world.ends[end].disconnect(self.world.now, id, &[]);
            }
        }
        self.run(Duration::from_secs(400));
    }

    /// Both ends of each connection know that it is over, and neither is alone in having had one.
    fn check(&self, restarted: bool) {
        for ((end, id), fate) in &self.fates {
            assert!(!matches!(fate, Fate::Asked | Fate::Established), "end {end}, id {id:#x}: {fate:?}");
        }
        for end in &self.world.ends {
            let usage = end.usage();
            let left = (usage.connections, usage.pending, usage.timers, usage.index_entries, usage.outgoing);
            assert_eq!(left, (0, 0, 0, 0, 0));
        }
        if restarted {
            return;
        }
        for (qpn, active) in &self.active_of {
            let active = self.fates[&(ACTIVE, *active)];
            // A late copy of a request that was refused is asked again, in vain.
            let passive = self.passive_of.iter().filter(|(_, of)| *of == qpn);
            let in_use = passive.filter(|(id, _)| self.fates[&(PASSIVE, **id)] == Fate::Ended).count();
            assert_eq!(in_use, usize::from(active == Fate::Ended), "active {active:?} of QP {qpn:#x}");
        }
    }
}

#[test]
fn a_storm_of_connections_ends_in_agreement() {
    for seed in 0..200 {
        std::println!("seed {seed}");
        let mut storm = Storm::new(seed);
        for _ in 0..40 {
            storm.connect();
            storm.run(Duration::from_micros(100));
        }
        storm.run(Duration::from_secs(5));
        storm.wind_down();
        storm.check(false);
        let ended = storm.fates.values().filter(|fate| **fate == Fate::Ended).count();
        assert!(ended > 20, "only {ended} connections came about");
    }
}

#[test]
fn ends_that_restart_leave_nothing_behind() {
    for seed in 0..200 {
        std::println!("seed {seed}");
        let mut storm = Storm::new(1000 + seed);
        for round in 0..6 {
            for _ in 0..8 {
                storm.connect();
                storm.run(Duration::from_millis(20));
            }
            storm.run(Duration::from_secs(1));
            storm.restart(round % 2);
        }
        storm.wind_down();
        storm.check(true);
    }
}
