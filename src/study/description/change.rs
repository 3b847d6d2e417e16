//! Changes of links, as they are written in a description and on the command line.

use softrnic_fabric::{LinkChange, LinkId, PortId, Topology};
use softrnic_link::fault::FaultSpec;

use super::{Becomes, quantity};

/// The changes that there are, for messages.
const KNOWN: &str = "down, up, blackhole, `rate 25Gbps`, `ber 1e-9`, `fault drop:op=ack:nth=3`, `fault off`";

/// The link between two nodes, `leaf0-spine1`: its port at the first of them.
///
/// # Errors
/// There is no such link: why.
pub fn link(text: &str, topology: &Topology) -> Result<PortId, String> {
    let (a, b) = text
        .split_once('-')
        .ok_or_else(|| format!("`{text}` names no link: write both ends, as in leaf0-spine1"))?;
    let node = |name| topology.node(name).map_err(|error| error.to_string());
    let ends = [node(a)?, node(b)?];
    let found = topology.links().iter().position(|link| link.ends == ends || link.ends == [ends[1], ends[0]]);
    let link = found.ok_or_else(|| format!("no link joins {a} and {b}"))?;
    let [even, odd] = LinkId(link as u32).ports();
    Ok(if topology.links()[link].ends == ends { even } else { odd })
}

/// What becomes of a link: `down`, `up`, `blackhole`, `rate 25Gbps`, `ber 1e-9`, `fault drop:op=ack:nth=3`.
///
/// # Errors
/// It is no change: why.
pub fn change(text: &str) -> Result<Becomes, String> {
    let change = match text.split_once(' ') {
        None if text == "down" => Ok(LinkChange::Down),
        None if text == "up" => Ok(LinkChange::Up),
        None if text == "blackhole" => Ok(LinkChange::BlackHole(true)),
        Some(("rate", rate)) => quantity::rate(rate).map(LinkChange::Rate),
        Some(("ber", rate)) => quantity::probability(rate).map(LinkChange::BitErrorRate),
        Some(("fault", "off")) => return Ok(Becomes::Faulty(FaultSpec::default())),
        Some(("fault", rules)) => return faults(rules),
        _ => Err(format!("`{text}` is not a change: {KNOWN}")),
    };
    change.map(Becomes::Link)
}

/// Faults on a link, in the language of `--fault`.
///
/// # Errors
/// It is none: why.
pub fn faults(text: &str) -> Result<Becomes, String> {
    let spec: FaultSpec = text.parse().map_err(|error| format!("{error}"))?;
    if !spec.port.is_empty() || spec.rules.iter().any(|rule| rule.device.is_some()) {
        return Err(format!("`{text}`: a link has no device and no port of one; its changes are {KNOWN}"));
    }
    if spec.rules.is_empty() {
        return Err(format!("`{text}` injects nothing: write drop:op=ack:nth=3, or leave it out"));
    }
    Ok(Becomes::Faulty(spec))
}
