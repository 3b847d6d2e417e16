//! The kernel's version and features.

use std::fs;

use rustix::net::{AddressFamily, SocketType};

use super::finding::Findings;

/// The oldest supported version.
const OLDEST: (u32, u32) = (5, 10);

pub fn check(findings: &mut Findings) {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    match version(&release) {
        Some(version) if version >= OLDEST => findings.ok("kernel", format!("Linux {release}")),
        _ => findings.fail(
            "kernel",
            format!("Linux {release} is older than {}.{}", OLDEST.0, OLDEST.1),
            "use a newer kernel; this one is not tested",
        ),
    }
    check_memory(findings);
    check_xdp(findings, version(&release).unwrap_or_default());
}

fn check_memory(findings: &mut Findings) {
    if softrnic_memory::pages_can_be_populated() {
        findings.ok("memory", "registration faults pages in (MADV_POPULATE)");
    } else {
        findings.warn(
            "memory",
            "no MADV_POPULATE: registration checks memory against /proc/self/maps instead",
            "Linux 5.14 and later have it",
        );
    }
    if softrnic_memory::safe_copies_work() {
        findings.ok("memory", "unmapped memory can be reported as an error (process_vm_readv)");
    } else {
        findings.warn(
            "memory",
            "process_vm_readv is forbidden: on-demand registrations do not work, and unmapping registered memory is \
             fatal",
            "allow it in the sandbox; in a container: --cap-add SYS_PTRACE, or another seccomp profile",
        );
    }
}

/// AF_XDP and the features that it works best with.
fn check_xdp(findings: &mut Findings, version: (u32, u32)) {
    // EPERM, for lack of CAP_NET_RAW, comes only from a kernel that has AF_XDP.
    let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None);
    if socket.is_err_and(|error| error == rustix::io::Errno::AFNOSUPPORT) {
        findings.warn(
            "AF_XDP",
            "the kernel is built without it (CONFIG_XDP_SOCKETS)",
            "only devices over UDP sockets will work",
        );
        return;
    }
    if version >= (6, 6) {
        findings.ok("AF_XDP", "sockets with multi-buffer: IB MTU 4096 fits");
    } else {
        findings.warn(
            "AF_XDP",
            "sockets, but without multi-buffer: frames must fit one buffer, so IB MTU 2048 is the largest",
            "Linux 6.6 and later have it",
        );
    }
    if version < (6, 4) {
        findings.warn("AF_XDP", "`softrnic grant` cannot hand an interface over", "Linux 6.4 and later can");
    }
    if read("/proc/sys/net/core/bpf_jit_enable").as_deref() == Some("0") {
        findings.warn(
            "AF_XDP",
            "the XDP program is interpreted (net.core.bpf_jit_enable is 0)",
            "sysctl -w net.core.bpf_jit_enable=1",
        );
    }
}

/// The contents of a small file, without the end of the line.
pub fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_versions() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(version("5.15.167.4-microsoft-standard-WSL2"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
    }
}
