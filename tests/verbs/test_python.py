"""Programs and bindings from PyPI, some of which bring their own libibverbs or UCX along."""

import json
import pathlib
import re
import subprocess
import tempfile
import time

import packages
from harness import LONG_TIMEOUT, SOFTRNIC, TIMEOUT, VerbsTest

# Its number on x86-64.
CLOCK_NANOSLEEP = "230"

HERE = pathlib.Path(__file__).parent / "python"


def sleeps(pid):
    """Whether the main thread of a process is in `clock_nanosleep`."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == CLOCK_NANOSLEEP


class Python(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packages = packages.python()

    def setUp(self):
        super().setUp()
        self.env["PYTHONPATH"] = str(self.packages)
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def script(self, name, *arguments, **extra):
        return self.start(["/usr/bin/python3", "-B", HERE / name, *arguments], **extra)

    def pair(self, name, **extra):
        """Runs both sides of a script, which meet in a directory."""
        sides = [self.script(name, side, self.directory, **extra) for side in ("target", "initiator")]
        deadline = time.monotonic() + LONG_TIMEOUT
        statuses = [side.wait(deadline) for side in reversed(sides)][::-1]
        told = "\n".join(side.describe(status) for side, status in zip(sides, statuses))
        self.assertEqual(statuses, [0, 0], told)
        for side in sides:
            self.assertIn("all right", side.output())
        return told

    def test_mooncakes_engine_writes_and_reads(self):
        told = self.pair("mooncake_pair.py")
        self.assertIn("RDMA device: softrnic0", told)

    def test_mooncakes_benchmark_checks_its_data(self):
        bench = [self.packages / "mooncake/transfer_engine_bench", "--metadata_server=P2PHANDSHAKE", "--protocol=rdma",
                 "--device_name=softrnic0", "--buffer_size=67108864"]
        target = self.start([*bench, "--mode=target", "--local_server_name=127.0.0.1"])
        deadline = time.monotonic() + TIMEOUT
        # It tells its name before it has registered its memory, and an initiator that comes in between crashes. Its
        # main thread sleeps from then on.
        while not ((name := re.search(r"listening on (127\.0\.0\.1:\d+)", target.output())) and sleeps(target.pid)):
            self.assertIsNone(target.process.poll(), target.output())
            self.assertLess(time.monotonic(), deadline, target.output())
            time.sleep(0.02)
        for operation in ("write", "read"):
            out = self.run_ok([*bench, "--mode=initiator", "--local_server_name=127.0.0.1", f"--segment_id={name[1]}",
                               f"--operation={operation}", "--threads=2", "--duration=1"])
            batches = re.search(r"Test completed: .* batch count (\d+)", out)
            self.assertTrue(batches and int(batches[1]), out)

    def test_mooncakes_engine_prefers_the_rails_of_its_node(self):
        program = self.script("mooncake_topology.py", run=["--device", "mlx5_[0-3]=udp?pci=0000:a[0-3]:00.0&numa=[0,1]"])
        status = program.wait(time.monotonic() + TIMEOUT)
        self.assertEqual(status, 0, program.describe(status))
        preferred, others = json.loads(re.search(r"(?m)^topology (.*)$", program.output())[1])["cpu:0"]
        self.assertEqual((sorted(preferred), sorted(others)), (["mlx5_0", "mlx5_1"], ["mlx5_2", "mlx5_3"]))

    def test_mooncakes_engine_survives_a_rail_that_fails_at_either_end(self):
        """A rail is down for 5 s, and carries data again once Mooncake has lifted its pause of 30 s."""
        pairs = [self.begin_on_rails(end) for end in ("initiator", "target")]
        deadline = time.monotonic() + LONG_TIMEOUT
        for _, _, rails in pairs:
            self.wait_for_packets(rails, deadline)
        for _, _, rails in pairs:
            # The processes poll all the time, so the command may not wait long enough for an answer: counters tell.
            subprocess.run([SOFTRNIC, "link", rails[0], "down", "for=5s"], env=self.env, timeout=TIMEOUT)
        deadline = time.monotonic() + LONG_TIMEOUT
        for _, _, rails in pairs:
            while self.counters(rails[0]).get("link_downed") != 1 or self.state(rails[0]) != "ACTIVE":
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            self.wait_for_packets(rails, deadline)
        for _, (directory, sides), _ in pairs:
            pathlib.Path(directory, "stop").touch()
            statuses = [side.wait(deadline) for side in sides]
            told = "\n".join(side.describe(status) for side, status in zip(sides, statuses))
            self.assertEqual(statuses, [0, 0], told)
            for side in sides:
                self.assertIn("all right", side.output())

    def begin_on_rails(self, end):
        """Two processes with two rails each; returns which end's are to be watched, where they meet and what they are, and the names."""
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        sides = [self.script("mooncake_rails.py", side, directory.name, run=["--device", f"{end}-{side}-[0-1]=udp"])
                 for side in ("target", "initiator")]  # fmt: skip
        return end, (directory.name, sides), [f"{end}-{end}-{rail}" for rail in (0, 1)]

    def stats(self, device):
        done = subprocess.run([SOFTRNIC, "stats", "--json", "--device", device], env=self.env, capture_output=True, timeout=TIMEOUT)
        return json.loads(done.stdout)["devices"] if done.returncode == 0 else []

    def counters(self, device):
        return {name: count for nic in self.stats(device) for name, count in nic["counters"].items()}

    def state(self, device):
        return "".join(nic["port"]["state"] for nic in self.stats(device))

    def wait_for_packets(self, rails, deadline):
        """Waits until each rail has carried a good many packets from now on."""
        before = {rail: self.packets(rail) for rail in rails}
        while not all(self.packets(rail) > before[rail] + 500 for rail in rails):
            self.assertLess(time.monotonic(), deadline, str((before, {rail: self.packets(rail) for rail in rails})))
            time.sleep(0.2)

    def packets(self, rail):
        counters = self.counters(rail)
        return counters.get("rcvd_pkts", 0) + counters.get("sent_pkts", 0)

    def test_nixl_with_the_ucx_of_its_wheel(self):
        told = self.pair("nixl_pair.py", UCX_TLS="rc_verbs,ud_verbs:aux", UCX_NET_DEVICES="softrnic0:1")
        # It asks over NETLINK_RDMA.
        self.assertNotIn("netlink", told)

    def test_ibverbs_connects_and_writes_from_the_place_that_it_is_given(self):
        for place in ("0", "1"):
            program = self.script("ibverbs_write.py", place)
            status = program.wait(time.monotonic() + TIMEOUT)
            self.assertEqual(status, 0, program.describe(status))
            self.assertIn("all right", program.output())
