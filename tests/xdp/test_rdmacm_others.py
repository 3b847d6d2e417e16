"""Programs beyond rdma-core that find their peers by rdma_cm, between two hosts, over each kind of link."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time

from lab import ROOT, TIMEOUT, LabTest
from test_programs import ADDRESS, LISTEN, Program
from test_rdmacm import is_listening

sys.path.append(str(ROOT / "tests/verbs"))
import cm_programs as programs  # noqa: E402

LINKS = {"xdp": ("xdp:eth0", "xdp:eth0"), "udp": tuple(f"udp:{ADDRESS[host]}" for host in ("h1", "h2"))}
SERVER = ADDRESS["h2"]
PORT = 18888


def listens_by_tcp(lab):
    rows = [line.split() for line in lab.run("h2", "cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()]
    return any(row[1].endswith(f":{PORT:04X}") and row[3] == LISTEN for row in rows)


def listens(lab, port=PORT):
    return is_listening(lab, "tcp", str(port))


class Pair:
    """Two hosts over one kind of link, and the programs that run in them."""

    def __init__(self, test, link, directory):
        self.test, self.devices, self.directory = test, LINKS[link], directory
        self.lab = test.lab("--mtu", "4500")
        self.programs = []

    def start(self, host, words, environment):
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), *(str(word) for word in words)]
        program = Program(self.lab, host, self.devices[host == "h2"], words)
        self.programs.append(program)
        return program

    def serve(self, words, listens, environment={}):
        server, deadline = self.start("h2", words, environment), time.monotonic() + TIMEOUT
        while not listens(self.lab):
            self.test.assertIsNone(server.process.poll(), server.output())
            self.test.assertLess(time.monotonic(), deadline, f"the server does not listen\n{server.output()}")
            time.sleep(0.01)
        return server

    def ask(self, words, result, environment={}):
        """Runs a client, which must have this result."""
        client = self.start("h1", words, environment)
        status = client.status(time.monotonic() + TIMEOUT)
        said = f"{client.output()}\nserver:\n{self.programs[0].output()}"
        self.test.assertEqual(status, 0, said)
        self.test.assertRegex(client.output(), result, said)

    def end(self):
        """Ends what runs."""
        for program in self.programs:
            program.__exit__()
        self.programs.clear()


class Others(LabTest):
    @contextlib.contextmanager
    def pair(self, link):
        with tempfile.TemporaryDirectory(prefix="softrnic-test-") as directory:
            pair = Pair(self, link, pathlib.Path(directory))
            try:
                yield pair
            finally:
                pair.end()

    def qperf(self, pair):
        pair.serve(programs.qperf(PORT, "", "")[0], listens_by_tcp)
        for test in ("rc_bw", "rc_rdma_read_bw"):
            pair.ask(programs.qperf(PORT, SERVER, test)[1], programs.qperf_result(test))

    def fio(self, pair):
        for verb in ("write", "read"):
            server, client = programs.fio(pair.directory, PORT, verb, SERVER)
            server = pair.serve(server, listens)
            pair.ask(client, programs.FIO_RESULT)
            self.assertEqual(server.status(time.monotonic() + TIMEOUT), 0, server.output())
            pair.end()

    def libfabric(self, pair):
        for provider, kind in programs.LIBFABRIC:
            server, client = programs.libfabric(provider, kind, PORT, SERVER)
            server = pair.serve(server, listens_by_tcp)
            pair.ask(client, programs.LIBFABRIC_RESULT)
            self.assertEqual(server.status(time.monotonic() + TIMEOUT), 0, server.output())
            pair.end()

    def ucx(self, pair):
        program = pair.directory / "ucx"
        words = ["cc", "-w", "-o", program, programs.UCX_EXAMPLE, *programs.UCX_LIBRARIES]
        subprocess.run(words, check=True)
        server, client = programs.ucx(program, PORT, SERVER)
        pair.serve(server, listens, programs.UCX_ENVIRONMENT)
        pair.ask(client, programs.UCX_RESULT, programs.UCX_ENVIRONMENT)

    def iser(self, pair):
        program = pair.directory / "iscsi_data"
        source = ROOT / "tests/verbs/c/iscsi_data.c"
        subprocess.run(["cc", "-o", program, source, "-liscsi"], check=True)
        iser = programs.Iser(pair.directory)
        pair.serve(iser.SERVER, lambda lab: listens(lab, iser.PORT), iser.environment)
        for words in iser.setup():
            pair.lab.run("h2", "env", f"TGT_IPC_SOCKET={iser.environment['TGT_IPC_SOCKET']}", *words)
        pair.ask([program, iser.INITIATOR, iser.url(SERVER)], iser.SAYS)
        self.assertTrue(iser.is_written())


def add_tests():
    for name in ("qperf", "fio", "libfabric", "ucx", "iser"):
        for link in LINKS:
            def test(self, name=name, link=link):
                with self.pair(link) as pair:
                    getattr(self, name)(pair)

            setattr(Others, f"test_{name}_over_{link}", test)


add_tests()
