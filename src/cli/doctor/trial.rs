//! Finds out what AF_XDP can do on this kernel, in isolation: between two hosts of a lab.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use serde::Deserialize;

use super::finding::Findings;
use crate::failure::{Doing, Failure, Result};
use crate::lab;
use crate::lab::plan::{Layout, Plan, Topology, namespace};

/// The output of `softrnic devices --json` for a device.
#[derive(Deserialize)]
struct Described {
    mode: Option<String>,
    error: Option<String>,
}

pub fn check(findings: &mut Findings) {
    match open_in_lab() {
        Ok(mode) => findings.ok("AF_XDP", format!("on a virtual interface: {mode}")),
        Err(failure) => findings.warn("AF_XDP", format!("on a virtual interface: {failure}"), ""),
    }
}

fn open_in_lab() -> Result<String> {
    let layout = Layout {
        name: format!("doctor{}", std::process::id()),
        hosts: 2,
        mtu: 4500,
        ipv4: Ipv4Addr::new(10, 77, 0, 0),
        ipv6: Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0, 0),
        queues: 1,
        vlan: None,
        topology: Topology::Cable,
    };
    let plan = Plan::new(layout).map_err(Failure::new)?;
    lab::make(&plan)?;
    let described = describe(&namespace(plan.name(), "h1"));
    lab::unmake(plan.name())?;
    described
}

fn describe(namespace: &str) -> Result<String> {
    let program = std::env::current_exe().doing(|| "cannot find this program's own file".into())?;
    let output = Command::new("ip")
        .args(["netns", "exec", namespace])
        .arg(program)
        .args(["devices", "--json", "--device", "xdp:eth0"])
        .output()
        .doing(|| "cannot run ip (package iproute2)".into())?;
    let devices: Vec<Described> = serde_json::from_slice(&output.stdout)
        .doing(|| format!("the trial failed: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    match devices.into_iter().next() {
        Some(Described { mode: Some(mode), .. }) => Ok(mode),
        Some(Described { error: Some(error), .. }) => Err(Failure::new(error)),
        _ => Err(Failure::new("the trial printed nothing")),
    }
}
