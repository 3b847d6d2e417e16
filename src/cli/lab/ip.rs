//! Runs `ip` of iproute2, which can do everything that a lab needs.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use super::plan::{self, Step};
use crate::failure::{Doing, Failure, Result};

/// Where `ip netns` keeps its namespaces.
const NAMESPACES: &str = "/run/netns";

/// Executes one step.
pub fn take(step: &Step) -> Result {
    match step {
        Step::Namespace(name) => run(&["netns", "add", name]).map(drop),
        Step::Sysctl { namespace, key, value } => {
            let script = format!("echo {value} >/proc/sys/{key}");
            run(&["netns", "exec", namespace, "sh", "-c", &script]).map(drop)
        }
        Step::Ip { namespace, commands } => batch(namespace, commands),
    }
}

/// The namespaces of a lab, sorted by name.
pub fn namespaces(lab: &str) -> Result<Vec<String>> {
    let prefix = plan::namespace(lab, "");
    let entries = match Path::new(NAMESPACES).read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::new(format!("cannot read {NAMESPACES}: {error}"))),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&prefix)).collect();
    names.sort();
    Ok(names)
}

/// Deletes a namespace; it does not matter if it is already gone.
pub fn delete(namespace: &str) -> Result {
    run(&["netns", "delete", namespace])
        .map(drop)
        .or_else(|failure| if Path::new(NAMESPACES).join(namespace).exists() { Err(failure) } else { Ok(()) })
}

/// The interfaces of a namespace with addresses that are not local to the machine, and these addresses.
pub fn addresses(namespace: &str) -> Result<Vec<(String, Vec<IpAddr>)>> {
    #[derive(Deserialize)]
    struct Interface {
        ifname: String,
        addr_info: Vec<Address>,
    }
    #[derive(Deserialize)]
    struct Address {
        scope: String,
        local: Option<IpAddr>,
    }
    let text = run(&["-n", namespace, "-j", "address", "show"])?;
    let interfaces: Vec<Interface> = serde_json::from_str(&text).doing(|| format!("ip said {text:?}"))?;
    let global = |address: &Address| address.local.filter(|_| address.scope == "global");
    Ok(interfaces
        .into_iter()
        .map(|interface| {
            (interface.ifname, interface.addr_info.iter().filter_map(global).collect::<Vec<_>>())
        })
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect())
}

fn batch(namespace: &str, commands: &[String]) -> Result {
    let spawned = Command::new("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(not_started)?;
    if let Some(mut input) = child.stdin.take() {
        // If it does not read, its status says why.
        let _ = input.write_all((commands.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output()?;
    check(&format!("in {namespace}"), &output)
}

fn run(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().map_err(not_started)?;
    check(&format!("ip {}", arguments.join(" ")), &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn not_started(error: std::io::Error) -> Failure {
    Failure::new(format!("cannot run ip (package iproute2): {error}"))
}

fn check(what: &str, output: &Output) -> Result {
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim();
    if errors.contains("Operation not permitted") || errors.contains("Permission denied") {
        return Err(Failure::new(
            "a lab is made of network namespaces, which takes root (CAP_SYS_ADMIN and CAP_NET_ADMIN): use sudo",
        ));
    }
    let hint = match errors.contains("Unknown device type") {
        true => "; this kernel lacks that kind of interface (for vlan: CONFIG_VLAN_8021Q)",
        false => "",
    };
    Err(Failure::new(format!("{what}: {errors}{hint}")))
}
