"""Several processes behind one address, as with a kernel."""

import json
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import time

import cm_programs as programs
import harness
from cm import CmTest, is_listening, rdma_port
from harness import LONG_TIMEOUT, SOFTRNIC, Program, free_port
from roce import IP_MTU_DISCOVER, IP_PMTUDISC_DO, with_icrc
from test_pingpong import PROGRAMS
import test_shared_memory
from test_shared_memory import NOBODY


# OpenMPI with nothing but UCX, and nothing in UCX but the device.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
          "--mca", "btl", "self"]
RC = {"UCX_TLS": "rc_verbs,ud_verbs:aux,self", "UCX_NET_DEVICES": "softrnic0:1", "UCX_LOG_LEVEL": "error"}


# Of Linux, which Python does not name.
UDP_SEGMENT = 103


def send_only(source, port, destination, qpn, ip_id):
    """A SEND of RC without data, BTH to ICRC, as the one with this identification from a socket."""
    return with_icrc(source, port, destination, struct.pack("!BBHII", 0x04, 0x40, 0xFFFF, qpn, 0), ip_id)


# Asks the processes of an address for what they share, and says how much that is.
ASK_TO_JOIN = """
import array, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
    asker.settimeout(20)
    asker.connect("\\0softrnic/udp/" + sys.argv[1])
    said, rights, _, _ = asker.recvmsg(64, socket.CMSG_SPACE(100 * 4))
descriptors = array.array("i", b"".join(data for _, kind, data in rights if kind == socket.SCM_RIGHTS))
print(len(said), "bytes,", len(descriptors), "descriptors")
"""


def as_user(number):
    """The words that run a program as another user."""
    return ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups"]


def some_address():
    """An address that no other test has."""
    return f"127.{random.randrange(64, 128)}.{random.randrange(256)}.{random.randrange(1, 255)}"


class OneAddress(CmTest):
    def setUp(self):
        super().setUp()
        self.address = some_address()
        self.run_on = ["--device", f"udp:{self.address}"]
        # Where rping's server listens: at any address of its family.
        self.anywhere = ["-a", "0.0.0.0"]

    def pingpong(self, **extra):
        for program, checks in PROGRAMS.items():
            options = ["-g", "0", "-n", "500", *(["-c"] if checks else [])]
            for out in self.run_pair(program, *options, run=self.run_on, **extra):
                self.assertRegex(out, r"(?m)\d+ iters in|^success$")

    def test_client_and_server_talk_through_shared_memory(self):
        self.pingpong(SOFTRNIC_SHM="on")

    def test_client_and_server_talk_through_sockets(self):
        self.pingpong(SOFTRNIC_SHM="off")

    def test_the_first_of_an_address_may_be_killed(self):
        port = free_port()
        first = self.serve_by_tcp(["ibv_rc_pingpong", "-g", "0", "-p", port], port, run=self.run_on)
        endless, port = ["ibv_rc_pingpong", "-g", "0", "-n", "1000000000"], free_port()
        server = self.serve_by_tcp([*endless, "-p", port], port, run=self.run_on)
        client = self.start([*endless, "-p", port, "127.0.0.1"], run=self.run_on)
        self.pingpong()
        first.kill()
        for _ in range(2):
            self.pingpong()
        for program in server, client:
            self.assertIsNone(program.process.poll(), program.output())

    def test_rdma_cm_between_processes_of_one_address(self):
        for shm in "on", "off":
            port = rdma_port()
            server = self.serve(["rping", "-s", *self.anywhere, "-C", "20", "-v", "-p", port], port, run=self.run_on, SOFTRNIC_SHM=shm)
            client = self.start(["rping", "-c", "-C", "20", "-v", "-p", port, "-a", self.address], run=self.run_on,
                                SOFTRNIC_SHM=shm)
            self.finish(server, client)

    def test_perftest_with_rdma_cm_between_processes_of_one_address(self):
        port = rdma_port()
        words = ["ib_send_bw", "-R", "-F", "-p", port, "-n", "500"]
        server = self.serve(words, port, run=self.run_on)
        self.finish(server, self.start([*words, self.address], run=self.run_on))

    def test_each_of_several_servers_gets_its_own_clients(self):
        ports = [rdma_port() for _ in range(4)]
        rping = ["rping", "-v", "-C", "10", "-S", "100", "-p"]
        servers = [self.serve([*rping, port, "-s", *self.anywhere], port, run=self.run_on) for port in ports]
        clients = [self.start([*rping, port, "-c", "-a", self.address], run=self.run_on) for port in ports]
        for server, client in zip(servers, clients):
            self.finish(server, client)

    def test_a_port_belongs_to_the_address(self):
        port = rdma_port()
        server = self.serve(["rping", "-s", *self.anywhere, "-v", "-p", port], port, run=self.run_on)
        second = self.start(["rping", "-s", *self.anywhere, "-v", "-p", port], run=self.run_on)
        self.assertNotEqual(second.wait(time.monotonic() + 20), 0)
        self.assertRegex(second.output(), r"rdma_bind_addr: (Address already in use|Cannot assign requested address)")
        self.assertIsNone(server.process.poll())

    def test_another_user_is_told_whose_the_address_is(self):
        if os.geteuid() != 0:
            self.skipTest("it takes root to be another user")
        self.runtime.chmod(0o755)
        port = free_port()
        server = self.serve_by_tcp(["ibv_rc_pingpong", "-g", "0", "-p", port], port, run=self.run_on)
        for file in (SOFTRNIC, SOFTRNIC.parent):
            if not os.access(file, os.X_OK):
                self.skipTest("others may not run what was built")
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", SOFTRNIC, "devices", *self.run_on]
        shown = subprocess.run(command, env={**self.env, "XDG_RUNTIME_DIR": "/nonexistent"}, capture_output=True, text=True)
        self.assertIn(f"{self.address} is in use by user 0", shown.stdout + shown.stderr)
        self.assertIsNone(server.process.poll())

    def test_a_user_that_its_namespace_does_not_map_shares_with_no_other(self):
        """There, the kernel reports one number for it and for all other users."""
        if os.geteuid() != 0:
            self.skipTest("it takes root to be other users")
        port = free_port()
        words = ["unshare", "--user", SOFTRNIC, "run", *self.run_on, "--", "ibv_rc_pingpong", "-g", "0", "-p", port]
        owner = Program([*as_user(NOBODY - 1), *words], {**self.env, "XDG_RUNTIME_DIR": "/nonexistent"})
        self.addCleanup(owner.close)
        self.wait_until(lambda: harness.is_listening(port), owner)
        asked = subprocess.run([*as_user(NOBODY), sys.executable, "-c", ASK_TO_JOIN, self.address], capture_output=True,
                               text=True)
        self.assertEqual((asked.stdout, asked.stderr), ("0 bytes, 0 descriptors\n", ""))
        self.assertIsNone(owner.process.poll())

    def test_each_process_that_has_joined_a_group_gets_its_copy(self):
        group = f"::ffff:239.7.{random.randrange(256)}.{random.randrange(1, 255)}"
        for shm in "on", "off":
            self.check_groups(group, lambda argv: self.start(argv, run=self.run_on, SOFTRNIC_SHM=shm))

    def test_a_packet_that_the_kernel_gave_to_another_process_is_counted(self):
        port = free_port()
        words = ["stdbuf", "-oL", "ibv_rc_pingpong", "-g", "0", "-p", port]
        server = self.serve_by_tcp(words, port, run=self.run_on)
        own = int(re.search(r"QPN (0x[0-9a-f]+)", server.output())[1], 16)
        another = own ^ 1 << 23
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((some_address(), 0))
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            ends = *sender.getsockname(), self.address
            packets = [send_only(*ends, qpn, number) for number, qpn in enumerate((own, another))]
            # In one send, the second goes where the first one does, as with what a network card of the receiver puts
            # together.
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(packets[0]))
            sender.sendto(b"".join(packets), (self.address, 4791))
        self.wait_until(lambda: self.counters(server)["drop_other_process"], server)
        counters = self.counters(server)
        self.assertEqual(counters["drop_other_process"], 1)
        self.assertEqual(counters["drop_icrc"], 0)
        self.assertIsNone(server.process.poll())

    def test_users_without_any_privilege_share_an_address(self):
        if os.geteuid() != 0:
            self.skipTest("it takes root to give up privileges")
        os.chown(self.runtime, NOBODY, NOBODY)
        nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all",
                  "--inh-caps=-all", "--no-new-privs", SOFTRNIC, "run", *self.run_on, "--"]

        def start(argv, **extra):
            program = Program([*nobody, *argv], {**self.env, **extra})
            self.addCleanup(program.close)
            return program

        status = start(["cat", "/proc/self/status"])
        self.assertEqual(status.wait(time.monotonic() + 20), 0, status.output())
        self.assertRegex(status.output(), rf"(?m)^Uid:\t{NOBODY}\t{NOBODY}\t")
        self.assertRegex(status.output(), r"(?m)^CapEff:\t0+$")
        for shm in "on", "off":
            ports = [rdma_port() for _ in range(3)]
            rping = ["rping", "-v", "-C", "10", "-p"]
            servers = [start([*rping, port, "-s"], SOFTRNIC_SHM=shm) for port in ports]
            for server, port in zip(servers, ports):
                self.wait_until(lambda: is_listening(port), server)
            clients = [start([*rping, port, "-c", "-a", self.address], SOFTRNIC_SHM=shm) for port in ports]
            for server, client in zip(servers, clients):
                self.finish(server, client)

    def test_devices_shows_who_shares_the_address(self):
        port = free_port()
        server = self.serve_by_tcp(["ibv_rc_pingpong", "-g", "0", "-p", port], port, run=self.run_on)
        command = [SOFTRNIC, "devices", *self.run_on]
        shown = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True).stdout
        self.assertRegex(shown, rf"(?m)^ +shared with +{server.pid}$")
        shown = subprocess.run([*command, "--json"], env=self.env, capture_output=True, text=True, check=True).stdout
        [device] = json.loads(shown)
        self.assertEqual(device["shared_with"], [server.pid])

    def test_a_server_that_forks_for_each_client(self):
        program = self.compile("forking.c", "-libverbs")
        for shm in "on", "off":
            out = self.run_ok([program, "6"], run=self.run_on, SOFTRNIC_SHM=shm)
            self.assertIn("6 children have served as many", out)

    def test_libfabric(self):
        for provider, kind in programs.LIBFABRIC[:2]:
            port = free_port()
            server, client = programs.libfabric(provider, kind, port, self.address)
            server = self.serve_by_tcp(server, port, run=self.run_on)
            _, out = self.finish(server, self.start(client, run=self.run_on))
            self.assertRegex(out, programs.LIBFABRIC_RESULT)

    def test_processes_of_other_containers_of_a_pod(self):
        if os.geteuid() != 0:
            self.skipTest("it takes root to make another namespace of processes")
        # One network, processes apart: the others have no numbers here.
        contained = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        port = rdma_port()
        rping = ["rping", "-v", "-C", "20", "-p", port]
        server = self.serve([*contained, *rping, "-s", *self.anywhere], port, run=self.run_on)
        client = self.start([*contained, *rping, "-c", "-a", self.address], run=self.run_on)
        self.finish(server, client)

    def test_openmpi_with_several_ranks(self):
        program = self.compile("ring.c", compiler="mpicc")
        for transports in RC, {**RC, "UCX_TLS": "ud_verbs,self"}:
            out = self.run_ok([*MPIRUN, "-n", "4", program], timeout=LONG_TIMEOUT, run=self.run_on, **transports)
            self.assertIn("all right with 4 ranks", out)

    def test_training_a_model_with_mpi_and_numpy(self):
        script = pathlib.Path(__file__).parent / "python/train.py"
        out = self.run_ok([*MPIRUN, "-n", "4", "/usr/bin/python3", script], timeout=LONG_TIMEOUT, run=self.run_on, **RC)
        self.assertIn("4 ranks have learned what one learns", out)


class OneAddressOfIPv6(OneAddress):
    """What does not depend on the kind of program, on the one address of loopback."""

    def setUp(self):
        super().setUp()
        self.address = "::1"
        self.run_on = ["--device", "udp:::1"]
        self.anywhere = ["-a", "::"]

    # The groups of IPv6 are tested on an interface, which loopback is not to them.
    test_each_process_that_has_joined_a_group_gets_its_copy = None
    test_a_packet_that_the_kernel_gave_to_another_process_is_counted = None
    test_libfabric = None
    test_perftest_with_rdma_cm_between_processes_of_one_address = None
    test_openmpi_with_several_ranks = None
    test_training_a_model_with_mpi_and_numpy = None
    # Others may use the address, too.
    test_devices_shows_who_shares_the_address = None
    test_another_user_is_told_whose_the_address_is = None
    test_users_without_any_privilege_share_an_address = None
    test_a_user_that_its_namespace_does_not_map_shares_with_no_other = None


class TwoAddresses(test_shared_memory.Mesh):
    """The processes of the mesh, half of them on each of two addresses."""

    def go(self, rank, count, *how):
        device = ["--device", f"udp:{self.network}.{rank % 2 + 1}"]
        self.processes[rank] = self.start([self.program, self.name, rank, count, *how], run=device)

    # Those that all talk to all others are half on one address, and half on the other.
    test_64_processes_of_which_a_third_are_killed_lose_no_message = None

    def test_32_and_32_processes_of_which_many_are_killed_lose_no_message(self):
        self.kill_a_third_of(64, seconds=3)


class Machines(CmTest):
    """Two network namespaces with a cable between them."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("it takes root to make another machine")
        self.machines = [self.new_machine(), self.new_machine()]
        names = [words[3] for words in self.machines]

        def ip(*words):
            subprocess.run(["ip", *words], check=True)

        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        self.addresses = ["10.78.0.1", "10.78.0.2"]
        for name, address in zip(names, self.addresses):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        self.commands = [[*words, SOFTRNIC, "run", "--device", f"udp:{address}", "--"]
                         for words, address in zip(self.machines, self.addresses)]

    def on(self, machine, argv, **extra):
        """Starts a program on one of the machines, with a device on its address."""
        program = Program([*self.commands[machine], *argv], {**self.env, **extra})
        self.addCleanup(program.close)
        return program

    def test_many_servers_and_clients_in_both_directions(self):
        pairs = []
        for number in range(6):
            port, here = rdma_port(), number % 2
            words = ["rping", "-v", "-C", "20", "-S", "3000", "-p", port]
            server = self.on(here, [*words, "-s"])
            self.wait_until(lambda: is_listening(port, "tcp", server.pid), server)
            pairs.append((server, self.on(1 - here, [*words, "-c", "-a", self.addresses[here]])))
        for server, client in pairs:
            self.finish(server, client)

    def test_a_service_without_a_listener_is_refused_while_others_listen(self):
        port, other = rdma_port(), rdma_port()
        server = self.on(0, ["rping", "-s", "-p", port])
        self.wait_until(lambda: is_listening(port, "tcp", server.pid), server)
        client = self.on(1, ["rping", "-c", "-p", other, "-a", self.addresses[0], "-C", "1"])
        self.assertNotIn(client.wait(time.monotonic() + 20), (0, None))
        self.assertIn("REJECTED", client.output())

    def test_the_service_of_a_killed_process_is_refused_at_once(self):
        ports = [rdma_port() for _ in range(4)]
        servers = []
        for port in ports:
            servers.append(self.on(0, ["rping", "-s", "-p", port]))
            self.wait_until(lambda: is_listening(port, "tcp", servers[-1].pid), servers[-1])
        # Whichever of them it is that refuses what nobody listens for.
        for server, port in list(zip(servers, ports))[:-1]:
            server.kill()
            client = self.on(1, ["rping", "-c", "-p", port, "-a", self.addresses[0], "-C", "1"])
            self.assertNotIn(client.wait(time.monotonic() + 20), (0, None))
            self.assertIn("REJECTED", client.output())

    def mpirun(self, *program, ranks=4):
        """Runs ranks on each of the machines. What would be `ssh` to the second one puts a program on it."""
        agent = self.runtime / "agent"
        words = " ".join(str(word) for word in self.commands[1][:-1])
        # Each machine has a name of its own: OpenMPI takes it for the same one otherwise.
        agent.write_text(f'#!/bin/sh\nshift\nexec unshare -u sh -c \'hostname other; exec "$0" "$@"\' '
                         f'{words} -- sh -c "$*"\n')
        agent.chmod(0o755)
        hosts = ",".join(f"{address}:{ranks}" for address in self.addresses)
        exported = [word for name in (*RC, "XDG_RUNTIME_DIR") for word in ("-x", name)]
        program = self.on(0, [*MPIRUN, "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "cable",
                              "--host", hosts, "-n", str(2 * ranks), *exported, *program], **RC)
        self.assertEqual(program.wait(time.monotonic() + LONG_TIMEOUT), 0, program.describe(program.process.poll()))
        return program.output()

    def test_openmpi_with_ranks_on_both(self):
        program = self.compile("ring.c", compiler="mpicc")
        self.assertIn("all right with 8 ranks", self.mpirun(program))

    def test_training_a_model_on_both(self):
        script = pathlib.Path(__file__).parent / "python/train.py"
        self.assertIn("8 ranks have learned what one learns", self.mpirun("/usr/bin/python3", script))
