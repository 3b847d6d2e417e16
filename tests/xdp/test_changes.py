"""What happens to the network, and to the peer, in the middle of transfers."""

import ipaddress
import time

from lab import OPERATIONS, Connection, LabTest

V4 = ("10.77.0.1", "10.77.0.2")
V6 = ("fd77::1", "fd77::2")

# How long a disturbance lasts that must not end the traffic, in seconds.
A_WHILE = 0.3
# 1.1 s for each of eight tries: longer than any disturbance that must not end a connection.
PATIENT = {"timeout": 18, "retry_cnt": 7}
# 134 ms for each of four tries: a peer that waits for a busy processor answers in that time.
IMPATIENT = {"timeout": 15, "retry_cnt": 3}


def link_local(mac):
    """The link-local address of an interface with this MAC: with its modified EUI-64 (RFC 4291, appendix A)."""
    mac = bytes.fromhex(mac.replace(":", ""))
    return str(ipaddress.IPv6Address(bytes([0xFE, 0x80, *bytes(6), mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:]])))


class Changes(LabTest):
    def setUp(self):
        self.network = self.lab("--mtu", "4500", "--hosts", "2")

    def pair(self, far="xdp:eth0", **options):
        return self.worker(self.network, "h1", **options), self.worker(self.network, "h2", far, **options)

    def traffic(self, near, far, addresses=V4, **path):
        """Traffic that flows, of every kind."""
        connection = Connection(near, far, *addresses, **path)
        before = near.look()["counters"]["rdma_sends"]
        connection.drive()
        self.until("the traffic", lambda: near.look()["counters"]["rdma_sends"] >= before + 50)
        return connection

    def carried_on(self, connection):
        """The traffic goes on, and all of it was right."""
        before = connection.near.look()["counters"]["rdma_sends"]
        end = time.monotonic() + 10
        while connection.near.look()["counters"]["rdma_sends"] < before + 20:
            self.assertLess(time.monotonic(), end, "the traffic does not go on")
            time.sleep(0.02)
        finished = connection.stop()
        self.assertGreater(min(finished["messages"].get(name, 0) for name in OPERATIONS), 0)

    def broke(self, connection, error="RetryExceeded"):
        """The traffic ended in an error, the first completion says which, and all others were flushed."""
        finished = connection.near.finished(connection.name)
        self.assertEqual(finished["error"], error)
        self.assertGreater(finished["flushed"], 0)

    def works(self, near, far, addresses=V4, **path):
        connection = Connection(near, far, *addresses, **path)
        connection.drive(messages=100)
        connection.finish()

    def settle(self, *workers):
        for worker in workers:
            worker.settled()
            worker.end()

    def until(self, what, done, timeout=10):
        end = time.monotonic() + timeout
        while not done():
            self.assertLess(time.monotonic(), end, f"gave up waiting for {what}")
            time.sleep(0.01)

    # The interface.

    def test_an_interface_goes_down_for_a_moment(self):
        near, far = self.pair()
        for host, worker in (("h1", near), ("h2", far)):
            with self.subTest(host=host):
                connection = self.traffic(near, far, **PATIENT)
                self.network.ip(host, "link set eth0 down")
                worker.event("PortError")
                self.assertEqual(worker.look()["state"], "Disabled")
                time.sleep(A_WHILE)
                self.network.ip(host, "link set eth0 up")
                worker.event("PortActive")
                self.assertEqual(worker.look()["state"], "Active")
                self.carried_on(connection)
        self.settle(near, far)

    def test_a_cable_is_pulled_for_a_moment(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **PATIENT)
        self.network.ip("switch", "link set h1 down")
        near.event("PortError")
        self.assertEqual(near.look()["state"], "Polling")
        time.sleep(A_WHILE)
        self.network.ip("switch", "link set h1 up")
        near.event("PortActive")
        self.carried_on(connection)
        self.settle(near, far)

    def test_an_interface_goes_down_for_too_long(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **IMPATIENT)
        self.network.ip("h1", "link set eth0 down")
        near.event("PortError")
        self.broke(connection)
        self.network.ip("h1", "link set eth0 up")
        near.event("PortActive")
        self.works(near, far)
        self.settle(near, far)

    def test_an_interface_goes_down_and_up_many_times(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **PATIENT)
        for _ in range(20):
            self.network.ip("h1", "link set eth0 down")
            self.network.ip("h1", "link set eth0 up")
            time.sleep(0.05)
        self.carried_on(connection)
        self.settle(near, far)

    def test_an_interface_disappears(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **IMPATIENT)
        self.network.ip("switch", "link del h1")
        near.event("PortError")
        self.broke(connection)
        self.assertEqual(near.look()["state"], "Disabled")
        near.end()
        self.settle(far)

    # Its MTU.

    def test_the_mtu_shrinks_below_the_path_mtu_and_grows_again(self):
        near, far = self.pair()
        large = near.opened["active_mtu"]
        connection = self.traffic(near, far, **IMPATIENT)
        self.network.ip("h1", "link set eth0 mtu 1500")
        self.broke(connection)
        self.assertEqual(near.look()["active_mtu"], 1024)
        self.works(near, far, mtu=1024)
        self.network.ip("h1", "link set eth0 mtu 4500")
        self.until("the MTU", lambda: near.look()["active_mtu"] == large)
        self.works(near, far, mtu=large)
        self.settle(near, far)

    def test_the_mtu_is_too_small_for_a_moment(self):
        near, far = self.pair()
        for host in ("h1", "h2"):
            with self.subTest(host=host):
                connection = self.traffic(near, far, **PATIENT)
                self.network.ip(host, "link set eth0 mtu 1500")
                time.sleep(A_WHILE)
                self.network.ip(host, "link set eth0 mtu 4500")
                self.carried_on(connection)
        self.settle(near, far)

    def test_an_mtu_that_still_holds_the_path_mtu_changes_nothing(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **PATIENT)
        for mtu in (4200, 4300, 4500):
            self.network.ip("h1", f"link set eth0 mtu {mtu}")
            time.sleep(0.1)
        self.carried_on(connection)
        self.settle(near, far)

    def test_an_mtu_that_grows_is_not_claimed_before_the_device_is_opened_anew(self):
        self.network.ip("h1", "link set eth0 mtu 1500")
        near, far = self.pair()
        connection = self.traffic(near, far, mtu=1024, **PATIENT)
        self.network.ip("h1", "link set eth0 mtu 4500")
        time.sleep(A_WHILE)
        self.assertEqual(near.look()["active_mtu"], 1024)
        self.carried_on(connection)
        self.settle(near)
        near = self.worker(self.network, "h1")
        self.assertEqual(near.opened["active_mtu"], far.opened["active_mtu"])
        self.works(near, far)
        self.settle(near, far)

    # Its addresses.

    def test_an_address_is_removed_and_comes_back(self):
        near, far = self.pair()
        index = near.gid_index(V4[0])
        over_v4 = self.traffic(near, far, V4, **IMPATIENT)
        over_v6 = self.traffic(near, far, V6, **PATIENT)
        self.network.ip("h1", f"addr del {V4[0]}/24 dev eth0")
        near.event("GidChange")
        self.broke(over_v4)
        self.assertNotIn(V4[0], near.look()["gids"].values())
        self.network.ip("h1", f"addr add {V4[0]}/24 dev eth0")
        near.event("GidChange")
        self.assertEqual(near.gid_index(V4[0]), index, "it takes the first free place")
        self.works(near, far)
        self.carried_on(over_v6)
        self.settle(near, far)

    def test_the_gid_table_is_as_rxe_has_it(self):
        near, far = self.pair()
        gids = near.look()["gids"]
        mac = self.network.run("h1", "cat", "/sys/class/net/eth0/address").strip()
        eui = link_local(mac)
        self.assertEqual(gids, {"0": eui, "1": V4[0], "2": V6[0]})
        for number in (21, 22):
            self.network.ip("h1", f"addr add 10.77.0.{number}/24 dev eth0")
            near.event("GidChange")
        self.network.ip("h1", f"addr del {V6[0]}/64 dev eth0")
        near.event("GidChange")
        self.assertEqual(near.look()["gids"], {"0": eui, "1": V4[0], "3": "10.77.0.21", "4": "10.77.0.22"})
        self.network.ip("h1", "addr add fd77::99/64 dev eth0 nodad")
        near.event("GidChange")
        self.assertEqual(near.look()["gids"]["2"], "fd77::99")
        # Both the first and a later address carry traffic.
        self.works(near, far, ("10.77.0.22", V4[1]))
        self.settle(near, far)

    def test_the_hardware_address_changes(self):
        near, far = self.pair()
        default = far.look()["gids"]["0"]
        connection = self.traffic(near, far, **PATIENT)
        self.network.ip("h2", "link set eth0 address 02:00:00:00:77:02")
        far.event("GidChange")
        self.assertNotEqual(far.look()["gids"]["0"], default)
        self.assertEqual(far.look()["gids"]["0"], "fe80::ff:fe00:7702")
        self.carried_on(connection)
        self.settle(near, far)

    # The neighbour.

    def test_a_wrong_neighbour_is_put_right(self):
        # The kernel below a socket takes no frames for other hardware addresses.
        near, far = self.pair(far=f"udp:{V4[1]}")
        mac = self.network.run("h2", "cat", "/sys/class/net/eth0/address").strip()
        connection = self.traffic(near, far, **PATIENT)
        self.network.ip("h1", f"neigh replace {V4[1]} lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
        time.sleep(A_WHILE)
        stuck = near.look()["counters"]["rdma_sends"]
        time.sleep(A_WHILE)
        self.assertLess(near.look()["counters"]["rdma_sends"], stuck + 20, "frames go to the neighbour of the table")
        self.network.ip("h1", f"neigh replace {V4[1]} lladdr {mac} dev eth0 nud reachable")
        self.carried_on(connection)
        self.settle(near, far)

    def test_a_neighbour_that_is_forgotten_is_asked_for(self):
        near, far = self.pair(far=f"udp:{V4[1]}")
        connection = self.traffic(near, far, **PATIENT)
        for _ in range(10):
            self.network.ip("h1", "neigh flush dev eth0")
            time.sleep(0.05)
        self.carried_on(connection)
        self.settle(near, far)

    # The peer.

    def test_the_peer_is_killed_and_comes_back(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **IMPATIENT)
        far.kill()
        self.broke(connection)
        # Nothing of the killed process is in the way of the next.
        far = self.worker(self.network, "h2")
        self.works(near, far)
        self.settle(near, far)

    def test_a_peer_is_killed_that_has_acknowledged_everything(self):
        near, far = self.pair()
        connection = Connection(near, far, *V4, slots=4, **IMPATIENT)
        # It takes in messages, and does not answer them any more.
        far.stop(connection.name)
        far.finished(connection.name)
        connection.drive(operations=["send"])
        self.until("the messages", lambda: far.look()["counters"]["rdma_recvs"] == 4)
        time.sleep(A_WHILE)
        far.kill()
        self.broke(connection)
        self.settle(near)

    def test_a_peer_that_is_killed_does_not_disturb_others(self):
        lab = self.lab("--hosts", "3", "--mtu", "4500")
        near, dying, other = (self.worker(lab, host) for host in ("h1", "h2", "h3"))
        doomed = self.traffic(near, dying, **IMPATIENT)
        lasting = self.traffic(near, other, ("10.77.0.1", "10.77.0.3"), **PATIENT)
        dying.kill()
        self.broke(doomed)
        self.carried_on(lasting)
        self.settle(near, other)

    # The wire.

    def test_one_percent_is_lost(self):
        for far in ("xdp:eth0", f"udp:{V4[1]}"):
            with self.subTest(far=far):
                near, far = self.pair(far=far, SOFTRNIC_FAULT="seed=77,drop=1%")
                connection = Connection(near, far, *V4, **PATIENT)
                connection.drive(messages=3000)
                connection.finish()
                for worker in (near, far):
                    self.assertGreater(worker.look()["counters"]["faults_injected"], 10)
                self.settle(near, far)

    def test_loss_duplicates_reordering_and_damage(self):
        near, far = self.pair(SOFTRNIC_FAULT="seed=78,drop=1%,duplicate=1%,reorder=1%,corrupt=1%")
        connection = Connection(near, far, *V4, **PATIENT)
        connection.drive(messages=3000)
        connection.finish()
        self.assertGreater(far.look()["counters"]["drop_icrc"], 0)
        self.settle(near, far)

    # The neighbours of the traffic.

    def test_ping_and_tcp_keep_working_meanwhile(self):
        near, far = self.pair()
        connection = self.traffic(near, far, **PATIENT)
        for address in (V4[1], V6[1]):
            output = self.network.run("h1", "ping", "-c", "20", "-i", "0.01", "-W", "5", address)
            self.assertIn("20 received", output)
        for address in (V4[1], V6[1]):
            self.assertEqual(self.network.run("h1", "python3", "-c", TCP_CLIENT, address, input=self.tcp_server(address)), "")
        self.carried_on(connection)
        self.settle(near, far)

    def tcp_server(self, address):
        """Starts a TCP server in h2 that echoes one connection; returns its port, as text."""
        import subprocess

        words = self.network.inside("h2", "python3", "-c", TCP_SERVER, address)
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        with server.stdout as output:
            return output.readline()


TCP_SERVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 0), family=family) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)
"""

# Sends a few megabytes, and checks that they come back as they were.
TCP_CLIENT = """
import os, socket, sys, threading
with socket.create_connection((sys.argv[1], int(sys.stdin.readline())), timeout=30) as connection:
    data = os.urandom(4 << 20)
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    back = bytearray()
    while len(back) < len(data):
        back += connection.recv(1 << 16) or sys.exit("closed early")
    sender.join()
    sys.exit("damaged" if back != data else None)
"""
