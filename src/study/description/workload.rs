//! Flows by the dozen.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use softrnic_fabric::{Host, Picos, Topology};

use super::sizes::{self, Sizes};
use super::tables::WorkloadTable;
use super::{Mistake, Reader, quantity, sport};
use crate::flow::Flow;

/// More flows would fill the memory.
const MOST_FLOWS: usize = 1_000_000;
const TOO_MANY: &str = "that would be more than 1,000,000 flows";

/// Adds the flows of a workload.
pub fn generate(
    workload: &WorkloadTable,
    reader: &Reader<'_>,
    topology: &Topology,
    seed: u64,
    flows: &mut Vec<Flow>,
) -> Result<(), Mistake> {
    let hosts = topology.hosts().len() as u32;
    let is_poisson = workload.kind.as_ref() == "poisson";
    if let (false, Some(wrong)) = (is_poisson, workload.sizes.as_ref().or(workload.lasts.as_ref())) {
        return Err(reader.wrong(wrong, "only the kind poisson has sizes, a load and a time".into()));
    }
    let start = match &workload.start {
        Some(start) => reader.parse(start, quantity::time)?,
        None => Picos::ZERO,
    };
    let dscp = reader.dscp(&workload.dscp)?;
    if is_poisson {
        return poisson(workload, reader, topology, seed, (start, dscp), flows);
    }
    let bytes = match &workload.bytes {
        Some(bytes) => reader.parse(bytes, quantity::bytes)?,
        None => return Err(reader.wrong(&workload.kind, format!("{} needs `bytes`", workload.kind.as_ref()))),
    };
    let pairs: Box<dyn Iterator<Item = (u32, u32)>> = match workload.kind.as_ref().as_str() {
        "incast" => {
            let Some(to) = &workload.to else {
                return Err(
                    reader.wrong(&workload.kind, "an incast needs `to`, the host that all send to".into())
                );
            };
            let to = reader.host(to, topology)?.0;
            Box::new((0..hosts).map(move |from| (from, to)))
        }
        "permutation" => Box::new((0..hosts).zip(permutation(hosts, seed))),
        "all-to-all" => Box::new((0..hosts).flat_map(move |from| (0..hosts).map(move |to| (from, to)))),
        "ring" => Box::new((0..hosts).map(move |from| (from, (from + 1) % hosts))),
        other => {
            let known = "incast, permutation, all-to-all, ring, poisson";
            return Err(reader.wrong(&workload.kind, format!("`{other}` is not a workload: {known}")));
        }
    };
    for (src, dst) in pairs.filter(|(src, dst)| src != dst) {
        if flows.len() >= MOST_FLOWS {
            return Err(reader.wrong(&workload.kind, TOO_MANY.into()));
        }
        let sport = sport(flows.len());
        flows.push(Flow { src: Host(src), dst: Host(dst), bytes, start, dscp, sport });
    }
    Ok(())
}

/// Each host starts flows to others at random, so that they load its link by a share.
fn poisson(
    workload: &WorkloadTable,
    reader: &Reader<'_>,
    topology: &Topology,
    seed: u64,
    (start, dscp): (Picos, u8),
    flows: &mut Vec<Flow>,
) -> Result<(), Mistake> {
    let wrong = |problem: &str| reader.wrong(&workload.kind, problem.to_owned());
    let load = workload
        .load
        .as_ref()
        .ok_or_else(|| wrong("poisson needs a `load`, from 0 to 1 of each host's link"))?;
    if !(*load.as_ref() > 0.0 && *load.as_ref() <= 1.0) {
        return Err(
            reader.wrong(load, format!("{} is not a load: it must be above 0, and at most 1", load.as_ref()))
        );
    }
    let lasts =
        workload.lasts.as_ref().ok_or_else(|| wrong("poisson needs `for`, the time in which flows start"))?;
    let lasts = reader.parse(lasts, quantity::time)?;
    let sizes = match (&workload.sizes, &workload.bytes) {
        (Some(name), None) => Some(Sizes::named(name.as_ref()).ok_or_else(|| {
            reader.wrong(name, format!("`{}` are not known sizes: {}", name.as_ref(), sizes::KNOWN))
        })?),
        (None, Some(_)) => None,
        _ => return Err(wrong("poisson needs either `sizes` or `bytes`")),
    };
    let bytes = workload.bytes.as_ref().map_or(Ok(0), |bytes| reader.parse(bytes, quantity::bytes))?;
    let mean = sizes.as_ref().map_or(bytes.max(1) as f64, Sizes::mean);
    let hosts = topology.hosts().len() as u32;
    if hosts < 2 {
        return Err(wrong("poisson needs two hosts at least"));
    }
    for src in 0..hosts {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(src) + 1);
        let node = topology.node_of(Host(src));
        let link = topology.links().iter().find(|link| link.ends.contains(&node));
        let rate = link.map_or(1, |link| link.spec.rate);
        // Between two flows, on average.
        let interval = mean * 8e12 / (load.as_ref() * rate as f64);
        let mut at = 0.0;
        loop {
            at += -interval * (1.0 - sizes::uniform(&mut rng)).ln();
            if at >= lasts.0 as f64 {
                break;
            }
            if flows.len() >= MOST_FLOWS {
                return Err(wrong(TOO_MANY));
            }
            let dst = (src + 1 + (rng.next_u64() % u64::from(hosts - 1)) as u32) % hosts;
            let bytes = sizes.as_ref().map_or(bytes, |sizes| sizes.draw(&mut rng));
            let (src, dst, sport) = (Host(src), Host(dst), sport(flows.len()));
            flows.push(Flow { src, dst, bytes, start: start + Picos(at as u64), dscp, sport });
        }
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
