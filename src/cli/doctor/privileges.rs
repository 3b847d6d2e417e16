//! The privileges needed to open an interface with AF_XDP.

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::finding::{Findings, Level};
use super::kernel;
use crate::capabilities;

/// Packet memory of one queue with the default options at an MTU of 4500: 2048 chunks of 4 KiB for receiving, and 512
/// slots of two such chunks.
const PACKET_MEMORY: u64 = (2048 + 2 * 512) * 4096;

/// Returns whether the process has the capabilities. Missing ones are a failure if `wanted`.
pub fn check(findings: &mut Findings, wanted: bool) -> bool {
    let level = if wanted { Level::Fail } else { Level::Warn };
    let has = match capabilities::own() {
        Ok(own) => own,
        Err(error) => {
            findings.add(level, "privileges", format!("the capabilities cannot be read: {error}"), "");
            return false;
        }
    };
    let (missing, all) = (capabilities::missing(has), capabilities::needed());
    let inside = user_namespace();
    if !missing.is_empty() {
        findings.add(
            level,
            "privileges",
            format!("xdp devices need {all}; missing: {}", missing.join(", ")),
            "let `sudo softrnic grant --interface … -- CMD` open the interface for you, or `sudo setcap \
             cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep PROGRAM`",
        );
    } else if inside {
        findings.add(
            level,
            "privileges",
            "this is a user namespace, whose capabilities do not count for loading XDP programs",
            "run `softrnic grant --interface … --socket PATH` outside, in the same network namespace",
        );
    } else {
        findings.ok("privileges", format!("xdp devices need {all}: all present"));
    }
    check_locked_memory(findings, has);
    missing.is_empty() && !inside
}

fn check_locked_memory(findings: &mut Findings, has: CapabilitySet) {
    if has.contains(CapabilitySet::IPC_LOCK) {
        return;
    }
    let text = |bytes: u64| format!("{} KiB", bytes >> 10);
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < PACKET_MEMORY => findings.warn(
            "privileges",
            format!(
                "locked memory is limited to {} (ulimit -l): an xdp device will make do with less than the {} that it \
                 wants for each queue",
                text(limit),
                text(PACKET_MEMORY)
            ),
            "raise the limit (`ulimit -l`, memlock in limits.conf, --ulimit memlock=-1 of a container)",
        ),
        limit => {
            let limit = limit.map_or("unlimited".into(), text);
            findings.ok("privileges", format!("locked memory for packets: {limit} (ulimit -l)"));
        }
    }
}

/// Whether this is not the initial user namespace.
fn user_namespace() -> bool {
    let map = kernel::read("/proc/self/uid_map").unwrap_or_default();
    let numbers: Vec<&str> = map.split_whitespace().collect();
    !map.is_empty() && numbers != ["0", "0", "4294967295"]
}
