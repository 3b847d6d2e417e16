"""Asks over NETLINK_RDMA which devices there are, step by step, and prints what it gets; each line on standard input is a step.

    netlink_asker.py
"""

import socket
import struct
import sys

NETLINK_RDMA = 20
GET = 5 << 10 | 1
REQUEST_ACK_DUMP = 0x305
DONE = 3


def step(text):
    print(text, flush=True)
    sys.stdin.readline()


with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA) as asker:
    asker.bind((0, 0))
    step(f"bound {asker.getsockname()[0]}")
    asker.send(struct.pack("=IHHII", 16, GET, REQUEST_ACK_DUMP, 7, 0))
    kinds = []
    while DONE not in kinds:
        message = asker.recv(1 << 16)
        kinds.append(struct.unpack_from("=IH", message)[1])
    step(f"got {' '.join(map(str, kinds))}")
    asker.setblocking(False)
    try:
        print("got", asker.recv(1 << 16))
    except BlockingIOError:
        print("got nothing else")
