"""The wire: two network namespaces and what joins them.

NAME-wire holds a bridge, one end of a veth pair and a tap per guest; NAME-nic holds the other end as
eth0 and is where SoftRNIC runs. Both addresses of every end are usable at once: nothing waits for
duplicate address detection. As all of it is in namespaces, the addresses are the same on every wire.
"""

from common import Failure, run

NIC = 1  # the host number of SoftRNIC's side; guests count from 2
MAX_HOSTS = 200


def namespaces(net):
    """The names of (the namespace for SoftRNIC, the namespace of the wire)."""
    return f"{net}-nic", f"{net}-wire"


def addresses(host):
    """What belongs to a host number."""
    return {
        "mac": f"52:54:00:91:00:{host:02x}",
        "ipv4": f"10.91.0.{host}",
        "ipv6": f"fd00:4791::{host:x}",
        "link_local": f"fe80::5054:ff:fe91:{host:x}",
    }


def create(net, mtu):
    """Make both namespaces and join them; on failure nothing stays."""
    nic, wire = namespaces(net)
    ours = addresses(NIC)
    try:
        run("ip", "netns", "add", wire)
        run("ip", "netns", "add", nic)
        # Multicast must reach every host, for neighbour discovery and for RoCE multicast, queries or not.
        _ip(
            wire,
            f"link add br0 mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            "link set br0 addrgenmode none up",
            f"link add veth0 mtu {mtu} type veth peer name eth0 mtu {mtu} address {ours['mac']} netns {nic}",
            "link set veth0 addrgenmode none",
            "link set veth0 master br0 up",
        )
        _ip(
            nic,
            "link set lo up",
            "link set eth0 addrgenmode none up",
            f"addr add {ours['ipv4']}/24 dev eth0",
            f"addr add {ours['ipv6']}/64 dev eth0 nodad",
            f"addr add {ours['link_local']}/64 dev eth0 nodad",
        )
    except BaseException:
        destroy(net)
        raise


def add_tap(net, host, mtu):
    """A tap for a guest, on the wire; return its name."""
    tap = f"tap{host}"
    _ip(
        namespaces(net)[1],
        f"tuntap add dev {tap} mode tap",
        f"link set {tap} addrgenmode none",
        f"link set {tap} mtu {mtu} master br0 up",
    )
    return tap


def remove_tap(net, host):
    if exists(net):
        try:
            _ip(namespaces(net)[1], f"link del tap{host}")
        except Failure:
            pass  # QEMU never came to use it, or the wire was taken apart by hand


def mtu(net):
    """The MTU a wire was made with."""
    shown = run("ip", "-n", namespaces(net)[1], "-o", "link", "show", "br0").split()
    return int(shown[shown.index("mtu") + 1])


def exists(net):
    present = {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line}
    return bool(present.intersection(namespaces(net)))


def destroy(net):
    """Remove what is there of both namespaces."""
    present = {line.split()[0] for line in run("ip", "netns", "list").splitlines() if line}
    for name in namespaces(net):
        if name in present:
            # Programs may still run in it, and would keep the interfaces alive: remove those first.
            for link in ("br0", "veth0", "eth0"):
                try:
                    _ip(name, f"link del {link}")
                except Failure:
                    pass
            run("ip", "netns", "del", name)


def _ip(namespace, *commands):
    run("ip", "-n", namespace, "-batch", "-", input="".join(f"{c}\n" for c in commands))
