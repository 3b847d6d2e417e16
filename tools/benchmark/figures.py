"""Medians over rounds, ratios, and the bars that are to be reached."""

from dataclasses import dataclass
from statistics import median

import plan
from plan import MAIN, RATE, Name

# A median of fewer rounds is shown and judged, and called what it is.
ROUNDS = 9


class Figures:
    """What every round found, by name."""

    def __init__(self):
        self.taken = {}
        self.failures = {}
        # Taken once: figures that do not vary with what else the machine does.
        self.once = {}
        # Nanoseconds of a cache line's round trip, taken before each measurement.
        self.cache_line = []

    def add(self, number, found):
        for name, figure in found.items():
            self.taken.setdefault(name, {})[number] = figure

    def rounds(self, name, attribute):
        """The values of an attribute by round."""
        found = {number: getattr(figure, attribute) for number, figure in self.taken.get(name, {}).items()}
        return {number: value for number, value in found.items() if value is not None}

    def median(self, name, attribute):
        values = self.rounds(name, attribute).values()
        return median(values) if values else None

    def ratio(self, above, below, attribute, factor=1.0):
        """The median of the ratios in each round; above what it is to be compared with."""
        if isinstance(attribute, str):
            attribute = (attribute, attribute)
        over, under = self.rounds(above, attribute[0]), self.rounds(below, attribute[1])
        ratios = [factor * over[number] / under[number] for number in over if number in under and under[number]]
        return median(ratios) if ratios else None

    def distance(self):
        """A sentence on how far apart the processors were, which a host may move."""
        if not self.cache_line:
            return ""
        least, middle = min(self.cache_line), median(self.cache_line)
        far = sum(time > 2 * least for time in self.cache_line) / len(self.cache_line)
        return (f"A cache line went from one processor to the other and back in {middle:.0f} ns (median; at best "
                f"{least:.0f} ns, and in more than twice that {far:.0%} of the time).")


@dataclass
class Bar:
    """A figure that is to be reached. `value` is None when it could not be measured."""

    what: str
    wanted: str
    value: float | None
    reached: bool | None
    note: str
    form: str = "{:.2f} ×"

    @property
    def shown(self):
        return "not measured" if self.value is None else self.form.format(self.value)

    @property
    def verdict(self):
        return {None: "–", True: "PASS", False: "below"}[self.reached]


def least_of(values):
    """The least, if all are known."""
    values = list(values)
    return None if None in values else min(values)


def spread(waits):
    return "least {least:.0f}, median {median:.0f}, most {most:.0f} µs".format(**waits)


def bars(figures):
    """Every bar of the project, in order."""
    found = []

    def bar(what, value, least=None, most=None, note="", form="{:.2f} ×", aimed=None, aim=None):
        """`aim` is beyond the bar; `aimed` says so where there is none. What was not measured may have no note."""
        if least is not None:
            wanted, reached = f"at least {form.format(least)}", value is not None and value >= least
        elif most is not None:
            wanted, reached = f"at most {form.format(most)}", value is not None and value <= most
        else:
            wanted, reached = aimed or "reported", True
        if aim is not None:
            wanted += f", aim {form.format(aim)}"
        found.append(Bar(what, wanted, value, None if value is None else reached, note or "", form))

    def stream(subject, operation="write", size=MAIN):
        return Name("stream", subject, operation, size)

    def latency(subject, operation="", size=8):
        return Name("latency", subject, operation, size)

    bandwidth = lambda above, below: figures.ratio(above, below, "bandwidth")
    half_trip = lambda above, below: figures.ratio(above, below, "p50")

    tcp = stream(plan.TCP, "default", 128 << 10)
    spin, block = latency(plan.UDP_SPIN), latency(plan.UDP_BLOCK)
    other = lambda subject, name, size: Name("other", subject, name, size)
    shared = stream(plan.PERFTEST_SHM)
    bar("WRITE 64 KiB through shared memory, against one TCP stream on loopback", bandwidth(shared, tcp), least=2.5, aim=4.0,
        note="what two processes of one machine gain over sockets")
    bar("the bare loop through a ring, against the same", bandwidth(stream(plan.RING), tcp),
        note="the floor: headers and two copies, and nothing else")
    bar("WRITE 64 KiB through shared memory, against the bare loop", bandwidth(shared, stream(plan.RING)), least=0.6, aim=0.8,
        note="how much of what headers and two copies leave the transport passes on")
    for operation in ("read", "send"):
        bar(f"{operation.upper()} 64 KiB through shared memory, against WRITE",
            bandwidth(stream(plan.PERFTEST_SHM, operation), shared), least=0.9, note="no operation is a second choice")
    bar("SEND 8 B through shared memory, against half a spinning UDP round trip",
        half_trip(latency(plan.PERFTEST_SHM, "send"), spin), most=0.30, aim=0.20,
        note="what is left without the kernel when the application polls")
    bar("a bare loop of SENDs through rings, against the same", half_trip(latency(plan.RING_PING), spin),
        note="the floor: headers and two copies of a message, without ACKs and completions")
    bar("WRITE 8 B through shared memory, against the same", half_trip(latency(plan.PERFTEST_SHM, "write"), spin),
        most=0.6, aim=0.3, note="the application spins on memory, so another thread must serve the NIC")
    bar("SEND 8 B with events through shared memory, against half a blocking UDP round trip",
        half_trip(latency(plan.PERFTEST_SHM, "send, events"), block), most=0.25, note="the same when everyone sleeps")
    bar("64-byte SENDs through shared memory, against one sendto per datagram",
        figures.ratio(Name("rate", plan.PERFTEST_SHM, "send", RATE), Name("rate", plan.SENDTO, "", RATE), "rate"),
        least=15.0, aim=25.0, note="what no system call at all gains")
    bar("64-byte WRITEs through shared memory, against the same",
        figures.ratio(Name("rate", plan.PERFTEST_SHM, "write", RATE), Name("rate", plan.SENDTO, "", RATE), "rate"),
        least=15.0, note="the same without a receive for each")
    bar("64-byte WRITEs of the bare loop through a ring, against the same",
        figures.ratio(Name("rate", plan.RING, "write", RATE), Name("rate", plan.SENDTO, "", RATE), "rate"),
        note="the floor: headers and two copies")
    bar("UCX over our verbs (rc), 64 KiB put, against UCX over its own shared memory (posix)",
        bandwidth(stream(plan.UCX_RC), stream(plan.UCX_POSIX)), least=0.12, aim=0.20,
        note="MPI on one machine, beside what it uses there: one copy between two caches")
    bar("UCX over its own shared memory (cma), against the same", bandwidth(stream(plan.UCX_CMA), stream(plan.UCX_POSIX)),
        note="the floor of one copy by process_vm_readv")
    busy = lambda subject, size: Name("other", subject, plan.BUSY, size)
    tcp_busy = busy(plan.TCP, MAIN)
    bar("WRITE 64 KiB through shared memory beside busy loops, against one TCP stream there",
        bandwidth(busy(plan.PERFTEST_SHM, MAIN), tcp_busy), least=0.9,
        note="two loops for each processor: whether whoever waits lets the other go on")
    bar("the slowest of WRITE 4 KiB, 64 KiB and 1 MiB there, against the same",
        least_of(bandwidth(busy(plan.PERFTEST_SHM, size), tcp_busy) for size in plan.BUSY_SIZES), least=0.3,
        note="no size waits for timers")
    bar("SEND 8 B through shared memory beside busy loops, against half a spinning UDP round trip there",
        half_trip(latency(plan.PERFTEST_SHM, plan.BUSY), latency(plan.UDP_SPIN, plan.BUSY)), most=1.2,
        note="the same for one message at a time")
    one_shared = other(plan.RUST_SHM, "1 QP", MAIN)
    bar("1,024 active QPs through shared memory, against one",
        bandwidth(other(plan.RUST_SHM, "1,024 QPs", MAIN), one_shared), least=0.9,
        note="what it costs to serve many instead of few")
    bar("8 senders through shared memory, against one", bandwidth(other(plan.RUST_SHM, "8 senders", MAIN), one_shared),
        least=0.8, note="whether the rings share two processors well")
    bar("CPU of an idle process with connected QPs, shared memory", figures.once.get("idle_shm"), most=0.001,
        form="{:.2%}", note="nobody looks into a ring while nothing comes")

    write = stream(plan.PERFTEST)
    bar("WRITE 64 KiB over udp, against the bare loop over sockets", bandwidth(write, stream(plan.WIRE)), least=0.95,
        note="how much of what the wire leaves the transport passes on")
    bar("WRITE 64 KiB over udp, against one TCP stream on loopback", bandwidth(write, tcp), least=1.0,
        note="what moves to RDMA from sockets gains or loses so much")
    for operation in ("read", "send"):
        bar(f"{operation.upper()} 64 KiB against WRITE", bandwidth(stream(plan.PERFTEST, operation), write), least=0.9,
            note="no operation is a second choice")
    bar("64-byte SENDs, against one sendto per datagram",
        figures.ratio(Name("rate", plan.PERFTEST, "send", RATE), Name("rate", plan.SENDTO, "", RATE), "rate"),
        least=4.0, note="what gathering messages into few system calls gains")
    bar("SEND 8 B, against half a spinning UDP round trip", half_trip(latency(plan.PERFTEST, "send"), spin), most=1.25,
        note="what the NIC adds to the kernel's way when the application polls")
    bar("the same, against a bare loop of SENDs and ACKs", half_trip(latency(plan.PERFTEST, "send"), latency(plan.WIRE_PING)),
        most=1.25, aim=1.15, note="what the NIC adds to headers, ICRC and acknowledgements, which no RoCEv2 over sockets can do without")
    bar("WRITE 8 B, against half a spinning UDP round trip", half_trip(latency(plan.PERFTEST, "write"), spin), most=2.5,
        note="the application spins on memory, so another thread must serve the NIC")
    bar("WRITE 8 B, 99.9th percentile", figures.median(latency(plan.PERFTEST, "write"), "p99_9"), form="{:.1f} µs",
        note="what the scheduler does to those two threads at worst")
    bar("SEND 8 B with events, against half a blocking UDP round trip",
        half_trip(latency(plan.PERFTEST, "send, events"), block), most=1.25,
        note="what the NIC adds when everyone sleeps")
    bar("WRITE 64 KiB over xdp, against the bare loop over AF_XDP",
        bandwidth(stream(plan.PERFTEST_XDP), stream(plan.XDP)), least=0.95, note="as the first, on a real interface")
    bar("WRITE 64 KiB over xdp, against frames over AF_XDP without anything",
        bandwidth(stream(plan.PERFTEST_XDP), stream(plan.XDP_RAW)), least=0.7,
        note="what headers, ICRC, copies and acknowledgements leave of the interface")
    bar("SEND 8 B over xdp, against half an AF_XDP round trip",
        half_trip(latency(plan.PERFTEST_XDP, "send"), latency(plan.XDP_PING)), most=1.25,
        note="what the NIC adds to the rings")
    bar("the same, over AF_XDP against a bare loop of SENDs and ACKs",
        half_trip(latency(plan.PERFTEST_XDP, "send"), latency(plan.XDP_WIRE_PING)),
        most=1.2, note="what the NIC adds where each packet goes through the kernel by itself")
    bar("WRITE 1 MiB, 1 % loss against none",
        bandwidth(other(plan.PERFTEST, "1 % loss", 1 << 20), other(plan.PERFTEST, "no loss", 1 << 20)), least=0.95,
        note="the fault layer is there both times, so segmentation is off both times")
    one = other(plan.RUST, "1 QP", MAIN)
    bar("1,024 active QPs against one", bandwidth(other(plan.RUST, "1,024 QPs", MAIN), one), least=0.8,
        note="what it costs to serve many instead of few")
    bar("8 senders against one", bandwidth(other(plan.RUST, "8 senders", MAIN), one), least=0.7,
        note="whether windows are shared before buffers overflow")
    bar("one process alone on a shared address, against shared=off",
        bandwidth(other(plan.PERFTEST, plan.ALONE, MAIN), other(plan.PERFTEST, plan.ALONE_UNSHARED, MAIN)), least=0.97,
        note="what the program costs that chooses a socket")
    bar(f"{plan.CROWD} processes on one address, against as many addresses",
        bandwidth(other(plan.PERFTEST, plan.ON_ONE, MAIN), other(plan.PERFTEST, plan.ON_MANY, MAIN)), least=0.95,
        note=f"WRITE 64 KiB of {plan.CROWD} pairs at the same time, over sockets")
    holds = figures.once.get("holds") or {}
    kinds = (("512 MiB, CQs and QPs come and go", "objects", None), ("2^18 regions are made", "regions", 1500))
    for what, kind, most in kinds:
        waits, apart = holds.get(kind), holds.get(f"{kind}_apart")
        bar(f"longest hold of the NIC lock, while {what}, the median of nine times", waits and waits["hold"]["median"], most=most,
            form="{:.0f} µs", note=waits and f"{spread(waits['hold'])}; with the work on a NIC of its own {spread(apart['hold'])}")
        bar("the call that took longest there, from begin to end", waits and waits["call"]["median"], form="{:.0f} µs",
            note=waits and f"{spread(waits['call'])}; with the work on a NIC of its own {spread(apart['call'])}")
    region = holds.get("region")
    bar("processor time of the region that took longest to be made or ended, the median of all times",
        region and region["median"], form="{:.0f} µs", note=region and f"{spread(region)}; what of a hold is the NIC's")
    bar("CPU of an idle process with connected QPs", figures.once.get("idle"), most=0.005, form="{:.2%}",
        note="nothing ticks when nothing is to be done")
    resident = figures.once.get("resident")
    bar("resident memory of an idle connected RC QP, per end", resident and resident / 1000, most=6, form="{:.1f} kB",
        note="128 send and 128 receive work requests")
    connections = figures.once.get("connections") or {}
    bar("rdma_cm connections made and ended per second, 1,000 in a row", connections.get("in_a_row"), least=3000, form="{:.0f}",
        note="resolving, three messages, two QPs, and the end")
    bar("rdma_cm connections made per second, 500 at once", connections.get("at_once"), form="{:.0f}",
        note="the same without the end")
    size = connections.get("bytes")
    bar("resident memory of an rdma_cm connection, both ends", size and size / 1000, form="{:.1f} kB",
        note="identifiers, what the connection managers keep, and QPs of one work request each way")
    for network in figures.once.get("networks") or []:
        hosts, flows = network["hosts"], network["flows"] // network["hosts"]
        bar(f"a study of {hosts} hosts, packets × links per second of a processor", network["hops_per_second"] / 1e6,
            form="{:.2f} M", note=f"{network['events_per_second'] / 1e6:.2f} M events; {flows} flows of each host, "
            f"{network['hosts_per_gb']:.0f} such hosts in 1 GB while they run")
    for example, found_there in (figures.once.get("slow_motion") or {}).items():
        for what, ratio in found_there.items():
            bar(f"{example} in slow motion, {what}: how far from its description", abs(ratio - 1), most=0.05, form="{:.1%}",
                note="what perftest prints of a network that no machine could carry; one run, which a busy machine spoils")
    for size, plain, attribute, most in (
        ("64-byte", Name("rate", plan.PERFTEST_SHM, "send", RATE), "rate", 3.0),
        ("64 KiB", stream(plan.PERFTEST_SHM, "send"), "bandwidth", 1.3),
    ):
        checked = other(plan.PERFTEST_SHM, plan.CHECKED, plain.size)
        bar(f"{size} SENDs through shared memory, against the same under softrnic check",
            figures.ratio(plain, checked, attribute), most=most, note="what it costs to be told what is wrong")
    startup = figures.once.get("startup") or {}
    alone = startup.get("alone")
    bar("what `softrnic run` adds to the time that ibv_devinfo takes", startup.get("added"), most=30, form="{:.1f} ms",
        note="starting, and opening a device; alone it takes " + ("–" if alone is None else f"{alone:.1f} ms"))
    bar("the command and its libraries, stripped", figures.once.get("size"), form="{:.1f} MB", note="all that is loaded")
    return found
