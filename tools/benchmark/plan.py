"""What one round measures, and in which order.

A measurement has a name (kind, subject, size) and a function that takes it. A round takes each once, so that what
else the machine does meets all of them alike.
"""

from dataclasses import dataclass

from programs import LOOPBACK, Busy
from subjects import Bare, Crowd, Iperf, Libfabric, Loads, Memory, Perftest, RustApi, Ucx

# What a socket gets where nobody has raised net.core.rmem_max.
COMMON = "udp?shm=off&rcvbuf=212992"
UNLIMITED = "udp?shm=off"
# Shared memory, and the same sockets below it.
SHARED = "udp?shm=on&rcvbuf=212992"
UNLIMITED_BYTES = 8 << 20

SIZES = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20]
QUICK_SIZES = [4 << 10, 64 << 10, 1 << 20]
MAIN = 64 << 10
LATENCY_SIZES = [8, 4 << 10]
RATE = 64

# Subjects, in the order of the tables. (Key, what people read.)
PERFTEST = "perftest, udp"
PERFTEST_UNLIMITED = "perftest, udp, large buffers"
PERFTEST_SHM = "perftest, shared memory"
PERFTEST_XDP = "perftest, xdp, veth"
RUST = "Rust API, udp"
RUST_SHM = "Rust API, shared memory"
RUST_XDP = "Rust API, xdp, veth"
TCP = "TCP stream, loopback (iperf3)"
TCP_VETH = "TCP stream, veth (iperf3)"
UCX = "UCX over TCP, loopback"
UCX_POSIX = "UCX over its shared memory (posix)"
UCX_CMA = "UCX over its shared memory (posix, cma)"
UCX_RC = "UCX over our verbs (rc), shared memory"
LIBFABRIC = "libfabric over TCP, loopback"
WIRE = "bare loop, sockets"
WIRE_UNLIMITED = "bare loop, sockets, large buffers"
RING = "bare loop, ring in shared memory"
XDP = "bare loop, AF_XDP, veth"
RAW = "sockets without anything"
XDP_RAW = "AF_XDP without anything, veth"
MEMCPY = "memcpy"
UDP_SPIN = "UDP ping-pong, spinning"
UDP_BLOCK = "UDP ping-pong, blocking"
WIRE_PING = "bare SENDs and ACKs, sockets"
RING_PING = "bare SENDs, rings in shared memory"
XDP_PING = "AF_XDP ping-pong, veth"
XDP_WIRE_PING = "bare SENDs and ACKs, AF_XDP, veth"
SENDTO = "one sendto per datagram"

# Under softrnic check.
CHECKED = "send, softrnic check"

# Beside twice as many busy loops as there are processors.
BUSY = "beside busy loops"
BUSY_SIZES = [4 << 10, 64 << 10, 1 << 20]

# Of processes and addresses: alone on one that others may share, or not; as many at each end, on one address or each on
# its own.
ALONE = "alone on a shared address"
ALONE_UNSHARED = "alone, shared=off"
CROWD = 8
ON_ONE = f"{CROWD} on one address"
ON_MANY = f"{CROWD} on {CROWD} addresses"


@dataclass(frozen=True)
class Name:
    """`kind` is stream, latency, rate or other; `subject` is followed by the operation where there are several."""

    kind: str
    subject: str
    operation: str = ""
    size: int = 0


@dataclass
class Measurement:
    """`take(seconds)` returns figures by name."""

    label: str
    take: object


class Plan:
    """All measurements of a round. Without `veth` those that need it are left out."""

    def __init__(self, tools, veth, quick):
        self.measurements = []
        self.sizes = QUICK_SIZES if quick else SIZES
        self.tools = tools
        self.streams(veth)
        self.latencies(veth)
        self.rates(veth)
        self.others()

    def add(self, name, take):
        size = f" {name.size}" if name.size else ""
        label = f"{name.subject}: {name.operation or name.kind}{size}"
        self.measurements.append(Measurement(label, lambda seconds: {name: take(seconds)}))

    def streams(self, veth):
        softrnic, loops, libraries = self.tools.softrnic, self.tools.loops, self.tools.libraries
        common = Perftest(LOOPBACK, COMMON, libraries)
        perftests = [
            (PERFTEST_SHM, Perftest(LOOPBACK, SHARED, libraries)),
            (PERFTEST, common),
            (PERFTEST_UNLIMITED, Perftest(LOOPBACK, UNLIMITED, libraries)),
        ]
        tcps = [(TCP, Iperf(LOOPBACK))]
        apis = [(RUST_SHM, RustApi(LOOPBACK, SHARED, softrnic)), (RUST, RustApi(LOOPBACK, COMMON, softrnic))]
        if veth:
            perftests.append((PERFTEST_XDP, Perftest(veth, "xdp:eth0", libraries)))
            tcps.append((TCP_VETH, Iperf(veth)))
            apis.append((RUST_XDP, RustApi(veth, "xdp:eth0", softrnic)))
        bare, memory = Bare(LOOPBACK, loops), Memory(loops)
        unlimited = ["--rcvbuf", UNLIMITED_BYTES, "--window", 1 << 20]
        ucxs = [
            (UCX, Ucx(LOOPBACK)),
            (UCX_POSIX, Ucx(LOOPBACK, "posix")),
            (UCX_CMA, Ucx(LOOPBACK, "posix,cma")),
            (UCX_RC, Ucx(LOOPBACK, "rc_verbs,ud_verbs:aux", softrnic, SHARED)),
        ]
        for size in self.sizes:
            for subject, perftest in perftests:
                self.add(Name("stream", subject, "write", size), bind(perftest.stream, "write", size))
                if size == MAIN:
                    for operation in ("read", "send"):
                        self.add(Name("stream", subject, operation, size), bind(perftest.stream, operation, size))
            for subject, loop in ((WIRE, []), (WIRE_UNLIMITED, unlimited)):
                self.add(Name("stream", subject, "write", size), loop_of(bare, "wire", "--size", size, *loop))
            for subject, iperf in tcps:
                # One write of a stream has no size of its own, so larger ones would be the same again.
                if size <= Iperf.LARGEST:
                    self.add(Name("stream", subject, "write", size), bind(iperf.stream, size))
            if veth:
                self.add(Name("stream", XDP, "write", size), loop_of(Bare(veth, loops), "xdp", "--size", size))
            self.add(Name("stream", RING, "write", size), loop_of(bare, "shm", "--size", size))
            for subject, ucx in ucxs if size == MAIN else ucxs[:1]:
                self.add(Name("stream", subject, "write", size), bind(ucx.stream, size))
            self.add(Name("stream", MEMCPY, "write", size), bind(memory.stream, size))
        for subject, tcp in tcps:
            self.add(Name("stream", subject, "default", Iperf.BLOCK), bind(tcp.stream, Iperf.BLOCK))
        self.add(Name("stream", RAW, "write", MAIN), loop_of(bare, "raw"))
        if veth:
            self.add(Name("stream", XDP_RAW, "write", MAIN), loop_of(Bare(veth, loops), "xdp-raw"))
        self.apis = apis
        for subject, api in apis:
            self.measurements.append(Measurement(f"{subject}: WRITE", self.api(subject, api, "write", [8, *self.sizes])))

    def latencies(self, veth):
        loops, libraries = self.tools.loops, self.tools.libraries
        perftests = [
            (PERFTEST_SHM, Perftest(LOOPBACK, SHARED, libraries)),
            (PERFTEST, Perftest(LOOPBACK, COMMON, libraries)),
        ]
        ucxs = [(UCX, Ucx(LOOPBACK)), (UCX_POSIX, Ucx(LOOPBACK, "posix"))]
        bare, libfabric = Bare(LOOPBACK, loops), Libfabric(LOOPBACK)
        for size in LATENCY_SIZES:
            for subject, perftest in perftests:
                for operation in ("send", "write", "read"):
                    self.add(Name("latency", subject, operation, size), bind(perftest.latency, operation, size))
                events = lambda seconds, perftest=perftest, size=size: perftest.latency("send", size, seconds, events=True)
                self.add(Name("latency", subject, "send, events", size), events)
            self.add(Name("latency", UDP_SPIN, "", size), loop_latency(bare, "ping", size))
            self.add(Name("latency", WIRE_PING, "", size), loop_latency(bare, "wire-ping", size))
            self.add(Name("latency", RING_PING, "", size), loop_latency(bare, "shm-ping", size))
            self.add(Name("latency", UDP_BLOCK, "", size), loop_latency(bare, "ping", size, "--block"))
            if veth:
                xdp = Perftest(veth, "xdp:eth0", libraries)
                for operation in ("send", "write"):
                    self.add(Name("latency", PERFTEST_XDP, operation, size), bind(xdp.latency, operation, size))
                over_xdp = Bare(veth, loops)
                self.add(Name("latency", XDP_PING, "", size), loop_latency(over_xdp, "xdp-ping", size))
                self.add(Name("latency", XDP_WIRE_PING, "", size), loop_latency(over_xdp, "xdp-wire-ping", size))
            for subject, ucx in ucxs:
                self.add(Name("latency", subject, "tag", size), bind(ucx.latency, size))
            self.add(Name("latency", LIBFABRIC, "msg", size), bind(libfabric.latency, size))

    def rates(self, veth):
        loops, libraries = self.tools.loops, self.tools.libraries
        perftests = [
            (PERFTEST_SHM, Perftest(LOOPBACK, SHARED, libraries)),
            (PERFTEST, Perftest(LOOPBACK, COMMON, libraries)),
        ]
        if veth:
            perftests.append((PERFTEST_XDP, Perftest(veth, "xdp:eth0", libraries)))
        for subject, perftest in perftests:
            for operation in ("send", "write"):
                self.add(Name("rate", subject, operation, RATE), bind(perftest.stream, operation, RATE))
        bare = Bare(LOOPBACK, loops)
        self.add(Name("rate", SENDTO, "", RATE), loop_of(bare, "rate", "--size", RATE))
        self.add(Name("rate", WIRE, "write", RATE), loop_of(bare, "wire", "--size", RATE))
        self.add(Name("rate", RING, "write", RATE), loop_of(bare, "shm", "--size", RATE))
        self.add(Name("rate", UCX, "write", RATE), bind(Ucx(LOOPBACK).stream, RATE))
        for subject, api in self.apis:
            # Of 8 bytes for the latency, of 64 for the rate, of 4 KiB for the latency.
            sizes = [*LATENCY_SIZES, RATE]
            self.measurements.append(Measurement(f"{subject}: SEND", self.api(subject, api, "send", sizes)))

    def others(self):
        libraries = self.tools.libraries
        for name, fault in (("no loss", "seed=1,drop=0%"), ("1 % loss", "seed=1,drop=1%")):
            lossy = Perftest(LOOPBACK, COMMON, libraries, fault)
            longer = lambda seconds, lossy=lossy: lossy.stream("write", 1 << 20, 2 * seconds)
            self.add(Name("other", PERFTEST, name, 1 << 20), longer)
        self.addresses()
        self.beside_busy_loops()
        # Beside those without it, of the rates and the streams.
        checked = Perftest(LOOPBACK, SHARED, libraries, checked=True)
        for size in (RATE, MAIN):
            self.add(Name("other", PERFTEST_SHM, CHECKED, size), bind(checked.stream, "send", size))
        for subject, device in ((RUST_SHM, SHARED), (RUST, COMMON)):
            loads = Loads(self.tools.loops, device)
            for name, options in (("1 QP", {}), ("1,024 QPs", {"qps": 1024}), ("8 senders", {"senders": 8})):
                fan = lambda seconds, loads=loads, options=options: loads.fan(2 * seconds, **options)
                self.add(Name("other", subject, name, MAIN), fan)

    def beside_busy_loops(self):
        """Shared memory, where other programs want the processors, and what the kernel's sockets do there."""
        loops = self.tools.loops
        # Of their own: they are slower there, and send less.
        perftest, tcp, bare = Perftest(LOOPBACK, SHARED, self.tools.libraries), Iperf(LOOPBACK), Bare(LOOPBACK, loops)
        for size in BUSY_SIZES:
            # Longer: a slice of the scheduler is milliseconds.
            write = lambda seconds, size=size: perftest.stream("write", size, 4 * seconds)
            self.add(Name("other", PERFTEST_SHM, BUSY, size), busy(write))
        self.add(Name("other", TCP, BUSY, MAIN), busy(lambda seconds: tcp.stream(Iperf.BLOCK, 4 * seconds)))
        self.add(Name("latency", PERFTEST_SHM, BUSY, 8), busy(bind(perftest.latency, "send", 8)))
        self.add(Name("latency", UDP_SPIN, BUSY, 8), busy(loop_latency(bare, "ping", 8)))

    def addresses(self):
        """Processes that share an address beside those that have one each, over sockets."""
        libraries = self.tools.libraries

        def device(address, options=""):
            return f"udp:127.0.76.{address}?shm=off&rcvbuf=212992{options}"

        for name, options in ((ALONE, ""), (ALONE_UNSHARED, "&shared=off")):
            perftest = Perftest(LOOPBACK, device(1, options), libraries, client_device=device(2, options))
            longer = lambda seconds, perftest=perftest: perftest.stream("write", MAIN, 2 * seconds)
            self.add(Name("other", PERFTEST, name, MAIN), longer)
        pairs = range(CROWD)
        for name, devices in (
            (ON_ONE, [(device(1), device(2)) for _ in pairs]),
            (ON_MANY, [(device(11 + pair), device(21 + pair)) for pair in pairs]),
        ):
            self.add(Name("other", PERFTEST, name, MAIN), bind(Crowd(devices, libraries).stream, MAIN))

    def api(self, subject, api, operation, sizes):
        def take(seconds):
            # Each size takes twice as long: once for the latency, once for the stream.
            streams, latencies = api.all(operation, sizes, seconds / 2)
            found = {Name("stream", subject, operation, size): streams[size] for size in sizes if size > RATE}
            if RATE in streams:
                found[Name("rate", subject, operation, RATE)] = streams[RATE]
            for size, latency in latencies.items():
                if size in LATENCY_SIZES:
                    found[Name("latency", subject, operation, size)] = latency
            return found

        return take


def busy(take):
    def beside(seconds):
        with Busy():
            return take(seconds)

    return beside


def bind(method, *arguments):
    return lambda seconds: method(*arguments, seconds)


def loop_of(bare, loop, *options):
    return lambda seconds: bare.stream(loop, seconds, *options)


def loop_latency(bare, loop, size, *options):
    return lambda seconds: bare.latency(loop, size, seconds, *options)

