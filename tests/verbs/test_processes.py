"""Many processes, many queue pairs, many threads; processes that are killed; and what else can come in between."""

import os
import pathlib
import re
import signal
import socket
import time

from harness import DISTRIBUTION, LIBRARY, VerbsTest, free_port, is_listening


class Processes(VerbsTest):
    def test_64_processes_at_once(self):
        servers = []
        for _ in range(32):
            port = free_port()
            servers.append((port, self.start(["ibv_rc_pingpong", "-g", "0", "-n", "300", "-e", "-c", "-p", port])))
        deadline = time.monotonic() + 150
        clients = []
        for port, server in servers:
            self.wait_until(lambda port=port: is_listening(port), server)
            clients.append(self.start(
                ["ibv_rc_pingpong", "-g", "0", "-n", "300", "-e", "-c", "-p", port, "127.0.0.1"]))
        addresses = set()
        for program in [*clients, *(server for _, server in servers)]:
            status = program.wait(deadline)
            self.assertEqual(status, 0, program.describe(status))
            addresses.add(re.search(r"local address:.*GID ::ffff:([\d.]+)", program.output())[1])
        self.assertEqual(len(addresses), 64, "each process has an address of its own")

    def test_1000_queue_pairs_in_one_process(self):
        program = self.compile("many.c", "-libverbs")
        self.assertIn("1000 queue pairs", self.run_ok([program, "1000"]))

    def test_eight_threads_on_queues_of_their_own(self):
        program = self.compile("threads.c", "-libverbs", "-lpthread")
        self.assertIn("80000 messages by 8 threads", self.run_ok([program, "separate", "10000"], timeout=120))

    def test_eight_threads_on_the_same_queues(self):
        program = self.compile("threads.c", "-libverbs", "-lpthread")
        self.assertIn("80000 messages by 8 threads", self.run_ok([program, "shared", "10000"], timeout=120))


class Killed(VerbsTest):
    TIMEOUT_CODE, RETRIES = 12, 3

    def kill_one_of_two(self, victim, *how, stopped=False):
        program = self.compile("survivor.c", "-libverbs")
        port = free_port()
        words = [port, self.TIMEOUT_CODE, self.RETRIES]
        sides = {side: self.start([program, side, *words, *(how if side == victim else ())])
                 for side in ("server", "client")}
        # With all of its children.
        self.addCleanup(sides[victim].kill)
        self.wait_until(lambda: all("transferring" in side.output() for side in sides.values()), *sides.values())
        # While it lives, its address is its own.
        address = self.local_address(sides[victim].pid)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            self.assertRaises(OSError, taken.bind, (address, 4791))
        # It alone, and no child of it.
        if stopped:
            # For as long as that, its peer waits.
            os.kill(sides[victim].pid, signal.SIGSTOP)
            time.sleep(0.5)
            self.assertIsNone(sides["client" if victim == "server" else "server"].process.poll())
        os.kill(sides[victim].pid, signal.SIGKILL)
        survivor = sides["client" if victim == "server" else "server"]
        status = survivor.wait(time.monotonic() + 60)
        self.assertEqual(status, 0, survivor.describe(status))
        found = re.search(r"first: (.*) after ([\d.]+) s", survivor.output())
        self.assertEqual(found[1], "transport retry counter exceeded")
        # IBTA 9.7.6.1.3: a timeout is between its value and four times that.
        timeout = 4.096e-6 * 2**self.TIMEOUT_CODE
        self.assertGreaterEqual(float(found[2]), self.RETRIES * timeout)
        longest = 4 * (self.RETRIES + 1) * timeout + (0.5 if stopped else 0)
        self.assertLessEqual(float(found[2]), longest + 1, "with a second for a busy machine")
        self.assertIn("clean", survivor.output())
        # Nothing of what the queue pair had is left but a few sockets to send from, which are kept for the next.
        self.assertLessEqual(int(re.search(r"descriptors: (-?\d+)", survivor.output())[1]), 4)
        # The address of the dead is free again.
        if "clone" in how:
            return
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind((address, 4791))

    @staticmethod
    def local_address(pid):
        """The loopback address on which a process receives RoCE packets."""
        inodes = set()
        for fd in os.listdir(f"/proc/{pid}/fd"):
            match = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
            if match:
                inodes.add(match[1])
        for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[9] in inodes and int(port, 16) == 4791:
                return socket.inet_ntoa(bytes.fromhex(address)[::-1])
        raise AssertionError("the process has no RoCE socket")

    def test_the_server_is_killed(self):
        self.kill_one_of_two("server")

    def test_the_client_is_killed(self):
        self.kill_one_of_two("client")

    def test_the_server_is_killed_while_it_is_stopped(self):
        self.kill_one_of_two("server", stopped=True)

    def test_the_client_is_killed_and_a_child_of_it_lives_on(self):
        self.kill_one_of_two("client", "fork")

    def test_the_client_is_killed_and_a_child_without_handlers_of_a_fork_lives_on(self):
        self.kill_one_of_two("client", "clone")


class Interrupted(VerbsTest):
    def interrupted(self, how, timeout=60):
        program = self.compile("interrupted.c", "-libverbs", "-lpthread")
        self.assertIn("all right", self.run_ok([program, how], timeout=timeout))

    def test_cancelled_threads(self):
        self.interrupted("cancel")

    def test_a_cancellation_waits_until_a_call_is_over(self):
        self.interrupted("pending")

    def test_a_thread_can_be_cancelled_in_every_call(self):
        program = self.compile("cancelled.c", "-libverbs", "-lpthread")
        self.assertIn("all right", self.run_ok([program, "0", "127.0.0"], timeout=240))

    def test_signals_at_any_time(self):
        self.interrupted("signals")

    def test_forks_while_another_thread_transfers(self):
        self.interrupted("fork")

    def test_what_a_child_inherits_fails_at_once_whatever_the_parents_threads_held(self):
        self.interrupted("inherit", timeout=120)

    def test_an_end_with_everything_alive(self):
        self.interrupted("exit")


class Careless(VerbsTest):
    def test_wrong_counts_and_wrong_objects_are_refused(self):
        program = self.compile("careless.c", "-libverbs")
        self.assertIn("all refused", self.run_ok([program], run=["--device", "udp", "--device", "udp"]))

    def test_each_refusal_has_a_reason_in_the_log(self):
        program = self.compile("careless.c", "-libverbs")
        out = self.run_ok([program], run=["--device", "udp", "--device", "udp"], SOFTRNIC_LOG="debug")
        lines = [line.split(" DEBUG ", 1)[1] for line in out.splitlines() if " DEBUG ibv_" in line]
        refused = [at for at, line in enumerate(lines) if "refused: Invalid argument" in line]
        self.assertGreater(len(refused), 10, out)
        for at in refused:
            call = lines[at].split("}: ")[0]
            self.assertTrue(lines[at - 1].startswith(call) and "refused: " not in lines[at - 1], lines[at])


class Memory(VerbsTest):
    def valgrind(self, source, *arguments, libraries, says):
        program = self.compile(source, *libraries)
        out = self.run_ok(
            ["valgrind", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite",
             "--show-leak-kinds=definite", program, *arguments],
            timeout=300)
        self.assertIn(says, out)
        self.assertIn("ERROR SUMMARY: 0 errors", out)
        return out

    def test_valgrind_finds_nothing_in_a_program_that_uses_every_call(self):
        out = self.valgrind("every_call.c", libraries=["-libverbs", "-lpthread"], says="every call is all right")
        self.assertIn("definitely lost: 0 bytes", out)

    def test_valgrind_finds_nothing_in_a_program_that_uses_newer_calls(self):
        self.valgrind("other_calls.c", libraries=["-libverbs", "-ldl"], says="every other call is all right")

    def test_valgrind_finds_nothing_in_pure_functions(self):
        self.valgrind("same_as_distribution.c", LIBRARY, DISTRIBUTION, libraries=["-ldl"], says="0 differences")

    def test_memory_does_not_grow_with_objects_that_come_and_go(self):
        program = self.compile("churn.c", "-libverbs")
        self.assertIn("no growth", self.run_ok([program, "3000"], timeout=120))

    def test_registered_memory_that_goes_away_is_an_error(self):
        program = self.compile("lost_memory.c", "-libverbs")
        for run, extra in (([], {}), (["--device", "udp?copies=safe"], {}), ([], {"SOFTRNIC_SAFE_COPIES": "1"})):
            self.assertIn("lost memory is an error", self.run_ok([program], run=run, **extra))

    def test_nothing_of_the_nic_is_mapped_where_memory_was_registered(self):
        program = self.compile("hole.c", "-libverbs")
        for options in ("", "?shm=off"):
            run = ["--device", f"udp:127.9.14.1{options}", "--device", f"udp:127.9.14.2{options}"]
            self.assertIn("nothing came into the hole", self.run_ok([program], run=run))

    def test_every_allocation_that_is_refused_is_enomem(self):
        program = self.compile("refused.c", "-libverbs")
        self.assertIn("memory was refused, and nothing else", self.run_ok([program, "allocator"], timeout=120))

    def test_objects_are_made_until_a_limit_refuses_memory(self):
        program = self.compile("refused.c", "-libverbs")
        out = self.run_ok([program, "limit"], timeout=240)
        self.assertIn("memory was refused, and nothing else", out)
        self.assertIn("RC QP: ", out)
