"""The peer: a kernel in a guest, with rxe (tools/rxe-peer)."""

import json
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RXE_PEER = ROOT / "tools/rxe-peer"
BOOT_SECONDS = 600  # the first time it downloads a kernel
# How Linux begins the report of a fault of its own.
# Nothing that it may owe to a peer that does not answer, such as tasks that wait for long.
FAULT = re.compile(r"\] (rcu: )?(BUG: |Oops: |general protection fault|INFO: rcu\S* .*stall)")


class Guest:
    """A guest for the time of a `with` block; one that runs already under this name is used and left running."""

    def __init__(self, kernel, name, net=None):
        self.kernel, self.name, self.net, self.ours = kernel, name, net, False

    def __enter__(self):
        if not self._state():
            self._boot()
        state = self._state()
        self.version = state["version"]
        self.namespace, self.wire_namespace = state["namespace"], state["wire_namespace"]
        self.address = {4: state["peer"]["ipv4"], 6: state["peer"]["ipv6"]}
        self.near_address = {4: state["local"]["ipv4"], 6: state["local"]["ipv6"]}
        self.tap = f"tap{state['host']}"
        self._lengthen_queue()
        self.since = self._clocks()
        return self

    def __exit__(self, *_):
        if self.ours:
            _tool("down", "--name", self.name)

    def renew(self):
        """Another guest instead of this one, which does not work any more."""
        _tool("down", "--name", self.name)
        self._boot()
        self.__enter__()

    def clock_problem(self):
        """What is wrong with the guest's clock since it was entered, if anything. Its timeouts depend on it."""
        try:
            (begun, first, answered), (asked, second, ended) = self.since, self._clocks()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return str(error)
        there, least, most = second - first, asked - answered, ended - begun
        if least * 0.98 - 0.05 <= there <= most * 1.02 + 0.05:
            return None
        return f"{there:.2f} s went by in the guest in {most:.2f} s"

    def faults(self, seen=()):
        """What its kernel says of faults of its own, without what was `seen` before."""
        try:
            lines = self.run("dmesg").splitlines()
        except (RuntimeError, subprocess.TimeoutExpired):
            return ["it does not answer, or QEMU has ended"]
        return [line for line in lines if FAULT.search(line) and line not in seen]

    def condition(self):
        """What there is to say about a guest that may not work any more."""
        script = "ip -s link; ip neigh; cat /proc/interrupts /proc/softirqs; ps; dmesg | tail -50"
        try:
            said = f"clock: {self.clock_problem() or 'right'}\n{self.run('sh', '-c', script)}"
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            said = str(error)
        console = _tool("console", "--name", self.name, check=False)
        return f"{said}\nconsole:\n{console.stdout}{console.stderr}"

    def command(self, *argv):
        """The command line that runs `argv` in the guest. If QEMU has ended, another guest would not be this one."""
        return [str(RXE_PEER), "run", "--no-boot", "--name", self.name, "--", *map(str, argv)]

    def sees(self, path):
        """Whether a file of ours is there in the guest, too."""
        return subprocess.run(self.command("test", "-e", path), timeout=60).returncode == 0

    def run(self, *argv, timeout=60):
        """The output of a command in the guest."""
        done = subprocess.run(self.command(*argv), capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, argv))} in the guest ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def _clocks(self):
        """Its uptime, between two readings of our clock."""
        before = time.monotonic()
        uptime = float(self.run("cat", "/proc/uptime").split()[0])
        return before, uptime, time.monotonic()

    def _boot(self):
        net = ["--net", self.net] if self.net else []
        _tool("up", "--name", self.name, "--kernel", self.kernel, *net)
        self.ours = True

    def _state(self):
        shown = _tool("status", "--name", self.name, "--json", check=False)
        return json.loads(shown.stdout) if shown.returncode == 0 else None

    def _lengthen_queue(self):
        """Unreliable services have no flow control: a whole 1 MiB message must fit on its way into the guest."""
        argv = ["ip", "-n", self.wire_namespace, "link", "set", self.tap, "txqueuelen", "10000"]
        subprocess.run(argv, check=True, timeout=10)


def gid(address):
    """The GID of an address, as text for the agent."""
    return address if ":" in address else f"::ffff:{address}"


def _tool(*argv, check=True):
    done = subprocess.run([str(RXE_PEER), *argv], capture_output=True, text=True, timeout=BOOT_SECONDS)
    if check and done.returncode != 0:
        raise RuntimeError(f"rxe-peer {argv[0]}: {done.stderr.strip()}")
    return done
