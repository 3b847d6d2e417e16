"""Shared memory between processes of one machine: what else can happen to them, and when sockets take its place."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

from harness import SOFTRNIC, VerbsTest, free_port, is_listening

# All rings of all processes.
MEMORY = 256 << 20
# The user with the fewest rights.
NOBODY = 65534


class SharedMemoryTest(VerbsTest):
    def setUp(self):
        super().setUp()
        self.env["SOFTRNIC_SHM"] = "on"
        self.env["SOFTRNIC_LOG"] = "info"


class Mesh(SharedMemoryTest):
    """Processes that all talk to all others."""

    def setUp(self):
        super().setUp()
        self.program = self.compile("mesh.c", "-libverbs")
        # Others may run the same test.
        self.network = f"127.{random.randrange(128, 255)}.{random.randrange(256)}"
        self.name = f"softrnic-mesh-{os.getpid()}-{self.network}"
        self.processes = {}

    def go(self, rank, count, *how):
        device = ["--device", f"udp:{self.network}.{rank + 1}"]
        self.processes[rank] = self.start([self.program, self.name, rank, count, *how], run=device)

    def echoed(self, rank):
        """How many messages of a process each of the others has echoed."""
        last = re.findall(r"(?m)^echoed: (.*)$", self.processes[rank].output())[-1:]
        return [int(number) for number in last[0].split()] if last else []

    def kill(self, rank):
        self.processes.pop(rank).close()

    def talk(self, ranks, least=1, timeout=60):
        """Waits until each of these has had some more messages echoed by each other."""
        before = {rank: self.echoed(rank) for rank in ranks}

        def moved():
            for rank in ranks:
                was, now = before[rank], self.echoed(rank)
                if not now or any(now[other] < (was[other] if was else 0) + least
                                  for other in ranks if other != rank):
                    return False
            return True

        self.wait_until(moved, *self.processes.values(), timeout=timeout)

    def ring_bytes(self):
        """The memory that all processes have for rings that they write, touched or not."""
        sizes = 0
        for process in self.processes.values():
            for line in pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines():
                if "memfd:softrnic-ring" in line and line.split()[1].startswith("rw"):
                    start, end = (int(word, 16) for word in line.split()[0].split("-"))
                    sizes += end - start
        return sizes

    def finish(self, timeout=60):
        for process in self.processes.values():
            os.kill(process.pid, signal.SIGTERM)
        self.wait_until(lambda: all("drained" in process.output() for process in self.processes.values()),
                        *self.processes.values(), timeout=timeout)
        for process in self.processes.values():
            os.kill(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            status = process.wait(time.monotonic() + timeout)
            self.assertEqual(status, 0, process.describe(status))

    def test_a_killed_process_is_back_at_once_at_the_same_address(self):
        for rank in range(3):
            self.go(rank, 3)
        self.talk(range(3), least=100)
        for victim in (0, 2, 1, 0):
            self.kill(victim)
            self.go(victim, 3)
            start = time.monotonic()
            self.talk(range(3), least=10)
            self.assertLess(time.monotonic() - start, 10)
        self.assertIn("through shared memory", self.processes[0].output())
        self.finish()

    def test_a_stopped_process_loses_nothing_and_stops_nobody_else(self):
        for rank in range(4):
            self.go(rank, 4)
        self.talk(range(4), least=100)
        os.kill(self.processes[1].pid, signal.SIGSTOP)
        # What was on its way has arrived.
        time.sleep(0.6)
        self.talk((0, 2, 3), least=200)
        time.sleep(2)
        self.talk((0, 2, 3), least=200)
        os.kill(self.processes[1].pid, signal.SIGCONT)
        self.talk(range(4), least=100)
        self.finish()

    def test_64_processes_of_which_a_third_are_killed_lose_no_message(self):
        self.kill_a_third_of(64, seconds=8)

    def kill_a_third_of(self, count, seconds):
        # A minute, asked for by hand; less, with everything else.
        seconds = float(os.environ.get("SOFTRNIC_MESH_SECONDS", seconds))
        dice = random.Random(os.environ.get("SOFTRNIC_SEED", "19"))
        for rank in range(count):
            self.go(rank, count, "burst")
        self.talk(range(count), timeout=120)
        most = self.ring_bytes()
        self.assertGreater(most, 0)
        victims = dice.sample(range(count), count // 3)
        pause = seconds / len(victims)
        for victim in victims:
            self.kill(victim)
            time.sleep(dice.uniform(0, pause))
            self.go(victim, count, "burst")
            time.sleep(dice.uniform(0, pause))
            most = max(most, self.ring_bytes())
        self.talk(range(count), timeout=120)
        most = max(most, self.ring_bytes())
        self.assertLess(most, MEMORY)
        self.finish(timeout=120)
        print(f" rings: {most >> 20} MiB ", end="", flush=True)


def keep_on(program, processors):
    """Has all threads of a program run there. One may end meanwhile: that which answers who asks for statistics."""
    for thread in map(int, os.listdir(f"/proc/{program.pid}/task")):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, processors)


class Breakpoint(SharedMemoryTest):
    """Two processes that write to each other, one of which is stopped as by a debugger."""

    def go(self):
        program, port = self.compile("writing.c", "-libverbs"), free_port()
        programs = [self.start([program, role, port]) for role in ("server", "client")]
        self.wait_until(lambda: self.stopped_peers() == [0, 0], *programs)
        return programs

    def stopped_peers(self):
        """How many QPs of each process that answers and has received data wait for a peer that is stopped."""
        shown = subprocess.run([SOFTRNIC, "stats", "--json"], env=self.env, stdout=subprocess.PIPE)
        devices = [device for device in json.loads(shown.stdout)["devices"]
                   if device["program"] == "writing" and device["counters"]["rcvd_pkts"]]
        return [sum(qp["peer_stopped"] for qp in device["qps"]) for device in devices]

    def stop(self, program, other):
        """Stops it for three times as long as all retries take."""
        os.kill(program.pid, signal.SIGSTOP)
        self.wait_until(lambda: self.stopped_peers() == [1], other)
        time.sleep(3)
        self.assertEqual(self.stopped_peers(), [1], other.output())

    def stop_each(self):
        programs = self.go()
        for program, other in (programs, programs[::-1], programs):
            self.stop(program, other)
            os.kill(program.pid, signal.SIGCONT)
            self.wait_until(lambda: self.stopped_peers() == [0, 0], *programs)
        for program in programs:
            os.kill(program.pid, signal.SIGTERM)
        for program in programs:
            status = program.wait(time.monotonic() + 30)
            self.assertEqual(status, 0, program.describe(status))
            self.assertIn("pages written", program.output())
            self.assertIn("its process is stopped", program.output())

    def test_a_process_that_is_stopped_for_longer_than_all_retries_take_is_waited_for(self):
        self.stop_each()

    def test_so_is_one_that_is_reached_through_sockets_and_shares_the_address(self):
        self.env.update(SOFTRNIC_SHM="off", SOFTRNIC_DEVICES="udp:127.0.13.19")
        self.stop_each()

    def test_one_that_gets_no_processor_is_waited_for(self):
        if os.geteuid() != 0:
            self.skipTest("it takes root to take the processor from others")
        programs = self.go()
        server, client = programs
        processor = min(os.sched_getaffinity(0))
        keep_on(server, {processor})
        others = subprocess.Popen(["taskset", "-c", str(processor), sys.executable, "-c", "while True: pass"],
                                  start_new_session=True)
        self.addCleanup(others.wait)
        self.addCleanup(others.kill)
        # Of each session, the kernel makes a group, and shares out the processor among these.
        pathlib.Path(f"/proc/{others.pid}/autogroup").write_text("-20")
        pathlib.Path(f"/proc/{server.pid}/autogroup").write_text("19")
        self.wait_until(lambda: "its process waits for a processor or a disk" in client.output(), client)
        time.sleep(3)
        self.assertIsNone(client.process.poll(), client.output())
        others.kill()
        pathlib.Path(f"/proc/{server.pid}/autogroup").write_text("0")
        keep_on(server, os.sched_getaffinity(0))
        self.wait_until(lambda: self.stopped_peers() == [0, 0], *programs)
        for program in programs:
            os.kill(program.pid, signal.SIGTERM)
        for program in programs:
            status = program.wait(time.monotonic() + 30)
            self.assertEqual(status, 0, program.describe(status))

    def test_one_that_is_killed_while_it_is_stopped_is_given_up(self):
        server, client = self.go()
        self.stop(server, client)
        server.kill()
        start = time.monotonic()
        status = client.wait(start + 30)
        self.assertEqual(status, 1, client.describe(status))
        self.assertEqual(client.output().splitlines()[-1], "transport retry counter exceeded")
        self.assertLess(time.monotonic() - start, 10)


class Devices(SharedMemoryTest):
    def test_devices_of_one_process_reach_each_other_and_themselves(self):
        program = self.compile("crossing.c", "-libverbs")
        run = [word for name in "abcd" for word in ("--device", f"{name}=udp")]
        out = self.run_ok([program, "4"], run=run)
        self.assertIn("16 crossings are right", out)
        self.assertEqual(out.count("through shared memory"), 16, out)


class Layers(SharedMemoryTest):
    """What sees and what harms packets on any link."""

    ROUNDS = 1000

    def captured(self, *faults):
        """The SENDs in the capture of one side of a ping-pong."""
        run = ["--pcap", self.runtime / "%p.pcapng", *faults]
        port = free_port()
        words = ["ibv_rc_pingpong", "-g", "0", "-c", "-n", self.ROUNDS, "-p", port]
        server = self.start(words, run=run)
        self.wait_until(lambda: is_listening(port), server)
        client = self.start([*words, "127.0.0.1"], run=run)
        for program in (client, server):
            status = program.wait(time.monotonic() + 60)
            self.assertEqual(status, 0, program.describe(status))
            self.assertIn("through shared memory", program.output())
        shown = subprocess.run([SOFTRNIC, "decode", self.runtime / f"{client.pid}.pcapng"], capture_output=True, text=True,
                               check=True).stdout
        # Sender and PSN.
        return re.findall(r"(?m)^ *\d+ +\S+ +(\S+) .* RC SEND .* psn (\d+) .* icrc good$", shown)

    # 4096 bytes over an MTU of 1024, in either direction.
    PACKETS = 2 * 4 * ROUNDS

    def test_a_capture_has_every_packet(self):
        self.assertEqual(len(set(self.captured())), self.PACKETS)

    def test_faults_act_on_it(self):
        # Whoever has received everything ends at once, so the last ACK has to arrive: nobody would repeat it.
        faults = ["seed=7", "dup=5%", "drop:op=ack:rate=2%:nth=1-900"]
        faults += [f"{what}:op=rc_send*:rate=2%" for what in ("drop", "corrupt", "reorder")]
        sends = self.captured("--fault", ",".join(faults))
        self.assertEqual(len(set(sends)), self.PACKETS)
        self.assertGreater(len(sends), self.PACKETS + self.PACKETS // 50)


class Containers(SharedMemoryTest):
    @unittest.skipIf(os.geteuid() != 0, "it takes root to make namespaces")
    def test_those_of_a_pod_share_it(self):
        """They have one network, and see neither each other's processes nor files."""
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--ipc", "--uts"]
        port = free_port()
        words = [*alone, "ibv_uc_pingpong", "-g", "0", "-n", "2000", "-p", port]
        server = self.start(words)
        self.wait_until(lambda: is_listening(port), server)
        client = self.start([*words, "127.0.0.1"])
        for program in (client, server):
            status = program.wait(time.monotonic() + 60)
            self.assertEqual(status, 0, program.describe(status))
            self.assertIn("through shared memory", program.output())


class Fallback(SharedMemoryTest):
    """Sockets take its place where it is not to be had, and that is said."""

    def pingpong(self, server=(), client=(), **extra):
        """What both sides say: the words are put in front of theirs."""
        port = free_port()
        words = ["ibv_rc_pingpong", "-g", "0", "-c", "-n", "2000", "-p", port]
        first = self.start([*server, *words], **extra)
        self.wait_until(lambda: is_listening(port), first)
        second = self.start([*client, *words, "127.0.0.1"], **extra)
        for program in (second, first):
            status = program.wait(time.monotonic() + 60)
            self.assertEqual(status, 0, program.describe(status))
            self.assertNotIn("through shared memory", program.output())
        return first.output(), second.output()

    @unittest.skipIf(os.geteuid() != 0, "it takes root to be another user")
    def test_another_user_is_reached_by_sockets(self):
        other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        for out in self.pingpong(client=other):
            self.assertRegex(out, "no shared memory.*the process there belongs to another user")

    def test_without_memfd_create_there_are_sockets(self):
        program = self.compile("without_memfd.c")
        ours, theirs = self.pingpong(client=[program])
        self.assertRegex(theirs, "no shared memory.*Operation not permitted")
        self.assertRegex(ours, "no shared memory.*no process on this machine offers it")

    def test_a_limit_of_file_sizes_is_kept_and_ends_nobody(self):
        # In units of 512 bytes: less than the smallest ring.
        small = ["sh", "-c", "ulimit -f 50 && exec \"$@\"", "sh"]
        ours, theirs = self.pingpong(client=small)
        self.assertRegex(theirs, "no shared memory.*File too large")
        self.assertRegex(ours, "no shared memory.*no process on this machine offers it")

    def test_a_peer_that_wants_none_is_reached_by_sockets(self):
        ours, theirs = self.pingpong(client=["env", "SOFTRNIC_SHM=off"])
        self.assertRegex(ours, "no shared memory.*no process on this machine offers it")
        self.assertNotIn("no shared memory", theirs)
