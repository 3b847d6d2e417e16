//! What programs ask over NETLINK_RDMA, of processes that say anything about themselves. Every answer is one that the
//! program can read.

use std::cell::RefCell;

use softrnic_rdma_netlink::{OwnDevice, Responder, System};
use softrnic_stats::{Resources, Snapshot};

use super::Choices;

/// A page, less what the kernel needs with it: programs read into no more.
const LONGEST: usize = 3776;

/// A datagram with its length before it, and so on; what is behind the last is what another process says.
pub fn questions(data: &[u8]) {
    let mut choices = Choices(data);
    let mut datagrams = Vec::new();
    for _ in 0..choices.byte() % 4 {
        let length = choices.byte().into();
        datagrams.push(choices.take(length).to_vec());
    }
    let machine = Machine(RefCell::new(processes(choices.0)));
    let mut responder = Responder::default();
    let mut monitor = responder.monitor(9, &machine);
    for datagram in datagrams {
        responder.answer(9, &datagram, &machine).iter().for_each(|answer| check(answer));
        machine.0.borrow_mut().pop();
        responder.watch(&mut monitor, &machine).iter().for_each(|event| check(event));
    }
}

/// A process with a device of many objects, and the one that speaks for itself.
fn processes(text: &[u8]) -> Vec<Snapshot> {
    let mut busy = Snapshot::of("busy");
    busy.resources = Some(Resources { contexts: 300, ..Resources::default() });
    busy.counters.insert("sent_pkts".to_owned(), u64::MAX);
    [Some(busy), Snapshot::read(text).ok()].into_iter().flatten().collect()
}

struct Machine(RefCell<Vec<Snapshot>>);

impl System for Machine {
    fn own(&self) -> Vec<OwnDevice> {
        let interface = (1, "lo".to_owned());
        vec![OwnDevice { name: "softrnic0".to_owned(), guid: None, interface, is_active: false }]
    }

    fn running(&self) -> Vec<Snapshot> {
        self.0.borrow().clone()
    }

    fn device_flags(&self) -> u64 {
        u64::MAX
    }

    fn port_flags(&self) -> u32 {
        u32::MAX
    }

    fn connection_manager(&self) -> (u32, u32) {
        (10, 58)
    }
}

/// One message that fills the datagram, with attributes that fill the message.
fn check(datagram: &[u8]) {
    assert!((20..=LONGEST).contains(&datagram.len()), "{} bytes", datagram.len());
    let number = |at: usize| u32::from_ne_bytes(datagram[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!(number(0) as usize, datagram.len());
    assert_eq!(number(12), 9, "the socket that it is for");
    let is_netlinks_own = u16::from_ne_bytes([datagram[4], datagram[5]]) < 16;
    if !is_netlinks_own {
        check_attributes(&datagram[16..]);
    }
}

fn check_attributes(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let [length, kind] = [0, 2].map(|at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        let length = usize::from(length);
        assert!(length >= 4 && length <= bytes.len(), "{length} of {}", bytes.len());
        if kind & 0x8000 != 0 {
            check_attributes(&bytes[4..length]);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}
