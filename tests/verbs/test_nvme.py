"""An NVMe disk over RDMA: examples/nvmf-target, and `nvmeof` of PyPI as its host."""

import pathlib
import re
import tempfile
import time

import packages
from harness import TARGET, TIMEOUT, Program, VerbsTest, free_port

HOST = pathlib.Path(__file__).parent / "python/nvme.py"
NQN = "nqn.2026-11.test:disk"
LOSSY = "drop=1%,reorder=1%,dup=1%"


class Nvme(VerbsTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packages = packages.python()

    def setUp(self):
        super().setUp()
        self.env["PYTHONPATH"] = str(self.packages)
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name) / "disk"
        self.file.write_bytes(bytes(8 << 20))
        self.port = free_port()

    def target(self, **extra):
        """The target, once it listens."""
        target = self.start_target("--port", self.port, "--nqn", NQN, self.file, **extra)
        self.wait_for(target, "blocks of 4096 bytes")
        return target

    def start_target(self, *arguments, **extra):
        """It has its NIC in itself."""
        target = Program([TARGET / "nvmf-target", *arguments], {**self.env, **extra})
        self.addCleanup(target.close)
        return target

    def wait_for(self, program, text):
        self.wait_until(lambda: re.search(text, program.output()), program)

    def host(self, verb, *arguments, **extra):
        return self.start(["/usr/bin/python3", "-B", HOST, verb, "127.0.0.1", self.port, NQN, *arguments], **extra)

    def run_host(self, verb, *arguments, **extra):
        host = self.host(verb, *arguments, **extra)
        status = host.wait(time.monotonic() + TIMEOUT)
        self.assertEqual(status, 0, host.describe(status))
        self.assertIn("all right", host.output())

    def write_and_verify(self, **extra):
        target = self.target(**extra)
        self.run_host("write", 1, **extra)
        self.run_host("verify", 1, **extra)
        self.assertIsNone(target.process.poll(), target.output())
        return target

    def test_what_is_written_is_in_the_file_and_is_read_again(self):
        self.write_and_verify()
        # Another target on the same file has the same disk.
        self.port = free_port()
        self.target()
        self.run_host("verify", 1)

    def test_it_works_over_a_network_that_loses_packets(self):
        self.write_and_verify(SOFTRNIC_SHM="off", SOFTRNIC_FAULT=f"seed=3,{LOSSY}")

    def test_what_is_not_there_is_refused(self):
        target = self.target()
        self.run_host("refusals")
        self.assertIn("asks for nqn.2026-11.test:another", target.output())

    def test_a_killed_host_leaves_the_target_to_others(self):
        target = self.target()
        for _ in range(3):
            host = self.host("endless")
            self.wait_for(host, "writing")
            host.kill()
        self.run_host("write", 2)
        self.run_host("verify", 2)
        self.assertIsNone(target.process.poll(), target.output())

    def test_a_killed_target_may_be_started_again(self):
        target = self.target()
        self.run_host("write", 3)
        host = self.host("endless")
        self.wait_for(host, "writing")
        target.kill()
        status = host.wait(time.monotonic() + TIMEOUT)
        self.assertNotIn(status, (0, None), host.describe(status))
        self.target()
        self.run_host("write", 4)
        self.run_host("verify", 4)

    def test_other_clients_are_refused(self):
        target = self.target()
        out = self.start(["rping", "-c", "-a", "127.0.0.1", "-p", self.port, "-C", 1])
        status = out.wait(time.monotonic() + TIMEOUT)
        self.assertNotIn(status, (0, None), out.describe(status))
        self.assertIn("a connection is refused", target.output())
        self.run_host("write", 5)

    def test_wrong_arguments_are_errors_with_a_sentence(self):
        empty = self.file.with_name("empty")
        empty.touch()
        for arguments, said in (
            ([], "usage: "),
            (["--port", "0x", self.file], "--port: invalid digit"),
            ([self.file, self.file], "usage: "),
            (["/nonexistent"], "/nonexistent: No such file or directory"),
            ([empty], f"{empty} has no block of 4096 bytes"),
            (["--nqn", "short", self.file], "--nqn: a name has 11 to 223 bytes"),
        ):
            with self.subTest(arguments=arguments):
                target = self.start_target(*arguments)
                self.assertEqual(target.wait(time.monotonic() + TIMEOUT), 1)
                self.assertIn(f"nvmf-target: {said}", target.output())

