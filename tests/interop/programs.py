"""Unmodified verbs programs, one end on SoftRNIC and the other in the guest on rxe."""

import contextlib
import dataclasses
import functools
import os
import re
import select
import signal
import subprocess
import time

START_SECONDS = 20
RUN_SECONDS = 40

# Lossless as they run here: unreliable services get no more at once than a small socket buffer holds.
PINGPONGS = [
    ["ibv_rc_pingpong", "-n", "200", "-c"],
    ["ibv_rc_pingpong", "-n", "200", "-e", "-m", "4096", "-s", "20000"],
    ["ibv_uc_pingpong", "-n", "200", "-c"],
    ["ibv_ud_pingpong", "-n", "200", "-c"],
    ["ibv_srq_pingpong", "-n", "200", "-c"],
]
PERFTESTS = [
    ["ib_send_bw", "-n", "200", "-s", "65536"],
    ["ib_send_bw", "-c", "UC", "-n", "32", "-s", "2048"],
    ["ib_send_bw", "-c", "UD", "-n", "32", "-s", "2048"],
    ["ib_send_lat", "-n", "200", "-s", "8"],
    ["ib_send_lat", "-c", "UC", "-n", "200", "-s", "8"],
    ["ib_send_lat", "-c", "UD", "-n", "200", "-s", "8"],
    ["ib_write_bw", "-n", "200", "-s", "65536"],
    ["ib_write_bw", "-c", "UC", "-n", "32", "-s", "2048"],
    ["ib_write_lat", "-n", "200", "-s", "8"],
    ["ib_write_lat", "-c", "UC", "-n", "200", "-s", "8"],
    ["ib_read_bw", "-n", "200", "-s", "65536"],
    ["ib_read_lat", "-n", "200", "-s", "8"],
    ["ib_atomic_bw", "-n", "200"],
    ["ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "200"],
    ["ib_atomic_lat", "-n", "200"],
]
CORE = [PINGPONGS[0], PINGPONGS[3], PERFTESTS[0], PERFTESTS[6], PERFTESTS[10], PERFTESTS[12]]

FIRST_PORT = 20000


@dataclasses.dataclass
class Outcome:
    program: str
    guest_serves: bool
    problem: str = ""

    def __str__(self):
        return f"{self.program}, the guest is {'server' if self.guest_serves else 'client'}"


class Side:
    """Where a program runs: how to start it, and its address and GID index for others."""

    # A command that prints what the NICs there have counted.
    counters = None

    def __init__(self, name, prefix, env, address, gid_index=None, device=None):
        self.name, self.prefix, self.env = name, prefix, env
        self.address, self.gid_index, self.device = address, gid_index, device

    def run(self, *argv):
        """What a command says there."""
        done = subprocess.run([*self.prefix, *argv], capture_output=True, text=True, timeout=START_SECONDS)
        return done.stdout

    def listens(self, port):
        """Whether a TCP listener waits there."""
        table = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6")
        return any(re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", line) for line in table.splitlines())


def run(near, guest, core=False, wanted=lambda name: True):
    """Run every program both ways; yield an Outcome for each."""
    port = FIRST_PORT
    for argv in CORE if core else PINGPONGS + PERFTESTS:
        for server, client in ((guest, near), (near, guest)):
            outcome = Outcome(" ".join(argv), server is guest)
            if wanted(outcome):
                port += 1
                serve = options(argv, server, port)
                call = [*options(argv, client, port), server.address]
                ready = functools.partial(listens_at, server, port)
                outcome.problem = pair(server, serve, client, call, ready)
                yield outcome


def listens_at(server, port, _):
    return server.listens(port)


def pair(server, serve, client, call, ready, forgiven=None):
    """Run a program at both sides, the client when `ready` says so of the server; what went wrong, or nothing. An
    exit status other than 0 is no problem if the output matches `forgiven`."""
    return pairs(server, client, [(serve, call, ready)], forgiven)


def pairs(server, client, commands, forgiven=None, meanwhile=lambda: ""):
    """Run several of them at the same time: for each, what the server runs, what the client runs, and what says that the
    server is ready. When all run, `meanwhile` says whether something is wrong."""
    with contextlib.ExitStack() as stack:

        def start(side, argv):
            program = _Program(side, argv)
            stack.callback(program.kill)
            return program

        serving = [start(server, serve) for serve, _, _ in commands]
        for program, (_, _, ready) in zip(serving, commands):
            if not program.comes_up(ready):
                program.heard()
                return f"the server does not wait for a client: {program.said()}"
        calling = [start(client, call) for _, call, _ in commands]
        problem = meanwhile()
        deadline = time.monotonic() + RUN_SECONDS
        ended = [(program, program.wait(deadline)) for program in (*calling, *serving)]
        problems = [problem] if problem else []
        problems += [
            f"{p.side.name}: {status}: {p.said()}"
            for p, status in ended
            if status != "exit status 0" and not (forgiven and re.search(forgiven, p.output.decode(errors="replace") + status))
        ]
        # Of those that have not ended.
        if problems:
            problems += [f"counters of {side.name}: {side.run(*side.counters)}" for side in (server, client) if side.counters]
    return "; ".join(problems)


def options(argv, side, port):
    if argv[0].startswith("ibv_"):
        return [*argv, "-d", side.device, "-g", str(side.gid_index), "-p", str(port)]
    # An emulated guest may stand still for longer than perftest's own timeout and retries allow, which is half a second.
    return [*argv, "-d", side.device, "-x", str(side.gid_index), "-p", str(port), "-F", "-u", "17"]


class _Program:
    def __init__(self, side, argv):
        self.side = side
        self.output = b""
        self.process = subprocess.Popen(
            [*side.prefix, *argv], env=side.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def comes_up(self, ready):
        """Wait until it is ready."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if ready(self):
                return True
        return False

    def heard(self):
        """What it has said so far."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                break
            self.output += part
        return self.output.decode(errors="replace")

    def wait(self, deadline):
        """How it ended."""
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not part:
                break
            self.output += part
        try:
            return f"exit status {self.process.wait(max(0.1, deadline - time.monotonic()))}"
        except subprocess.TimeoutExpired:
            return f"did not end in {RUN_SECONDS} s"

    def said(self):
        return " | ".join(self.output.decode(errors="replace").split("\n")[-40:]).strip()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
