"""Verbs programs that know nothing of SoftRNIC, unmodified, on real interfaces."""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from lab import ROOT, SOFTRNIC, TIMEOUT, LabTest, kernel_is, run

sys.path.append(str(ROOT / "tests/verbs"))

from captures import Capture  # noqa: E402

PORT = "18517"
# As /proc/net/tcp says it.
LISTEN = "0A"
ADDRESS = {"h1": "10.77.0.1", "h2": "10.77.0.2"}
# GID 0 is the link-local one, 1 the IPv4 address, 2 the IPv6 address.
V4_GID, V6_GID = "1", "2"


def is_listening(lab):
    """Whether a socket in h2 listens; those of the pair before may still be there, in TIME_WAIT."""
    sockets = lab.run("h2", "cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()
    rows = [line.split() for line in sockets]
    return any(row[1].endswith(f":{int(PORT):04X}") and row[3] == LISTEN for row in rows)


class Program:
    """A program on SoftRNIC in a host. Its output goes to a file, so that nothing blocks."""

    def __init__(self, lab, host, device, words, run=()):
        self.words = words
        self.file = tempfile.TemporaryFile()
        argv = lab.inside(host, SOFTRNIC, "run", "--device", device, *run, "--", *words)
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT)

    def output(self):
        self.file.seek(0)
        return self.file.read().decode(errors="replace")

    def status(self, deadline):
        try:
            return self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.file.close()


class Programs(LabTest):
    def pair(self, lab, words, devices=("xdp:eth0", "xdp:eth0"), gids=(V4_GID, V4_GID), runs=((), ())):
        """Runs a server in h2 and its client in h1; both must succeed. Returns what both said.

        {gid} among the words stands for the index of each side's GID.
        """
        near, far = ([word.format(gid=gid) for word in [words[0], "-p", PORT, *words[1:]]] for gid in gids)
        deadline = time.monotonic() + TIMEOUT
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Program(lab, "h2", devices[1], far, runs[1]))
            while not is_listening(lab):
                self.assertIsNone(server.process.poll(), server.output())
                self.assertLess(time.monotonic(), deadline, "the server does not listen")
                time.sleep(0.01)
            client = stack.enter_context(Program(lab, "h1", devices[0], [*near, ADDRESS["h2"]], runs[0]))
            statuses = [client.status(deadline)]
            # A server whose client has failed may wait for another for ever.
            statuses.append(server.status(deadline if statuses[0] == 0 else time.monotonic() + 1))
            said = f"client:\n{client.output()}\nserver:\n{server.output()}"
            self.assertEqual(statuses, [0, 0], said)
            return client.output(), server.output()

    def compile(self, source):
        """Compiles a C program of the tests of verbs; returns its path."""
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        program = pathlib.Path(directory.name) / pathlib.Path(source).stem
        run("cc", "-g", "-O1", "-o", program, ROOT / "tests/verbs/c" / source, "-libverbs", "-lpthread")
        return program

    def every_direction(self, words):
        lab = self.lab("--mtu", "4500")
        udp = [f"udp:{ADDRESS[host]}" for host in ("h1", "h2")]
        # An address is GID 0 of a device that has no other.
        for devices, gids in (
            (("xdp:eth0", "xdp:eth0"), (V4_GID, V4_GID)),
            (("xdp:eth0", "xdp:eth0"), (V6_GID, V6_GID)),
            (("xdp:eth0", udp[1]), (V4_GID, "0")),
            ((udp[0], "xdp:eth0"), ("0", V4_GID)),
        ):
            with self.subTest(devices=devices, gids=gids):
                self.pair(lab, words, devices, gids)

    def test_pingpongs(self):
        lab = self.lab("--mtu", "4500")
        mtu = "4096" if kernel_is(6, 6) else "2048"
        for gid, words in (
            (V4_GID, ["ibv_rc_pingpong", "-m", mtu, "-c"]),
            (V6_GID, ["ibv_rc_pingpong", "-m", "1024", "-e"]),
            ("0", ["ibv_rc_pingpong", "-m", "256"]),
            (V4_GID, ["ibv_uc_pingpong"]),
            (V4_GID, ["ibv_ud_pingpong", "-s", "1024"]),
            (V4_GID, ["ibv_srq_pingpong"]),
        ):
            with self.subTest(words=words, gid=gid):
                for output in self.pair(lab, [*words, "-g", "{gid}", "-n", "500"], gids=(gid, gid)):
                    self.assertIn("iters in", output)

    def test_ib_write_bw(self):
        self.every_direction(["ib_write_bw", "-d", "softrnic0", "-x", "{gid}", "-n", "500", "-s", "65536", "-F"])

    def test_a_capture_of_a_fast_run_has_every_packet(self):
        lab = self.lab("--mtu", "4500")
        with tempfile.TemporaryDirectory(prefix="softrnic-test-") as directory:
            files = [pathlib.Path(directory) / f"{host}.pcapng" for host in ("h1", "h2")]
            runs = [["--pcap", file] for file in files]
            words = ["ib_write_bw", "-d", "softrnic0", "-x", "{gid}", "-m", "1024", "-n", "5000", "-s", "16384", "-F"]
            self.pair(lab, words, runs=runs)
            client, server = (Capture(file) for file in files)
        for capture in (client, server):
            self.assertEqual((capture.drops, capture.missing_psns()), (0, 0))
        # Interfaces may drop what the ring has no room for; the client then sends it again.
        self.assertGreaterEqual(len(server.received), 80_000)
        self.assertGreaterEqual(len(client.sent), len(server.received))
        self.assertGreaterEqual(len(server.sent), len(client.received))

    def test_ib_send_lat(self):
        self.every_direction(["ib_send_lat", "-d", "softrnic0", "-x", "{gid}", "-n", "500", "-s", "8", "-F"])

    def test_other_perftests(self):
        lab = self.lab("--mtu", "4500")
        for words in (
            ["ib_read_bw", "-n", "200", "-s", "65536"],
            ["ib_send_bw", "-n", "200", "-s", "4096", "-c", "UD"],
            ["ib_send_bw", "-n", "500", "-s", "65536", "-b"],
            ["ib_atomic_lat", "-n", "200"],
            ["ib_write_lat", "-n", "500", "-s", "8"],
        ):
            with self.subTest(words=words):
                self.pair(lab, [words[0], "-d", "softrnic0", "-x", "{gid}", "-F", *words[1:]])

    def test_a_thread_can_be_cancelled_in_every_call(self):
        lab = self.lab()
        program = self.compile("cancelled.c")
        # A thread that posts or polls reads the changes of the host.
        with Program(lab, "h1", "xdp:eth0", [program, V4_GID, "10.77.0"]) as cancelled:
            deadline = time.monotonic() + 240
            while cancelled.process.poll() is None and time.monotonic() < deadline:
                for verb in ("add", "del"):
                    lab.ip("h1", f"addr {verb} 10.77.0.250/24 dev eth0")
            self.assertEqual((cancelled.process.poll(), cancelled.output()[-200:]), (0, "all right\n"))

    def test_devinfo_shows_the_port_and_its_gids(self):
        lab = self.lab("--mtu", "4500")
        output = lab.run("h1", SOFTRNIC, "run", "--device", "xdp:eth0", "--", "ibv_devinfo", "-v")
        self.assertIn("PORT_ACTIVE", output)
        gids = dict(re.findall(r"GID\[ *(\d+)\]:\s+(\S+?),", output))
        self.assertTrue(gids["0"].startswith("fe80:"), gids)
        self.assertEqual((gids["1"], gids["2"]), ("::ffff:10.77.0.1", "fd77::1"))
        lab.ip("h1", "link set eth0 down")
        output = lab.run("h1", SOFTRNIC, "run", "--device", "xdp:eth0", "--", "ibv_devinfo")
        self.assertRegex(output, "PORT_(DOWN|DISABLED|POLLING)")
