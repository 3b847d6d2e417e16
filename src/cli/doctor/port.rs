//! Which process has UDP port 4791.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::finding::Findings;
use super::kernel;

const ROCE_PORT: u16 = 4791;

/// A UDP socket on the port.
#[derive(PartialEq, Eq, Debug)]
struct Socket {
    address: IpAddr,
    inode: u64,
}

pub fn check(findings: &mut Findings) {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<Socket> = tables.iter().flat_map(|table| table.lines().filter_map(socket)).collect();
    let rxe = Path::new("/sys/module/rdma_rxe").exists();
    let owners = owners();
    let mut devices = 0;
    for (address, inodes) in by_address(&sockets) {
        // A shared address has many sockets, and each process has all of them.
        let known: BTreeSet<&str> =
            inodes.iter().filter_map(|inode| owners.get(inode)).flatten().map(String::as_str).collect();
        let owner = match known.is_empty() {
            false => known.into_iter().collect::<Vec<_>>().join(", "),
            true if rxe => "the kernel's rxe (rdma_rxe)".into(),
            true => "the kernel, or a process of another user".into(),
        };
        if address.is_unspecified() {
            findings.fail(
                "port 4791",
                format!("{owner} has it on all addresses, so no device over UDP sockets can be opened"),
                match rxe {
                    true => "`sudo rdma link` lists rxe's devices and `sudo rdma link delete NAME` removes one, or \
                             `sudo modprobe -r rdma_rxe`",
                    false => "stop it",
                },
            );
        } else if address.is_loopback() {
            devices += 1;
        } else if inodes.len() > 1 {
            findings.ok("port 4791", format!("{address} is shared by {owner}; others of that user may join"));
        } else {
            findings.warn(
                "port 4791",
                format!("{owner} has it on {address}"),
                "use another address, or stop it",
            );
        }
    }
    if rxe && sockets.is_empty() {
        findings.warn(
            "port 4791",
            "rdma_rxe is loaded, and takes the port as soon as it has a device",
            "`sudo modprobe -r rdma_rxe`, unless it is the peer in another network namespace",
        );
    }
    if sockets.iter().all(|socket| socket.address.is_loopback()) {
        match devices {
            0 => findings.ok("port 4791", "free on all addresses"),
            _ => findings
                .ok("port 4791", format!("free, except on {devices} loopback addresses of other processes")),
        }
    }
}

/// The sockets of each address.
fn by_address(sockets: &[Socket]) -> BTreeMap<IpAddr, Vec<u64>> {
    let mut found: BTreeMap<IpAddr, Vec<u64>> = BTreeMap::new();
    for Socket { address, inode } in sockets {
        found.entry(*address).or_default().push(*inode);
    }
    found
}

/// The socket in a line of `/proc/net/udp`, if it is on the port.
fn socket(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    if u16::from_str_radix(port, 16) != Ok(ROCE_PORT) {
        return None;
    }
    // Words in memory order.
    let word =
        |at: usize| u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: Vec<u8> = words.concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
        _ => return None,
    };
    Some(Socket { address, inode: fields.get(9)?.parse().ok()? })
}

/// The processes that hold sockets, by the sockets' inodes, as far as they are visible.
fn owners() -> HashMap<u64, Vec<String>> {
    let mut owners: HashMap<u64, Vec<String>> = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let descriptors = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        for descriptor in descriptors {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            let inode = target
                .to_str()
                .and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                let name = kernel::read(&format!("/proc/{pid}/comm")).unwrap_or_default();
                owners.entry(inode).or_default().push(format!("process {pid} ({name})"));
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_on_the_port_are_found() {
        let line =
            "  12: 0500000A:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  0   0 4242 2 0 0";
        assert_eq!(socket(line), Some(Socket { address: Ipv4Addr::new(10, 0, 0, 5).into(), inode: 4242 }));
        assert_eq!(socket(&line.replace("12B7", "12B8")), None);
        let line = "1: 000077FD000000000000000001000000:12B7 0:0 07 0:0 00:0 0 0 0 77 2 0 0";
        let address: IpAddr = "fd77::1".parse().expect("address");
        assert_eq!(socket(line), Some(Socket { address, inode: 77 }));
        assert_eq!(socket("  sl  local_address rem_address   st tx_queue rx_queue"), None);
    }

    #[test]
    fn our_own_sockets_are_ours() {
        let listener = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
        let own = format!("process {} ", std::process::id());
        assert!(owners().values().flatten().any(|owner| owner.starts_with(&own)));
        drop(listener);
    }
}
