"""What perftest prints on fabrics in slow motion, over what their descriptions say."""

import os
import re
import time

from programs import PATIENCE, ROOT, Failure, Place, Process, environment, free_port, pair
from subjects import bandwidth_of

# Description, the factor that this machine keeps up with, bytes per second, microseconds to the other host, WRITEs.
EXAMPLES = [("slow-400g", 5000, 400e9 / 8, 2.0, 400), ("slow-25g", 3000, 25e9 / 8, 20.0, 150)]
# A packet of 4096 bytes has 16 bytes of headers and ICRC, and 66 of Ethernet, IP and UDP.
PAYLOAD = 4096 / (4096 + 16 + 66)
SIZE = 64 << 10


def measure(softrnic):
    """By example: the bandwidth of WRITEs, and the latencies of a WRITE and a SEND, each over that of the description."""
    return {name: on_fabric(softrnic, name, *rest) for name, *rest in EXAMPLES}


def on_fabric(softrnic, example, slow, rate, delay, count):
    name = f"bench{os.getpid()}"
    file = ROOT / "examples/fabric" / f"{example}.toml"
    fabric = Process([softrnic, "fabric", "up", file, "--name", name, "--slow", slow], environment(None))
    try:
        await_fabric(fabric)
        hosts = [(softrnic, "fabric", "exec", name, host, "--") for host in ("h0", "h1")]
        place = Place(name, *hosts)
        text = perftest(place, "ib_write_bw", "-s", SIZE, "-n", count, "--report_gbits")
        return {
            "bandwidth": bandwidth_of(text, SIZE) / (rate * PAYLOAD),
            **{program: typical(perftest(place, program, "-s", 2, "-n", 50)) / delay for program in ("ib_write_lat", "ib_send_lat")},
        }
    finally:
        fabric.close()


def await_fabric(fabric):
    deadline = time.monotonic() + PATIENCE
    while " is up" not in fabric.output():
        if fabric.wait(time.monotonic() + 0.003) or time.monotonic() > deadline:
            raise Failure(f"the fabric is not up\n{fabric.describe()}")


def perftest(place, program, *options):
    port = free_port()
    words = [program, "-x", place.gid_index, "-F", "-p", port, *options]
    return pair(place, words, [*words, place.server_address], port).client


def typical(text):
    """perftest's typical latency: bytes, iterations, least, most, typical."""
    row = re.search(r"(?m)^\s*2\s+50\s+[\d.]+\s+[\d.]+\s+([\d.]+)", text)
    if not row:
        raise Failure(f"perftest has printed no latency\n{text}")
    return float(row[1])
