//! What a seed stands for: the network, the NICs, the connections and how they are used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softrnic_engine::EngineConfig;
use softrnic_link::sim::{Path, SimOptions};
use softrnic_transport::{QpType, WindowConfig};
use softrnic_wire::Mtu;

use crate::rng::Rng;
use crate::world::Agreement;

/// Everything that is decided before the first packet.
pub struct Plan {
    /// Faults of all paths.
    pub path: Path,
    /// Address, link and engine of each NIC, and the bytes of its application.
    pub nodes: Vec<(IpAddr, SimOptions, EngineConfig, usize)>,
    /// The connections.
    pub connections: Vec<ConnectionPlan>,
}

/// One pair of QPs.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPlan {
    /// The two NICs; they may be the same one.
    pub nodes: [usize; 2],
    /// Service of the first end (an XRC target is opposite an XRC initiator).
    pub service: QpType,
    /// Attributes.
    pub agreement: Agreement,
    /// Bytes of the longest SEND.
    pub longest_send: usize,
    /// Bytes of the longest WRITE or READ.
    pub longest_access: usize,
    /// Messages that each end sends in all.
    pub messages: u32,
    /// Places in the send queue.
    pub depth: usize,
    /// Receives that are kept posted.
    pub receives: usize,
    /// Whether receives come from the NIC's shared queue.
    pub shared: bool,
    /// No error is acceptable: retries are plenty and nothing provokes one.
    pub robust: bool,
    /// The longest pause between two posts, in microseconds.
    pub pause_us: u64,
}

/// How much a run does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// RC alone, two NICs, no provoked errors.
    Basic,
    /// Everything.
    Full,
    /// Everything, where packets are damaged and links hide the IPv4 ID, which the ICRC covers.
    Damaged,
    /// Everything, on NICs that use every freedom that the specification gives them.
    Adversarial,
    /// Everything, through switches that lose, mark, pause and spray, and whose links fail.
    Switched,
    /// Everything, on NICs that agree to recover selectively.
    Selective,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, profile: Profile) -> Plan {
        let rng = &mut Rng::new(seed);
        let full = profile != Profile::Basic;
        let damaged = profile == Profile::Damaged;
        let mut path = path(rng);
        let mut early = rng.chance(0.8);
        let v6 = rng.chance(0.25) && !damaged;
        if damaged {
            path.corrupt = path.corrupt.max(0.03);
        }
        // A packet in five is what eight tries get over, whatever the seed: with a third, one QP in some hundred seeds
        // is lost by bad luck alone.
        path.loss = path.loss.min(0.2 - path.corrupt);
        if path.loss + path.corrupt > 0.06 {
            // Without it one stall in a thousand uses up seven retries.
            early = true;
        }
        if profile == Profile::Selective && path.loss + path.reorder + path.duplicate == 0.0 {
            (path.loss, path.reorder) = (0.01, 0.01);
        }
        if profile == Profile::Switched {
            // Switches lose enough.
            path.loss = 0.0;
            early = true;
        }
        let count = if full { rng.between(1, 4) as usize } else { 2 };
        let bulky = rng.chance(0.06);
        let memory = if bulky { 24 << 20 } else { 1 << 20 };
        let mut nodes: Vec<_> = (0..count)
            .map(|i| (address(v6, i), options(rng), engine(rng, seed ^ i as u64, early), memory))
            .collect();
        for (number, (_, options, config, _)) in nodes.iter_mut().enumerate() {
            options.sees_ip_header &= !damaged;
            config.transport.selective_recovery = profile == Profile::Selective;
            if profile == Profile::Selective {
                // The seed alone says how many, so that the rest of the plan stays what it was.
                config.transport.paths = [1, 2, 8, 16][(seed >> number) as usize % 4];
                // A SoftRNIC that spreads numbers what each port sends by itself, not all in one, as rxe does.
                options.counts_ids &= config.transport.paths == 1;
            }
            config.adversary = (profile == Profile::Adversarial).then_some(seed ^ (number as u64) << 32);
        }
        let connections = (0..rng.between(1, if bulky { 3 } else { 10 }))
            .map(|_| connection(rng, nodes.len(), profile, bulky, &path))
            .collect();
        Plan { path, nodes, connections }
    }
}

fn address(v6: bool, index: usize) -> IpAddr {
    let last = index as u8 + 1;
    if v6 {
        Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, last).into()
    }
}

fn path(rng: &mut Rng) -> Path {
    let rate = |rng: &mut Rng, high: f64| {
        let chosen = rng.pick(&[0.0, 0.0, 0.01, 0.05, 0.2]);
        if chosen > high { high } else { chosen }
    };
    Path {
        delay: Duration::from_micros(rng.pick(&[0, 1, 5, 5, 20, 100])),
        loss: rate(rng, 0.2),
        duplicate: rate(rng, 0.2),
        reorder: rate(rng, 0.2),
        reorder_delay: Duration::from_micros(rng.pick(&[2, 20, 50, 300])),
        corrupt: rate(rng, 0.1),
        mark: rate(rng, 0.2),
    }
}

fn options(rng: &mut Rng) -> SimOptions {
    let mut options =
        SimOptions { sees_ip_header: rng.chance(0.5), counts_ids: rng.chance(0.5), ..SimOptions::default() };
    if rng.chance(0.5) {
        options.bandwidth = Some(rng.pick(&[1_000_000_000, 10_000_000_000, 40_000_000_000]));
    }
    if rng.chance(0.3) {
        options.receive_buffer = 212_992;
    }
    if rng.chance(0.2) {
        options.transmit_buffer = 32 << 10;
    }
    options
}

fn engine(rng: &mut Rng, seed: u64, early: bool) -> EngineConfig {
    let mut config = EngineConfig::with_seed(seed);
    config.transport.early_retransmission = early;
    config.transport.mig_req = rng.chance(0.5);
    config.transport.congestion_control = rng.chance(0.5);
    config.transport.read_chunk = rng.pick(&[4 << 10, 16 << 10, 64 << 10, 1 << 20]);
    if rng.chance(0.3) {
        let initial = rng.pick(&[4 << 10, 16 << 10, 1 << 20]);
        config.window = WindowConfig { initial, min: 4 << 10, max: 1 << 20 };
    }
    config
}

fn connection(rng: &mut Rng, nodes: usize, profile: Profile, bulky: bool, path: &Path) -> ConnectionPlan {
    let full = profile != Profile::Basic;
    let service = match rng.below(10) {
        _ if !full => QpType::Rc,
        0 => QpType::Uc,
        1 | 2 => QpType::Ud,
        3 => QpType::XrcInitiator,
        _ => QpType::Rc,
    };
    let first = rng.below(nodes);
    let second =
        if nodes > 1 && !rng.chance(0.1) { (first + 1 + rng.below(nodes - 1)) % nodes } else { first };
    let robust = !full || rng.chance(0.6);
    let agreement = Agreement {
        mtu: if bulky { rng.pick(&[Mtu::B1024, Mtu::B4096]) } else { rng.pick(&Mtu::ALL) },
        timeout: if robust { rng.pick(&[13, 14]) } else { rng.pick(&[8, 10, 12]) },
        retry_cnt: if robust { 7 } else { rng.between(0, 7) as u8 },
        rnr_retry: if robust { 7 } else { rng.between(0, 7) as u8 },
        rnr_timer: rng.pick(&[1, 2, 5, 9, 12]),
        rd_atomic: if robust { rng.pick(&[1, 2, 3, 4, 16]) } else { rng.pick(&[1, 4, 128]) },
        tos: if path.mark > 0.0 || rng.chance(0.3) { 0x02 } else { 0 },
    };
    let mtu = agreement.mtu.bytes() as usize;
    let longest_send = match rng.below(4) {
        0 => 64,
        1 => mtu,
        2 => mtu * 3 + 5,
        _ => 20_000,
    };
    let longest_access = if bulky { 5 << 20 } else { rng.pick(&[64, mtu * 2, mtu * 5, 40_000, 100_000]) };
    ConnectionPlan {
        nodes: [first, second],
        service,
        agreement,
        longest_send: if service == QpType::Ud { longest_send.min(4096) } else { longest_send },
        longest_access,
        messages: if bulky { rng.between(1, 4) } else { rng.between(2, 80) } as u32,
        depth: rng.between(1, 24) as usize,
        receives: rng.between(1, 6) as usize,
        shared: full && rng.chance(0.3),
        robust,
        pause_us: rng.pick(&[1, 10, 100, 1000]),
    }
}
