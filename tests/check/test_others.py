"""Programs that make no mistake: `softrnic check` says nothing about them."""

import json
import pathlib
import re
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verbs"))

import cm_programs as programs  # noqa: E402
import packages  # noqa: E402
import test_pyverbs  # noqa: E402
from cm import CmTest, rdma_port  # noqa: E402
from harness import SOFTRNIC, Program, VerbsTest, free_port  # noqa: E402


class Checked(VerbsTest):
    def start(self, argv, run=(), cwd=None, **extra):
        """With an exit status of its own if something is found, so that the test fails and shows it."""
        command = [SOFTRNIC, "check", "--error-exitcode", "99", *run, "--", *argv]
        program = Program(command, {**self.env, **extra}, cwd)
        self.addCleanup(program.close)
        return program

    def suppress(self, name):
        return ["--suppressions", HERE / f"{name}.supp"]

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


class LossyWire(Checked):
    """Packets come again, and in any order."""

    def start(self, argv, run=(), cwd=None, **extra):
        return super().start(argv, ["--device", "udp?shm=off", "--fault", "drop=2%", *run], cwd, **extra)

    def test_programs_recover_without_a_report(self):
        few = ["-x", "0", "-F", "-n", "200", "-s", "65536"]
        self.pairs(*[(f"ib_{name}_bw", *few) for name in ("send", "write", "read")],
                   ("ib_atomic_bw", "-x", "0", "-F", "-n", "200"), ("ibv_rc_pingpong", "-g", "0", "-n", "200", "-c"))  # fmt: skip


class Cm(Checked, CmTest):
    def test_rping(self):
        port = rdma_port()
        self.run_cm_pair(["rping", "-s", "-C", "10", "-p", port],
                         ["rping", "-c", "-a", "127.0.0.1", "-C", "10", "-p", port, "-V"], port)  # fmt: skip

    def test_perftest_with_connections_of_rdma_cm(self):
        for name in ("ib_write_bw", "ib_send_lat"):
            port = rdma_port()
            words = [name, "-R", "-F", "-p", port, "-n", "200"]
            options = self.suppress("perftest")
            self.run_cm_pair(words, [*words, "127.0.0.1"], port, run=options)

    def test_ucmatose(self):
        port = rdma_port()
        self.run_cm_pair(["ucmatose", "-c", "10", "-p", port],
                         ["ucmatose", "-s", "127.0.0.1", "-c", "10", "-p", port], port)  # fmt: skip

    def test_the_other_programs_of_rdmacm_utils(self):
        for server, client in (
            (["rdma_server"], ["rdma_client", "-s", "127.0.0.1"]),
            (["rdma_xserver"], ["rdma_xclient", "-s", "127.0.0.1"]),
            (["rstream", "-S", "100000", "-I", "5", "-C", "20", "-T", "v"],
             ["rstream", "-s", "127.0.0.1", "-S", "100000", "-I", "5", "-C", "20", "-T", "v"]),
            (["riostream", "-S", "65536", "-I", "5", "-C", "20"],
             ["riostream", "-s", "127.0.0.1", "-S", "65536", "-I", "5", "-C", "20"]),
        ):  # fmt: skip
            with self.subTest(server[0]):
                port = rdma_port()
                for out in self.run_cm_pair([*server, "-p", port], [*client, "-p", port], port):
                    self.assertIn("ERROR SUMMARY: 0 errors", out)

    def test_datagrams_of_rdmacm_utils(self):
        # The port of udaddy is fixed.
        for out in self.run_cm_pair(["udaddy"], ["udaddy", "-s", "127.0.0.1"], 7174, space="udp"):
            self.assertIn("ERROR SUMMARY: 0 errors", out)
        group = ["stdbuf", "-oL", "mckey", "-m", "239.1.2.3", "-b", "127.0.0.1", "-C", "5"]
        receiver = self.start(group)
        self.wait_until(lambda: "joined" in receiver.output(), receiver)
        for out in self.finish(receiver, self.start([*group, "-s"])):
            self.assertIn("ERROR SUMMARY: 0 errors", out)

    def test_rcopy(self):
        (self.runtime / "from").write_bytes(bytes(range(256)) * 4096)
        port = rdma_port()
        server = self.serve(["rcopy", "-p", port], port)
        out = self.run_ok(["rcopy", self.runtime / "from", f"127.0.0.1:{self.runtime / 'to'}", "-p", port])
        self.assertIn("ERROR SUMMARY: 0 errors", out)
        self.assertEqual((self.runtime / "to").read_bytes(), (self.runtime / "from").read_bytes())
        self.assertNotIn("ERROR: SoftRNIC check", server.output())

    def test_iscsi_over_rdma(self):
        iser = programs.Iser(self.runtime)
        server = self.serve(iser.SERVER, iser.PORT, **iser.environment)
        for words in iser.setup():
            self.run_ok(words, **iser.environment)
        out = self.run_ok([self.compile("iscsi_data.c", "-liscsi"), iser.INITIATOR, iser.url("127.0.0.1")])
        self.assertIn(iser.SAYS, out)
        self.assertIn("ERROR SUMMARY: 0 errors", out)
        self.assertNotIn("ERROR: SoftRNIC check", server.output())

    def test_qperf(self):
        port, options = free_port(), self.suppress("qperf")
        server = self.serve_by_tcp(programs.qperf(port, "", "")[0], port, run=options)
        for test in programs.QPERF_TESTS:
            with self.subTest(test):
                out = self.run_ok(programs.qperf(port, "127.0.0.1", test)[1], run=options)
                self.assertRegex(out, programs.qperf_result(test))
                self.assertIn("ERROR SUMMARY: 0 errors", out)
        self.assertNotIn("ERROR: SoftRNIC check", server.output())

    def test_cmtime(self):
        port, options = rdma_port(), self.suppress("cmtime")
        server = self.serve(["cmtime", "-p", port], port, run=options)
        out = self.run_ok(["cmtime", "-s", "127.0.0.1", "-c", "10", "-p", port], run=options)
        self.assertIn("ERROR SUMMARY: 0 errors", out)
        self.assertNotIn("ERROR: SoftRNIC check", server.output())

    def test_libfabric(self):
        for provider, kind in programs.LIBFABRIC:
            with self.subTest(kind):
                port, options = free_port(), self.suppress("libfabric")
                server, client = programs.libfabric(provider, kind, port, "127.0.0.1")
                server = self.serve_by_tcp(server, port, run=options)
                self.finish(server, self.start(client, run=options))

    def test_libfabric_over_efa(self):
        # Not with `dgram`, where the provider reads what it never wrote: docs/check.md.
        extra = {"FI_EFA_ENABLE_SHM_TRANSFER": "0", "FI_PROVIDER": "efa"}
        port, options = free_port(), ["--like", "efa", *self.suppress("libfabric-efa")]
        server, client = programs.libfabric("efa", "rdm", port, "127.0.0.1")
        server = self.serve_by_tcp(server, port, run=options, **extra)
        self.finish(server, self.start(client, run=options, **extra))

    def test_fio(self):
        for verb in ("write", "read"):
            with self.subTest(verb):
                port = rdma_port()
                words = programs.fio(self.runtime, port, verb, "127.0.0.1")
                self.run_cm_pair(*words, port, cwd=self.runtime, run=self.suppress("fio"))


class Ucx(Checked, CmTest):
    def test_ucx_perftest(self):
        port = free_port()
        extra = {"UCX_TLS": "rc_verbs,ud_verbs:aux,self", "UCX_NET_DEVICES": "softrnic0:1", "UCX_LOG_LEVEL": "error"}
        options = self.suppress("ucx")
        for test in ("tag_lat", "put_bw", "get", "fadd"):
            with self.subTest(test):
                size = "8" if test == "fadd" else "4096"
                server = self.serve_by_tcp(["ucx_perftest", "-p", port], port, run=options, **extra)
                words = ["ucx_perftest", "127.0.0.1", "-p", port, "-t", f"ucp_{test}" if test != "tag_lat" else test]
                self.finish(server, self.start([*words, "-n", "300", "-w", "20", "-s", size], run=options, **extra))


class Mooncake(Checked):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packages = packages.python()

    def test_its_engine_writes_and_reads(self):
        self.env["PYTHONPATH"] = str(self.packages)
        script = HERE.parent / "verbs/python/mooncake_pair.py"
        sides = [self.start(["/usr/bin/python3", "-B", script, side, self.runtime]) for side in ("target", "initiator")]
        for side in reversed(sides):
            status = side.wait(time.monotonic() + 180)
            self.assertEqual(status, 0, side.describe(status))
            self.assertIn("ERROR SUMMARY: 0 errors", side.output())


class Pyverbs(Checked):
    """rdma-core's own tests, of which some make mistakes on purpose."""

    # UCX takes all huge pages, of which one of these needs some.
    by_itself = True

    ON_PURPOSE = re.compile(
        r"test_\w*(ud_zero_size|bad|invalid|illegal|wrong|non_aligned|rereg|resize|mw_type|bind_mw|create_ah_roce)|unimport_resources"
    )

    def test_nothing_is_reported_but_what_is_wrong_on_purpose(self):
        directory, report = self.runtime / "tests", self.runtime / "report.json"
        directory.mkdir()
        test_pyverbs.copy_tests(test_pyverbs.SHIPPED, directory)
        words = ["/usr/bin/python3", "-B", "pyverbs_results.py", "results.json"]
        program = self.start(words, run=["--report", report], cwd=directory)
        # Something is found.
        self.assertEqual(program.wait(time.monotonic() + 300), 99, program.output()[-2000:])
        findings = json.loads(report.read_text())["findings"]
        self.assertGreater(len(findings), 30)
        for finding in findings:
            functions = [call["function"] for calls in finding["calls"] for call in calls["stack"]]
            self.assertTrue(any(map(self.ON_PURPOSE.match, functions)), finding)


class Mpi(Checked):
    def test_mpich(self):
        program = self.compile("ring.c", compiler="mpicc.mpich")
        out = self.run_ok(
            ["mpirun.mpich", "-n", "2", program], timeout=180, run=self.suppress("ucx"), MPIR_CVAR_NOLOCAL="1",
            UCX_TLS="rc_verbs,ud_verbs:aux,self", UCX_NET_DEVICES="softrnic0:1", UCX_LOG_LEVEL="error")  # fmt: skip
        self.assertIn("all right with 2 ranks", out)

    def test_openmpi(self):
        program = self.compile("ring.c", compiler="mpicc")
        selection = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self"]
        out = self.run_ok(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", *selection, "-n", "2", program], timeout=180,
            run=self.suppress("ucx"),
            UCX_TLS="rc_verbs,ud_verbs:aux,self", UCX_NET_DEVICES="softrnic0:1", UCX_LOG_LEVEL="error")  # fmt: skip
        self.assertIn("all right with 2 ranks", out)


if __name__ == "__main__":
    unittest.main()
