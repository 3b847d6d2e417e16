//! Commands of `softrnic fabric ctl`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use serde::Serialize;
use softrnic_fabric::{Host, LinkChange, LinkId, NodeId, NodeKind, Picos, PortId};
use softrnic_fabric_link::rendezvous::{self, Answer, Message};
use softrnic_study::{Becomes, Change, PortResult, change, link};

use crate::live::{FIRST_PEER, Live, Peer, lossless};

/// How long a link that flaps is down, unless the command says otherwise.
const FLAP: Picos = Picos::from_micros(100_000);

const KNOWN: &str = "show, `link A-B CHANGE`, `host H down`, `host H up`, `pause-storm H`, `switch S down`, `switch S up`, down";

/// What `show` says.
#[derive(Serialize)]
struct State {
    name: String,
    time_ns: f64,
    /// A second of the fabric takes so many of the clock.
    slow: u32,
    /// How late frames were delivered, in nanoseconds.
    late_mean_ns: u64,
    late_most_ns: u64,
    /// Frames for nobody.
    astray: u64,
    hosts: Vec<HostInfo>,
    links_down: Vec<String>,
    ports: Vec<PortResult>,
}

#[derive(Serialize)]
struct HostInfo {
    host: String,
    address: String,
    up: bool,
    processes: usize,
    /// The interface that it is.
    interface: Option<String>,
    /// Packets that a process did not read in time, and frames that an interface could not carry.
    overruns: u64,
}

impl Live {
    /// Answers a command. What does not fit in the stream follows when the other side reads.
    pub(crate) fn answer(&mut self, peer: usize, stream: OwnedFd, command: &str) {
        match self.execute(command) {
            Ok(text) => self.go_on_answering(peer, stream, Answer::new(text)),
            Err(why) => {
                let _ = rendezvous::say(&stream, &Message::Refusal(why));
                let _ = epoll::delete(&self.epoll, &stream);
            }
        }
    }

    pub(crate) fn go_on_answering(&mut self, peer: usize, stream: OwnedFd, mut answer: Answer) {
        let token = epoll::EventData::new_u64(FIRST_PEER + peer as u64);
        if answer.go_on(&stream) == Ok(false)
            && epoll::modify(&self.epoll, &stream, token, epoll::EventFlags::OUT).is_ok()
        {
            self.peers[peer] = Some(Peer::Asker(stream, answer));
            return;
        }
        let _ = epoll::delete(&self.epoll, &stream);
    }

    /// Carries out a command, and returns the answer.
    fn execute(&mut self, command: &str) -> Result<String, String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["show"] => serde_json::to_string(&self.state()).map_err(|error| error.to_string()),
            ["down"] => {
                self.ends = true;
                Ok(String::new())
            }
            ["link", ends, rest @ ..] => {
                let port = link(ends, self.fabric.topology())?;
                self.change_link(port, rest)?;
                Ok(String::new())
            }
            ["host", host, what @ ("down" | "up")] => {
                let host = self.find_host(host)?;
                self.change_node(self.fabric.topology().node_of(host), what)
            }
            ["pause-storm", host, what @ ..] => {
                let host = self.find_host(host)?;
                self.storm(host, what)
            }
            ["switch", switch, what @ ("down" | "up")] => {
                let topology = self.fabric.topology();
                let node = topology.node(switch).map_err(|error| error.to_string())?;
                match &topology.nodes()[node.0 as usize].kind {
                    NodeKind::Switch(_) => self.change_node(node, what),
                    NodeKind::Host(_) => Err(format!("{switch} is not a switch")),
                }
            }
            _ => Err(format!("`{command}` is not a command: {KNOWN}")),
        }
    }

    /// A host pauses priorities whatever happens: those that are named, or all that are lossless.
    fn storm(&mut self, host: Host, words: &[&str]) -> Result<String, String> {
        let lossless = lossless(&self.fabric, host);
        if lossless == 0 {
            return Err(
                "no priority is lossless here, so nobody obeys a pause: `pfc` of [switch] names some".into(),
            );
        }
        let storm = match words {
            [] => lossless,
            ["off"] => 0,
            _ => words.iter().try_fold(0, |storm, word| match word.parse::<u8>() {
                Ok(priority @ 0..8) if lossless >> priority & 1 != 0 => Ok(storm | 1 << priority),
                Ok(0..8) => Err(format!("priority {word} is not lossless here")),
                _ => Err(format!("`{word}` is not a priority: 0 to 7, or `off`")),
            })?,
        };
        self.hosts[host.0 as usize].storm = storm;
        Ok(String::new())
    }

    /// All links of a node change.
    fn change_node(&mut self, node: NodeId, what: &str) -> Result<String, String> {
        let links = self.fabric.topology().links().iter().enumerate();
        let own: Vec<usize> =
            links.filter(|(_, link)| link.ends.contains(&node)).map(|(link, _)| link).collect();
        for link in own {
            self.change_link(LinkId(link as u32).ports()[0], &[what])?;
        }
        Ok(String::new())
    }

    fn change_link(&mut self, port: PortId, words: &[&str]) -> Result<(), String> {
        match words {
            ["flap"] => {
                self.change(port, &Becomes::Link(LinkChange::Down));
                let up = Change { at: self.now + FLAP, port, becomes: Becomes::Link(LinkChange::Up) };
                let place = self.changes.partition_point(|change| change.at <= up.at);
                self.changes.insert(place, up);
            }
            ["up"] => {
                self.change(port, &Becomes::Link(LinkChange::BlackHole(false)));
                self.change(port, &Becomes::Link(LinkChange::Up));
            }
            _ => {
                let becomes = change(&words.join(" "))?;
                self.change(port, &becomes);
            }
        }
        Ok(())
    }

    fn state(&self) -> State {
        let topology = self.fabric.topology();
        let hosts = self.hosts.iter().map(|state| HostInfo {
            host: self.host_name(state.host).to_owned(),
            address: state.address.to_string(),
            up: self.is_up(state.host),
            processes: state.processes(),
            interface: self.interface_of(state.host).map(str::to_owned),
            overruns: self.overruns(state),
        });
        let links = (0..topology.links().len() as u32).map(LinkId);
        let down = links.filter(|link| !self.fabric.is_up(*link));
        State {
            name: self.name.clone(),
            time_ns: self.now.0 as f64 / 1000.0,
            slow: self.slow,
            late_mean_ns: self.lateness.mean().as_nanos() as u64,
            late_most_ns: self.lateness.most().as_nanos() as u64,
            astray: self.astray,
            hosts: hosts.collect(),
            links_down: down.map(|link| topology.port_name(link.ports()[0])).collect(),
            ports: PortResult::all(&self.fabric),
        }
    }

    /// How much of its time has passed.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.now.0 / 1000)
    }

    /// What each port has counted.
    pub fn ports(&self) -> Vec<PortResult> {
        PortResult::all(&self.fabric)
    }

    /// How late deliveries were.
    pub fn lateness(&self) -> crate::Lateness {
        self.lateness
    }
}
