"""What the tests of rdma_cm share: servers that are known to listen, and pairs of programs."""

import pathlib
import time

import harness
from harness import TIMEOUT, VerbsTest, free_port

# A socket that listens (SO_ACCEPTCON), in /proc/net/unix.
LISTENS = "00010000"


def is_listening(port, space="tcp"):
    """Whether somebody in this network namespace listens on an RDMA port: the name in the registry says so."""
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENS and fields[-1].startswith(f"@softrnic/cm/{space}/{port}/"):
            return True
    return False


def rdma_port():
    """A port that nobody listens on, by TCP or rdma_cm."""
    while True:
        port = free_port()
        if not any(is_listening(port, space) for space in ("tcp", "udp", "ib", "ipoib")):
            return port


class CmTest(VerbsTest):
    def wait_until(self, condition, program, timeout=TIMEOUT):
        """Waits for what a running program is about to do."""
        deadline = time.monotonic() + timeout
        while not condition():
            if program.process.poll() is not None or time.monotonic() > deadline:
                self.fail(f"it does not get there\n{program.describe(program.wait(time.monotonic()))}")
            time.sleep(0.005)

    def serve(self, argv, port, space="tcp", **options):
        """Starts a server, and returns it when it listens."""
        server = self.start(argv, **options)
        self.wait_until(lambda: is_listening(port, space), server)
        return server

    def serve_by_tcp(self, argv, port, **options):
        """The same for a server whose port is one of TCP."""
        server = self.start(argv, **options)
        self.wait_until(lambda: harness.is_listening(port), server)
        return server

    def finish(self, server, client, timeout=TIMEOUT, statuses=(0, 0)):
        """Waits for both, whose exit statuses must be these. Returns their outputs."""
        deadline = time.monotonic() + timeout
        client_status = client.wait(deadline)
        server_status = server.wait(deadline if client_status == statuses[1] else time.monotonic() + 2)
        if (server_status, client_status) != tuple(statuses):
            self.fail(f"server: {server.describe(server_status)}\nclient: {client.describe(client_status)}")
        return server.output(), client.output()

    def run_cm_pair(self, server, client, port, space="tcp", timeout=TIMEOUT, statuses=(0, 0), **options):
        """Runs a server, and a client when it listens. Returns their outputs."""
        server = self.serve(server, port, space, **options)
        return self.finish(server, self.start(client, **options), timeout, statuses)
