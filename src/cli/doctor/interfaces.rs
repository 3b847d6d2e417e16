//! The machine's interfaces, and what xdp devices on them would be like.

use std::path::Path;

use softrnic_netdev::{Host, Interface, LinkState};
use softrnic_nic::verbs::Mtu;
#[cfg(feature = "xdp")]
use softrnic_xdp::{XdpLink, XdpOptions};

use super::finding::Findings;

/// The feature with which a card segments UDP datagrams and numbers the segments itself.
const SEGMENTATION: &str = "tx-udp-segmentation";

/// Checks the interfaces in `wanted`, and opens them; if there are none, all that carry Ethernet.
pub fn check(findings: &mut Findings, host: &Host, wanted: &[String]) {
    for name in wanted {
        match host.interface_by_name(name) {
            Some(interface) => {
                check_state(findings, interface);
                open(findings, interface);
            }
            None => {
                findings.fail("interface", format!("there is no {name}"), "`ip link` lists the interfaces")
            }
        }
    }
    let usable = |interface: &&Interface| {
        interface.is_ethernet
            && interface.name != "lo"
            && interface.vlan.is_none()
            && interface.state == LinkState::Up
    };
    let all = host.interfaces().filter(usable).filter(|_| wanted.is_empty());
    for interface in all {
        describe(findings, interface);
        check_offloads(findings, interface);
    }
}

fn check_state(findings: &mut Findings, interface: &Interface) {
    let name = &interface.name;
    match interface.state {
        LinkState::Up => describe(findings, interface),
        LinkState::NoCarrier => {
            findings.fail(
                "interface",
                format!("{name} has no carrier"),
                "plug in the cable, or start the other end",
            );
        }
        LinkState::AdminDown => {
            findings.fail("interface", format!("{name} is down"), format!("sudo ip link set {name} up"));
        }
    }
    check_offloads(findings, interface);
}

fn describe(findings: &mut Findings, interface: &Interface) {
    let Interface { name, mtu, xdp_programs, .. } = interface;
    let active = Mtu::from_netdev_mtu(*mtu).bytes();
    let driver = interface.driver().unwrap_or_else(|_| "unknown driver".into());
    let queues = interface.queues().rx;
    let text = format!("{name} ({driver}, {queues} receive queues): MTU {mtu}, so IB MTU {active}");
    if active < 1024 {
        findings.warn("interface", text, format!("sudo ip link set {name} mtu 1500"));
    } else {
        findings.ok("interface", text);
    }
    if !xdp_programs.is_empty() {
        findings.warn(
            "interface",
            format!("{name} already has an XDP program, which an xdp device does not replace"),
            format!("`ip link show {name}` names it; stop its owner, or `sudo ip link set {name} xdp off`"),
        );
    }
}

/// Cards may number the IPv4 IDs of segments differently from the kernel, and the ICRC covers them.
fn check_offloads(findings: &mut Findings, interface: &Interface) {
    let name = &interface.name;
    let is_card = Path::new("/sys/class/net").join(name).join("device").exists();
    let segments =
        interface.offloads().is_ok_and(|offloads| offloads.iter().any(|name| name == SEGMENTATION));
    if is_card && segments {
        findings.warn(
            "segmentation",
            format!(
                "{name} segments UDP datagrams itself, and may number their IPv4 IDs otherwise than the ICRC expects; \
                 peers would then drop what devices over UDP sockets send by it"
            ),
            format!("sudo ethtool -K {name} {SEGMENTATION} off, or --device 'udp:ADDRESS?segmentation=off'"),
        );
    }
}

#[cfg(feature = "xdp")]
fn open(findings: &mut Findings, interface: &Interface) {
    match XdpLink::open(&interface.name, &XdpOptions::default()) {
        Ok(link) => {
            let mode = link.mode();
            findings.ok("xdp", format!("a device can be opened: {mode}"));
        }
        Err(error) => findings.fail("xdp", format!("{}: {error}", interface.name), ""),
    }
}

#[cfg(not(feature = "xdp"))]
fn open(findings: &mut Findings, interface: &Interface) {
    let name = &interface.name;
    findings.fail("xdp", format!("{name}: built without the feature xdp"), "");
}
