"""Programs and bindings from PyPI, some of which bring their own libibverbs or UCX along."""

import pathlib
import re
import tempfile
import time

import packages
from harness import TIMEOUT, VerbsTest

# Its number on x86-64.
CLOCK_NANOSLEEP = "230"

# What two processes may take, most of which is for starting.
PAIR_TIMEOUT = max(TIMEOUT, 180)

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
        deadline = time.monotonic() + PAIR_TIMEOUT
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

    def test_nixl_with_the_ucx_of_its_wheel(self):
        self.pair("nixl_pair.py", UCX_TLS="rc_verbs,ud_verbs:aux", UCX_NET_DEVICES="softrnic0:1")

    def test_ibverbs_connects_and_writes_from_the_place_that_it_is_given(self):
        for place in ("0", "1"):
            program = self.script("ibverbs_write.py", place)
            status = program.wait(time.monotonic() + TIMEOUT)
            self.assertEqual(status, 0, program.describe(status))
            self.assertIn("all right", program.output())
