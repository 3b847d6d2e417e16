"""Programs beyond rdma-core that find their peers by rdma_cm, between two processes on one machine."""

import pathlib
import tempfile

from cm import CmTest, rdma_port
from harness import free_port
from test_perftest import RESULT

UCX_EXAMPLE = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c"


class Perftest(CmTest):
    """Each test is one run of a pair, made below."""

    def perftest(self, program, *options, result=RESULT):
        port = rdma_port()
        words = [program, "-R", "-F", "-p", port, *options]
        # The first of its connections, by which the two agree, is always of the port space of TCP.
        outs = self.run_cm_pair(words, [*words, "127.0.0.1"], port, timeout=120)
        for out in outs:
            self.assertNotRegex(out, r"(?i)couldn't|failed|error")
        self.assertTrue(result.search(outs[1]), outs[1])


def add_perftests():
    cases = [(f"ib_{verb}_{kind}", "rc") for verb in ("write", "read", "send", "atomic") for kind in ("bw", "lat")]
    cases += [("ib_send_bw", "ud", "-c", "UD", "-s", "1024"), ("ib_send_lat", "ud", "-c", "UD", "-s", "1024")]
    cases += [("ib_write_bw", "4_qps", "-q", "4"), ("ib_write_bw", "tos", "-T", "32"), ("ib_send_bw", "events", "-e"),
              ("ib_send_bw", "srq", "--use-srq"), ("ib_write_bw", "exchange_alone", "-z")]
    for program, name, *options in cases:
        def test(self, program=program, options=options):
            self.perftest(program, "-n", "500", *options)

        setattr(Perftest, f"test_{program}_{name}", test)


add_perftests()


class Others(CmTest):
    def test_qperf(self):
        port = free_port()
        server = self.serve_by_tcp(["qperf", "-lp", port], port)
        for test in ("rc_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_read_bw", "rc_fetch_add_mr"):
            out = self.run_ok(["qperf", "-lp", port, "-t", "1", "-cm", "1", "127.0.0.1", test])
            self.assertRegex(out, rf"{test}:\n\s+\w+\s+=\s+[1-9]")
        self.assertIsNone(server.process.poll(), server.output())

    def fio(self, verb):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        here = pathlib.Path(directory.name)
        port = rdma_port()
        both = f"[global]\nioengine=rdma\nport={port}\nbs=16k\nsize=8m\niodepth=4\n"
        (here / "server").write_text(f"{both}[receiver]\nrw=read\n")
        # Whoever connects is the one that writes to its job, whatever goes over the network.
        (here / "client").write_text(
            f"{both}[sender]\nhostname=127.0.0.1\nverb={verb}\nrw=write\niodepth_batch_complete=2\n")
        _, out = self.run_cm_pair(["fio", here / "server"], ["fio", here / "client"], port, cwd=here)
        self.assertRegex(out, r"write: IOPS=.*\(8192KiB/")

    def test_fio_write(self):
        self.fio("write")

    def test_fio_read(self):
        self.fio("read")

    def libfabric(self, provider, kind, **extra):
        port = free_port()
        words = ["fi_pingpong", "-p", provider, "-e", kind, "-I", "100", "-c"]
        # Its connection for control is a listener of TCP.
        server = self.serve_by_tcp([*words, "-B", port], port, **extra)
        _, out = self.finish(server, self.start([*words, "-P", port, "127.0.0.1"], **extra))
        self.assertRegex(out, r"(?m)^64\s+100\s+=100")

    def test_libfabric_datagrams_from_either_place_of_the_gid_table(self):
        for place in ("0", "1"):
            self.libfabric("verbs", "dgram", FI_VERBS_GID_INDEX=place)

    def test_libfabric_msg(self):
        self.libfabric("verbs", "msg")

    def test_libfabric_rdm(self):
        self.libfabric("verbs;ofi_rxm", "rdm")

    def test_fi_info_finds_the_provider(self):
        self.assertRegex(self.run_ok(["fi_info", "-p", "verbs"]), r"(?m)^provider: verbs$")

    def test_ucx(self):
        program = self.compile(UCX_EXAMPLE, "-lucp", "-lucs", flags=("-w",))
        port = rdma_port()
        extra = {"UCX_TLS": "rc_v,rdmacm,self", "UCX_NET_DEVICES": "softrnic0:1"}
        server = self.serve([program, "-p", port, "-l", "127.0.0.1"], port, **extra)
        out = self.run_ok([program, "-p", port, "-a", "127.0.0.1"], **extra)
        self.assertIn("ABCDEFGHIJKLMNO", out)
        self.assertIsNone(server.process.poll(), server.output())

    def test_iscsi_over_rdma(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        here = pathlib.Path(directory.name)
        target, initiator, port = "iqn.2026-01.test:disk", "iqn.2026-01.test:host", 3260
        disk = here / "disk.img"
        disk.write_bytes(b"SoftRNIC" * (1 << 17))
        extra = {"TGT_IPC_SOCKET": str(here / "tgtd")}
        server = self.serve(["tgtd", "-f"], port, **extra)
        for words in (
            ["--mode", "target", "--op", "new", "--tid", "1", "--targetname", target],
            ["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", disk],
            ["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
            ["--mode", "target", "--op", "bind", "--tid", "1", "-Q", initiator],
        ):
            self.run_ok(["tgtadm", "--lld", "iser", *words], **extra)
        url = f"iser://127.0.0.1:{port}/{target}/1"
        out = self.run_ok(["iscsi-inq", "-i", initiator, url])
        self.assertIn("Vendor:IET", out)
        self.assertIn("Total size:1048576", self.run_ok(["iscsi-readcapacity16", "-i", initiator, url]))
        program = self.compile("iscsi_data.c", "-liscsi")
        self.assertIn("2048 blocks are as they were written", self.run_ok([program, initiator, url]))
        self.assertEqual(disk.read_bytes(), bytes(block * 7 % 251 for block in range(2048) for _ in range(512)))
        self.assertIsNone(server.process.poll(), server.output())


class Preloaded(CmTest):
    """librspreload: programs of TCP, by RDMA."""

    LIBRARY = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"

    def test_a_program_of_sockets(self):
        program = self.compile("echo.c")
        port = rdma_port()
        extra = {"LD_PRELOAD": self.LIBRARY}
        out = self.run_cm_pair([program, "once", port], [program, "client", port], port, **extra)[1]
        self.assertIn("1048576 bytes came back", out)

    def test_a_server_that_forks(self):
        program = self.compile("echo.c")
        port = rdma_port()
        extra = {"LD_PRELOAD": self.LIBRARY, "RDMAV_FORK_SAFE": "1"}
        # It accepts by TCP then, and goes over to RDMA in the child.
        server = self.serve_by_tcp([program, "fork", port], port, **extra)
        out = self.finish(server, self.start([program, "client", port], **extra))[1]
        self.assertIn("1048576 bytes came back", out)
