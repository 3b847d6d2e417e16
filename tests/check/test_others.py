"""Programs that make no mistake: `softrnic check` says nothing about them."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verbs"))

from cm import CmTest, rdma_port  # noqa: E402
from harness import SOFTRNIC, Program, VerbsTest  # noqa: E402


class Checked(VerbsTest):
    def start(self, argv, run=(), cwd=None, **extra):
        """With an exit status of its own if something is found, so that the test fails and shows it."""
        command = [SOFTRNIC, "check", "--error-exitcode", "99", *run, "--", *argv]
        program = Program(command, {**self.env, **extra}, cwd)
        self.addCleanup(program.close)
        return program

    def pairs(self, *programs):
        for program, *options in programs:
            with self.subTest(f"{program} {' '.join(options)}"):
                for out in self.run_pair(program, *options):
                    self.assertIn("ERROR SUMMARY: 0 errors", out)


class Others(Checked):
    def test_pingpongs(self):
        names = [f"ibv_{name}_pingpong" for name in ("rc", "uc", "ud", "srq")]
        self.pairs(*[(name, "-g", "0", "-n", "200") for name in names], ("ibv_rc_pingpong", "-g", "0", "-e", "-c"),
                   ("ibv_rc_pingpong", "-g", "0", "-N", "-n", "200"))  # fmt: skip

    def test_bandwidth_of_perftest(self):
        few = ["-x", "0", "-F", "-n", "200"]
        self.pairs(*[(f"ib_{name}_bw", *few) for name in ("send", "write", "read", "atomic")],
                   ("ib_send_bw", *few, "-b", "-e"), ("ib_send_bw", *few, "-c", "UD", "-s", "1024"),
                   ("ib_write_bw", *few, "-q", "4", "-c", "UC"))  # fmt: skip

    def test_latency_of_perftest(self):
        few = ["-x", "0", "-F", "-n", "200"]
        self.pairs(*[(f"ib_{name}_lat", *few) for name in ("send", "write", "read", "atomic")],
                   ("ib_write_lat", *few, "-I", "0"))  # fmt: skip


class Cm(Checked, CmTest):
    def test_rping(self):
        port = rdma_port()
        self.run_cm_pair(["rping", "-s", "-C", "10", "-p", port],
                         ["rping", "-c", "-a", "127.0.0.1", "-C", "10", "-p", port, "-V"], port)  # fmt: skip

    def test_perftest_with_connections_of_rdma_cm(self):
        for name in ("ib_write_bw", "ib_send_lat"):
            port = rdma_port()
            words = [name, "-R", "-F", "-p", port, "-n", "200"]
            options = ["--suppressions", HERE / "perftest.supp"]
            self.run_cm_pair(words, [*words, "127.0.0.1"], port, run=options)

    def test_ucmatose(self):
        port = rdma_port()
        self.run_cm_pair(["ucmatose", "-c", "10", "-p", port],
                         ["ucmatose", "-s", "127.0.0.1", "-c", "10", "-p", port], port)  # fmt: skip


class Mpi(Checked):
    def test_openmpi(self):
        program = self.compile("ring.c", compiler="mpicc")
        selection = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self"]
        out = self.run_ok(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", *selection, "-n", "2", program], timeout=180,
            UCX_TLS="rc_verbs,ud_verbs:aux,self", UCX_NET_DEVICES="softrnic0:1", UCX_LOG_LEVEL="error")  # fmt: skip
        self.assertIn("all right with 2 ranks", out)


if __name__ == "__main__":
    unittest.main()
