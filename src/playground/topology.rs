//! The nodes and links of a setup.

use softrnic_fabric::{
    Ecn, HostConfig, LinkSpec, NodeId, PRIORITIES, Pfc, Picos, SwitchConfig, Topology, TopologyError,
};

use crate::action::{Network, Setup};

/// What Ethernet adds to a packet: header, FCS, preamble and gap.
pub const ETHERNET: u32 = 38;
/// What headers and Ethernet add to the path MTU, at most.
const HEADERS: u32 = 128 + ETHERNET;
/// Name of a switch that is alone.
pub const SWITCH: &str = "switch";

/// The nodes and links, and how many links a packet takes.
pub fn topology(setup: &Setup) -> Result<(Topology, u64), TopologyError> {
    let mut topology = Topology::new();
    let host = HostConfig { queue: u64::MAX, pfc: pfc(setup), ..HostConfig::default() };
    let nics: Vec<NodeId> = ["A", "B", "C"][..setup.sides]
        .iter()
        .map(|name| topology.add_host(name, host).map(|host| topology.node_of(host)))
        .collect::<Result<_, _>>()?;
    if setup.network != Network::Spines {
        let switch = topology.add_switch(SWITCH, switch(setup))?;
        let link = link(setup, 2);
        for &nic in &nics {
            topology.link(nic, switch, link)?;
        }
        return Ok((topology, 2));
    }
    let [senders, receivers, spine_1, spine_2] =
        ["leaf 1", "leaf 2", "spine 1", "spine 2"].map(|name| topology.add_switch(name, switch(setup)));
    let (senders, receivers) = (senders?, receivers?);
    let link = link(setup, 4);
    for (number, &nic) in nics.iter().enumerate() {
        match number {
            // Room for what both spines bring.
            1 => topology.link(nic, receivers, LinkSpec { rate: 2 * link.rate, ..link })?,
            _ => topology.link(nic, senders, link)?,
        };
    }
    for spine in [spine_1?, spine_2?] {
        topology.link(senders, spine, link)?;
        topology.link(spine, receivers, link)?;
    }
    Ok((topology, 4))
}

/// One of several links that a packet takes one after the other.
fn link(setup: &Setup, hops: u64) -> LinkSpec {
    LinkSpec {
        rate: bandwidth(setup),
        delay: Picos::from_nanos(setup.delay / hops),
        mtu_bytes: setup.mtu + HEADERS,
        ..LinkSpec::default()
    }
}

fn switch(setup: &Setup) -> SwitchConfig {
    let mark = Ecn { kmin: setup.mark_at, kmax: setup.mark_at, pmax: 1.0 };
    let usual = SwitchConfig::default();
    SwitchConfig {
        ecn: [(setup.mark_at > 0).then_some(mark); PRIORITIES],
        buffer: if setup.buffer > 0 { setup.buffer } else { usual.buffer },
        // Neighbours share what there is, and one port may fill nearly all.
        ingress_alpha_log2: 0,
        egress_alpha_log2: 3,
        pfc: pfc(setup),
        ..usual
    }
}

/// Flow control of the priority that all data has.
fn pfc(setup: &Setup) -> Pfc {
    Pfc { lossless: u8::from(setup.pfc), ..Pfc::default() }
}

/// Bits per second of most links.
pub fn bandwidth(setup: &Setup) -> u64 {
    setup.bandwidth.max(1_000_000)
}
