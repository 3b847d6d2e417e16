"""Programs beyond rdma-core that find their peers by rdma_cm, between two processes on one machine."""

import pathlib
import tempfile

import cm_programs as programs
from cm import CmTest, rdma_port
from harness import ADDRESS, free_port
from perftest import results


class Perftest(CmTest):
    """Each test is one run of a pair, made below."""

    def perftest(self, program, *options):
        port = rdma_port()
        words = [program, "-R", "-F", "-p", port, *options]
        # The first of its connections, by which the two agree, is always of the port space of TCP.
        outs = self.run_cm_pair(words, [*words, ADDRESS], port, timeout=120)
        for out in outs:
            self.assertNotRegex(out, r"(?i)couldn't|failed|error")
        self.assertTrue(results(outs[1]), outs[1])


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
    def directory(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        return pathlib.Path(directory.name)

    def test_qperf(self):
        port = free_port()
        server = self.serve_by_tcp(programs.qperf(port, "", "")[0], port)
        for test in programs.QPERF_TESTS:
            out = self.run_ok(programs.qperf(port, ADDRESS, test)[1])
            self.assertRegex(out, programs.qperf_result(test))
        self.assertIsNone(server.process.poll(), server.output())

    def fio(self, verb):
        here, port = self.directory(), rdma_port()
        _, out = self.run_cm_pair(*programs.fio(here, port, verb, ADDRESS), port, cwd=here)
        self.assertRegex(out, programs.FIO_RESULT)

    def test_fio_write(self):
        self.fio("write")

    def test_fio_read(self):
        self.fio("read")

    def test_fio_send_works_or_says_that_it_has_no_patience(self):
        here, port = self.directory(), rdma_port()
        server, client = programs.fio(here, port, "send", ADDRESS)
        self.serve(server, port, cwd=here)
        client = self.start(client, cwd=here)
        # When its connection has ended so, it waits for ever.
        self.wait_until(lambda: programs.FIO_SEND_RESULT.search(client.output()), client)

    def libfabric(self, provider, kind, **extra):
        port = free_port()
        server, client = programs.libfabric(provider, kind, port, ADDRESS)
        server = self.serve_by_tcp(server, port, **extra)
        _, out = self.finish(server, self.start(client, **extra))
        self.assertRegex(out, programs.LIBFABRIC_RESULT)

    def test_libfabric_datagrams_from_either_place_of_the_gid_table(self):
        for place in ("0", "1"):
            self.libfabric("verbs", "dgram", FI_VERBS_GID_INDEX=place)

    def test_libfabric_msg(self):
        self.libfabric(*programs.LIBFABRIC[0])

    def test_libfabric_rdm(self):
        self.libfabric(*programs.LIBFABRIC[1])

    def test_fi_info_finds_the_provider(self):
        self.assertRegex(self.run_ok(["fi_info", "-p", "verbs"]), r"(?m)^provider: verbs$")

    def test_ucx(self):
        program = self.compile(programs.UCX_EXAMPLE, *programs.UCX_LIBRARIES, flags=("-w",))
        port = rdma_port()
        server, client = programs.ucx(program, port, ADDRESS)
        server = self.serve(server, port, **programs.UCX_ENVIRONMENT)
        self.assertRegex(self.run_ok(client, **programs.UCX_ENVIRONMENT), programs.UCX_RESULT)
        self.assertIsNone(server.process.poll(), server.output())

    def test_iscsi_over_rdma(self):
        iser = programs.Iser(self.directory())
        server = self.serve(iser.SERVER, iser.PORT, **iser.environment)
        for words in iser.setup():
            self.run_ok(words, **iser.environment)
        url = iser.url(ADDRESS)
        out = self.run_ok(["iscsi-inq", "-i", iser.INITIATOR, url])
        self.assertIn("Vendor:IET", out)
        self.assertIn("Total size:1048576", self.run_ok(["iscsi-readcapacity16", "-i", iser.INITIATOR, url]))
        program = self.compile("iscsi_data.c", "-liscsi")
        self.assertIn(iser.SAYS, self.run_ok([program, iser.INITIATOR, url]))
        self.assertTrue(iser.is_written())
        self.assertIsNone(server.process.poll(), server.output())


class Preloaded(CmTest):
    """librspreload: programs of TCP, by RDMA."""

    LIBRARY = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"

    def test_a_program_of_sockets(self):
        program = self.compile("echo.c")
        port = rdma_port()
        extra = {"LD_PRELOAD": self.LIBRARY}
        out = self.run_cm_pair([program, "once", port, ADDRESS], [program, "client", port, ADDRESS], port, **extra)[1]
        self.assertIn("1048576 bytes came back", out)

    def test_a_server_that_forks(self):
        program = self.compile("echo.c")
        port = rdma_port()
        extra = {"LD_PRELOAD": self.LIBRARY, "RDMAV_FORK_SAFE": "1"}
        # It accepts by TCP then, and goes over to RDMA in the child.
        server = self.serve_by_tcp([program, "fork", port, ADDRESS], port, **extra)
        out = self.finish(server, self.start([program, "client", port, ADDRESS], **extra))[1]
        self.assertIn("1048576 bytes came back", out)
