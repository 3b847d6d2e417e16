"""Two ends with queue pairs between them, which stay for all cells of a configuration."""

import dataclasses
import random

from agent import FLUSH_GLOBAL, LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Refused
from guest import gid

EVERYTHING_REMOTE = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
EVERYTHING = LOCAL_WRITE | EVERYTHING_REMOTE | MW_BIND
REGION_BYTES = 2 << 20
DEPTH = 64
QKEY = 0x11111111
# enum ibv_qp_state
RESET, INIT, RTR, RTS = 0, 1, 2, 3
WINDOWS = 16
BIND_MS = 5000
SERVICES = ("rc", "uc", "ud")
# Who leaves these few bytes around a buffer alone is known by their pattern.
BACKGROUND = 1
MARGIN = 64


@dataclasses.dataclass
class Region:
    number: int
    address: int
    lkey: int
    key: int

    def sges(self, offset, length, key=None):
        """The bytes there, as a request names them."""
        return f"sges={self.address + offset}:{length}:{self.lkey if key is None else key}"


class End:
    """A device of an agent with two regions and a queue pair of each service."""

    def __init__(self, agent, device, address):
        self.agent, self.device, self.address = agent, device, address
        found = agent.ask(f"open dev={device} gid={gid(address)}")[0]
        self.name = found["device"]
        self.can = {op for op in ("atomic_write", "flush") if found[op] == "1"}
        access = EVERYTHING | (FLUSH_GLOBAL if "flush" in self.can else 0)
        self.regions = 0
        self.source, self.sink = self.region(access), self.region(access)
        # Each has the completion queue of its number.
        self.queues = {service: device * 8 + i for i, service in enumerate(SERVICES)}
        self.numbers, self.offers = {}, set()
        for service in SERVICES:
            self._make_queue(service)
        self._windows("mw")

    def renew_windows(self):
        """Unbound windows instead of those that there are."""
        self._windows("unmw")
        self._windows("mw")

    def bind(self, queue, windows, offsets, length, access):
        """Bind windows to the sink, where `offsets` say; their keys."""
        what = f"post qp={queue} op=bind mr={self.sink.number} access={access}"
        places = zip(windows, offsets)
        posts = [f"{what} mw={window} {self.sink.sges(offset, length)}" for window, offset in places]
        bound = self.agent.ask(*posts)
        statuses = [completion.status for completion in self.agent.wait(queue, len(posts), BIND_MS)]
        if statuses != [0] * len(posts):
            raise Refused("bind", f"error 0 completed with {statuses}")
        return [int(answer["rkey"]) for answer in bound]

    def _windows(self, command):
        numbers = range(self.device * WINDOWS, (self.device + 1) * WINDOWS)
        self.agent.ask(*[f"{command} mw={number} dev={self.device}" for number in numbers])

    def renew(self, service):
        """Another queue pair instead of the one of this service."""
        self.agent.ask(f"destroy qp={self.queues[service]}", f"uncq cq={self.queues[service]}")
        self._make_queue(service)

    def _make_queue(self, service):
        number, device = self.queues[service], f"dev={self.device}"
        queue = f"qp qp={number} cq={number} {device} type={service} depth={DEPTH} receives={DEPTH}"
        made = self.agent.ask(f"cq cq={number} {device} depth={2 * DEPTH}", queue)[1]
        self.numbers[service] = int(made["qpn"])
        # What the library has an interface for, which may be less than the kernel can.
        self.offers |= {op for op in ("atomic_write", "flush") if made[op] == "1"}

    def region(self, access, size=REGION_BYTES, device=None):
        """More memory, registered."""
        number, self.regions = self.device * 16 + self.regions, self.regions + 1
        device = self.device if device is None else device
        made = self.agent.ask(f"mr mr={number} dev={device} size={size} access={access}")[0]
        return Region(number, int(made["addr"]), int(made["lkey"]), int(made["rkey"]))


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
                end.agent.send(f"modify qp={end.queues[service]} state={RESET}")
            for end in (self.near, self.far):
                end.agent.take(f"modify {service} to RESET")
                # What is still there of earlier cells must not be taken for completions of the next.
                end.agent.wait(end.queues[service], 2 * DEPTH, 0)
                end.agent.send(*self._modify(end, service, first, also.get(end, "")))
            for end in (self.near, self.far):
                end.agent.take(*[f"modify {service} to {state}" for state in ("INIT", "RTR", "RTS")])

    def _modify(self, end, service, first, also):
        other = self.other(end)
        access = REMOTE_WRITE if service == "uc" else EVERYTHING_REMOTE | (FLUSH_GLOBAL if "flush" in end.can else 0)
        attributes = (
            f"gid={gid(other.address)} dest={other.numbers[service]} {also} mtu={self.mtu} sq_psn={first[end]} "
            f"rq_psn={first[other]} {self.options[end]} qkey={QKEY} access={access} rd=16 dest_rd=16 rnr_timer=1"
        )
        return [f"modify qp={end.queues[service]} state={state} begin=1 {attributes}" for state in (INIT, RTR, RTS)]
