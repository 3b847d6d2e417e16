//! Networks of the usual shapes.

use crate::config::{HostConfig, SwitchConfig};
use crate::topology::{LinkSpec, NodeId, Topology, TopologyError};

/// What the nodes and links of a generated network are like.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parts {
    /// Each host.
    pub host: HostConfig,
    /// Each switch.
    pub switch: SwitchConfig,
    /// The links of hosts.
    pub edge: LinkSpec,
    /// The links between switches.
    pub core: LinkSpec,
}

impl Topology {
    /// `hosts` hosts (`h0`, `h1`, …) around one switch (`s0`).
    ///
    /// # Errors
    /// A link cannot be; see [`TopologyError`].
    pub fn star(hosts: u32, parts: &Parts) -> Result<Topology, TopologyError> {
        let mut network = Topology::new();
        let switch = network.add_switch("s0", parts.switch.clone())?;
        network.hosts_at(&[switch], 0, hosts, parts)?;
        Ok(network)
    }

    /// Two switches (`s0`, `s1`) with `hosts` hosts each, and one link between them.
    ///
    /// # Errors
    /// As [`star`](Topology::star).
    pub fn dumbbell(hosts: u32, parts: &Parts) -> Result<Topology, TopologyError> {
        let mut network = Topology::new();
        let left = network.add_switch("s0", parts.switch.clone())?;
        let right = network.add_switch("s1", parts.switch.clone())?;
        network.hosts_at(&[left], 0, hosts, parts)?;
        network.hosts_at(&[right], hosts, hosts, parts)?;
        network.link(left, right, parts.core)?;
        Ok(network)
    }

    /// A folded Clos network of two tiers: `leaves` switches (`leaf0`, …) with `hosts` hosts each, every leaf linked to each of
    /// `spines` switches (`spine0`, …).
    ///
    /// # Errors
    /// As [`star`](Topology::star).
    pub fn clos(leaves: u32, spines: u32, hosts: u32, parts: &Parts) -> Result<Topology, TopologyError> {
        let mut network = Topology::new();
        let switches =
            |network: &mut Topology, name: &str, count: u32| -> Result<Vec<NodeId>, TopologyError> {
                (0..count)
                    .map(|number| network.add_switch(&format!("{name}{number}"), parts.switch.clone()))
                    .collect()
            };
        let leaf_nodes = switches(&mut network, "leaf", leaves)?;
        let spine_nodes = switches(&mut network, "spine", spines)?;
        for (number, &leaf) in leaf_nodes.iter().enumerate() {
            network.hosts_at(&[leaf], number as u32 * hosts, hosts, parts)?;
        }
        for &leaf in &leaf_nodes {
            for &spine in &spine_nodes {
                network.link(leaf, spine, parts.core)?;
            }
        }
        Ok(network)
    }

    /// Hosts with one link to each of `rails` switches (`rail0`, …), as servers with a NIC for each accelerator.
    ///
    /// # Errors
    /// As [`star`](Topology::star).
    pub fn rail(hosts: u32, rails: u32, parts: &Parts) -> Result<Topology, TopologyError> {
        let mut network = Topology::new();
        let switches: Result<Vec<NodeId>, TopologyError> =
            (0..rails).map(|rail| network.add_switch(&format!("rail{rail}"), parts.switch.clone())).collect();
        network.hosts_at(&switches?, 0, hosts, parts)?;
        Ok(network)
    }

    /// Adds hosts, each with a link to each of the switches.
    fn hosts_at(
        &mut self,
        switches: &[NodeId],
        first: u32,
        count: u32,
        parts: &Parts,
    ) -> Result<(), TopologyError> {
        for number in first..first + count {
            let host = self.add_host(&format!("h{number}"), parts.host)?;
            let node = self.node_of(host);
            for &switch in switches {
                self.link(node, switch, parts.edge)?;
            }
        }
        Ok(())
    }
}
