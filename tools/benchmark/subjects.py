"""What is measured: each subject runs one program for one message size and reads its result.

Every `stream` and `latency` takes about as many seconds as it is asked for, and returns figures in bytes, seconds
and messages (`Stream`) or in microseconds one way (`Latency`).
"""

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from programs import LOOPBACK, Failure, free_port, pair, single


@dataclass
class Stream:
    """Bytes and messages per second, and processor nanoseconds of both processes per byte and per message."""

    bandwidth: float
    rate: float
    cpu_per_byte: float | None = None
    cpu_per_message: float | None = None


@dataclass
class Latency:
    """Microseconds, one way (for READ there and back)."""

    p50: float
    p99: float | None = None
    p99_9: float | None = None


# Bytes of a first, short run, and how many messages that is at most.
PILOT_BYTES = 32 << 20
PILOT_MESSAGES = 200


class Counted:
    """A program that is told how many messages to send instead of how long.

    A short run tells how fast it is and what starting it costs; later runs correct the estimate.
    """

    def __init__(self):
        self.rates = {}
        self.pilots = {}

    def run_for(self, key, size, seconds, least, most, run):
        """`run(count)` returns messages per second, processor seconds and a result.

        Returns the processor nanoseconds of a message, without what starting the programs took, and the result of
        a run of about `seconds`.
        """
        key = (key, size)
        if key not in self.rates:
            count = max(least, min(PILOT_MESSAGES, PILOT_BYTES // size))
            rate, cpu, _ = run(count)
            self.rates[key], self.pilots[key] = rate, (count, cpu)
        pilot_count, pilot_cpu = self.pilots[key]
        count = int(max(least, 2 * pilot_count, min(self.rates[key] * seconds, most)))
        rate, cpu, result = run(count)
        # One odd run must not make the next ten times as long.
        self.rates[key] = min(max(rate, self.rates[key] / 2), self.rates[key] * 2)
        return max(0.0, cpu - pilot_cpu) / (count - pilot_count) * 1e9, result


class Perftest(Counted):
    """perftest's programs, unmodified, on SoftRNIC's libibverbs."""

    def __init__(self, place, device, libraries, fault=None, client_device=None, checked=False):
        super().__init__()
        self.place = place
        env = {"LD_LIBRARY_PATH": str(libraries)}
        if checked:
            env |= {"SOFTRNIC_CHECK": "1", "SOFTRNIC_CHECK_LOG": "/dev/null"}
        if fault is not None:
            env["SOFTRNIC_FAULT"] = fault
        self.server_env = {**env, "SOFTRNIC_DEVICES": device}
        self.client_env = {**env, "SOFTRNIC_DEVICES": client_device or device}

    def stream(self, operation, size, seconds):
        depth = max(4, min(128, (64 << 20) // size))
        # perftest's own default, unless the queue would hold gigabytes.
        options = ["-t", depth] if depth != 128 else []

        def run(count):
            text, cpu = self.run(f"ib_{operation}_bw", "-s", size, "-n", count, "--report_gbits", *options)
            bandwidth = bandwidth_of(text, size)
            return bandwidth / size, cpu, bandwidth

        most = 2_000_000 if size < 1024 else 200_000
        per_message, bandwidth = self.run_for(operation, size, seconds, max(5, depth // 4), most, run)
        return Stream(bandwidth, bandwidth / size, per_message / size, per_message)

    def latency(self, operation, size, seconds, events=False):
        options = ["-e"] if events else []

        def run(count):
            text, cpu = self.run(f"ib_{operation}_lat", "-s", size, "-n", count, *options)
            # bytes, iterations, min, max, typical, average, deviation (which may overflow to nan), 99 %, 99.9 %
            row = re.search(rf"(?m)^\s*{size}\s+\d+((?:\s+[\d.]+){{4}}\s+(?:[\d.]+|-?nan)(?:\s+[\d.]+)+)\s*$", text)
            columns = [float(word) for word in row[1].split()] if row else []
            if len(columns) < 7 or columns[3] <= 0:
                raise Failure(f"perftest has printed no percentiles\n{text}")
            _, _, typical, average, _, p99, p99_9 = columns[:7]
            round_trip = average * (1 if operation == "read" else 2)
            return 1e6 / round_trip, cpu, Latency(typical, p99, p99_9)

        return self.run_for((operation, events), size, seconds, 500, 100_000, run)[1]

    def run(self, program, *options):
        port = free_port()
        words = [program, "-x", self.place.gid_index, "-F", "-p", port, *options]
        both = {"port": port, "server_env": self.server_env, "client_env": self.client_env}
        outcome = pair(self.place, words, [*words, self.place.server_address], **both)
        return outcome.client, outcome.cpu


def bandwidth_of(text, size):
    """What perftest has printed, in bytes per second."""
    # What the device says of its faults may follow in the same line.
    row = re.search(rf"(?m)^\s*{size}\s+\d+\s+\S+\s+([\d.]+)\s+[\d.]+\s*(softrnic: .*)?$", text)
    if not row or float(row[1]) <= 0:
        raise Failure(f"perftest has printed no result\n{text}")
    # Gigabits have more digits than messages, which it counts in millions.
    return float(row[1]) * 1e9 / 8


class Crowd:
    """Many pairs of ib_write_bw at the same time. `devices` has those of the server and the client of each."""

    def __init__(self, devices, libraries):
        self.perftests = [Perftest(LOOPBACK, server, libraries, client_device=client) for server, client in devices]

    def stream(self, size, seconds):
        """What all of them move together, in whole seconds, since perftest knows no shorter ones."""

        def run(perftest):
            text, _ = perftest.run("ib_write_bw", "-s", size, "-D", math.ceil(seconds), "-t", 16, "--report_gbits")
            return bandwidth_of(text, size)

        with ThreadPoolExecutor(len(self.perftests)) as pool:
            bandwidth = sum(pool.map(run, self.perftests))
        return Stream(bandwidth, bandwidth / size)


class RustApi:
    """`softrnic bench`: the verbs of the Rust API. One run does every size of an operation."""

    def __init__(self, place, device, softrnic):
        self.place = place
        self.command = [*place.client, softrnic, "bench", "--json", "--device", device, "--peer-device", device]
        if place.server_netns:
            self.command += ["--peer-netns", place.server_netns]

    def all(self, operation, sizes, seconds):
        """Streams and latencies by size."""
        options = ["--operations", operation, "--sizes", ",".join(map(str, sizes)), "--seconds", seconds]
        points = json.loads(single([*self.command, *options]).client)["points"]
        streams, latencies = {}, {}
        for point in points:
            streams[point["size"]] = Stream(point["bytes_per_second"], point["messages_per_second"])
            if latency := point["latency_us"]:
                latencies[point["size"]] = Latency(latency["p50"], latency["p99"], latency["p99_9"])
        return streams, latencies


class Bare:
    """The loops of `softrnic-bench`."""

    def __init__(self, place, program):
        self.options = ["--sender", place.client_address, "--receiver", place.server_address]
        if place.server_netns:
            self.options += ["--sender-netns", place.client_netns, "--receiver-netns", place.server_netns]
        self.program = program

    def stream(self, loop, seconds, *options):
        return loop_stream(self.call(loop, seconds, *self.options, *options))

    def latency(self, loop, size, seconds, *options):
        """Half of a round trip of datagrams with `size` bytes and what a SEND adds: BTH and ICRC."""
        trips = self.call(loop, seconds, *self.options, "--size", size + 16, *options)
        return Latency(*(trips[key] / 2 for key in ("p50", "p99", "p99_9")))

    def call(self, loop, seconds, *options):
        return json.loads(single([self.program, loop, "--seconds", seconds, *options]).client)


def loop_stream(result):
    cpu = result["cpu_seconds"] * 1e9
    if not result["messages"]:
        raise Failure("not one message arrived")
    return Stream(result["bandwidth"], result["rate"], cpu / result["bytes"], cpu / result["messages"])


class Loads:
    """Loads on SoftRNIC that only `softrnic-bench` makes."""

    def __init__(self, program, device):
        self.program = program
        self.device = device

    def fan(self, seconds, senders=1, qps=1, size=65536):
        options = ["--senders", senders, "--qps", qps, "--size", size, "--seconds", seconds]
        return loop_stream(self.call("fan", *options))

    def holds(self, seconds):
        """The longest waits for a NIC, in microseconds, while large objects and many regions are made on it, or beside it."""
        return self.call("holds", "--seconds", seconds)

    def idle(self, seconds):
        """The share of one processor that the busier of two idle processes takes."""
        result = self.call("idle", "--seconds", seconds)
        return max(result["sender"], result["receiver"])

    def resident(self, qps):
        """Bytes per end of a connection."""
        return self.call("resident", "--qps", qps)["bytes_per_end"]

    def networks(self, sizes):
        """Studies of networks with so many hosts: events and packets per second, and memory."""
        return [json.loads(single([self.program, "network", "--hosts", hosts]).client) for hosts in sizes]

    def connections(self):
        """How fast rdma_cm makes connections, and bytes of both ends of one."""
        return self.call("connections")

    def call(self, loop, *options):
        return json.loads(single([self.program, loop, "--device", self.device, *options]).client)


class Iperf(Counted):
    """One TCP stream, by iperf3."""

    # iperf3's own default; what it writes and reads at a time.
    BLOCK = 128 << 10
    LARGEST = 1 << 20
    # A shorter run may be over before the receiver has counted anything.
    LEAST = 256 << 20

    def __init__(self, place):
        super().__init__()
        self.place = place

    def stream(self, size, seconds):
        def run(count):
            port = free_port()
            server = ["iperf3", "--server", "--one-off", "--port", port]
            client = ["iperf3", "--client", self.place.server_address, "--port", port, "--json"]
            outcome = pair(self.place, server, [*client, "--length", size, "--blockcount", count], port)
            end = json.loads(outcome.client)["end"]
            bandwidth = end["sum_received"]["bits_per_second"] / 8
            if bandwidth <= 0:
                raise Failure(f"iperf3 has moved nothing\n{outcome.client}")
            return bandwidth / size, outcome.cpu, bandwidth

        per_message, bandwidth = self.run_for("stream", size, seconds, self.LEAST // size, 50_000_000, run)
        return Stream(bandwidth, bandwidth / size, per_message / size, per_message)


class Ucx(Counted):
    """UCX over some of its transports, by ucx_perftest. Over verbs that is `softrnic run`, since UCX reads sysfs."""

    def __init__(self, place, transports="tcp", softrnic=None, device=None):
        super().__init__()
        self.place = place
        self.program = ["ucx_perftest"]
        self.env = {"UCX_TLS": transports, "UCX_LOG_LEVEL": "error"}
        if softrnic is not None:
            self.program = [softrnic, "run", "--device", device, "--", *self.program]
            self.env["UCX_NET_DEVICES"] = "softrnic0:1"
        elif transports == "tcp":
            self.env["UCX_NET_DEVICES"] = place.interface

    def stream(self, size, seconds):
        def run(count):
            row, cpu = self.run("ucp_put_bw", size, count)
            # Since the test began, without the warm-up.
            rate = row["overall_mr"]
            return rate, cpu, rate

        most = 1_000_000 if size < 1024 else 100_000
        per_message, rate = self.run_for("stream", size, seconds, 8, most, run)
        return Stream(rate * size, rate, per_message / size, per_message)

    def latency(self, size, seconds):
        def run(count):
            row, cpu = self.run("tag_lat", size, count)
            return 1e6 / (2 * row["overall_lat"]), cpu, Latency(row["50.0_percentile_lat"])

        return self.run_for("latency", size, seconds, 500, 100_000, run)[1]

    def run(self, test, size, count):
        port = free_port()
        client = [*self.program, self.place.server_address, "-p", port, "-t", test, "-s", size, "-n", count]
        client += ["-w", min(count, 100), "-f", "-v"]
        both = {"port": port, "server_env": self.env, "client_env": self.env}
        outcome = pair(self.place, [*self.program, "-p", port], client, **both)
        lines = [line for line in outcome.client.splitlines() if "," in line]
        if len(lines) < 2:
            raise Failure(f"ucx_perftest has printed no result\n{outcome.client}")
        row = dict(zip(lines[-2].split(","), map(float, lines[-1].split(","))))
        return row, outcome.cpu


class Libfabric(Counted):
    """libfabric over TCP, by fi_pingpong: one message at a time, which is all that this program does."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def latency(self, size, seconds):
        def run(count):
            port = free_port()
            words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-I", count, "-S", size]
            client = [*words, "-P", port, self.place.server_address]
            outcome = pair(self.place, [*words, "-B", port], client, port)
            # bytes, sent, acknowledged, total, time, MB/s, microseconds per transfer, transfers
            row = re.search(r"(?m)^\S+ +\S+ +=?\S+ +\S+ +[\d.]+s +[\d.]+ +([\d.]+) ", outcome.client)
            if not row or float(row[1]) <= 0:
                raise Failure(f"fi_pingpong has printed no result\n{outcome.client}")
            micros = float(row[1])
            return 1e6 / (2 * micros), outcome.cpu, Latency(micros)

        return self.run_for("latency", size, seconds, 200, 100_000, run)[1]


class Memory:
    """memcpy."""

    def __init__(self, program):
        self.bare = Bare(LOOPBACK, program)

    def stream(self, size, seconds):
        return loop_stream(self.bare.call("memcpy", seconds, "--size", size))


def cache_line(program):
    """Nanoseconds that a cache line takes from one processor to another and back."""
    return json.loads(single([program, "cache-line"]).client)["nanoseconds"]
