//! What many paths are worth on a network of two leaves and two spines, and what a spine that fails costs.

use softrnic_fabric::{Host, LinkChange, LinkId, LinkSpec, Parts, Picos, SwitchConfig, Topology};
use softrnic_study::{Flow, FlowState, NicConfig, Study};
use softrnic_wire::Mtu;

const FLOWS: u32 = 8;
const BYTES: u64 = 25_000_000;
/// Each has other source ports.
const SEEDS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn nic(paths: u8) -> NicConfig {
    NicConfig {
        mtu: Mtu::B4096,
        early_retransmission: true,
        selective_recovery: true,
        paths,
        ..NicConfig::default()
    }
}

/// Eight hosts at each of two leaves.
fn network(spines: u32, edge: u64, core: u64) -> Topology {
    let link = LinkSpec { rate: edge, ..LinkSpec::default() };
    let parts = Parts {
        edge: link,
        core: LinkSpec { rate: core, ..link },
        switch: SwitchConfig::default(),
        ..Parts::default()
    };
    Topology::clos(2, spines, FLOWS, &parts).expect("a network")
}

/// Host i of one leaf sends to host i of the other, from ports of a seed's choice.
fn flows(seed: u64) -> Vec<Flow> {
    (0..FLOWS)
        .map(|flow| Flow {
            src: Host(flow),
            dst: Host(FLOWS + flow),
            bytes: BYTES,
            start: Picos::from_nanos(u64::from(flow)),
            dscp: 0,
            sport: 0xC000
                | (seed.wrapping_mul(0x9E37_79B9).wrapping_add(u64::from(flow) * 0x51_7C31) >> 7) as u16
                    & 0x3FFF,
        })
        .collect()
}

/// When the last flow ends, in milliseconds, and how many have failed, if a spine dies after `at`.
fn end(paths: u8, seed: u64, kill: Option<(Picos, LinkChange)>) -> (f64, usize) {
    let gigabit = 1_000_000_000;
    let flows = flows(seed);
    let mut study =
        Study::new(network(2, 10 * gigabit, 100 * gigabit), nic(paths), &flows, seed).expect("a study");
    if let Some((at, change)) = kill {
        study.run(at).expect("a run");
        for link in [0, 2] {
            study.change(LinkId(2 * FLOWS + link), change);
        }
    }
    study.run(Picos::from_micros(3_000_000)).expect("a run");
    let ends = study.states().iter().filter_map(|state| match state {
        FlowState::Done(at) => Some(at.as_nanos_ceil()),
        _ => None,
    });
    let failed = study.states().iter().filter(|state| !matches!(state, FlowState::Done(_))).count();
    (ends.max().unwrap_or(0) as f64 / 1e6, failed)
}

#[test]
fn a_dead_spine_costs_little() {
    for seed in SEEDS {
        let (whole, _) = end(8, seed, None);
        for change in [LinkChange::Down, LinkChange::BlackHole(true)] {
            let kill = Some((Picos::from_micros(8_000), change));
            let [ecmp, many] = [1, 8].map(|paths| end(paths, seed, kill));
            println!("seed {seed}, {change:?}: without {whole:.2} ms, ECMP {ecmp:.2?}, paths {many:.2?}");
            let (end, failed) = many;
            assert_eq!(failed, 0, "seed {seed}, {change:?}");
            assert!(end - whole < 5.0, "seed {seed}, {change:?}: {end:.2} ms instead of {whole:.2}");
            // Without paths the flows of the dead spine go on only if the switches are told.
            assert_eq!(ecmp.1 > 0, change != LinkChange::Down, "seed {seed}, {change:?}");
        }
    }
}

/// Gigabits per second of all flows, until the last one ends.
fn goodput(topology: Topology, paths: u8, seed: u64) -> f64 {
    let flows = flows(seed);
    let mut study = Study::new(topology, nic(paths), &flows, seed).expect("a study");
    study.run(Picos::NEVER).expect("a run");
    let last = study.states().iter().map(|state| match state {
        FlowState::Done(at) => at.as_nanos_ceil(),
        other => panic!("{other:?}"),
    });
    let last = last.max().expect("flows");
    f64::from(FLOWS) * BYTES as f64 * 8.0 / last as f64
}

#[test]
fn eight_flows_get_what_perfect_balancing_gives() {
    for (edge, core) in [(25, 100), (100, 400), (100, 200)] {
        let rate = |gigabits: u64| gigabits * 1_000_000_000;
        let perfect = goodput(network(1, rate(edge), 2 * rate(core)), 1, 1);
        for seed in SEEDS {
            let [ecmp, many] = [1, 8].map(|paths| goodput(network(2, rate(edge), rate(core)), paths, seed));
            println!(
                "edge {edge} core 2 x {core}, seed {seed}: ECMP {ecmp:.1} paths {many:.1} perfect {perfect:.1}: {:.2} {:.2}",
                ecmp / perfect,
                many / perfect
            );
            assert!(many >= 0.9 * perfect, "seed {seed}: {many:.1} of {perfect:.1} Gb/s");
        }
    }
}
