"""Mixed traffic between two processes over udp sockets and a bad network; see tools/soak --udp."""

import argparse
import collections
import random
import re
import sys
import time

from lab import Connection, Failed, Here, Worker

FAULT = "drop=5%,dup=2%,reorder=5%,corrupt=1%"
# Several queue pairs in both directions, at every MTU that matters.
PATHS = [{"mtu": 4096}, {"mtu": 1024}, {"mtu": 256}, {"mtu": 2048}]
# Retries run out for one operation in a hundred million; then the connection is made anew.
PATIENT = {"timeout": 14, "retry_cnt": 7}


def main():
    parser = argparse.ArgumentParser(prog="tools/soak --udp", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long (300)")
    parser.add_argument("--seed", type=int, default=None, help="what is done, and which packets suffer")
    parser.add_argument("--fault", default=FAULT, help=f"what the network does, in both directions ({FAULT})")
    arguments = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    print(f"soak: {arguments.seconds:g} s of udp with {arguments.fault}; again with --seed {seed}", flush=True)
    soak = Soak(random.Random(seed), arguments.fault)
    wrong = "0"
    try:
        soak.run(arguments.seconds)
        soak.end()
    except (AssertionError, Failed) as problem:
        found = re.search(r"(\d+) wrong bytes", str(problem))
        wrong = found.group(1) if found else "unknown"
        print(f"soak: {problem}", file=sys.stderr)
    finally:
        soak.kill()
    size = soak.done.pop("bytes", 0)
    print(f"operations: {sum(soak.done.values())}, {dict(soak.done)}, {size / 1e9:.2f} GB")
    print(f"dropped on arrival: {dict(soak.dropped)}; connections made anew: {soak.anew}")
    print(f"wrong bytes: {wrong}")
    sys.exit(wrong != "0")


class Soak:
    def __init__(self, rng, fault):
        self.rng = rng
        self.done, self.dropped, self.anew = collections.Counter(), collections.Counter(), 0
        self.workers = [
            Worker(Here, name, "udp", SOFTRNIC_FAULT=f"seed={rng.getrandbits(31)},{fault}") for name in ("one", "two")
        ]
        self.addresses = [worker.look()["gids"]["0"] for worker in self.workers]
        self.connections = [self.connect(route) for route in range(2 * len(PATHS))]

    def connect(self, route):
        near, far = route % 2, 1 - route % 2
        connection = Connection(
            self.workers[near], self.workers[far], self.addresses[near], self.addresses[far],
            **PATHS[route // 2], **PATIENT,
        )
        connection.drive(seed=self.rng.getrandbits(48), events=self.rng.random() < 0.5)
        return connection

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.2)
            for route, connection in enumerate(self.connections):
                ended = connection.near.ends.get(connection.name) or connection.far.ends.get(connection.name)
                if isinstance(ended, Failed):
                    raise ended
                if ended is not None:
                    self.remake(route)

    def remake(self, route):
        """The connection has run out of retries."""
        connection = self.connections[route]
        connection.far.stop(connection.name)
        connection.near.stop(connection.name)
        ended = connection.near.finished(connection.name)
        connection.far.finished(connection.name)
        if ended["error"] not in ("RetryExceeded", None):
            raise Failed(f"a connection ended with {ended['error']}")
        self.count(ended)
        connection.drop()
        self.anew += 1
        self.connections[route] = self.connect(route)

    def end(self):
        for connection in self.connections:
            self.count(connection.stop())
            connection.drop()
        injected = 0
        for worker in self.workers:
            counters = worker.look()["counters"]
            injected += counters["faults_injected"]
            for name, count in counters.items():
                if count and name.startswith("drop_"):
                    self.dropped[name] += count
            worker.end()
        if not injected or not self.done:
            raise Failed("nothing was tried")

    def count(self, finished):
        self.done.update(finished["messages"])
        self.done["bytes"] += finished["bytes"]

    def kill(self):
        for worker in self.workers:
            worker.kill()


if __name__ == "__main__":
    main()
