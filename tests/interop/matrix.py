"""The matrix: which cells there are, which of them the peer cannot do, and running them."""

import dataclasses
import time
import zlib

from agent import Lost, Refused
from ends import End, Pair
from exchange import Exchange, Wrong

ROWS = [
    ("rc", "send"), ("rc", "send_imm"), ("rc", "send_inv"), ("rc", "write"), ("rc", "write_imm"), ("rc", "read"),
    ("rc", "cas"), ("rc", "faa"), ("rc", "atomic_write"), ("rc", "flush"),
    ("uc", "send"), ("uc", "send_imm"), ("uc", "write"), ("uc", "write_imm"),
    ("ud", "send"), ("ud", "send_imm"),
]  # fmt: skip
MTUS = (1024, 2048, 4096)
LINKS = ("udp", "xdp")
FAMILIES = (4, 6)
# 1 % of the packets lost and 1 % overtaken by the next two, in either direction.
FAULTS = "seed={seed},drop=1%,reorder=1%,drop=1%:dir=rx,reorder=1%:dir=rx"

# How many messages of a cell are on their way at once.
BURST, LOSSY_BURST = 4, 16
# After so many cells in a row for which the ends could not even be set up, the rest of a column is not tried.
MAX_UNREADY = 3


@dataclasses.dataclass(frozen=True)
class Column:
    """One way to set up the two ends; every row runs in it, from either side."""

    link: str
    lossy: bool
    family: int

    def __str__(self):
        return f"{self.link}, {'lossy' if self.lossy else 'clean'}, IPv{self.family}"


@dataclasses.dataclass(frozen=True)
class Cell:
    column: Column
    service: str
    op: str
    size: int
    mtu: int
    near_starts: bool

    def __str__(self):
        who = "we initiate" if self.near_starts else "they initiate"
        op = self.op.upper().replace("_", " ")
        return f"{self.service.upper()} {op}, {self.size} bytes, MTU {self.mtu}, {self.column}, {who}"

    @property
    def lossy(self):
        return self.column.lossy

    @property
    def messages(self):
        """As many as can be on their way without the cell taking long."""
        if self.size > 1 << 16:
            return 1
        if self.size > 4 * 4096:
            return 2
        return LOSSY_BURST if self.lossy else BURST


@dataclasses.dataclass
class Result:
    cell: Cell
    outcome: str  # "pass", "fail" or "no", which is: the peer does not support it
    why: str = ""
    begun: float = 0.0
    ended: float = 0.0


def columns(links=LINKS):
    return [Column(link, lossy, family) for link in links for lossy in (False, True) for family in FAMILIES]


def cells(column, core=False):
    """The cells of a column, in the order they run. The core has one MTU per family and fewer sizes."""
    mtus = MTUS if not core else (1024,) if column.family == 4 else (4096,)
    for mtu in mtus:
        for service, op in ROWS:
            for size in _sizes(service, op, mtu, core):
                for near_starts in (True, False):
                    yield Cell(column, service, op, size, mtu, near_starts)


def _sizes(service, op, mtu, core):
    if op in ("cas", "faa", "atomic_write"):
        return (8,)
    if op == "flush":
        return (8, 1 << 16)
    if service == "ud":
        return (0, 1, mtu - 1, mtu) if not core else (1, mtu)
    if core:
        return (0, 1, mtu + 1, 1 << 16)
    return (0, 1, mtu - 1, mtu, mtu + 1, 3 * mtu + 5, 1 << 16, 1 << 20)


def unsupported(cell, near, far):
    """Why the peer cannot do this cell, or None."""
    if cell.op in ("atomic_write", "flush"):
        name = cell.op.upper().replace("_", " ")
        if cell.op not in far.can:
            return f"the peer's kernel has no {name}"
        if not cell.near_starts and cell.op not in far.offers:
            return f"the peer's libibverbs has no {name}"
    if cell.lossy and cell.op == "flush":
        return "rxe never answers a repeated FLUSH, and repeats its own with address 0"
    if cell.lossy and cell.near_starts and cell.op == "read" and cell.size == 0:
        return "rxe drops a repeated READ of no bytes"
    if cell.lossy and not cell.near_starts and cell.op == "atomic_write":
        return "rxe repeats an ATOMIC WRITE with address 0"
    return None


class Run:
    """Runs the cells of one column. `start_near(n)` starts our agent, for the n-th time."""

    def __init__(self, column, start_near, far):
        self.column, self.start_near, self.far = column, start_near, far
        self.agent, self.pair = None, None
        self.starts, self.unready = 0, 0

    @property
    def given_up(self):
        """Whether an end seems to be beyond repair; cells that were not tried are failures without a time."""
        return self.unready >= MAX_UNREADY

    def __call__(self, chosen):
        """Yield a Result for each."""
        try:
            for number, cell in enumerate(chosen):
                yield Result(cell, "fail", "not tried") if self.given_up else self._one(cell, 1000 + 64 * number)
        finally:
            if self.agent:
                self.agent.close()

    def _one(self, cell, seed):
        begun = time.time()
        self.unready += 1
        try:
            pair = self._pair(cell.mtu)
            self.unready = 0
            if why := unsupported(cell, pair.near, pair.far):
                return Result(cell, "no", why)
            Exchange(pair, pair.near if cell.near_starts else pair.far, cell, seed).run()
            return Result(cell, "pass", "", begun, time.time())
        except (Wrong, Refused) as error:
            failed = Result(cell, "fail", str(error), begun, time.time())
            self._recover()
        except Lost as error:
            failed = Result(cell, "fail", str(error), begun, time.time())
            self._forget()
        return failed

    def _pair(self, mtu):
        """The two ends, connected for this MTU; made anew when one was lost."""
        if not self.pair:
            self.agent = self.start_near(self.starts)
            self.starts += 1
            near, far = End(self.agent, 0, self.far.near_address(self.column.family)), self.far.end(self.column.family)
            # The attribute timer is the last resort: ours resends earlier than that, rxe has nothing else. On a clean
            # wire half a second, as all it could do there is to repeat what a busy machine has yet to answer.
            options = ("timeout=16", "timeout=12" if self.column.lossy else "timeout=17")
            self.pair = Pair(near, far, options, seed=zlib.crc32(str(self.column).encode()))
            self.pair.connect(mtu)
        if mtu != self.pair.mtu:
            self.pair.connect(mtu)
        return self.pair

    def _recover(self):
        try:
            self.pair.connect()
            for end in (self.pair.near, self.pair.far):
                end.renew_windows()
        except (Refused, Lost):
            self._forget()

    def _forget(self):
        self.far.restart()
        if self.agent:
            self.agent.kill()
        self.agent = self.pair = None
