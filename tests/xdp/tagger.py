"""A switch that tags RoCEv2 frames: for kernels without VLAN interfaces, in whose place it puts the tags on.

usage: tagger.py ONE-PORT OTHER-PORT TAG...    (a tag is TPID:ID in hexadecimal; the outermost first)

Passes frames between two interfaces until standard input ends, and then says how many it has tagged.
"""

import select
import socket
import sys

ANY_PROTOCOL = 3
SO_RCVBUFFORCE = 33
ETHERNET = 14
UDP = 17
ROCE_PORT = 4791
# EtherType: the length of the IP header, and the place of the protocol in it.
FAMILIES = {b"\x08\x00": (20, 9), b"\x86\xdd": (40, 6)}


def main(ports, tags):
    header = b"".join(bytes.fromhex(tpid) + bytes.fromhex(number) for tpid, number in (tag.split(":") for tag in tags))
    sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in ports]
    for port, one in zip(ports, sockets):
        one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        one.bind((port, ANY_PROTOCOL))
    print("ready", flush=True)
    tagged = 0
    while True:
        readable, _, _ = select.select([*sockets, sys.stdin], [], [])
        if sys.stdin in readable:
            print(tagged, flush=True)
            return
        for one in readable:
            frame, (_, _, kind, *_) = one.recvfrom(1 << 16)
            if kind == socket.PACKET_OUTGOING:
                continue
            if is_roce(frame):
                tagged += 1
                frame = frame[:12] + header + frame[12:]
            sockets[one is sockets[0]].send(frame)


def is_roce(frame):
    length, protocol = FAMILIES.get(frame[12:14], (0, 0))
    udp = ETHERNET + length
    return length > 0 and frame[ETHERNET + protocol] == UDP and frame[udp + 2 : udp + 4] == ROCE_PORT.to_bytes(2, "big")


if __name__ == "__main__":
    main(sys.argv[1:3], sys.argv[3:])
