//! The capabilities that opening an interface with AF_XDP takes.

use rustix::thread::{CapabilitySet, capabilities};

/// All of them; CAP_SYS_ADMIN replaces the last two.
const NEEDED: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
];

/// Their names.
pub fn needed() -> String {
    NEEDED.map(|(_, name)| name).join(", ")
}

/// Those that this process has, of all that there are.
///
/// # Errors
/// The kernel does not say.
pub fn own() -> std::io::Result<CapabilitySet> {
    Ok(capabilities(None)?.effective)
}

/// The names of those that are not among these.
pub fn missing(has: CapabilitySet) -> Vec<&'static str> {
    let admin = has.contains(CapabilitySet::SYS_ADMIN);
    let stands_in = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let lacks = |capability| !(has.contains(capability) || admin && stands_in.contains(capability));
    NEEDED.iter().filter(|(capability, _)| lacks(*capability)).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_sys_admin_includes_all_but_the_network_capabilities() {
        let network = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN;
        assert_eq!(missing(network), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing(network | CapabilitySet::SYS_ADMIN), [""; 0]);
        assert_eq!(missing(CapabilitySet::SYS_ADMIN), ["CAP_NET_RAW", "CAP_NET_ADMIN"]);
    }
}
