"""One cell: messages from one end to the other, and every check of what came of them."""

from agent import REMOTE_WRITE
from ends import BACKGROUND, MARGIN, QKEY, WINDOWS

# enum ibv_wc_opcode
COMPLETES_AS = {
    "send": 0, "send_imm": 0, "send_inv": 0, "write": 1, "write_imm": 1, "read": 2, "cas": 3, "faa": 4,
    "flush": 8, "atomic_write": 9,
}  # fmt: skip
RECEIVED, RECEIVED_WRITE = 128, 129
WITH_IMM = 2
GRH = 40
WORD = 8
# So many messages of a reliable connection are on the wire behind whatever the fault layer held back before them.
BARRIER = 4
# rxe stops while its interface has more packets than this of a queue pair, and may miss that they have left: rxe_requester
# sets need_req_skb after it has counted them, and rxe_skb_tx_dtor looks at that only when one leaves. RC goes on by its
# timer, UC with the next request.
RXE_STOPS_AT = 64
NEXT_REQUEST = 98


class Wrong(Exception):
    """What came of a cell is not what should have."""


class Exchange:
    """The messages of a cell from `start` to the other end of `pair`; run() returns or raises Wrong."""

    def __init__(self, pair, start, cell, seed):
        self.pair, self.cell, self.seed = pair, cell, seed
        self.start, self.goal = start, pair.other(start)
        self.out, self.into = start.queues[cell.service], self.goal.queues[cell.service]
        head = GRH if cell.service == "ud" else 0
        stride = (cell.size + head + 2 * MARGIN + WORD - 1) // WORD * WORD
        if cell.op not in ("cas", "faa", "atomic_write"):
            stride += cell.size % 3  # buffers need no alignment
        self.offsets = [MARGIN + i * stride for i in range(cell.messages)]
        self.head = head

    def run(self):
        if self.cell.op in ("cas", "faa"):
            self._atomics()
        elif self.cell.op == "atomic_write":
            self._atomic_writes()
        elif self.cell.op == "read":
            self._reads()
        elif self.cell.service == "rc" or not self.cell.lossy:
            self._all_arrive()
        else:
            self._some_arrive()

    # SEND and WRITE of every kind

    def _all_arrive(self):
        cell, goal = self.cell, self.goal
        keys = self._prepare()
        tail = cell.op == "write" and cell.service == "uc"  # tells that the data before it is there
        if tail:
            goal.agent.send(f"recv qp={self.into} wr=99 {goal.sink.sges(MARGIN, 0)}")
        self._answered(tail=tail)
        self._post(keys)
        if tail:
            self._ask(self.start, f"post qp={self.out} op=send wr=99 {self.start.source.sges(MARGIN, 0)}")
        flushes = cell.op == "flush"
        sent = self._sent(cell.messages * (1 + flushes) + tail)
        received = []
        if self._receives() or tail:
            received = goal.agent.wait(self.into, 1 if tail else cell.messages)
        self._check_sent(sent, tail)
        if tail:
            _expect([(r.id, r.status) for r in received], [(99, 0)], "completions of the last message")
        else:
            self._check_received(received, keys)
        self._ask(goal, *(self._check(goal.sink, off + self.head, i) for i, off in enumerate(self.offsets)))

    def _prepare(self):
        """Fill the source, frame the sink, post receives, bind windows to be invalidated; their keys."""
        cell, goal = self.cell, self.goal
        keys = []
        if cell.op == "send_inv":
            windows = range(goal.device * WINDOWS, (goal.device + 1) * WINDOWS)
            keys = goal.bind(self.into, windows, self.offsets, 8, REMOTE_WRITE)
        self.start.agent.send(
            *(
                f"fill mr={self.start.source.number} off={off} len={cell.size} seed={self.seed + i} back={BACKGROUND}"
                for i, off in enumerate(self.offsets)
            )
        )
        into = cell.size + self.head
        whole = cell.lossy and cell.service == "uc" and "write" in cell.op
        frame = "fill" if whole else "frame"
        goal.agent.send(
            *(f"{frame} mr={goal.sink.number} off={off} len={into} back={BACKGROUND}" for off in self.offsets)
        )
        if self._receives():
            length = 0 if cell.op == "write_imm" else into
            goal.agent.send(
                *(
                    f"recv qp={self.into} wr={i} {goal.sink.sges(off, length)}"
                    for i, off in enumerate(self.offsets)
                )
            )
        return keys

    def _answered(self, tail=False):
        """Take the answers to _prepare()."""
        count = len(self.offsets)
        self.start.agent.take(*["fill"] * count)
        self.goal.agent.take(*["frame"] * count, *["recv"] * (count * self._receives() + tail))

    def _post(self, keys=()):
        cell, goal = self.cell, self.goal
        posts = []
        for i, off in enumerate(self.offsets):
            local = f"wr={i} {self.start.source.sges(off, cell.size)}"
            op = "write" if cell.op == "flush" else cell.op
            post = f"post qp={self.out} op={op} {local} imm={self._imm(i)}"
            if cell.service == "ud":
                post += f" dest={goal.numbers['ud']} qkey={QKEY}"
            elif "write" in op:
                post += f" va={goal.sink.address + off} rkey={goal.sink.key}"
            elif op == "send_inv":
                post += f" rkey={keys[i]}"
            posts.append(post)
            if cell.op == "flush":
                remote = f"va={goal.sink.address + off} rkey={goal.sink.key} length={cell.size}"
                posts.append(f"post qp={self.out} op=flush {local} {remote}")
        self._ask(self.start, *posts)

    def _receives(self):
        return "send" in self.cell.op or self.cell.op == "write_imm"

    def _imm(self, index):
        return (self.seed + index) * 2654435761 % (1 << 32)

    def _sent(self, count):
        """The completions of so many requests."""
        cell, agent = self.cell, self.start.agent
        sent = agent.wait(self.out, count)
        packets = cell.messages * cell.size // cell.mtu
        if len(sent) < count and cell.service == "uc" and not cell.near_starts and packets > RXE_STOPS_AT:
            into = f"va={self.goal.sink.address + MARGIN} rkey={self.goal.sink.key}"
            self._ask(self.start, f"post qp={self.out} op=write wr={NEXT_REQUEST} {self.start.source.sges(MARGIN, 0)} {into}")
            *sent, last = sent + agent.wait(self.out, count - len(sent) + 1)
            _expect([last.id], [NEXT_REQUEST], "completion of the next request")
            print(f"{cell}: rxe had stopped, and went on with the next request")
        return sent

    def _check_sent(self, sent, tail=False):
        opcode = COMPLETES_AS[self.cell.op]
        expected = [(i, 0, opcode) for i in range(self.cell.messages)]
        if self.cell.op == "flush":
            expected = [(i, 0, code) for i in range(self.cell.messages) for code in (COMPLETES_AS["write"], opcode)]
        _expect([(c.id, c.status, c.opcode) for c in sent], expected + [(99, 0, 0)] * tail, "send completions")

    def _check_received(self, received, keys):
        if not self._receives():
            return
        cell = self.cell
        opcode = RECEIVED_WRITE if cell.op == "write_imm" else RECEIVED
        expected = [(i, 0, opcode, cell.size + self.head) for i in range(cell.messages)]
        _expect([(c.id, c.status, c.opcode, c.length) for c in received], expected, "receive completions")
        if "imm" in cell.op:
            _expect([c.flags & WITH_IMM for c in received], [WITH_IMM] * cell.messages, "immediate data flags")
            _expect([c.value for c in received], [self._imm(i) for i in range(cell.messages)], "immediate data")
        if cell.op == "send_inv":
            _expect([c.value for c in received], keys, "invalidated keys")
        if cell.service == "ud":
            _expect([c.source for c in received], [self.start.numbers["ud"]] * cell.messages, "source QPNs")

    # Unreliable services on a wire that loses packets: what arrives is whole and comes once. In which order whole
    # messages come is the wire's affair: a FIRST or ONLY packet is taken whatever its PSN (IBTA 9.8.2.2.3).

    def _some_arrive(self):
        self._prepare()
        self._answered()
        self._post()
        self._check_sent(self._sent(self.cell.messages))
        self._barrier()
        received = self.goal.agent.wait(self.into, self.cell.messages, 0)
        try:
            if "write" in self.cell.op:
                self._check_written(received)
            else:
                self._check_some(received)
        finally:
            self.pair.connect(services=[self.cell.service])  # what was not received does not matter any more

    def _barrier(self):
        start, goal = self.start, self.goal
        out, into = start.queues["rc"], goal.queues["rc"]
        self._ask(goal, *[f"recv qp={into} wr={i} {goal.sink.sges(MARGIN, 0)}" for i in range(BARRIER)])
        local = start.source.sges(MARGIN, 0)
        self._ask(start, *[f"post qp={out} op=send wr={i} {local}" for i in range(BARRIER)])
        expected = [(i, 0) for i in range(BARRIER)]
        _expect([(c.id, c.status) for c in start.agent.wait(out, BARRIER)], expected, "completions of the barrier")
        _expect([(c.id, c.status) for c in goal.agent.wait(into, BARRIER)], expected, "receives of the barrier")

    def _check_some(self, received):
        cell, goal = self.cell, self.goal
        expected = [(i, 0, RECEIVED, cell.size + self.head) for i in range(len(received))]
        _expect([(c.id, c.status, c.opcode, c.length) for c in received], expected, "receive completions")
        imms = [self._imm(i) for i in range(cell.messages)]
        indices = []
        if cell.size >= WORD:
            asked = [
                f"which mr={goal.sink.number} off={self.offsets[c.id] + self.head} len={cell.size} seed={self.seed} "
                f"count={cell.messages}"
                for c in received
            ]
            indices = [int(answer["index"]) for answer in self._ask(goal, *asked)]
        if "imm" in cell.op:
            from_imm = [imms.index(c.value) if c.value in imms else c.value for c in received]
            _expect(from_imm, indices or from_imm, "messages by their immediate data")
            indices = from_imm
        if len(set(indices)) != len(indices):
            raise Wrong(f"messages arrived twice: {indices}")

    def _check_written(self, received):
        cell, goal = self.cell, self.goal
        asked = [
            f"prefix mr={goal.sink.number} off={off} len={cell.size} seed={self.seed + i} back={BACKGROUND} "
            f"mtu={self.pair.mtu}"
            for i, off in enumerate(self.offsets)
        ]
        there = [int(answer["bytes"]) for answer in self._ask(goal, *asked)]
        if cell.op == "write_imm":
            imms = [self._imm(i) for i in range(cell.messages)]
            _expect([(c.status, c.opcode, c.length) for c in received], [(0, RECEIVED_WRITE, cell.size)] * len(received),
                    "receive completions")  # fmt: skip
            for completion in received:
                if completion.value not in imms:
                    raise Wrong(f"immediate data that nobody sent: {completion.value}")
                if there[imms.index(completion.value)] != cell.size:
                    raise Wrong("a WRITE with immediate completed before its data was there")

    # READ and atomics

    def _reads(self):
        cell, start, goal = self.cell, self.start, self.goal
        goal.agent.send(
            *(
                f"fill mr={goal.source.number} off={off} len={cell.size} seed={self.seed + i} back={BACKGROUND}"
                for i, off in enumerate(self.offsets)
            )
        )
        self._ask(start, *(f"frame mr={start.sink.number} off={off} len={cell.size} back={BACKGROUND}" for off in self.offsets))
        goal.agent.take(*["fill"] * cell.messages)
        posts = [
            f"post qp={self.out} op=read wr={i} {start.sink.sges(off, cell.size)} "
            f"va={goal.source.address + off} rkey={goal.source.key}"
            for i, off in enumerate(self.offsets)
        ]
        self._ask(start, *posts)
        self._check_sent(start.agent.wait(self.out, cell.messages))
        self._ask(start, *(self._check(start.sink, off, i) for i, off in enumerate(self.offsets)))

    def _atomics(self):
        """Each builds on the one before, so that one executed twice or not at all shows."""
        cell, start, goal = self.cell, self.start, self.goal
        values = [self.seed * 0x1234567 + i * i for i in range(cell.messages + 1)]
        at = self.offsets[0]
        self._ask(goal, f"word mr={goal.sink.number} off={at} set={values[0]}")
        posts = []
        for i, off in enumerate(self.offsets):
            what = f"compare={values[i]} swap={values[i + 1]}" if cell.op == "cas" else f"add={values[i + 1] - values[i]}"
            posts.append(
                f"post qp={self.out} op={cell.op} wr={i} {start.sink.sges(off, WORD)} {what} "
                f"va={goal.sink.address + at} rkey={goal.sink.key}"
            )
        self._ask(start, *(f"word mr={start.sink.number} off={off} set=0" for off in self.offsets))
        self._ask(start, *posts)
        self._check_sent(start.agent.wait(self.out, cell.messages))
        got = self._ask(start, *(f"word mr={start.sink.number} off={off}" for off in self.offsets))
        _expect([int(answer["value"]) for answer in got], values[:-1], "values before the operations")
        after = self._ask(goal, f"word mr={goal.sink.number} off={at}")
        _expect([int(after[0]["value"])], values[-1:], "value after the operations")

    def _atomic_writes(self):
        start, goal = self.start, self.goal
        values = [self.seed * 0x1234567 + i for i in range(self.cell.messages)]
        self._ask(goal, *(f"word mr={goal.sink.number} off={off} set=0" for off in self.offsets))
        sets = zip(self.offsets, values)
        self._ask(start, *(f"word mr={start.source.number} off={off} set={value}" for off, value in sets))
        posts = [
            f"post qp={self.out} op=atomic_write wr={i} {start.source.sges(off, WORD)} "
            f"va={goal.sink.address + off} rkey={goal.sink.key}"
            for i, off in enumerate(self.offsets)
        ]
        self._ask(start, *posts)
        self._check_sent(start.agent.wait(self.out, len(values)))
        got = self._ask(goal, *(f"word mr={goal.sink.number} off={off}" for off in self.offsets))
        _expect([int(answer["value"]) for answer in got], values, "values written")

    def _check(self, region, offset, index):
        what = f"off={offset} len={self.cell.size} seed={self.seed + index} back={BACKGROUND} head={self.head}"
        return f"check mr={region.number} {what}"

    def _ask(self, end, *commands):
        return end.agent.ask(*commands)


def _expect(got, expected, what):
    if got == expected:
        return
    at = next((i for i, (g, e) in enumerate(zip(got, expected)) if g != e), min(len(got), len(expected)))
    shown = [f"{values[at]}" if at < len(values) else "nothing" for values in (got, expected)]
    raise Wrong(f"{what}: number {at + 1} of {len(expected)} is {shown[0]} instead of {shown[1]}")
