"""Connections by the hundred between two processes: what they hold before and after."""

import os
import pathlib
import re
import signal
import time

from cm import CmTest, is_listening, rdma_port

IN_A_ROW, AT_ONCE = 1000, 500
# What a process may grow by when it has had as many at once before. In a row: 130 bytes for each. At once it depends a
# little on how they come about.
GROWTH_IN_A_ROW, GROWTH_AT_ONCE = 128 << 10, 1 << 20


class Storms(CmTest):
    def setUp(self):
        super().setUp()
        self.program = self.compile("connections.c", "-lrdmacm", "-libverbs")
        self.port = rdma_port()

    def listen(self):
        return self.serve([self.program, "serve", self.port], self.port)

    def client(self, *steps):
        """A client that has done its first step."""
        client = self.start([self.program, "make", "127.0.0.1", self.port, *steps])
        self.said(client, 1)
        return client

    def said(self, client, times):
        """Waits until a client has done so many steps."""
        self.wait_until(lambda: client.output().count("done in") >= times, client)

    def go_on(self, client, times):
        os.kill(client.pid, signal.SIGUSR1)
        self.said(client, times)

    def descriptors(self, program):
        return len(os.listdir(f"/proc/{program.pid}/fd"))

    def without_rings(self):
        """What connections hold can be counted where there are no descriptors of shared memory beside them."""
        self.env["SOFTRNIC_SHM"] = "off"

    def objects(self, program):
        device = self.look(program)
        return len(device["qps"]), len(device["connections"])

    def resident(self, program):
        status = pathlib.Path(f"/proc/{program.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

    def comes_to(self, program, descriptors, objects):
        """A process has so many descriptors, QPs and connections, when the last of these have left their timewait."""
        for found, expected in ((self.objects, [(objects, objects)]), (self.descriptors, descriptors)):
            # Being looked at takes descriptors, for three seconds.
            deadline = time.monotonic() + 30
            while (is_now := found(program)) not in expected and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertIn(is_now, expected, program.output())

    def test_a_thousand_in_a_row_and_five_hundred_at_once_leave_nothing_behind(self):
        server = self.listen()
        # On a fast machine all those in a row are in timewait together: the first ones make the room for that.
        client = self.client("1", f"+{AT_ONCE}", IN_A_ROW, IN_A_ROW, IN_A_ROW, f"+{AT_ONCE}")
        both = {"server": server, "client": client}
        first = {name: self.descriptors(program) for name, program in both.items()}
        sizes = []
        self.go_on(client, 2)
        for step in range(3, 7):
            self.go_on(client, step)
            for name, program in both.items():
                self.comes_to(program, [first[name]], 0)
            sizes.append({name: self.resident(program) for name, program in both.items()})
        for name in both:
            # A table may double once, by 224 KiB; what is lost is lost each time.
            steady = min(sizes[1][name] - sizes[0][name], sizes[2][name] - sizes[1][name])
            self.assertLess(steady, GROWTH_IN_A_ROW, f"{name}: {sizes}")
            self.assertLess(sizes[3][name] - sizes[0][name], GROWTH_AT_ONCE, f"{name}: {sizes}")

    def test_clients_that_are_killed_leave_nothing_with_the_server(self):
        self.without_rings()
        server = self.listen()
        # The first connection opens a device, and the second a socket for all peers but the first.
        self.client("1")
        self.client("1")
        before = self.descriptors(server)
        for _ in range(2):
            client = self.client(f"={AT_ONCE}")
            # The stream that tells of the client's end.
            self.comes_to(server, [before + 1], AT_ONCE)
            client.kill()
            self.comes_to(server, [before], 0)

    def test_a_server_that_is_killed_leaves_nothing_with_its_clients(self):
        self.without_rings()
        server = self.listen()
        client = self.client("1", f"={AT_ONCE}", f"-{AT_ONCE}", "1")
        with_server = self.descriptors(client)
        self.go_on(client, 2)
        server.kill()
        self.assertFalse(is_listening(self.port), "its name is still there")
        self.go_on(client, 3)
        self.comes_to(client, [with_server - 1], 0)
        self.listen()
        self.go_on(client, 4)
        # A second server may be another peer, for which a second socket sends.
        self.comes_to(client, [with_server, with_server + 1], 0)
