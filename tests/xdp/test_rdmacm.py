"""Programs that use rdma_cm, between two hosts: what they say to each other goes over the wire."""

import contextlib
import json
import sys
import time

from lab import ROOT, TIMEOUT, LabTest
from test_programs import ADDRESS, Program

sys.path.append(str(ROOT / "tests/verbs"))
import cm_programs as programs  # noqa: E402

PORT = "7199"
V6_ADDRESS = "fd77::2"
# A socket that listens (SO_ACCEPTCON), in /proc/net/unix.
LISTENS = "00010000"
GROUP = "239.77.1.2"

# Server, client to an address, and the port space and port that the server listens on.
PROGRAMS = [
    (["rping", "-s", "-a", "0.0.0.0", "-C", "10", "-V", "-p", PORT],
     ["rping", "-c", "-a", "{address}", "-C", "10", "-V", "-p", PORT], "tcp", PORT),
    (["ucmatose", "-c", "5", "-p", PORT], ["ucmatose", "-s", "{address}", "-c", "5", "-p", PORT], "tcp", PORT),
    (["udaddy"], ["udaddy", "-s", "{address}"], "udp", "7174"),
    (["rdma_xserver", "-c", "x", "-p", PORT], ["rdma_xclient", "-s", "{address}", "-c", "x", "-p", PORT], "ib", PORT),
    (["stdbuf", "-oL", "rstream", "-p", PORT, "-S", "65536"],
     ["stdbuf", "-oL", "rstream", "-s", "{address}", "-p", PORT, "-S", "65536"], "tcp", PORT),
    (["ib_write_bw", "-R", "-F", "-n", "500", "-p", PORT],
     ["ib_write_bw", "-R", "-F", "-n", "500", "-p", PORT, "{address}"], "tcp", PORT),
]


def is_listening(lab, space, port):
    """Whether an RDMA port has a listener in h2: the name in the registry says so."""
    rows = [line.split() for line in lab.run("h2", "cat", "/proc/net/unix").splitlines()]
    return any(row[3] == LISTENS and row[-1].startswith(f"@softrnic/cm/{space}/{port}/") for row in rows)


class Rdmacm(LabTest):
    def finish(self, server, client, deadline):
        statuses = [programs.exit_status(client.words, client.status(deadline), client.output())]
        # A server whose client has failed may wait for another for ever.
        status = server.status(deadline if statuses[0] == 0 else time.monotonic() + 1)
        statuses.append(programs.exit_status(server.words, status, server.output()))
        self.assertEqual(statuses, [0, 0], f"client:\n{client.output()}\nserver:\n{server.output()}")

    def pair(self, lab, devices, server, client, space, port):
        deadline = time.monotonic() + TIMEOUT
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Program(lab, "h2", devices[1], server))
            while not is_listening(lab, space, port):
                self.assertIsNone(server.process.poll(), server.output())
                self.assertLess(time.monotonic(), deadline, "the server does not listen")
                time.sleep(0.01)
            self.finish(server, stack.enter_context(Program(lab, "h1", devices[0], client)), deadline)

    def every_program(self, devices, address=ADDRESS["h2"]):
        lab = self.lab("--mtu", "4500")
        for server, client, space, port in PROGRAMS:
            with self.subTest(program=server[0]):
                self.pair(lab, devices, server, [word.format(address=address) for word in client], space, port)

    def test_xdp(self):
        self.every_program(("xdp:eth0", "xdp:eth0"))

    def test_udp(self):
        self.every_program(tuple(f"udp:{ADDRESS[host]}" for host in ("h1", "h2")))

    def test_xdp_to_udp(self):
        self.every_program(("xdp:eth0", f"udp:{ADDRESS['h2']}"))

    def test_udp_to_xdp(self):
        self.every_program((f"udp:{ADDRESS['h1']}", "xdp:eth0"))

    def test_ipv6(self):
        lab = self.lab("--mtu", "4500")
        server = ["rping", "-s", "-a", "::", "-C", "10", "-V", "-p", PORT]
        client = ["rping", "-c", "-a", V6_ADDRESS, "-C", "10", "-V", "-p", PORT]
        self.pair(lab, ("xdp:eth0", "xdp:eth0"), server, client, "tcp", PORT)

    def test_link_local_addresses(self):
        lab = self.lab("--mtu", "4500")
        shown = json.loads(lab.run("h2", "ip", "-j", "-6", "address", "show", "dev", "eth0", "scope", "link"))
        [address] = [known["local"] for host in shown for known in host.get("addr_info", []) if "local" in known]
        server = ["rping", "-s", "-a", "::", "-C", "10", "-V", "-p", PORT]
        client = ["rping", "-c", "-a", f"{address}%eth0", "-C", "10", "-V", "-p", PORT]
        self.pair(lab, ("xdp:eth0", "xdp:eth0"), server, client, "tcp", PORT)

    def test_an_interface_that_goes_takes_the_device_with_it(self):
        lab = self.lab()
        deadline = time.monotonic() + TIMEOUT
        with Program(lab, "h2", "xdp:eth0", ["stdbuf", "-oL", "rping", "-s", "-a", ADDRESS["h2"], "-p", PORT]) as server:
            while not is_listening(lab, "tcp", PORT):
                self.assertLess(time.monotonic(), deadline, server.output())
                time.sleep(0.01)
            lab.ip("h2", "link del eth0")
            while "device removal" not in server.output():
                self.assertLess(time.monotonic(), deadline, server.output())
                time.sleep(0.01)

    def test_mckey(self):
        for devices in (("xdp:eth0", "xdp:eth0"), tuple(f"udp:{ADDRESS[host]}" for host in ("h1", "h2"))):
            lab = self.lab("--mtu", "4500")
            deadline = time.monotonic() + TIMEOUT
            words = ["mckey", "-m", GROUP, "-C", "5", "-b"]
            with contextlib.ExitStack() as stack:
                receiver = ["stdbuf", "-oL", *words, ADDRESS["h2"]]
                receiver = stack.enter_context(Program(lab, "h2", devices[1], receiver))
                while "joined" not in receiver.output():
                    self.assertIsNone(receiver.process.poll(), receiver.output())
                    self.assertLess(time.monotonic(), deadline, receiver.output())
                    time.sleep(0.01)
                sender = Program(lab, "h1", devices[0], [*words, ADDRESS["h1"], "-s"])
                self.finish(receiver, stack.enter_context(sender), deadline)
