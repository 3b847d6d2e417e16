"""Debian's librdmacm and its own programs, between two processes on one machine."""

import pathlib
import tempfile

from cm import CmTest, rdma_port, unix_sockets
from harness import ADDRESS, LONG_TIMEOUT, TARGET
from test_pyverbs import SHIPPED, copy_tests


class Node(CmTest):
    def test_the_device_node_and_what_it_answers_to_wrong_commands(self):
        program = self.compile("rdma_cm_node.c", "-lpthread")
        self.assertIn("the node is all right", self.run_ok([program]))


class Programs(CmTest):
    """Each of rdmacm-utils."""

    def rping(self, address, *server_options, client=(), machine=()):
        port = rdma_port()
        self.run_cm_pair(
            [*machine, "rping", "-s", "-C", "3", "-p", port, *server_options],
            [*machine, "rping", "-c", "-a", address, "-C", "3", "-p", port, "-V", *client], port)

    def test_rping(self):
        self.rping(ADDRESS)

    def test_rping_to_a_name(self):
        self.rping("localhost")

    def test_rping_by_ipv6(self):
        self.rping("::1", "-a", "::")

    def test_rping_to_an_address_of_the_machine(self):
        machine, address = self.machine()
        self.rping(address, machine=machine)

    def test_two_rping_servers_on_one_port_of_different_addresses(self):
        addresses, port = ("10.77.0.9", "10.77.0.10"), rdma_port()
        machine = self.new_machine(*addresses)
        rping = lambda *words: self.start([*machine, "rping", "-C", "3", "-p", port, "-V", *words])
        servers = [rping("-s", "-a", address) for address in addresses]
        for server, address in zip(servers, addresses):
            self.wait_until(lambda: self.is_named(server, f"{port}/4/{address}"), server)
        for server, address in zip(servers, addresses):
            self.finish(server, rping("-c", "-a", address))

    def is_named(self, server, name):
        return f"@softrnic/cm/tcp/{name}" in unix_sockets(server.pid)

    def test_rping_with_qps_of_its_own(self):
        self.rping(ADDRESS, "-q", client=["-q"])

    def test_a_persistent_rping_server_serves_one_client_after_another(self):
        port = rdma_port()
        server = self.serve(["rping", "-s", "-P", "-p", port], port)
        for _ in range(3):
            self.ends_well(self.start(["rping", "-c", "-a", ADDRESS, "-C", "5", "-p", port, "-V"]))
        self.assertIsNone(server.process.poll(), server.output())

    def ucmatose(self, *options, address=ADDRESS):
        port = rdma_port()
        for out in self.run_cm_pair(
                ["ucmatose", "-c", "10", "-p", port, *options],
                ["ucmatose", "-s", address, "-c", "10", "-p", port, *options], port):
            self.assertIn("return status 0", out)

    def test_ucmatose(self):
        self.ucmatose()

    def test_ucmatose_which_moves_ids_between_channels(self):
        self.ucmatose("-m")

    def test_ucmatose_to_a_name(self):
        self.ucmatose(address="localhost")

    def test_ucmatose_with_a_type_of_service(self):
        self.ucmatose("-t", "32")

    def test_ucmatose_in_the_port_space_of_infiniband(self):
        port = rdma_port()
        self.run_cm_pair(["ucmatose", "-P", "ib", "-p", port], ["ucmatose", "-P", "ib", "-s", ADDRESS, "-p", port],
                         port, space="ib")

    def test_udaddy(self):
        # Its port is fixed.
        for out in self.run_cm_pair(["udaddy"], ["udaddy", "-s", ADDRESS], 7174, space="udp"):
            self.assertIn("return status 0", out)

    def mckey(self, *sender_options):
        group = ["-m", "239.1.2.3", "-b", ADDRESS, "-C", "5"]
        receiver = self.start(["stdbuf", "-oL", "mckey", *group])
        self.wait_until(lambda: "joined" in receiver.output(), receiver)
        sender = self.start(["mckey", *group, "-s", *sender_options])
        self.finish(receiver, sender)

    def test_mckey(self):
        self.mckey()

    def test_mckey_which_only_sends(self):
        self.mckey("-o")

    def test_rdma_client_and_server(self):
        port = rdma_port()
        for out in self.run_cm_pair(["rdma_server", "-p", port], ["rdma_client", "-s", ADDRESS, "-p", port], port):
            self.assertRegex(out, r"end 0|completed")

    def xserver(self, kind, space):
        port = rdma_port()
        self.run_cm_pair(["rdma_xserver", "-c", kind, "-p", port],
                         ["rdma_xclient", "-s", ADDRESS, "-c", kind, "-p", port], port, space)

    def test_rdma_xserver_by_rc(self):
        self.xserver("r", "tcp")

    def test_rdma_xserver_by_xrc(self):
        self.xserver("x", "ib")

    def test_cmtime_with_500_connections(self):
        port = rdma_port()
        server = self.serve(["cmtime", "-p", port], port)
        out = self.run_ok(["cmtime", "-s", ADDRESS, "-c", "500", "-p", port], timeout=LONG_TIMEOUT)
        self.assertRegex(out, r"(?m)^connect")
        self.assertIsNone(server.process.poll(), server.output())


class Older(CmTest):
    """librdmacm goes by its older commands where the kernel refuses native addresses."""

    def setUp(self):
        super().setUp()
        library = self.compile("no_native.c", "-ldl", flags=("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"))
        preloads = f"{TARGET / 'libsoftrnic_interpose.so'}:{TARGET / 'verbs/libibverbs.so.1'}"
        self.refused = ["env", f"LD_PRELOAD={library}:{preloads}"]

    def check(self, outputs):
        for out in outputs:
            self.assertRegex(out, "[1-9][0-9]* older and 0 newer commands")

    def test_rping(self):
        for address, listens in ((ADDRESS, "0.0.0.0"), ("::1", "::")):
            port = rdma_port()
            both = [*self.refused, "rping", "-C", "3", "-p", port]
            self.check(self.run_cm_pair([*both, "-s", "-a", listens], [*both, "-c", "-a", address, "-V"], port))

    def test_ucmatose(self):
        port = rdma_port()
        both = [*self.refused, "ucmatose", "-c", "5", "-p", port]
        self.check(self.run_cm_pair(both, [*both, "-s", ADDRESS], port))

    def test_udaddy(self):
        both = [*self.refused, "udaddy"]
        self.check(self.run_cm_pair(both, [*both, "-s", ADDRESS], 7174, space="udp"))

    def test_mckey(self):
        group = [*self.refused, "stdbuf", "-oL", "mckey", "-m", "239.1.2.3", "-b", ADDRESS, "-C", "5"]
        receiver = self.start(group)
        self.wait_until(lambda: "joined" in receiver.output(), receiver)
        self.check(self.finish(receiver, self.start([*group, "-s"])))


class Sockets(CmTest):
    """rsockets: the calls of sockets, by RDMA."""

    def rstream(self, program, *options):
        port = rdma_port()
        _, out = self.run_cm_pair([program, "-p", port, *options],
                                  [program, "-s", ADDRESS, "-p", port, *options], port, timeout=LONG_TIMEOUT)
        self.assertRegex(out, r"\d+\s+Gb/sec|[\d.]+\s+[\d.]+\s*$")

    def test_rstream(self):
        self.rstream("rstream")

    def test_rstream_nonblocking(self):
        self.rstream("rstream", "-T", "n")

    def test_rstream_blocking(self):
        self.rstream("rstream", "-T", "b")

    def test_rstream_which_verifies_the_data(self):
        self.rstream("rstream", "-T", "v")

    def test_rstream_which_verifies_64_kib(self):
        self.rstream("rstream", "-T", "v", "-S", "65536")

    def test_rstream_with_a_mebibyte(self):
        self.rstream("rstream", "-S", "1048576")

    def test_rstream_which_resolves_by_rdma_cm(self):
        self.rstream("rstream", "-T", "r")

    def test_riostream(self):
        # Both sides look at their memory until something comes, and a busy machine gives them turns of milliseconds.
        self.rstream("riostream", "-S", "65536", "-I", "5", "-C", "20")
        self.rstream("riostream", "-S", "100000", "-I", "5", "-C", "20", "-T", "v")

    def test_rcopy(self):
        port = rdma_port()
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        here = pathlib.Path(directory.name)
        data = bytes(range(256)) * 4096
        (here / "from").write_bytes(data)
        self.serve(["rcopy", "-p", port], port)
        self.run_ok(["rcopy", here / "from", f"{ADDRESS}:{here / 'to'}", "-p", port])
        self.assertEqual((here / "to").read_bytes(), data)


class Pyverbs(CmTest):
    def test_rdma_cores_tests_of_rdmacm(self):
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        copy_tests(SHIPPED, directory.name)
        out = self.run_ok(["/usr/bin/python3", "-B", "run_tests.py", "-v", "tests.test_rdmacm"], timeout=LONG_TIMEOUT,
                          cwd=directory.name)
        self.assertIn("Ran 10 tests", out)
        self.assertNotIn("skipped", out)
