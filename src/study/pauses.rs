//! Who paused whom: a tree whose roots paused others and were not paused themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::result::{PortResult, Report};

/// One line of the tree, with its depth.
#[derive(PartialEq, Eq, Debug)]
pub struct Branch {
    /// 0 for a root.
    pub depth: usize,
    /// Who was paused, how often and for how long.
    pub text: String,
}

/// The tree, from its roots down. Nodes that pause each other in a circle are where the tree begins if nothing else is.
pub fn pause_tree(report: &Report) -> Vec<Branch> {
    let mut paused: BTreeMap<&str, Vec<(&str, &PortResult)>> = BTreeMap::new();
    let mut victims = BTreeSet::new();
    for port in report.ports.iter().filter(|port| port.pauses_received > 0) {
        // The node at the other end of the cable said so.
        let Some((victim, pauser)) = port.port.split_once('-') else { continue };
        paused.entry(pauser).or_default().push((victim, port));
        victims.insert(victim);
    }
    let (roots, others): (Vec<&str>, Vec<&str>) = paused.keys().partition(|node| !victims.contains(*node));
    let (mut branches, mut seen) = (Vec::new(), BTreeSet::new());
    for root in roots.into_iter().chain(others) {
        if seen.insert(root) {
            branches.push(Branch { depth: 0, text: format!("{root} paused") });
            grow(root, 1, &paused, &mut seen, &mut branches);
        }
    }
    branches
}

fn grow<'r>(
    node: &'r str,
    depth: usize,
    paused: &BTreeMap<&'r str, Vec<(&'r str, &'r PortResult)>>,
    seen: &mut BTreeSet<&'r str>,
    branches: &mut Vec<Branch>,
) {
    for (victim, port) in paused.get(node).into_iter().flatten() {
        let passes_on = paused.contains_key(victim);
        let again = passes_on && !seen.insert(victim);
        let text = format!(
            "{victim}: {} pause{} for {:.1} us{}",
            port.pauses_received,
            if port.pauses_received == 1 { "" } else { "s" },
            port.paused_ns / 1e3,
            match (passes_on, again) {
                (_, true) => ", which passed them on (see above)",
                (true, false) => ", which paused",
                _ => "",
            }
        );
        branches.push(Branch { depth, text });
        if passes_on && !again {
            grow(victim, depth + 1, paused, seen, branches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pauses: &[(&str, u64)]) -> Report {
        let ports = pauses.iter().map(|&(port, pauses_received)| PortResult {
            port: port.into(),
            tx_frames: 0,
            tx_bytes: 0,
            marked: 0,
            dropped: 0,
            lost_damaged: 0,
            lost_down: 0,
            faults: 0,
            pauses_received,
            paused_ns: 1500.0,
            queue_peak: 0,
        });
        Report {
            flows: Vec::new(),
            ports: ports.collect(),
            samples: Vec::new(),
            counters: BTreeMap::new(),
            end_ns: 0.0,
            events: 0,
            hops: 0,
        }
    }

    fn lines(pauses: &[(&str, u64)]) -> Vec<String> {
        let branches = pause_tree(&report(pauses));
        branches.iter().map(|branch| format!("{}{}", " ".repeat(branch.depth), branch.text)).collect()
    }

    #[test]
    fn a_pause_spreads_from_where_nobody_was_paused() {
        let pauses = [("h0-s0", 3), ("h1-s0", 0), ("s0-s1", 1), ("h2-s1", 2)];
        let tree = [
            "s1 paused",
            " s0: 1 pause for 1.5 us, which paused",
            "  h0: 3 pauses for 1.5 us",
            " h2: 2 pauses for 1.5 us",
        ];
        assert_eq!(lines(&pauses), tree);
    }

    #[test]
    fn a_circle_is_told_once() {
        let tree = [
            "s0 paused",
            " s1: 1 pause for 1.5 us, which paused",
            "  s0: 1 pause for 1.5 us, which passed them on (see above)",
        ];
        assert_eq!(lines(&[("s1-s0", 1), ("s0-s1", 1)]), tree);
    }
}
