//! One link out of one for each address of an interface.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use softrnic_link::addresses::AddressesLink;
use softrnic_link::testing::{self, flow};
use softrnic_link::{
    Backlog, Capabilities, Datagram, Flow, Link, LinkCounters, OpenError, Overrun, ProcessSlot, ServeError,
    Sharing, Sleeper, TxError, TxSlot,
};
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::{ServiceId, Time};

const NOW: Time = Time::ZERO;
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 7, 0, 9));

fn udp(address: IpAddr, slot: Option<ProcessSlot>) -> Result<Box<dyn Link>, OpenError> {
    let options = UdpOptions { address: Some(address), slot, shared: true, ..UdpOptions::default() };
    UdpLink::open(options).map(|link| Box::new(link) as Box<dyn Link>)
}

/// Addresses that a test has alone, as far as one can know.
fn addresses<const N: usize>() -> [IpAddr; N] {
    let found = [(); N].map(|()| UdpLink::open(UdpOptions::default()).expect("a free address"));
    found.map(|link| link.address())
}

/// Has a link opened at once, instead of in a thread.
fn at_once(run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    run();
    Ok(())
}

fn slot(link: &AddressesLink) -> ProcessSlot {
    link.capabilities().slot.expect("a slot")
}

/// Sends a packet from one of the addresses to a queue pair of the peer.
fn send(link: &mut AddressesLink, from: IpAddr, peer: &UdpLink, psn: u32) -> Result<(), TxError> {
    let to = flow(from, peer.address());
    let mut bytes = vec![0; testing::packet_len(0)];
    bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
    let slot = link.reserve(NOW, &to, bytes.len())?;
    slot.bytes.copy_from_slice(&bytes);
    link.commit(NOW);
    link.flush(NOW);
    Ok(())
}

#[test]
fn each_address_is_used_as_long_as_it_is_there() {
    let [first, second, third] = addresses();
    let mut link = AddressesLink::open(&[first, second], Arc::new(udp), at_once).expect("a link");
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    let mut sent = 0;
    for now in [vec![first, second], vec![second, third], vec![], vec![third], vec![third, first, second]] {
        link.readdress(&now);
        for address in [first, second, third] {
            let expected = if now.contains(&address) { Ok(()) } else { Err(TxError::Unreachable) };
            assert_eq!(send(&mut link, address, &peer, sent), expected, "{address} of {now:?}");
            if expected.is_ok() {
                let got = testing::receive(&mut peer, 1);
                assert_eq!((got[0].psn(), got[0].src), (sent, address));
                let to = Flow { slot: Some(slot(&link)), ..flow(peer.address(), address) };
                testing::send_to_qp(&mut peer, NOW, &to, *slot(&link).qpns().start() + 2, sent);
                peer.flush(NOW);
                let got = testing::receive(&mut link, 1);
                assert_eq!((got[0].psn(), got[0].dst), (sent, address));
                sent += 1;
            }
        }
    }
    assert_eq!(link.counters().tx_datagrams, u64::from(sent), "those of closed links count");
    assert_eq!(link.counters().rx_datagrams, u64::from(sent));
}

/// As a progress thread does.
fn attend(sharing: &mut dyn Sharing) {
    sharing.attend().iter().for_each(|backlog| backlog.accept_some());
    sharing.let_in();
}

#[test]
fn all_addresses_use_the_same_part_even_if_others_have_some_addresses_alone() {
    let [first, second] = addresses();
    let mut others: Vec<Box<dyn Link>> = Vec::new();
    for _ in 0..8 {
        let another = std::thread::scope(|scope| {
            let joins = scope.spawn(|| udp(second, None));
            while !joins.is_finished() {
                others.iter_mut().filter_map(|other| other.sharing()).for_each(attend);
                std::thread::yield_now();
            }
            joins.join().expect("no panic").expect("it may join")
        });
        others.push(another);
    }
    let taken: Vec<ProcessSlot> = others.iter().filter_map(|other| other.capabilities().slot).collect();
    let slots = Arc::new(Mutex::new(HashMap::new()));
    let opener = {
        let slots = Arc::clone(&slots);
        move |address, slot| {
            udp(address, slot).inspect(|link| {
                slots.lock().expect("whole").insert(address, link.capabilities().slot);
            })
        }
    };
    let opener = Arc::new(opener);
    for _ in 0..20 {
        let link = std::thread::scope(|scope| {
            let opens = scope.spawn(|| AddressesLink::open(&[first, second], opener.clone(), at_once));
            while !opens.is_finished() {
                others.iter_mut().filter_map(|other| other.sharing()).for_each(attend);
                std::thread::yield_now();
            }
            opens.join().expect("no panic").expect("a slot that is free at both")
        });
        assert!(!taken.contains(&slot(&link)));
        let slots = slots.lock().expect("whole");
        assert!([first, second].iter().all(|address| slots[address] == Some(slot(&link))));
    }
}

#[test]
fn a_group_stays_joined_when_its_address_is_removed() {
    let [first, second] = addresses();
    let mut link = AddressesLink::open(&[first, second], Arc::new(udp), at_once).expect("a link");
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    link.join(GROUP).expect("a group");
    for (psn, now) in [(0, vec![first, second]), (1, vec![second]), (2, vec![]), (3, vec![first])] {
        link.readdress(&now);
        link.flush(NOW);
        let to = flow(peer.address(), GROUP);
        testing::send_to_qp(&mut peer, NOW, &to, 0xFF_FFFF, psn);
        peer.flush(NOW);
        if now.is_empty() {
            continue;
        }
        let got = testing::receive(&mut link, 1);
        assert_eq!((got[0].psn(), got[0].dst), (psn, GROUP));
        assert!(testing::drain(&mut link, NOW).is_empty(), "it comes once");
    }
    link.leave(GROUP).expect("it is joined");
    assert_eq!(link.leave(GROUP).map_err(|error| error.raw_os_error()), Err(Some(libc::EADDRNOTAVAIL)));
}

#[test]
fn an_address_that_cannot_be_opened_does_not_affect_others() {
    let [first, second, third] = addresses();
    let owner = UdpLink::open(UdpOptions { address: Some(second), ..UdpOptions::default() }).expect("alone");
    assert_eq!(
        AddressesLink::open(&[first, second], Arc::new(udp), at_once).err(),
        Some(OpenError::AddressInUse(second))
    );
    let mut link = AddressesLink::open(&[first], Arc::new(udp), at_once).expect("a link");
    link.readdress(&[first, second, third]);
    for (address, expected) in [(first, Ok(())), (second, Err(TxError::Unreachable)), (third, Ok(()))] {
        assert_eq!(send(&mut link, address, &owner, 1), expected);
    }
}

#[test]
fn a_service_is_served_at_all_addresses_or_at_none() {
    let [first, second, third] = addresses();
    let service = ServiceId(0x0106_1234);
    let mut link = AddressesLink::open(&[first, second], Arc::new(udp), at_once).expect("a link");
    let mut other = std::thread::scope(|scope| {
        let joins = scope.spawn(|| udp(second, None));
        while !joins.is_finished() {
            attend(link.sharing().expect("shared"));
            std::thread::yield_now();
        }
        joins.join().expect("no panic").expect("it may join")
    });
    let theirs = other.sharing().expect("shared");
    theirs.serve(service, None).expect("nobody has it");
    let ours = link.sharing().expect("shared");
    assert_eq!(ours.serve(service, None), Err(ServeError::Taken));
    assert_eq!(ours.serve(service, Some(first)), Ok(()));
    assert_eq!(ours.serve(service, Some(second)), Err(ServeError::Taken));
    theirs.stop_serving(service).expect("nobody else changes the table");
    assert_eq!(ours.serve(service, None), Ok(()));
    assert_eq!(theirs.serve(service, None), Err(ServeError::Taken));
    // An address that comes is served, too.
    link.readdress(&[first, second, third]);
    link.flush(NOW);
    let mut late = std::thread::scope(|scope| {
        let joins = scope.spawn(|| udp(third, None));
        while !joins.is_finished() {
            attend(link.sharing().expect("shared"));
            std::thread::yield_now();
        }
        joins.join().expect("no panic").expect("it may join")
    });
    assert_eq!(late.sharing().expect("shared").serve(service, None), Err(ServeError::Taken));
}

/// A link whose table another process is changing, the first times that it is asked.
struct Contended {
    capabilities: Capabilities,
    busy: u32,
    served: Arc<AtomicBool>,
}

impl Sharing for Contended {
    fn processes(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn lifelines(&mut self, _address: IpAddr, _part: ProcessSlot) -> Option<u64> {
        None
    }

    fn descriptor(&self) -> RawFd {
        -1
    }

    fn attend(&mut self) -> Vec<Arc<dyn Backlog>> {
        Vec::new()
    }

    fn let_in(&mut self) {}

    fn serve(&mut self, _service: ServiceId, _at: Option<IpAddr>) -> Result<(), ServeError> {
        self.served.store(self.busy == 0, Ordering::Relaxed);
        self.busy.checked_sub(1).map_or(Ok(()), |left| {
            self.busy = left;
            Err(ServeError::Busy)
        })
    }

    fn stop_serving(&mut self, _service: ServiceId) -> Result<(), ServeError> {
        Ok(())
    }

    fn end_sharing(&mut self) {}
}

impl Link for Contended {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, _now: Time, _flow: &Flow, _len: usize) -> Result<TxSlot<'_>, TxError> {
        Err(TxError::Unreachable)
    }

    fn reserved(&self) -> &[u8] {
        &[]
    }

    fn commit(&mut self, _now: Time) {}

    fn flush(&mut self, _now: Time) {}

    fn is_blocked(&self) -> bool {
        false
    }

    fn receive(&mut self, _now: Time, _budget: usize, _sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        Overrun::Drained
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters::default()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(self)
    }
}

#[test]
fn a_service_is_announced_at_a_new_address_once_its_table_is_free() {
    let [first, second] = [1, 2].map(|number| IpAddr::from([127, 9, 9, number]));
    let served = Arc::new(AtomicBool::new(false));
    let says = served.clone();
    let opener = move |address, _part| -> Result<Box<dyn Link>, OpenError> {
        let busy = if address == first { 0 } else { 3 };
        Ok(Box::new(Contended { capabilities: Capabilities::none("test"), busy, served: says.clone() }))
    };
    let mut link = AddressesLink::open(&[first], Arc::new(opener), at_once).expect("a link");
    link.sharing().expect("shared").serve(ServiceId(0x0106_1234), None).expect("its table is free");
    link.readdress(&[first, second]);
    for turn in 0..4 {
        assert!(!link.is_quiet(NOW), "turn {turn}");
        link.flush(NOW);
        assert_eq!(served.load(Ordering::Relaxed), turn == 3, "turn {turn}");
    }
    assert!(!link.watch(Sleeper::Thread), "nothing is left to do");
}
