//! Queues that wait for each other in a circle.

use crate::frame::{PRIORITIES, Priority};
use crate::topology::PortId;

/// A circle of paused egress queues: each holds up the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The priority.
    pub priority: Priority,
    /// The ports, in the direction of the traffic.
    pub ports: Vec<PortId>,
}

/// Finds a circle. `waits_for` gives the ports that a paused queue waits for; `None` if it is not paused.
pub fn find(ports: usize, waits_for: impl Fn(usize, Priority) -> Option<Vec<usize>>) -> Option<Deadlock> {
    (0..PRIORITIES as Priority).find_map(|priority| {
        let next: Vec<Option<Vec<usize>>> = (0..ports).map(|port| waits_for(port, priority)).collect();
        let mut done = vec![false; ports];
        (0..ports).find_map(|port| circle(port, &next, &mut done)).map(|circle| Deadlock {
            priority,
            ports: circle.into_iter().map(|port| PortId(port as u32)).collect(),
        })
    })
}

/// A circle that can be reached from `start` over paused queues.
fn circle(start: usize, next: &[Option<Vec<usize>>], done: &mut [bool]) -> Option<Vec<usize>> {
    // The way here, and of each port on it the next one to try.
    let mut way: Vec<(usize, usize)> = vec![(start, 0)];
    while let Some(&mut (port, ref mut tried)) = way.last_mut() {
        let onward = next[port].as_ref().filter(|_| !done[port]).and_then(|onward| onward.get(*tried));
        *tried += 1;
        match onward {
            Some(&onward) => {
                if let Some(begin) = way.iter().position(|&(port, _)| port == onward) {
                    return Some(way[begin..].iter().map(|&(port, _)| port).collect());
                }
                if next[onward].is_some() && !done[onward] {
                    way.push((onward, 0));
                }
            }
            None => {
                done[port] = true;
                way.pop();
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(edges: &[&[usize]], paused: &[bool]) -> Option<Vec<u32>> {
        let found =
            find(edges.len(), |port, priority| (priority == 3 && paused[port]).then(|| edges[port].to_vec()));
        found.map(|deadlock| {
            assert_eq!(deadlock.priority, 3);
            deadlock.ports.into_iter().map(|port| port.0).collect()
        })
    }

    #[test]
    fn a_circle_is_found_and_a_chain_is_none() {
        assert_eq!(find_in(&[&[1], &[2], &[0]], &[true; 3]), Some(vec![0, 1, 2]));
        assert_eq!(find_in(&[&[1], &[2], &[]], &[true; 3]), None);
        assert_eq!(find_in(&[&[1], &[2], &[0]], &[true, true, false]), None);
        // Behind a branch that leads nowhere, and not where the search began.
        assert_eq!(find_in(&[&[1, 2], &[], &[3], &[4], &[2]], &[true; 5]), Some(vec![2, 3, 4]));
    }
}
