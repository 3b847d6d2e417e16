//! What a [`Link`] promises, asked of every kind of link and of the layers on them.
//!
//! Each rule gets two ends that reach each other. What one kind does beyond this is tested beside it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use softrnic_link::addresses::AddressesLink;
use softrnic_link::fault::FaultLink;
use softrnic_link::sim::{Fabric, Path, SimOptions};
use softrnic_link::{Flow, HeaderId, Link, Overrun, Sleeper, TxError};
use softrnic_shm::ShmLink;
use softrnic_udp::{UdpLink, UdpOptions};

use softrnic_link::testing::{self, Received, packet_len};
use softrnic_link_tests::now;

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// A link and the only address at which datagrams arrive.
struct End {
    link: Box<dyn Link>,
    address: IpAddr,
    /// Where the link lives, if not in the network of the test.
    host: Option<softrnic_link_tests::Namespace>,
}

type Rule = fn(&mut End, &mut End);

const RULES: [(&str, Rule); 16] = [
    ("a datagram arrives as it was sent", arrives_as_sent),
    ("datagrams of all lengths arrive once and in order", arrives_in_order),
    ("what is reserved can be seen until it is committed", reserved_is_shown),
    ("what is reserved and not committed never leaves", abandoned_is_forgotten),
    ("the longest datagram passes, a longer one is refused", longest_passes),
    ("what has no way is refused", no_way_is_refused),
    ("a link reaches itself", reaches_itself),
    ("a flood arrives or is counted, and the link recovers", flood_is_accounted_for),
    ("the budget bounds a call, and the end is said", budget_bounds),
    ("datagrams are counted", datagrams_are_counted),
    ("neighbours do not matter once segmentation has stopped", segmentation_stops),
    ("the descriptor wakes its waiter", descriptor_wakes),
    ("the descriptor wakes its waiter after others have received", descriptor_wakes_again),
    ("the descriptor wakes its waiter for what others have left behind", descriptor_wakes_for_the_rest),
    ("groups are joined and left", groups_are_joined),
    ("a sender hears its own group", sender_hears_its_group),
];

fn keeps_the_contract(open: impl Fn() -> (End, End)) {
    for (name, rule) in RULES {
        keep(name, rule, &mut open());
    }
}

fn keep(name: &str, rule: Rule, (a, b): &mut (End, End)) {
    println!("{name}");
    a.link.show_headers();
    b.link.show_headers();
    rule(a, b);
    for end in [a, b] {
        assert!(end.link.packet_memory().is_none_or(|audit| audit.is_exact()), "packet memory is lost");
    }
}

#[test]
fn udp() {
    keeps_the_contract(|| (End::udp(|link, _| link), End::udp(|link, _| link)));
}

#[test]
fn addresses_of_an_interface() {
    let several = || {
        End::udp(|link, address| {
            let other = UdpLink::open(UdpOptions::default()).expect("another address");
            let addresses = [other.address(), address];
            let links: Vec<Box<dyn Link>> = vec![Box::new(other), link];
            let links: HashMap<_, _> = addresses.into_iter().zip(links).collect();
            let links = Mutex::new(links);
            let opener = move |wanted, _| Ok(links.lock().expect("whole").remove(&wanted).expect("once"));
            let link = AddressesLink::open(&addresses, Arc::new(opener), |_| Ok(()));
            Box::new(link.expect("a link"))
        })
    };
    keeps_the_contract(|| (several(), several()));
}

#[test]
fn sim() {
    keeps_the_contract(|| sim_ends("10.0.0.1", "10.0.0.2"));
}

#[test]
fn sim_with_ipv6() {
    keeps_the_contract(|| sim_ends("fd00::1", "fd00::2"));
}

#[test]
fn shm_before_there_is_a_connection() {
    keeps_the_contract(|| (End::udp(shm), End::udp(shm)));
}

#[test]
fn shm_on_a_connection() {
    keeps_the_contract(|| {
        let (mut a, mut b) = (End::udp(shm), End::udp(shm));
        make_connection(&mut a, &mut b);
        make_connection(&mut b, &mut a);
        (a, b)
    });
}

#[test]
fn faulty() {
    keeps_the_contract(|| (End::udp(faulty_layer), End::udp(faulty_layer)));
}

#[test]
fn captured() {
    keeps_the_contract(|| (End::udp(captured_layer), End::udp(captured_layer)));
}

/// As a NIC has them.
#[test]
fn all_layers() {
    let open =
        || End::udp(|link, address| faulty_layer(captured_layer(shm(link, address), address), address));
    keeps_the_contract(|| (open(), open()));
}

#[test]
fn xdp() {
    if softrnic_link_tests::can_run("xdp") {
        xdp_keeps_the_contract(["10.0.0.1", "10.0.0.2"]);
    }
}

#[test]
fn xdp_with_ipv6() {
    if softrnic_link_tests::can_run("xdp_with_ipv6") {
        xdp_keeps_the_contract(["fd00::1", "fd00::2"]);
    }
}

fn sim_ends(a: &str, b: &str) -> (End, End) {
    let fabric = Fabric::new(0);
    fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
    let open = |address: &str| {
        let address = softrnic_link_tests::ip(address);
        End::new(Box::new(fabric.attach(address, SimOptions::default()).expect("a free address")), address)
    };
    (open(a), open(b))
}

fn shm(link: Box<dyn Link>, address: IpAddr) -> Box<dyn Link> {
    Box::new(ShmLink::new(link, address).map_err(|(_, error)| error).expect("shared memory"))
}

/// Sends until a datagram comes by shared memory, which shows the ID.
fn make_connection(from: &mut End, to: &mut End) {
    let begin = Instant::now();
    let flow = from.flow_to(to);
    loop {
        from.send(&flow, 0, 8);
        from.link.flush(now());
        from.drain();
        if to.take(1).iter().any(|datagram| matches!(datagram.id, HeaderId::Seen { .. })) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "there is no connection");
    }
}

/// A fault layer with rules for both directions, none of which ever applies.
fn faulty_layer(link: Box<dyn Link>, _: IpAddr) -> Box<dyn Link> {
    let spec = "seed=1,drop:psn=16777215,drop:dir=rx:psn=16777215".parse().expect("a specification");
    Box::new(FaultLink::new(link, &spec))
}

fn captured_layer(link: Box<dyn Link>, _: IpAddr) -> Box<dyn Link> {
    use softrnic_link::capture::{Capture, CaptureOptions, WhenFull};
    // The contract is that of a link whose file keeps up.
    let options =
        CaptureOptions { queue_bytes: 1 << 20, when_full: WhenFull::Wait, ..CaptureOptions::default() };
    Box::new(Capture::create("/dev/null", options).expect("a capture").wrap(link, "softrnic0"))
}

/// Hosts take long to make, so that all rules get the same.
fn xdp_keeps_the_contract(addresses: [&str; 2]) {
    let mut ends = xdp_ends(addresses);
    for (name, rule) in RULES {
        keep(name, rule, &mut ends);
    }
}

fn xdp_ends([a, b]: [&str; 2]) -> (End, End) {
    use softrnic_xdp::{XdpLink, XdpOptions};
    let pair = softrnic_link_tests::Pair::new(4500, 1);
    let open = |host: softrnic_link_tests::Namespace, address| {
        let link = host.enter(|| XdpLink::open("eth0", &XdpOptions::default()).expect("a link"));
        End { link: Box::new(link), address: softrnic_link_tests::ip(address), host: Some(host) }
    };
    let (mut a, mut b) = (open(pair.a, a), open(pair.b, b));
    a.know_neighbour(&b);
    b.know_neighbour(&a);
    (a, b)
}

impl End {
    fn new(link: Box<dyn Link>, address: IpAddr) -> End {
        End { link, address, host: None }
    }

    /// A UDP link with `layers` on it.
    fn udp(layers: impl FnOnce(Box<dyn Link>, IpAddr) -> Box<dyn Link>) -> End {
        let link = UdpLink::open(UdpOptions::default()).expect("a loopback address");
        let address = link.address();
        End::new(layers(Box::new(link), address), address)
    }

    fn flow_to(&self, peer: &End) -> Flow {
        testing::flow(self.address, peer.address)
    }

    fn know_neighbour(&mut self, peer: &End) {
        let flow = self.flow_to(peer);
        self.at_home(|link| {
            softrnic_link_tests::wait_for("the neighbour", || {
                link.flush(now());
                link.reserve(now(), &flow, 64).is_ok()
            });
        });
    }

    fn send(&mut self, flow: &Flow, psn: u32, payload: usize) {
        testing::send(&mut *self.link, now(), flow, psn, payload).expect("room for a datagram");
    }

    /// All datagrams that have arrived.
    fn drain(&mut self) -> Vec<Received> {
        testing::drain(&mut *self.link, now())
    }

    /// Receives `count` datagrams, and checks that there are no more.
    fn take(&mut self, count: usize) -> Vec<Received> {
        let begin = Instant::now();
        let mut got = self.drain();
        while got.len() < count {
            assert!(begin.elapsed() < PATIENCE, "{} of {count} have come", got.len());
            thread::yield_now();
            got.extend(self.drain());
        }
        got.extend(self.drain());
        assert_eq!(got.len(), count);
        got
    }

    fn take_psns(&mut self, count: usize) -> Vec<u32> {
        let got = self.take(count);
        assert!(got.iter().all(Received::is_sound));
        got.iter().map(Received::psn).collect()
    }

    /// Waits on the descriptor as the progress thread does.
    fn wakes_within(&mut self, time: Duration) -> bool {
        let wakes = self.link.watch(Sleeper::Thread) || testing::wait(&*self.link, libc::POLLIN, time) != 0;
        self.link.watch(Sleeper::Nobody);
        wakes
    }

    /// Takes in everything that could wake it, until nothing does.
    fn come_to_rest(&mut self) {
        let begin = Instant::now();
        while self.wakes_within(Duration::ZERO) {
            self.drain();
            assert!(begin.elapsed() < PATIENCE, "it does not come to rest");
        }
    }

    fn join(&mut self, group: IpAddr) -> std::io::Result<()> {
        self.at_home(|link| link.join(group))
    }

    fn leave(&mut self, group: IpAddr) -> std::io::Result<()> {
        self.at_home(|link| link.leave(group))
    }

    fn at_home<T: Send>(&mut self, work: impl FnOnce(&mut dyn Link) -> T + Send) -> T {
        let link = &mut *self.link;
        if let Some(host) = &self.host {
            return host.enter(|| work(link));
        }
        work(link)
    }

    /// A group that no other test uses.
    fn new_group(&self) -> IpAddr {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let [.., high, low] = std::process::id().to_be_bytes();
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        if self.address.is_ipv4() {
            [239, 100 + next, high, low].into()
        } else {
            [0xFF0E, 0, 0, 0, 0, 0, u16::from(next), u16::from_be_bytes([high, low])].into()
        }
    }
}

fn arrives_as_sent(a: &mut End, b: &mut End) {
    let flows = [
        a.flow_to(b),
        Flow { sport: 0xC123, tos: 0x6A, ttl: 17, ..a.flow_to(b) },
        Flow { tos: 0xFC, ttl: 255, ..a.flow_to(b) },
    ];
    for (psn, flow) in (7..).zip(flows) {
        a.send(&flow, psn, 100);
        a.link.flush(now());
        let got = &b.take(1)[0];
        assert_eq!((got.src, got.dst, got.psn()), (flow.src, flow.dst, psn));
        assert_eq!((got.tos, got.ttl), (flow.tos, flow.ttl));
        // The facts of the slot were right: the ICRC covers them, the source port included.
        assert!(got.is_sound());
        assert!(!b.link.capabilities().sees_ip_header || got.ip_header.is_some());
    }
}

fn arrives_in_order(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    let lens = [0, 4, 4096, 1, 256, 256, 256, 1023, 4096, 4096, 3, 2048];
    let mut sent = 0;
    for round in 0..40 {
        for _ in 0..=round % 9 {
            a.send(&flow, sent, lens[sent as usize % lens.len()]);
            sent += 1;
        }
        a.link.flush(now());
        let count = round as usize % 9 + 1;
        assert_eq!(b.take_psns(count), (sent - count as u32..sent).collect::<Vec<_>>());
    }
    assert!(b.drain().is_empty());
}

fn reserved_is_shown(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    for (len, fill) in [(99, 0xDD), (16, 0xEE), (3000, 0x11)] {
        let slot = a.link.reserve(now(), &flow, len).expect("a slot");
        assert_eq!(slot.bytes.len(), len);
        slot.bytes.fill(fill);
        assert_eq!(a.link.reserved(), vec![fill; len]);
    }
}

fn abandoned_is_forgotten(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    let other = Flow { tos: 8, ..flow };
    a.send(&flow, 0, 256);
    a.link.reserve(now(), &flow, packet_len(256)).expect("a slot").bytes.fill(0xEE);
    a.link.reserve(now(), &other, 99).expect("a slot").bytes.fill(0xDD);
    a.send(&flow, 1, 256);
    a.link.reserve(now(), &other, packet_len(256)).expect("a slot").bytes.fill(0xEE);
    a.link.flush(now());
    assert_eq!(b.take_psns(2), [0, 1]);
    // Nothing is reserved after a commit.
    a.send(&flow, 2, 256);
    a.link.commit(now());
    a.link.flush(now());
    assert_eq!(b.take_psns(1), [2]);
    assert!(b.drain().is_empty());
}

fn longest_passes(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    // IPv6 has the longer header, so that a link of both may take less than its most.
    let longest = a.link.capabilities().max_datagram - if flow.src.is_ipv6() { 20 } else { 0 };
    let payload = (longest - packet_len(0)) / 4 * 4;
    a.send(&flow, 3, payload);
    a.link.flush(now());
    let got = &b.take(1)[0];
    assert!(got.is_sound() && got.bytes.len() == packet_len(payload));
    for len in [0, a.link.capabilities().max_datagram + 1] {
        assert_eq!(a.link.reserve(now(), &flow, len).err(), Some(TxError::TooLong), "{len} bytes");
    }
}

fn no_way_is_refused(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    let (other, family) = match flow.src {
        IpAddr::V4(_) => ("192.0.2.77", "fd00::7"),
        IpAddr::V6(_) => ("2001:db8::77", "10.0.0.7"),
    };
    let foreign = Flow { src: softrnic_link_tests::ip(other), ..flow };
    assert_eq!(a.link.reserve(now(), &foreign, 64).err(), Some(TxError::Unreachable));
    let mixed = Flow { dst: softrnic_link_tests::ip(family), ..flow };
    assert_eq!(a.link.reserve(now(), &mixed, 64).err(), Some(TxError::Unreachable));
    a.send(&flow, 1, 64);
    a.link.flush(now());
    assert_eq!(b.take_psns(1), [1]);
}

fn reaches_itself(a: &mut End, b: &mut End) {
    let own = a.flow_to(a);
    for (psn, payload) in (0..20).zip([300, 3400].into_iter().cycle()) {
        a.send(&own, psn, payload);
        a.link.flush(now());
        let is_due = a.link.poll_timeout().is_some_and(|time| time <= now());
        assert!(a.link.descriptor().is_none() || is_due || a.wakes_within(PATIENCE), "nobody hears of it");
        assert_eq!(a.take_psns(1), [psn]);
    }
    assert!(b.drain().is_empty());
}

fn flood_is_accounted_for(a: &mut End, b: &mut End) {
    const MOST: u32 = 4000;
    let flow = a.flow_to(b);
    let lost_before = b.link.counters().rx_overruns;
    let mut sent = 0;
    while sent < MOST {
        match testing::send(&mut *a.link, now(), &flow, sent, 1024) {
            Ok(()) => sent += 1,
            Err(TxError::Full) => {
                a.link.flush(now());
                if a.link.reserve(now(), &flow, packet_len(1024)).err() == Some(TxError::Full) {
                    break;
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
    let begin = Instant::now();
    let mut got = Vec::new();
    let lost = |b: &End| b.link.counters().rx_overruns - lost_before;
    while got.len() as u64 + lost(b) < u64::from(sent) {
        a.link.flush(now());
        got.extend(b.drain());
        assert!(begin.elapsed() < PATIENCE, "{} of {sent} came, {} are lost", got.len(), lost(b));
    }
    assert!(got.iter().all(Received::is_sound));
    assert!(got.iter().map(Received::psn).is_sorted());
    assert_eq!(got.len() as u64 + lost(b), u64::from(sent));
    assert!(got.len() >= 32, "{} of {sent}", got.len());
    assert!(!a.link.is_blocked());
    a.send(&flow, MOST, 64);
    a.link.flush(now());
    assert_eq!(b.take_psns(1), [MOST]);
}

fn budget_bounds(a: &mut End, b: &mut End) {
    const COUNT: u32 = 50;
    const BUDGET: usize = 7;
    // A segmented send may be handed over as a whole.
    a.link.stop_segmenting();
    let flow = a.flow_to(b);
    for psn in 0..COUNT {
        a.send(&flow, psn, 8);
    }
    a.link.flush(now());
    let begin = Instant::now();
    let mut got = Vec::new();
    while got.len() < COUNT as usize {
        let before = got.len();
        let overrun = b.link.receive(now(), BUDGET, &mut |datagram| got.push(Received::from(datagram)));
        let count = got.len() - before;
        assert!(count <= BUDGET, "{count} at once");
        assert!(count < BUDGET || overrun == Overrun::Budget, "{overrun:?}");
        assert!(begin.elapsed() < PATIENCE, "{} have come", got.len());
    }
    assert_eq!(got.iter().map(Received::psn).collect::<Vec<_>>(), (0..COUNT).collect::<Vec<_>>());
    while b.link.receive(now(), BUDGET, &mut |_| panic!("one more")) != Overrun::Drained {
        assert!(begin.elapsed() < PATIENCE, "the end is not said");
    }
}

fn datagrams_are_counted(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    let (sent, received) = (a.link.counters(), b.link.counters());
    let lens = [0, 100, 4096];
    for (psn, payload) in (0..).zip(lens) {
        a.send(&flow, psn, payload);
        a.link.flush(now());
        b.take(1);
    }
    let bytes: usize = lens.iter().map(|&payload| packet_len(payload)).sum();
    let (a, b) = (a.link.counters(), b.link.counters());
    assert_eq!((a.tx_datagrams - sent.tx_datagrams, a.tx_bytes - sent.tx_bytes), (3, bytes as u64));
    assert_eq!((b.rx_datagrams - received.rx_datagrams, b.rx_bytes - received.rx_bytes), (3, bytes as u64));
    assert!(a.tx_calls > sent.tx_calls);
    assert_eq!(a.tx_errors, sent.tx_errors);
    assert_eq!((b.rx_malformed, b.rx_overruns), (received.rx_malformed, received.rx_overruns));
    assert_eq!((a.capture_lost, b.capture_lost, a.faults_injected, b.faults_injected), (0, 0, 0, 0));
}

fn segmentation_stops(a: &mut End, b: &mut End) {
    let flow = a.flow_to(b);
    assert!(a.link.capabilities().segments >= 1);
    a.send(&flow, 0, 512);
    a.send(&flow, 1, 512);
    a.link.stop_segmenting();
    assert_eq!(a.link.capabilities().segments, 1);
    for psn in 2..5 {
        a.send(&flow, psn, 512);
        a.link.reserve(now(), &flow, packet_len(512)).expect("a slot");
    }
    a.link.flush(now());
    assert_eq!(b.take_psns(5), [0, 1, 2, 3, 4]);
}

fn descriptor_wakes(a: &mut End, b: &mut End) {
    if b.link.descriptor().is_none() {
        return;
    }
    let flow = a.flow_to(b);
    for psn in 0..20 {
        b.come_to_rest();
        assert!(!b.link.watch(Sleeper::Thread));
        a.send(&flow, psn, 64);
        a.link.flush(now());
        assert_ne!(testing::wait(&*b.link, libc::POLLIN, PATIENCE), 0, "PSN {psn}");
        b.link.watch(Sleeper::Nobody);
        assert_eq!(b.take_psns(1), [psn]);
    }
}

/// A thread waits, and a caller takes what has come before the thread has run.
fn descriptor_wakes_again(a: &mut End, b: &mut End) {
    if b.link.descriptor().is_none() {
        return;
    }
    let flow = a.flow_to(b);
    b.come_to_rest();
    assert!(!b.link.watch(Sleeper::Thread));
    for psn in 0..20 {
        a.send(&flow, psn, 64);
        a.link.flush(now());
        assert_ne!(testing::wait(&*b.link, libc::POLLIN, PATIENCE), 0, "PSN {psn}");
        assert_eq!(b.take_psns(1), [psn]);
    }
}

/// A thread waits, and a caller takes a part of what has come before the thread has run.
fn descriptor_wakes_for_the_rest(a: &mut End, b: &mut End) {
    if b.link.descriptor().is_none() {
        return;
    }
    let flow = a.flow_to(b);
    for _ in 0..20 {
        b.come_to_rest();
        assert!(!b.link.watch(Sleeper::Thread));
        for psn in 0..4 {
            a.send(&flow, psn, 64);
        }
        a.link.flush(now());
        let mut taken = 0;
        while taken < 4 {
            assert_ne!(testing::wait(&*b.link, libc::POLLIN, PATIENCE), 0, "{taken} were taken");
            b.link.receive(now(), 1, &mut |_| taken += 1);
        }
        b.link.watch(Sleeper::Nobody);
    }
}

fn groups_are_joined(a: &mut End, b: &mut End) {
    let group = a.new_group();
    let to_group = testing::flow(a.address, group);
    assert!(b.join(a.address).is_err(), "it is no group");
    assert!(b.leave(group).is_err(), "it was not joined");
    b.join(group).expect("a group");
    b.join(group).expect("the same again");
    a.send(&to_group, 7, 256);
    a.send(&to_group, 8, 256);
    a.link.flush(now());
    let got = b.take(2);
    for (psn, datagram) in (7..).zip(&got) {
        assert!(datagram.is_sound());
        assert_eq!((datagram.src, datagram.dst, datagram.psn()), (a.address, group, psn));
    }
    assert!(a.drain().is_empty(), "the sender has not joined");
    b.leave(group).expect("joined");
    assert!(b.leave(group).is_err(), "it was left");
    a.send(&to_group, 9, 256);
    a.link.flush(now());
    let to_b = a.flow_to(b);
    a.send(&to_b, 10, 256);
    a.link.flush(now());
    assert_eq!(b.take_psns(1), [10]);
}

fn sender_hears_its_group(a: &mut End, b: &mut End) {
    let group = a.new_group();
    let to_group = testing::flow(a.address, group);
    a.join(group).expect("a group");
    b.join(group).expect("a group");
    a.send(&to_group, 1, 3000);
    a.link.flush(now());
    assert_eq!(a.take_psns(1), [1]);
    assert_eq!(b.take_psns(1), [1]);
}
