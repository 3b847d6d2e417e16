"""What the tests of rdma_cm share: servers that are known to listen, and pairs of programs."""

import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import harness
from cm_programs import exit_status
from harness import TIMEOUT, VerbsTest, free_port

# A socket that listens (SO_ACCEPTCON), in /proc/net/unix.
LISTENS = "00010000"


def unix_sockets(process="self"):
    """The kernel's table of Unix sockets in a process's network namespace; nothing if the process has ended."""
    try:
        return pathlib.Path(f"/proc/{process}/net/unix").read_text()
    except OSError:
        return ""


def is_listening(port, space="tcp", process="self"):
    """Whether an RDMA port has a listener in a process's network namespace: the name in the registry says so."""
    if harness.ON_KERNEL:
        return is_listening_in_kernel(port)
    for line in unix_sockets(process).splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENS and fields[-1].startswith(f"@softrnic/cm/{space}/{port}/"):
            return True
    return False


def is_listening_in_kernel(port):
    shown = subprocess.run(["rdma", "resource", "show", "cm_id"], check=True, capture_output=True, text=True).stdout
    return re.search(rf"state LISTEN .*src-addr \S*:{port}\b", shown) is not None


def rdma_port():
    """A port without a listener, by TCP or rdma_cm."""
    while True:
        port = free_port()
        if not any(is_listening(port, space) for space in ("tcp", "udp", "ib", "ipoib")):
            return port


def own_address():
    """An address of this machine that is not a loopback address, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # No packet is sent.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


# Numbers of the network namespaces that are made.
MACHINES = itertools.count()


class CmTest(VerbsTest):
    def machine(self):
        """The words that put a program on a machine that has an address besides those of loopback, and that address.

        As root it is a network namespace of the test's own. Else it is this machine, which may have none.
        """
        if os.geteuid() != 0:
            address = own_address()
            if address is None:
                self.skipTest("this machine has no address but loopback, and it takes root to make another machine")
            return [], address
        return self.new_machine("10.77.0.9"), "10.77.0.9"

    def new_machine(self, *addresses):
        """The words that put a program on a machine with these addresses: a network namespace, which takes root."""
        if os.geteuid() != 0:
            self.skipTest("it takes root to make another machine")
        name = f"softrnic-verbs-{os.getpid()}-{next(MACHINES)}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=True)
        for words in ("link set lo up", *(f"address add {address}/32 dev lo" for address in addresses)):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        return ["ip", "netns", "exec", name]

    def serve(self, argv, port, space="tcp", **options):
        """Starts a server, and returns it when it listens."""
        server = self.start(argv, **options)
        self.wait_until(lambda: is_listening(port, space, server.pid), server)
        return server

    def serve_by_tcp(self, argv, port, **options):
        """The same for a server whose port is one of TCP."""
        server = self.start(argv, **options)
        self.wait_until(lambda: harness.is_listening(port), server)
        return server

    def check_groups(self, group, start):
        """Of four processes on one address, one sends to a group, two others have joined it, and one has not."""
        program = self.compile("group.c", "-libverbs")
        others = [start([program, group, role]) for role in ("listen", "listen", "ignore")]
        for other in others:
            self.wait_until(lambda: "ready" in other.output(), other)
        sender = start([program, group, "send"])
        for process, count in zip([sender, *others], (50, 50, 50, 0)):
            if not count:
                # Those that have joined have everything.
                os.kill(process.pid, signal.SIGTERM)
            status = process.wait(time.monotonic() + 60)
            self.assertEqual(status, 0, process.describe(status))
            self.assertIn(f"{count} and {count} messages", process.output())

    def look(self, program):
        """What `softrnic stats` says of a program's device."""
        command = [self.command, "stats", "--json", "--pid", str(program.pid)]
        shown = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True).stdout
        [device] = json.loads(shown)["devices"]
        return device

    def counters(self, program):
        return self.look(program)["counters"]

    def ends_well(self, program):
        status = exit_status(program.argv, program.wait(time.monotonic() + TIMEOUT), program.output())
        self.assertEqual(status, 0, program.describe(status))

    def finish(self, server, client, timeout=TIMEOUT):
        """Waits for both, which must exit with status 0. Returns their outputs."""
        deadline = time.monotonic() + timeout
        client_status = exit_status(client.argv, client.wait(deadline), client.output())
        server_end = deadline if client_status == 0 else time.monotonic() + 2
        server_status = exit_status(server.argv, server.wait(server_end), server.output())
        if server_status or client_status:
            self.fail(f"server: {server.describe(server_status)}\nclient: {client.describe(client_status)}")
        return server.output(), client.output()

    def run_cm_pair(self, server, client, port, space="tcp", timeout=TIMEOUT, **options):
        """Runs a server, and a client when it listens. Returns their outputs."""
        server = self.serve(server, port, space, **options)
        return self.finish(server, self.start(client, **options), timeout)
