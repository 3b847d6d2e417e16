"""Captures, read without SoftRNIC: what must be in them is counted by somebody else than who wrote them.

    python3 captures.py CLIENT SERVER     compares what each has sent with what the other has received
"""

import array
import struct
import sys

ENHANCED_PACKET, STATISTICS = 6, 5
COMMENT, FLAGS, DROPS = 1, 2, 4
INBOUND, OUTBOUND = 1, 2
UDP_PORT = 4791
# Opcodes of requests of an RC QP: SEND to RDMA READ request, atomics, and SEND with invalidate.
RC_REQUESTS = {*range(0x00, 0x0D), 0x13, 0x14, 0x16, 0x17}


class Capture:
    """The packets of a file, in both directions, as opcode, destination QP and PSN in one number each."""

    def __init__(self, path):
        self.sent, self.received = array.array("Q"), array.array("Q")
        self.comments = []
        self.drops = 0
        with open(path, "rb") as file:
            while head := file.read(8):
                kind, length = struct.unpack("<II", head)
                body = file.read(length - 8)
                if len(body) != length - 8 or struct.unpack_from("<I", body, length - 12)[0] != length:
                    raise ValueError(f"{path} ends within a block")
                if kind == ENHANCED_PACKET:
                    self.packet(body)

    def packet(self, body):
        captured = struct.unpack_from("<I", body, 12)[0]
        frame = body[20:20 + captured]
        # Behind the headers of IPv4 or IPv6, and of UDP.
        bth = 14 + (20 if frame[12:14] == b"\x08\x00" else 40) + 8
        if struct.unpack_from(">H", frame, bth - 6)[0] != UDP_PORT:
            raise ValueError("a packet that is not to the port of RoCEv2")
        opcode, qpn, psn = frame[bth], frame[bth + 5:bth + 8], frame[bth + 9:bth + 12]
        number = opcode << 48 | int.from_bytes(qpn, "big") << 24 | int.from_bytes(psn, "big")
        at = 20 + captured + -captured % 4
        flags = 0
        while at + 4 <= len(body) - 4:
            code, length = struct.unpack_from("<HH", body, at)
            value = body[at + 4:at + 4 + length]
            if code == 0:
                break
            if code == FLAGS:
                flags = struct.unpack("<I", value)[0]
            elif code == COMMENT:
                self.comments.append(value.decode())
            elif code == DROPS:
                self.drops += struct.unpack("<Q", value)[0]
            at += 4 + length + -length % 4
        {INBOUND: self.received, OUTBOUND: self.sent}[flags & 3].append(number)

    def missing_psns(self):
        """PSNs of requests of an RC QP that were sent, by queue pair, which no packet has although a later one has."""
        missing = 0
        nexts = {}
        for number in self.sent:
            if number >> 48 in RC_REQUESTS:
                qpn, psn = number >> 24 & 0xFFFFFF, number & 0xFFFFFF
                # A READ takes as many PSNs as its response has packets, so only what sends one packet each is judged.
                ahead = (psn - nexts.get(qpn, psn)) & 0xFFFFFF
                if ahead < 1 << 23:
                    missing += ahead
                    nexts[qpn] = psn + 1 & 0xFFFFFF
        return missing


def difference(client, server):
    """How many packets are in the one's capture as sent and not in the other's as received, and the reverse."""
    lost = sum(abs(len(a.sent) - len(b.received)) for a, b in ((client, server), (server, client)))
    if lost:
        return lost
    return sum(a.sent != b.received and sorted(a.sent) != sorted(b.received) for a, b in ((client, server), (server, client)))


def main():
    client, server = (Capture(path) for path in sys.argv[1:])
    for name, capture in (("client", client), ("server", server)):
        print(f"{name}: {len(capture.sent)} sent, {len(capture.received)} received, {capture.missing_psns()} PSNs "
              f"missing, {capture.drops} lost by the capture")
    print(f"difference: {difference(client, server)}")


if __name__ == "__main__":
    main()
