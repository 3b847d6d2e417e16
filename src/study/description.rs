//! A study in a TOML file: network, NICs, flows, and links that fail. docs/fabric.md describes it.

mod change;
mod quantity;
mod sizes;
mod tables;
mod workload;

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;

use softrnic_fabric::{Fabric, Host, LinkChange, Parts, Picos, PortId, Topology, ns3};
use softrnic_link::fault::FaultSpec;

use toml::Spanned;

use crate::flow::Flow;
use crate::nic::NicConfig;
use tables::{At, FaultTable, File, FlowTable, HostTable, Network};

pub use change::{change, link};

/// A study as described: what [`Study::new`](crate::Study::new) takes, and what happens meanwhile.
#[derive(Clone, Debug)]
pub struct Description {
    /// The network.
    pub topology: Topology,
    /// The NICs.
    pub nic: NicConfig,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// Changes of links, by time.
    pub changes: Vec<Change>,
    /// Live, hosts that are network interfaces of the machine.
    pub interfaces: Vec<(Host, String)>,
    /// How long after a change routes follow.
    pub convergence: Picos,
    /// Decides all that is random.
    pub seed: u64,
    /// When it ends, if flows have not ended before.
    pub until: Picos,
    /// When flows and queues are sampled.
    pub sampling: Sampling,
    /// Live, a second of its time takes so many of the clock.
    pub slow: u32,
    /// The network of the hosts' addresses: the first host has the one after it.
    pub addresses: Ipv4Addr,
}

/// When flows and queues are sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sampling {
    /// Never.
    #[default]
    Off,
    /// Once in this time; less often beyond 100,000 samples.
    Every(Picos),
    /// So often that there are this many samples, or up to twice as many.
    AtLeast(usize),
}

/// A link changes at a time.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// When.
    pub at: Picos,
    /// Which link: its port at the node that was named first.
    pub port: PortId,
    /// What becomes of it.
    pub becomes: Becomes,
}

/// What can become of a link.
#[derive(Clone, PartialEq, Debug)]
pub enum Becomes {
    /// It changes, in both directions.
    Link(LinkChange),
    /// These faults are injected, and no others: `tx` is what leaves by the port, `rx` what comes to it.
    Faulty(FaultSpec),
}

/// A mistake in a description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The file, if it is not the description itself.
    pub file: Option<String>,
    /// Its line, from 1 on; 0 if it concerns the whole file.
    pub line: usize,
    /// What is wrong, in a sentence.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Mistake {}

impl Description {
    /// Reads a description. Files that it names are looked for in `directory`.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn read(text: &str, directory: &Path) -> Result<Description, Mistake> {
        let description = Description::read_network(text, directory)?;
        if description.flows.is_empty() {
            return Err(mistake(0, "there is nothing to do: add a [[flow]] or a [[workload]]".into()));
        }
        Ok(description)
    }

    /// Reads a description of a network that need not have flows.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn read_network(text: &str, directory: &Path) -> Result<Description, Mistake> {
        let file: File = toml::from_str(text).map_err(|error| Mistake {
            file: None,
            line: error.span().map_or(0, |span| line_of(text, &span)),
            problem: error.message().to_owned(),
        })?;
        Reader { text, directory }.build(&file)
    }
}

/// Linux allows no longer names of interfaces.
const LONGEST_INTERFACE: usize = 15;

/// The slowest slow motion.
pub const MOST_SLOW: u32 = 100_000;
/// Of the loopback network, so that ordinary sockets reach the programs of a host at its address too.
const ADDRESSES: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 0);

/// Turns what a file says into what a study takes.
struct Reader<'a> {
    text: &'a str,
    directory: &'a Path,
}

impl Reader<'_> {
    fn build(&self, file: &File) -> Result<Description, Mistake> {
        let parts = file.parts(self)?;
        let topology = self.topology(&file.network, &parts)?;
        // What only a whole network shows, such as too little memory.
        Fabric::<()>::new(topology.clone(), 0).map_err(|error| mistake(0, error.to_string()))?;
        let nic = file.nic.config(self)?;
        let seed = file.seed.unwrap_or(1);
        let mut flows = self.flows_of_file(&file.network, &topology)?;
        for flow in &file.flow {
            flows.push(self.flow(flow, &topology, flows.len())?);
        }
        for workload in &file.workload {
            workload::generate(workload, self, &topology, seed, &mut flows)?;
        }
        let mut changes = Vec::new();
        for at in &file.at {
            changes.push(self.change(at, &topology)?);
        }
        for fault in &file.fault {
            changes.push(self.fault(fault, &topology)?);
        }
        changes.sort_by_key(|change| change.at);
        let time = |value: &Option<Spanned<String>>, default| match value {
            Some(value) => self.parse(value, quantity::time),
            None => Ok(default),
        };
        let addresses = self.addresses(&file.network, &topology)?;
        let interfaces = self.interfaces(&file.host, &topology)?;
        Ok(Description {
            topology,
            interfaces,
            addresses,
            slow: file.slow.as_ref().map_or(Ok(1), |slow| self.slow(slow))?,
            nic,
            flows,
            changes,
            convergence: time(&file.convergence, Picos::ZERO)?,
            seed,
            until: time(&file.until, Picos::from_micros(10_000_000))?,
            sampling: match &file.sample {
                Some(interval) => match self.parse(interval, quantity::time)? {
                    Picos::ZERO => {
                        return Err(self.wrong(interval, "samples need some time between them".into()));
                    }
                    interval => Sampling::Every(interval),
                },
                None => Sampling::Off,
            },
        })
    }

    fn topology(&self, network: &Network, parts: &Parts) -> Result<Topology, Mistake> {
        if let Some(name) = &network.topology {
            let text = self.file(name)?;
            return ns3::topology(&text, parts.host, &parts.switch)
                .map_err(|error| in_file(name.as_ref(), error));
        }
        let Some(generator) = &network.generator else {
            return Err(mistake(
                0,
                "[network] needs a generator (star, dumbbell, clos, rail) or a topology file".into(),
            ));
        };
        let count = |value: Option<u32>, what: &str| {
            value.filter(|&value| value > 0).ok_or_else(|| {
                self.wrong(generator, format!("a {} needs {what}, at least 1", generator.as_ref()))
            })
        };
        let hosts = count(network.hosts, "hosts")?;
        let made = match generator.as_ref().as_str() {
            "star" => Topology::star(hosts, parts),
            "dumbbell" => Topology::dumbbell(hosts, parts),
            "clos" => Topology::clos(
                count(network.leaves, "leaves")?,
                count(network.spines, "spines")?,
                hosts,
                parts,
            ),
            "rail" => Topology::rail(hosts, count(network.rails, "rails")?, parts),
            other => {
                return Err(self
                    .wrong(generator, format!("`{other}` is not a generator: star, dumbbell, clos, rail")));
            }
        };
        made.map_err(|error| self.wrong(generator, error.to_string()))
    }

    fn slow(&self, slow: &Spanned<u32>) -> Result<u32, Mistake> {
        let factor = *slow.as_ref();
        match (1..=MOST_SLOW).contains(&factor) {
            true => Ok(factor),
            false => {
                Err(self.wrong(slow, format!("time can be slowed 1 to {MOST_SLOW} times, not {factor}")))
            }
        }
    }

    /// All hosts must have an address, and none may be that of a group.
    fn addresses(&self, network: &Network, topology: &Topology) -> Result<Ipv4Addr, Mistake> {
        let Some(text) = &network.addresses else { return Ok(ADDRESSES) };
        let base: Ipv4Addr =
            self.parse(text, |text| text.parse().map_err(|_| format!("`{text}` is not an IPv4 address")))?;
        let last = u32::from(base).checked_add(topology.hosts().len() as u32).map(Ipv4Addr::from);
        match last.filter(|last| last.octets()[0] < 224 && base.octets()[0] != 0) {
            Some(_) => Ok(base),
            None => Err(self.wrong(text, format!("the addresses after {base} are not those of hosts"))),
        }
    }

    fn flows_of_file(&self, network: &Network, topology: &Topology) -> Result<Vec<Flow>, Mistake> {
        let Some(name) = &network.flows else { return Ok(Vec::new()) };
        let text = self.file(name)?;
        let read = ns3::flows(&text, topology).map_err(|error| in_file(name.as_ref(), error))?;
        let begin = read.iter().map(|flow| flow.start).min().unwrap_or(Picos::ZERO);
        let flows = read.iter().enumerate().map(|(number, flow)| Flow {
            src: flow.src,
            dst: flow.dst,
            bytes: flow.bytes,
            start: flow.start - begin,
            dscp: flow.priority << 3,
            sport: sport(number),
        });
        Ok(flows.collect())
    }

    fn flow(&self, flow: &FlowTable, topology: &Topology, number: usize) -> Result<Flow, Mistake> {
        let (src, dst) = (self.host(&flow.from, topology)?, self.host(&flow.to, topology)?);
        if src == dst {
            return Err(self.wrong(&flow.to, format!("{} cannot send to itself", flow.to.as_ref())));
        }
        let dscp = self.dscp(&flow.dscp)?;
        let start = match &flow.start {
            Some(start) => self.parse(start, quantity::time)?,
            None => Picos::ZERO,
        };
        let bytes = self.parse(&flow.bytes, quantity::bytes)?;
        Ok(Flow { src, dst, bytes, start, dscp, sport: flow.sport.unwrap_or_else(|| sport(number)) })
    }

    fn change(&self, at: &At, topology: &Topology) -> Result<Change, Mistake> {
        let port = self.link(&at.link, topology)?;
        let becomes = self.parse(&at.change, change::change)?;
        let at = self.parse(&at.time, quantity::time)?;
        Ok(Change { at, port, becomes })
    }

    /// Faults from the beginning on.
    fn fault(&self, table: &FaultTable, topology: &Topology) -> Result<Change, Mistake> {
        let port = self.link(&table.link, topology)?;
        let becomes = self.parse(&table.rules, change::faults)?;
        Ok(Change { at: Picos::ZERO, port, becomes })
    }

    fn link(&self, link: &Spanned<String>, topology: &Topology) -> Result<PortId, Mistake> {
        change::link(link.as_ref(), topology).map_err(|problem| self.wrong(link, problem))
    }

    /// Hosts that are interfaces of this machine: each at most once, and each interface, too.
    fn interfaces(&self, hosts: &[HostTable], topology: &Topology) -> Result<Vec<(Host, String)>, Mistake> {
        let mut interfaces: Vec<(Host, String)> = Vec::new();
        for table in hosts {
            let host = self.host(&table.name, topology)?;
            let interface = table.interface.as_ref();
            if interfaces.iter().any(|(known, _)| *known == host) {
                return Err(self.wrong(&table.name, format!("{} is described twice", table.name.as_ref())));
            }
            if interface.is_empty() || interface.len() > LONGEST_INTERFACE {
                return Err(
                    self.wrong(&table.interface, format!("`{interface}` is not the name of an interface"))
                );
            }
            if interfaces.iter().any(|(_, known)| known == interface) {
                return Err(self.wrong(&table.interface, format!("{interface} is another host's already")));
            }
            interfaces.push((host, interface.clone()));
        }
        Ok(interfaces)
    }

    fn host(&self, name: &Spanned<String>, topology: &Topology) -> Result<Host, Mistake> {
        let node = topology.node(name.as_ref()).map_err(|error| self.wrong(name, error.to_string()))?;
        let host = topology.hosts().iter().position(|&host| host == node);
        host.map(|host| Host(host as u32))
            .ok_or_else(|| self.wrong(name, format!("{} is not a host", name.as_ref())))
    }

    fn dscp(&self, dscp: &Option<Spanned<u8>>) -> Result<u8, Mistake> {
        match dscp {
            Some(dscp) if *dscp.as_ref() > 63 => {
                Err(self.wrong(dscp, format!("{} is not a DSCP: there are 0 to 63", dscp.as_ref())))
            }
            Some(dscp) => Ok(*dscp.as_ref()),
            None => Ok(0),
        }
    }

    /// A value in its own notation.
    fn parse<T>(
        &self,
        value: &Spanned<String>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Mistake> {
        parse(value.as_ref()).map_err(|problem| self.wrong(value, problem))
    }

    fn file(&self, name: &Spanned<String>) -> Result<String, Mistake> {
        let path = self.directory.join(name.as_ref());
        std::fs::read_to_string(&path)
            .map_err(|error| self.wrong(name, format!("{}: {error}", path.display())))
    }

    fn wrong<T>(&self, value: &Spanned<T>, problem: String) -> Mistake {
        mistake(line_of(self.text, &value.span()), problem)
    }
}

/// A UDP source port from the dynamic range, as queue pairs have.
fn sport(flow: usize) -> u16 {
    0xC000 | (flow as u16).wrapping_mul(0x9E37) >> 2
}

fn mistake(line: usize, problem: String) -> Mistake {
    Mistake { file: None, line, problem }
}

fn in_file(file: &str, error: ns3::Error) -> Mistake {
    Mistake { file: Some(file.to_owned()), line: error.line, problem: error.problem }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
