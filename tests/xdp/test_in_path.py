"""A modelled network between two machines: its hosts are network interfaces (docs/fabric.md, "In the path")."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from lab import ROOT, SOFTRNIC, TIMEOUT, LabTest, run
from test_programs import Program

sys.path.append(str(ROOT / "tests/verbs"))
import cm_programs as programs  # noqa: E402

PORT = "18518"
LISTEN = "0A"
ADDRESS = {"a": "10.78.0.1", "b": "10.78.0.2"}
# GID 0 is the link-local one, 1 the IPv4 address.
V4_GID = "1"

STAR = """
[network]
generator = "star"
hosts = 2
edge = { rate = "25Gbps", delay = "5us" }

[[host]]
name = "h0"
interface = "to-a"

[[host]]
name = "h1"
interface = "to-b"
"""

THIRD_ACK = """
[[fault]]
link = "h1-s0"
rules = "drop:op=ack:nth=3"
"""

# By TCP: random bytes, and what both sides saw of them.
GIVE = f"""
import hashlib, os, socket
data = os.urandom(20 << 20)
with socket.create_connection(("{ADDRESS['b']}", {PORT})) as stream:
    stream.sendall(data)
print(hashlib.sha256(data).hexdigest())
"""
TAKE = f"""
import hashlib, socket
with socket.create_server(("{ADDRESS['b']}", {PORT})) as server:
    stream, _ = server.accept()
    seen = hashlib.sha256()
    while piece := stream.recv(1 << 16):
        seen.update(piece)
print(seen.hexdigest())
"""


class Path:
    """The machines a and b, and one between them to which their cables lead."""

    count = 0

    def __init__(self, mtu=1500):
        Path.count += 1
        self.name = f"softrnic-p{os.getpid()}x{Path.count}"
        for machine in ("a", "b", "mid"):
            run("ip", "netns", "add", self.namespace(machine))
            self.ip(machine, "link set lo up")
        for machine, address in ADDRESS.items():
            self.ip("mid", f"link add to-{machine} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {self.namespace(machine)}")
            # It is a cable: this machine has no business on it.
            self.ip("mid", f"link set to-{machine} addrgenmode none")
            self.ip("mid", f"link set to-{machine} up")
            self.ip(machine, f"addr add {address}/24 dev eth0")
            self.ip(machine, "link set eth0 up")

    def namespace(self, machine):
        return f"{self.name}-{machine}"

    def inside(self, machine, *argv):
        return ["ip", "netns", "exec", self.namespace(machine), *(str(word) for word in argv)]

    def ip(self, machine, words):
        run("ip", "-n", self.namespace(machine), *words.split())

    def run(self, machine, *argv):
        return run(*self.inside(machine, *argv))

    def down(self):
        for machine in ("a", "b", "mid"):
            subprocess.run(["ip", "netns", "del", self.namespace(machine)])


class InPath(LabTest):
    def path(self, description, mtu=1500, pcap=None):
        """Two machines with a network between them."""
        path = Path(mtu)
        self.addCleanup(path.down)
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        file = pathlib.Path(directory.name) / "path.toml"
        file.write_text(description)
        words = [SOFTRNIC, "fabric", "up", file, *(["--pcap", pcap] if pcap else [])]
        output = tempfile.TemporaryFile()
        self.addCleanup(output.close)
        self.fabric = subprocess.Popen(path.inside("mid", *words), stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(self.fabric.wait)
        self.addCleanup(self.fabric.kill)
        deadline = time.monotonic() + TIMEOUT
        while True:
            output.seek(0)
            said = output.read()
            if b" is up" in said:
                return path
            self.assertIsNone(self.fabric.poll(), said)
            self.assertLess(time.monotonic(), deadline, said)
            time.sleep(0.01)

    def show(self, path):
        return json.loads(path.run("mid", SOFTRNIC, "fabric", "ctl", "path", "show", "--json"))

    def down(self, path):
        path.run("mid", SOFTRNIC, "fabric", "down", "path")
        self.assertEqual(self.fabric.wait(TIMEOUT), 0)

    def until_listening(self, path, server):
        deadline = time.monotonic() + TIMEOUT
        while True:
            rows = [line.split() for line in path.run("b", "cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()]
            if any(row[1].endswith(f":{int(PORT):04X}") and row[3] == LISTEN for row in rows):
                return
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), deadline, "the server does not listen")
            time.sleep(0.01)

    def pair(self, path, words, devices):
        """Runs a server in b and its client in a; both must succeed. Returns what the client said."""
        deadline = time.monotonic() + TIMEOUT
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Program(path, "b", devices["b"], words))
            self.until_listening(path, server.process)
            client = stack.enter_context(Program(path, "a", devices["a"], [*words, ADDRESS["b"]]))
            statuses = [client.status(deadline)]
            statuses.append(server.status(deadline if statuses[0] == 0 else time.monotonic() + 1))
            self.assertEqual(statuses, [0, 0], f"{client.output()}\n{server.output()}")
            return client.output()

    def test_what_is_not_roce_passes(self):
        path = self.path(STAR)
        # Their ARP requests are for everybody.
        path.run("a", "ping", "-c", "3", "-i", "0.01", "-W", TIMEOUT, ADDRESS["b"])
        # Kernels leave segmentation and checksums of TCP to the NIC. Every byte arrives.
        with subprocess.Popen(path.inside("b", sys.executable, "-c", TAKE), stdout=subprocess.PIPE, text=True) as taker:
            self.until_listening(path, taker)
            sent = path.run("a", sys.executable, "-c", GIVE)
            self.assertEqual((taker.stdout.read(), taker.wait(TIMEOUT)), (sent, 0))
        with subprocess.Popen(path.inside("b", "iperf3", "-s", "-1", "-p", PORT), stdout=subprocess.DEVNULL) as server:
            self.until_listening(path, server)
            report = json.loads(path.run("a", "iperf3", "-c", ADDRESS["b"], "-p", PORT, "-n", "200M", "-J"))
            self.assertEqual(server.wait(TIMEOUT), 0)
        print(f"iperf3: {report['end']['sum_received']['bits_per_second'] / 1e9:.2f} Gb/s")
        hosts = {host["host"]: host for host in self.show(path)["hosts"]}
        self.assertEqual([hosts[host]["interface"] for host in ("h0", "h1")], ["to-a", "to-b"])
        self.down(path)

    def test_verbs_programs_of_two_machines(self):
        path = self.path(STAR, mtu=4500)
        for kind in ("udp", "xdp"):
            devices = {machine: f"udp:{ADDRESS[machine]}" if kind == "udp" else "xdp:eth0" for machine in ("a", "b")}
            gid = "0" if kind == "udp" else V4_GID
            with self.subTest(kind=kind):
                words = ["ib_write_bw", "-p", PORT, "-x", gid, "-n", "2000", "-m", "4096", "--report_gbits"]
                said = self.pair(path, words, devices)
                rate = re.search(r"(?m)^ 65536 +2000 +[\d.]+ +([\d.]+)", said)
                print(f"ib_write_bw over {kind}: {rate[1]} Gb/s")
        self.down(path)

    def test_rping_of_two_machines(self):
        path = self.path(STAR)
        devices = {machine: f"udp:{ADDRESS[machine]}" for machine in ("a", "b")}
        deadline = time.monotonic() + TIMEOUT
        with Program(path, "b", devices["b"], ["rping", "-s", "-a", ADDRESS["b"], "-C", "5", "-v"]) as server:
            # It listens by rdma_cm, which no socket shows; until then clients are refused.
            while True:
                self.assertLess(time.monotonic(), deadline, server.output())
                client = Program(path, "a", devices["a"], ["rping", "-c", "-a", ADDRESS["b"], "-C", "5", "-v"])
                with client:
                    status, said = client.status(deadline), client.output()
                    status = programs.exit_status(client.words, status, said)
                if "REJECTED" not in said:
                    break
            served = programs.exit_status(server.words, server.status(deadline), server.output())
            self.assertEqual((status, served), (0, 0), f"{said}\n{server.output()}")
            self.assertEqual(said.count("ping data"), 5, said)
        self.down(path)

    def test_the_third_ack_is_lost_and_the_capture_says_so(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        pcap = pathlib.Path(directory.name) / "path.pcapng"
        path = self.path(STAR + THIRD_ACK, pcap=pcap)
        devices = {machine: f"udp:{ADDRESS[machine]}" for machine in ("a", "b")}
        # Each ACK is for one message, so the third is the third message's.
        self.pair(path, ["ib_write_lat", "-p", PORT, "-x", "0", "-n", "50"], devices)
        ports = {port["port"]: port for port in self.show(path)["ports"]}
        self.assertEqual([ports[name]["faults"] for name in ("h0-s0", "h1-s0", "s0-h0")], [0, 1, 0])
        self.down(path)
        fields = run("tshark", "-r", pcap, "-Y", "frame.comment", "-T", "fields", "-e", "frame.interface_name", "-e", "infiniband.bth.opcode", "-e", "frame.comment")
        self.assertEqual(
            [line.split("\t") for line in fields.splitlines()],
            [["h1-s0", "17", "fault: dropped by rule 1, drop:op=rc_acknowledge:nth=3"]],
        )
        # Two ports saw all others.
        everywhere = run("tshark", "-r", pcap, "-Y", "infiniband.bth.opcode == 17 && infiniband.bth.psn", "-T", "fields", "-e", "frame.interface_name").split()
        self.assertEqual(everywhere.count("h1-s0"), everywhere.count("s0-h0") + 1)
        # It says by its status that something went wrong.
        explained = subprocess.run([SOFTRNIC, "explain", pcap], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT).stdout
        self.assertRegex(explained, r"dropped on purpose, by your rule 1, drop:op=rc_acknowledge:nth=3")

    def test_what_cannot_be_an_interface_is_refused(self):
        description = STAR.replace("to-b", "nothing")
        with tempfile.NamedTemporaryFile(suffix=".toml", mode="w") as file:
            file.write(description)
            file.flush()
            path = Path()
            self.addCleanup(path.down)
            argv = path.inside("mid", SOFTRNIC, "fabric", "up", file.name, "--name", "path")
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT)
            self.assertEqual(done.returncode, 1)
            self.assertIn("the interface nothing: No such device", done.stdout)
