"""What the tests of verbs programs share: running programs on SoftRNIC, in pairs or alone."""

import contextlib
import itertools
import os
import pathlib
import random
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("SOFTRNIC_TEST_PROFILE", "release")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / PROFILE
# tests/verbs/on_rxe has another one, which starts programs on the distribution's verbs.
SOFTRNIC = pathlib.Path(os.environ.get("SOFTRNIC_TEST_COMMAND", TARGET / "softrnic"))
ON_KERNEL = "SOFTRNIC_TEST_COMMAND" in os.environ
LIBRARY = TARGET / "verbs/libibverbs.so.1"
INTERPOSER = TARGET / "libsoftrnic_interpose.so"

# The library that programs were linked with, and find without us.
DISTRIBUTION = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"

# The address at which servers of rdma_cm and of other suites listen: rxe does not serve loopback addresses by rdma_cm.
ADDRESS = os.environ.get("SOFTRNIC_TEST_ADDRESS", "127.0.0.1")

# The longest that a program may take unless a test says otherwise, in seconds.
TIMEOUT = float(os.environ.get("SOFTRNIC_TEST_TIMEOUT", "60"))
# That of several, and of one that runs many tests of its own.
LONG_TIMEOUT, SUITE_TIMEOUT = max(TIMEOUT, 180), max(TIMEOUT, 300)

# Whether processes of this machine use shared memory, or sockets alone: "on", which is the default, or "off".
SHARED_MEMORY = os.environ.get("SOFTRNIC_TEST_SHM", "")

# Options that each program is run with besides those of its test, such as --adversarial=7.
RUN_OPTIONS = os.environ.get("SOFTRNIC_TEST_RUN", "").split()


def environment(runtime, **extra):
    """An environment in which only the test says anything to SoftRNIC, whose private files go to `runtime`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SOFTRNIC_")}
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        env.pop(name, None)
    env["XDG_RUNTIME_DIR"] = str(runtime)
    env["SOFTRNIC_SHM"] = SHARED_MEMORY
    env.update(extra)
    return env


class Program:
    """A running program. Its output goes to a file, so that nothing blocks."""

    def __init__(self, argv, env, cwd=None):
        self.argv = [str(word) for word in argv]
        self.file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self):
        return self.process.pid

    def output(self):
        # The program writes at the offset that it shares with this file. Reading must not move it.
        return os.pread(self.file.fileno(), os.fstat(self.file.fileno()).st_size, 0).decode(errors="replace")

    def wait(self, deadline):
        """The exit status; None when the deadline passed, and the program was ended."""
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.file.close()

    def describe(self, status):
        how = "did not end in time" if status is None else f"ended with {status}"
        return f"$ {' '.join(self.argv)}\n{self.output()}\n({how})"


# Below those that the kernel gives to clients, one of which might have it before the server does. In no order, so
# that runs side by side seldom meet.
PORTS = itertools.cycle(random.sample(range(20000, 32768), 32768 - 20000))


def free_port():
    """A free TCP port, a different one each time."""
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def is_listening(port):
    return is_listening_in("self", port)


def is_listening_in(process, port):
    """Whether a TCP port has a listener in a process's network namespace."""
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


class VerbsTest(unittest.TestCase):
    """A test that runs programs on SoftRNIC."""

    # What programs are run with.
    command = SOFTRNIC

    # Run by hand, a failure shows all of what the programs said.
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        for file in (SOFTRNIC, LIBRARY, INTERPOSER):
            if not file.exists() and not ON_KERNEL:
                raise RuntimeError(f"{file} is missing: run tests/verbs/run, which builds it")

    def setUp(self):
        runtime = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(runtime.cleanup)
        self.runtime = pathlib.Path(runtime.name)
        self.env = environment(runtime.name)

    def compile(self, source, *libraries, compiler="cc", flags=("-Wall", "-Wextra", "-Werror")):
        """Compiles a C program of ours, or at an absolute path, against the distribution's headers and libraries;
        returns its path."""
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        program = pathlib.Path(directory.name) / pathlib.Path(source).stem
        source = pathlib.Path(__file__).parent / "c" / source
        command = [compiler, "-g", "-O1", *flags, "-o", program, source, *libraries]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return program

    def start(self, argv, run=(), cwd=None, **extra):
        """Starts a program with `softrnic run`, which gets the options `run`."""
        program = Program([self.command, "run", *RUN_OPTIONS, *run, "--", *argv], {**self.env, **extra}, cwd)
        self.addCleanup(program.close)
        return program

    def wait_until(self, condition, *programs, timeout=TIMEOUT):
        """Waits for what running programs are about to do, none of which may end before; returns what the condition says."""
        deadline = time.monotonic() + timeout
        while True:
            # What a program says at its end counts.
            over = time.monotonic() > deadline or any(program.process.poll() is not None for program in programs)
            if found := condition():
                return found
            if over:
                told = [program.describe(program.wait(time.monotonic())) for program in programs]
                self.fail("\n".join(["it does not get there", *told]))
            time.sleep(0.005)

    def run_ok(self, argv, timeout=TIMEOUT, **options):
        """Runs a program that must succeed; returns its output."""
        program = self.start(argv, **options)
        status = program.wait(time.monotonic() + timeout)
        self.assertEqual(status, 0, program.describe(status))
        return program.output()

    def run_pair(self, program, *options, server_options=(), client_options=(), timeout=TIMEOUT, **extra):
        """Runs a server and then a client of it, as pingpong and perftest do; both must succeed.

        A program may be several words. Returns the outputs of both.
        """
        port = free_port()
        words = [*([program] if isinstance(program, str) else program), "-p", port, *options]
        server = self.start([*words, *server_options], **extra)
        deadline = time.monotonic() + timeout
        self.wait_until(lambda: is_listening(port), server, timeout=timeout)
        client = self.start([*words, *client_options, "127.0.0.1"], **extra)
        client_status = client.wait(deadline)
        # A server whose client has failed may wait for ever.
        server_status = server.wait(deadline if client_status == 0 else time.monotonic() + 2)
        if (server_status, client_status) != (0, 0):
            self.fail(f"server: {server.describe(server_status)}\nclient: {client.describe(client_status)}")
        return server.output(), client.output()
