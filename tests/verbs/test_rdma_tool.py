"""`rdma` of iproute2: what it shows is what the processes say, and what the verbs say."""

import json
import os
import pathlib
import re
import struct
import subprocess
import time

import packages
from cm import rdma_port
from harness import SOFTRNIC, TIMEOUT, VerbsTest, free_port, is_listening

KINDS = {"pd": "pds", "cq": "cqs", "mr": "mrs", "srq": "srqs"}
COUNTED = ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")

# For `rdma` of Debian's newest, and the libraries that it does not share with the system.
NEWEST = ["iproute2", "libbpf1", "libc6", "libcap2", "libdb5.3t64", "libelf1t64", "libmnl0", "libselinux1", "libpcre2-8-0",
          "libtirpc3t64", "libxtables12", "libzstd1", "zlib1g"]  # fmt: skip


class RdmaToolTest(VerbsTest):
    """What tests of `rdma` share."""

    def command_of(self, words):
        return ["rdma", *map(str, words)]

    def rdma(self, *words, run=()):
        """What a command prints, which must succeed."""
        return self.run_ok(self.command_of(words), run=run)

    def shown(self, *words):
        """What a command prints as JSON."""
        text = self.rdma("-j", *words)
        return json.loads(text) if text.strip() else []

    def stats(self):
        text = subprocess.run([SOFTRNIC, "stats", "--json"], env=self.env, check=True, capture_output=True, timeout=TIMEOUT).stdout
        return json.loads(text)["devices"]

    def begin(self):
        """A server and a client of perftest, with QPs that are connected, which go on for a while."""
        port = free_port()
        words = ["ib_send_bw", "-c", "RC", "-r", "64", "--use-srq", "-F", "-x", "0", "-D", "60", "-p", port]
        server = self.start(words, run=["--device", "server=udp:127.7.61.1"])
        self.wait_until(lambda: is_listening(port), server)
        client = self.start([*words, "127.0.0.1"], run=["--device", "client=udp:127.7.61.2"])

        def is_connected():
            # The stream moves, so every object is there.
            return [nic for nic in self.stats() if nic["counters"]["rcvd_pkts"] > 100][1:]

        self.wait_until(is_connected, server, client)
        return server, client


class Objects(RdmaToolTest):
    def compare(self, kind, numbers):
        """The objects of a kind, by process and number: those that `rdma` shows are those of `softrnic stats`."""
        shown = {(row["ifname"], row["pid"], row[numbers[0]]): row for row in self.shown("res", "show", kind)}
        said = {(nic["device"], nic["pid"], entry[numbers[1]]): entry
                for nic in self.stats() for entry in nic["resources"][KINDS[kind]]}  # fmt: skip
        self.assertEqual(sorted(shown), sorted(said))
        self.assertTrue(said)
        return [(shown[key], said[key]) for key in said]

    def test_objects_of_all_processes_are_listed_as_stats_says(self):
        server, client = self.begin()
        for row, said in self.compare("pd", ("pdn", "pdn")):
            self.assertEqual(row["users"], said["users"])
        for row, said in self.compare("cq", ("cqn", "cqn")):
            self.assertEqual((row["cqe"], row["users"]), (said["cqe"], said["users"]))
        for row, said in self.compare("mr", ("mrn", "mrn")):
            keys = [int(row[key], 16) for key in ("lkey", "rkey", "iova")]
            # As JSON it prints the low half of a number.
            self.assertEqual(keys, [said["lkey"], said["rkey"], said["iova"] & 0xFFFFFFFF])
            self.assertEqual((row["mrlen"], row["pdn"]), (said["length"], said["pdn"]))
        for row, said in self.compare("srq", ("srqn", "srqn")):
            self.assertEqual((row["type"], row["pdn"]), ("BASIC", said["pdn"]))
            (nic,) = [nic for nic in self.stats() if nic["pid"] == row["pid"]]
            self.assertEqual(row["lqpn"], [str(qp["qpn"]) for qp in nic["resources"]["qps"] if qp["srqn"] == said["srqn"]])
        rows = {row["pid"]: row for row in self.shown("res", "show", "qp")}
        self.assertEqual(sorted(rows), sorted(nic["pid"] for nic in self.stats()))
        for nic in self.stats():
            (qp,), row = nic["qps"], rows[nic["pid"]]
            expected = {"ifname": nic["device"], "port": 1, "lqpn": qp["qpn"], "rqpn": qp["peer_qpn"], "type": "RC",
                        "state": qp["state"], "comm": "ib_send_bw"}  # fmt: skip
            self.assertEqual({key: row[key] for key in expected}, expected)
            self.assertEqual(row["pdn"], nic["resources"]["qps"][0]["pdn"])
        self.assertEqual(len(self.shown("res", "show", "ctx")), 2)

        for row in self.shown("res"):
            nics = [nic for nic in self.stats() if nic["device"] == row["ifname"]]
            for kind in COUNTED:
                own = [len(nic["qps"] if kind == "qp" else nic["resources"]["cm_ids" if kind == "cm_id" else KINDS[kind]])
                       if kind != "ctx" else nic["resources"]["contexts"] for nic in nics]  # fmt: skip
                self.assertEqual(row[kind], sum(own), kind)

        self.check_one_object(rows)
        self.check_filters(rows, client)
        for program in (server, client):
            self.assertIsNone(program.process.poll(), program.output())

    def check_one_object(self, rows):
        for row in rows.values():
            one = self.shown("res", "show", "qp", "link", f"{row['ifname']}/1", "lqpn", row["lqpn"])
            self.assertEqual([(found["pid"], found["lqpn"]) for found in one], [(row["pid"], row["lqpn"])])

    def check_filters(self, rows, client):
        found = self.shown("res", "show", "qp", "pid", client.pid)
        self.assertEqual([row["pid"] for row in found], [client.pid])
        plain = self.rdma("res", "show", "qp", "link", "client/1")
        self.assertRegex(plain, rf"^link client/1 lqpn {rows[client.pid]['lqpn']} rqpn \d+ type RC state RTS .* comm ib_send_bw")

    def test_counters_are_those_of_stats(self):
        self.begin()
        (row,) = self.shown("statistic", "show", "link", "server/1")
        (nic,) = [nic for nic in self.stats() if nic["device"] == "server"]
        self.assertEqual(sorted(set(row) - {"ifname", "port"}), sorted(nic["counters"]))
        # The stream goes on.
        self.assertTrue(100 < row["rcvd_pkts"] <= nic["counters"]["rcvd_pkts"], row)
        self.assertIn("link client/1 ", self.rdma("statistic"))
        self.assertEqual(self.rdma("statistic", "show", "mr").strip(), "")

    def test_identifiers_of_connections_are_listed(self):
        port = rdma_port()
        server = self.start(["rping", "-s", "-a", "127.7.61.3", "-p", port, "-C", "1000000"],
                            run=["--device", "server=udp:127.7.61.3"])  # fmt: skip
        listening = {"ifname": "server", "state": "LISTEN", "ps": "TCP", "pid": server.pid, "src-addr": f"127.7.61.3:{port}"}
        rows = self.wait_until(lambda: self.shown("res", "show", "cm_id"), server)
        self.assertEqual([{key: row[key] for key in listening} for row in rows], [listening])
        self.assertNotIn("dst-addr", rows[0])
        client = self.start(["rping", "-c", "-a", "127.7.61.3", "-p", port, "-C", "1000000"],
                            run=["--device", "client=udp:127.7.61.4"])  # fmt: skip

        def connected():
            rows = [row for row in self.shown("res", "show", "cm_id") if row["state"] == "CONNECT" and "lqpn" in row]
            return {row["pid"]: row for row in rows} if len(rows) == 2 else None

        rows = self.wait_until(connected, server, client)
        self.assertEqual(rows[client.pid]["dst-addr"], f"127.7.61.3:{port}")
        self.assertEqual(rows[client.pid]["src-addr"], rows[server.pid]["dst-addr"])
        qpns = {row["pid"]: row["lqpn"] for row in self.shown("res", "show", "qp")}
        self.assertEqual({pid: row["lqpn"] for pid, row in rows.items()}, qpns)


class Devices(RdmaToolTest):
    def test_devices_are_those_that_the_verbs_show(self):
        run = ["--device", "a=udp:127.7.61.5,b=udp:127.7.61.6"]
        (a, b) = json.loads(self.rdma("-j", "dev", run=run))
        said = self.run_ok(["ibv_devinfo", "-v"], run=run)
        self.assertEqual([(a["ifindex"], a["ifname"]), (b["ifindex"], b["ifname"])], [(0, "a"), (1, "b")])
        self.assertEqual([a["node_guid"], b["node_guid"]], re.findall(r"node_guid:\s+(\S+)", said))
        self.assertEqual([a["sys_image_guid"], b["sys_image_guid"]], re.findall(r"sys_image_guid:\s+(\S+)", said))
        self.assertEqual([a["fw"], b["fw"]], re.findall(r"fw_ver:\s+(\S+)", said))
        (a, b) = json.loads(self.rdma("-j", "link", run=run))
        expected = {"ifindex": 0, "ifname": "a", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": "lo", "netdev_index": 1}
        self.assertEqual(a, expected)
        self.assertEqual(b, {**expected, "ifindex": 1, "ifname": "b"})
        self.assertEqual(self.rdma("link", "show", "b/1", run=run),
                         "link b/1 state ACTIVE physical_state LINK_UP netdev lo \n")  # fmt: skip

    def test_a_port_that_is_down_is_shown_down(self):
        run = ["--device", "a=udp:127.7.61.7,b=udp:127.7.61.8"]
        program = self.start([self.compile("ports.c", "-libverbs"), "b", "a"], run=run)
        self.wait_until(lambda: "send: 0" in program.output(), program)
        subprocess.run([SOFTRNIC, "link", "b", "down"], env=self.env, check=True, timeout=TIMEOUT)
        states = {row["ifname"]: (row["state"], row["physical_state"]) for row in self.shown("link")}
        self.assertEqual(states, {"softrnic0": ("ACTIVE", "LINK_UP"), "a": ("ACTIVE", "LINK_UP"), "b": ("DOWN", "DISABLED")})
        subprocess.run([SOFTRNIC, "link", "b", "up"], env=self.env, check=True, timeout=TIMEOUT)
        self.assertEqual({row["state"] for row in self.shown("link")}, {"ACTIVE"})

    def test_what_would_change_something_is_refused(self):
        for words in (["dev", "set", "softrnic0", "name", "other"], ["link", "add", "rxe9", "type", "rxe", "netdev", "lo"],
                      ["system", "set", "netns", "exclusive"]):  # fmt: skip
            program = self.start(self.command_of(words))
            program.wait(time.monotonic() + TIMEOUT)
            self.assertIn("Operation not supported", program.output())
        self.assertIn("netns shared", self.rdma("system"))

    def test_a_process_without_softrnic_asks_the_kernel(self):
        done = subprocess.run(["rdma", "dev"], env=self.env, capture_output=True, text=True, timeout=TIMEOUT)
        self.assertNotIn("softrnic0", done.stdout)


class Strangers(RdmaToolTest):
    """Sockets take messages from the whole network namespace, unless they are connected."""

    FORGED = struct.pack("=IHHII", 16, 0x1234, 0, 7, 0)

    def forge(self, port):
        """Another user of the machine, if the test may be one, sends to a socket; returns the error."""
        code = f"import socket; socket.socket(16, 3, 2).sendto({self.FORGED!r}, ({port}, 0))"
        who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(["/usr/bin/python3", "-c", code], env={}, cwd="/", capture_output=True, text=True, timeout=TIMEOUT, **who)
        return done.stderr.strip().split("\n")[-1]

    def test_nobody_else_can_answer(self):
        script = pathlib.Path(__file__).parent / "python/netlink_asker.py"
        with subprocess.Popen([SOFTRNIC, "run", "--", "/usr/bin/python3", "-B", script], env=self.env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asker:  # fmt: skip
            self.addCleanup(asker.kill)
            port = int(asker.stdout.readline().split()[1])
            # The socket takes this, and the program never sees it.
            self.assertEqual(self.forge(port), "")
            asker.stdin.write("ask\n")
            asker.stdin.flush()
            kinds = asker.stdout.readline().split()[1:]
            self.assertNotIn(str(0x1234), kinds)
            self.assertIn("3", kinds)
            self.assertIn("ConnectionRefusedError", self.forge(port))
            asker.stdin.write("end\n")
            asker.stdin.flush()
            self.assertEqual(asker.stdout.readline(), "got nothing else\n")


class ManyObjects(RdmaToolTest):
    def test_a_list_that_no_socket_holds_at_once_is_complete(self):
        program = self.start([self.compile("many_objects.c", "-libverbs"), "6000"], run=["--device", "a=udp:127.7.61.9"])
        self.wait_until(lambda: "ready" in program.output(), program)
        rows = self.shown("res", "show", "mr")
        self.assertEqual(len({row["mrn"] for row in rows}), 6000)
        self.assertEqual({row["pid"] for row in rows}, {program.pid})


class Newest(Objects, Devices, ManyObjects):
    """The same with `rdma` of Debian's newest iproute2."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = packages.debian("sid", NEWEST)

    def command_of(self, words):
        (rdma,) = [path for path in (self.root / "usr/bin/rdma", self.root / "sbin/rdma") if path.exists()]
        return [*packages.on(self.root, verbs=False), rdma, *map(str, words)]

    def test_a_monitor_shows_processes_that_come_and_go(self):
        monitor = self.start(self.command_of(["monitor"]))
        self.wait_until(lambda: self.watches(monitor.pid), monitor)
        program = self.start(["rping", "-s", "-a", "127.7.61.10", "-p", rdma_port()], run=["--device", "late=udp:127.7.61.10"])
        self.wait_until(lambda: "[NETDEV_ATTACH]" in monitor.output(), monitor, program)
        program.kill()
        self.wait_until(lambda: "[UNREGISTER]" in monitor.output(), monitor)
        lines = [line.split("\t") for line in monitor.output().splitlines()]
        self.assertEqual([line[0] for line in lines], ["[REGISTER]", "[NETDEV_ATTACH]", "[UNREGISTER]"])
        self.assertEqual(lines[0][1], "dev 1 late")
        self.assertEqual(lines[1][1], "dev 1 late port 1 netdev 1 lo")

    def watches(self, pid):
        """Whether its thread has begun to look: what is there by then is no news."""
        names = [comm.read_text() for comm in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")]
        return "softrnic-watch\n" in names
