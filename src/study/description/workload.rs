//! Flows by the dozen.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use softrnic_fabric::{Host, Picos, Topology};

use super::tables::WorkloadTable;
use super::{Mistake, Reader, quantity, sport};
use crate::flow::Flow;

/// Adds the flows of a workload.
pub fn generate(
    workload: &WorkloadTable,
    reader: &Reader<'_>,
    topology: &Topology,
    seed: u64,
    flows: &mut Vec<Flow>,
) -> Result<(), Mistake> {
    let hosts = topology.hosts().len() as u32;
    let bytes = reader.parse(&workload.bytes, quantity::bytes)?;
    let start = match &workload.start {
        Some(start) => reader.parse(start, quantity::time)?,
        None => Picos::ZERO,
    };
    let dscp = reader.dscp(&workload.dscp)?;
    let pairs: Vec<(u32, u32)> = match workload.kind.as_ref().as_str() {
        "incast" => {
            let Some(to) = &workload.to else {
                return Err(
                    reader.wrong(&workload.kind, "an incast needs `to`, the host that all send to".into())
                );
            };
            let to = reader.host(to, topology)?.0;
            (0..hosts).filter(|&from| from != to).map(|from| (from, to)).collect()
        }
        "permutation" => {
            permutation(hosts, seed).into_iter().enumerate().map(|(from, to)| (from as u32, to)).collect()
        }
        "all-to-all" => {
            (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))).filter(|(a, b)| a != b).collect()
        }
        "ring" => (0..hosts).map(|from| (from, (from + 1) % hosts)).collect(),
        other => {
            let known = "incast, permutation, all-to-all, ring";
            return Err(reader.wrong(&workload.kind, format!("`{other}` is not a workload: {known}")));
        }
    };
    for (src, dst) in pairs.into_iter().filter(|(src, dst)| src != dst) {
        let sport = sport(flows.len());
        flows.push(Flow { src: Host(src), dst: Host(dst), bytes, start, dscp, sport });
    }
    Ok(())
}

/// For each host another one, each once: a random cycle through all (Sattolo's algorithm).
fn permutation(hosts: u32, seed: u64) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut to: Vec<u32> = (0..hosts).collect();
    for last in (1..to.len()).rev() {
        let other = (rng.next_u64() % last as u64) as usize;
        to.swap(last, other);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::permutation;

    #[test]
    fn a_permutation_sends_nobody_to_itself_and_everybody_somewhere() {
        for seed in 0..50 {
            let mut to = permutation(17, seed);
            assert!(to.iter().enumerate().all(|(from, to)| from as u32 != *to));
            to.sort_unstable();
            assert!(to.into_iter().eq(0..17));
        }
    }
}
