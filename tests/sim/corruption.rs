//! Damaged packets do not pass where a link hides the IPv4 ID, which the ICRC covers.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Instant;

use softrnic_engine::{Budget, EngineConfig, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest};
use softrnic_link::sim::Path;
use softrnic_memory::Sge;
use softrnic_sim_tests::arena::Span;
use softrnic_sim_tests::rng::Rng;
use softrnic_sim_tests::world::{Agreement, Node, QKEY, World};
use softrnic_transport::{QpType, Status};
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::{DF, ICRC_LEN, IpFacts, Mtu, Psn, Qpn, ROCE_UDP_PORT, Time, UdpFacts, seal};

/// UD SEND Only: BTH and DETH in front of the payload.
const OPCODE: u8 = 0x64;
const HEADERS: usize = 20;
const PAYLOAD: usize = 1024;
const GRH: usize = 40;
const FILL: u8 = b'Z';

/// A NIC on a UDP socket with one UD QP, which looks at every byte that it is given.
struct Receiver {
    world: World,
    qp: QpHandle,
    places: Vec<Span>,
    started: Instant,
    right: u64,
    wrong: u64,
}

impl Receiver {
    fn new() -> Receiver {
        let link = UdpLink::open(UdpOptions::default()).expect("a loopback address");
        let address = link.address();
        let mut world = World::new(1, Path::default());
        let mut node = Node::on(Box::new(link), address, EngineConfig::with_seed(1), 1 << 20);
        let cq = node.create_cq(512);
        let receive = ReceiveSource::Own(256);
        let init =
            QpInit { service: QpType::Ud, pd: node.pd, send_cq: cq, recv_cq: cq, max_send_wr: 1, receive };
        let qp = node.engine.create_qp(init).expect("a QP");
        let places = (0..256).map(|_| node.arena.take(GRH + PAYLOAD, 8).expect("memory")).collect::<Vec<_>>();
        for &place in &places {
            node.arena.expose(place);
        }
        world.nodes.push(node);
        let agreement = Agreement {
            mtu: Mtu::B4096,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            rnr_timer: 0,
            rd_atomic: 0,
            tos: 0,
        };
        let mut attr = world.attributes(0, 0, Qpn::new(0), &agreement, (Psn::ZERO, Psn::ZERO));
        attr.qkey = QKEY;
        world.bring_up(0, qp.key, QpType::Ud, &attr);
        let mut receiver = Receiver { world, qp, places, started: Instant::now(), right: 0, wrong: 0 };
        (0..receiver.places.len()).for_each(|index| receiver.post(index));
        receiver
    }

    fn address(&self) -> Ipv4Addr {
        match self.world.nodes[0].address {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => unreachable!("the default is IPv4"),
        }
    }

    fn post(&mut self, index: usize) {
        let node = &self.world.nodes[0];
        let sges: [Sge; 1] = [node.sge(self.places[index], 0)];
        let data = LocalData::Sges(sges.into_iter().collect());
        let request = RecvRequest { wr_id: index as u64, data, length: (GRH + PAYLOAD) as u32 };
        assert!(self.qp.receives.as_mut().is_some_and(|ring| ring.push(request).is_ok()));
    }

    /// Takes what has arrived, until nothing does.
    fn receive(&mut self) {
        loop {
            let now = Time::from_nanos(self.started.elapsed().as_nanos() as u64 + 1);
            let node = &mut self.world.nodes[0];
            node.engine.on_doorbell(now, self.qp.key.index());
            let step = node.engine.step(now, &mut node.link, Budget { receive: 128, ..Budget::default() });
            let ring = node.cqs.values_mut().next().expect("a CQ");
            let found: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
            for cqe in found {
                assert_eq!(cqe.status, Status::Success);
                let place = self.places[cqe.wr_id as usize];
                let bytes = self.world.nodes[0].arena.read(place);
                let is_right =
                    cqe.byte_len as usize == GRH + PAYLOAD && bytes[GRH..].iter().all(|&byte| byte == FILL);
                *(if is_right { &mut self.right } else { &mut self.wrong }) += 1;
                self.post(cqe.wr_id as usize);
            }
            if step.received == 0 && !step.more {
                return;
            }
        }
    }

    fn dropped(&self, reason: &str) -> u64 {
        let mut drops = self.world.nodes[0].engine.drops();
        drops.find(|(known, _)| known.name() == reason).map_or(0, |(_, count)| count)
    }
}

/// A sender that numbers as it likes: nobody sees the ID but the ICRC, so an ordinary socket will do.
struct Sender {
    socket: UdpSocket,
    facts: UdpFacts,
    packet: Vec<u8>,
    rng: Rng,
}

impl Sender {
    fn new(receiver: &Receiver) -> Sender {
        let src = Ipv4Addr::new(127, 8, 8, 9);
        let socket = UdpSocket::bind((src, 0)).expect("a port");
        let dst = SocketAddrV4::new(receiver.address(), ROCE_UDP_PORT);
        socket.connect(dst).expect("connected");
        let src_port = socket.local_addr().expect("bound").port();
        let ip = IpFacts::V4 { src, dst: *dst.ip(), id: 0, flags_frag: DF };
        let mut packet = vec![FILL; HEADERS + PAYLOAD + ICRC_LEN];
        packet[..5].copy_from_slice(&[OPCODE, 0x40, 0xFF, 0xFF, 0]);
        packet[5..8].copy_from_slice(&receiver.qp.qpn.get().to_be_bytes()[1..]);
        packet[8..12].fill(0);
        packet[12..16].copy_from_slice(&QKEY.0.to_be_bytes());
        packet[16..20].copy_from_slice(&5_u32.to_be_bytes());
        Sender { socket, facts: UdpFacts { ip, src_port, dst_port: ROCE_UDP_PORT }, packet, rng: Rng::new(1) }
    }

    /// Sends one packet, whose payload is then changed in `damage` places. The kernel adds a UDP checksum that is right.
    fn send(&mut self, wanted: u16, damage: usize) {
        if let IpFacts::V4 { id, .. } = &mut self.facts.ip {
            *id = wanted;
        }
        let psn = self.rng.next() as u32;
        self.packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
        self.packet[HEADERS..HEADERS + PAYLOAD].fill(FILL);
        seal(&self.facts, &mut self.packet);
        for _ in 0..damage {
            let at = HEADERS + self.rng.below(PAYLOAD);
            self.packet[at] = FILL ^ self.rng.between(1, 255) as u8;
        }
        self.socket.send(&self.packet).expect("sent");
    }
}

/// How many damaged packets each test sends; more with `SOFTRNIC_DAMAGED`.
fn many() -> u32 {
    std::env::var("SOFTRNIC_DAMAGED").ok().and_then(|count| count.parse().ok()).unwrap_or(200_000)
}

/// Sends damaged packets of a sender that is known, and a sound one now and then; none of the former may pass.
fn damaged_packets_are_dropped(damage: usize, mut next_id: impl FnMut() -> u16) {
    let mut receiver = Receiver::new();
    let mut sender = Sender::new(&receiver);
    for _ in 0..8 {
        sender.send(next_id(), 0);
        receiver.receive();
    }
    assert_eq!((receiver.right, receiver.wrong), (8, 0), "the first packets pass");
    let mut sound = 8;
    for n in 0..many() {
        sender.send(next_id(), damage);
        if n % 1000 == 999 {
            receiver.receive();
            // Where a counter has run on through a thousand damaged ones, the second of these proves the first.
            for _ in 0..2 {
                sender.send(next_id(), 0);
                sound += 1;
            }
        }
        if n % 64 == 63 {
            receiver.receive();
        }
    }
    receiver.receive();
    let unexpected = receiver.dropped("drop_unexpected_id");
    println!(
        "{} damaged: {} dropped by the ICRC, {unexpected} by the ID, {} of {sound} sound ones taken, {} wrong",
        many(),
        receiver.dropped("drop_icrc"),
        receiver.right,
        receiver.wrong
    );
    assert_eq!(receiver.wrong, 0, "damaged packets completed with success");
    assert!(unexpected > 0, "none had an ID that explains the damage away");
    assert!(receiver.right >= sound / 2, "{} of {sound}", receiver.right);
}

#[test]
fn one_changed_byte_from_who_sends_with_id_0() {
    damaged_packets_are_dropped(1, || 0);
}

#[test]
fn one_changed_byte_from_who_counts() {
    let mut id = 12_345_u16;
    damaged_packets_are_dropped(1, || {
        id = id.wrapping_add(1);
        id
    });
}

#[test]
fn many_changed_bytes() {
    damaged_packets_are_dropped(20, || 0);
}
