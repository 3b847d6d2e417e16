//! Nodes and links: the description from which a fabric is made.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::config::{HostConfig, SwitchConfig};
use crate::picos::Picos;

/// A host, by its number among the hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host(pub u32);

/// A node, by its number among all nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A link, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// A port: one end of a link. Port `2 n` and port `2 n + 1` are the ends of link `n`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u32);

impl PortId {
    /// The link's other end.
    pub const fn peer(self) -> PortId {
        PortId(self.0 ^ 1)
    }

    /// The link.
    pub const fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// Both ends.
    pub const fn ports(self) -> [PortId; 2] {
        [PortId(2 * self.0), PortId(2 * self.0 + 1)]
    }
}

/// What a node is.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeKind {
    /// It sends and receives, and forwards nothing.
    Host(HostConfig),
    /// It forwards.
    Switch(Box<SwitchConfig>),
}

/// A node.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its name, unique.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
}

/// A link between two nodes. Both directions are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkSpec {
    /// Bits per second.
    pub rate: u64,
    /// How long the first bit takes.
    pub delay: Picos,
    /// The longest frame, in bytes on the wire.
    pub mtu_bytes: u32,
    /// The probability that a bit is damaged.
    pub bit_error_rate: f64,
    /// The probability that a frame is damaged, whatever its length.
    pub frame_error_rate: f64,
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            rate: 100_000_000_000,
            delay: Picos::from_micros(1),
            mtu_bytes: 9216 + 38,
            bit_error_rate: 0.0,
            frame_error_rate: 0.0,
        }
    }
}

/// A link with its ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attachment {
    /// The nodes of the even and of the odd port.
    pub ends: [NodeId; 2],
    /// The link.
    pub spec: LinkSpec,
}

/// A network: nodes in the order of their numbers, and links.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<Attachment>,
    hosts: Vec<NodeId>,
    names: BTreeMap<String, NodeId>,
}

/// Hosts and switches of a network. Each switch has a next hop for each host.
const MOST_NODES: usize = 1 << 14;
const MOST_LINKS: usize = 1 << 18;
/// A port's place in its node has 16 bits.
const MOST_PORTS: usize = 1 << 16;

/// What is wrong with a topology.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TopologyError {
    /// Two nodes have one name.
    NameTaken(String),
    /// A link names a node that does not exist.
    NoSuchNode(String),
    /// Both ends of a link are one node.
    LinkToItself(String),
    /// A link's rate is 0.
    NoRate(String, String),
    /// A probability is not between 0 and 1.
    NotAProbability(String, String),
    /// There are more hosts and switches than a network can have.
    TooManyNodes,
    /// There are more links than a network can have.
    TooManyLinks,
    /// A node has more links than one can have.
    TooManyPorts(String),
    /// A host has no link.
    HostWithoutLink(String),
    /// No path leads from one host to another.
    Disconnected(String, String),
    /// A switch has less memory than reserves and headroom of its ports take.
    BufferTooSmall {
        /// The switch.
        switch: String,
        /// Its memory, in bytes.
        buffer: u64,
        /// What reserves and headroom take, in bytes.
        needed: u64,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyError::NameTaken(name) => write!(f, "two nodes are named {name}"),
            TopologyError::NoSuchNode(name) => write!(f, "no node is named {name}"),
            TopologyError::LinkToItself(name) => write!(f, "a link leads from {name} to itself"),
            TopologyError::NoRate(a, b) => write!(f, "the link between {a} and {b} has a rate of 0"),
            TopologyError::NotAProbability(a, b) => {
                write!(f, "the link between {a} and {b} has an error rate that is not between 0 and 1")
            }
            TopologyError::TooManyNodes => {
                write!(f, "there are more than {MOST_NODES} hosts and switches, and no more fit")
            }
            TopologyError::TooManyLinks => {
                write!(f, "there are more than {MOST_LINKS} links, and no more fit")
            }
            TopologyError::TooManyPorts(name) => write!(f, "{name} has more than {MOST_PORTS} links"),
            TopologyError::HostWithoutLink(name) => write!(f, "host {name} has no link"),
            TopologyError::Disconnected(a, b) => write!(f, "no path leads from {a} to {b}"),
            TopologyError::BufferTooSmall { switch, buffer, needed } => write!(
                f,
                "switch {switch} has {buffer} bytes of memory, but reserves and headroom of its ports take {needed}"
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// A network without nodes.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Adds a host.
    ///
    /// # Errors
    /// The name is taken, or there are too many nodes.
    pub fn add_host(&mut self, name: &str, config: HostConfig) -> Result<Host, TopologyError> {
        let node = self.add(name, NodeKind::Host(config))?;
        self.hosts.push(node);
        Ok(Host(self.hosts.len() as u32 - 1))
    }

    /// Adds a switch.
    ///
    /// # Errors
    /// The name is taken, or there are too many nodes.
    pub fn add_switch(&mut self, name: &str, config: SwitchConfig) -> Result<NodeId, TopologyError> {
        self.add(name, NodeKind::Switch(Box::new(config)))
    }

    fn add(&mut self, name: &str, kind: NodeKind) -> Result<NodeId, TopologyError> {
        let node = NodeId(self.nodes.len() as u32);
        if self.names.contains_key(name) {
            return Err(TopologyError::NameTaken(name.to_owned()));
        }
        if self.nodes.len() == MOST_NODES {
            return Err(TopologyError::TooManyNodes);
        }
        self.names.insert(name.to_owned(), node);
        self.nodes.push(Node { name: name.to_owned(), kind });
        Ok(node)
    }

    /// Links two nodes.
    ///
    /// # Errors
    /// The link cannot be; see [`TopologyError`].
    pub fn link(&mut self, a: NodeId, b: NodeId, spec: LinkSpec) -> Result<LinkId, TopologyError> {
        let (name_a, name_b) = (self.name(a).to_owned(), self.name(b).to_owned());
        if a == b {
            return Err(TopologyError::LinkToItself(name_a));
        }
        if spec.rate == 0 {
            return Err(TopologyError::NoRate(name_a, name_b));
        }
        let probabilities = [spec.bit_error_rate, spec.frame_error_rate];
        if !probabilities.iter().all(|probability| (0.0..=1.0).contains(probability)) {
            return Err(TopologyError::NotAProbability(name_a, name_b));
        }
        if self.links.len() == MOST_LINKS {
            return Err(TopologyError::TooManyLinks);
        }
        self.links.push(Attachment { ends: [a, b], spec });
        Ok(LinkId(self.links.len() as u32 - 1))
    }

    /// The nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The links, in the order of their numbers.
    pub fn links(&self) -> &[Attachment] {
        &self.links
    }

    /// The nodes that are hosts, in the order of their numbers.
    pub fn hosts(&self) -> &[NodeId] {
        &self.hosts
    }

    /// The node of a host.
    pub fn node_of(&self, host: Host) -> NodeId {
        self.hosts[host.0 as usize]
    }

    /// The node with a name.
    ///
    /// # Errors
    /// No node has it.
    pub fn node(&self, name: &str) -> Result<NodeId, TopologyError> {
        self.names.get(name).copied().ok_or_else(|| TopologyError::NoSuchNode(name.to_owned()))
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.0 as usize].name
    }

    /// The node that a port belongs to.
    pub fn owner(&self, port: PortId) -> NodeId {
        self.links[port.link().0 as usize].ends[port.index() % 2]
    }

    /// A port's name: its node, and the node at the other end.
    pub fn port_name(&self, port: PortId) -> String {
        format!("{}-{}", self.name(self.owner(port)), self.name(self.owner(port.peer())))
    }

    /// Ports of each node, in the order of the links.
    pub fn ports(&self) -> Vec<Vec<PortId>> {
        let mut ports = vec![Vec::new(); self.nodes.len()];
        for (number, link) in self.links.iter().enumerate() {
            for (port, node) in LinkId(number as u32).ports().into_iter().zip(link.ends) {
                ports[node.0 as usize].push(port);
            }
        }
        ports
    }

    /// Checks what cannot be checked while it is built.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self) -> Result<(), TopologyError> {
        let ports = self.ports();
        if let Some(node) = ports.iter().position(|ports| ports.len() > MOST_PORTS) {
            return Err(TopologyError::TooManyPorts(self.nodes[node].name.clone()));
        }
        for &host in &self.hosts {
            if ports[host.0 as usize].is_empty() {
                return Err(TopologyError::HostWithoutLink(self.name(host).to_owned()));
            }
        }
        let Some(&first) = self.hosts.first() else { return Ok(()) };
        let mut reached = vec![false; self.nodes.len()];
        reached[first.0 as usize] = true;
        let mut todo = VecDeque::from([first]);
        while let Some(node) = todo.pop_front() {
            for &port in &ports[node.0 as usize] {
                let next = self.owner(port.peer());
                let forwards = matches!(self.nodes[next.0 as usize].kind, NodeKind::Switch(_));
                if !std::mem::replace(&mut reached[next.0 as usize], true) && forwards {
                    todo.push_back(next);
                }
            }
        }
        match self.hosts.iter().find(|host| !reached[host.0 as usize]) {
            Some(&host) => {
                Err(TopologyError::Disconnected(self.name(first).to_owned(), self.name(host).to_owned()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_switches() -> (Topology, [NodeId; 2]) {
        let mut topology = Topology::new();
        let ends =
            ["s0", "s1"].map(|name| topology.add_switch(name, SwitchConfig::default()).expect("a name"));
        (topology, ends)
    }

    fn linked(links: usize) -> Result<Topology, TopologyError> {
        let (mut topology, [a, b]) = two_switches();
        for _ in 0..links {
            topology.link(a, b, LinkSpec::default())?;
        }
        Ok(topology)
    }

    #[test]
    fn there_are_only_so_many_nodes() {
        let (mut topology, _) = two_switches();
        for number in 2..MOST_NODES {
            topology.add_host(&format!("h{number}"), HostConfig::default()).expect("room");
        }
        let refused = topology.add_host("one more", HostConfig::default());
        assert_eq!(refused, Err(TopologyError::TooManyNodes));
        assert_eq!(
            topology.add_switch("one more", SwitchConfig::default()),
            Err(TopologyError::TooManyNodes)
        );
    }

    #[test]
    fn there_are_only_so_many_links() {
        assert!(linked(MOST_LINKS).is_ok());
        assert_eq!(linked(MOST_LINKS + 1), Err(TopologyError::TooManyLinks));
    }

    #[test]
    fn a_node_has_only_so_many_links() {
        let check = |links| linked(links).and_then(|topology| topology.check());
        assert_eq!(check(MOST_PORTS), Ok(()));
        assert_eq!(check(MOST_PORTS + 1), Err(TopologyError::TooManyPorts("s0".to_owned())));
    }
}
