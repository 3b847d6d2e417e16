//! The subsystem: its name, its disk, and the controllers that hosts have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::disk::Disk;

pub struct Subsystem {
    pub nqn: String,
    pub disk: Disk,
    controllers: Mutex<Controllers>,
}

#[derive(Default)]
struct Controllers {
    last: u16,
    /// Owned by their queues.
    by_number: HashMap<u16, Weak<Controller>>,
}

/// What a host has connected to. It is there as long as one of its queues.
pub struct Controller {
    pub number: u16,
    host: String,
    configuration: AtomicU32,
}

impl Subsystem {
    pub fn new(nqn: String, disk: Disk) -> Subsystem {
        Subsystem { nqn, disk, controllers: Mutex::default() }
    }

    pub fn new_controller(&self, host: &str) -> Arc<Controller> {
        let mut controllers = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        controllers.by_number.retain(|_, controller| controller.strong_count() > 0);
        // Numbers from FFF0h on are reserved (Base 2.0, 3.1.2).
        let number = (controllers.last + 1..0xFFF0)
            .chain(1..=controllers.last)
            .find(|number| !controllers.by_number.contains_key(number))
            .unwrap_or_default();
        controllers.last = number;
        let controller =
            Arc::new(Controller { number, host: host.to_owned(), configuration: AtomicU32::new(0) });
        controllers.by_number.insert(number, Arc::downgrade(&controller));
        controller
    }

    /// A controller of this host.
    pub fn controller(&self, number: u16, host: &str) -> Option<Arc<Controller>> {
        let controllers = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        controllers.by_number.get(&number)?.upgrade().filter(|controller| controller.host == host)
    }
}

impl Controller {
    /// Sets CC.
    pub fn configure(&self, configuration: u32) {
        self.configuration.store(configuration, Ordering::Relaxed);
    }

    pub fn configuration(&self) -> u32 {
        self.configuration.load(Ordering::Relaxed)
    }

    /// CSTS: ready once enabled, and shut down as soon as that is asked for (CC.EN, CC.SHN).
    pub fn state(&self) -> u32 {
        let configuration = self.configuration();
        let is_shut_down = configuration >> 14 & 3 != 0;
        configuration & 1 | u32::from(is_shut_down) << 3
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_controller_is_its_hosts_alone_and_ends_with_its_queues() {
        let disk = Disk::open(Path::new("/dev/null")).expect("it is always there");
        let subsystem = Subsystem::new("nqn".into(), disk);
        let first = subsystem.new_controller("host");
        let second = subsystem.new_controller("host");
        assert_ne!(first.number, second.number);
        assert!(subsystem.controller(first.number, "host").is_some());
        assert!(subsystem.controller(first.number, "another").is_none());
        let number = first.number;
        drop(first);
        assert!(subsystem.controller(number, "host").is_none());
    }

    #[test]
    fn it_is_ready_once_enabled_and_shut_down_when_asked() {
        let disk = Disk::open(Path::new("/dev/null")).expect("it is always there");
        let controller = Subsystem::new("nqn".into(), disk).new_controller("host");
        let state = |configuration| {
            controller.configure(configuration);
            controller.state()
        };
        assert_eq!((state(0), state(1), state(1 | 1 << 14)), (0, 1, 1 | 2 << 2));
    }
}
