"""Connections that do not come about, or end badly: which event tells of it, with what status, and when."""

import os
import re
import signal
import time

from cm import CmTest, rdma_port

# Statuses of events: reasons of a REJ, and errors.
NO_SERVICE, CONSUMER_DEFINED = 8, 28


class Scripted(CmTest):
    def setUp(self):
        super().setUp()
        self.program = self.compile("cm.c", "-lrdmacm", "-libverbs")
        self.port = rdma_port()

    def listen(self, how, *options, **extra):
        return self.serve([self.program, "listen", self.port, how, *options], self.port, **extra)

    def connect(self, *options, status=0, timeout=60, **extra):
        """Runs a client to its end, and returns its output."""
        client = self.start([self.program, "connect", "127.0.0.1", self.port, *options], **extra)
        found = client.wait(time.monotonic() + timeout)
        self.assertEqual(found, status, client.describe(found))
        return client.output()

    def told(self, output, event, status):
        """When an event with this status came."""
        found = re.search(rf"RDMA_CM_EVENT_{event} {status} after ([\d.]+) s", output)
        self.assertIsNotNone(found, output)
        return float(found[1])

    def established(self, program, count=1):
        self.wait_until(lambda: program.output().count("ESTABLISHED") >= count, program)


class Errors(Scripted):
    def test_nobody_listens(self):
        self.assertLess(self.told(self.connect(status=3), "REJECTED", NO_SERVICE), 5)

    def test_a_client_that_finds_no_listener_is_told_which_there_are(self):
        self.listen("accept")
        listens, self.port = self.port, rdma_port()
        out = self.connect(status=3, SOFTRNIC_LOG="debug")
        self.assertRegex(out, rf"no listener for tcp 127\.0\.0\.1:{self.port}; there are: .*tcp 0\.0\.0\.0:{listens}\b")

    def test_a_listener_that_has_gone(self):
        server = self.listen("accept")
        server.kill()
        self.told(self.connect(status=3), "REJECTED", NO_SERVICE)

    def test_a_rejection_comes_with_its_data(self):
        self.listen("reject")
        out = self.connect(status=3)
        self.told(out, "REJECTED", CONSUMER_DEFINED)
        self.assertIn("data 148 of 148", out)

    def test_more_clients_than_the_backlog(self):
        server = self.listen("accept", "1")
        out = self.start([self.program, "leave", "127.0.0.1", self.port, "20"])
        status = out.wait(time.monotonic() + 60)
        self.assertEqual(status, 0, out.describe(status))
        self.assertEqual(out.output().count("ESTABLISHED 0"), 20)
        self.wait_until(lambda: server.output().count("DISCONNECTED 0") == 20, server)

    def test_a_client_that_is_killed(self):
        server = self.listen("once")
        client = self.start([self.program, "connect", "127.0.0.1", self.port])
        self.established(server)
        client.kill()
        status = server.wait(time.monotonic() + 10)
        self.assertEqual(status, 0, server.describe(status))
        self.told(server.output(), "DISCONNECTED", 0)

    def test_a_server_that_is_killed(self):
        server = self.listen("accept")
        client = self.start([self.program, "connect", "127.0.0.1", self.port])
        self.established(client)
        server.kill()
        status = client.wait(time.monotonic() + 10)
        self.assertEqual(status, 0, client.describe(status))
        self.told(client.output(), "DISCONNECTED", 0)

    def test_a_server_that_ends_by_itself(self):
        server = self.listen("accept")
        client = self.start([self.program, "connect", "127.0.0.1", self.port])
        self.established(client)
        os.killpg(server.pid, signal.SIGTERM)
        status = client.wait(time.monotonic() + 10)
        self.assertEqual(status, 0, client.describe(status))

    def test_a_listener_that_is_stopped_is_waited_for(self):
        server = self.listen("accept")
        os.killpg(server.pid, signal.SIGSTOP)
        self.addCleanup(os.killpg, server.pid, signal.SIGCONT)
        client = self.start([self.program, "connect", "127.0.0.1", self.port])
        # One that runs and does not answer is given up after a second.
        time.sleep(2.5)
        self.assertIsNone(client.process.poll(), client.output())
        os.killpg(server.pid, signal.SIGCONT)
        self.established(client)

    def test_two_listeners_on_a_port(self):
        self.listen("accept")
        second = self.start([self.program, "bind", self.port])
        status = second.wait(time.monotonic() + 10)
        self.assertEqual(status, 2, second.describe(status))
        self.assertRegex(second.output(), "bind: (Cannot assign requested address|Address already in use)")

    def test_listeners_on_one_port_of_different_addresses(self):
        addresses = ["10.77.0.9", "10.77.0.10"]
        machine = self.new_machine(*addresses)
        bind = lambda *address: [*machine, self.program, "bind", self.port, *address]
        servers = [self.start(bind(address), CM_STAYS="1") for address in addresses]
        for server in servers:
            self.wait_until(lambda: "done" in server.output(), server)
        for address, why in (((), "Cannot assign requested address"), ((addresses[0],), "Address already in use")):
            refused = self.start(bind(*address))
            self.assertEqual(refused.wait(time.monotonic() + 10), 2, refused.output())
            self.assertIn(f"bind: {why}", refused.output())
        for server in servers:
            server.kill()
        everywhere = self.start(bind(), CM_STAYS="1")
        self.wait_until(lambda: "done" in everywhere.output(), everywhere)
        refused = self.start(bind(addresses[0]))
        self.assertEqual(refused.wait(time.monotonic() + 10), 2, refused.output())
        self.assertIn("bind: Cannot assign requested address", refused.output())

    def test_a_port_is_free_when_its_process_is_killed(self):
        self.listen("hold").kill()
        self.assertIn("bound", self.run_ok([self.program, "bind", self.port]))


class LostMessages(Scripted):
    """Each message, lost once and twice."""

    def start_pair(self, how, asks, side, operation, times, **extra):
        rule = {"SOFTRNIC_FAULT": ",".join(f"drop:op={operation}:nth={n}" for n in range(1, times + 1))}
        rules = {name: {**extra, **(rule if name == side else {})} for name in ("server", "client")}
        space, listens = ("udp", ["answer", self.port]) if how == "answer" else ("tcp", ["listen", self.port, how])
        server = self.serve([self.program, *listens], self.port, space, **rules["server"])
        return server, self.start([self.program, asks, "127.0.0.1", self.port], **rules["client"])

    def lose(self, how, asks, side, operation, times):
        """Both end at once; then again both stay, so that it shows that the messages were lost."""
        server, client = self.start_pair(how, asks, side, operation, times)
        deadline = time.monotonic() + 60
        statuses = server.wait(deadline), client.wait(deadline)
        told = f"{server.describe(statuses[0])}\n{client.describe(statuses[1])}"
        self.assertEqual(statuses, (0, 0), told)
        self.assertLess(self.told(client.output(), "ESTABLISHED", 0), 10, told)

        self.port = rdma_port()
        server, client = self.start_pair(how, asks, side, operation, times, CM_STAYS="1")
        for program in (server, client):
            self.wait_until(lambda: "done" in program.output(), program)
        lost = self.counters(server if side == "server" else client)["faults_injected"]
        self.assertEqual(lost, times, "the messages were not lost")


def add_lost_messages():
    connected, datagram = ("once", "leave"), ("answer", "ask")
    # What follows an RTU stands for it, so here the side that waits for it goes on.
    confirmed = ("end", "connect")
    for operation, side, pair in (
            ("cm_req", "client", connected), ("cm_rep", "server", connected), ("cm_rtu", "client", confirmed),
            ("cm_dreq", "client", connected), ("cm_drep", "server", connected),
            ("cm_sidr_req", "client", datagram), ("cm_sidr_rep", "server", datagram)):
        for times in (1, 2):
            def test(self, pair=pair, side=side, operation=operation, times=times):
                self.lose(*pair, side, operation, times)

            setattr(LostMessages, f"test_{operation}_lost_{times}", test)


add_lost_messages()
