"""Mixed traffic between hosts of a lab while everything around it is disturbed; see tools/soak."""

import argparse
import collections
import pathlib
import random
import re
import sys
import time

from lab import Connection, Failed, Lab, Worker

FAULTS = "drop=0.5%,duplicate=0.3%,reorder=0.5%,corrupt=0.2%"
# 1.1 s for each of eight tries: longer than any disturbance that must not end a connection.
PATIENT = {"timeout": 18, "retry_cnt": 7}
DEVICES = {"h1": "xdp:eth0", "h2": "xdp:eth0", "h3": "udp:10.77.0.3"}
# Who drives traffic to whom, from which address to which, and with what.
ROUTES = [
    ("h1", "h2", "10.77.0.1", "10.77.0.2", {"mtu": 4096}),
    ("h2", "h1", "fd77::2", "fd77::1", {"mtu": 1024}),
    ("h1", "h3", "10.77.0.1", "10.77.0.3", {"mtu": 2048}),
    ("h3", "h2", "10.77.0.3", "10.77.0.2", {"mtu": 4096}),
]
# What a process may grow by after its first minute, in kilobytes: it has everything that it needs by then.
GROWTH = 32 << 10


def main():
    parser = argparse.ArgumentParser(prog="tools/soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--seed", type=int, default=None, help="what is disturbed, and when; the same again")
    arguments = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    print(f"soak: {arguments.seconds:g} s; again with --seed {seed}", flush=True)
    lab = Lab("--hosts", "3", "--mtu", "4500")
    started = time.monotonic()
    try:
        soak = Soak(lab, random.Random(seed))
        try:
            soak.run(arguments.seconds)
            soak.end()
        finally:
            soak.kill()
    except (AssertionError, Failed) as problem:
        sys.exit(f"soak: after {time.monotonic() - started:.0f} s: {problem}")
    finally:
        lab.down()


class Soak:
    def __init__(self, lab, rng):
        self.lab, self.rng = lab, rng
        self.workers = {}
        self.connections = {}
        self.disturbed = collections.Counter()
        self.done = collections.Counter()
        self.sizes = {}
        for host in DEVICES:
            # Addresses of both families stay while an interface is down.
            lab.run(host, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/keep_addr_on_down; "
                                      "echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down")
            self.open(host)
        for route in range(len(ROUTES)):
            self.connect(route)

    def open(self, host):
        fault = f"seed={self.rng.getrandbits(31)},{FAULTS}"
        self.workers[host] = Worker(self.lab, host, DEVICES[host], SOFTRNIC_FAULT=fault)
        self.sizes.pop(host, None)

    def connect(self, route):
        near, far, source, target, path = ROUTES[route]
        connection = Connection(self.workers[near], self.workers[far], source, target, **path, **PATIENT)
        connection.drive(seed=self.rng.getrandbits(48), events=self.rng.random() < 0.5)
        self.connections[route] = connection

    def run(self, seconds):
        start = time.monotonic()
        disturbances = [
            (4, self.interface_down), (4, self.cable_pulled), (3, self.address_gone), (4, self.neighbours_forgotten),
            (2, self.neighbour_wrong), (2, self.mtu_changes), (3, self.connection_anew), (1, self.process_killed),
            (3, self.ping),
        ]
        weights = [weight for weight, _ in disturbances]
        while time.monotonic() - start < seconds:
            time.sleep(self.rng.uniform(0.1, 1.5))
            disturb = self.rng.choices(disturbances, weights)[0][1]
            disturb()
            self.disturbed[disturb.__name__] += 1
            self.check(time.monotonic() - start)

    def check(self, elapsed):
        """Nothing has failed, and all packet memory is somewhere."""
        for connection in self.connections.values():
            ended = connection.near.ends.get(connection.name) or connection.far.ends.get(connection.name)
            if ended is not None:
                raise Failed(f"a connection ended: {ended}; {self.disturbed}\n{connection.describe()}")
        for host, worker in self.workers.items():
            memory = worker.look()["memory"]
            assert memory is None or memory["exact"], f"{host} after {elapsed:.0f} s: {memory}"
            size = resident(worker.process.pid)
            if elapsed > 60:
                first = self.sizes.setdefault(host, size)
                assert size < first + GROWTH, f"the process in {host} grows: from {first} kB to {size} kB"

    def host(self):
        return self.rng.choice(list(DEVICES))

    def moment(self):
        time.sleep(self.rng.uniform(0, 0.3))

    # Disturbances.

    def interface_down(self):
        host = self.host()
        self.lab.ip(host, "link set eth0 down")
        self.moment()
        self.lab.ip(host, "link set eth0 up")

    def cable_pulled(self):
        host = self.host()
        self.lab.ip("switch", f"link set {host} down")
        self.moment()
        self.lab.ip("switch", f"link set {host} up")

    def address_gone(self):
        host = self.rng.choice(["h1", "h2"])
        address = f"10.77.0.{host[1]}/24" if self.rng.random() < 0.5 else f"fd77::{host[1]}/64"
        self.lab.ip(host, f"addr del {address} dev eth0")
        self.moment()
        self.lab.ip(host, f"addr add {address} dev eth0" + (" nodad" if ":" in address else ""))

    def neighbours_forgotten(self):
        self.lab.ip(self.host(), "neigh flush dev eth0")

    def neighbour_wrong(self):
        host = self.rng.choice(["h1", "h2"])
        other = self.rng.choice([number for number in "123" if number != host[1]])
        self.lab.ip(host, f"neigh replace 10.77.0.{other} lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
        self.moment()
        self.lab.ip(host, f"neigh del 10.77.0.{other} dev eth0")

    def mtu_changes(self):
        host = self.host()
        self.lab.ip(host, f"link set eth0 mtu {self.rng.choice([1500, 4200, 4400])}")
        self.moment()
        self.lab.ip(host, "link set eth0 mtu 4500")

    def connection_anew(self):
        route = self.rng.choice(list(self.connections))
        self.count(self.connections[route].stop())
        self.connections[route].drop()
        self.connect(route)

    def process_killed(self):
        host = self.host()
        self.workers[host].kill()
        broken = [route for route in self.connections if host in ROUTES[route][:2]]
        for route in broken:
            connection = self.connections[route]
            near, far = ROUTES[route][:2]
            if far == host:
                ended = connection.near.finished(connection.name)
                assert ended["error"] == "RetryExceeded", ended
                self.count(ended)
                connection.near.drop(connection.name)
            else:
                # The other end waits for what does not come.
                connection.far.stop(connection.name)
                connection.far.finished(connection.name)
                connection.far.drop(connection.name)
        self.open(host)
        for route in broken:
            self.connect(route)

    def ping(self):
        """The host keeps its network."""
        output = self.lab.run("h1", "ping", "-c", "3", "-i", "0.01", "-W", "5", self.rng.choice(["10.77.0.2", "fd77::2"]))
        assert re.search(r"[123] received", output), output

    # The end.

    def count(self, finished):
        for operation, messages in finished["messages"].items():
            self.done[operation] += messages
        self.done["bytes"] += finished["bytes"]

    def end(self):
        for connection in self.connections.values():
            self.count(connection.stop())
            connection.drop()
        injected = 0
        for host, worker in self.workers.items():
            seen = worker.settled()
            injected += seen["counters"]["faults_injected"]
            if seen["memory"]:
                print(f"{host}: {seen['memory']['text']}")
            worker.end()
        assert injected > 0, "no faults were injected"
        size = self.done.pop("bytes")
        print(f"disturbed: {dict(self.disturbed)}; the last processes injected {injected} faults")
        print(f"checked: {dict(self.done)}, {size / 1e9:.2f} GB")
        print("soak: nothing was corrupted, no packet memory was lost")

    def kill(self):
        for worker in self.workers.values():
            worker.kill()


def resident(process):
    """Memory of a process, in kilobytes."""
    # The pid is that of `ip netns exec`, which becomes the program.
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))


if __name__ == "__main__":
    main()
