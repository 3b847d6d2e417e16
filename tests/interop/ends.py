"""Two ends with queue pairs between them, which stay for all cells of a configuration."""

import dataclasses
import random

from agent import FLUSH_GLOBAL, LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from guest import gid

EVERYTHING = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND
REGION_BYTES = 2 << 20
WINDOWS = 16
SERVICES = ("rc", "uc", "ud")
# Who leaves these few bytes around a buffer alone is known by their pattern.
BACKGROUND = 1
MARGIN = 64


@dataclasses.dataclass
class Region:
    number: int
    address: int
    key: int


class End:
    """A device of an agent with two regions and a queue pair of each service."""

    def __init__(self, agent, device, address):
        self.agent, self.device, self.address = agent, device, address
        found = agent.ask(f"open dev={device} gid={gid(address)}")[0]
        self.name = found["name"]
        self.can = {op for op in ("atomic_write", "flush") if found[op] == "1"}
        access = EVERYTHING | (FLUSH_GLOBAL if "flush" in self.can else 0)
        self.regions = 0
        self.source, self.sink = self.region(access), self.region(access)
        self.queues = {service: device * 8 + i for i, service in enumerate(SERVICES)}
        self.numbers, self.offers = {}, set()
        for service in SERVICES:
            self._make_queue(service)
        self._windows("mw")

    def renew_windows(self):
        """Unbound windows instead of those that there are."""
        self._windows("unmw")
        self._windows("mw")

    def _windows(self, command):
        numbers = range(self.device * WINDOWS, (self.device + 1) * WINDOWS)
        self.agent.ask(*[f"{command} mw={number} dev={self.device}" for number in numbers])

    def renew(self, service):
        """Another queue pair instead of the one of this service."""
        self.agent.ask(f"destroy qp={self.queues[service]}")
        self._make_queue(service)

    def _make_queue(self, service):
        made = self.agent.ask(f"qp qp={self.queues[service]} dev={self.device} type={service}")[0]
        self.numbers[service] = int(made["qpn"])
        # What the library has an interface for, which may be less than the kernel can.
        self.offers |= {op for op in ("atomic_write", "flush") if made[op] == "1"}

    def region(self, access, size=REGION_BYTES, device=None):
        """More memory, registered."""
        number, self.regions = self.device * 16 + self.regions, self.regions + 1
        device = self.device if device is None else device
        made = self.agent.ask(f"mr mr={number} dev={device} size={size} access={access}")[0]
        return Region(number, int(made["addr"]), int(made["rkey"]))


class Pair:
    """Two ends. `options` are those of `connect` for each end, `timeout=14` and the like."""

    def __init__(self, near, far, options=("", ""), seed=0):
        self.near, self.far, self.options = near, far, dict(zip((near, far), options))
        self._random = random.Random(seed)
        self.mtu = 1024

    def other(self, end):
        return self.far if end is self.near else self.near

    def connect(self, mtu=None, services=SERVICES, also=None):
        """Connect the queue pairs, whatever state they are in, with new sequence numbers.

        `also` are options for an end that come before the usual ones.
        """
        self.mtu = mtu or self.mtu
        also = also or {}
        for service in services:
            first = {end: self._random.randrange(1 << 24) for end in (self.near, self.far)}
            for end in (self.near, self.far):
                end.agent.send(self._connect(end, service, first, also.get(end, "")))
            for end in (self.near, self.far):
                end.agent.take(f"connect {service}")

    def _connect(self, end, service, first, also):
        other = self.other(end)
        return (
            f"connect qp={end.queues[service]} gid={gid(other.address)} qpn={other.numbers[service]} {also} "
            f"mtu={self.mtu} sq_psn={first[end]} rq_psn={first[other]} {self.options[end]}"
        )
