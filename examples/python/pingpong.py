#!/usr/bin/env python3
"""Two processes write into each other's memory over a reliable connection, and check what comes.

  pingpong.py                a server, which prints the port that it listens on
  pingpong.py HOST PORT      its client
"""

import json
import socket
import sys

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_MTU_1024, IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_RECV,
    IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE_WITH_IMM,
)  # fmt: skip
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SendWR, SGE

SIZE, ROUNDS = 16384, 200
PORT, GID_INDEX, FIRST_PSN = 1, 0, 0x1234


class Connection:
    """A queue pair, memory to write from, and memory that the other end writes to."""

    def __init__(self):
        devices = get_device_list()
        if not devices:
            sys.exit("there is no RDMA device: softrnic run -- ./pingpong.py has one")
        self.context = Context(name=devices[0].name.decode())
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 2)
        self.out = MR(self.pd, SIZE, IBV_ACCESS_LOCAL_WRITE)
        self.written = MR(self.pd, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
        options = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(1, 1, 1, 1, 0))
        self.attributes = QPAttr(port_num=PORT)
        self.attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE
        self.qp = QP(self.pd, options, self.attributes)
        self.early = {True: 0, False: 0}

    def describe(self):
        """What the other end needs to know."""
        gid = self.context.query_gid(PORT, GID_INDEX).gid
        return {"gid": gid, "qpn": self.qp.qp_num, "address": self.written.buf, "rkey": self.written.rkey}

    def connect(self, peer):
        self.peer = peer
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=GID_INDEX)
        attributes = self.attributes
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        attributes.dest_qp_num = peer["qpn"]
        attributes.path_mtu = IBV_MTU_1024
        attributes.rq_psn = attributes.sq_psn = FIRST_PSN
        # Each packet is tried eight times, 17 ms apart.
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 12, 7, 7
        self.qp.to_rts(attributes)

    def post_receive(self):
        """Room for a number that comes with a write, whose bytes go elsewhere."""
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.written.buf, 0, self.written.lkey)]))

    def write(self, number):
        self.out.write(bytes([number % 256]) * SIZE, SIZE)
        sge = SGE(self.out.buf, SIZE, self.out.lkey)
        request = SendWR(num_sge=1, sg=[sge], opcode=IBV_WR_RDMA_WRITE_WITH_IMM, send_flags=IBV_SEND_SIGNALED,
                         imm_data=number)  # fmt: skip
        request.set_wr_rdma(self.peer["rkey"], self.peer["address"])
        self.qp.post_send(request)

    def wait(self, received):
        """Waits for a write from the other end, or for the completion of our own."""
        while not self.early[received]:
            for completion in self.cq.poll(1)[1]:
                if completion.status != IBV_WC_SUCCESS:
                    sys.exit(f"a completion has status {completion.status}")
                self.early[bool(completion.opcode & IBV_WC_RECV)] += 1
        self.early[received] -= 1

    def check(self, number):
        if self.written.read(SIZE, 0) != bytes([number % 256]) * SIZE:
            sys.exit(f"round {number}: other bytes than were written")


def main():
    if len(sys.argv) not in (1, 3):
        sys.exit(__doc__)
    client = len(sys.argv) == 3
    with rendezvous() as peer:
        connection = Connection()
        connection.post_receive()
        connection.connect(exchange(peer, connection.describe()))
        # Nothing may come before the other end is connected as well.
        exchange(peer, "connected")
        for number in range(1, ROUNDS + 1):
            if client:
                connection.write(number)
            connection.wait(received=True)
            connection.check(number)
            connection.post_receive()
            if not client:
                connection.write(number)
            connection.wait(received=False)
        # The other end may still wait for our ACK, which its last write needs.
        exchange(peer, "done")
    print(f"{ROUNDS} rounds of {SIZE} bytes")


def rendezvous():
    """A TCP connection to tell the other end who we are."""
    if len(sys.argv) == 3:
        return socket.create_connection((sys.argv[1], int(sys.argv[2]))).makefile("rwb")
    with socket.create_server(("", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        return listener.accept()[0].makefile("rwb")


def exchange(peer, ours):
    peer.write(json.dumps(ours).encode() + b"\n")
    peer.flush()
    return json.loads(peer.readline() or sys.exit("the other end has gone"))


main()
