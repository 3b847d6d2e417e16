//! The files of the ns-3 RDMA simulators: `topology.txt` and `flow.txt`.
//!
//! A topology has a line with the numbers of nodes, switches and links, a line with the numbers of the nodes that are switches, then
//! a line for each link: both nodes, rate, delay, and the probability that a packet is lost. The other nodes are hosts; they are
//! named `h` and switches `s`, with the number of the file. Flows have a line with their number, then a line each: source,
//! destination, priority group, destination port, bytes, and the start in seconds.

use std::fmt;

use crate::config::{HostConfig, SwitchConfig};
use crate::picos::Picos;
use crate::topology::{Host, LinkSpec, NodeId, Topology};

/// A flow of such a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The sender.
    pub src: Host,
    /// The receiver.
    pub dst: Host,
    /// Its priority.
    pub priority: u8,
    /// The destination port that ECMP hashes.
    pub dport: u16,
    /// Bytes to be sent.
    pub bytes: u64,
    /// When it starts, by the file's clock.
    pub start: Picos,
}

/// A line that says nothing sensible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Its number, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for Error {}

/// Reads a topology. Hosts and switches are alike but for their links.
///
/// # Errors
/// The first line that is wrong.
pub fn topology(text: &str, host: HostConfig, switch: &SwitchConfig) -> Result<Topology, Error> {
    let mut words = Words::new(text);
    let [nodes, switches, links] =
        [words.number("nodes")?, words.number("switches")?, words.number("links")?];
    let mut is_switch = vec![false; usize::try_from(nodes).unwrap_or(usize::MAX).min(1 << 20)];
    for _ in 0..switches {
        let node: u64 = words.number("a switch's number")?;
        *is_switch.get_mut(node as usize).ok_or_else(|| words.error(format!("there is no node {node}")))? =
            true;
    }
    let mut network = Topology::new();
    for (number, &is_switch) in is_switch.iter().enumerate() {
        let added = match is_switch {
            true => network.add_switch(&format!("s{number}"), switch.clone()).map(drop),
            false => network.add_host(&format!("h{number}"), host).map(drop),
        };
        added.map_err(|error| words.error(error.to_string()))?;
    }
    for _ in 0..links {
        let ends = [words.number::<u64>("a node's number")?, words.number("a node's number")?];
        let rate = words.quantity("a rate", &[("Gbps", 1e9), ("Mbps", 1e6), ("Kbps", 1e3), ("bps", 1.0)])?;
        let delay = words.quantity("a delay", &[("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)])?;
        let frame_error_rate = words.number("an error rate")?;
        if let Some(unknown) = ends.iter().find(|&&end| end >= nodes) {
            return Err(words.error(format!("there is no node {unknown}")));
        }
        let [a, b] = ends.map(|end| NodeId(end as u32));
        let (rate, delay) = (rate.round() as u64, Picos(delay.round() as u64));
        let spec = LinkSpec { rate, delay, frame_error_rate, ..LinkSpec::default() };
        network.link(a, b, spec).map_err(|error| words.error(error.to_string()))?;
    }
    words.end()?;
    Ok(network)
}

/// Reads the flows between hosts of a topology that was read from a file.
///
/// # Errors
/// The first line that is wrong.
pub fn flows(text: &str, network: &Topology) -> Result<Vec<Flow>, Error> {
    let mut words = Words::new(text);
    let count: u64 = words.number("flows")?;
    let mut flows = Vec::new();
    for _ in 0..count {
        let [src, dst] = [words.host(network)?, words.host(network)?];
        let priority: u8 = words.number("a priority group")?;
        if usize::from(priority) >= crate::frame::PRIORITIES {
            return Err(words.error(format!("{priority} is not a priority: there are 0 to 7")));
        }
        let dport = words.number("a port")?;
        let bytes = words.number("a number of bytes")?;
        let start: f64 = words.number("a time in seconds")?;
        if !(0.0..1e6).contains(&start) {
            return Err(words.error(format!("{start} s is no start")));
        }
        flows.push(Flow { src, dst, priority, dport, bytes, start: Picos((start * 1e12).round() as u64) });
    }
    words.end()?;
    Ok(flows)
}

/// The words of a file, with the line of the last.
struct Words<'a> {
    rest: Box<dyn Iterator<Item = (usize, &'a str)> + 'a>,
    line: usize,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Words<'a> {
        let words = text
            .lines()
            .enumerate()
            .flat_map(|(number, line)| line.split_whitespace().map(move |word| (number + 1, word)));
        Words { rest: Box::new(words), line: 1 }
    }

    fn next(&mut self, what: &str) -> Result<&'a str, Error> {
        match self.rest.next() {
            Some((line, word)) => {
                self.line = line;
                Ok(word)
            }
            None => Err(self.error(format!("the file ends where {what} should be"))),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, Error> {
        let word = self.next(what)?;
        word.parse().map_err(|_| self.error(format!("`{word}` should be {what}")))
    }

    /// A number with one of the units.
    fn quantity(&mut self, what: &str, units: &[(&str, f64)]) -> Result<f64, Error> {
        let word = self.next(what)?;
        let with = units.iter().find_map(|(unit, factor)| {
            let number: f64 = word.strip_suffix(unit)?.parse().ok()?;
            (number >= 0.0 && number.is_finite()).then_some(number * factor)
        });
        with.ok_or_else(|| {
            let names: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
            self.error(format!("`{word}` should be {what} in {}", names.join(", ")))
        })
    }

    fn host(&mut self, network: &Topology) -> Result<Host, Error> {
        let number: u32 = self.number("a host's number")?;
        let place = network.hosts().iter().position(|&node| node == NodeId(number));
        place
            .map(|place| Host(place as u32))
            .ok_or_else(|| self.error(format!("node {number} is not a host")))
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.rest.next() {
            Some((line, word)) => {
                Err(Error { line, problem: format!("`{word}` is more than the first line announces") })
            }
            None => Ok(()),
        }
    }

    fn error(&self, problem: String) -> Error {
        Error { line: self.line, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = "4 1 3\n3\n0 3 100Gbps 1us 0\n1 3 25Gbps 0.5us 0.001\n2 3 100Gbps 1us 0\n";

    fn read(text: &str) -> Result<Topology, Error> {
        topology(text, HostConfig::default(), &SwitchConfig::default())
    }

    #[test]
    fn a_topology_and_its_flows() {
        let network = read(TOPOLOGY).expect("a topology");
        assert_eq!(network.hosts().len(), 3);
        let spec = network.links()[1].spec;
        assert_eq!((spec.rate, spec.delay), (25_000_000_000, Picos::from_nanos(500)));
        assert_eq!(spec.frame_error_rate, 0.001);
        let read =
            flows("2\n0 2 3 100 1000 2.000000000\n1 2 3 101 5 2.000200000\n", &network).expect("flows");
        assert_eq!(read[1].src, Host(1));
        assert_eq!((read[1].dport, read[1].bytes), (101, 5));
        assert_eq!(read[1].start - read[0].start, Picos::from_micros(200));
    }

    #[test]
    fn each_mistake_has_its_line() {
        for (text, line, problem) in [
            ("4 1 3\n3\n0 3 100Gbps 1us 0\n1 9 25Gbps 1us 0\n2 3 1Gbps 1us 0", 4, "there is no node 9"),
            ("4 1 3\n3\n0 3 100 1us 0\n", 3, "`100` should be a rate in Gbps, Mbps, Kbps, bps"),
            ("4 1 1\n7\n", 2, "there is no node 7"),
            ("2 1 1\n1\n0 1 1Gbps 1us 0\n5", 4, "`5` is more than the first line announces"),
            ("2 1 1\n1\n0 1 1Gbps", 3, "the file ends where a delay should be"),
            ("2 1 1\n1\n1 1 1Gbps 1us 0", 3, "a link leads from s1 to itself"),
            ("2 1 1\n1\n0 1 0Gbps 1us 0", 3, "the link between h0 and s1 has a rate of 0"),
            ("two", 1, "`two` should be nodes"),
        ] {
            assert_eq!(read(text).err(), Some(Error { line, problem: problem.to_owned() }), "{text}");
        }
        let network = read(TOPOLOGY).expect("a topology");
        let error = flows("1\n0 3 3 100 1000 2.0\n", &network).expect_err("node 3 is a switch");
        assert_eq!(error.to_string(), "line 2: node 3 is not a host");
        assert!(flows("1\n0 1 9 100 1000 2.0\n", &network).is_err());
    }
}
