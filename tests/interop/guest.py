"""The peer: a kernel in a guest, with rxe (tools/rxe-peer)."""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
RXE_PEER = ROOT / "tools/rxe-peer"
BOOT_SECONDS = 600  # the first time it downloads a kernel


class Guest:
    """A guest for the time of a `with` block; one that runs already under this name is used and left running."""

    def __init__(self, kernel, name, net=None):
        self.kernel, self.name, self.net, self.ours = kernel, name, net, False

    def __enter__(self):
        if not self._state():
            net = ["--net", self.net] if self.net else []
            _tool("up", "--name", self.name, "--kernel", self.kernel, *net)
            self.ours = True
        state = self._state()
        self.version = state["version"]
        self.namespace, self.wire_namespace = state["namespace"], state["wire_namespace"]
        self.address = {4: state["peer"]["ipv4"], 6: state["peer"]["ipv6"]}
        self.near_address = {4: state["local"]["ipv4"], 6: state["local"]["ipv6"]}
        self._lengthen_queue(f"tap{state['host']}")
        return self

    def __exit__(self, *_):
        if self.ours:
            _tool("down", "--name", self.name)

    def command(self, *argv):
        """The command line that runs `argv` in the guest."""
        return [str(RXE_PEER), "run", "--name", self.name, "--", *map(str, argv)]

    def run(self, *argv, timeout=60):
        """The output of a command in the guest."""
        return subprocess.run(self.command(*argv), check=True, capture_output=True, text=True, timeout=timeout).stdout

    def _state(self):
        shown = _tool("status", "--name", self.name, "--json", check=False)
        return json.loads(shown.stdout) if shown.returncode == 0 else None

    def _lengthen_queue(self, tap):
        """Unreliable services have no flow control: a whole 1 MiB message must fit on its way into the guest."""
        argv = ["ip", "-n", self.wire_namespace, "link", "set", tap, "txqueuelen", "10000"]
        subprocess.run(argv, check=True, timeout=10)


def gid(address):
    """The GID of an address, as text for the agent."""
    return address if ":" in address else f"::ffff:{address}"


def _tool(*argv, check=True):
    done = subprocess.run([str(RXE_PEER), *argv], capture_output=True, text=True, timeout=BOOT_SECONDS)
    if check and done.returncode != 0:
        raise RuntimeError(f"rxe-peer {argv[0]}: {done.stderr.strip()}")
    return done
