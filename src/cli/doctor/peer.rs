//! The path to a peer.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use softrnic_netdev::{Host, Neighbour, Query, Resolution};
use softrnic_nic::verbs::Mtu;
use softrnic_wire::Time;

use super::finding::Findings;

const ROCE_PORT: u16 = 4791;
/// The kernel asks for a neighbour three times, a second apart.
const NEIGHBOUR: Duration = Duration::from_secs(3);
/// How long a refusal may take to arrive.
const REFUSAL: Duration = Duration::from_millis(500);

pub fn check(findings: &mut Findings, host: &mut Host, peer: IpAddr) {
    match resolve(host, peer) {
        Ok(resolution) if resolution.local => {
            findings.ok("peer", format!("{peer} is an address of this machine"));
            check_port(findings, peer);
        }
        Ok(resolution) => {
            if check_neighbour(findings, host, peer, &resolution) {
                check_port(findings, peer);
            }
        }
        Err(reason) => {
            findings.fail("peer", format!("{peer}: {reason}"), "`ip route get` shows what is missing")
        }
    }
}

/// Whether the next hop answers.
fn check_neighbour(findings: &mut Findings, host: &mut Host, peer: IpAddr, first: &Resolution) -> bool {
    let start = Instant::now();
    let mut resolution = first.clone();
    while !matches!(resolution.neighbour, Neighbour::Known(_)) && start.elapsed() < NEIGHBOUR {
        std::thread::sleep(Duration::from_millis(20));
        // What changed shows in the next answer, as does an error.
        let _ = host.poll(&mut |_| {});
        match resolve(host, peer) {
            Ok(now) => resolution = now,
            Err(reason) => {
                findings.fail("peer", format!("{peer}: {reason}"), "");
                return false;
            }
        }
    }
    let interface = host.interface(resolution.ifindex).map_or("?", |interface| interface.name.as_str());
    let by = match resolution.next_hop == peer {
        true => format!("by {interface} from {}", resolution.src),
        false => format!("by {interface} from {}, through {}", resolution.src, resolution.next_hop),
    };
    let Neighbour::Known(mac) = resolution.neighbour else {
        findings.fail(
            "peer",
            format!("{peer}, {by}: {} does not answer", resolution.next_hop),
            "is it up, and are both in the same network? `ip neigh` and `ping` show more",
        );
        return false;
    };
    let Resolution { mtu, .. } = resolution;
    let active = Mtu::from_netdev_mtu(mtu).bytes();
    findings
        .ok("peer", format!("{peer}, {by}: hardware address {mac}, MTU {mtu}, so IB MTU {active} at most"));
    true
}

/// Whether the peer refuses datagrams on the RoCEv2 port. A datagram that is not RoCEv2 does no harm: it is dropped.
fn check_port(findings: &mut Findings, peer: IpAddr) {
    match is_refused(peer) {
        Ok(false) => findings.ok(
            "peer",
            format!("{peer} does not refuse UDP port {ROCE_PORT}: something listens there, or drops datagrams silently"),
        ),
        Ok(true) => findings.fail(
            "peer",
            format!("{peer} refuses UDP port {ROCE_PORT}: nothing listens there"),
            "start the peer's device (rxe: `rdma link add rxe0 type rxe netdev …`), or open its firewall",
        ),
        Err(error) => findings.fail("peer", format!("{peer}: a datagram cannot be sent: {error}"), ""),
    }
}

fn is_refused(peer: IpAddr) -> std::io::Result<bool> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((peer, ROCE_PORT))?;
    socket.set_read_timeout(Some(REFUSAL))?;
    socket.send(&[0; 4])?;
    match socket.recv(&mut [0; 1]) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Ok(false),
    }
}

fn resolve(host: &mut Host, peer: IpAddr) -> Result<Resolution, String> {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // Later than zero, which means that nothing has been asked yet.
    let now = START.get_or_init(Instant::now).elapsed() + Duration::from_secs(1);
    let query = Query { dst: peer, src: None, oif: None };
    host.resolve(Time::from_nanos(now.as_nanos() as u64), &query).map_err(|error| error.to_string())
}
