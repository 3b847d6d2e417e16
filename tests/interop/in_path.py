"""A modelled network in the path between two guests: rxe at both ends, and the third ACK of one of them is lost on it."""

import contextlib
import functools
import json
import re
import subprocess
import time

import programs

NAME = "interop-path"
SECONDS = 60
PORT = 20900
# The second guest answers at h1: what h1 sends loses its third ACK.
DESCRIPTION = """
[network]
generator = "star"
hosts = 2
edge = {{ rate = "1Gbps", delay = "5us" }}

[[host]]
name = "h0"
interface = "{0}"

[[host]]
name = "h1"
interface = "{1}"

[[fault]]
link = "h1-s0"
rules = "drop:op=ack:nth=3"
"""
RULE = "drop:op=rc_acknowledge:nth=3"
PROGRAM = ["ib_write_bw", "-n", "200", "-s", "65536"]


def run(guest, other, softrnic, directory):
    """What is wrong; nothing if both programs end well each way, and the capture says which ACK is missing. Both are on
    one wire, which is back when it ends."""
    taps = [guest.tap, other.tap]
    inside = ["ip", "netns", "exec", guest.wire_namespace]
    capture = directory / f"{guest.version}-path.pcapng"
    with contextlib.ExitStack() as stack:
        for tap in taps:
            _ip(guest, f"link set {tap} nomaster")
            stack.callback(_ip, guest, f"link set {tap} master br0")
        fabric = stack.enter_context(_fabric(inside, taps, softrnic, directory, capture))
        sides = [
            programs.Side(f"guest {end.name}", end.command(), None, end.address[4], 1, "rxe0") for end in (guest, other)
        ]
        for number, (server, client) in enumerate((sides[::-1], sides)):
            serve, call = (programs.options(PROGRAM, side, PORT + number) for side in (server, client))
            ready = functools.partial(programs.listens_at, server, PORT + number)
            if problem := programs.pair(server, serve, client, [*call, server.address], ready):
                return problem
        shown = json.loads(_output([*inside, softrnic, "fabric", "ctl", NAME, "show", "--json"]))
        _output([*inside, softrnic, "fabric", "down", NAME])
        if fabric.wait(SECONDS) != 0:
            return f"the fabric has ended with {fabric.returncode}"
    return _counted(shown) or _captured(capture, softrnic)


def _counted(shown):
    """Whether the ports say what happened."""
    ports = {port["port"]: port for port in shown["ports"]}
    faults = {name: port["faults"] for name, port in ports.items() if port["faults"]}
    if faults != {"h1-s0": 1}:
        return f"faults at {faults}"
    for name in ("h0-s0", "h1-s0"):
        if ports[name]["tx_bytes"] < 200 * 65536:
            return f"{name} has sent {ports[name]['tx_bytes']} bytes: the programs took another way"
    return ""


def _captured(capture, softrnic):
    """Whether tshark sees the one packet with a comment, and `explain` says what became of it."""
    fields = ["frame.interface_name", "infiniband.bth.opcode", "frame.comment"]
    wanted = [word for field in fields for word in ("-e", field)]
    lost = _output(["tshark", "-n", "-r", capture, "-Y", "frame.comment", "-T", "fields", *wanted]).splitlines()
    expected = f"h1-s0\t17\tfault: dropped by rule 1, {RULE}"
    if lost != [expected]:
        return f"tshark says {lost} instead of {expected!r}"
    # Its exit status says that something went wrong on the network.
    explained = subprocess.run([softrnic, "explain", capture], capture_output=True, text=True, timeout=SECONDS).stdout
    if not re.search(f"dropped on purpose, by your rule 1, {RULE}", explained):
        return f"explain does not name the lost ACK: {explained}"
    capture.unlink()
    return ""


@contextlib.contextmanager
def _fabric(inside, taps, softrnic, directory, capture):
    description, log = directory / f"{NAME}.toml", directory / f"{NAME}.log"
    description.write_text(DESCRIPTION.format(*taps))
    with open(log, "w") as output:
        words = [*inside, softrnic, "fabric", "up", description, "--pcap", capture]
        process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + SECONDS
        while " is up" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the fabric does not come up: {log.read_text()}")
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


def _output(words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr}")
    return done.stdout


def _ip(guest, words):
    subprocess.run(["ip", "-n", guest.wire_namespace, *words.split()], check=True, timeout=SECONDS)
