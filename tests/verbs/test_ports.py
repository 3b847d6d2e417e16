"""Ports that go down and come up on command."""

import itertools
import json
import os
import re
import signal
import subprocess
import time
import unittest

import cm
from cm import rdma_port
from harness import SOFTRNIC, TIMEOUT, VerbsTest, free_port, is_listening

UP = "verbs 4 5 width 2 speed 1, sysfs 4: ACTIVE, 5: LinkUp, 10 Gb/sec (4X SDR)"
DOWN = "verbs 1 3 width 2 speed 1, sysfs 1: DOWN, 3: Disabled, 10 Gb/sec (4X SDR)"
PAIR = ["--device", "a=udp:127.7.36.1,b=udp:127.7.36.2"]

SUCCESS, RETRY_EXC = "send: 0", "send: 12"


class PortsTest(VerbsTest):
    """What tests of ports share."""

    def link(self, *words, status=0):
        """Runs `softrnic link`; returns what it says."""
        done = subprocess.run([SOFTRNIC, "link", *map(str, words)], env=self.env, capture_output=True, text=True,
                              timeout=TIMEOUT)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def counters(self, device):
        """The counters of the only device with a name."""
        text = subprocess.run([SOFTRNIC, "stats", "--json", "--device", device], env=self.env, check=True,
                              capture_output=True, timeout=TIMEOUT).stdout  # fmt: skip
        (found,) = json.loads(text)["devices"]
        return found["counters"]

    def wait_for(self, program, lines):
        """Waits until a program has said so many lines; returns all. Those of the library do not count."""
        told = ("context", "send", "flushed")
        said = lambda: [line for line in program.output().split("\n")[:-1] if line.startswith(told)]
        self.wait_until(lambda: len(said()) >= lines, program)
        return said()

    def assert_rdma_link(self, *expected):
        """`rdma link` of iproute2 says this of the port of b, too."""
        (port,) = json.loads(self.run_ok(["rdma", "-j", "link", "show", "b/1"], run=PAIR))
        self.assertEqual((port["state"], port["physical_state"]), expected)

    def watch(self, device="b", other="a", run=PAIR):
        """A program that reports the events of a device."""
        program = self.start([self.compile("ports.c", "-libverbs"), device, other], run=run)
        self.assertEqual(self.wait_for(program, 2), [f"context 0: begin, port 1: {UP}", SUCCESS])
        return program


class Ports(PortsTest):
    def assert_told(self, lines, expected):
        """The contexts have their events at the same time, so any may be told first."""
        self.assertEqual(sorted(lines), sorted(expected))

    def test_a_port_goes_down_and_up_and_everything_says_so(self):
        program = self.watch()
        self.link("--pid", program.pid, "b", "down")
        down = [f"context {number}: port error, port 1: {DOWN}" for number in (1, 0)]
        self.assert_told(self.wait_for(program, 5)[2:], [*down, RETRY_EXC])
        self.assert_rdma_link("DOWN", "DISABLED")
        said = self.link()
        self.assertRegex(said, r"(?m)^a +\S+ +\d+ +127\.7\.36\.1 +ACTIVE +10Gbit *$")
        self.assertRegex(said, r"(?m)^b +\S+ +\d+ +127\.7\.36\.2 +DOWN +10Gbit +down on command for \d+m?s$")
        counters = self.counters("b")
        self.assertEqual(counters["link_downed"], 1)
        # The first packet, and the retries: none has passed.
        self.assertGreaterEqual(counters["drop_port_rx"], 3)
        self.link("b", "down")
        self.link("b", "up")
        up = [f"context {number}: port active, port 1: {UP}" for number in (1, 0)]
        self.assert_told(self.wait_for(program, 8)[5:], [*up, SUCCESS])
        self.assert_rdma_link("ACTIVE", "LINK_UP")
        self.link("b", "up")
        self.link("127.7.36.2", "down")
        # What was said twice was no change.
        self.assert_told(self.wait_for(program, 11)[8:], [*down, RETRY_EXC])

    def test_what_a_port_sends_while_it_is_down_is_dropped(self):
        program = self.watch(device="a", other="b")
        self.link("b", "down")
        self.link("a", "down", "for=500ms")
        down = [f"context {number}: port error, port 1: {DOWN}" for number in (1, 0)]
        up = [f"context {number}: port active, port 1: {UP}" for number in (1, 0)]
        lines = self.wait_for(program, 8)[2:]
        self.assert_told([line for line in lines if "error" in line], down)
        self.assert_told([line for line in lines if "active" in line], up)
        self.assertIn(RETRY_EXC, lines)
        self.assertGreaterEqual(self.counters("b")["drop_port_tx"], 3)

    def test_a_flapping_port_reports_every_change(self):
        program = self.watch()
        self.link("all", "flap", 3, "down=2ms", "up=2ms")
        # Three times two events of each context, and what comes of a send after each.
        lines = self.wait_for(program, 2 + 3 * 2 * 3)[2:]
        for number in (0, 1):
            told = [line.split(",")[0] for line in lines if line.startswith(f"context {number}")]
            self.assertEqual(told, [f"context {number}: port error", f"context {number}: port active"] * 3)

    def test_a_blackhole_changes_nothing_that_anybody_sees(self):
        program = self.watch()
        self.link("b", "blackhole")
        # The change of speed has the program send.
        self.link("b", "rate", "1Gbit")
        slow = UP.replace("width 2", "width 1").replace("10 Gb/sec (4X SDR)", "2.5 Gb/sec (1X SDR)")
        changes = [f"context {number}: device speed change, port 1: {{}}" for number in (1, 0)]
        self.assert_told(self.wait_for(program, 5)[2:], [change.format(slow) for change in changes] + [RETRY_EXC])
        self.assert_rdma_link("ACTIVE", "LINK_UP")
        self.link("b", "blackhole", "off")
        self.link("b", "rate", "off")
        self.assert_told(self.wait_for(program, 8)[5:], [change.format(UP) for change in changes] + [SUCCESS])

    def test_a_port_may_be_up_and_deaf(self):
        program = self.watch()
        self.link("b", "down")
        self.wait_for(program, 5)
        self.link("b", "up", "deaf=600s")
        up = [f"context {number}: port active, port 1: {UP}" for number in (1, 0)]
        self.assert_told(self.wait_for(program, 8)[5:], [*up, RETRY_EXC])
        self.assert_rdma_link("ACTIVE", "LINK_UP")
        self.link("b", "down")
        self.wait_for(program, 11)
        self.link("b", "up")
        self.assert_told(self.wait_for(program, 14)[11:], [*up, SUCCESS])

    def test_a_slower_port_says_so(self):
        program = self.watch()
        self.link("b", "rate", "1Gbit")
        slow = UP.replace("width 2", "width 1").replace("10 Gb/sec (4X SDR)", "2.5 Gb/sec (1X SDR)")
        changes = [f"context {number}: device speed change, port 1: {{}}" for number in (1, 0)]
        self.assert_told(self.wait_for(program, 5)[2:], [change.format(slow) for change in changes] + [SUCCESS])
        self.assertRegex(self.link("b"), r"(?m)^b .* ACTIVE +1Gbit +rate 1Gbit$")
        self.assert_rdma_link("ACTIVE", "LINK_UP")
        self.link("b", "rate", "off")
        self.assert_told(self.wait_for(program, 8)[5:], [change.format(UP) for change in changes] + [SUCCESS])

    def test_a_device_that_fails_flushes_and_refuses_everything(self):
        program = self.watch()
        self.link("b", "fatal")
        failed = "local catastrophic error, port 1: verbs Input/output error, sysfs 1: DOWN, 3: Disabled"
        told = [f"context {number}: {failed}, 10 Gb/sec (4X SDR)" for number in (1, 0)]
        self.assert_told(self.wait_for(program, 5)[2:], [*told, "flushed: 5"])
        self.assert_rdma_link("DOWN", "DISABLED")
        program.process.send_signal(signal.SIGTERM)
        program.process.wait(TIMEOUT)

    def test_identifiers_of_rdma_cm_learn_what_happens_to_their_device(self):
        program = self.start([self.compile("cm_changes.c", "-lrdmacm", "-libverbs"), "127.7.36.1", "127.7.36.2", str(rdma_port())], run=PAIR)
        established = ["client: RDMA_CM_EVENT_ESTABLISHED", "server: RDMA_CM_EVENT_ESTABLISHED"]
        self.assertEqual(sorted(self.wait_for_events(program, 2)), established)
        self.link("b", "addr-change")
        changed = self.wait_for_events(program, 4)[2:]
        self.assertEqual(sorted(changed), ["listener: RDMA_CM_EVENT_ADDR_CHANGE", "server: RDMA_CM_EVENT_ADDR_CHANGE"])
        self.link("b", "fatal")
        removed = self.wait_for_events(program, 6)[4:]
        self.assertEqual(sorted(removed), ["listener: RDMA_CM_EVENT_DEVICE_REMOVAL", "server: RDMA_CM_EVENT_DEVICE_REMOVAL"])

    def wait_for_events(self, program, count):
        """The first events of identifiers, once there are so many."""
        lines = lambda: re.findall(r"(?m)^\w+: RDMA_CM_EVENT_\w+$", program.output())
        self.wait_until(lambda: len(lines()) >= count, program)
        return lines()

    def test_a_specification_says_when_a_port_fails(self):
        program = self.start([self.compile("ports.c", "-libverbs"), "b", "a"],
                             run=[*PAIR, "--fault", "down:after=1s:for=1s:device=b"])  # fmt: skip
        lines = self.wait_for(program, 8)
        self.assertEqual(lines[1], SUCCESS)
        told = [line.split(", port")[0] for line in lines[2:]]
        self.assert_told(told[:3], ["context 1: port error", "context 0: port error", RETRY_EXC])
        self.assert_told(told[3:], ["context 1: port active", "context 0: port active", SUCCESS])

    def test_faults_of_a_running_process_can_be_changed(self):
        program = self.watch()
        self.link("b", "faults", "drop:dir=rx:peer=127.7.36.1")
        self.assertIn("faults seed=0,drop:dir=rx:peer=127.7.36.1", self.link("b"))
        self.link("b", "flap", 1, "down=1ms", "up=1ms")
        self.assertEqual([line for line in self.wait_for(program, 8)[2:] if "send" in line], [RETRY_EXC] * 2)
        self.assertGreaterEqual(self.counters("b")["faults_injected"], 3)
        self.link("b", "faults", "off")
        self.link("b", "down", "for=1s")
        self.assertEqual([line for line in self.wait_for(program, 14)[8:] if "send" in line], [RETRY_EXC, SUCCESS])

    def test_commands_that_make_no_sense_are_refused_with_a_reason(self):
        self.assertIn("which device", self.link("down", status=2))
        self.assertIn("no process of this user has a device named b", self.link("b", "down", status=1))
        program = self.watch()
        self.assertIn("no process of this user has a device named c", self.link("c", "down", status=1))
        self.assertIn("no process of this user has a device with the address 127.7.36.9",
                      self.link("127.7.36.9", "down", status=1))  # fmt: skip
        self.assertIn("process 1 has no device named b, or is not this user's", self.link("--pid", 1, "b", "up", status=1))
        self.assertIn("is not between 0 and 3600s", self.link("b", "down", "for=7200s", status=2))
        self.assertIn("no time at all", self.link("b", "down", "for=0s", status=2))
        self.assertIn("the actions are down, up, flap, blackhole, rate, addr-change, fatal and faults", self.link("b", "sideways", status=2))
        program.process.send_signal(signal.SIGSTOP)
        self.assertIn("no answer in time", self.link("b", "down", status=1))
        program.process.send_signal(signal.SIGCONT)
        pid = program.pid
        program.kill()
        self.assertIn(f"process {pid} has no device named b", self.link("--pid", pid, "b", "down", status=1))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_another_user_cannot_command_a_port(self):
        program = self.watch()
        done = subprocess.run([SOFTRNIC, "link", "--pid", str(program.pid), "b", "down"], env=self.env, text=True,
                              capture_output=True, user=65534, group=65534, extra_groups=[], timeout=TIMEOUT)  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"process {program.pid} has no device named b, or is not this user's", done.stderr)
        self.assertRegex(self.link("b"), r"(?m)^b .* ACTIVE")

    def test_another_process_with_the_same_devices_shows_its_own_port(self):
        program = self.watch()
        self.link("--pid", program.pid, "b", "down")
        self.wait_for(program, 5)
        state = self.run_ok(["cat", "/sys/class/infiniband/b/ports/1/state"], run=PAIR)
        self.assertEqual(state, "4: ACTIVE\n")
        self.assertEqual(re.findall(r"state:\s+(\w+)", self.run_ok(["ibv_devinfo", "-d", "b"], run=PAIR)), ["PORT_ACTIVE"])

    def test_captures_tell_which_packets_met_a_port_that_was_down(self):
        capture = self.runtime / "down.pcapng"
        program = self.watch(run=[*PAIR, "--pcap", capture])
        self.link("b", "down")
        self.wait_for(program, 5)
        program.process.send_signal(signal.SIGTERM)
        program.process.wait(TIMEOUT)
        self.assertGreaterEqual(capture.read_bytes().count(b"link: dropped, the port is down"), 3)


class Traffic(PortsTest):
    """What perftest and rping see. Each process has a device of its own, found by name."""

    addresses = itertools.count(3)

    def begin(self, program, *options):
        """A server and a client of perftest that have begun to move data."""
        port = free_port()
        server, client = (
            ["--device", f"{name}=udp:127.7.36.{next(self.addresses)}"] for name in ("server", "client")
        )
        words = [program, "-F", "-x", "0", "-p", port, *options]
        server = self.start(words, run=server)
        self.wait_until(lambda: is_listening(port), server)
        client = self.start([*words, "127.0.0.1"], run=client)
        self.wait_until(lambda: self.moves("client"), client)
        return server, client

    def moves(self, device):
        done = subprocess.run([SOFTRNIC, "stats", "--json", "--device", device], env=self.env, capture_output=True, timeout=TIMEOUT)
        # The process may not have opened its device yet.
        return done.returncode == 0 and any(found["counters"]["sent_pkts"] > 1000 for found in json.loads(done.stdout)["devices"])

    def test_perftest_survives_a_short_outage(self):
        both = self.begin("ib_write_bw", "-D", "4")
        self.link("server", "down", "for=200ms")
        for program in both:
            status = program.wait(time.monotonic() + TIMEOUT)
            self.assertEqual(status, 0, program.describe(status))

    def test_perftest_gives_up_when_its_retries_are_used_up(self):
        _, client = self.begin("ib_write_bw", "-D", "20")
        begun = time.monotonic()
        self.link("client", "down", "for=2s")
        status = client.wait(begun + TIMEOUT)
        lasted = time.monotonic() - begun
        self.assertNotIn(status, (0, None), client.describe(status))
        self.assertRegex(client.output(), r"(?i)status 12|transport retry counter exceeded")
        # Eight timeouts of 67 ms, less what was left of the first. It was over before the port came up, or nothing had failed.
        self.assertGreater(lasted, 0.4)

    def test_rping_survives_a_blackhole(self):
        # Endless ones.
        words = ["rping", "-a", "127.7.36.90", "-p", port := rdma_port()]
        server = self.start([*words, "-s"], run=["--device", "server=udp:127.7.36.90"])
        self.wait_until(lambda: cm.is_listening(port, process=server.pid), server)
        client = self.start([*words, "-c"], run=["--device", "client=udp:127.7.36.91"])
        self.wait_until(lambda: self.moves("client"), server, client)
        self.link("server", "blackhole", "out", "for=3s")
        self.assertEqual(self.counters("server")["link_downed"], 0)
        # Nothing arrives before it is over, but for what was on its way.
        before = self.counters("client")["rcvd_pkts"]
        self.wait_until(lambda: self.counters("client")["rcvd_pkts"] > before + 1000, server, client)
