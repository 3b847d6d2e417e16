"""What passes on the network between the two ends: packets with a BTH, read from the bridge."""

import ctypes
import dataclasses
import os
import socket
import struct
import time

BRIDGE = "br0"
SO_RCVBUFFORCE, SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 33, 263, 1, 1
ETH_P_ALL = 3
ROCE_PORT = 4791

# BTH opcodes that carry an AETH directly after it.
WITH_AETH = {0x0D, 0x0F, 0x10, 0x11, 0x12}


@dataclasses.dataclass(frozen=True)
class Packet:
    source: str
    target: str
    opcode: int
    qpn: int
    psn: int
    syndrome: int | None = None
    msn: int | None = None

    def __str__(self):
        aeth = "" if self.syndrome is None else f" syndrome {self.syndrome:#04x} MSN {self.msn}"
        return f"{self.source} > {self.target} opcode {self.opcode:#04x} QP {self.qpn:#x} PSN {self.psn:#08x}{aeth}"


class Wire:
    """Everything that crosses the bridge of a guest's network, from when this is made."""

    def __init__(self, guest):
        with _network(guest.wire_namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.bind((BRIDGE, 0))
            membership = struct.pack("IHH8s", socket.if_nametoindex(BRIDGE), PACKET_MR_PROMISC, 0, b"")
            self.socket.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def take(self):
        """The RoCE packets since the last call."""
        packets = []
        while True:
            try:
                frame = self.socket.recv(65536)
            except BlockingIOError:
                return packets
            if packet := parse(frame):
                packets.append(packet)

    def take_until_quiet(self, seconds):
        """The same, once nothing has come for so long."""
        packets, quiet_since = [], time.monotonic()
        while time.monotonic() - quiet_since < seconds:
            if more := self.take():
                packets += more
                quiet_since = time.monotonic()
            time.sleep(0.002)
        return packets


def parse(frame):
    """The packet in an Ethernet frame, if it is RoCE."""
    kind = struct.unpack_from("!H", frame, 12)[0] if len(frame) >= 14 else 0
    if kind == 0x0800 and len(frame) >= 14 + 20 + 8 + 12 and frame[23] == 17:
        family, addresses, udp = socket.AF_INET, (frame[26:30], frame[30:34]), 34
    elif kind == 0x86DD and len(frame) >= 14 + 40 + 8 + 12 and frame[20] == 17:
        family, addresses, udp = socket.AF_INET6, (frame[22:38], frame[38:54]), 54
    else:
        return None
    if struct.unpack_from("!H", frame, udp + 2)[0] != ROCE_PORT:
        return None
    source, target = (socket.inet_ntop(family, address) for address in addresses)
    bth = udp + 8
    opcode = frame[bth]
    qpn, psn = (struct.unpack_from("!I", frame, bth + at)[0] & 0xFFFFFF for at in (4, 8))
    if opcode not in WITH_AETH:
        return Packet(source, target, opcode, qpn, psn)
    aeth = struct.unpack_from("!I", frame, bth + 12)[0]
    return Packet(source, target, opcode, qpn, psn, aeth >> 24, aeth & 0xFFFFFF)


class _network:
    """The network namespace `name` for this thread, within a `with` block."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        other = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        self._enter(other)
        os.close(other)

    def __exit__(self, *_):
        self._enter(self.own)
        os.close(self.own)

    def _enter(self, descriptor):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
