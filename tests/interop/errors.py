"""What goes wrong between the two ends: completion statuses, states, and NAKs on the wire."""

import collections
import dataclasses

from agent import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Refused
from ends import EVERYTHING, MARGIN, QKEY, REGION_BYTES, WINDOWS
from guest import gid

# enum ibv_wc_status
OK, LEN, QP_OP, PROT, FLUSHED, LOC_ACCESS = 0, 1, 2, 4, 5, 8
REM_INV, REM_ACCESS, REM_OP, RETRY, RNR = 9, 10, 11, 12, 13
NAMES = {
    OK: "SUCCESS", LEN: "LOC_LEN_ERR", QP_OP: "LOC_QP_OP_ERR", PROT: "LOC_PROT_ERR", FLUSHED: "WR_FLUSH_ERR",
    LOC_ACCESS: "LOC_ACCESS_ERR",
    REM_INV: "REM_INV_REQ_ERR", REM_ACCESS: "REM_ACCESS_ERR", REM_OP: "REM_OP_ERR", RETRY: "RETRY_EXC_ERR",
    RNR: "RNR_RETRY_EXC_ERR",
}  # fmt: skip
# enum ibv_qp_state
RTS, ERR = 3, 6
STATES = {0: "RESET", 1: "INIT", 2: "RTR", RTS: "RTS", 4: "SQD", 5: "SQE", ERR: "ERR"}
# AETH syndromes
RNR_NAK, SEQUENCE, INVALID, ACCESS, OPERATION = 0x20, 0x60, 0x61, 0x62, 0x63
RNR_CODE = 5  # 0.06 ms
EINVAL = 22

LENGTH = 64
SOON = "timeout=10 retry=2"  # gives up after 3 times 4 ms
QUIET = 0.03  # seconds without a packet after which a case is over


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What can be seen of a case from outside."""

    sent: tuple = ()  # statuses of the initiator's completions
    naks: tuple = ()  # syndromes of the target's NAKs, each as often as it came with another before it
    received: tuple = ()  # statuses of the target's completions
    states: tuple = ()  # of the initiator's and the target's queue pair
    refused: int = 0  # errno of posting

    def __str__(self):
        if self.refused:
            return f"post refused: errno {self.refused}"
        naks = ", ".join(f"{nak:#04x}" for nak in self.naks) or "no NAK"
        got = " / " + ", ".join(NAMES.get(s, str(s)) for s in self.received) if self.received else ""
        sent = ", ".join(NAMES.get(s, str(s)) for s in self.sent) or "nothing"
        return f"{sent}{got}; {naks}; {'/'.join(STATES[s] for s in self.states)}"


@dataclasses.dataclass(frozen=True)
class Case:
    """Something wrong, what should come of it, and what comes instead where a side departs from that.

    `instead` has outcomes by who causes them: "SoftRNIC asks", "rxe answers", "rxe 6.1 answers" and the like. A text
    there says why the case cannot be tried.
    """

    name: str
    run: object
    expected: Outcome
    instead: dict = dataclasses.field(default_factory=dict)
    needs: str = ""

    def expectation(self, kernel, asks, answers):
        """The outcome to expect of a pair of "rxe" or "SoftRNIC"."""
        for who in (f"{answers} {kernel} answers", f"{answers} answers", f"{asks} {kernel} asks", f"{asks} asks"):
            if who in self.instead:
                return self.instead[who]
        return self.expected


class Attempt:
    """A case under way between two ends; its methods are what cases are written in."""

    def __init__(self, pair, start, wire):
        self.pair, self.start, self.goal, self.wire = pair, start, pair.other(start), wire
        self.windows, self.packets = [], []

    def connect(self, start="", goal="", service="rc"):
        """Connect new queue pairs with these options of either end: what went wrong with old ones is forgotten."""
        for end in (self.start, self.goal):
            end.renew(service)
        # With 7 retries rxe tries for ever.
        start = f"{start} retry=6 rnr_retry=2 timeout=16"
        goal = f"{goal} rnr_timer={RNR_CODE}"
        self.pair.connect(mtu=1024, services=[service], also={self.start: start, self.goal: goal})
        self.out, self.into = self.start.queues[service], self.goal.queues[service]

    def receive(self, length=LENGTH, key=None, count=1):
        """Post receives at the target."""
        sink = self.goal.sink.sges(MARGIN, length, key)
        self.goal.agent.ask(*[f"recv qp={self.into} wr={i} {sink}" for i in range(count)])

    def post(self, op, length=LENGTH, region=None, at=MARGIN, key=None, address=None, local_key=None, also=""):
        """Post at the initiator, towards a region of the target; the errno."""
        region = region or self.goal.sink
        address = region.address + at if address is None else address
        key = region.key if key is None else key
        into_sink = op in ("read", "cas", "faa")
        local = (self.start.sink if into_sink else self.start.source).sges(MARGIN, length, local_key)
        remote = f"va={address} rkey={key}"
        also += f" length={length}" if op == "flush" else ""
        try:
            self.start.agent.ask(f"post qp={self.out} op={op} {local} {remote} {also}")
        except Refused as refused:
            return refused.errno
        return 0

    def outcome(self, sends=1, receives=0, service="rc", received_in=300):
        """Wait for completions and see what came of it."""
        sent = self.start.agent.wait(self.out, sends)
        received = self.goal.agent.wait(self.into, receives, received_in) if receives else []
        packets = self.wire.take_until_quiet(QUIET)
        naks = []
        for packet in packets:
            from_target = packet.source == self.goal.address and packet.target == self.start.address
            if from_target and packet.syndrome is not None and packet.syndrome >= RNR_NAK:
                if not naks or naks[-1] != packet.syndrome:
                    naks.append(packet.syndrome)
        self.packets = packets
        states = []
        for end, queue in ((self.start, self.out), (self.goal, self.into)):
            states.append(int(end.agent.ask(f"state qp={queue}")[0]["state"]))
        statuses = [tuple(c.status for c in completions) for completions in (sent, received)]
        return Outcome(statuses[0], tuple(naks), statuses[1], tuple(states))

    def transmissions(self):
        """How often the request was sent that was sent most often."""
        requests = collections.Counter(
            (packet.opcode, packet.psn) for packet in self.packets if packet.source == self.start.address
        )
        return max(requests.values(), default=0)

    def one(self, op, start="", goal="", receives=0, recv_length=LENGTH, recv_key=None, **post):
        """The usual case: connect, perhaps receive, post one request, look."""
        self.connect(start, goal)
        if receives:
            self.receive(recv_length, recv_key, receives)
        self.wire.take()
        if errno := self.post(op, **post):
            return Outcome(refused=errno)
        return self.outcome(receives=receives)

    def limited(self, access):
        """A region of the target with this access only."""
        known = self.goal.__dict__.setdefault("limited", {})
        if access not in known:
            known[access] = self.goal.region(access, 4096)
        return known[access]

    def foreign(self):
        """A region of the target in a protection domain that is not that of its queue pairs."""
        known = self.goal.__dict__.setdefault("limited", {})
        if "foreign" not in known:
            device = self.goal.device + 4
            self.goal.agent.ask(f"open dev={device} gid={gid(self.goal.address)}")
            known["foreign"] = self.goal.region(EVERYTHING, 4096, device)
        return known["foreign"]

    def window(self, access=REMOTE_WRITE, offset=MARGIN, length=LENGTH):
        """Bind a window of the target; its key."""
        number = 2 * WINDOWS + 8 * self.goal.device + len(self.windows)
        self.windows.append(number)
        self.goal.agent.ask(f"mw mw={number} dev={self.goal.device}")
        return self.goal.bind(self.into, [number], [offset], length, access)[0]

    def free_windows(self):
        """rxe waits for ever when it is to destroy a queue pair that a window is bound on."""
        for number in self.windows:
            self.goal.agent.ask(f"unmw mw={number}")
        self.windows = []


# ---- cases that take more than one request ----


def deregistered(x):
    x.connect()
    region = x.goal.region(EVERYTHING, 4096)
    x.goal.agent.ask(f"dereg mr={region.number}")
    x.wire.take()
    x.post("write", region=region)
    return x.outcome()


def behind_the_failed_one(x):
    x.connect()
    x.wire.take()
    x.post("write")
    x.post("write", key=x.goal.sink.key ^ 0x5500)
    x.post("write")
    x.post("read")
    return x.outcome(sends=4)


def not_ready(x, op):
    x.connect(start="timeout=18")  # a second, so that it is the RNR NAKs that cause repetition
    x.wire.take()
    x.post(op)
    outcome = x.outcome()
    if x.transmissions() < 3:  # once and two retries; more when it is resent early, before the first NAK comes
        raise Refused(op, f"error 0 sent {x.transmissions()} times with rnr_retry 2")
    return outcome


def two_not_ready(x):
    """What the target says to the second of two, while the first waits for a receive."""
    x.connect(start="timeout=18")
    x.wire.take()
    local = x.start.source.sges(MARGIN, LENGTH)
    x.start.agent.ask(*[f"post qp={x.out} op=send wr={i} {local}" for i in range(2)])
    outcome = x.outcome(sends=2)
    return dataclasses.replace(outcome, naks=tuple(sorted(set(outcome.naks))))


def destroyed(x):
    x.connect(start=SOON)
    x.goal.agent.ask(f"modify qp={x.into} state={ERR}")
    x.wire.take()
    x.post("write")
    return x.outcome()


def old_window(x):
    x.connect()
    key = x.window()
    x.receive()
    x.post("send_inv", key=key)
    x.start.agent.wait(x.out, 1)
    x.goal.agent.wait(x.into, 1)
    x.wire.take()
    x.post("write", key=key)
    return x.outcome()


def outside_the_window(x):
    x.connect()
    key = x.window(length=LENGTH // 2)
    x.wire.take()
    x.post("write", key=key)
    return x.outcome()


def foreign_window(x):
    """A type 2 window belongs to the queue pair that it was bound on."""
    x.connect(service="uc")
    key = x.window()
    x.connect()
    x.wire.take()
    x.post("write", key=key)
    return x.outcome()


def datagram(x, also="", length=LENGTH):
    x.connect(service="ud")
    x.receive(length + 40)
    x.wire.take()
    x.post("send", also=f"dest={x.goal.numbers['ud']} {also} qkey={QKEY}")
    return x.outcome(receives=1)


def unreliable(x, receives, **post):
    """One request on UC that fails, and one behind it that has all it needs."""
    x.connect(service="uc")
    x.wire.take()
    x.post(**post)
    sent = x.start.agent.wait(x.out, 1)
    x.receive(count=receives)
    x.post("send")
    outcome = x.outcome(receives=1)
    return dataclasses.replace(outcome, sent=tuple(c.status for c in sent) + outcome.sent)


# ---- what usually comes of them ----


def nak(syndrome, status, received=()):
    """The target refuses; both queue pairs are in error."""
    return Outcome((status,), (syndrome,), received, (ERR, ERR))


NO_ACCESS, NOT_VALID = nak(ACCESS, REM_ACCESS), nak(INVALID, REM_INV)
FINE = Outcome((OK,), (), (), (RTS, RTS))
RNR_EXHAUSTED = Outcome((RNR,), (RNR_NAK + RNR_CODE,), (), (ERR, RTS))
LOCAL_PROTECTION = Outcome((PROT,), (), (), (ERR, RTS))
TOO_LONG = nak(INVALID, REM_INV, (LEN,))
REFUSED = Outcome(refused=EINVAL)
# The acknowledgement stands for the data, which arrived.
INVALIDATE_FAILED = Outcome((OK,), (), (REM_INV,), (RTS, ERR))

NO_WRITE, NO_READ = LOCAL_WRITE | REMOTE_READ, LOCAL_WRITE | REMOTE_WRITE


def unknown(x):
    return x.goal.sink.key ^ 0x5500


CASES = [
    # keys and bounds
    Case("WRITE, unknown R_Key", lambda x: x.one("write", key=unknown(x)), NO_ACCESS),
    Case("READ, unknown R_Key", lambda x: x.one("read", key=unknown(x)), NO_ACCESS),
    Case("FAA, unknown R_Key", lambda x: x.one("faa", length=8, key=unknown(x)), NO_ACCESS),
    Case("WRITE IMM, unknown R_Key", lambda x: x.one("write_imm", receives=1, key=unknown(x)),
         nak(ACCESS, REM_ACCESS, (LOC_ACCESS,)), {"rxe answers": nak(ACCESS, REM_ACCESS, (REM_ACCESS,))}),
    Case("WRITE, region deregistered", deregistered, NO_ACCESS),
    Case("WRITE, region of another PD", lambda x: x.one("write", region=x.foreign()), NO_ACCESS),
    Case("WRITE, region without REMOTE_WRITE", lambda x: x.one("write", region=x.limited(NO_WRITE)), NO_ACCESS),
    Case("READ, region without REMOTE_READ", lambda x: x.one("read", region=x.limited(NO_READ)), NO_ACCESS),
    Case("CAS, region without REMOTE_ATOMIC", lambda x: x.one("cas", length=8, region=x.limited(NO_READ)), NO_ACCESS),
    Case("WRITE, past the end", lambda x: x.one("write", at=REGION_BYTES - LENGTH + 1), NO_ACCESS),
    Case("READ, before the start", lambda x: x.one("read", at=-1), NO_ACCESS),
    Case("WRITE, address wraps", lambda x: x.one("write", address=2**64 - LENGTH // 2), NO_ACCESS),
    Case("WRITE of 3 packets, past the end", lambda x: x.one("write", length=3000, at=REGION_BYTES - 2500), NO_ACCESS),
    Case("WRITE of 0 bytes, unknown R_Key", lambda x: x.one("write", length=0, key=1), FINE),
    Case("READ of 0 bytes, unknown R_Key", lambda x: x.one("read", length=0, key=1), FINE,
         {"rxe 6.1 answers": "answers it, but looks up the key when it is repeated, and the queue pair is spoilt"}),
    Case("ATOMIC WRITE, unknown R_Key", lambda x: x.one("atomic_write", length=8, key=1), NO_ACCESS,
         needs="atomic_write"),
    Case("FLUSH, unknown R_Key", lambda x: x.one("flush", key=1), NO_ACCESS, needs="flush"),
    Case("FLUSH, region without FLUSH_GLOBAL", lambda x: x.one("flush", region=x.limited(NO_READ)), NO_ACCESS,
         needs="flush"),
    # windows
    Case("WRITE, window invalidated", old_window, NO_ACCESS),
    Case("WRITE, outside the window", outside_the_window, NO_ACCESS, {"rxe answers": FINE}),
    Case("WRITE, window of another QP", foreign_window, NO_ACCESS),
    Case("SEND INV, unknown key", lambda x: x.one("send_inv", receives=1, key=1), INVALIDATE_FAILED),
    Case("SEND INV, key of a region", lambda x: x.one("send_inv", receives=1, key=x.goal.sink.key), INVALIDATE_FAILED),
    # what the queue pair does not allow
    Case("WRITE, QP without REMOTE_WRITE", lambda x: x.one("write", goal=f"access={REMOTE_READ}"), NOT_VALID),
    Case("READ, QP without REMOTE_READ", lambda x: x.one("read", goal=f"access={REMOTE_WRITE}"), NOT_VALID),
    Case("FAA, QP without REMOTE_ATOMIC", lambda x: x.one("faa", length=8, goal=f"access={REMOTE_WRITE}"), NOT_VALID),
    Case("FLUSH, QP without FLUSH_GLOBAL", lambda x: x.one("flush", goal=f"access={REMOTE_WRITE}"), NOT_VALID,
         needs="flush"),
    Case("READ, max_dest_rd_atomic 0", lambda x: x.one("read", goal="dest_rd=0"), NOT_VALID,
         {"rxe 6.1 answers": "the guest's kernel oopses when the queue pair is used again"}),
    Case("CAS, misaligned, ibv_post_send", lambda x: x.one("cas", length=8, at=MARGIN + 4), NOT_VALID,
         {"rxe asks": REFUSED}),
    Case("CAS, misaligned, ibv_wr_atomic_cmp_swp", lambda x: x.one("cas", length=8, at=MARGIN + 4, also="builder=1"),
         NOT_VALID),
    Case("ATOMIC WRITE, misaligned", lambda x: x.one("atomic_write", length=8, at=MARGIN + 4), NOT_VALID,
         needs="atomic_write"),
    # receives
    Case("SEND longer than the receive", lambda x: x.one("send", receives=1, recv_length=LENGTH - 1), TOO_LONG,
         {"rxe answers": nak(OPERATION, REM_OP, (QP_OP,))}),
    Case("SEND of 3 packets longer than the receive",
         lambda x: x.one("send", length=3000, receives=1, recv_length=1500), TOO_LONG,
         {"rxe answers": nak(OPERATION, REM_OP, (QP_OP,))}),
    Case("SEND, receive with unknown L_Key", lambda x: x.one("send", receives=1, recv_key=1),
         nak(OPERATION, REM_OP, (PROT,)), {"rxe answers": nak(OPERATION, REM_OP, (QP_OP,))}),
    Case("SEND, packets longer than the target's MTU",
         lambda x: x.one("send", length=2048, start="mtu=2048", receives=1, recv_length=4096),
         nak(INVALID, REM_INV, (FLUSHED,)),
         {"rxe answers": nak(INVALID, REM_INV, (REM_INV,)),
          "rxe 6.1 answers": Outcome((OK,), (), (OK,), (RTS, RTS))}),
    Case("SEND, no receive, rnr_retry 2", lambda x: not_ready(x, "send"), RNR_EXHAUSTED),
    Case("WRITE IMM, no receive, rnr_retry 2", lambda x: not_ready(x, "write_imm"), RNR_EXHAUSTED),
    Case("SEND twice, no receive, rnr_retry 2", two_not_ready, Outcome((RNR, FLUSHED), (RNR_NAK + RNR_CODE,), (), (ERR, RTS)),
         {"rxe answers": Outcome((RNR, FLUSHED), (RNR_NAK + RNR_CODE, SEQUENCE), (), (ERR, RTS))}),
    # the rest of a queue pair's life
    Case("WRITE, then others behind it", behind_the_failed_one,
         Outcome((OK, REM_ACCESS, FLUSHED, FLUSHED), (ACCESS,), (), (ERR, ERR))),
    Case("WRITE to a QP in error, retry_cnt 2", destroyed, Outcome((RETRY,), (), (), (ERR, ERR))),
    # local
    Case("SEND, unknown L_Key", lambda x: x.one("send", local_key=1), LOCAL_PROTECTION,
         {"rxe asks": Outcome((FLUSHED,), (), (), (ERR, RTS)), "rxe 6.1 asks": Outcome((QP_OP,), (), (), (ERR, RTS))}),
    Case("READ, unknown L_Key", lambda x: x.one("read", local_key=1), LOCAL_PROTECTION),
    # unreliable services: no NAK ever
    Case("UD, wrong Q_Key", lambda x: datagram(x, "qkey=0x22222222"), FINE),
    Case("UD, receive too small", lambda x: datagram(x, length=LENGTH - 1), FINE,
         {"rxe 6.1 answers": Outcome((OK,), (), (QP_OP,), (RTS, ERR))}),
    Case("UC SEND, no receive, then one", lambda x: unreliable(x, 1, op="send"),
         Outcome((OK, OK), (), (OK,), (RTS, RTS))),
    Case("UC WRITE, unknown R_Key, then SEND", lambda x: unreliable(x, 1, op="write", key=1),
         Outcome((OK, OK), (), (OK,), (RTS, RTS))),
]  # fmt: skip


def run(pair, wire, start, kernel, kinds):
    """Run every case from `start`; yield (case, outcome or error, expected, packets)."""
    for case in CASES:
        attempt = Attempt(pair, start, wire)
        goal = attempt.goal
        if case.needs and (case.needs not in start.offers or case.needs not in goal.can):
            continue
        expected = case.expectation(kernel, *kinds)
        if isinstance(expected, str):
            continue
        try:
            outcome = case.run(attempt)
        except Refused as error:
            outcome = error
        attempt.free_windows()
        yield case, outcome, expected, attempt.packets


def run_killed(pair, wire, start):
    """The target's process is killed, which ends its agent; yield as run() does."""
    attempt = Attempt(pair, start, wire)
    attempt.connect(start=SOON)
    attempt.goal.agent.die()
    wire.take()
    attempt.post("write")
    statuses = tuple(completion.status for completion in start.agent.wait(attempt.out, 1))
    packets = wire.take_until_quiet(QUIET)
    naks = {p.syndrome for p in packets if p.syndrome is not None and p.syndrome >= RNR_NAK}
    case = Case("WRITE to a killed process, retry_cnt 2", None, Outcome((RETRY,)))
    yield case, Outcome(statuses, tuple(naks)), case.expected, packets
