"""A device of UDP sockets on all addresses of an interface, which come and go."""

import os
import random
import re
import subprocess

from cm import CmTest, is_listening, rdma_port
from harness import SOFTRNIC, Program, free_port, is_listening_in

V4 = ("10.78.0.1", "10.78.0.2")
V6 = ("fd78::1", "fd78::2")


class Interface(CmTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("it takes root to make an interface")
        self.machines = [self.new_machine(), self.new_machine()]
        self.names = [words[3] for words in self.machines]
        self.ip("link", "add", "cable", "netns", self.names[0], "type", "veth",
                "peer", "name", "cable", "netns", self.names[1])
        for name, v4, v6 in zip(self.names, V4, V6):
            self.ip("-n", name, "address", "add", f"{v4}/24", "dev", "cable")
            self.ip("-n", name, "address", "add", f"{v6}/64", "dev", "cable", "nodad")
            # The link-local addresses are of use at once.
            no_checks = "echo 0 > /proc/sys/net/ipv6/conf/cable/accept_dad"
            subprocess.run(["ip", "netns", "exec", name, "sh", "-c", no_checks], check=True)
            self.ip("-n", name, "link", "set", "cable", "up")

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def on(self, machine, argv, device="udp:cable", **extra):
        words = [*self.machines[machine], SOFTRNIC, "run", "--device", device, "--", *argv]
        program = Program(words, {**self.env, **extra})
        self.addCleanup(program.close)
        return program

    def serve_on(self, machine, port, *options, device="udp:cable", **extra):
        server = self.on(machine, ["rping", "-s", "-v", "-S", "3000", "-p", port, *options], device, **extra)
        self.wait_until(lambda: is_listening(port, "tcp", server.pid), server)
        return server

    def call(self, machine, port, address, device="udp:cable", **extra):
        return self.on(machine, ["rping", "-c", "-v", "-C", "10", "-S", "3000", "-p", port, "-a", address], device, **extra)

    def works(self, *call, **extra):
        self.ends_well(self.call(*call, **extra))

    def shown(self, machine, device="udp:cable"):
        """What `softrnic devices` says, and its exit status."""
        done = subprocess.run([*self.machines[machine], SOFTRNIC, "devices", "--device", device], env=self.env,
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_every_address_is_reached_by_servers_and_clients(self):
        for shm in "on", "off":
            for server, client in (0, 1), (1, 0), (0, 0):
                for addresses, wildcard in (V4, "0.0.0.0"), (V6, "::"):
                    port = rdma_port()
                    serving = self.serve_on(server, port, "-a", wildcard, SOFTRNIC_SHM=shm)
                    self.finish(serving, self.call(client, port, addresses[server], SOFTRNIC_SHM=shm))

    def test_verbs_programs_use_any_of_its_gids(self):
        for gid in 1, 2:
            port = free_port()
            words = ["ibv_rc_pingpong", "-c", "-g", gid, "-p", port]
            server = self.on(0, words)
            self.wait_until(lambda: is_listening_in(server.pid, port), server)
            client = self.on(1, [*words, V4[0]])
            self.finish(server, client)

    def test_groups_reach_each_process_that_has_joined(self):
        number = random.randrange(1, 255)
        for device, group in (f"udp:{V6[0]}", f"ff15::{number:x}"), ("udp:cable", f"ff15::{number:x}"), (
                f"udp:{V4[0]}", f"::ffff:239.7.8.{number}"):
            for shm in "on", "off":
                self.check_groups(group, lambda argv: self.on(0, argv, device, SOFTRNIC_SHM=shm))

    def test_processes_with_the_interface_and_with_one_address_share_it(self):
        first, second = rdma_port(), rdma_port()
        # The second address first, so that parts may collide; whoever has the interface takes another then.
        alone = [self.serve_on(0, rdma_port(), "-P", device=f"udp:{V6[0]}") for _ in range(8)]
        servers = [self.serve_on(0, first, "-P", "-a", "::"), self.serve_on(0, second, "-P", device=f"udp:{V4[0]}")]
        for port, address in (first, V6[0]), (second, V4[0]):
            self.works(1, port, address)
        status, said = self.shown(0)
        self.assertEqual(status, 0, said)
        for server in [*servers, *alone]:
            self.assertIsNone(server.process.poll(), server.output())
            self.assertRegex(said, rf"shared with .*\b{server.pid}\b")

    def test_an_address_that_comes_is_served_and_one_that_goes_is_not(self):
        new, port = "10.78.0.9", rdma_port()
        servers = [self.serve_on(0, port, "-P"), self.serve_on(0, rdma_port(), "-P")]
        for _ in range(2):
            self.ip("-n", self.names[0], "address", "add", f"{new}/24", "dev", "cable")
            self.wait_until(lambda: new in self.udp_sockets(servers[0]), servers[0])
            self.works(1, port, new)
            self.works(1, port, V4[0])
            self.ip("-n", self.names[0], "address", "del", f"{new}/24", "dev", "cable")
            self.wait_until(lambda: new not in self.udp_sockets(servers[0]), servers[0])
            self.works(1, port, V4[0])
        # Also the address by which it was known first.
        self.ip("-n", self.names[0], "address", "del", f"{V4[0]}/24", "dev", "cable")
        self.ip("-n", self.names[0], "address", "add", f"{new}/24", "dev", "cable")
        self.wait_until(lambda: new in self.udp_sockets(servers[0]), servers[0])
        self.works(1, port, new)
        for server in servers:
            self.assertIsNone(server.process.poll(), server.output())

    def udp_sockets(self, program):
        """The local addresses of RoCE sockets on a program's machine."""
        done = subprocess.run(["nsenter", "-t", str(program.pid), "-n", "ss", "-Huanp", "sport = :4791"],
                              capture_output=True, text=True, check=True)
        return re.findall(r"\s(\S+):4791\s", done.stdout)

    def test_what_is_wrong_is_said(self):
        status, said = self.shown(0, "udp:eth9")
        self.assertNotEqual(status, 0)
        self.assertIn("interface eth9: there is no such interface", said)
        self.ip("-n", self.names[0], "link", "add", "bare", "type", "veth", "peer", "name", "other")
        status, said = self.shown(0, "udp:bare")
        self.assertNotEqual(status, 0)
        self.assertIn("interface bare: it has no address", said)
