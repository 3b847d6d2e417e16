//! A storm of connections between connection managers alone.

use softrnic_cm::*;
use softrnic_wire::{Qpn, Time};

use super::ledger::{ACTIVE, PASSIVE, check_empty};
use super::storm::{BACKLOG, DELAY, DOUBLE, Ends, Happening, LATE, LOSS, REORDER, Storm};
use super::world::*;

struct Managers {
    world: World,
    next_qpn: u32,
    /// Established connections of each end, which are of no use here.
    established: [Vec<CommId>; 2],
}

impl Managers {
    fn new(seed: u64) -> Managers {
        let mut world = World::new(2, seed);
        world.weather = Weather { loss: LOSS, double: DOUBLE, reorder: REORDER, delay: DELAY, late: LATE };
        world.listen(PASSIVE, BACKLOG);
        Managers { world, next_qpn: 0x100, established: Default::default() }
    }
}

impl Ends for Managers {
    fn now(&self) -> Time {
        self.world.now
    }

    fn step(&mut self, until: Time) -> bool {
        self.world.step(until)
    }

    fn take(&mut self, end: usize) -> Vec<Happening> {
        let used = self.established[end].drain(..).map(Happening::Used);
        let cm = &mut self.world.ends[end];
        used.chain(std::iter::from_fn(|| cm.poll_event()).map(Happening::Event)).collect()
    }

    fn cm(&mut self, end: usize) -> &mut Cm {
        &mut self.world.ends[end]
    }

    fn connect(&mut self) -> (CommId, Qpn) {
        self.next_qpn += 1;
        let params = connect_params(ACTIVE, PASSIVE, self.next_qpn);
        (self.world.ends[ACTIVE].connect(self.world.now, &params).expect("asks"), params.qpn)
    }

    fn accept(&mut self, request: &Request) {
        let params = accept_params(request.qpn.get() + 0x10_0000);
        self.world.ends[PASSIVE].accept(self.world.now, request.id, &params).expect("accepts");
    }

    fn established(&mut self, end: usize, id: CommId) {
        self.established[end].push(id);
    }

    fn restart(&mut self, end: usize) {
        self.world.ends[end] = self.world.start(end);
        if end == PASSIVE {
            self.world.listen(PASSIVE, BACKLOG);
        }
        self.established[end].clear();
    }

    fn check_empty(&mut self, end: usize) {
        check_empty(end, self.world.ends[end].usage());
    }
}

#[test]
fn a_storm_of_connections_ends_in_agreement() {
    for seed in 0..200 {
        std::println!("seed {seed}");
        let ended = Storm::new(Managers::new(seed), seed).blow();
        assert!(ended > 20, "only {ended} connections came about");
    }
}

#[test]
fn ends_that_restart_leave_nothing_behind() {
    for seed in 1000..1200 {
        std::println!("seed {seed}");
        Storm::new(Managers::new(seed), seed).blow_with_restarts();
    }
}
