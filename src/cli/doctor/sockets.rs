//! Devices over UDP sockets.

use softrnic_link::Link;
use softrnic_udp::{UdpLink, UdpOptions};

use super::finding::Findings;
use super::kernel;

/// A thousand datagrams of IB MTU 4096 that arrive in one burst and have to wait.
const WANTED_RECEIVE_BUFFER: usize = 4 << 20;

pub fn check(findings: &mut Findings) {
    match UdpLink::open(UdpOptions::default()) {
        Ok(link) => {
            let capabilities = link.capabilities();
            findings
                .ok("udp", format!("a device can be opened at {}: {}", link.address(), capabilities.mode));
            if capabilities.segments == 1 {
                findings.warn(
                    "udp",
                    "the kernel does not segment UDP datagrams (UDP_SEGMENT): each costs as much as a system call",
                    "Linux 4.18 and later do; a sandbox may forbid it",
                );
            }
        }
        Err(error) => findings.fail("udp", error.to_string(), ""),
    }
    let limit = kernel::read("/proc/sys/net/core/rmem_max").and_then(|text| text.parse::<usize>().ok());
    match limit {
        Some(limit) if limit < WANTED_RECEIVE_BUFFER => findings.warn(
            "udp",
            format!(
                "receive buffers are limited to {limit} bytes (net.core.rmem_max): fast peers are slowed down"
            ),
            format!("sudo sysctl -w net.core.rmem_max={WANTED_RECEIVE_BUFFER}"),
        ),
        Some(limit) => {
            findings.ok("udp", format!("receive buffers may be {limit} bytes long (net.core.rmem_max)"))
        }
        // Network namespaces of older kernels do not show it.
        None => {}
    }
}
