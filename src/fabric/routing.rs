//! Shortest paths: for each switch and host, the ports that lead nearer to it.

use std::collections::VecDeque;

use crate::topology::{NodeKind, PortId, Topology};

/// Next hops of all switches.
#[derive(Clone)]
pub struct Routes {
    hosts: usize,
    /// By node and host: an index into `sets`.
    table: Vec<u32>,
    /// Sets of ports, each once; the first is empty.
    sets: Vec<Box<[PortId]>>,
}

impl Routes {
    /// The shortest paths over the links that are up. Ports of a set are in the order of their numbers.
    pub fn new(topology: &Topology, ports: &[Vec<PortId>], is_up: impl Fn(PortId) -> bool) -> Routes {
        let (nodes, hosts) = (topology.nodes().len(), topology.hosts().len());
        let mut routes = Routes { hosts, table: vec![0; nodes * hosts], sets: vec![Box::default()] };
        let mut known = std::collections::HashMap::new();
        for (host, &destination) in topology.hosts().iter().enumerate() {
            let distance = distances(topology, ports, destination.0 as usize, &is_up);
            for node in 0..nodes {
                if !matches!(topology.nodes()[node].kind, NodeKind::Switch(_)) || distance[node] == u32::MAX {
                    continue;
                }
                let nearer = |port: &&PortId| {
                    let next = topology.owner(port.peer()).0 as usize;
                    // Hosts forward nothing.
                    let forwards = next == destination.0 as usize
                        || matches!(topology.nodes()[next].kind, NodeKind::Switch(_));
                    forwards
                        && is_up(**port)
                        && distance[next] != u32::MAX
                        && distance[next] + 1 == distance[node]
                };
                let set: Box<[PortId]> = ports[node].iter().filter(nearer).copied().collect();
                let index = *known.entry(set.clone()).or_insert_with(|| {
                    routes.sets.push(set);
                    routes.sets.len() as u32 - 1
                });
                routes.table[node * hosts + host] = index;
            }
        }
        routes
    }

    /// The ports of `node` that lead nearer to `host`; none if no path is known.
    #[inline]
    pub fn next_hops(&self, node: usize, host: usize) -> &[PortId] {
        &self.sets[self.table[node * self.hosts + host] as usize]
    }
}

/// Links between each node and `destination`; `u32::MAX` if there is no path.
fn distances(
    topology: &Topology,
    ports: &[Vec<PortId>],
    destination: usize,
    is_up: &impl Fn(PortId) -> bool,
) -> Vec<u32> {
    let mut distance = vec![u32::MAX; topology.nodes().len()];
    distance[destination] = 0;
    let mut todo = VecDeque::from([destination]);
    while let Some(node) = todo.pop_front() {
        for &port in &ports[node] {
            let next = topology.owner(port.peer()).0 as usize;
            if !is_up(port) || distance[next] != u32::MAX {
                continue;
            }
            distance[next] = distance[node] + 1;
            if matches!(topology.nodes()[next].kind, NodeKind::Switch(_)) {
                todo.push_back(next);
            }
        }
    }
    distance
}
