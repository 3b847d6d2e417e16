"""Running the two processes of a measurement: where they are, what they used, and when they hang."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

# The longest that one measurement may take, in seconds.
PATIENCE = 40


class Failure(Exception):
    """A measurement could not be taken; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where the server and the client of a pair run."""

    name: str
    server: tuple = ()
    client: tuple = ()
    server_address: str = "127.0.0.1"
    client_address: str = "127.0.0.1"
    server_netns: str | None = None
    client_netns: str | None = None
    # Devices that UCX and libfabric may use.
    interface: str = "lo"
    # The GID of an IPv4 address on a device of this place, for perftest.
    gid_index: int = 0


LOOPBACK = Place("loopback")


class Veth:
    """Two hosts joined by a cable: a lab of `softrnic lab`, for as long as the block lasts."""

    def __init__(self, softrnic):
        self.softrnic = softrnic
        self.name = f"bench{os.getpid()}"

    def __enter__(self):
        run([self.softrnic, "lab", "up", "--name", self.name, "--cable", "--mtu", "4500"])
        h1, h2 = (f"softrnic-{self.name}-{host}" for host in ("h1", "h2"))
        inside = [("nsenter", f"--net=/run/netns/{host}") for host in (h2, h1)]
        return Place("veth", inside[0], inside[1], "10.77.0.2", "10.77.0.1", h2, h1, "eth0", 1)

    def __exit__(self, *_):
        run([self.softrnic, "lab", "down", "--name", self.name])


class Busy:
    """Programs that want all processors, twice as many as there are, for as long as the block lasts."""

    def __enter__(self):
        loop = [sys.executable, "-c", "while True: pass"]
        self.loops = [subprocess.Popen(loop) for _ in range(2 * len(os.sched_getaffinity(0)))]

    def __exit__(self, *_):
        for loop in self.loops:
            loop.kill()
            loop.wait()


@dataclass
class Outcome:
    """What both processes said, and the processor time that they used, in seconds."""

    server: str = ""
    client: str = ""
    cpu: float = 0.0


@dataclass
class Process:
    """A running program, whose output goes to a file so that nothing blocks."""

    argv: list
    env: dict
    file: object = field(default_factory=tempfile.TemporaryFile)
    cpu: float = 0.0
    status: int | None = None

    def __post_init__(self):
        self.argv = [str(word) for word in self.argv]
        self.process = subprocess.Popen(
            self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pidfd = os.pidfd_open(self.process.pid)

    def output(self):
        self.file.seek(0)
        return self.file.read().decode(errors="replace")

    def wait(self, deadline):
        """Whether it has ended by then."""
        if self.status is not None:
            return True
        if not select.select([self.pidfd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        _, status, usage = os.wait4(self.process.pid, 0)
        # Popen must not wait for it again.
        self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        return True

    def close(self):
        if self.status is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.wait(time.monotonic() + PATIENCE)
        os.close(self.pidfd)
        self.file.close()

    def describe(self):
        how = "did not end in time" if self.status is None else f"ended with {self.status}"
        return f"$ {' '.join(self.argv)}\n{self.output()}\n({how})"


def pair(place, server, client, port=None, server_env=None, client_env=None, server_ends=True):
    """Runs a server, and when it listens on `port` a client; both must succeed.

    A server that does not end by itself (`server_ends`) is ended once the client has.
    """
    deadline = time.monotonic() + PATIENCE
    processes = []
    try:
        processes.append(Process([*place.server, *server], environment(server_env)))
        if port is not None:
            await_listener(processes[0], port, deadline)
        processes.append(Process([*place.client, *client], environment(client_env)))
        ended = processes[1].wait(deadline)
        # A server whose client has failed may wait for ever.
        good = ended and processes[1].status == 0
        if not server_ends and good:
            os.killpg(processes[0].process.pid, signal.SIGTERM)
        ended = processes[0].wait(deadline if good else time.monotonic() + 2)
        if not good or not ended or (server_ends and processes[0].status != 0):
            raise Failure("\n".join(process.describe() for process in processes))
        outputs = [process.output() for process in processes]
        return Outcome(outputs[0], outputs[1], sum(process.cpu for process in processes))
    finally:
        for process in processes:
            process.close()


def single(argv, env=None):
    """Runs one program, which must succeed. What its children used counts."""
    process = Process(argv, environment(env))
    try:
        if not process.wait(time.monotonic() + PATIENCE) or process.status != 0:
            raise Failure(process.describe())
        return Outcome(client=process.output(), cpu=process.cpu)
    finally:
        process.close()


def run(argv):
    """Runs a command that must succeed; returns what it printed."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise Failure(f"$ {' '.join(map(str, argv))}\n{done.stdout}{done.stderr}(ended with {done.returncode})")
    return done.stdout


def environment(extra):
    """Ours without what would change the measured programs."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTRNIC_", "UCX_", "FI_"))}
    return {**env, **(extra or {})}


def free_port():
    """A TCP port that nobody listens on. The kernel hands out different ones for a while."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def await_listener(server, port, deadline):
    """Waits until a process in the server's network listens on a TCP port."""
    wanted = f":{port:04X} "
    while True:
        for table in ("tcp", "tcp6"):
            try:
                lines = Path(f"/proc/{server.process.pid}/net/{table}").read_text().splitlines()
            except OSError:
                lines = []
            if any(wanted in line[:45] and " 0A " in line for line in lines):
                return
        if time.monotonic() > deadline or server.wait(time.monotonic() + 0.003):
            raise Failure(f"the server does not listen\n{server.describe()}")
