//! Many connections at once over a bad network, with ends that restart: both ends learn how each connection ended.

use std::time::Duration;

use softrnic_wire::RejReason;

use super::ledger::{ACTIVE, Fate, Ledger, PASSIVE, check_empty};
use super::world::*;
use softrnic_cm::*;

struct Storm {
    world: World,
    ledger: Ledger,
    next_qpn: u32,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut world = World::new(2, seed);
        world.weather = Weather { loss: 0.15, double: 0.1, reorder: 0.2 };
        world.listen(PASSIVE, 16);
        Storm { world, ledger: Ledger::default(), next_qpn: 0x100 }
    }

    fn connect(&mut self) {
        self.next_qpn += 1;
        let params = connect_params(ACTIVE, PASSIVE, self.next_qpn);
        let id = self.world.ends[ACTIVE].connect(self.world.now, &params).expect("connect");
        self.ledger.asked(ACTIVE, id, params.qpn);
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
                self.ledger.asked(end, request.id, request.qpn);
                if self.world.rng.chance(0.2) {
                    let reason = RejReason::CONSUMER_DEFINED;
                    self.world.ends[end].reject(request.id, reason, &[], b"no").expect("reject");
                    self.ledger.ended(end, request.id, Fate::Refused);
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
            Event::Rejected { id, .. } => self.ledger.ended(end, id, Fate::Refused),
            Event::Unreachable(id) => self.ledger.ended(end, id, Fate::Unreachable),
            Event::Disconnected { id, timed_out, .. } => {
                if !timed_out && self.world.ends[end].state(id) == Some(State::DreqRcvd) {
                    self.world.ends[end].disconnect(now, id, &[]).expect("agree");
                }
                self.ledger.ended(end, id, Fate::Ended);
            }
            Event::TimewaitExit(id) => self.ledger.timewait_is_over(end, id),
            Event::SidrRequest { .. } | Event::SidrReply(_) => unreachable!("nobody asks"),
        }
    }

    /// Either side ends it in a while, or both at once, or neither.
    fn established(&mut self, end: usize, id: CommId) {
        self.ledger.established(end, id);
        let at = self.world.now + Duration::from_micros(self.world.rng.below(2_000_000));
        if self.world.rng.chance(0.6) {
            self.ledger.plan_end(at, end, id);
        }
    }

    fn disconnect_due(&mut self) {
        while let Some((end, id)) = self.ledger.take_due(self.world.now) {
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
        self.ledger.restarted(end);
    }

    fn run(&mut self, time: Duration) {
        let until = self.world.now + time;
        loop {
            let next_plan = self.ledger.next_plan().map_or(until, |at| at.min(until));
            let more = self.world.step(next_plan);
            self.handle_events();
            self.disconnect_due();
            if !more && self.world.now >= until {
                return;
            }
        }
    }

    /// Ends all connections still in use, lets all timers run out, and checks that nothing is left.
    fn finish(&mut self) {
        for (end, number) in self.ledger.in_use() {
            let cm = &mut self.world.ends[end];
            if let Some(id) = cm.id_of(number) {
                // The other side may be ending it.
                let _ending = cm.disconnect(self.world.now, id, &[]);
            }
        }
        self.run(Duration::from_secs(400));
        self.ledger.check();
        for (end, cm) in self.world.ends.iter().enumerate() {
            check_empty(end, cm.usage());
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
        storm.finish();
        let ended = storm.ledger.count_ended();
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
        storm.finish();
    }
}
