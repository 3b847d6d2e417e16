"""RoCEv2 packets of tests that are a peer themselves, over a UDP socket."""

import random
import socket
import struct
import zlib

PORT = 4791
# Of Linux, which Python does not name.
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def with_icrc(source, port, destination, transport, ip_id=0):
    """A packet from its BTH on, and its ICRC, as one of IPv4 that may not be fragmented and has this identification."""
    length = len(transport) + 4 + 8
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0xFF, length + 20, ip_id, 0x4000, 0xFF, 17, 0xFFFF,
                     socket.inet_aton(source), socket.inet_aton(destination))  # fmt: skip
    udp = struct.pack("!HHHH", port, PORT, length, 0xFFFF)
    # What changes on the way counts as ones.
    masked = b"\xff" * 8 + ip + udp + transport[:4] + b"\xff" + transport[5:]
    return transport + struct.pack("<I", zlib.crc32(masked))


def free_address():
    """An address of loopback that most likely nobody else has."""
    return f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(1, 254)}"


class Peer:
    """A socket for the packets of a queue pair. Linux gives what it sends no identification, as it is not connected."""

    def __init__(self, address):
        self.address = address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        self.socket.bind((address, PORT))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def receive(self, opcode, seconds=20):
        """The PSN of the next packet with this opcode, and where it came from. Others are dropped."""
        self.socket.settimeout(seconds)
        while True:
            packet, sender = self.socket.recvfrom(65536)
            if packet[0] == opcode:
                return int.from_bytes(packet[9:12]), sender[0]

    def respond(self, to, qpn, psn, opcode, syndrome, msn, payload=b""):
        """Sends a packet with an AETH."""
        bth = struct.pack("!BBHII", opcode, 0x40, 0xFFFF, qpn, psn)
        aeth = struct.pack("!I", syndrome << 24 | msn)
        self.socket.sendto(with_icrc(self.address, PORT, to, bth + aeth + payload), (to, PORT))
